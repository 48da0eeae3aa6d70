"""The testbed: runs a scenario on real Linux TCP and captures the packets.

:func:`cctoolkit.run_testbed` runs a :class:`~cctoolkit.Scenario` on real kernel code and writes a directory that
:func:`cctoolkit.load_run` opens. Backends: ``uml`` (virtual time, no root, the same bytes for the same seed),
``netns`` (the host's kernel in real time, needs root), ``mininet`` (for courses that use Mininet).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
