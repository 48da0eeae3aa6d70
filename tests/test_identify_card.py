"""Model cards: what a reader has to know stands in them, and what is not known is said to be so."""

from __future__ import annotations

import pandas as pd

from cctoolkit.identify.card import write_card

ABOUT = {
    "classifier": "DragonflyClassifier",
    "cctoolkit": "9.9",
    "classes": ["bbr", "reno"],
    "inputs": ["cbiq_bytes", "throughput_bytes"],
    "slot_ms": 1.0,
    "windows_ms": [100.0, 1000.0],
    "parameters": {"epochs": 3, "seed": 7},
    "data": "Runs of a test.",
    "limits": "Nothing else.",
    "provenance": {"command": "cct train", "dataset": "abc"},
}


def test_a_card_says_what_the_model_is_and_how_good(tmp_path):
    results = pd.DataFrame({"test": ["paper", "hard"], "macro F1": [0.91, 0.82]})
    path = write_card(tmp_path / "fly", ABOUT, results)
    card = path.read_text(encoding="utf-8")
    assert path == tmp_path / "fly" / "README.md" and card.startswith("# fly\n\n")
    for text in (
        "`DragonflyClassifier` of cctoolkit 9.9", "bbr, reno", "`cbiq_bytes`, `throughput_bytes`", "slots of 1 ms",
        "Windows: 100 ms, 1000 ms.", 'cct.identify.load("fly")', "## Data\n\nRuns of a test.",
        "## Limits\n\nNothing else.", "epochs 3, seed 7", "- command: cct train\n- dataset: abc",
    ):  # fmt: skip
        assert text in card, text
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in card.splitlines() if line[:1] == "|"
    ]
    assert rows[0] == ["test", "macro F1"] and [row[0] for row in rows[2:]] == ["paper", "hard"]
    assert [float(row[1]) for row in rows[2:]] == [0.91, 0.82]
    assert [p.name for p in (tmp_path / "fly").iterdir()] == ["README.md"]


def test_unknown_facts_are_reported(tmp_path):
    about = ABOUT | {"data": "", "limits": "", "provenance": {}}
    card = write_card(tmp_path, about, None).read_text(encoding="utf-8")
    assert "## Data\n\nNot stated." in card and "## Limits\n\nNot stated." in card
    assert "## Results" not in card and "command" not in card
    assert "## Results" not in write_card(tmp_path, about, pd.DataFrame()).read_text(encoding="utf-8")
