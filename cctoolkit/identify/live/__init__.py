"""Flows of a router named while they run: the Dragonfly collector in the kernel, and slots of what it sees.

``watch(KernelCollector("in0", "out0"))`` gives :class:`Update` after :class:`Update`; with a :class:`CaptureCollector`
it does the same with captures. The kernel's part is in ``hardware/ebpf``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
