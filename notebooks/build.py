"""Make the .ipynb files from their .py sources, copies to work in, and the copies that students get.

    python notebooks/build.py                  # notebooks/NN_name.py -> notebooks/NN_name.ipynb, lessons/ likewise
    python notebooks/build.py --work DIR       # the same into DIR, without touching what you changed there
    python notebooks/build.py --student DIR    # the same into DIR, with empty cells instead of solutions

Needs jupytext (the extra `notebooks`).
"""

from __future__ import annotations

import argparse
import hashlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import jupytext
import nbformat

HERE = Path(__file__).parent
REPOSITORY = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
YOUR_TURN = "# your turn"

#: The first code of every notebook, so that it also starts where there is only the notebook (Colab).
INSTALL = """\
# Where cctoolkit is missing (on Colab, for instance) this fetches and installs it; elsewhere it does nothing.
import importlib.util

if importlib.util.find_spec("cctoolkit") is None:
    import os, sys

    !git clone --quiet --depth 1 {repository}
    %pip install --quiet ./cctoolkit "ipywidgets>=8" "anywidget>=0.9"
    os.chdir("cctoolkit/{folder}")  # the paths below start here
    if "google.colab" in sys.modules:
        from google.colab import output

        output.enable_custom_widget_manager()"""


def sources() -> list[Path]:
    """The notebooks' sources, in order, and then the lessons'."""
    return [
        source for folder in (HERE, HERE / "lessons") for source in sorted(folder.glob("[0-9][0-9]_*.py"))
    ]


def name_of(source: Path) -> str:
    """What a notebook is called: its path from here, without the end."""
    return source.relative_to(HERE).with_suffix("").as_posix()


def notebook_of(source: Path) -> nbformat.NotebookNode:
    """The notebook that a source describes: no outputs, and the same ids every time."""
    notebook = jupytext.read(source)
    notebook.nbformat_minor = 5
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    notebook.cells = list(with_solutions_folded(notebook.cells))
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02}"
    add_install_cell(notebook, source)
    return notebook


def with_solutions_folded(cells: list[nbformat.NotebookNode]) -> Iterator[nbformat.NotebookNode]:
    """Put each solution (cells tagged ``solution``) below a heading of its own, which JupyterLab shows folded."""
    level, inside = 1, False
    for cell in cells:
        solution = "solution" in cell.metadata.get("tags", ())
        if solution and not inside:
            heading = nbformat.v4.new_markdown_cell(f"{'#' * (level + 1)} Solution")
            heading.metadata |= {"tags": ["solution"], "jp-MarkdownHeadingCollapsed": True}
            yield heading
        elif not solution and cell.cell_type == "markdown":
            level = [level, *headings_of(cell)][-1]
        inside = solution
        yield cell


def headings_of(cell: nbformat.NotebookNode) -> list[int]:
    """The levels of a Markdown cell's headings."""
    return [len(marks) for marks in re.findall(r"^(#+) ", cell.source, re.MULTILINE)]


def add_install_cell(notebook: nbformat.NotebookNode, source: Path) -> None:
    """Put :data:`INSTALL` behind the title."""
    folder = source.resolve().parent.relative_to(HERE.resolve().parent).as_posix()
    cell = nbformat.v4.new_code_cell(INSTALL.format(folder=folder, repository=REPOSITORY), id="install")
    cell.metadata["tags"] = ["install", "hide-cell"]
    notebook.cells.insert(1, cell)


def student_of(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook with every cell that has the tag ``solution`` emptied (text is left out)."""
    student = nbformat.from_dict(notebook)
    student.cells = [
        cell
        for cell in student.cells
        if not ("solution" in cell.metadata.get("tags", ()) and cell.cell_type == "markdown")
    ]
    for cell in student.cells:
        if "solution" in cell.metadata.get("tags", ()):
            cell.source = YOUR_TURN
    return student


def fingerprint(notebook: nbformat.NotebookNode) -> str:
    """What a reader wrote or could have changed: the cells, without outputs."""
    cells = [(cell.cell_type, cell.source) for cell in notebook.cells]
    return hashlib.sha256(repr(cells).encode()).hexdigest()[:16]


def write_working_copy(notebook: nbformat.NotebookNode, target: Path) -> None:
    """Write `notebook` to `target`, unless somebody edited the notebook that is there."""
    made = fingerprint(notebook)
    if target.exists():
        there = nbformat.read(target, as_version=4)
        made_then = there.metadata.get("cctoolkit", {}).get("made_from")
        if made_then == made:
            return  # up to date, with the outputs of the last run
        if fingerprint(there) != made_then:
            print(
                f"{target}: kept, because you edited it; a newer version is out: delete or rename yours to get it"
            )
            return
    notebook.metadata["cctoolkit"] = {"made_from": made}
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, target)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--student", metavar="DIR", type=Path, help="write notebooks without solutions into DIR"
    )
    parser.add_argument(
        "--work", metavar="DIR", type=Path, help="write notebooks to work in into DIR; edited ones are kept"
    )
    arguments = parser.parse_args()
    for source in sources():
        notebook = notebook_of(source)
        if arguments.work:
            write_working_copy(notebook, arguments.work / f"{name_of(source)}.ipynb")
            continue
        folder = HERE
        if arguments.student:
            notebook, folder = student_of(notebook), arguments.student
        target = folder / f"{name_of(source)}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, target)
        print(target)


if __name__ == "__main__":
    main()
