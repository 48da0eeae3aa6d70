"""What runs on switches and routers, and what drives it: P4 programs, their control planes, launch scripts.

Not part of the installed package: it is used from a checkout, in whose root ``python -m hardware.build``,
``python -m hardware.constants`` and ``python -m hardware.programs.NAME.control`` work.
"""
