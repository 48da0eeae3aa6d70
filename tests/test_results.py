"""Results kept with how they were made: the hash of the code behind them, making them, and the pages they fill."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from cctoolkit.errors import CCToolkitError, ParameterError
from cctoolkit.experiments import code_hash as code_hash_module, kept, pages, results
from cctoolkit.experiments.catalogue import RESULTS, Result
from cctoolkit.experiments.code_hash import ROOT, changes, code_hash
from cctoolkit.testbed.kernel import Kernel

# ---- the hash of the code --------------------------------------------------------------------------------------------

PACKAGE = {
    "toy/__init__.py": "",
    "toy/measure.py": "from .lower import twice\n\n\ndef measured(x):\n    'Doc.'\n    return twice(x) + 1\n",
    "toy/lower.py": "def twice(x):\n    from .lowest import FACTOR\n    return FACTOR * x\n",
    "toy/lowest.py": "FACTOR = 2\n",
    "toy/other.py": "UNUSED = 1\n",
    "toy/kernel.c": "int main() { return 0; }\n",
}


def toy(folder: Path, **changed: str) -> str:
    """The hash of ``toy.measure`` with some files changed (``_`` stands for ``/`` and the suffix)."""
    for name, text in (PACKAGE | {f"toy/{key.replace('_c', '.c')}": v for key, v in changed.items()}).items():
        path = folder / (name if "." in name else f"{name}.py")
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    return code_hash(["toy.measure"], root=folder)


@pytest.fixture
def before(tmp_path: Path) -> str:
    return toy(tmp_path / "before")


@pytest.mark.parametrize(
    "changed",
    [
        {"measure": "from .lower import twice\n# why\ndef measured(x):\n    'Words.'\n    return twice(x) + 1\n"},
        {"other": "UNUSED = 2\n"},
        {"lower": "from .lowest import FACTOR\n\n\ndef twice(x):\n    '''Doc.'''\n    return FACTOR * x\n"},
        {"lower": "def twice(x):\n    from .lowest import FACTOR\n    return FACTOR * x\n\n\n__all__ = ['twice']\n"},
        {"measure": PACKAGE["toy/measure.py"] + "if TYPE_CHECKING:\n    from .other import UNUSED\n"},
        # a definition that moves to another module behind the result
        {"lower": "FACTOR = 2\n\n\ndef twice(x):\n    return FACTOR * x\n", "lowest": ""},
        {"lower": PACKAGE["toy/lower.py"] + "\n\ndef thrice(x):\n    return 3 * x\n"},
        {"measure": "from .lower import twice\n\n\ndef measured(x: int) -> float:\n    return twice(x) + 1\n"},
        {"lower": PACKAGE["toy/lower.py"].replace("return", "note('Twice.')\n    return")},
        {"lower": PACKAGE["toy/lower.py"] + "\n\nif __name__ == '__main__':\n    print(twice(1))\n"},
    ],
    ids=["docstrings and comments", "other modules", "where an import stands", "__all__", "typing", "a move",
         "a function that is not used", "type hints", "notes", "a module as a program"],
)  # fmt: skip
def test_what_changes_no_number_leaves_the_hash(changed: dict[str, str], before: str, tmp_path: Path) -> None:
    assert toy(tmp_path / "after", **changed) == before


@pytest.mark.parametrize(
    "changed",
    [
        {"measure": PACKAGE["toy/measure.py"].replace("+ 1", "+ 2")},
        {"lowest": "FACTOR = 3\n"},  # imported inside a function
        {"kernel_c": "int main() { return 1; }\n"},
    ],
    ids=["own code", "imported code", "a program in C beside it"],
)
def test_what_changes_numbers_changes_the_hash(changed: dict[str, str], before: str, tmp_path: Path) -> None:
    assert toy(tmp_path / "after", **changed) != before


WITH_LOCALS = """from .lower import twice


def measured(x):
    {a}{hint} = twice(x)
    {b} = [{c} + x for {c} in range({a})]
    def total(x):
        return sum({b}) * x
    return total(x)
"""


def test_names_of_local_variables_do_not_count(tmp_path: Path) -> None:
    one = toy(tmp_path / "1", measure=WITH_LOCALS.format(a="n", b="rows", c="i", hint=""))
    two = toy(tmp_path / "2", measure=WITH_LOCALS.format(a="count", b="found", c="number", hint=": int"))
    other = toy(tmp_path / "3", measure=WITH_LOCALS.format(a="n", b="n", c="i", hint=""))
    assert one == two != other


TWICE = "def twice(x):\n    return {} * x\n"
USES = "from .lower import twice\n\n\ndef measured(x):\n    return twice(x)\n"


@pytest.mark.parametrize(
    ("using", "lower"),
    [
        (USES, "def twice(x):\n    return _helped(x)\n\n\ndef _helped(x):\n    return {} * x\n"),
        ("from . import lower\n\n\ndef measured(x):\n    return lower.twice(x)\n", TWICE),
        ("import toy.lower\n\n\ndef measured(x):\n    return toy.lower.twice(x)\n", TWICE),
        ("from . import lower\nMEASURED = vars(lower)\n", TWICE),
        (USES, "TABLE = {{}}\n\n\ndef twice(x):\n    return TABLE[x]\n\n\nTABLE[2] = {}\n"),
        (USES, "try:\n    FACTOR = {}\nexcept ImportError:\n    pass\n\n\ndef twice(x):\n    return FACTOR * x\n"),
        (USES, "for FACTOR in range({}):\n    pass\n\n\ndef twice(x):\n    return FACTOR * x\n"),
    ],
    ids=["by another function", "module", "package", "all of a module", "a change at import", "try", "loop"],
)  # fmt: skip
def test_whatever_way_a_name_takes(using: str, lower: str, tmp_path: Path) -> None:
    one, two = (toy(tmp_path / str(n), measure=using, lower=lower.format(n)) for n in (1, 2))
    assert one != two


METHODS = """class Queue{bases}:
    def __init__(self):
        self.kept = []

    def put(self, x):
        self.kept.append(x)

    def show(self):
        return {n}
"""


@pytest.mark.parametrize(
    ("using", "bases", "counts"),
    [
        ("Queue().put(1)", "", False),
        ("Queue().show()", "", True),
        ("getattr(Queue(), 'show')()", "", True),
        ("Queue().put(1)", "(list)", True),  # a library may call any method of its own classes
    ],
)
def test_a_method_counts_where_it_is_named(tmp_path: Path, using: str, bases: str, counts: bool) -> None:
    one, two = (
        toy(
            tmp_path / str(n),
            measure=f"from .lower import Queue\n\nMEASURED = {using}\n",
            lower=METHODS.format(n=n, bases=bases),
        )
        for n in (1, 2)
    )
    assert (one != two) == counts


@pytest.mark.parametrize(
    ("name", "counts"), [("codel", True), ("fair", True), ("blue", True), ("red", False), ("Fair", False)]
)
def test_registered_classes_count_where_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, counts: bool
) -> None:
    monkeypatch.setattr(code_hash_module, "REGISTRIES", ("toy.queues",))
    for n in (1, 2):
        toy(tmp_path / str(n), measure=f"from .queues import Queue\n\nMEASURED = Queue.named[{name!r}]\n")
        queues = tmp_path / str(n) / "toy" / "queues"
        queues.mkdir()
        (queues / "__init__.py").write_text(
            "import re\nfrom .base import Queue\nfrom .codel import Blue, CoDel, Fair\n"
        )
        (queues / "base.py").write_text("class Queue:\n    named = {}\n")
        (queues / "codel.py").write_text(
            f"from .base import Queue\n\n\nclass CoDel(Queue):\n    target_ms = {n}\n\n\n"
            f"class Fair(CoDel):\n    name = 'fair'\n    queues = 1\n\n\n"
            f"class Blue(CoDel):\n    name: str = 'blue'\n"
        )
    hashes = [code_hash(["toy.measure"], root=tmp_path / n) for n in "12"]
    assert (hashes[0] != hashes[1]) == counts


def test_what_a_command_does_not_use_is_left_out(tmp_path: Path) -> None:
    one, two = (tmp_path / str(n) for n in (1, 2))
    toy(one)
    toy(two, lowest="FACTOR = 3\n")
    assert code_hash(["toy.measure"], without=("toy.lowest",), root=one) == code_hash(
        ["toy.measure"], without=("toy.lowest",), root=two
    )


def test_words_of_errors_and_other_files(tmp_path: Path) -> None:
    text = "def measured(x):\n    if x < 0:\n        raise ValueError({0!r})\n    assert x, {0!r}\n    return x\n"
    one, two = (toy(tmp_path / n, measure=text.format(n)) for n in ("one", "two"))
    assert one == two
    (tmp_path / "one" / "program.txt").write_text("1")
    with_file = code_hash(["toy.measure"], ["*.txt"], root=tmp_path / "one")
    assert with_file != one
    with pytest.raises(FileNotFoundError, match=r"nothing\.py"):
        code_hash(["toy.nothing"], root=tmp_path / "one")


def test_changes_are_listed_by_name(tmp_path: Path) -> None:
    toy(tmp_path / "before")
    toy(tmp_path / "after", lower="FACTOR = 2\n\n\ndef twice(x):\n    return x * FACTOR\n", lowest="")
    assert changes(["toy.measure"], (), tmp_path / "before", tmp_path / "after") == ["toy.lower.twice"]
    assert changes(["toy.measure"], (), tmp_path / "before", tmp_path / "before") == []


def test_lazy_packages_are_looked_up_in_their_stub(tmp_path: Path) -> None:
    lazy = tmp_path / "toy" / "lazy"
    lazy.mkdir(parents=True)
    (lazy / "__init__.py").write_text("import lazy_loader\n")
    (lazy / "__init__.pyi").write_text(
        "from .inside import wanted as wanted\nfrom .unused import other as other\n"
    )
    (lazy / "inside.py").write_text("wanted = 1\n")
    (lazy / "unused.py").write_text("other = 1\n")
    toy(tmp_path, measure="from . import lazy\nMEASURED = lazy.wanted\n")
    assert set(code_hash_module._used(["toy.measure"], (), tmp_path)) == {"toy.measure", "toy.lazy.inside"}


@pytest.mark.slow
@pytest.mark.parametrize("name", RESULTS)
def test_behind_every_result_is_what_decides_it(name: str) -> None:
    behind = set(code_hash_module._used(RESULTS[name].code, RESULTS[name].without, ROOT))
    assert not any(module.startswith(("cctoolkit.plot", "cctoolkit.report")) for module in behind)
    assert not any(module.endswith((".figures", ".conclusions", ".page", ".book")) for module in behind)
    if name not in ("live", "robustness", "batch"):
        assert "cctoolkit.sim.engine" in behind and "cctoolkit.cca.cubic" in behind
    assert ("cctoolkit.testbed.uml" in behind) == (name.endswith("-linux") or name == "sim-vs-kernel")


# ---- keeping and making ----------------------------------------------------------------------------------------------


@pytest.fixture
def toy_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A result ``toy`` of a program that writes two tables; returns the folder where results are kept."""
    program = tmp_path / "program.py"
    program.write_text(
        "import argparse, json, pathlib, pandas as pd\n"
        "p = argparse.ArgumentParser(); p.add_argument('-o', type=pathlib.Path); p.add_argument('--seeds', type=int)\n"
        "given = p.parse_args(); given.o.mkdir()\n"
        "pd.DataFrame({'x': [1.23456789, None], 'name': ['a', 'b']}).to_parquet(given.o / 'numbers.parquet')\n"
        "pd.DataFrame({'y': [1]}).to_parquet(given.o / 'more.parquet')\n"
        "(given.o / 'experiment.json').write_text(json.dumps({'options': {'seeds': given.seeds}}))\n"
    )
    one = Result("a toy", f"python {program} --seeds 3", ("numbers",), ("toy",), "toy_book")
    monkeypatch.setitem(RESULTS, "toy", one)
    monkeypatch.setattr(kept, "code_hash", lambda *_: "one")
    monkeypatch.setattr(results, "WORK", tmp_path / "work")
    return tmp_path / "results"


def test_a_result_is_made_kept_and_known_to_be_stale(
    toy_result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kept.state("toy", toy_result) == "missing"
    results.make("toy", toy_result)
    assert kept.state("toy", toy_result) == "fresh"
    tables = kept.KeptTables("toy", toy_result)
    assert list(tables) == ["numbers"] and "more" not in tables and len(tables) == 1
    assert tables["numbers"].x.tolist()[0] == 1.23457 and tables["numbers"].x.isna().tolist() == [False, True]
    with pytest.raises(KeyError):
        tables["more"]
    about = kept.made("toy", toy_result)
    assert about["options"] == {"seeds": 3} and about["command"].endswith("--seeds 3")
    assert {"version", "commit", "date", "machine", "cpu_minutes", "code"} <= set(about)
    monkeypatch.setattr(kept, "code_hash", lambda *_: "two")
    assert kept.state("toy", toy_result) == "stale"
    (toy_result / "toy" / "made.json").write_text(json.dumps(about | {"code": None}))
    assert kept.state("toy", toy_result) == "recorded"


def test_a_result_on_real_linux_says_with_which_kernel(
    toy_result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {name for name, one in RESULTS.items() if one.on_linux} >= {"cca-benchmark-linux", "l4s-linux"}
    on_linux = dataclasses.replace(RESULTS["toy"], code=("toy", "cctoolkit.testbed.uml"))
    monkeypatch.setitem(RESULTS, "toy", on_linux)
    monkeypatch.setattr(
        results, "find_kernel", lambda: Kernel(Path("linux"), "0123456789abcdef", "7.2.12-tt")
    )
    results.make("toy", toy_result)
    about = kept.made("toy", toy_result)
    assert about["kernel"] == "7.2.12-tt (0123456789ab)"
    monkeypatch.setattr(pages, "made", lambda name: about)
    assert pages.how_made("toy").endswith(", kernel 7.2.12-tt (0123456789ab).")


@pytest.mark.slow
def test_an_interrupted_result_continues(toy_result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = toy_result.parent / "interrupted.py"
    program.write_text(
        "import json, pathlib, sys, pandas as pd\n"
        "out = pathlib.Path(sys.argv[sys.argv.index('-o') + 1])\n"
        "out.mkdir(exist_ok=True)\n"
        "about = out / 'experiment.json'\n"
        "half = about.is_file()\n"
        "about.write_text(json.dumps({'options': {}}))\n"
        "if not half: sys.exit(3)\n"
        "pd.DataFrame({'x': [1]}).to_parquet(out / 'numbers.parquet')\n"
    )
    one = Result("a toy", f"python {program}", ("numbers",), ("toy",), "toy_book")
    monkeypatch.setitem(RESULTS, "toy", one)
    with pytest.raises(CCToolkitError, match="exit status 3"):
        results.make("toy", toy_result)
    first_s = float((results.WORK / "toy.cpu_s").read_text())
    assert first_s > 0 and kept.state("toy", toy_result) == "missing"
    results.make("toy", toy_result)
    assert kept.KeptTables("toy", toy_result)["numbers"].x.tolist() == [1]
    assert not list(results.WORK.iterdir()), "nothing is left behind"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a child is told of its parent's end on Linux only")
def test_a_command_ends_with_what_started_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(f'{{os.getpid()}}.')\n"
        "time.sleep(60)\n"
    )
    starter = (
        "from pathlib import Path\n"
        "from cctoolkit.experiments import results\n"
        "from cctoolkit.experiments.catalogue import RESULTS, Result\n"
        f"RESULTS['toy'] = Result('', {f'python {program}'!r}, ('numbers',), ('cctoolkit.errors',), '')\n"
        f"results.WORK = Path({str(tmp_path / 'build')!r})\n"
        "results.make('toy')\n"
    )
    with subprocess.Popen([sys.executable, "-c", starter], cwd=ROOT) as started:
        written, end_s = tmp_path / "pid", time.monotonic() + 60
        while not (written.is_file() and written.read_text().endswith(".")) and time.monotonic() < end_s:
            time.sleep(0.05)
        child = Path("/proc") / written.read_text().rstrip(".")
        assert child.exists()
        started.terminate()
    while child.exists() and time.monotonic() < end_s:
        time.sleep(0.05)
    assert not child.exists()


def test_steps_of_a_result(toy_result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (toy_result / "toy").mkdir(parents=True)
    kept.note_step("toy", "python build.py first", "first", toy_result)
    assert kept.state("toy", toy_result) == "fresh"
    monkeypatch.setattr(kept, "code_hash", lambda *_: "two")
    kept.note_step("toy", "python build.py second", "second", toy_result)
    assert kept.state("toy", toy_result) == "stale"  # the first step is of other code
    kept.note_step("toy", "python build.py first", "first", toy_result)
    assert kept.state("toy", toy_result) == "fresh"


def test_results_that_cannot_be_made_are_refused(toy_result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match="result: 'nope' must be one of codel"):
        results.make("nope", toy_result)
    with pytest.raises(ParameterError, match=r"models is made by `python data/models/build\.py`"):
        results.make("models", toy_result)
    monkeypatch.setitem(RESULTS, "toy", Result("", "python -c pass", ("numbers",), ("toy",), ""))
    with pytest.raises(CCToolkitError, match="wrote no numbers"):
        results.make("toy", toy_result)
    monkeypatch.setitem(RESULTS, "toy", Result("", "python -c 1/0", ("numbers",), ("toy",), ""))
    with pytest.raises(CCToolkitError, match="failed"):
        results.make("toy", toy_result)
    assert not toy_result.exists()


@pytest.mark.slow
def test_the_command_lists_and_names_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert results.main(["list"]) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == list(RESULTS)
    assert {row.index("20") for row in rows} == {heading.index("made")}, "columns stand below each other"
    assert results.main(["why", "growth"]) in (0, 1)  # 1: a checkout without its history
    command = [sys.executable, "-m", "cctoolkit.experiments.results", "make", "nope"]
    wrong = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and wrong.stderr.count("\n") == 1 and "'nope' must be one of" in wrong.stderr


# ---- pages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_is_there_with_its_tables(name: str) -> None:
    if not (kept.FOLDER / name).is_dir():
        pytest.skip(f"not kept yet: make results NAME={name}")
    about = kept.made(name)
    assert about["command"] == RESULTS[name].command
    assert {"version", "commit", "date", "machine", "code"} <= set(about)
    tables = kept.KeptTables(name)
    assert len(tables) > 0
    if about["code"] is not None:
        assert set(tables) == set(RESULTS[name].tables)


@pytest.mark.slow
def test_every_page_says_what_the_results_say() -> None:
    """Else: python -m cctoolkit.experiments.results render."""
    there = list(pages.pages())
    assert {
        ROOT / "docs" / "validation.md",
        ROOT / "docs" / "live.md",
    } <= set(there)
    assert [path.relative_to(ROOT).as_posix() for path in pages.render_all(check=True)] == []


#: What only a measurement of ours says: speeds, costs, scores and spreads. Numbers of papers and aims stand in
#: sentences that say so.
MEASURED = re.compile(
    r"""\d\ ?[kM]?\ (packets|flows|windows)\ ?(/s|per\ (CPU[ -])?second) | \d\ CPU[ -]seconds? | \d\ cpu-s
    | \d\ [nµm]s\ (per|a)\ packet | \d\ (%\ of\ a\ core|×\ real\ time) | \d\ times\ (as\ fast|faster|real\ time)
    | \d\ ±\ \d | F1\ (is|of)\ \d | \d\.\d\d\ \(\d\.\d\d[–-]\d | scores?\ (of\ )?\d\.\d | named?\ \d+\ of\ \d
    | \btakes?\ (about\ )?\d[\d.]*\ (to\ \d+\ )?([nµm]?s|seconds|minutes)\b | \d\.\d+\ (ms\ |%\ )?instead\ of\ \d""",
    re.X,
)
QUOTED = re.compile(r"\b(paper|papers|Figure|aims?|RFC|limited? to|F1 of 0\.7|(?:a|one) packet)\b")


def typed(text: str) -> list[str]:
    """Sentences of a page with numbers that look measured, but come from no result."""
    text = re.sub(r"^# ?", "", text, flags=re.M) if "# %%" in text else text
    text = re.sub(r"<!-- results: .*?<!-- end -->|```.*?```|`[^`\n]*`", "", text, flags=re.S)
    sentences = [" ".join(s.split()) for s in re.split(r"(?<=[.;])\s|\n\n|\n[-|]", text)]
    return [s for s in sentences if MEASURED.search(s) and not QUOTED.search(s)]


def prose(path: Path) -> str:
    """A page's text; of a notebook's source the Markdown cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    cells = re.split(r"^# %%", text, flags=re.M)
    return "\n\n".join(f"# %%{cell}" for cell in cells if cell.startswith(" [markdown]"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It reads 17.5 M packets/s here.", True),
        ("Ours scores 0.95 at 1 s.", True),
        ("The loss is 0.05 ± 0.01 %.", True),
        ("It forwards 9000 packets\nper second.", True),
        ("macro F1 is 0.84", True),
        ("a model named 13 of 15 flows", True),
        ("an <!-- results: a/b -->F1 is 0.84<!-- end --> of a result", False),
        ("The paper limits it to 4170 packets/s.", False),
        ("a link of 10 Mbit/s with an RTT of 20 ms, 200 packets of buffer, and a target of 5 ms", False),
    ],
)
def test_a_typed_measurement_is_recognised(text: str, found: bool) -> None:
    assert bool(typed(text)) is found


def test_no_page_has_a_typed_measurement() -> None:
    """Else: keep it in a result, and show it in a block."""
    patterns = (
        "*.md",
        "docs/**/*.md",
        "hardware/**/*.md",
        "benchmarks/*.md",
        "notebooks/**/*.md",
        "notebooks/**/*.py",
    )
    every = [
        path for pattern in patterns for path in sorted(ROOT.glob(pattern)) if path.name != "CHANGELOG.md"
    ]
    assert len(every) > 30
    found = {path.relative_to(ROOT).as_posix(): typed(prose(path)) for path in every}
    assert {name: sentences for name, sentences in found.items() if sentences} == {}


def test_blocks_are_filled_as_lines_within_a_line_and_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "view", lambda name, what: f"{name} has {what}\n\nand more")
    page = "before\n<!-- results: a/b -->\nold\n<!-- end -->\n"
    new = "before\n<!-- results: a/b -->\n\na has b\n\nand more\n\n<!-- end -->\n"
    assert pages.filled(page) == new == pages.filled(new)
    monkeypatch.setattr(pages, "view", lambda name, what: f"{name} has {what}")
    line = "It is <!-- results: a/b -->old<!-- end -->, and <!-- results: c/d --><!-- end -->."
    new = "It is <!-- results: a/b -->a has b<!-- end -->, and <!-- results: c/d -->c has d<!-- end -->."
    assert pages.filled(line) == new == pages.filled(new)
    cell = "# text\n# <!-- results: a/b -->\n# old\n# <!-- end -->\n"
    new = "# text\n# <!-- results: a/b -->\n#\n# a has b\n#\n# <!-- end -->\n"
    assert pages.filled(cell) == new == pages.filled(new)


def test_unknown_results_and_views_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="result: 'nope' must be one of"):
        pages.view("nope", "table")
    with pytest.raises(ParameterError, match=r"live has no view 'nope'.* made, rates"):
        pages.view("live", "nope")
    monkeypatch.setattr(pages, "made", lambda name: {})
    with pytest.raises(ParameterError, match="live is missing; `python -m benchmarks live` makes it"):
        pages.view("live", "rates")


@pytest.mark.parametrize("gone", ["a column", "a table"])
def test_tables_of_older_code_that_lack_what_is_shown_are_named(
    monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    whole = kept.KeptTables.__getitem__

    def older(self: kept.KeptTables, table: str) -> pd.DataFrame:
        if gone == "a table":
            raise KeyError(table)
        return whole(self, table).drop(columns="what", errors="ignore").iloc[:, 2:]

    monkeypatch.setattr(kept.KeptTables, "__getitem__", older)
    monkeypatch.setattr(pages, "state", lambda name: "stale")
    with pytest.raises(ParameterError, match=r"live/rates needs what .* lack .*`results make live`"):
        pages.view("live", "rates")
    monkeypatch.setattr(pages, "state", lambda name: "fresh")  # then the view is wrong
    with pytest.raises((AttributeError, KeyError)):
        pages.view("live", "rates")


def test_a_reader_that_has_gone_gets_no_traceback() -> None:
    """As in ``results list | head -1``."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cctoolkit.experiments.results", "list"],
            stdout=writing, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_page_follows_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another number in a table is another number on the page."""
    before = pages.view("live", "rates")
    whole = kept.KeptTables.__getitem__

    def other(self: kept.KeptTables, table: str) -> pd.DataFrame:
        found = whole(self, table)
        return found.assign(with_packets_per_s=123_456.0) if table == "rates" else found

    monkeypatch.setattr(kept.KeptTables, "__getitem__", other)
    assert "123 456" not in before and "123 456" in pages.view("live", "rates")
