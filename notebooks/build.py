"""Make the .ipynb files from their .py sources, and the copies that students get.

    python notebooks/build.py                  # notebooks/NN_name.py -> notebooks/NN_name.ipynb, lessons/ likewise
    python notebooks/build.py --student DIR    # the same into DIR, with empty cells instead of solutions

Needs jupytext (the extra `notebooks`).
"""

from __future__ import annotations

import argparse
import tomllib
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
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02}"
    add_install_cell(notebook, source)
    return notebook


def add_install_cell(notebook: nbformat.NotebookNode, source: Path) -> None:
    """Put :data:`INSTALL` behind the title, unless the source has it (JupyterLab saves it into the paired source)."""
    if any("install" in cell.metadata.get("tags", ()) for cell in notebook.cells):
        return
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--student", metavar="DIR", type=Path, help="write notebooks without solutions into DIR"
    )
    arguments = parser.parse_args()
    for source in sources():
        notebook = notebook_of(source)
        folder = HERE
        if arguments.student:
            notebook, folder = student_of(notebook), arguments.student
        target = folder / f"{name_of(source)}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, target)
        print(target)


if __name__ == "__main__":
    main()
