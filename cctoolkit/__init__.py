"""cctoolkit: packet captures, congestion control and queues, for notebooks and the command line.

Packets in one table, whatever made them; everything else is a function of that table. Names load at first use, so
importing the package costs next to nothing; ``__init__.pyi`` lists the public ones and where each lives.
"""

import lazy_loader

from ._support.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
