"""What a worker does to a chunk: one file a kind of stage. `plan/` says what; this does it."""
