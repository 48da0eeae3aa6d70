"""What an experiment leaves: tables, figures and a summary in one folder."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._support.atomic import replacing
from .._support.version import __version__
from ..errors import ParameterError

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

__all__ = ["Folder", "OutputOption", "WorkersOption", "markdown_table"]

#: Options that experiments have in common.
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for tables, figures and summary.md.")
]
WorkersOption = Annotated[int | None, typer.Option(help="Processes [default: all cores].", min=1)]

_ABOUT = "experiment.json"


class Folder:
    """The folder of one experiment; running it again into the same folder replaces what it wrote.

    Parameters
    ----------
    path : path
        A new or empty folder, or one of the same experiment.
    experiment : str
        Its name.
    options : mapping
        What it was run with; goes into every table and the summary.

    Raises
    ------
    ParameterError
        There is something else in its place.
    """

    def __init__(self, path: str | Path, experiment: str, options: Mapping[str, Any]) -> None:
        self.path = Path(path)
        about = self.path / _ABOUT
        mine = False
        if about.is_file():
            try:
                mine = json.loads(about.read_text(encoding="utf-8"))["experiment"] == experiment
            except (ValueError, KeyError, TypeError):
                mine = False
        if not mine and self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise ParameterError(f"output: {self.path} is there already and holds no {experiment}")
        self.provenance = {"experiment": experiment, "version": __version__, "options": dict(options)}
        self._written: list[str] = []
        self._text(_ABOUT, json.dumps(self.provenance, indent=1, default=str) + "\n")

    def _text(self, name: str, text: str) -> Path:
        with replacing(self.path / name) as tmp:
            tmp.write_text(text, encoding="utf-8")
        return self.path / name

    def table(self, name: str, frame: pd.DataFrame) -> Path:
        """Write a table as ``NAME.parquet``, with how it was made in its metadata."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrow = pa.Table.from_pandas(frame, preserve_index=False)
        text = json.dumps(self.provenance, sort_keys=True, default=str).encode()
        meta = dict(arrow.schema.metadata or {}) | {b"cctoolkit.provenance": text}
        with replacing(self.path / f"{name}.parquet") as tmp:
            pq.write_table(arrow.replace_schema_metadata(meta), tmp, compression="zstd")
        self._written.append(f"{name}.parquet")
        return self.path / f"{name}.parquet"

    def figure(self, name: str, figure: go.Figure) -> Path:
        """Write a figure as ``NAME.html`` (works offline), ``NAME.json``, and ``NAME.png`` where kaleido is installed.

        The script that draws the page's figure is one file beside all of them.
        """
        with replacing(self.path / f"{name}.html") as tmp:
            figure.write_html(tmp, include_plotlyjs="directory")
        self._text(f"{name}.json", figure.to_json())
        self._written.append(f"{name}.html")
        if importlib.util.find_spec("kaleido") is not None:
            with replacing(self.path / f"{name}.png") as tmp:
                tmp.write_bytes(figure.to_image("png", width=1000, scale=2))
            self._written.append(f"{name}.png")
        return self.path / f"{name}.html"

    def summary(self, title: str, *blocks: str) -> Path:
        """Write ``summary.md``: the title, the blocks (Markdown), and which files lie beside it and how they were made.

        Images that were written are shown at the end.
        """
        options = self.provenance["options"]
        assert isinstance(options, dict)
        given = ", ".join(f"{name} {value}" for name, value in options.items()) or "none"
        made = f"Made by `cct experiment {self.provenance['experiment']}`, cctoolkit {__version__}; options: {given}."
        files = "Files: " + ", ".join(f"[{name}]({name})" for name in self._written) if self._written else ""
        images = [f"![{name}]({name})" for name in self._written if name.endswith(".png")]
        text = "\n\n".join(block for block in (f"# {title}", *blocks, *images, made, files) if block)
        return self._text("summary.md", text + "\n")


def markdown_table(frame: pd.DataFrame, digits: int = 3) -> str:
    """A table in Markdown: numbers to the right with so many digits, nothing where there is none.

    Parameters
    ----------
    frame : DataFrame
        Its columns' names are the header; the index is not shown.
    digits : int
        That count, of floats.
    """
    import pandas as pd

    def cell(value: Any) -> str:
        if pd.isna(value):
            return ""
        if isinstance(value, float):
            return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"
        return str(value).replace("|", "\\|")

    rules = ["---:" if pd.api.types.is_numeric_dtype(dtype) else "---" for dtype in frame.dtypes]
    rows = [map(str, frame.columns), rules, *(map(cell, row) for row in frame.itertuples(index=False))]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
