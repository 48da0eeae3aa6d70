"""Programs for switches and routers, and what drives them: P4 programs, control planes, launch scripts.

Not part of the installed package. In the root of a checkout, these commands work: ``python -m hardware.build``,
``python -m hardware.constants``, ``python -m hardware.programs.NAME.control``, ``python -m hardware.launch.switch``
and ``python -m hardware.router.junos``.
"""
