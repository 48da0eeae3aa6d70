"""Machine code that is kept between processes: never that of other code, and wherever there is a place."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from documents import ROOT
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target

import cctoolkit
from cctoolkit._support import kernels
from cctoolkit._support.cache_folder import cache_dir
from cctoolkit._support.fingerprint import UnknownValueError, fingerprint
from cctoolkit.errors import ParameterError

#: A package whose kernels stand on other modules, each in another way.
PACKAGE = {
    "kernels.py": """
import numpy as np
from cctoolkit._support.kernels import kernel
from . import limits
from .helpers import Kind, Pair, TABLE, added, closed, defaulted, indirect, read, record
from .limits import LIMIT

@kernel
def alone(x): return x + 1
@kernel
def helper(x): return added(x)
@kernel
def helper_of_helper(x): return indirect(x)
@kernel
def constant(x): return x + LIMIT
@kernel
def attribute(x): return x + limits.LIMIT
@kernel
def default(x): return defaulted(x)
@kernel
def closure(x): return closed(x)
@kernel
def array(x): return x + TABLE[1]
@kernel
def member(x): return x + Kind.SECOND.value
@kernel
def named_tuple(pair): return pair.a
@kernel
def field(rows): return rows[0].a
@kernel
def machine_code(x): return read(x)
""",
    "helpers.py": """
import enum
from typing import NamedTuple
import numba, numpy as np
from numba.core import types
from numba.extending import intrinsic
from .limits import LIMIT

TABLE = np.array([10, 20])
class Kind(enum.Enum):
    FIRST = 1
    SECOND = 2
class Pair(NamedTuple):
    a: int
    b: int
record = np.dtype([("a", "i8"), ("b", "i8")])
@numba.njit
def added(x): return x + 1
@numba.njit
def indirect(x): return x + LIMIT
@numba.njit
def defaulted(x, by=1): return x + by
def factory(by):
    @numba.njit
    def shifted(x): return x + by
    return shifted
closed = factory(1)
def _operation(builder, args): return builder.add(*args)
@intrinsic
def _combined(typingctx, a, b):
    def code(context, builder, signature, args): return _operation(builder, args)
    return types.int64(types.int64, types.int64), code
@numba.njit
def read(x): return _combined(x, 5)
""",
    "limits.py": "LIMIT = 100\n",
    "__init__.py": "",
    "__main__.py": """
import json
import numpy as np
from . import kernels as k
arguments = {"named_tuple": k.Pair(7, 8), "field": np.array([(7, 8)], "i8,i8").view(k.record).reshape(-1)}
found = {}
for name, function in vars(k).items():
    if hasattr(function, "stats") and function.__module__ == k.__name__:
        value = function(arguments.get(name, 1))
        found[name] = [int(value), sum(function.stats.cache_hits.values())]
print(json.dumps(found))
""",
}
FIRST = {
    "alone": 2, "helper": 2, "helper_of_helper": 101, "constant": 101, "attribute": 101, "default": 2, "closure": 2,
    "array": 21, "member": 3, "named_tuple": 7, "field": 7, "machine_code": 6,
}  # fmt: skip
#: File, what stands there, what then does (as long), and the results that follow.
CHANGES = [
    ("helpers.py", "def added(x): return x + 1", "def added(x): return x - 1", {"helper": 0}),
    ("helpers.py", "[10, 20]", "[10, 30]", {"array": 31}),
    ("helpers.py", "SECOND = 2", "SECOND = 3", {"member": 4}),
    ("helpers.py", "    a: int\n    b: int", "    b: int\n    a: int", {"named_tuple": 8}),
    ("helpers.py", '[("a", "i8"), ("b", "i8")]', '[("b", "i8"), ("a", "i8")]', {"field": 8}),
    ("helpers.py", "by=1", "by=3", {"default": 4}),
    ("helpers.py", "factory(1)", "factory(4)", {"closure": 5}),
    ("helpers.py", "builder.add(", "builder.mul(", {"machine_code": 5}),
    (
        "limits.py",
        "LIMIT = 100",
        "LIMIT = 200",
        {"helper_of_helper": 201, "constant": 201, "attribute": 201},
    ),
]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Where the package is."""
    folder = tmp_path / "code" / "pack"
    folder.mkdir(parents=True)
    for name, text in PACKAGE.items():
        (folder / name).write_text(text)
    return folder


def start(package: Path, **environment: str) -> subprocess.Popen[str]:
    """The package's results in a process of its own."""
    home = package.parents[1]
    here = {
        "PYTHONPATH": os.pathsep.join([str(package.parent), str(ROOT)]),
        "XDG_CACHE_HOME": str(home / "cache"),
        "TMPDIR": str(home / "tmp"),
    }
    (home / "tmp").mkdir(exist_ok=True)
    clean = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "CCTOOLKIT_CACHE")}
    return subprocess.Popen(
        [sys.executable, "-m", "pack"],
        env=clean | here | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def results(process: subprocess.Popen[str]) -> tuple[dict[str, int], set[str], str]:
    """Results by name, which came from the cache, and what was said."""
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    found = json.loads(output)
    return (
        {name: value for name, (value, _) in found.items()},
        {n for n, (_, hits) in found.items() if hits},
        errors,
    )


def change(package: Path, name: str, old: str, new: str) -> None:
    """Change a file so that neither its size nor its time tells."""
    path = package / name
    about, text = path.stat(), path.read_text()
    assert text.count(old) == 1 and len(old) == len(new)
    path.write_text(text.replace(old, new))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    for compiled in (package / "__pycache__").glob(
        f"{path.stem}.*.pyc"
    ):  # Python looks at size and time only
        compiled.unlink()


@pytest.mark.slow
def test_kept_as_long_as_nothing_that_goes_in_has_changed(package: Path) -> None:
    assert results(start(package))[:2] == (FIRST, set())
    for path in package.glob("*.py"):
        os.utime(path, (1, 1))
    assert results(start(package))[:2] == (FIRST, set(FIRST))

    for name, old, new, _ in CHANGES:
        change(package, name, old, new)
    values, kept, _ = results(start(package))
    assert values == FIRST | {k: v for *_, what in CHANGES for k, v in what.items()}
    assert kept == {"alone"}
    for name in FIRST.keys() - {"named_tuple", "field"}:  # which are the same for arguments of another kind
        (_,) = package.glob(f"__pycache__/pack.kernels.{name}.*.kernel")  # what was before is gone
    assert results(start(package))[1] == set(FIRST)


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_to(package: Path) -> None:
    """Each place in turn becomes a file; at the end there is none left."""
    home = package.parents[1]
    (package / "__pycache__").touch()
    temporary = home / "tmp" / f"cctoolkit-kernels-{os.getuid()}"
    for folder in (home / "cache" / "cctoolkit" / "kernels", temporary):
        assert results(start(package))[:2] == (FIRST, set())
        assert len(list(folder.glob("*.kernel"))) == len(FIRST)
        assert results(start(package)) == (FIRST, set(FIRST), "")
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        folder.touch()
    values, kept, errors = results(start(package))
    assert (values, kept) == (FIRST, set())
    assert errors.count("set NUMBA_CACHE_DIR") == 1
    assert results(start(package, NUMBA_CACHE_DIR=str(home / "own")))[1] == set()
    assert results(start(package, NUMBA_CACHE_DIR=str(home / "own"))) == (FIRST, set(FIRST), "")


def test_temporary_code_of_others_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = kernels._private_folder(make=True)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert kernels._private_folder(make=False) == folder
    folder.chmod(0o770)
    with pytest.raises(PermissionError):
        kernels._private_folder(make=True)
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(PermissionError):
        kernels._private_folder(make=True)


@pytest.mark.slow
def test_processes_at_the_same_time_and_damaged_files(package: Path) -> None:
    together = [results(process) for process in [start(package) for _ in range(3)]]
    assert [values for values, *_ in together] == [FIRST] * 3
    loaded = Counter(name for _, names, *_ in together for name in names)
    assert loaded == dict.fromkeys(FIRST, 2), "each is compiled by one process, which the others wait for"
    files = sorted(package.glob("__pycache__/*.kernel*"))
    assert len(files) == len(FIRST)
    assert not list(package.glob("__pycache__/.*"))

    for number, path in enumerate(files):
        content = bytearray(path.read_bytes())
        if number % 3 == 0:
            content[len(content) // 2] ^= 1
        path.write_bytes(content[: [None, len(content) // 2, 0][number % 3]])
    assert results(start(package))[:2] == (FIRST, set())
    assert results(start(package))[1] == set(FIRST)
    assert not list(package.glob("__pycache__/*.lock"))


OWN = """
import cctoolkit as cct
from cctoolkit.aqm import DROP, PASS, Aqm
from helper import too_late

class Mine(Aqm):
    def on_dequeue(p, s, stats, queue, packet, now_ns):
        return DROP if too_late(now_ns - packet.enqueued_ns) else PASS

run = cct.simulate(cct.Scenario(bottleneck=cct.Bottleneck(rate_mbps=5, buffer_packets=100, aqm=Mine),
                                flows=[cct.Flow("reno")], duration_s=1), record=False)
print(run.queues.max_delay_ms[0])
"""
HELPER = "import numba\n@numba.njit\ndef too_late(waited_ns): return waited_ns > {} * 1_000_000\n"


@pytest.mark.slow
def test_an_algorithm_whose_helper_in_another_file_changes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    found = []
    for limit_ms in (20, 20, 40):
        (tmp_path / "helper.py").write_text(HELPER.format(limit_ms))
        command = [sys.executable, "-B", str(tmp_path / "mine.py")]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(float(done.stdout))
    assert found[0] == found[1] <= 20 < found[2] <= 40
    assert len(list((tmp_path / "__pycache__").glob("*Mine.on_dequeue*.kernel"))) == 1


TWICE = """
import sys
from numba.core import event
import cctoolkit as cct
with event.install_recorder("numba:compile") as compiled:
    cap = cct.read_capture("traces/cubic-bbr.ingress.pcap.gz")
    cap.flows, cct.rtt_samples(cap), cct.plot.time_sequence(cap, flow_id=0)
    cct.simulate(cct.Scenario(bottleneck=cct.Bottleneck(rate_mbps=50, buffer_packets=99, aqm="codel"),
                              flows=[cct.Flow("cubic"), cct.Flow("bbr")], duration_s=0.1))
print(sorted({e.data["dispatcher"].__name__ for _, e in compiled.buffer if e.is_start}))
"""


@pytest.mark.slow
def test_the_second_process_compiles_nothing() -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", TWICE], cwd=ROOT, text=True, capture_output=True, check=True
        )
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_each_kernel_of_the_package_can_be_kept() -> None:
    """What goes into it is of kinds that have a fingerprint."""
    found = 0
    for module in pkgutil.walk_packages(cctoolkit.__path__, "cctoolkit."):
        if module.name.endswith("__main__") or "router_templates" in module.name:
            continue
        try:
            names = vars(importlib.import_module(module.name))
        except ModuleNotFoundError:  # an extra that is not installed
            continue
        for value in names.values():
            if isinstance(value, Dispatcher) and isinstance(value._cache, kernels._KernelCache):
                assert value._cache._version
                found += 1
    assert found > 50


def test_nothing_in_the_package_uses_numbas_own_cache() -> None:
    for path in (ROOT / "cctoolkit").rglob("*.py"):
        assert "cache=True" not in path.read_text(encoding="utf-8"), path


# ---- the fingerprint -------------------------------------------------------------------------------------------------


def function(source: str, **scope: object) -> object:
    exec(source, scope)
    return scope["f"]


SAME = {
    "a comment and a docstring": ("def f(x): return x", "# why\ndef f(x):\n    'what'\n    return x"),
    "another global": ("a = 1\ndef f(x): return x", "a = 2\ndef f(x): return x"),
    "a set in another order": ("def f(x): return x in {'a', 'b'}", "def f(x): return x in {'b', 'a'}"),
    "recursion": ("def f(x): return f(x - 1) if x else g\ng = 1",) * 2,
}
OTHER = {
    "a constant": ("def f(x): return x + 1", "def f(x): return x + 2"),
    "a kind of number": ("def f(x): return x + 1", "def f(x): return x + 1.0"),
    "an operation": ("def f(x, y): return x + y", "def f(x, y): return x - y"),
    "an order": ("def f(x, y): return x - y", "def f(y, x): return x - y"),
    "a default": ("def f(x=1): return x", "def f(x=2): return x"),
    "a default by name": ("def f(*, x=1): return x", "def f(*, x=2): return x"),
    "a global": ("a = 1\ndef f(x): return a", "a = 2\ndef f(x): return a"),
    "a sign of zero": ("a = 0.0\ndef f(x): return a", "a = -0.0\ndef f(x): return a"),
    "an inner function": (
        "def f(x):\n    def g(): return 1\n    return g()",
        "def f(x):\n    def g(): return 2\n    return g()",
    ),
    "what an inner function uses": (
        "a = 1\ndef f(x):\n    def g(): return a\n    return g()",
        "a = 2\ndef f(x):\n    def g(): return a\n    return g()",
    ),
    "where elements end": ("a = ('b', 'cd')\ndef f(): return a", "a = ('bc', 'd')\ndef f(): return a"),
    "a function that is given": (
        "import math\na = math.sin\ndef f(x): return a(x)",
        "import math\na = math.cos\ndef f(x): return a(x)",
    ),
    "an exception": (
        "def f(x):\n    try: return x\n    except ValueError: return 1",
        "def f(x):\n    try: return x\n    except KeyError: return 1",
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_what_does_the_same_has_one_fingerprint(name: str) -> None:
    first, second = (fingerprint(function(source), lines=False) for source in SAME[name])
    assert first == second


@pytest.mark.parametrize("name", OTHER)
def test_what_does_something_else_has_another(name: str) -> None:
    first, second = (fingerprint(function(source), lines=False) for source in OTHER[name])
    assert first != second


def test_lines_count_where_errors_name_them() -> None:
    first, second = function("def f(x): return x"), function("\ndef f(x): return x")
    assert fingerprint(first) != fingerprint(second)
    assert fingerprint(first, lines=False) == fingerprint(second, lines=False)


def test_arrays_by_kind_shape_and_content() -> None:
    arrays = [
        np.arange(6), np.arange(6.0), np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2), np.arange(6)[::-1],
        np.arange(12)[::2], np.arange(6, dtype=">i8"), np.int64(1), np.uint64(1), 1, True, None, "1", b"1",
    ]  # fmt: skip
    assert len({fingerprint(array) for array in arrays}) == len(arrays)
    assert fingerprint(arrays[0]) == fingerprint(np.arange(6))


def test_a_value_that_nothing_is_known_of() -> None:
    class Thing:
        pass

    for value in (Thing, Thing(), np.array([None]), [Thing()]):
        with pytest.raises(UnknownValueError):
            fingerprint(value)
    assert fingerprint(Thing(), name_of=lambda v: type(v).__name__) != fingerprint("Thing")


@pytest.mark.slow
def test_cached_code_needs_nothing_that_compiles(tmp_path: Path) -> None:
    """What is read with kernels from the cache loads neither numba's registries nor its functions nor pandas.

    And what is compiled after it has what it needs of these.
    """
    trace = ROOT / "traces" / "bufferbloat.ingress.pcap.gz"
    not_needed = {"cffi", "numba.np.arrayobj", "numba.typed.typeddict", "pandas", "scipy.linalg"}
    code = (
        f"import sys; import cctoolkit as cct; cct.read_capture({str(trace)!r});"
        f"print(*sorted({not_needed} & sys.modules.keys()));"
        "import numba, numpy as np;"
        "at = numba.njit(lambda n: np.arange(n).reshape(2, -1)[1].copy()[np.array([1, 0])].sum());"
        "assert at(4) == 5"
    )
    made = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    for loaded in (True, False):  # the first one compiles
        done = subprocess.run(
            [sys.executable, "-c", code], env=made, capture_output=True, text=True, check=True
        )
        assert ("numba.typed.typeddict" in done.stdout.split()) is loaded
    assert done.stdout.split() == []


def test_a_name_that_only_the_registries_know(monkeypatch: pytest.MonkeyPatch) -> None:
    refreshed = []
    context = cpu_target.target_context
    monkeypatch.setattr(context, "refresh", lambda: refreshed.append(True))
    kernels._provide(["NRT_Free", "PyLong_AsLongLong"], context)
    assert not refreshed
    kernels._provide(["NRT_Free", "a_name_that_nobody_has"], context)
    assert refreshed


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CCTOOLKIT_CACHE", str(tmp_path / "mine"))
    assert cache_dir() == tmp_path / "mine"
    assert cache_dir(tmp_path) == tmp_path
    monkeypatch.delenv("CCTOOLKIT_CACHE")
    assert cache_dir().parts[-1] == "cctoolkit" and cache_dir().is_relative_to(Path.home())


def test_without_a_home_the_cache_needs_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CCTOOLKIT_CACHE", raising=False)

    def homeless(name: str) -> str:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr("platformdirs.user_cache_dir", homeless)
    with pytest.raises(ParameterError, match="CCTOOLKIT_CACHE"):
        cache_dir()


@pytest.mark.slow
def test_a_machine_without_a_writable_place(tmp_path: Path) -> None:
    """A read-only container, with no home: the answer, after one warning."""
    made = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    read_only = """
        mount -t tmpfs -o ro tmpfs "$1"
        for place in / /tmp /var/tmp /dev/shm; do
            mountpoint -q $place || mount --bind $place $place
            mount -o remount,bind,ro $place
        done
        cd /
        ! touch "$1"/x /tmp/x /var/tmp/x 2>/dev/null || exit 77
        NUMBA_CACHE_DIR="$1" exec "$2" -m cctoolkit.cli rtt "$3"
    """
    trace = ROOT / "traces" / "bufferbloat.ingress.pcap.gz"
    command = ["unshare", "-m", "sh", "-ec", read_only, "sh", str(tmp_path), sys.executable, str(trace)]
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("needs to mount file systems (root)")
    done = subprocess.run(command, env=made, capture_output=True, text=True, check=False)
    if done.returncode in (32, 77):
        pytest.skip(f"cannot make everything read-only here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("cct: warning: no writable folder for compiled code")
    assert "10.1.0.10" in done.stdout
