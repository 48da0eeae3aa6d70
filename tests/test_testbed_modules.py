"""The queue disciplines of hardware/linux/aqm in a kernel: each packet's fate, statistics, and rough handling.

Needs a kernel built with ``cct testbed build --with hardware/linux/aqm``.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from replay_aqm import replayed
from uml_kernel import uml_kernel

import cctoolkit as cct
from cctoolkit.aqm import (
    Abc,
    IntegerAbc,
    IntegerIRed,
    IntegerPi2,
    IRed,
    KernelModule,
    Pi2,
    PisaCoDel,
)
from cctoolkit.errors import TestbedUnavailableError
from cctoolkit.testbed import run_testbed, uml
from cctoolkit.testbed.paper_qdiscs import module_parameters

pytestmark = pytest.mark.uml
KINDS = ("pi2", "ired", "abc", "codel_pisa")


@pytest.fixture(autouse=True, scope="module")
def kernel(tmp_path_factory):
    found = uml_kernel()
    short = scenario(Pi2(), cct.Flow("udp", rate_mbps=1), duration_s=0.1)
    try:
        run_testbed(short, tmp_path_factory.mktemp("kernel") / "run")
    except TestbedUnavailableError as err:
        pytest.skip(str(err))
    return found


#: CUBIC with and without ECN, a constant UDP flow, and one with ECT(1) that goes on and off.
FLOWS = (
    cct.Flow("cubic", rtt_ms=20, count=4),
    cct.Flow("cubic", rtt_ms=40, count=2, ecn="classic", aggregate=1),
    cct.Flow("udp", rate_mbps=20, rtt_ms=20, aggregate=2),
    cct.Flow("udp", rate_mbps=10, rtt_ms=20, ecn="l4s", on_s=1.0, off_s=1.0, aggregate=3),
)


def scenario(aqm, *flows, duration_s=14.0, rate_mbps=100.0, buffer_packets=500):
    link = cct.Bottleneck(rate_mbps=rate_mbps, buffer_packets=buffer_packets, aqm=aqm)
    return cct.Scenario(bottleneck=link, flows=flows or FLOWS, duration_s=duration_s, seed=1)


# ---- the fate of each packet -----------------------------------------------------------------------------------------

SEED = 7
MODELS = {
    "pi2": Pi2(),
    "pi2, any ECT": Pi2(identifier="any_ect"),
    "pi2, by mark": Pi2(identifier="dscp"),
    "pi2 on departure": IntegerPi2(),
    "pi2 on departure, by mark": IntegerPi2(identifier="dscp"),
    "ired": IntegerIRed(),
    "ired, by mark": IntegerIRed(identifier="dscp"),
    "abc": IntegerAbc(),
    "abc, two rates": IntegerAbc(reference_kbps=(8000.0, 3000.0), base_packets=60.0),
    "codel": PisaCoDel(),
    "codel, as published": PisaCoDel(
        mtu_bytes=0, from_now=False, count_first=False, wrap=True, signed=False, clock_ms=1000
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_each_of_a_hundred_thousand_packets(model, tmp_path):
    """With the same draws the Python model drops, marks and passes the packets that the kernel did, none other."""
    aqm = MODELS[model]
    kind, values = module_parameters(aqm)
    seeded = KernelModule(kind, values | {"seed": SEED}) if "seed" in values else aqm
    # by mark, packets without ECT are scalable: dropped where they would be marked; a short buffer is full at times
    buffer = 200 if model == "pi2, by mark" else 500
    spec = scenario(seeded, buffer_packets=buffer)
    run = run_testbed(spec, tmp_path / "run")
    replay = replayed(spec, tmp_path / "run", aqm, seed=SEED)
    assert replay.other == []
    assert replay.left > 100_000 and sum(replay.dropped.values()) > 50
    queue = run.queues.iloc[0]
    assert replay.dropped == {what: queue[f"dropped_{what}"] for what in replay.dropped}
    if kind != "abc":
        assert replay.marked > 30
    assert replay.dropped["full"] > 0 or buffer == 500


# ---- beside the simulator --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "aqm", [Pi2(), IRed(), Abc(reference_kbps=8000.0), PisaCoDel()], ids=lambda aqm: aqm.name
)
def test_beside_the_simulator(aqm, tmp_path):
    """The same queue and load: delay, drops and marks are near each other, though senders differ in detail."""
    flows = [
        *(cct.Flow("cubic", rtt_ms=rtt) for rtt in (10, 20, 35, 50)),
        *(cct.Flow("cubic", rtt_ms=rtt, ecn="classic", aggregate=1) for rtt in (10, 20, 35, 50)),
        cct.Flow("udp", rate_mbps=5, rtt_ms=20, aggregate=2),
    ]
    spec = scenario(aqm, *flows, duration_s=30, rate_mbps=50, buffer_packets=400)
    both = run_testbed(spec, tmp_path / "run"), cct.simulate(spec)
    linux, model = (run.summary() for run in both)
    assert linux["mean_delay_ms"] == pytest.approx(model["mean_delay_ms"], rel=0.2)
    assert linux["utilisation"] == pytest.approx(model["utilisation"], abs=0.03)
    for share in ("drop_share", "mark_share"):
        assert linux[share] == pytest.approx(model[share], rel=0.6, abs=2e-4)


@pytest.mark.slow
def test_statistics(tmp_path):
    """The probability and the kinds of drops, in the tables of the run."""
    spec = scenario(Pi2(), cct.Flow("udp", rate_mbps=40), rate_mbps=10, duration_s=3, buffer_packets=60)
    run = run_testbed(spec, tmp_path / "run")
    queue = run.queues.iloc[0]
    assert queue.dropped_full > 100 and queue.dropped_enqueue > 100 and queue.dropped_dequeue == 0
    series = run.queue_series
    assert 0.5 < queue.probability <= 1 and series.probability.iloc[0] < 0.5 and series.packets.max() == 60
    arrived = queue.sent_packets + queue.packets + queue.dropped_full + queue.dropped_enqueue
    assert arrived == queue.arrived_packets


@pytest.mark.slow
@pytest.mark.parametrize("aqm", [Pi2(), IRed()], ids=lambda aqm: aqm.name)
def test_the_same_bytes(aqm, tmp_path):
    """Also of those that draw the kernel's random numbers, which follow from the scenario's seed."""
    spec = scenario(aqm, *FLOWS, duration_s=1.5, rate_mbps=20)
    runs = []
    for name in ("one", "two"):
        run_testbed(spec, tmp_path / name)
        runs.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert runs[0] == runs[1]
    run_testbed(spec.replace({"seed": 2}), tmp_path / "three")
    assert (tmp_path / "three" / "egress.pcap.gz").read_bytes() != runs[0]["egress.pcap.gz"]


# ---- a kernel without them -------------------------------------------------------------------------------------------


def test_a_kernel_without_the_module(tmp_path):
    spec = scenario(KernelModule("nothere", {"target_us": 5}), duration_s=0.1)
    with pytest.raises(TestbedUnavailableError, match=r"has no module sch_nothere.*--with"):
        run_testbed(spec, tmp_path / "run")


# ---- rough handling --------------------------------------------------------------------------------------------------

HOSTILE = {
    "pi2": "target_us=0 update_us=9 alpha_uhz=4294967295 coupling_milli=4294967295 identifier=3 "
    "control_plane_us=4294967295 limit=0",
    "ired": "max_us=67108 min_us=40000 identifier=9 max_notifications=0 max_notifications=4294967295 "
    "recirculation_us=4294967295 limit=0",
    "abc": "aggregates=0 aggregates=100001 meter_memory_us=0 average_memory_us=4294967295 reference_kbps=0 "
    "reference_kbps=1,2,0 gamma_packets=4294967295 limit=0",
    "codel_pisa": "target_us=0 target_us=100000 interval_us=2000000 limit=0",
}
EXTREME = {
    "pi2": "egress=1 target_us=1 update_us=20000 alpha_uhz=400000000 beta_uhz=400000000 control_plane_us=0",
    "ired": "min_us=0 max_us=1 recirculation_us=0 max_notifications=1 identifier=2",
    "abc": "min_packets=0 base_packets=0 gamma_packets=1000000 aggregates=1 meter_memory_us=1 average_memory_us=1",
    "codel_pisa": "mtu_bytes=0 target_us=1 interval_us=2 wrap=1 signed=0 from_now=0 count_first=0",
}
_GUEST = Path(__file__).with_name("rough_handling.sh")


@pytest.mark.slow
def test_rough_handling(kernel, tmp_path):
    """Hostile parameters; removal, replacement, other MTUs and downs while packets wait; parents that peek; GSO."""
    if shutil.which("python3", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        pytest.skip("the guest needs /usr/bin/python3")
    shutil.copyfile(_GUEST, tmp_path / "init")
    (tmp_path / "init").chmod(0o755)
    for kind in KINDS:
        (tmp_path / f"hostile.{kind}").write_text(HOSTILE[kind])
        (tmp_path / f"extreme.{kind}").write_text(EXTREME[kind])
    for arguments in uml._arguments(kernel):
        uml._boot([str(kernel.path), *arguments], tmp_path, 1, uml._nothing, None)
        if (tmp_path / "output").exists():
            break
    output = (tmp_path / "output").read_text()
    parts = dict(zip(*[iter(re.split(r"^== (\w+)\n", output, flags=re.MULTILINE)[1:])] * 2, strict=True))
    assert list(parts) == [*KINDS]
    for kind, text in parts.items():
        assert re.findall(r"^refused (\S+):", text, re.MULTILINE) == HOSTILE[kind].split(), text
        assert "ACCEPTED" not in text
        shown = {
            what: (re.findall(r"sent (\d+)", line), re.findall(r"backlog (\S+ \d+p)", line))
            for what, line in re.findall(r"^([a-z ]+): (.*)$", text, re.MULTILINE)
        }
        for what in ("deleted", "down", "drained", "replaced", "tbf drained", "hfsc drained", "extreme"):
            assert set(shown[what][1]) == {"0b 0p"}, f"{kind}: {what}: {text}"
        for what in ("flooded", "tbf", "hfsc"):  # the parent counts what its child does
            parent, child = shown[what][1]
            assert parent == child and (kind == "abc" or child != "0b 0p"), f"{kind}: {what}: {text}"
        assert int(shown["extreme"][0][1]) > 0
        # of TCP with large segments each packet of the wire went through the queue
        assert "received 5000000" in text and int(shown["tcp"][0][1]) > 5_000_000 / 1448
    trouble = re.findall(r".*(?:WARNING|BUG|KASAN|UBSAN|Call Trace).*", (tmp_path / "dmesg").read_text())
    assert trouble == []
