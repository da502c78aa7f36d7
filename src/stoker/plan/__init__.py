"""What will happen: values and arithmetic. No I/O, no clock, no threads."""
