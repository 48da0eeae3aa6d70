"""Make the pictures of README.md and the book's front page: `make pictures`.

    python docs/pictures.py [DIR]      # writes into docs/pictures, or DIR

A report, three figures and a terminal, all of bundled captures, drawn by the same code that users run; and the figure
of the page on growth, from its result. Needs Chromium and its driver on PATH, and selenium (the extra `dev`).
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cctoolkit as cct
from cctoolkit.experiments.books import growth
from cctoolkit.experiments.kept import KeptTables

if TYPE_CHECKING:
    import plotly.graph_objects as go

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
CAPTURE = "traces/bufferbloat.ingress.pcap.gz"  # as a user in the checkout names it
WIDTH = 1000
REPORT = (1280, 860)  # a laptop's first screen
#: A README's pictures are fetched by everyone who only looks.
MOST_BYTES = 150_000


def figures() -> dict[str, go.Figure]:
    """Figures by file name: who shares how, where packets wait, what one flow does; how time and memory grow."""
    shared = cct.example("cubic-bbr")
    start = cct.example("bufferbloat").ingress
    upload = int(start.flows.nlargest(1, "bytes_fwd").flow_id.iloc[0])
    return {
        "throughput": cct.plot.throughput(shared.ingress),
        "cbiq": cct.plot.cbiq(cct.compute_slots(shared.ingress, shared.egress, slot_ms=10), slot_ms=10),
        "time_sequence": cct.plot.time_sequence(start, upload),
        "growth": growth.plot(KeptTables("growth")),
    }


def terminal() -> str:
    """An SVG of what `cct info` prints, on 120 columns."""
    import io

    from rich.console import Console
    from rich.text import Text

    from cctoolkit.report.page import terminal_summary

    console = Console(record=True, width=120, file=io.StringIO(), markup=False, highlight=False)
    console.print(Text(f"$ cct info {CAPTURE}", style="bold"))
    console.print(terminal_summary(cct.summarise(CAPTURE)))
    return console.export_svg(title="cct info", unique_id="cct")


@contextmanager
def browser(width: int, height: int) -> Iterator[Any]:
    """Chromium without a window."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    page = webdriver.Chrome(options=options, service=service)
    try:
        page.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        yield page
    finally:
        page.quit()


def photograph(html: Path, picture: Path, width: int, height: int) -> None:
    """The top of a page with plotly figures, as WebP."""
    from selenium.webdriver.support.wait import WebDriverWait

    with browser(width, height) as page:
        page.get(html.as_uri())
        drawn = "return document.querySelectorAll('.js-plotly-plot .main-svg .trace').length > 0"
        WebDriverWait(page, 120).until(lambda page: page.execute_script(drawn))
        shot = page.execute_cdp_cmd("Page.captureScreenshot", {"format": "webp", "quality": 80})
    picture.write_bytes(base64.b64decode(shot["data"]))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "terminal.svg").write_text(terminal(), encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        html = Path(scratch) / "page.html"
        for name, figure in figures().items():
            height = int(figure.layout.height)
            figure.update_layout(width=WIDTH, paper_bgcolor="white").write_html(
                html, config={"displayModeBar": False}
            )
            style = "<style>body {margin: 0}</style>"
            html.write_text(
                html.read_text(encoding="utf-8").replace("<head>", "<head>" + style), encoding="utf-8"
            )
            photograph(html, folder / f"{name}.webp", WIDTH, height)
        taps = [cct.read_capture(name) for name in (CAPTURE, CAPTURE.replace("ingress", "egress"))]
        cct.report.report(taps[0], html, egress=taps[1])
        photograph(html, folder / "report.webp", *REPORT)
    for picture in sorted(folder.iterdir()):
        size = picture.stat().st_size
        print(f"{picture.name}: {size / 1000:.0f} kB")
        if size > MOST_BYTES:
            sys.exit(f"{picture.name} is larger than {MOST_BYTES / 1000:.0f} kB")


if __name__ == "__main__":
    target = Path(*sys.argv[1:2] or [FOLDER]).absolute()
    with chdir(ROOT):
        main(target)
