"""Where samples come from: one file a kind of data set."""
