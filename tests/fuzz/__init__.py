"""Fuzzing: random damage to what the package reads, in processes that are watched.

``compiled`` drives the kernels that read bytes, against a page that must not be touched; ``readers`` are the readers
written in Python, which atheris guides by their coverage (``guided``); ``tables`` damages tables for every public
function that takes one. ``watched`` runs a target and says what it did: a fault is a signal, an exception that the
documentation does not name, a wrong result, more than 10 s or more than 2 GB. From the repository's root:
``make fuzz TARGET=pcapng CASES=100000``.
"""

import sys
from pathlib import Path

# The made captures and naive twins, also for python -m tests.fuzz.
sys.path.insert(0, str(Path(__file__).parents[1]))
