"""The native kernels and their NumPy twins. Everything above calls `stoker.kernel.native` and `stoker.kernel.records`."""
