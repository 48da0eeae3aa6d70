"""The simulator chapter's examples run, in order, as they are printed."""

from __future__ import annotations

import runpy
import tomllib

from documents import ROOT, code

from cctoolkit.scenario.scenario import scenario_of, sweep

CHAPTER = ROOT / "docs" / "simulator.md"


def test_python_of_the_chapter(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it writes a trace
    examples = code(CHAPTER, "python")
    assert len(examples) >= 4
    script = tmp_path / "chapter.py"
    script.write_text("\n".join(examples), encoding="utf-8")
    found = runpy.run_path(str(script))
    assert len(found["run"].flows) == 3 and len(found["figure"].data) == 6
    assert found["delays"].delay_ns.notna().sum() > 10_000
    assert found["separate"].flows.queue.to_list() == [0] * 4 + [1] * 4 + [2] * 4
    assert found["in_python"].summary() == found["compiled"].summary()
    assert abs(found["in_python"].summary()["mean_delay_ms"] - 20) < 3  # PI2's target


def test_toml_of_the_chapter_is_the_same_scenario(tmp_path):
    (text,) = code(CHAPTER, "toml")
    table = tomllib.loads(text)
    grid = table.pop("sweep")
    scenario = scenario_of(table)
    script = tmp_path / "chapter.py"
    script.write_text(code(CHAPTER, "python")[0].split("run = ")[0], encoding="utf-8")
    assert runpy.run_path(str(script))["scenario"] == scenario
    assert len(list(sweep(scenario, grid))) == 9
