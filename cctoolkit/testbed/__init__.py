"""The same scenario on real Linux TCP: out come captures.

:func:`run_testbed` runs a :class:`~cctoolkit.Scenario` on real kernel code and leaves a directory that
:func:`cctoolkit.load_run` opens. Backends: ``uml`` (virtual time, no root, the same bytes for the same seed), ``netns``
(the host's kernel in real time, root), ``mininet``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
