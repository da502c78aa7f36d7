"""What values become when they are stored."""
