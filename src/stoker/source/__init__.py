"""Where samples come from: one file per kind of data set."""
