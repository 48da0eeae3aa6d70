"""Every program compiles and fits; its numbers are the models'; times are wide."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Container
from pathlib import Path

import pytest

from cctoolkit.errors import TestbedUnavailableError
from hardware import build, constants
from hardware.constants import Constant

HARDWARE = Path(build.__file__).parent
SOURCES = sorted(HARDWARE.glob("**/*.p4"))


def ids(path: Path) -> str:
    return str(path.relative_to(HARDWARE))


# -- with compilers


@pytest.mark.p4
@pytest.mark.slow
@pytest.mark.parametrize("program", build.PROGRAMS)
def test_bmv2(program: str, tmp_path: Path) -> None:
    try:
        for flags in ((), ("-DTEST_INPUT",)):
            assert build.bmv2(program, tmp_path, *flags).stat().st_size > 1000
    except TestbedUnavailableError as err:
        pytest.skip(str(err))


@pytest.mark.p4
def test_the_compilers_words_are_passed_on(tmp_path: Path) -> None:
    source = tmp_path / "broken.p4"
    source.write_text('#include "common/headers.p4"\nconst bit<16> TARGET_NS = 20000000;\n')
    try:
        with pytest.raises(build.BuildError, match=r"p4c-bm2-ss: (?s:.*)broken\.p4"):
            build.bmv2(source, tmp_path)
    except TestbedUnavailableError as err:
        pytest.skip(str(err))


# -- without


@pytest.mark.parametrize("program", build.PROGRAMS)
def test_generated_files_are_what_is_rendered(program: str) -> None:
    path = constants.generated(program)
    assert path.read_text(encoding="utf-8") == constants.render(program), "run: python -m hardware.constants"


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_times_have_32_bits(path: Path) -> None:
    """In 16 bits, nanoseconds go up to 65 us: a published program keeps its target of 20 ms in them."""
    narrow = re.findall(r"bit<(\d+)>\s+(\w+_(?:ns|us|NS|US))\b", path.read_text(encoding="utf-8"))
    assert not [(bits, name) for bits, name in narrow if int(bits) < 32]


@pytest.mark.parametrize("path", [p for p in SOURCES if p.name != "constants.p4"], ids=ids)
def test_numbers_come_from_the_models(path: Path) -> None:
    """What is in the algorithms' units is never typed: neither times nor probabilities."""
    code = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    large = [int(x) for x in re.findall(r"(?<![\w.<])(\d{5,})\b", code)]
    # sizes of hashes and of BMv2's, and powers of two
    assert not [x for x in large if x & (x - 1) and x & (x + 1) and x not in ALLOWED]


#: V1MODEL_VERSION
ALLOWED = {20200408}


@pytest.mark.parametrize(
    ("name", "value", "bits", "message"),
    [
        ("TARGET_NS", 20_000_000, 16, "does not fit into 16 bits"),
        ("TARGET_NS", 20_000, 16, "16 bits are too few for a time"),
        ("TARGET_US", 20_000, 16, "16 bits are too few for a time"),
        ("TARGET", 5, 32, "end in a unit"),
        ("target_ns", 5, 32, "must be in capitals"),
        ("TARGET_NS", -1, 32, "does not fit"),
        ("TARGET_NS", 1 << 32, 32, "does not fit into 32 bits"),
    ],
)
def test_constants_that_cannot_be(name: str, value: int, bits: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Constant(name, value, bits, "a test")


PARTS = ("README.md", "bmv2.p4", "constants.p4", "constants.py", "control.py", "experiment.py", "tofino.p4")


FOLDERS = sorted(p.parent for p in HARDWARE.glob("programs/*/__init__.py"))


@pytest.mark.parametrize("folder", FOLDERS, ids=ids)
def test_every_program_has_its_parts(folder: Path) -> None:
    assert not [part for part in PARTS if not (folder / part).is_file()]
    assert folder.name in build.PROGRAMS
    for part, function in (("control", "control"), ("experiment", "experiment")):
        module = importlib.import_module(f"hardware.programs.{folder.name}.{part}")
        assert callable(getattr(module, function))


def source(path: Path, without: Container[str] = ()) -> str:
    """A program's text without comments, with the files of its folder that it includes."""

    def included(line: re.Match[str]) -> str:
        other = path.parent / line[1]
        return source(other, without) if other.is_file() and other.name not in without else ""

    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r'#include "([^"]+)"', included, text)


def filled_tables(text: str) -> set[str]:
    """Names of the tables whose entries come from the control plane."""
    found = set()
    for head in re.finditer(r"^\s*table (\w+) \{", text, re.MULTILINE):
        depth, at = 1, head.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        if "const entries" not in text[head.end() : at]:
            found.add(head[1])
    return found


def registers(text: str) -> set[str]:
    """Names of the registers; a register NAME of {a, b} is NAME_a and NAME_b, as on BMv2."""
    pairs = {
        m[1]: re.findall(r"(\w+);", m[2]) for m in re.finditer(r"struct (\w+) \{(.*?)\}", text, re.DOTALL)
    }
    names = set()
    for kind, name in re.findall(r"\b[Rr]egister<(\w+)[^;]*?>\s*\([^;]*?\)\s*(\w+(?:##\w+)*);", text):
        # abc's macro SLOT(NAME, SLOT, …) declares NAME_SLOT
        calls = re.findall(r"^ *SLOT\((\w+), (\d)", text, re.MULTILINE)
        for one in ["_".join(call) for call in calls] if "##" in name else [name]:
            names |= {f"{one}_{field}" for field in pairs[kind]} if kind in pairs else {one}
    return names


@pytest.mark.parametrize("folder", FOLDERS, ids=ids)
def test_both_versions_have_the_same_tables_and_registers(folder: Path) -> None:
    """What a control plane fills and reads: one is written for both. abc's BMv2 version has them with the chip's
    arithmetic, and codel's without Listing 1. Tables with constant entries are the chip's way to choose between
    actions; ``reading_load`` only slows BMv2 down."""
    on_bmv2 = source(folder / "bmv2.p4", without=("bmv2_arithmetic.p4", "bmv2_listing_1.p4"))
    on_chip = source(folder / "tofino.p4")
    assert len(filled_tables(on_chip)) > 1 and len(registers(on_chip)) > 2
    on_bmv2 = re.sub(r"#ifdef READING_LOAD.*?#endif", "", on_bmv2, flags=re.DOTALL)
    assert filled_tables(on_bmv2) == filled_tables(on_chip)
    assert registers(on_bmv2) == registers(on_chip)


def test_a_register_in_two_stages_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Tofino 1 would make two of it, and the compiler says nothing."""
    report = {"resources": {"mau": {"nStages": 12, "mau_stages": [_stage(0), _stage(1)]}}}
    (tmp_path / "pipe" / "logs").mkdir(parents=True)
    (tmp_path / "pipe" / "logs" / "resources.json").write_text(json.dumps(report))
    (tmp_path / "pipe" / "codel.bfa").write_text(PARSER)
    commands: list[list[str]] = []
    monkeypatch.setattr(build, "_tool", lambda name: name)
    monkeypatch.setattr(build, "_run", commands.append)
    with pytest.raises(build.BuildError, match=r"register r is in stages \[0, 1\]"):
        build.tofino("codel", "tofino", tmp_path)
    # the source that is compiled gives the program its name
    assert [command[-1] for command in commands] == [
        str(tmp_path / "codel.p4"),
        str(tmp_path / "pipe" / "codel.bfa"),
    ]
    (included,) = re.findall('"(.*)"', (tmp_path / "codel.p4").read_text())
    assert (HARDWARE / included).samefile(HARDWARE / "programs" / "codel" / "tofino.p4")


PARSER = """\
parser ingress:
  start: $entry_point.start
  states:
    $entry_point.start:
      *:
        load: { half : 12..13 }
        next: choose
    choose:
      match: [ half ]
      0x0800:
        next: ipv4
      0x****:
        next: end
    ipv4:
      *:
        next: end
stage 0 ingress:
    t:
      *:
      *:
"""


def test_a_parser_without_its_selects_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As compilers of half a year write it, without a word: then every packet takes the first branch."""
    assert build.state_without_select(PARSER) is None
    lost = PARSER.replace("      match: [ half ]\n", "").replace("0x0800:", "*:").replace("0x****:", "*:")
    (tmp_path / "pipe").mkdir()
    (tmp_path / "pipe" / "codel.bfa").write_text(lost)
    monkeypatch.setattr(build, "_tool", lambda name: name)
    monkeypatch.setattr(build, "_run", lambda command: None)
    with pytest.raises(build.BuildError, match="parser state choose always takes its first branch"):
        build.tofino("codel", "tofino", tmp_path)


def test_targets_without_a_compiler_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless they are named: then each program says what is missing."""
    built: list[str] = []
    monkeypatch.setattr(build, "bmv2", lambda program, folder: built.append(program))
    (tmp_path / "p4c-bm2-ss").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.main([]) == 0
    assert built == list(build.PROGRAMS)
    output = capsys.readouterr()
    assert "codel bmv2: built" in output.out.splitlines()
    assert output.err.splitlines() == [
        f"{target}: left out, because p4c-barefoot is not on PATH" for target in build.TOFINOS
    ]
    assert build.main(["pi2", "--target", "tofino2"]) == 1
    assert "pi2 tofino2: p4c-barefoot is not on PATH" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        build.main(["--write"])
    (tmp_path / "p4c-bm2-ss").unlink()
    assert build.main([]) == 1


def _stage(number: int) -> dict[str, object]:
    return {
        "stage_number": number,
        "rams": {"srams": [], "nRows": 8, "nColumns": 10},
        "map_rams": {"maprams": [], "nRows": 8, "nUnits": 6},
        "tcams": {"tcams": [], "nRows": 12, "nColumns": 2},
        "meter_alus": {
            "meters": [{"row": 0, "usages": [{"used_by": "r", "used_for": "register"}]}],
            "nAlus": 4,
        },
        "vliw": {"instructions": [], "size": 32},
        "logical_tables": {"ids": [{"id": 0, "table_name": "t"}], "size": 16},
    }


def test_the_sde_gets_the_same_options() -> None:
    """The README's command for the SDE, which builds for both chips."""
    readme = (Path(build.__file__).parent / "README.md").read_text(encoding="utf-8")
    assert f"-DP4FLAGS={' '.join(build._TOFINO_FLAGS['tofino2'])} " in readme
