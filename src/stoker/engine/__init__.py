"""All concurrency is here and nowhere else: a scheduler without I/O, and the executors it drives."""
