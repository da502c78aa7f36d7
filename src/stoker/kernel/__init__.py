"""The native kernels. Everything above calls `native.py`, `render.py`, `records.py` and `example_columns.py`."""
