"""Writers of shards: files that appear whole or not at all."""
