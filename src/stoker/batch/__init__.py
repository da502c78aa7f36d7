"""The memory of batches: slabs, leases, collation, and the `Batch` users meet."""
