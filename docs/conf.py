"""The book: `make docs` builds it into build/docs.

The source directory is the repository's root (`sphinx-build -c docs . build/docs`), so that a chapter's links to
notebooks and READMEs are the same files here and on a forge.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

import cctoolkit

HERE = Path(__file__).parent
ROOT = HERE.parent

project = "cctoolkit"
author = "the cctoolkit authors"
project_copyright = "the cctoolkit authors, Apache-2.0"
version = release = cctoolkit.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx-mathjax-offline",  # formulas without a network
]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "notebooks/**.ipynb",
    "notebooks/README.md",
    "traces/README.md",
    "hardware/**/README.md",
    "hardware/README.md",
    "benchmarks/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
exclude_patterns = [
    ".*",
    "docs/_*",
    "build",
    "dist",
    "**.ipynb_checkpoints",
    "**/__pycache__",
    "**/node_modules",
]
templates_path = [str(HERE / "_templates")]  # autosummary would look for it in the source directory
nitpicky = True  # a reference that leads nowhere is a warning

# --- looks
html_theme = "sphinx_book_theme"
html_title = "cctoolkit"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_theme_options = {
    "show_toc_level": 2,
    "show_navbar_depth": 1,
    "max_navbar_depth": 2,  # a page of the reference has its names
    "use_download_button": False,
    "use_fullscreen_button": False,
    "home_page_in_toc": False,
    "navbar_persistent": [],  # the search is in the sidebar
}
html_additional_pages = {"index": "to_book.html"}  # the front page is docs/index.html
html_show_sourcelink = False
html_copy_source = False
pygments_style = "default"
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True

# --- Markdown
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

# --- API
autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say more: shapes, units
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": False}
numpydoc_show_class_members = False  # autodoc shows them
nitpick_ignore_regex = [
    ("py:.*", r"(pandas|numpy|plotly|ipywidgets)\..*"),
    ("py:mod", "ipaddress"),
]  # other projects: no network here

# --- notebooks: `make docs` sets BOOK_NOTEBOOKS=cache and runs them in full, with FAST=1 in their quick form, which
# their figures then say; "off" shows them as they are, without outputs
nb_execution_mode = os.environ.get("BOOK_NOTEBOOKS", "off")
if nb_execution_mode == "off":
    html_sidebars = {"**": []}  # a book to check and not to read: sidebars are half of the time it takes
nb_execution_cache_path = str(ROOT / "build" / f"notebook_cache{os.environ.get('FAST', '')}")
nb_execution_timeout = 3600
nb_execution_show_tb = True
nb_ipywidgets_js = {}  # docs/kernel.py has made pictures of them
nb_merge_streams = True
nb_render_image_options = {"width": "100%"}
os.environ |= {
    "FAST": os.environ.get("FAST", ""),
    "TRACE": "",
    "CCTOOLKIT_CACHE": str(ROOT / "build" / "cache"),  # nobody's MAWI day: the same book everywhere
    "PYTHONSTARTUP": str(HERE / "kernel.py"),
}


def write_command_reference(_: Sphinx) -> None:
    """`cct`'s reference, by Typer from what the commands themselves say."""
    target = HERE / "api" / "generated" / "cct.md"
    shutil.rmtree(target.parent, ignore_errors=True)  # pages of names that are no more would stay
    target.parent.mkdir()
    command = [sys.executable, "-m", "typer", "cctoolkit.cli", "utils", "docs", "--name", "cct"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    target.write_text(text, encoding="utf-8")


def find_by_public_name(app: Sphinx, env: Any, node: Any, content: nodes.Element) -> nodes.Element | None:
    """A reference to an object by the module that defines it: to where it is documented, if there is one such place."""
    if node.get("refdomain") != "py":
        return None
    wanted = node["reftarget"].removeprefix("cctoolkit.")
    domain = env.domains.python_domain
    while wanted:
        found = [name for name in domain.objects if name.endswith("." + wanted)]
        if len(found) == 1:
            return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", found[0], node, content)
        wanted = wanted.partition(".")[2]
    return None


def fold_solutions(_: Sphinx, doctree: nodes.document) -> None:
    """Fold the notebooks' sections called Solution, as JupyterLab does; figures inside fit when they are shown."""
    fit = "dispatchEvent(new Event('resize'))"
    begin = f'<details class="solution" ontoggle="{fit}"><summary>Show the solution</summary>'
    for section in list(doctree.findall(nodes.section)):
        if section[0].astext() == "Solution":
            section.insert(1, nodes.raw("", begin, format="html"))
            section.append(nodes.raw("", "</details>", format="html"))


def add_plotly(app: Sphinx, page: str, _template: str, _context: dict[str, Any], _doctree: Any) -> None:
    """plotly.js for pages with figures (its file is copied below, so that the book also shows them offline)."""
    if page.startswith("notebooks/"):
        app.add_js_file("plotly.min.js")


def copy_plotly(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        from plotly.offline import get_plotlyjs

        (Path(app.outdir) / "_static" / "plotly.min.js").write_text(get_plotlyjs(), encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", write_command_reference, priority=100)
    app.connect("missing-reference", find_by_public_name)
    app.connect("doctree-read", fold_solutions)
    app.connect("html-page-context", add_plotly)
    app.connect("build-finished", copy_plotly)
