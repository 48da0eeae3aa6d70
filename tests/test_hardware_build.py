"""Every program compiles and fits; its numbers are the models'; times are wide."""

from __future__ import annotations

import importlib
import json
import re
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
    ("name", "value", "bits", "said"),
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
def test_constants_that_cannot_be(name: str, value: int, bits: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
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
