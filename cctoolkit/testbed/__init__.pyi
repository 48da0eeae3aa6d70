from .errors import TestbedError as TestbedError
from .sweep import run_testbed_sweep as run_testbed_sweep
from .testbed import run_testbed as run_testbed
