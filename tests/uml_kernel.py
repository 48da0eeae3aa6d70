"""A User Mode Linux kernel for tests: the one `cct testbed` would use, else one that lies beside the repository."""

from __future__ import annotations

import hashlib
import lzma
import os
import sys
from pathlib import Path

import pytest

from cctoolkit._support.atomic import replacing
from cctoolkit._support.cache_folder import kernel_folder
from cctoolkit.errors import TestbedUnavailableError
from cctoolkit.testbed.kernel import Kernel, check_kernel, find_kernel

_BUILT = Path(__file__).parents[2] / "shared" / "uml"


def uml_kernel() -> Kernel:
    """The kernel, or the test is skipped with the reason; it boots here."""
    if not sys.platform.startswith("linux"):
        pytest.skip("User Mode Linux needs Linux")
    try:
        kernel = find_kernel()
    except TestbedUnavailableError as err:
        packed = sorted(_BUILT.glob("linux-*.xz"))
        if os.environ.get("CCTOOLKIT_UML_KERNEL") or not packed:
            pytest.skip(str(err))
        data = lzma.decompress(packed[-1].read_bytes())
        name = f"{packed[-1].stem}-{hashlib.sha256(data).hexdigest()[:12]}"
        with replacing(kernel_folder() / name) as tmp:
            tmp.write_bytes(data)
        (kernel_folder() / name).chmod(0o755)
        kernel = find_kernel()
    try:
        check_kernel(kernel)
    except TestbedUnavailableError as err:
        pytest.skip(str(err))
    return kernel
