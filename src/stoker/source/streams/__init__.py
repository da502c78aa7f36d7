"""Sources that can only be read in order."""
