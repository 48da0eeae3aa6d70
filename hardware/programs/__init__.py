"""The P4 programs, one folder each: both versions, constants, control plane, experiment and README."""

from pathlib import Path

#: Every folder here that has a program in it.
PROGRAMS = tuple(sorted(path.parent.name for path in Path(__file__).parent.glob("*/constants.py")))
