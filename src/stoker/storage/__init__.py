"""How bytes are fetched."""
