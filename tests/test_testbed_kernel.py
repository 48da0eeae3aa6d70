"""The testbed's kernel: found, refused, built from a tree (a small one that only looks like Linux), and repeatable."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from uml_kernel import uml_kernel

from cctoolkit.errors import ParameterError, TestbedUnavailableError
from cctoolkit.testbed import kernel_build
from cctoolkit.testbed.kernel import check_kernel, find_kernel
from cctoolkit.testbed.kernel_build import build_kernel
from cctoolkit.testbed.kernel_code import read_kernel_code

FILES = Path(kernel_build.__file__).with_name("kernel")


@pytest.fixture(autouse=True)
def cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    """A cache of one's own, but for tests of the real kernel."""
    path = tmp_path_factory.mktemp("cache")
    if request.node.get_closest_marker("uml") is None:
        monkeypatch.setenv("CCTOOLKIT_CACHE", str(path))
        monkeypatch.delenv("CCTOOLKIT_UML_KERNEL", raising=False)
    return path / "testbed" / "kernel"


def program(path: Path, says: str, status: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\nexit {status}\n")
    path.chmod(0o755)
    return path


# ---- finding ---------------------------------------------------------------------------------------------------------


def test_without_a_kernel_it_says_how_to_get_one() -> None:
    with pytest.raises(TestbedUnavailableError, match="`cct testbed build`"):
        find_kernel()


def test_the_last_one_built_is_taken_and_the_named_one_before_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for age, version in enumerate(("6.12.10-cct", "6.12.9-cct", "7.2.1-cct")):
        built = program(cache / f"linux-{version}-0123456789ab", version)
        os.utime(built, (1e9 - age, 1e9 - age))
        (cache / f"linux-{version}-0123456789ab.json").write_text("{}")
    found = find_kernel()
    assert found.version == "6.12.10-cct" and found.path.parent == cache
    done = subprocess.run(["sha256sum", found.path], capture_output=True, text=True, check=True).stdout
    assert found.sha256 == done.split()[0]
    monkeypatch.setenv("CCTOOLKIT_UML_KERNEL", str(program(tmp_path / "mine", "6.13.0")))
    assert find_kernel().version == "6.13.0"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CCTOOLKIT_UML_KERNEL", "mine")
    assert find_kernel().path == tmp_path / "mine"  # it runs in another folder


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "No such file"),
        (lambda path: path.write_text("text"), "Permission denied"),
        (lambda path: program(path, "hello"), "it does not report its version"),
        (lambda path: program(path, "6.12", 1), "it does not report its version"),
    ],
)
def test_what_is_no_kernel_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make, message: str
) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / "kernel")
    monkeypatch.setenv("CCTOOLKIT_UML_KERNEL", str(tmp_path / "kernel"))
    with pytest.raises(
        TestbedUnavailableError, match=f"{tmp_path}/kernel: not a User Mode Linux kernel: {message}"
    ):
        find_kernel()


def test_a_kernel_that_does_not_boot_is_refused_with_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "#!/bin/sh\n[ $1 = --version ] && exec echo 6.12\necho hello\necho ptrace: Operation not permitted\n"
    )
    path = program(tmp_path / "kernel", "")
    path.write_text(text)
    monkeypatch.setenv("CCTOOLKIT_UML_KERNEL", str(path))
    with pytest.raises(TestbedUnavailableError, match="does not boot here: ptrace: Operation not permitted"):
        check_kernel(find_kernel())


def test_a_processor_with_more_registers_than_the_kernel_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen with Linux 6.12 on a processor with AMX: what it says, and then a panic of its first program."""
    console = (
        "Kernel command line: panic=-1\nuserspace - ptrace set fp regs failed, errno = 14\nKernel panic\n"
    )
    path = program(tmp_path / "kernel", "")
    path.write_text(f"#!/bin/sh\n[ $1 = --version ] && exec echo 6.12\nprintf '{console}'\n")
    monkeypatch.setenv("CCTOOLKIT_UML_KERNEL", str(path))
    with pytest.raises(TestbedUnavailableError, match=r"registers \(AMX\)"):
        check_kernel(find_kernel())


# ---- building --------------------------------------------------------------------------------------------------------


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("make", "gcc", "ld", "tar", "xz", "patch"):
        program(tmp_path / name, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kernel_build.missing_build_tools() == ["flex", "bison", "bc"]
    with pytest.raises(
        TestbedUnavailableError, match=r"^flex, bison, bc not found: install .*apt-get install .*dnf install"
    ):
        build_kernel()


needs_tools = pytest.mark.skipif(
    bool(kernel_build.missing_build_tools()), reason=f"no {', '.join(kernel_build.missing_build_tools())}"
)

#: Made by the user's own builds in a tree.
BUILT = ("vmlinux", "vmlinux.o", ".vmlinux.export.c")
_MAKEFILE = r"""
VERSION = 6
PATCHLEVEL = 12
SUBLEVEL = 7
.PHONY: linux
all:
	false
allnoconfig:
	@cp $(KCONFIG_ALLCONFIG) .config && sed -i /PRAGUE/d .config
linux:
	@cat vmlinux.lds.S >/dev/null && ! ls vmlinux vmlinux.o 2>/dev/null
	@$(STEPS)
	@echo "  CC      init/main.o"
	@echo '#!/bin/sh' > linux
	@echo "# $$KBUILD_BUILD_USER $$KBUILD_BUILD_TIMESTAMP $(ARCH) $$(grep -c getenv arch/um/os-Linux/util.c)" >> linux
	@echo 'echo 6.12.7-cct' >> linux
	@chmod +x linux
	@echo "  LINK    linux"
"""
_UTIL = """
static void f(void)
{
	for (;;)
		if (kill(getpid(), SIGABRT) < 0)
			exit(127);
}

ssize_t os_getrandom(void *buf, size_t len, unsigned int flags)
{
	return getrandom(buf, len, flags);
}

/*
 * UML helper threads must not handle SIGWINCH/INT/TERM
 */
"""
_KCONFIG = """
config GENERIC_CALIBRATE_DELAY
	bool
	default y

config HZ
	int
	default 100

config NR_CPUS
	int
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What looks like Linux to the builder; its kernel says its version."""
    root = tmp_path / "linux-6.12.7"
    (root / "arch" / "um" / "os-Linux").mkdir(parents=True)
    (root / "Makefile").write_text(_MAKEFILE)
    (root / "arch" / "um" / "os-Linux" / "util.c").write_text(_UTIL)
    (root / "vmlinux.lds.S").write_text("/* a source, whatever its name */")
    for name in BUILT:
        (root / name).write_text("of a build of the user's")
    (root / "arch" / "um" / "Kconfig").write_text(_KCONFIG)
    return root


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.slow
@needs_tools
@pytest.mark.parametrize("packed", [False, True])
def test_a_build_leaves_a_kernel_with_its_history_and_nothing_else(
    tree: Path, cache: Path, tmp_path: Path, packed: bool
) -> None:
    before = snapshot(tree)
    source = tree
    if packed:
        source = tmp_path / "linux-6.12.7.tar.xz"
        with tarfile.open(source, "w:xz") as archive:
            archive.add(tree, tree.name, filter=lambda one: None if Path(one.name).name in BUILT else one)
    made = build_kernel(source, progress=False)
    assert made == find_kernel()
    assert made.version == "6.12.7-cct" and made.path.name == f"linux-6.12.7-cct-{made.sha256[:12]}"
    assert {p.name for p in cache.iterdir()} == {made.path.name, f"{made.path.name}.json", "lock"}
    assert snapshot(tree) == before  # the user's tree is as it was
    text = made.path.read_text()
    assert "# cctoolkit 1970-01-01 um 1" in text  # built by nobody at no time; the patch is in it
    about = json.loads(made.path.with_name(f"{made.path.name}.json").read_text())
    assert (
        about["sha256"] == made.sha256
        and about["source"] == source.name
        and about["without"] == ["TCP_CONG_PRAGUE"]
    )
    assert build_kernel(source, progress=False) == made


_OFFSETS = """
#else
#ifdef FP_XSTATE_MAGIC1
	DEFINE_LONGS(HOST_FP_SIZE, 2696);
#else
	DEFINE(HOST_FP_SIZE, sizeof(struct _fpstate) / sizeof(unsigned long));
#endif
"""
_STACK = """
config KERNEL_STACK_ORDER
	int "Kernel stack size order"
	default 2 if 64BIT
	range 2 10 if 64BIT
"""


@pytest.mark.slow
@needs_tools
def test_an_older_tree_gets_room_for_all_registers(tree: Path, cache: Path) -> None:
    """A process with AMX has 11 kB of registers: Linux 6.12 has room for 2.7, on the stack too."""
    offsets = tree / "arch" / "x86" / "um" / "user-offsets.c"
    offsets.parent.mkdir(parents=True)
    offsets.write_text(_OFFSETS)
    kconfig = tree / "arch" / "um" / "Kconfig"
    kconfig.write_text(kconfig.read_text() + _STACK)
    files = "arch/x86/um/user-offsets.c arch/um/Kconfig"
    steps = f"cat {files} | grep -c -e 12288 -e 'default 4 if 64BIT' | grep -q 2"
    (tree / "Makefile").write_text(_MAKEFILE.replace("$(STEPS)", steps))
    assert build_kernel(tree, progress=False).version == "6.12.7-cct"
    offsets.write_text("extern unsigned long host_fp_size; /* not HOST_FP_SIZE */")
    with pytest.raises(TestbedUnavailableError, match="the build of the kernel failed"):  # not patched
        build_kernel(tree, progress=False)


def test_the_patch_changes_what_it_says() -> None:
    """Randomness and the length of a jiffy, in two files, and only there."""
    text = (FILES / "patch").read_text()
    assert re.findall(r"^\+\+\+ b/(\S+)$", text, re.MULTILINE) == [
        "arch/um/os-Linux/util.c",
        "arch/um/Kconfig",
    ]
    taken = [line for line in text.splitlines() if line.startswith("-") and not line.startswith("---")]
    assert taken == ["-\tdefault 100"]


@needs_tools
@pytest.mark.parametrize(
    ("file", "text", "error", "message"),
    [
        ("Makefile", "VERSION = 6\nPATCHLEVEL = 6\n", ParameterError, "is Linux 6.6;"),
        ("arch/um/Kconfig", None, ParameterError, "is not a Linux source tree"),
        ("arch/um/os-Linux/util.c", "int x;\n", TestbedUnavailableError, "patch does not fit Linux 6.12.7"),
        ("Makefile", ("/PRAGUE/d", "/NETEM/d"), TestbedUnavailableError, "CONFIG_NET_SCH_NETEM"),
        ("Makefile", ("$(STEPS)", "echo x.c:1: error: no; false"), TestbedUnavailableError,
         r"the build of the kernel failed: x.c:1: error: no \(log: .*build.log\)"),
        ("Makefile", ("6.12.7-cct", "hello"), TestbedUnavailableError, "not a User Mode Linux kernel"),
    ],
)  # fmt: skip
def test_a_failed_build_is_reported_and_leaves_no_kernel(
    tree: Path,
    cache: Path,
    file: str,
    text: str | tuple[str, str] | None,
    error: type[Exception],
    message: str,
) -> None:
    path = tree / file
    if text is None:
        path.unlink()
    else:
        path.write_text(text if isinstance(text, str) else path.read_text().replace(*text))
    with pytest.raises(error, match=message):
        build_kernel(tree, progress=False)
    assert {p.name for p in cache.iterdir()} <= {"lock", "build.log"}


@needs_tools
def test_a_source_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match="nowhere does not exist"):
        build_kernel(tmp_path / "nowhere")
    (tmp_path / "text").write_text("text")
    with pytest.raises(ParameterError, match="text: not a tar archive"):
        build_kernel(tmp_path / "text")
    monkeypatch.setattr(kernel_build, "_SOURCES", tmp_path)
    with pytest.raises(TestbedUnavailableError, match="apt-get install linux-source"):
        build_kernel()
    for name in ("linux-source-6.1.tar.xz", "linux-source-6.12.tar.xz", "linux-source-7.2.tar.xz"):
        (tmp_path / name).touch()
    assert kernel_build.installed_source().name == "linux-source-7.2.tar.xz"


# ---- code of the user's own ------------------------------------------------------------------------------------------

_QDISC = """
static unsigned int target_us = 5000;
module_param(target_us, uint, 0644);
static struct Qdisc_ops lazy_ops __read_mostly = {
	.id = "lazy", .owner = THIS_MODULE,
	.enqueue = lazy_enqueue,
};
register_qdisc(&lazy_ops);
"""
_CCA = """
module_param_named(gain, my_gain, int, 0644);
struct tcp_congestion_ops mine = {
	.flags		= TCP_CONG_NON_RESTRICTED,
	.name		= "mine",
};
static struct tcp_congestion_ops fallback = {
	.name		= "mine-reno",
};
tcp_register_congestion_control(&mine);
"""
_PATCH = """--- a/net/ipv4/tcp_core.c
+++ b/net/ipv4/tcp_core.c
@@ -1,2 +1,2 @@
-one
+two
 end
--- /dev/null
+++ b/net/ipv4/tcp_new.c
@@ -0,0 +1,4 @@
+struct tcp_congestion_ops new = {
+	.name = "new",
+};
+tcp_register_congestion_control(&new);
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "my code"
    folder.mkdir()
    (folder / "sch_lazy.c").write_text(_QDISC)
    (folder / "lazy.h").write_text("/* a header */")
    (folder / "notes.txt").write_text("no code")
    (folder / "old.mod.c").write_text("left by another build")
    return folder


def test_what_a_folder_adds(code: Path) -> None:
    found = read_kernel_code(code)
    assert found.name == "my_code"
    assert [p.name for p in found.sources] == ["lazy.h", "sch_lazy.c"]
    assert found.qdiscs == {"lazy": {"module": "sch_lazy", "parameters": ["target_us"]}}
    before = found.sha256
    (code / "tcp-mine.c").write_text(_CCA)
    (code / "Makefile").write_text("obj-m := sch_lazy.o both.o\nboth-objs := tcp-mine.o \\\n  other.o\n")
    (code / "b.patch").write_text(_PATCH)
    found = read_kernel_code(code)
    assert found.ccas == {
        "mine": {"module": "both", "parameters": ["gain"]},
        "new": {"module": "tcp_new", "parameters": []},
    }
    assert [p.name for p in found.patches] == ["b.patch"]
    assert found.sha256 != before


def test_a_folder_without_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"--with: .*nowhere is not a folder"):
        read_kernel_code(tmp_path / "nowhere")
    (tmp_path / "README.md").write_text("later")
    with pytest.raises(ParameterError, match="has no C file and no patch"):
        read_kernel_code(tmp_path)


@pytest.fixture
def network(tree: Path) -> Path:
    """The tree with a network, whose kernel holds what is compiled there."""
    for path, text in (
        ("net/Makefile", "obj-y += core/\n"),
        ("net/sched/sch_pie.c", _QDISC.replace("lazy", "pie")),
        ("net/ipv4/tcp_core.c", "one\nend\n"),
        ("drivers/used.c", ""),
        ("drivers/unused.c", ""),
        ("drivers/Kconfig", ""),
    ):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    steps = (
        "echo done >> steps; echo drivers/used.c > .x.o.cmd; "
        "! grep -rn MISTAKE net/added | sed 's/$$/ error: a mistake/' | grep . && "
        "cat net/Makefile net/added/Makefile net/added/*/* net/ipv4/*.c | sed 's/^/# /' > text"
    )
    made = _MAKEFILE.replace("$(STEPS)", steps).replace("\t@chmod", "\t@cat text >> linux\n\t@chmod")
    (tree / "Makefile").write_text(made)
    return tree


@pytest.mark.slow
@needs_tools
def test_a_build_with_code_keeps_its_tree_and_starts_from_there(
    network: Path, cache: Path, code: Path, tmp_path: Path
) -> None:
    made = build_kernel(network, code=[code], progress=False)
    about = json.loads(made.path.with_name(f"{made.path.name}.json").read_text())
    assert about["with"] == made.code == {"my_code": read_kernel_code(code).sha256}
    assert made.modules == {"lazy": "sch_lazy"} and made == find_kernel()
    assert made.module("sch", "lazy") == "sch_lazy" and made.module("tcp", "b-b") == "tcp_b_b"
    text = made.path.read_text()
    assert "# obj-y += added/" in text and "# obj-y += my_code/" in text and "# obj-y += sch_lazy.o" in text
    kept = cache / "tree"
    assert not (kept / "drivers" / "unused.c").exists() and (kept / "drivers" / "used.c").exists()
    assert (kept / "drivers" / "Kconfig").exists()
    assert not (network / "net" / "added").exists()

    (code / "sch_lazy.c").write_text(_QDISC + "/* edited */\n")
    unchanged = (kept / "net" / "added" / "my_code" / "lazy.h").stat().st_mtime_ns
    again = build_kernel(network, code=[code], progress=False)
    assert again.sha256 != made.sha256 and "edited" in again.path.read_text()
    assert (kept / "steps").read_text().split() == ["done", "done"]  # the same tree
    assert (kept / "net" / "added" / "my_code" / "lazy.h").stat().st_mtime_ns == unchanged

    (code / "sch_lazy.c").write_text(_QDISC + "MISTAKE\n")
    with pytest.raises(TestbedUnavailableError, match=rf"{code}/sch_lazy.c:9:MISTAKE error"):
        build_kernel(network, code=[code], progress=False)
    (code / "sch_lazy.c").write_text(_QDISC)
    assert build_kernel(network, code=[code], progress=False).sha256 == made.sha256
    assert len((kept / "steps").read_text().split()) == 4

    other = tmp_path / "other"
    other.mkdir()
    (other / "a.patch").write_text(_PATCH)
    both = build_kernel(network, code=[code, other], progress=False)
    assert (kept / "steps").read_text().split() == ["done"]  # patches need a new tree
    assert "# two" in both.path.read_text() and both.modules == {"lazy": "sch_lazy", "new": "tcp_new"}
    shutil.rmtree(kept / "net" / "sched")
    (kept / "cctoolkit-unfinished").touch()  # killed in the middle
    assert build_kernel(network, code=[code, other], progress=False) == both
    (network / "net" / "ipv4" / "tcp_core.c").write_text("one\nend\n# edited too\n")
    assert "edited too" in build_kernel(network, code=[code, other], progress=False).path.read_text()


@needs_tools
def test_its_own_makefile_says_what_is_compiled(network: Path, cache: Path, code: Path) -> None:
    (code / "Kbuild").write_text("obj-m := sch_lazy.o\n")
    build_kernel(network, code=[code], progress=False)
    folder = cache / "tree" / "net" / "added" / "my_code"
    assert (folder / "own.mk").read_text() == "obj-m := sch_lazy.o\n"
    assert "obj-y += $(obj-m)" in (folder / "Makefile").read_text()
    assert {p.name for p in folder.iterdir()} == {"Makefile", "own.mk", "sch_lazy.c", "lazy.h"}


@needs_tools
def test_code_that_cannot_be_built_in(network: Path, cache: Path, code: Path, tmp_path: Path) -> None:
    (code / "sch_lazy.c").write_text(_QDISC.replace('"lazy"', '"pie"'))
    with pytest.raises(ParameterError, match=r"already has a queue discipline 'pie' \(sch_pie.c\)"):
        build_kernel(network, code=[code], progress=False)
    twin = tmp_path / "more" / "my code"
    twin.mkdir(parents=True)
    (twin / "x.c").write_text("")
    with pytest.raises(ParameterError, match="two folders are named my_code"):
        build_kernel(network, code=[code, twin], progress=False)
    (twin / "x.patch").write_text(_PATCH.replace("-one", "-three"))
    with pytest.raises(TestbedUnavailableError, match=r"x.patch: does not fit Linux 6.12.7"):
        build_kernel(network, code=[twin], progress=False)
    assert {p.name for p in cache.iterdir()} == {"lock"}


_CHILD = """
import sys
from cctoolkit.testbed.kernel_build import build_kernel
build_kernel(sys.argv[1], progress=False)
"""


@pytest.mark.slow
@needs_tools
@pytest.mark.parametrize("number", [2, 9])
def test_a_stopped_build_ends_its_compilers(tree: Path, cache: Path, number: int) -> None:
    """After Ctrl-C nothing is left; after a kill the next build removes what is."""
    mark = f"31.4{os.getpid()}{number}"
    (tree / "Makefile").write_text(_MAKEFILE.replace("$(STEPS)", f"sleep {mark}"))
    process = subprocess.Popen([sys.executable, "-c", _CHILD, tree], stderr=subprocess.DEVNULL)

    def sleeping() -> bool:
        return (
            subprocess.run(["pgrep", "-f", f"sleep {mark}"], capture_output=True, check=False).returncode == 0
        )

    try:
        for _ in range(400):
            if sleeping():
                break
            time.sleep(0.05)
        assert sleeping()
        with pytest.raises(TestbedUnavailableError, match="another build is in progress"):
            build_kernel(tree, progress=False)
        process.send_signal(number)
        process.wait(120)
        for _ in range(200):
            if not sleeping():
                break
            time.sleep(0.05)
        assert not sleeping()
    finally:
        process.kill()
        process.wait()
    left = {p.name for p in cache.iterdir()}
    assert (left == {"lock"}) == (number == 2)
    (tree / "Makefile").write_text(_MAKEFILE)
    build_kernel(tree, progress=False)
    assert not list(cache.glob("build-*"))


# ---- the real one ----------------------------------------------------------------------------------------------------


def boot(path: Path, folder: Path, seed: str | None) -> str:
    """What a guest's first program prints: random bytes of three kinds, and the end."""
    init = folder / "init"
    init.write_text(
        "#!/bin/sh\nmount -t proc proc /proc\nod -An -tx1 -N32 /dev/urandom\ncat /proc/sys/kernel/random/uuid\n"
        "cat /proc/sys/kernel/random/boot_id\necho that is all\n"
    )
    init.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if k != "UMLSEED"} | {"HOME": str(folder)}
    if seed is not None:
        environment["UMLSEED"] = seed
    command = [
        path,
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "mem=128M",
        "init=/proc/self/cwd/init",
        "con=null",
    ]
    command += [
        "con0=null,fd:1",
        "quiet",
        "loglevel=0",
        "panic=-1",
        "time-travel=inf-cpu",
        "devtmpfs.mount=1",
    ]
    command += ["time-travel-start=1700000000000000000"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "that is all" in done.stdout, done.stdout + done.stderr
    return done.stdout.split("that is all")[0]


@pytest.mark.uml
def test_a_seed_makes_all_randomness_repeatable(tmp_path: Path) -> None:
    path = uml_kernel().path
    one, again, two = (boot(path, tmp_path, seed) for seed in ("1", "1", "0x2"))
    assert one == again != two
    assert len(set(re.findall(r"\b[0-9a-f]{2}\b", one))) > 20
    assert boot(path, tmp_path, None) != boot(path, tmp_path, None)  # normal without one


@pytest.mark.uml
def test_a_seed_has_to_be_a_number(tmp_path: Path) -> None:
    found = uml_kernel()
    if not found.version.endswith("-cct"):
        pytest.skip(f"{found.version} was not built by cct testbed build")
    environment = os.environ | {"HOME": str(tmp_path), "UMLSEED": "three"}
    done = subprocess.run(
        [found.path, "mem=64M"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert 'UMLSEED: "three" is not a number' in done.stdout + done.stderr


@pytest.mark.slow
@needs_tools
def test_the_patch_fits_the_installed_source(tmp_path: Path) -> None:
    try:
        source = kernel_build.installed_source()
    except TestbedUnavailableError as err:
        pytest.skip(str(err))
    if source.is_dir():
        pytest.skip("the installed source is unpacked")
    wanted = ["--wildcards", "*/arch/um/Kconfig", "*/arch/um/os-Linux/util.c"]
    subprocess.run(["tar", "-x", "-f", source, "--strip-components=1", *wanted], cwd=tmp_path, check=True)
    done = subprocess.run(
        ["patch", "-p1", "--forward", "--batch", "-i", FILES / "patch"], cwd=tmp_path, check=False
    )
    assert done.returncode == 0
    assert "default 1000" in (tmp_path / "arch/um/Kconfig").read_text()
    assert shutil.which("gcc") is not None
