"""The output of an experiment: tables, figures and a summary in one folder."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._support import parquet
from .._support.atomic import check_target, replacing
from .._support.version import __version__
from ..errors import ParameterError

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

__all__ = ["Folder"]

_SCRIPT = "plotly.min.js"

_ABOUT = "experiment.json"


class Folder:
    """The folder of one experiment. Running it again into the same folder replaces what it wrote.

    Parameters
    ----------
    path : path
        A new or empty folder, or one that the same experiment wrote.
    experiment : str
        Name of the experiment.
    options : mapping
        Options it was run with; recorded in every table and in the summary.

    Raises
    ------
    ParameterError
        The path exists and is not a folder of this experiment, or is a URL.
    OSError
        The folder cannot be written to.

    Examples
    --------
    >>> folder = Folder("out", "codel", {"seeds": 20})        # doctest: +SKIP
    >>> folder.table("table1", frame)                         # doctest: +SKIP
    """

    def __init__(self, path: str | Path, experiment: str, options: Mapping[str, Any]) -> None:
        self.path = Path(path)
        check_target(self.path, folder=True)
        about = self.path / _ABOUT
        mine = False
        if about.is_file():
            try:
                mine = json.loads(about.read_text(encoding="utf-8"))["experiment"] == experiment
            except (ValueError, KeyError, TypeError):
                mine = False
        if not mine and self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise ParameterError(f"output: {self.path} already exists and is not a folder of {experiment}")
        self.provenance = {"experiment": experiment, "version": __version__, "options": dict(options)}
        self._written: list[str] = []
        self._text(_ABOUT, json.dumps(self.provenance, indent=1, default=str) + "\n")

    def _text(self, name: str, text: str) -> Path:
        with replacing(self.path / name) as tmp:
            tmp.write_text(text, encoding="utf-8")
        return self.path / name

    def table(self, name: str, frame: pd.DataFrame) -> Path:
        """Write a table as ``NAME.parquet``, its provenance in the file's metadata."""
        parquet.write(frame, self.path / f"{name}.parquet", self.provenance)
        self._written.append(f"{name}.parquet")
        return self.path / f"{name}.parquet"

    def figure(self, name: str, figure: go.Figure) -> Path:
        """Write a figure as ``NAME.html`` (works offline), ``NAME.json``, and ``NAME.png`` if kaleido is installed.

        All pages share one copy of plotly's script, stored beside them.
        """
        from plotly.offline import get_plotlyjs

        if not (self.path / _SCRIPT).exists():
            self._text(_SCRIPT, get_plotlyjs())
        with replacing(self.path / f"{name}.html") as tmp:
            figure.write_html(tmp, include_plotlyjs=_SCRIPT)
        self._text(f"{name}.json", figure.to_json())
        self._written.append(f"{name}.html")
        if importlib.util.find_spec("kaleido") is not None:
            with replacing(self.path / f"{name}.png") as tmp:
                tmp.write_bytes(figure.to_image("png", width=1000, scale=2))
            self._written.append(f"{name}.png")
        return self.path / f"{name}.html"

    def summary(self, title: str, *blocks: str) -> Path:
        """Write ``summary.md``: title, blocks of Markdown, images, how it was made, and links to the files."""
        options = self.provenance["options"]
        assert isinstance(options, dict)
        given = ", ".join(f"{name} {value}" for name, value in options.items()) or "none"
        made = f"Made by `cct experiment {self.provenance['experiment']}`, cctoolkit {__version__}; options: {given}."
        files = "Files: " + ", ".join(f"[{name}]({name})" for name in self._written) if self._written else ""
        images = [f"![{name}]({name})" for name in self._written if name.endswith(".png")]
        text = "\n\n".join(block for block in (f"# {title}", *blocks, *images, made, files) if block)
        return self._text("summary.md", text + "\n")
