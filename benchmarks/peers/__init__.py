"""What others would use instead, written as well as their users would write it."""
