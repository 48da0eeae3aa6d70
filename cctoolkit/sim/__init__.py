"""The simulator: an event loop in numba around one bottleneck; :func:`cctoolkit.sim.simulation.simulate` runs it."""
