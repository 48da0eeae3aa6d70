"""Model cards: what a model is, its training data, its scores, and where not to trust it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._support.atomic import replacing
from .flow_settings import settings_of
from .probabilities import possible_answers

__all__ = ["alike_in_words", "limits", "write_card"]


def alike_in_words(alike: Mapping[str, Sequence[str]], among: Container[str] | None = None) -> str:
    """Which congestion controls classes also cover, as the end of a sentence; only for classes `among` these."""
    return "".join(
        f"; {name} also covers {', '.join(cca for cca in members if cca != name)}, which behave alike"
        for name, members in alike.items()
        if among is None or name in among
    )


def limits(flows: pd.DataFrame, classifier: Any) -> str:
    """The settings that a classifier was trained on, and what it does with everything else.

    Parameters
    ----------
    flows : DataFrame
        Flows of the runs that it was trained on.
    classifier
        Fitted.
    """
    settings = settings_of(flows)
    varied = settings[settings["values"] > 1]
    ranges = [f"{row.setting} {row[3]} to {row[4]}" for row in varied.itertuples()]
    seen = (
        f"Trained on these settings: {'; '.join(ranges)}. " if ranges else "All runs had the same settings. "
    )
    rest = (
        "A congestion control it was not trained on is called unknown only if it resembles none of its classes."
        if hasattr(classifier, "least_")
        else "Every flow gets one of its classes, even if it uses another congestion control."
    )
    return seen + rest


def write_card(folder: Path, about: Mapping[str, Any], results: pd.DataFrame | None) -> Path:
    """Write ``README.md`` beside a model.

    Parameters
    ----------
    folder : Path
    about : mapping
        The content of ``model.json``.
    results : DataFrame, optional
        Scores, one row per test.
    """
    from .._support.markdown import markdown_table

    alike = about.get("alike", {})
    classes = possible_answers(np.array(about["classes"]), alike)
    lengths = ", ".join(f"{ms:g} ms" for ms in about["windows_ms"])
    blocks = [
        f"# {folder.name}",
        f"A `{about['classifier']}` of cctoolkit {about['cctoolkit']} that tells {', '.join(classes)} apart, from "
        f"{', '.join(f'`{i}`' for i in about['inputs'])} in slots of {about['slot_ms']:g} ms{alike_in_words(alike)}. "
        f"Windows: {lengths}.",
        "```python\nimport cctoolkit as cct\n\n"
        f'model = cct.identify.load("{folder.name}")\n'
        "model.predict(cct.compute_slots(ingress, egress))\n```",
        "## Data\n\n" + (about["data"] or "Not stated."),
    ]
    if results is not None and len(results):
        blocks.append("## Results\n\n" + markdown_table(results))
    blocks.append("## Limits\n\n" + (about["limits"] or "Not stated."))
    settings = ", ".join(f"{k} {v}" for k, v in about["parameters"].items())
    blocks.append(f"## Made by\n\nParameters: {settings}.")
    if about["provenance"]:
        blocks.append("\n".join(f"- {k}: {v}" for k, v in about["provenance"].items()))
    with replacing(folder / "README.md") as tmp:
        tmp.write_text("\n\n".join(blocks) + "\n", encoding="utf-8", errors="backslashreplace")
    return folder / "README.md"
