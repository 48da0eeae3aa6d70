"""Notebooks: sources and .ipynb agree, they run, and they work in JupyterLab in a browser."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="the extra `notebooks` is not installed")
pytest.importorskip("jupytext", reason="the extra `notebooks` is not installed")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.py"))
LESSONS = sorted((ROOT / "notebooks" / "lessons").glob("[0-9][0-9]_*.py"))
SOURCES = [*NOTEBOOKS, *LESSONS]


def load_build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks_build", ROOT / "notebooks" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_build()

BROWSER, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
HAS_BROWSER = bool(BROWSER and DRIVER and importlib.util.find_spec("selenium"))
#: What tests of JupyterLab run from beginning to end where there is a browser.
IN_JUPYTERLAB = {"00_start", "lessons/01_bufferbloat"} if HAS_BROWSER else set()

#: Tests for each notebook, and for each lesson.
each_notebook = pytest.mark.parametrize("source", SOURCES, ids=build.name_of)
each_lesson = pytest.mark.parametrize("source", LESSONS, ids=build.name_of)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with the notebooks where running them changes nothing here."""
    folder = tmp_path / "notebooks"
    (folder / "lessons").mkdir(parents=True)
    for source in SOURCES:
        shutil.copy(source.with_suffix(".ipynb"), folder / f"{build.name_of(source)}.ipynb")
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    return folder


def environment(folder: Path) -> dict[str, str]:
    """The quick form, the bundled capture, and a cache of its own."""
    return {"FAST": "1", "TRACE": "", "CCTOOLKIT_CACHE": str(folder.parent / "cache")}


def test_there_are_notebooks() -> None:
    assert SOURCES[0].stem == "00_start"
    assert len(LESSONS) == 6
    assert build.sources() == SOURCES


@each_notebook
def test_the_readme_names_it(source: Path) -> None:
    assert f"| `{build.name_of(source)}` |" in (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")


@each_notebook
def test_source_and_notebook_agree(source: Path) -> None:
    """Else: python notebooks/build.py."""
    expected = build.notebook_of(source)
    found = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    nbformat.validate(found)
    assert [(c.cell_type, c.source, c.metadata.get("tags", [])) for c in found.cells] == [
        (c.cell_type, c.source, c.metadata.get("tags", [])) for c in expected.cells
    ]


@each_notebook
def test_no_outputs_are_committed(source: Path) -> None:
    for cell in nbformat.read(source.with_suffix(".ipynb"), as_version=4).cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@each_notebook
def test_every_exercise_has_a_solution_that_students_do_not_get(source: Path) -> None:
    notebook = build.notebook_of(source)
    student = build.student_of(notebook)
    nbformat.validate(student)
    solutions = [c for c in notebook.cells if "solution" in c.metadata.get("tags", [])]
    exercises = [c for c in notebook.cells if re.search(r"^### Exercise \d+$", c.source, re.M)]
    assert sum(c.cell_type == "code" for c in solutions) >= len(exercises) >= 1
    kept = [c.source for c in student.cells]
    assert not {c.source for c in solutions} & set(kept)
    assert kept.count(build.YOUR_TURN) == sum(c.cell_type == "code" for c in solutions)
    assert [s for s in kept if s != build.YOUR_TURN] == [
        c.source for c in notebook.cells if c not in solutions
    ]


@each_notebook
def test_each_exercise_has_one_hint_and_a_folded_solution(source: Path) -> None:
    cells = build.notebook_of(source).cells
    numbers = []
    for exercise, after in itertools.pairwise(cells):
        found = re.findall(r"^### Exercise (\d+)$", exercise.source, re.M)
        numbers += found
        assert exercise.source.count("<details><summary>Hint</summary>") == len(found) <= 1
        if found:
            assert exercise.source.endswith("</details>")
            assert after.source == "#### Solution"
    assert numbers == [str(k + 1) for k in range(len(numbers))]
    # Whatever is tagged a solution is inside of a folded section.
    folded = False
    for cell in cells:
        solution = "solution" in cell.metadata.get("tags", [])
        folded = (folded and solution) or cell.metadata.get("jp-MarkdownHeadingCollapsed", False)
        assert folded == solution


@each_notebook
def test_settings_are_one_call(source: Path) -> None:
    code = "\n".join(c.source for c in build.notebook_of(source).cells if c.cell_type == "code")
    assert "FAST = cct.lessons.fast()" in code
    assert "os.environ" not in code


@each_notebook
def test_a_notebook_says_what_it_is_about(source: Path) -> None:
    first = build.notebook_of(source).cells[0].source
    assert first.startswith("# ")
    assert "**Takes**" in first
    assert "**The question.**" in first


@each_lesson
def test_a_lesson_has_its_parts(source: Path) -> None:
    """What a class needs: what to know before, a prediction before the measurement, a slider, exercises, questions."""
    cells = build.notebook_of(source).cells
    assert "**You need**" in cells[0].source
    code = [c.source for c in cells if c.cell_type == "code"]
    predicting = next(i for i, c in enumerate(code) if c.startswith("prediction = {"))
    comparing = next(i for i, c in enumerate(code) if re.search(r"compare_prediction\(\s*prediction,", c))
    assert predicting < comparing
    assert set(ast.literal_eval(code[predicting].removeprefix("prediction = ")).values()) == {None}
    assert any("@interact" in c for c in code)
    headings = re.findall(r"^## (.*)$", "\n".join(c.source for c in cells if c.cell_type == "markdown"), re.M)
    assert headings[-2:] == ["Exercises", "Questions"]
    assert "solution" in cells[-1].metadata.get("tags", [])  # the answers


@pytest.mark.slow
def test_students_get_all_of_them(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, ROOT / "notebooks" / "build.py", "--student", tmp_path / "handout"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    found = {path.relative_to(tmp_path / "handout") for path in tmp_path.rglob("*.ipynb")}
    assert found == {Path(f"{build.name_of(source)}.ipynb") for source in SOURCES}
    for source in SOURCES:
        student = nbformat.read(tmp_path / "handout" / f"{build.name_of(source)}.ipynb", as_version=4)
        assert build.YOUR_TURN in {c.source for c in student.cells}


def test_working_copies_are_separate_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`make lab`: what is run, edited or out of date in the working copy."""
    target = tmp_path / "lessons" / "01_bufferbloat.ipynb"
    source = ROOT / "notebooks" / "lessons" / "01_bufferbloat.py"

    def copy_again(change: str = "") -> Any:
        notebook = build.notebook_of(source)
        notebook.cells[0].source += change
        build.write_working_copy(notebook, target)
        return nbformat.read(target, as_version=4)

    first = copy_again()
    nbformat.validate(first)
    assert "formats" not in first.metadata["jupytext"]  # a pair would have JupyterLab write the source

    ran = nbformat.read(target, as_version=4)
    code = next(c for c in ran.cells if c.cell_type == "code")
    code.outputs = [nbformat.v4.new_output("stream", text="ran")]
    nbformat.write(ran, target)
    assert copy_again() == ran  # outputs stay
    assert copy_again(" A new edition.").cells[0].source.endswith("edition.")  # only run: replaced

    edited = nbformat.read(target, as_version=4)
    edited.cells.append(nbformat.v4.new_code_cell("my_own = 1"))
    nbformat.write(edited, target)
    assert copy_again(" A third edition.").cells[-1].source == "my_own = 1"
    assert "kept, because you edited it" in capsys.readouterr().out
    assert copy_again(" A new edition.").cells[-1].source == "my_own = 1"


def test_make_lab_opens_the_working_copies() -> None:
    recipe = re.search(r"^lab:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)[1]
    folder = re.search(r"build\.py --work (\S+)", recipe)[1]
    assert f"--notebook-dir={folder}" in recipe
    ignored = ["git", "check-ignore", "--quiet", f"{folder}/00_start.ipynb"]
    done = subprocess.run(ignored, cwd=ROOT, check=False)
    if done.returncode == 128:
        pytest.skip("not a git checkout")
    assert done.returncode == 0


def assert_all_ran(outputs: list[dict[str, Any]], copy: Path, name: str) -> None:
    """No error, nothing on standard error, at least a figure and a widget; and the files that a notebook writes."""
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert "".join(output["text"] for output in outputs if output.get("name") == "stderr") == ""
    shown = {mime for output in outputs for mime in output.get("data", ())}
    assert "application/vnd.plotly.v1+json" in shown
    assert "application/vnd.jupyter.widget-view+json" in shown
    if name == "00_start":
        assert (copy / "report.html").stat().st_size > 100_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", [source for source in SOURCES if build.name_of(source) not in IN_JUPYTERLAB], ids=build.name_of
)
def test_it_runs(source: Path, copy: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    path = copy / f"{build.name_of(source)}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    # Left to itself the client answers Output widgets, and what it sends while a reply arrives can make it miss that
    # (jupyter_client sends past zmq.asyncio). So what widgets show stays in the cells, where errors are looked for.
    client.comm_open_handlers = {}
    client.execute(env=os.environ | environment(copy))
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert_all_ran(outputs, copy, build.name_of(source))


# --- in a browser


@contextlib.contextmanager
def jupyter_lab(folder: Path, scratch: Path) -> Iterator[str]:
    """JupyterLab on `folder`, on loopback only; yields the address with its token. Gone afterwards, kernels too."""
    settings = scratch / "settings"
    for plugin, values in {
        "@jupyterlab/apputils-extension/notification": {
            "fetchNews": "false",
            "checkForUpdates": False,
            "doNotDisturbMode": True,
        },
    }.items():
        path = settings / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    runtime = scratch / "runtime"
    runtime.mkdir()
    variables = (
        os.environ
        | environment(folder)
        | {
            "JUPYTER_RUNTIME_DIR": str(runtime),
            "JUPYTER_CONFIG_DIR": str(scratch / "config"),
            "JUPYTERLAB_SETTINGS_DIR": str(settings),
            "JUPYTERLAB_WORKSPACES_DIR": str(scratch / "workspaces"),
            "IPYTHONDIR": str(scratch / "ipython"),
        }
    )
    command = [
        sys.executable,
        "-m",
        "jupyter",
        "lab",
        "--no-browser",
        "--ip=127.0.0.1",
        "--port=0",
        "--allow-root",
    ]
    command += [f"--ServerApp.root_dir={folder.parent}", "--LabApp.expose_app_in_browser=True"]
    with (scratch / "lab.log").open("w") as log:
        server = subprocess.Popen(command, env=variables, stdout=log, stderr=log, start_new_session=True)
    try:
        for _ in range(120):
            info = next(iter(runtime.glob("jpserver-*.json")), None)
            if info is not None and info.stat().st_size:
                break
            assert server.poll() is None, (scratch / "lab.log").read_text()
            time.sleep(0.5)
        else:
            pytest.fail("JupyterLab did not start: " + (scratch / "lab.log").read_text())
        running = json.loads(info.read_text())
        yield f"{running['url']}lab/tree/{folder.name}/{{}}?token={running['token']}"
    finally:
        server.send_signal(signal.SIGTERM)  # shuts its kernels down
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(10)


@contextlib.contextmanager
def chromium(scratch: Path) -> Iterator[Any]:
    if not HAS_BROWSER:
        pytest.skip("needs selenium, and chromium and chromedriver on PATH")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1500,1200",
        f"--user-data-dir={scratch / 'profile'}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    page = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    try:
        page.set_script_timeout(60)
        yield page
    finally:
        page.quit()


def wait_for(page: Any, script: str, seconds: float, what: str) -> Any:
    """Until `script` gives something true in the page."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(Exception):  # the page may be in the middle of changing
            found = page.execute_script(script)
            if found:
                return found
        time.sleep(0.5)
    pytest.fail(f"waited {seconds:.0f} s for {what}")


IDLE = """
const panel = window.jupyterapp.shell.currentWidget;
const status = panel.sessionContext.session?.kernel?.status;
const cells = panel.content.widgets.filter(c => c.model.type === 'code' && c.model.sharedModel.source.trim());
const done = cells.every(c => c.model.executionCount !== null) || document.querySelector('[data-mime-type$="stderr"]');
return status === 'idle' && done ? cells.length : 0;
"""
KERNEL = "return window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
#: Outputs of all cells, also of those that are not in sight; of data only the types, which are megabytes otherwise.
OUTPUTS = """
const cells = window.jupyterapp.shell.currentWidget.content.widgets.filter(c => c.model.type === 'code');
return cells.flatMap(c => c.model.outputs.toJSON()).map(o => ({
  output_type: o.output_type, name: o.name, text: [o.text ?? ''].flat().join(''), data: Object.keys(o.data ?? {}),
}));
"""
#: JupyterLab keeps in the page what is near the visible part: scroll to the cell that has a text.
SHOW = """
const notebook = window.jupyterapp.shell.currentWidget.content;
const found = notebook.widgets.findIndex(c => c.model.sharedModel.source.includes(%r));
notebook.activeCellIndex = found;
notebook.scrollToItem(found, 'start');
"""
FIGURES = "return document.querySelectorAll('.jp-OutputArea .js-plotly-plot svg.main-svg .trace').length > 10"
BROKEN = """
const broken = document.querySelectorAll('[data-mime-type$="stderr"]');  // tracebacks are of that type, too
const texts = [...document.querySelectorAll('.jp-OutputArea-output')].map(e => e.textContent);
return [...broken].map(e => e.textContent).concat(texts.filter(t => /Error (displaying|creating) widget/.test(t)));
"""
EXPLORER = """
const plots = [...document.querySelectorAll('.jp-OutputArea .js-plotly-plot')];
const plot = plots.find(p => (p.layout?.annotations ?? []).some(a => (a.text ?? '').startsWith('Bytes in flight')));
const flows = () => new Set(plot.data.map(t => t.legendgroup).filter(g => g?.startsWith('flow')));
"""
BIN_S = EXPLORER + "const all = plot.data.find(t => t.name === 'all packets'); return all.x[1] - all.x[0];"
PICK_SECOND = """
const list = document.querySelector('.cct-flows select');
[...list.options].forEach((option, i) => { option.selected = i === 1; });
list.dispatchEvent(new Event('change', {bubbles: true}));
"""


@pytest.mark.slow
@pytest.mark.browser
def test_00_start_in_jupyterlab(copy: Path, tmp_path: Path) -> None:
    """JupyterLab as it comes, which draws what is in sight only."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with chromium(scratch) as page, jupyter_lab(copy, scratch) as address:
        page.get(address.format("00_start.ipynb"))
        wait_for(page, KERNEL, 120, "the notebook and its kernel")
        page.execute_script("window.jupyterapp.commands.execute('runmenu:run-all')")
        assert wait_for(page, IDLE, 240, "all cells to run") > 15
        assert_all_ran(page.execute_script(OUTPUTS), copy, "00_start")
        assert page.execute_script(BROKEN) == []
        page.execute_script(SHOW % "def sharing")
        wait_for(
            page, "return document.querySelectorAll('.widget-slider, .noUi-target').length", 60, "a slider"
        )
        page.execute_script(SHOW % "cap.explore()")
        wait_for(page, FIGURES, 60, "the figures")
        assert page.execute_script(BROKEN) == []
        wait_for(
            page, "return document.querySelectorAll('.cct-flows select option').length >= 3", 60, "the flows"
        )
        head, options = page.execute_script(LEFT_EDGES)
        assert abs(head - options) <= 1  # the head stands above its columns

        # Zooming with the mouse brings finer bins from Python.
        whole = wait_for(page, BIN_S, 120, "the explorer's figure")
        drag_in(
            page,
            page.execute_script(EXPLORER + "return plot.querySelector('.nsewdrag[data-subplot=\"xy\"]')"),
        )
        wait_for(page, BIN_S.replace("return", f"return {whole} / 3 >"), 60, "the zoomed figure")

        # Picking another flow changes the figures.
        assert page.execute_script(EXPLORER + "return flows().size") > 1
        page.execute_script(PICK_SECOND)
        wait_for(page, EXPLORER + "return plot && flows().size === 1", 60, "the figures of one flow")
        assert page.execute_script(BROKEN) == []


#: Where the text of the explorer's head and of its first row ends, from the left of the page: both have one width.
LEFT_EDGES = """
const head = document.querySelector('.cct-flows pre'), option = document.querySelector('.cct-flows select option');
const left = element => {
  const style = getComputedStyle(element);
  return element.getBoundingClientRect().left + parseFloat(style.paddingLeft) + parseFloat(style.borderLeftWidth);
};
const widths = [head, option].map(element => {
  const measure = document.createElement('canvas').getContext('2d');
  measure.font = getComputedStyle(element).font;
  return measure.measureText(element.textContent).width;
});
return [left(head) + widths[0], left(option) + widths[1]];
"""


SLIDER = """
const box = document.querySelector('.widget-interact');
const plot = box?.querySelector('.js-plotly-plot');
if (!plot?._fullData?.length) return null;
// what is drawn; in plot.data it is still packed
const delay = Array.from(plot._fullData[0].y).filter(Number.isFinite);
const at = box.querySelector('.widget-readout').textContent;
return {at: at, longest: Math.max(...delay), title: plot.layout.title.text};
"""
HANDLE = "return document.querySelector('.widget-interact .noUi-handle')"


@pytest.mark.slow
@pytest.mark.browser
def test_the_slider_of_a_lesson_in_jupyterlab(copy: Path, tmp_path: Path) -> None:
    """Lesson 1: a larger buffer, moved there on the keyboard, makes the queue in the figure longer."""
    from selenium.webdriver.common.keys import Keys

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with chromium(scratch) as page, jupyter_lab(copy, scratch) as address:
        page.get(address.format("lessons/01_bufferbloat.ipynb"))
        wait_for(page, KERNEL, 120, "the notebook and its kernel")
        page.execute_script("window.jupyterapp.commands.execute('runmenu:run-all')")
        assert wait_for(page, IDLE, 240, "all cells to run") > 10
        assert_all_ran(page.execute_script(OUTPUTS), copy, "lessons/01_bufferbloat")
        assert page.execute_script(BROKEN) == []
        page.execute_script(SHOW % "def choose")
        before = wait_for(page, SLIDER, 60, "the figure below the slider")
        assert before["at"] == "200" and before["title"].startswith("200 packets")

        handle = page.execute_script(HANDLE)
        page.execute_script("arguments[0].scrollIntoView({block: 'center'})", handle)
        handle.send_keys(Keys.ARROW_RIGHT)
        changed = SLIDER.replace("return {", "return plot.layout.title.text.startsWith('500 packets') && {")
        after = wait_for(page, changed, 60, "the figure of 500 packets")
        assert after["at"] == "500"
        assert after["longest"] > 2 * before["longest"]
        assert page.execute_script(BROKEN) == []


def drag_in(page: Any, area: Any) -> None:
    """Drag the mouse over the middle tenth of a plot."""
    from selenium.webdriver import ActionChains

    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", area)
    time.sleep(1)
    tenth = area.rect["width"] // 10
    ActionChains(page).move_to_element_with_offset(area, -tenth // 2, 0).click_and_hold().move_by_offset(
        tenth // 2, 0
    ).move_by_offset(tenth - tenth // 2, 0).release().perform()
