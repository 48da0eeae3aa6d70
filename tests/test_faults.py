"""Rude ends: what commands leave and say where writing fails or they are killed, and hostile names on the way out."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import ROOT
from fault_injection import ELSEWHERE, KILLED, WRITING, Case, Inputs, call, hidden, killed_set, make_inputs
from test_cli_commands import commands
from tools import mostly_slow

import cctoolkit as cct
from cctoolkit._support import atomic
from cctoolkit._support.atomic import (
    SUFFIX,
    check_target,
    replacing,
    replacing_files,
    replacing_folder,
    replacing_set,
    sweep,
)
from cctoolkit.errors import ParameterError

INJECTOR = Path(__file__).with_name("fault_injection.py")
#: Moves, colours, a line of its own, another direction, an invisible character, and bytes that are not UTF-8.
HOSTILE = "x\x1b[31m\x1b]0;title\x07\r\ncct: all is well\t\u202egpj\u200b\x9b\udcff\udcfe"
#: Commands of cases that simulate for more than a second.
SIMULATING = ("experiment codel", "dataset build", "demo")
#: Names of parameters whose values are written to.
OUTPUTS = {"output", "rules", "pcap"}
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    pytest.importorskip("onnx", reason="the extra `train` is not installed")
    pytest.importorskip("distributed", reason="the extra `batch` is not installed")
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def test_what_is_replaced_keeps_its_permissions_and_links(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o600)
    link.symlink_to(file)
    with replacing(link) as tmp:
        tmp.write_text("new")
    assert link.is_symlink()
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("new", 0o600)


def test_every_command_that_writes_has_a_case() -> None:
    writing = {
        words for words, command in commands().items()
        if not hasattr(command, "list_commands") and OUTPUTS & {p.name for p in command.params}
    }  # fmt: skip
    covered = {case.command for case in WRITING} | set(ELSEWHERE)
    assert writing <= covered, "add a case to fault_injection.WRITING"
    assert covered <= set(commands()), "there is no such command any more"


# --- failing writes ---------------------------------------------------------------------------------------------------


def check_failures(found: dict[str, Any]) -> None:
    assert list(found) == [case.name for case in WRITING]
    for name, what in found.items():
        assert what["well"][0] == 0, (name, what)
        assert what["status"] == 1, (name, what)
        *remarks, error = what["err"].splitlines()
        assert what["names"] and SUFFIX not in error and "Traceback" not in what["err"], (name, what)
        assert error.startswith("cct: ") and all(line.startswith("cct: ") for line in remarks), (name, what)
        assert what["kept"] and not what["hidden"] and not what["reported_success"], (name, what)


def injected(mode: str, inputs: Inputs, room: Path, prefix: str = "") -> dict[str, Any]:
    command = f'{prefix}exec "$0" "$@"'
    arguments = [sys.executable, str(INJECTOR), mode, str(inputs.folder), str(room)]
    wrapped = ["unshare", "-m"] if prefix else []
    done = subprocess.run(
        [*wrapped, "sh", "-ec", command, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def private_mounts() -> bool:
    """Whether a file system can be mounted that nobody else sees."""
    if shutil.which("unshare") is None:
        return False
    try_it = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(try_it, capture_output=True, check=False).returncode == 0


@on_linux
@pytest.mark.slow
def test_no_room(inputs: Inputs, tmp_path: Path) -> None:
    """A full disk: every command says which file, keeps what was there, and leaves nothing."""
    if not private_mounts():
        pytest.skip("needs to mount a file system (root)")
    check_failures(injected("full", inputs, tmp_path, f"mount -t tmpfs -o size=64m tmpfs '{tmp_path}'; "))


@pytest.mark.slow
@on_linux
def test_no_file_may_grow(inputs: Inputs, tmp_path: Path) -> None:
    """As :func:`test_no_room`, by a limit of the process, which needs no root."""
    check_failures(injected("limit", inputs, tmp_path))


@on_linux
@pytest.mark.slow
def test_killed_at_any_step(inputs: Inputs, tmp_path: Path) -> None:
    """The old output or the new one, and the next run removes what is left."""
    if not (inputs.folder / "old-one.toml").exists():
        make_inputs(inputs.folder, "old-", seed=7)
    found = injected("killed", inputs, tmp_path)
    assert set(found) == set(KILLED)
    for name, what in found.items():
        assert what["problems"] == [], name
        assert what["deaths"] >= min(what["steps"], 8), (name, what)


@pytest.mark.slow
@on_linux
def test_a_set_of_files_is_replaced_in_one_step(tmp_path: Path) -> None:
    """Killed at any step, as for the folder of ``cct evaluate``: the old files or the new ones, and the others."""
    sets = [dict.fromkeys("abc", text) | {"other": "kept"} for text in ("old", "new")]
    found = killed_set(tmp_path)
    assert all(there in sets for there in found), found
    assert found.count(sets[0]) >= 3 and found.count(sets[1]) >= 3


@pytest.mark.parametrize("code", [errno.EIO, errno.EDQUOT, errno.EROFS, errno.EFBIG])
def test_an_error_of_the_disk_names_the_file(tmp_path: Path, code: int) -> None:
    path = tmp_path / "file.html"
    path.write_text("old")
    with pytest.raises(OSError) as failure, replacing(path) as tmp:
        tmp.write_text("half")
        raise OSError(code, "a library's words")
    assert (failure.value.filename, failure.value.strerror) == (str(path), os.strerror(code))
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file.html"]


def test_an_error_of_another_file_keeps_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as failure, replacing(tmp_path / "new"):
        (tmp_path / "other").read_text()
    assert failure.value.filename == str(tmp_path / "other")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    mostly_slow(
        [("flows", "-f", "csv"), ("flows",), ("info",), ("flows", "-f", "jsonl")], [("flows", "-f", "csv")]
    ),
)
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_standard_output_on_a_full_disk(inputs: Inputs, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "cctoolkit.cli", arguments[0], str(inputs.ingress), *arguments[1:]]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "cct: standard output: No space left on device\n")


@pytest.mark.parametrize(
    ("target", "message"),
    [("folder", "Is a directory"), ("file/below", "Not a directory"), ("file/far/below", "Not a directory")],
)
@pytest.mark.parametrize(
    "case",
    [case for case in WRITING if Path(case.target).suffix in (".html", ".csv", ".parquet", ".gz", ".tc")],
    ids=lambda case: case.name,
)
def test_targets_that_cannot_be(
    inputs: Inputs, tmp_path: Path, case: Case, target: str, message: str
) -> None:
    """Said before the work, with the name that was given."""
    (tmp_path / "file").touch()
    ending = "".join(Path(case.target).suffixes)
    where = tmp_path / f"{target}{ending}"
    if target == "folder" and case.command == "synth mawi":
        pytest.skip("puts a file of its own name into a folder")
    if target == "folder":
        where.mkdir()
    case = Case(case.command, str(where.relative_to(tmp_path)), case.more)
    status, out, err = call(*case.arguments(inputs, tmp_path))
    assert (status, err.splitlines()[-1]) == (1, f"cct: {where}: {message}"), err
    assert "wrote" not in out and hidden(tmp_path) == []


@pytest.mark.parametrize(
    "case", [case for case in WRITING if case.command != "dataset add"], ids=lambda case: case.name
)
def test_urls_are_not_folders(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    """``-o s3://bucket/x`` does not write into a folder named ``s3:``."""
    monkeypatch.chdir(tmp_path)
    arguments = [a.replace("@/", "s3://bucket/") for a in case.arguments(inputs, Path("@"))]
    status, _, err = call(*arguments)
    assert status == 1 and "s3://bucket/" in err.splitlines()[-1] and "URL" in err, err
    assert os.listdir(tmp_path) == []


# --- atomic -----------------------------------------------------------------------------------------------------------


def test_devices_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    with replacing(pipe) as there:
        there.write_text("through")
    assert reader.communicate()[0] == b"through"
    assert pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]


def test_files_that_belong_together_come_together(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(ZeroDivisionError), replacing_files(tmp_path) as folder:
        (folder / "a").write_text("new")
        raise ZeroDivisionError
    (tmp_path / "b").mkdir()
    with pytest.raises(IsADirectoryError) as failure, replacing_files(tmp_path) as folder:
        (folder / "a").write_text("new")
        (folder / "b").write_text("new")
    assert failure.value.filename == str(tmp_path / "b")
    assert (tmp_path / "a").read_text() == "old" and sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool) -> None:
    if not exchange:
        monkeypatch.setattr(atomic, "_exchanged", lambda one, other: False)
    path = tmp_path / "run"
    for text in ("old", "new"):
        with replacing_folder(path) as folder:
            assert folder.name == "run"
            (folder / text).touch()
    assert os.listdir(path) == ["new"] and os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize("fixed", [False, True])
def test_a_set_of_files_joins_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fixed: bool) -> None:
    """In a folder that can be exchanged and in the current one, which cannot."""
    path = tmp_path / "set"
    (path / "below").mkdir(parents=True)
    for name in ("a", "other", "below/deep"):
        (path / name).write_text("old")
    if fixed:
        monkeypatch.chdir(path)
    with pytest.raises(ZeroDivisionError), replacing_set(path) as folder:
        (folder / "a").write_text("half")
        raise ZeroDivisionError
    kept = path.stat().st_ino
    with replacing_set(path) as folder:
        for name in "ab":
            (folder / name).write_text("new")
    assert {name: (path / name).read_text() for name in ("a", "b", "other", "below/deep")} == {
        "a": "new", "b": "new", "other": "old", "below/deep": "old",
    }  # fmt: skip
    assert (path.stat().st_ino == kept) == fixed
    assert os.listdir(tmp_path) == ["set"] and hidden(tmp_path) == []


def left_by(code: str, folder: Path) -> subprocess.Popen[bytes]:
    """A process in the middle of a write."""
    program = f"""
        import sys, time
        from cctoolkit._support.atomic import replacing, replacing_folder
        with {code} as tmp:
            print(flush=True)
            time.sleep(60)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=folder, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


@on_linux
def test_only_what_dead_processes_left_is_swept(tmp_path: Path) -> None:
    alive, dead = (left_by(code, tmp_path) for code in ("replacing('a')", "replacing_folder('b')"))
    try:
        assert len(hidden(tmp_path)) >= 2
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        mine = [
            tmp_path / ".mine.tmp",
            tmp_path / f".mine{SUFFIX}",
        ]  # one of somebody else, and one that is no folder
        for file in mine:
            file.touch()
        sweep(tmp_path)
        left = sorted(p.name for p in tmp_path.iterdir())
        assert [name[:3] for name in left] == [".a.", ".mi", ".mi"], left
    finally:
        alive.kill()
        alive.wait()
    sweep(tmp_path, below=True)
    assert sorted(tmp_path.iterdir()) == sorted(mine)


def test_long_names_fit(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    with replacing(path) as tmp:
        tmp.write_text("here")
    assert path.read_text() == "here"


@pytest.mark.parametrize("url", ["s3://bucket/key", "https://host/a.csv", "memory://x"])
def test_urls(url: str) -> None:
    for path in (url, Path(url)):
        with pytest.raises(ParameterError, match=f"{url.partition('/')[0]}//.* is a URL"):
            check_target(path)


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """The same inputs with names as only an enemy gives them, in a folder of such a name."""
    folder = tmp_path_factory.mktemp("names") / HOSTILE
    folder.mkdir()
    for file in inputs.folder.iterdir():
        if not file.name.startswith("old-"):
            (folder / f"{HOSTILE}{file.name}").symlink_to(file)
    return Inputs(folder, HOSTILE)


def check_printed(status: int, out: str, err: str) -> None:
    for text in (out, err):
        assert all(line.isprintable() for line in text.split("\n")), ascii(text)
    assert "Traceback" not in err
    assert all(line.startswith("cct: ") for line in err.splitlines()), err
    if status:
        assert err, "an error without a word"


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    mostly_slow(WRITING, [case for case in WRITING if case.command not in SIMULATING]),
    ids=lambda case: case.name,
)
def test_hostile_names_where_all_is_well(hostile: Inputs, tmp_path: Path, case: Case) -> None:
    case = Case(case.command, f"{HOSTILE}.{case.target}", case.more)
    status, out, err = call(*case.arguments(hostile, tmp_path))
    check_printed(status, out, err)
    assert status == 0, err
    assert len(os.listdir(tmp_path)) == 1 and hidden(tmp_path) == []


#: Commands without other commands, by their words.
LEAVES = {
    words: command for words, command in commands().items()
    if not hasattr(command, "list_commands")
    and words not in ("fetch mawi", "testbed build", "experiment list", "testbed doctor")
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("words", LEAVES)
def test_hostile_names_where_nothing_is_there(tmp_path: Path, words: str) -> None:
    """Files that do not exist, files that are nothing, and options that mean nothing: one line each."""
    nothing = tmp_path / HOSTILE
    for make in (lambda: None, nothing.touch, lambda: nothing.write_text("\x1b[31m = \x1b\n[[[")):
        make()
        required = [p for p in LEAVES[words].params if p.required]
        given: list[object] = []
        for p in required:
            output = p.name in OUTPUTS
            value = tmp_path / f"{HOSTILE}.out" if output else nothing
            given += [value] if p.param_type_name == "argument" else [p.opts[0], value]
        if words == "live":
            given = ["--from-capture", nothing]
        if not given or words == "synth mawi":  # demo, and the experiments, need nothing
            given = [*given, HOSTILE, HOSTILE]
        status, out, err = call(*words.split(), *given)
        check_printed(status, out, err)
        assert status != 0 and len(err.splitlines()) == 1, err
    for wrong in ([f"--{HOSTILE}"], [*given, HOSTILE, HOSTILE, HOSTILE]):
        status, out, err = call(*words.split(), *wrong)
        check_printed(status, out, err)
        assert status and (len(err.splitlines()) == 1 or words == "batch"), err  # which takes many captures


def test_hostile_words(hostile: Inputs, tmp_path: Path) -> None:
    """An unknown command, values of options, keys of TOML, and the names in a scenario."""
    toml = tmp_path / "bad.toml"
    toml.write_text('"\\u001b[31m\\nkey" = 1\n')
    for arguments in (
        [HOSTILE], ["info", hostile.ingress, "--host", HOSTILE], ["info", hostile.ingress, "--protocol", HOSTILE],
        ["classify", hostile.ingress, "--model", HOSTILE], ["flows", hostile.ingress, "--sort", HOSTILE],
        ["slots", hostile.ingress, "--sampling", HOSTILE], ["flows", hostile.ingress, "-o", HOSTILE],
        ["separate", hostile.ingress, "--router", HOSTILE, "--interface", "eth0"], ["simulate", toml],
        ["live", "--from-capture", hostile.ingress, "--flow", HOSTILE], ["demo", HOSTILE],
    ):  # fmt: skip
        status, out, err = call(*arguments)
        check_printed(status, out, err)
        assert status and len(err.splitlines()) == 1, (arguments, err)


# --- clocks -----------------------------------------------------------------------------------------------------------


#: Commands that read a capture's times.
CLOCKED = ("flows", "rtt", "slots", "report", "separate", "filter", "live", "batch", "classify")


@pytest.mark.parametrize("step_s", mostly_slow([-86_400, 10 * 365 * 86_400, -0.5], [-0.5]))
@pytest.mark.parametrize(
    "case",
    [case for case in WRITING if case.command in CLOCKED and "jsonl" not in case.target],
    ids=lambda case: case.name,
)
def test_a_clock_that_is_set(inputs: Inputs, tmp_path: Path, case: Case, step_s: float) -> None:
    """The clock of the tap is set in the middle of the capture: an answer, or one line."""
    for name in ("in.pcap.gz", "out.pcap.gz"):
        capture = cct.read_capture(inputs.folder / name)
        columns = dict(capture.columns)
        after = np.arange(len(capture)) >= len(capture) // 2
        columns["ts_ns"] = columns["ts_ns"] + after * round(step_s * 1e9) + 10**18
        cct.write_pcap(tmp_path / name, columns, capture.keys, sacks=capture.sacks, snaplen=96)
    status, out, err = call(*case.arguments(Inputs(tmp_path), tmp_path / "out"))
    check_printed(status, out, err)
    assert status in (0, 1)
    assert status == 0 or (len(err.splitlines()) <= 2 and not (tmp_path / "out" / case.target).is_file()), err
    assert hidden(tmp_path) == []
