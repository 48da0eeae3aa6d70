"""Live identification: the Dragonfly collector in the kernel, slots from its cells, names from a model.

``watch(KernelCollector("in0", "out0"))`` yields one :class:`Update` after another; with a :class:`CaptureCollector` it
does the same for captures. The kernel part is in ``hardware/ebpf``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
