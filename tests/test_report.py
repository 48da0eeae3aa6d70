"""The report: right pages whatever the capture is called, alone on a machine without network, alive in a browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_packets import make_keys, packet_columns
from rich.console import Console

import cctoolkit as cct
from cctoolkit._support.words import format_bytes
from cctoolkit.capture.keys import CaptureMeta
from cctoolkit.capture.model import Capture
from cctoolkit.report.figures import as_json
from cctoolkit.report.flow_panels import flow_panels
from cctoolkit.report.page import printable, report, terminal_summary
from cctoolkit.report.summary import summarise

TRACES = Path(__file__).parents[1] / "traces"
TRACE = TRACES / "cubic-bbr.ingress.pcap.gz"
EGRESS = TRACES / "cubic-bbr.egress.pcap.gz"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}\"'&amp;\u202egpj.\x1b[31m"
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Page(HTMLParser):
    """Elements with their attributes, and their text; fails where tags do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]

    def text(self, *tags: str) -> str:
        return " ".join(data for tag, data in self.texts if not tags or tag in tags)


def page_of(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def made(rows: list[tuple[int, ...]], name: str = "made.pcap", **meta: Any) -> Capture:
    columns = packet_columns(rows)
    ts = columns["ts_ns"]
    first, last = (int(ts.min()), int(ts.max())) if len(ts) else (0, 0)
    about = CaptureMeta(name, frames=len(rows), packets=len(rows), first_ts_ns=first, last_ts_ns=last, **meta)
    return Capture(columns, make_keys({row[1] for row in rows}), about)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a real capture with both taps, under a hostile title."""
    return report(TRACE, tmp_path_factory.mktemp("report") / "r.html", egress=EGRESS, title=HOSTILE)


def test_the_page_is_whole_and_says_what_the_capture_says(written: Path) -> None:
    page = page_of(written)
    cap = cct.read_capture(TRACE)
    text = page.text()
    assert f"{len(cap):,}" in text
    for section in ("flows", "fairness", "rtt", "queue", "retransmissions", "distributions", "protocols", "capture",
                    "notes"):  # fmt: skip
        assert {"id": section} in page.of("h2"), section
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for link in page.of("a"):
        assert str(link["href"]).removeprefix("#") in ids
    for flow in cap.flows.nlargest(2, "bytes_fwd").itertuples():
        assert f"{flow.flow_id}: {flow.src}:{flow.sport} → {flow.dst}:{flow.dport}" in page.text("td", "a")
    drawn = {attrs["data-plot"] for attrs in page.of("script") if "data-plot" in attrs}
    assert drawn == {
        f"plot-{name}" for name in ("overview", "jain", "rtt-distribution", "queue-delay", "cbiq")
    }
    assert drawn <= {attrs.get("id") for attrs in page.of("div")}


def test_nothing_comes_from_elsewhere(written: Path) -> None:
    page = page_of(written)
    for _, attrs in page.elements:
        assert not {"src", "srcset", "data", "action", "poster"} & set(attrs)
        assert str(attrs.get("href", "#")).startswith("#")
        assert "url(" not in str(attrs.get("style", ""))
    assert not {"link", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in page.elements}
    styles = page.text("style")
    assert "@import" not in styles
    assert "url(" not in styles
    (policy,) = [m["content"] for m in page.of("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert str(policy).startswith("default-src 'none';")
    assert "http" not in str(policy)
    # plotly's own cloud button is off
    assert "showSendToCloud: false" in written.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_plotting_library_travels_packed(written: Path, tmp_path: Path) -> None:
    """A third of its size; unpacked it is what plotly ships, and so are the panels what they are without packing."""
    from plotly.offline import get_plotlyjs

    def scripts(path: Path, kind: str) -> dict[str | None, str]:
        found = re.findall(
            rf'<script type="application/{kind}" (?:id|data-panel)="([^"]+)">(.*?)</script>',
            path.read_text(),
            re.S,
        )
        return dict(found)

    packed = scripts(written, "gzip")
    assert written.stat().st_size < 0.6 * len(get_plotlyjs())
    unpacked = {name: gzip.decompress(base64.b64decode(text)).decode() for name, text in packed.items()}
    assert unpacked.pop("plotly") == get_plotlyjs()
    plain = report(TRACE, tmp_path / "plain.html", egress=EGRESS, compress=False)
    panels = {name: text for name, text in scripts(plain, "json").items() if name.isdecimal()}
    assert panels == unpacked
    assert set(panels) == {str(flow_id) for flow_id in summarise(TRACE).top["flow_id"]}
    for text in panels.values():
        assert json.loads(text)["data"]


def test_what_matters_comes_first(written: Path) -> None:
    summary = summarise(TRACE, egress=EGRESS, keep_top_packets=True)
    lead, *found = summary.findings()
    assert "TCP flow" in lead.text
    assert [finding.severity for finding in found] == sorted(finding.severity for finding in found)
    html = written.read_text(encoding="utf-8")
    shown = [
        html.index(f">{finding.severity.name}</span>") for finding in found if finding.severity.name != "fact"
    ]
    assert shown == sorted(shown)
    assert html.index('id="plot-overview"') < html.index('id="capture"')
    page = page_of(written)
    for finding in found:
        if finding.flow_id is not None:
            assert {"href": f"#flow-{finding.flow_id}"} in page.of("a")
    assert len(page.of("svg")) == sum(finding.sketch is not None for finding in found) > 3


@pytest.mark.parametrize("keep", [1_000_000, 3_000])
def test_panels_know_where_their_packets_end(monkeypatch: pytest.MonkeyPatch, keep: int) -> None:
    """The packets that are kept are those of the top flows, whatever the parts; a panel says how far they go."""
    from cctoolkit.report import summary as summary_module
    from cctoolkit.report.flow_panels import flow_panels

    monkeypatch.setattr(summary_module, "PACKETS_KEPT", keep)
    summary = summarise(TRACE, keep_top_packets=True, packets=1_000, top=2)
    assert summary.top_packets is not None
    whole = cct.read_capture(TRACE).select(flow_id=summary.top["flow_id"].tolist())
    kept = len(summary.top_packets)
    assert kept == len(whole) if keep > len(whole) else keep <= kept < keep + 1_000
    for name, column in summary.top_packets.columns.items():
        assert (column == whole.columns[name][:kept]).all(), name
    sacks = whole.sacks[whole.sacks["packet"] < kept]
    assert summary.top_packets.sacks.equals(sacks)
    titles = [fig.layout.xaxis.title.text for fig in flow_panels(summary).values()]
    assert len(titles) == 2
    assert all(("of the flow" in title) == (kept < len(whole)) for title in titles)


def test_a_hostile_title_is_text(written: Path) -> None:
    page = page_of(written)
    assert page.of("img") == []
    assert "alert(1)" not in page.text("script")
    heading = page.text("h1").strip()
    assert heading == printable(HOSTILE)
    assert "\u202e" not in heading
    assert "\x1b" not in heading
    assert page.text("title").strip() == heading


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["<script>alert(1)<img src=x>.pcap", "a&amp;b\"'.pcap", "\u202egpj.pcap\n\x1b[31m", "\udcff\udc80.pcap"],
)
def test_a_hostile_file_name_is_text(tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    try:
        shutil.copy(TRACES / "mixed.ingress.pcap.gz", source)
    except (OSError, UnicodeEncodeError):
        pytest.skip("this file system does not allow that name")
    page = page_of(report(source, tmp_path / "r.html"))
    assert page.of("img") == []
    assert page.text("h1").strip() == f"Capture report: {printable(name)}"
    shown = io.StringIO()
    Console(file=shown, width=200, color_system=None).print(terminal_summary(summarise(source)))
    first = shown.getvalue().splitlines()[0]
    assert first.rstrip() == printable(name)
    assert first.isprintable()


def test_hostile_notes_are_text(tmp_path: Path) -> None:
    cap = made([(10**18, 0, 0, 0, 0, 2, 0, 0)], notes=[HOSTILE], link_types=["<b>"])
    page = page_of(report(cap, tmp_path / "r.html"))
    assert page.of("img") == page.of("b") == []
    assert printable(HOSTILE) in page.text("li")


def test_json_cannot_end_its_script() -> None:
    from cctoolkit.plot.style import figure

    text = as_json(figure("</script><!--<script>&\u2028"))
    assert not set("<>&") & set(text)
    assert json.loads(text)["layout"]["title"]["text"].startswith("</script><!--<script>&")


def test_figures_are_json_a_browser_reads(written: Path) -> None:
    html = written.read_text(encoding="utf-8")
    sources = re.findall(r'<script type="application/json" data-plot="([^"]+)">(.*?)</script>', html, re.S)
    assert len(sources) == 5
    for name, source in sources:
        figure = json.loads(source, parse_constant=lambda c, n=name: pytest.fail(f"{c} in {n}"))
        assert figure["data"], name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "There is no packet with an IP header"),
        ([(10**18, 0, 0, 0, 0, 2, 0, 0)], "1 TCP flow carries 54 B in 0 s."),
        ([(10**18 + i, 0, i % 2, 0, 0, 0, 10, 0) for i in range(5)], "1 TCP flow carries"),
        ([(10**18 + i * 10**15, i, 0, 7, 0, 16, 10, 0) for i in range(30)], "30 TCP flows carry"),
    ],
    ids=["empty", "one SYN", "no segments", "eleven days"],
)
def test_any_capture_makes_a_page(tmp_path: Path, rows: list[tuple[int, ...]], says: str) -> None:
    page = page_of(report(made(rows), tmp_path / "r.html"))
    assert says in page.text("p")


@pytest.mark.slow
def test_every_bundled_capture_makes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "")  # five megabytes to parse each time
    for trace in sorted(TRACES.glob("*.pcap.gz")):
        egress = trace.with_name(trace.name.replace("ingress", "egress"))
        two = {"egress": egress} if "ingress" in trace.name and egress.exists() else {}
        page_of(report(trace, tmp_path / "r.html", **two))  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_same_capture_gives_the_same_bytes(tmp_path: Path) -> None:
    sources = (TRACE, TRACE, summarise(TRACE, model="cca", keep_top_packets=True))
    pages = [report(source, tmp_path / f"{i}.html").read_bytes() for i, source in enumerate(sources)]
    # by hashes: for a difference pytest would look for a diff of megabytes, which takes hours
    assert len({hashlib.sha256(page).hexdigest() for page in pages}) == 1


def test_a_failure_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.html"
    path.write_text("old")

    real = Path.write_text

    def fails(self: Path, text: str, **options: Any) -> None:
        real(self, text[:1000], **options)
        raise KeyboardInterrupt

    summary = summarise(TRACE)
    monkeypatch.setattr(Path, "write_text", fails)
    with pytest.raises(KeyboardInterrupt):
        report(summary, path)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["r.html"]
    assert path.read_text() == "old"


def test_a_selection_tells_its_numbers_from_the_files() -> None:
    def lines(**selection: Any) -> list[str]:
        out = io.StringIO()
        shown = summarise(TRACES / "mixed.ingress.pcap.gz", selection=cct.Selection(**selection))
        Console(file=out, width=1000, color_system=None).print(terminal_summary(shown))
        return out.getvalue().splitlines()

    cap = cct.read_capture(TRACES / "mixed.ingress.pcap.gz")
    counts = cap.meta.counts
    some = lines(protocol="tcp", start_s=2, stop_s=4)
    for of_file in (
        f"{cap.meta.frames:,}", format_bytes(cap.meta.captured_bytes), f"{counts['truncated_headers']:,} packets",
        f"{counts['not_ip']} frames",
    ):  # fmt: skip
        (line,) = [line for line in some if of_file in line]
        assert "file" in line, line
    n = len(cap.select(protocol="tcp", start_s=2, stop_s=4))
    assert any("selected" in line and f"{n:,}" in line for line in some)
    everything = "\n".join(lines())
    assert "selected" not in everything and "in file" not in everything and "whole file" not in everything


def test_the_terminal_has_the_same_in_short() -> None:
    summary = summarise(TRACE)
    out = io.StringIO()
    Console(file=out, width=400, color_system=None).print(terminal_summary(summary))
    text = out.getvalue()
    for finding in summary.findings():
        assert finding.text in text
    for note in summary.notes:
        assert note in text
    assert "10.1.0.11:40001" in text


# In a browser.

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM or not DRIVER:
        pytest.skip("no Chromium, or no chromedriver beside it")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(180)  # axe-core on a busy machine
    yield driver
    driver.quit()


def opened(browser: Any, path: Path) -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get_log("browser")
    browser.get(path.as_uri())
    WebDriverWait(browser, 60).until(
        lambda b: b.execute_script("return 'ready' in document.documentElement.dataset")
    )
    plots = (
        "return [...document.querySelectorAll('.plot:not(#plot-flow)')]"
        ".every(p => p.querySelector('.main-svg .trace'))"
    )
    assert browser.execute_script(plots)
    return browser


def plot_area(browser: Any, name: str) -> Any:
    """Where one hovers and drags, brought into view."""
    return browser.execute_script(
        "const p = document.getElementById(arguments[0]);"
        "p.scrollIntoView({block: 'center', behavior: 'instant'}); return p.querySelector('.nsewdrag')",
        name,
    )


@pytest.mark.slow
@pytest.mark.browser
def test_plots_are_drawn_and_nothing_is_fetched(browser: Any, written: Path) -> None:
    b = opened(browser, written)
    assert [entry for entry in b.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    assert b.execute_script("return performance.getEntriesByType('resource').map(e => e.name)") == []
    drawn = b.execute_script(
        "return [...document.querySelectorAll('.plot:not(#plot-flow)')].map("
        "p => [p.id, p.classList.contains('js-plotly-plot'),"
        " p.querySelectorAll('.scatterlayer .trace, .barlayer .trace').length,"
        " [...p.querySelectorAll('.scatterlayer path, .barlayer path')]"
        ".filter(e => (e.getAttribute('d') || '').length > 20).length])"
    )
    assert len(drawn) == 5
    for name, is_plot, traces, paths in drawn:
        assert is_plot, name
        assert traces >= 1, name
        assert paths >= 1, name
    assert b.title == printable(HOSTILE)


@pytest.mark.slow
@pytest.mark.browser
def test_hover_shows_a_label(browser: Any, written: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    b = opened(browser, written)
    for name in ("plot-overview", "plot-rtt-distribution"):
        area = plot_area(b, name)
        # somewhere on the way from left to right the pointer meets the curve
        size = area.size

        def label(_: Any, name: str = name) -> str:
            return b.execute_script(
                f"return [...document.querySelectorAll('#{name} .hovertext')].map(e => e.textContent).join(' ')"
            )

        for share in np.linspace(-0.45, 0.45, 19):
            ActionChains(b, duration=50).move_to_element_with_offset(
                area, int(share * size["width"]), int(0.42 * size["height"])
            ).perform()
            try:
                WebDriverWait(b, 0.4).until(label)
                break
            except Exception:
                continue
        assert re.search(r"bit/s|%", label(b)), name


# From inside the page, with its clock stopped: on a busy machine two clicks are further apart than a double click's.
DOUBLE_CLICK = """
const {x, y, width, height} = arguments[0].getBoundingClientRect();
const at = {bubbles: true, cancelable: true, clientX: x + width / 2, clientY: y + height / 2};
const clock = Date.prototype.getTime, now = Date.now();
Date.prototype.getTime = () => now;
for (const kind of ["mousedown", "mouseup", "mousedown", "mouseup"])
  document.elementFromPoint(at.clientX, at.clientY).dispatchEvent(new MouseEvent(kind, at));
Date.prototype.getTime = clock;
"""


@pytest.mark.slow
@pytest.mark.browser
def test_zoom_moves_all_time_axes(browser: Any, written: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    b = opened(browser, written)

    def axis(name: str) -> list[float]:
        return b.execute_script(
            f"return document.getElementById('plot-{name}').layout.xaxis.range.map(Number)"
        )

    whole = {name: axis(name) for name in ("overview", "jain", "queue-delay", "cbiq", "rtt-distribution")}
    area = plot_area(b, "plot-overview")
    width = area.size["width"]
    drag = ActionChains(b).move_to_element_with_offset(area, -width // 4, 0).click_and_hold()
    drag.move_by_offset(width // 8, 2).move_by_offset(width // 8, 1).release().perform()
    WebDriverWait(b, 30).until(lambda _: axis("overview") != whole["overview"])
    WebDriverWait(b, 30).until(lambda _: axis("cbiq") == pytest.approx(axis("overview")))
    low, high = axis("overview")
    assert whole["overview"][0] < low < high < whole["overview"][1]
    for name in ("jain", "queue-delay"):
        assert axis(name) == pytest.approx([low, high]), name
    assert axis("rtt-distribution") == whole["rtt-distribution"]

    b.execute_script(DOUBLE_CLICK, area)
    WebDriverWait(b, 30).until(lambda _: axis("overview") == pytest.approx(whole["overview"]))
    WebDriverWait(b, 30).until(lambda _: axis("jain") == pytest.approx(whole["jain"]))


@pytest.mark.slow
@pytest.mark.browser
def test_tables_sort(browser: Any, written: Path) -> None:
    b = opened(browser, written)
    summary = summarise(TRACE, model="cca")
    sizes = summary.flows["bytes_fwd"].tolist()
    at = 4 + (summary.ccas is not None)  # the column of congestion controls is before it
    keys = (
        "return [...document.querySelectorAll('#table-flows tbody tr')].map("
        f"r => Number(r.cells[{at}].dataset.key))"
    )
    click = f"document.querySelectorAll('#table-flows th button')[{at}].click()"
    b.execute_script(click)
    assert b.execute_script(keys) == sorted(sizes, reverse=True)
    b.execute_script(click)
    assert b.execute_script(keys) == sorted(sizes)
    sorts = "return [...document.querySelectorAll('#table-flows th')].map(t => t.getAttribute('aria-sort'))"
    assert [s for s in b.execute_script(sorts) if s] == ["ascending"]


def shows(element: str) -> str:
    return f"const e = document.querySelector('{element}'); return !!e && e.getClientRects().length > 0"


@pytest.mark.slow
@pytest.mark.browser
def test_a_flow_opens_and_closes(browser: Any, written: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    b = opened(browser, written)
    assert not b.execute_script(shows("#flow-panel"))
    largest, second = summarise(TRACE).top["flow_id"][:2]

    def click(element: str) -> None:
        b.execute_script(f'document.querySelector("{element}").click()')

    click(f"#flow-{largest} td:nth-child(2)")  # anywhere in the row
    titles = "return [...document.querySelectorAll('#plot-flow .annotation-text')].map(e => e.textContent).join(' ')"
    WebDriverWait(b, 30).until(lambda _: "Time-sequence" in b.execute_script(titles))
    for what in ("Round-trip time", "Bytes in flight", "Bytes in the queue (CBIQ)"):
        assert what in b.execute_script(titles)
    assert b.find_element(By.CSS_SELECTOR, "#flow-panel h3").text.startswith(f"Flow {largest}: ")
    assert b.current_url.endswith(f"#flow-{largest}")
    click(f".findings a[href='#flow-{second}']")  # a sentence leads there too
    WebDriverWait(b, 30).until(
        lambda _: b.find_element(By.CSS_SELECTOR, "#flow-panel h3").text.startswith(f"Flow {second}: ")
    )
    click("#flow-panel button")
    WebDriverWait(b, 30).until(lambda _: not b.execute_script(shows("#flow-panel")))
    assert [entry for entry in b.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.slow
@pytest.mark.browser
def test_the_filter_finds_flows(browser: Any, written: Path) -> None:
    from selenium.webdriver.common.by import By

    b = opened(browser, written)
    flows = cct.read_capture(TRACE).flows
    box = b.find_element(By.ID, "flow-filter")

    def shown(text: str) -> int:
        box.clear()
        box.send_keys(text or " ")
        return len(
            [row for row in b.find_elements(By.CSS_SELECTOR, "#table-flows tbody tr") if row.is_displayed()]
        )

    flow = flows.iloc[0]
    assert shown("") == len(flows)
    assert shown("tcp") == (flows.protocol == 6).sum()
    assert (
        shown(f"tcp {flow.sport}")
        == (
            (flows.protocol == 6)
            & ((flows.sport == flow.sport) | (flows.dport == flow.sport) | (flows.flow_id == flow.sport))
        ).sum()
    )
    assert (
        shown(str(flow.src))
        == (
            flows.src.str.contains(flow.src, regex=False) | flows.dst.str.contains(flow.src, regex=False)
        ).sum()
    )
    assert shown("no such flow") == 0
    assert b.find_element(By.ID, "flow-count").text == f"0 of {len(flows)} shown"


@pytest.mark.slow
@pytest.mark.browser
def test_the_first_screen_and_the_table_fit(browser: Any, tmp_path: Path) -> None:
    path = report(
        TRACES / "mixed.ingress.pcap.gz", tmp_path / "r.html", egress=TRACES / "mixed.egress.pcap.gz"
    )
    screen = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    try:
        b = opened(browser, path)
        top = "return document.querySelector(arguments[0]).getBoundingClientRect()"
        assert b.execute_script(top, "#plot-overview")["bottom"] < 900
        assert b.execute_script(top, ".findings li")["top"] < 300
        assert b.execute_script(top, ".facts")["top"] > 900
        fits = "const s = document.querySelector('#table-flows').parentElement; return s.scrollWidth - s.clientWidth"
        assert b.execute_script(fits) <= 0
        narrow = screen | {"width": 700}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
        assert b.execute_script(fits) > 0
        moved = (
            "const s = document.querySelector('#table-flows').parentElement; s.scrollLeft = 300;"
            "const box = e => s.querySelector(e).getBoundingClientRect().left - s.getBoundingClientRect().left;"
            "return [box('tbody td'), box('tbody td:nth-child(2)')]"
        )
        first, second = b.execute_script(moved)
        assert first == pytest.approx(1, abs=1)  # stays, beside the border
        assert second < 0
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def axe_core() -> str:
    """The accessibility checker; a package brings it, and nothing of it is here."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return Path(
            str(distribution("axe-playwright-python").locate_file("axe_playwright_python/axe.min.js"))
        ).read_text(encoding="utf-8")
    except (PackageNotFoundError, FileNotFoundError):
        pytest.skip("axe-core is not installed (package axe-playwright-python, in the extra dev)")


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it(browser: Any, written: Path, scheme: str) -> None:
    """No violation of any of axe-core's rules, with a panel and all details open."""
    code = axe_core()
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        b = opened(browser, written)
        b.execute_script("location.hash = document.querySelector('#table-flows tr.opens').id")
        b.execute_script("for (const more of document.querySelectorAll('details')) more.open = true")
        b.execute_script(code)
        found = b.execute_async_script("axe.run(document).then(arguments[arguments.length - 1])")
        assert len(found["passes"]) > 20
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found["violations"]] == []
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.slow
@pytest.mark.browser
def test_silence_splits_every_time_axis(browser: Any, tmp_path: Path) -> None:
    rows = [(10**18 + i * 10**7, i % 2, i // 2 % 2, i * 100, 0, 16, 100, 0) for i in range(600)]
    later = 1528 * 86_400 * 10**9
    rows += [(ts + later, *rest) for ts, *rest in rows]
    b = opened(browser, report(made(rows), tmp_path / "r.html"))
    titles = (
        "return [...document.querySelectorAll('#plot-overview .xtitle, #plot-overview .x2title')]"
        ".map(e => e.textContent)"
    )
    assert b.execute_script(titles) == ["s since the first packet", "s, 1,528.0 days later"]
    inside = (
        "const b = document.querySelector('#plot-overview').getBoundingClientRect();"
        "return [...document.querySelectorAll('#plot-overview .xtitle, #plot-overview .x2title')].every("
        "e => e.getBoundingClientRect().left >= b.left && e.getBoundingClientRect().right <= b.right)"
    )
    assert b.execute_script(inside)


@pytest.mark.slow
@pytest.mark.browser
def test_dark_and_on_a_phone(browser: Any, written: Path) -> None:
    def set_scheme(value: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": value}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    phone = {"width": 390, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    ink = "return document.querySelector('#plot-overview .xtick text').style.fill"
    paper = "return getComputedStyle(document.body).backgroundColor"
    try:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        set_scheme("dark")
        b = opened(browser, written)
        assert b.execute_script("return document.documentElement.scrollWidth") == 390
        assert b.execute_script(paper) == "rgb(21, 24, 28)"
        assert b.execute_script(ink) == "rgb(228, 231, 235)"
        set_scheme("light")
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(b, 30).until(lambda b: b.execute_script(ink) == "rgb(28, 31, 35)")
        assert b.execute_script(paper) == "rgb(255, 255, 255)"
        pdf = base64.b64decode(b.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
        assert pdf.startswith(b"%PDF")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        set_scheme("")


@pytest.mark.slow
def test_ten_million_packets_in_bounded_memory(tmp_path: Path) -> None:
    from cctoolkit.capture.synth.mawi import synth_mawi

    capture = synth_mawi(tmp_path / "synthetic.pcap.gz", 10_000_000, seed=3, progress=False)
    code = (
        "import sys; from cctoolkit.report.page import report; report(*sys.argv[1:]);"
        # not ru_maxrss: that starts at the size of the process that started this one
        "print(next(int(row.split()[1]) * 1024 for row in open('/proc/self/status') if row.startswith('VmHWM')))"
    )
    page = tmp_path / "r.html"
    done = subprocess.run(
        [sys.executable, "-c", code, capture, page], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1_500_000_000  # 1.2 to 1.3, with congestion controls named or without
    assert "10,000,000" in page_of(page).text("dd")


def test_silence_splits_a_flows_panel_too() -> None:
    """Each point stays where it was in time; a flow on one side of the silence keeps its one axis."""
    rows = [(10**18 + i * 10**7, i % 2, i // 2 % 2, i * 100, i // 2 * 100, 16, 100, 0) for i in range(600)]
    later = 1528 * 86_400 * 10**9
    rows += [(ts + later, 0, *rest) for ts, _, *rest in rows]
    panels = flow_panels(summarise(made(rows), keep_top_packets=True))
    both, one = panels[0], panels[1]
    assert {trace.xaxis for trace in both.data} == {"x", "x2"} and {trace.xaxis for trace in one.data} == {
        "x"
    }
    for trace in both.data:
        x = np.asarray(trace.x, float)
        assert np.nanmin(x) >= 0 and np.nanmax(x) <= 6
        assert len(trace.y) == len(x)
    for axis in ("x", "x2"):  # neither side is thinned away by the time between them
        assert sum(len(trace.x) for trace in both.data if trace.xaxis == axis) > 500
    assert both.layout.xaxis2.title.text == "s, 1,528.0 days later"
    assert both.layout.xaxis.domain[1] < both.layout.xaxis2.domain[0]
    assert (
        both.layout.xaxis2.anchor
        == both.layout.xaxis.anchor
        == f"y{len(both.layout.to_plotly_json().keys() & {f'yaxis{n}' for n in range(2, 9)}) + 1}"
    )
    for axis in (both.layout.xaxis, both.layout.xaxis2):
        assert axis.range[1] - axis.range[0] < 10
    assert "first packet" in one.layout.xaxis.title.text


@pytest.mark.slow
def test_warm_does_the_usual_work(capfd: pytest.CaptureFixture[str]) -> None:
    from cctoolkit.report.command import warm

    warm()
    lines = capfd.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "reading, flows, report", "RTTs, slots, congestion controls", "simulator"
    ]  # fmt: skip
