"""Sources of shards, whose records are found by an index."""
