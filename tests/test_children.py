"""Child processes of the testbed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cctoolkit._support.children import ending_with_parent, staying_on_one_processor


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_a_child_and_its_children_stay_on_one_processor() -> None:
    count = "import os, subprocess, sys; print(len(os.sched_getaffinity(0)), flush=True)"
    done = subprocess.run(
        [sys.executable, "-c", f"{count}; subprocess.run([sys.executable, '-c', {count!r}])"],
        preexec_fn=ending_with_parent(staying_on_one_processor()),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1", "1"]
