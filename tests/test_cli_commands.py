"""The command line as a whole: which commands and options there are, what help costs, what errors look like.

``cli_commands.json`` lists every public command with its arguments and options. A command or option that goes away, or
another default, breaks somebody's script: the test fails. After adding one, write the list anew and look at the diff::

    python tests/test_cli_commands.py
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import json
import os
import subprocess
import sys
import typing
import warnings
from pathlib import Path
from typing import Any

import pytest
import typer

import cctoolkit as cct
from cctoolkit import cli

LIST = Path(__file__).with_name("cli_commands.json")
ROOT = Path(__file__).parents[1]
RENO = ROOT / "traces" / "reno.ingress.pcap.gz"
CCT = [sys.executable, "-m", "cctoolkit.cli"]


def type_name(annotation: Any) -> str:
    """``int``, ``Path``, ``list[float]``, an enumeration's choices; whether it may be left out is told apart."""
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    inner = [a for a in typing.get_args(annotation) if a is not type(None)]
    if typing.get_origin(annotation) is list:
        return f"list[{type_name(inner[0])}]"
    if inner:
        return type_name(inner[0])
    if issubclass(annotation, enum.Enum):
        return "|".join(choice.value for choice in annotation)
    return annotation.__name__


def parameters(command: Any) -> dict[str, dict[str, Any]]:
    signature = inspect.signature(command.callback, eval_str=True) if command.callback else None
    found = {}
    for p in command.params:
        known = signature.parameters.get(p.name) if signature else None
        default = p.default.value if isinstance(p.default, enum.Enum) else p.default
        found[" ".join([*p.opts, *p.secondary_opts])] = {
            "type": type_name(known.annotation) if known else "typer's own",
            "required": p.required,
            "default": str(default) if isinstance(default, Path) else default if known else None,
        }
    return found


def commands(command: Any = None, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Every command under a command: its click object by its words."""
    command = command or typer.main.get_command(cli.app)
    found = {" ".join(path): command}
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            found |= commands(command.get_command(None, name), (*path, name))
    return found


def as_listed() -> dict[str, Any]:
    return {f"cct {words}".strip(): parameters(command) for words, command in commands().items()}


def write_list() -> None:
    lines = []
    for words, options in as_listed().items():
        rows = [f"    {json.dumps(name)}: {json.dumps(of)}" for name, of in options.items()]
        lines.append(f"  {json.dumps(words)}: {{" + ("\n" + ",\n".join(rows) + "\n  " if rows else "") + "}")
    LIST.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def test_commands_and_options_stay() -> None:
    listed = json.loads(LIST.read_text(encoding="utf-8"))
    there = as_listed()
    assert sorted(set(listed) - set(there)) == [], "commands are missing"
    for words, options in listed.items():
        for name, of in options.items():
            assert there[words].get(name) == of, f"{words}: {name}"
    assert there == listed, "write the list anew: python tests/test_cli_commands.py"


def test_every_command_of_a_room_is_mounted() -> None:
    for package in sorted(set(cli.PACKAGES.values())):
        module = importlib.import_module(f"cctoolkit.{package}.command")
        mounted = {name for name, where in cli.PACKAGES.items() if where == package}
        assert set(typer.main.get_group(module.app).commands) == mounted, package


def test_defaults_are_those_of_the_functions() -> None:
    from cctoolkit.identify.classify import DEFAULT_MODEL, MIN_BYTES, SECONDS
    from cctoolkit.separation.meters import LONG_BYTES

    listed = as_listed()
    for words, option, expected in (
        ("cct separate", "--long", LONG_BYTES),
        ("cct batch", "--long", cct.BatchSettings.long_flow_bytes),
        ("cct classify", "--min-bytes", MIN_BYTES),
        ("cct classify", "--seconds", SECONDS),
        ("cct report", "--model", DEFAULT_MODEL),
    ):
        assert listed[words][option]["default"] == expected, (words, option)


def test_everything_has_a_help_text() -> None:
    for words, command in commands().items():
        assert command.help, words
        for p in command.params:
            assert p.help, f"cct {words}: {p.opts}"
            assert p.help.rstrip(")").endswith((".", "…")), f"cct {words}: {p.opts}: {p.help}"


def test_no_option_is_described_twice() -> None:
    """What several commands share is declared once, in an options module or as an alias."""
    texts: list[str] = []
    for path in (ROOT / "cctoolkit").rglob("*.py"):
        if path.name in ("command.py", "options.py", "output.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if (
                    isinstance(node, ast.keyword)
                    and node.arg == "help"
                    and isinstance(node.value, ast.Constant)
                ):
                    texts.append(node.value.value)
    assert len(texts) > 50
    assert sorted({text for text in texts if texts.count(text) > 1}) == []


HEAVY = [
    "numpy",
    "pandas",
    "numba",
    "scipy",
    "pyarrow",
    "plotly",
    "torch",
    "sklearn",
    "onnxruntime",
    "jinja2",
]


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    """All help pages in one process."""
    code = f"""
import contextlib, io, sys, typer
from cctoolkit.cli import app
def show(command, words):
    with contextlib.redirect_stdout(io.StringIO()):
        command.main([*words, "--help"], prog_name="cct", standalone_mode=False)
    at = command
    for word in words:
        at = at.get_command(None, word)
    for name in at.list_commands(None) if hasattr(at, "list_commands") else ():
        show(command, [*words, name])
show(typer.main.get_command(app), [])
print([m for m in {HEAVY} if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Call ``cct`` in this process: (exit status, standard output, standard error)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cct", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), *capfd.readouterr()

    return call


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("flows",), "'CAPTURE' (see cct flows --help)"),
        (("flows", RENO, "--top", "0"), "'--top'"),
        (("flows", RENO, "--top", "many"), "'--top'"),
        (("rtt", RENO, "--method", "guess"), "'guess' is not one of"),
        (("testbed", "run"), "'SCENARIO' (see cct testbed run --help)"),
        (("flows", RENO, "--hots", "10.0.0.1"), "--hots"),
        (("floes",), "Did you mean 'flows'"),
        (("info", RENO, "--\x1b[31mred"), r"\x1b[31mred"),
    ],
)
def test_a_wrong_option_is_one_line(run, arguments: tuple[object, ...], message: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("cct: ") and err.count("\n") == 1
    assert message in err and "\x1b" not in err


@pytest.mark.parametrize("number", ["nan", "inf"])
def test_every_number_is_finite(run, number: str) -> None:
    for words, command in commands().items():
        for name, of in parameters(command).items():
            if of["type"] in ("float", "list[float]"):
                needed: list[object] = []
                for p in command.params:
                    if p.required:
                        needed += [p.opts[0], "out"] if p.param_type_name == "option" else [RENO]
                status, out, err = run(*words.split(), *needed, name.split()[0], number)
                assert (status, out) == (2, ""), (words, name)
                assert name.split()[0] in err and err.count("\n") == 1


def test_numbers_have_a_range() -> None:
    """What no capture, link or run can have is wrong usage, named by its option, with the range in --help."""
    any_whole_or_time = ("--flow", "--start", "--stop")
    for words, command in commands().items():
        annotations = (
            inspect.signature(command.callback, eval_str=True).parameters if command.callback else {}
        )
        for p in command.params:
            known = annotations.get(p.name)
            if known and type_name(known.annotation).removeprefix("list[").rstrip("]") in ("int", "float"):
                (about,) = typing.get_args(known.annotation)[1:]
                assert about.min is not None or p.opts[0] in any_whole_or_time, (words, p.opts)


@pytest.mark.parametrize(
    "words, message",
    [
        (("rtt", RENO, "--method", "timestamps", "--no-karn"), "karn: --no-karn is for the method seq_ack"),
        (("batch", "-", "-o", "archive"), "captures: a batch reads files, not standard input (-)"),
    ],
)
def test_options_without_effect_are_refused(run, words: tuple[str, ...], message: str) -> None:
    assert run(*words) == (1, "", f"cct: {message}\n")


def test_ranges_are_those_of_the_functions() -> None:
    from cctoolkit._support import ranges
    from cctoolkit.capture.pcap import MAX_FRAME_BYTES
    from cctoolkit.scenario.scenario import RATE

    assert (RATE["low"], RATE["high"]) == (ranges.LEAST_MBPS, ranges.MOST_MBPS)
    assert ranges.MOST_FRAME_BYTES == MAX_FRAME_BYTES


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "0", "1e-300", "1.5", "most"])
def test_sampling_is_a_probability(run, text: str) -> None:
    status, out, err = run("slots", RENO, "--sampling", text)
    assert (status, out) == (1, "") and "sampling" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", RENO, "--host", "10.0.0.1", "--host", "10.0.0.2"),
        ("filter", RENO, "new.pcap", "--port", "80", "--start", "1", "--port", "443"),
        ("experiment", "codel", "--seeds", "1", "--seeds", "2", "-o", "out"),
    ],
)
def test_one_value_is_given_once(run, arguments: tuple[object, ...]) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert "more than once" in err and any(str(word) in err for word in arguments if str(word)[:2] == "--")


def test_flags_and_lists_are_given_as_often_as_one_likes(run) -> None:
    status, out, _ = run("rtt", RENO, "--flow", "0", "--flow", "1", "--karn", "--no-karn", "-f", "csv")
    assert status == 0 and out == run("rtt", RENO, "--no-karn", "-f", "csv")[1]


def test_without_a_command_there_is_help(run) -> None:
    for words in ((), ("fetch",), ("testbed",)):
        status, out, err = run(*words)
        assert (status, err) == (2, "") and "Usage: cct" in out


@pytest.mark.slow
def test_what_names_hide_is_spelt_out(run, tmp_path: Path) -> None:
    """Escape sequences in a file's name do not reach the terminal: in errors, warnings, and what was written."""
    evil = tmp_path / "a\x1b[2J\nb.pcap"
    status, _, err = run("info", evil)
    assert status == 1 and r"a\x1b[2J\nb.pcap: cannot be read" in err and err.count("\n") == 1
    evil.write_bytes(b"no capture, but long enough to be one")
    status, _, err = run("info", evil)
    assert status == 1 and r"a\x1b[2J\nb.pcap: byte 0" in err and err.count("\n") == 1
    status, out, _ = run("filter", RENO, evil, "--stop", "1")
    assert status == 0 and out.endswith("a\\x1b[2J\\nb.pcap\n") and out.count("\n") == 1
    evil.write_bytes(evil.read_bytes()[:-7])
    done = subprocess.run([*CCT, "flows", str(evil), "-f", "csv"], capture_output=True, text=True, check=True)
    assert done.stderr.startswith("cct: warning: ") and r"\x1b[2J\nb.pcap" in done.stderr
    assert done.stderr.count("\n") == 1


def test_names_that_are_not_text_are_refused(run, tmp_path: Path) -> None:
    broken = os.fsdecode(os.fsencode(tmp_path) + b"/latin-\xe9.pcap")
    status, _, err = run("info", broken)
    assert status == 1 and r"latin-\udce9.pcap" in err


@pytest.mark.slow
def test_shells_complete_commands_and_options() -> None:
    for words, expected in (
        ("cct cl", "classify"),
        ("cct testbed d", "doctor"),
        ("cct rtt --me", "--method"),
        ("cct rtt --method hand", "handshake"),
        ("cct experiment sim", "sim-vs-kernel"),
    ):
        done = subprocess.run(
            CCT,
            env={
                **os.environ,
                "_CCT_COMPLETE": "complete_bash",
                "COMP_WORDS": words,
                "COMP_CWORD": str(words.count(" ")),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.split() == [expected], words


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write_list()
