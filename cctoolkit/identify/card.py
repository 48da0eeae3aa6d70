"""Model cards: what a model is, what it was trained on, how good it is, where not to trust it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .._atomic import replacing
from .probabilities import answers

__all__ = ["alike_in_words", "write_card"]


def alike_in_words(alike: Mapping[str, Sequence[str]], among: Container[str] | None = None) -> str:
    """Whom else classes stand for, as the end of a sentence; only of the classes `among` these."""
    return "".join(
        f"; {name} stands for {', '.join(cca for cca in members if cca != name)}, too, which do the same"
        for name, members in alike.items()
        if among is None or name in among
    )


def write_card(folder: Path, about: Mapping[str, Any], results: pd.DataFrame | None) -> Path:
    """Write ``README.md`` beside a model.

    Parameters
    ----------
    folder : Path
    about : mapping
        The content of ``model.json``.
    results : DataFrame, optional
        Scores, one row a test.
    """
    from .._support.markdown import markdown_table

    alike = about.get("alike", {})
    classes = answers(np.array(about["classes"]), alike)
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
        tmp.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")
    return folder / "README.md"
