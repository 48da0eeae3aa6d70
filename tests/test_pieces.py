"""Pieces of an experiment: made once, kept whole, known by their code and what they are made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from cctoolkit.experiments import pieces as pieces_module, rtt_separation
from cctoolkit.experiments.pieces import Pieces, kept_outcomes
from cctoolkit.scenario import Bottleneck, Flow, Scenario

CODE = ("cctoolkit.experiments.pieces",)


def test_a_piece_is_made_once_and_read_as_it_was(tmp_path: Path) -> None:
    calls: list[int] = []

    def make() -> dict[str, Any]:
        calls.append(1)
        return {
            "table": pd.DataFrame({"x": [0.1, None], "name": ["a", "b"]}),
            "log": [{"n": 3, "gvf": float("nan")}],
        }

    first = Pieces(tmp_path / "new", CODE).made(("a", 1.5), make)
    again = Pieces(tmp_path / "new", CODE).made(("a", 1.5), make)
    assert len(calls) == 1
    for found in (first, again):
        pd.testing.assert_frame_equal(found["table"], make()["table"])
        assert found["log"][0]["n"] == 3 and found["log"][0]["gvf"] != found["log"][0]["gvf"]


def test_other_settings_and_other_code_are_other_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [Pieces(tmp_path, CODE).made(what, lambda what=what: {"x": what}) for what in (1, 2)]
    assert [piece["x"] for piece in made] == [1, 2]
    monkeypatch.setattr(pieces_module, "code_hash", lambda *_, **__: "changed")
    assert Pieces(tmp_path, CODE).made(1, lambda: {"x": "new"}) == {"x": "new"}


def test_a_piece_that_fails_is_not_kept(tmp_path: Path) -> None:
    pieces = Pieces(tmp_path, CODE)
    with pytest.raises(ZeroDivisionError):
        pieces.made("a", lambda: {"x": 1 / 0})
    with pytest.raises(TypeError):  # neither a table nor plain: nothing half-written stays
        pieces.made("a", lambda: {"table": pd.DataFrame({"x": [1]}), "bad": object()})
    assert pieces.made("a", lambda: {"x": 1}) == {"x": 1}


def test_outcomes_of_cases_are_kept_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(
        bottleneck=Bottleneck(rate_mbps=10, buffer_bytes=50_000),
        flows=(Flow("cubic", rtt_ms=10), Flow("cubic", rtt_ms=40)),
        duration_s=3,
    )
    cases = [
        rtt_separation.Case({"scheme": scheme, "flows": "CUBIC"}, scenario, k=2)
        for scheme in ("one queue", "RTT")
    ]
    run_cases = kept_outcomes(Pieces(tmp_path, CODE))
    first = run_cases(cases, workers=1)
    monkeypatch.setattr(rtt_separation.Case, "run", lambda self: pytest.fail("run again"))
    again = run_cases(cases, workers=1)
    for one, other in zip(first, again, strict=True):
        assert one.about == other.about and str(one.log) == str(other.log)
        for name in ("flows", "flow_series", "queue_series"):
            pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name))
    assert first[1].log and first[1].changes() == again[1].changes()
