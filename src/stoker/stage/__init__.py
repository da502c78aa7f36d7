"""What a worker does to a chunk: one file per kind of stage. `plan/` says what; this does it."""
