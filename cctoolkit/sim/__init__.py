"""The simulator: a numba event loop around one bottleneck; :func:`cctoolkit.simulate` runs it."""
