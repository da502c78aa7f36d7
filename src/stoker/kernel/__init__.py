"""The native kernels. Everything above calls `stoker.kernel.native` and `stoker.kernel.records`."""
