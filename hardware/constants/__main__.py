"""``python -m hardware.constants``: write ``hardware/generated``."""

from . import write

write()
