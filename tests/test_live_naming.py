"""Flows named while they run: iperf3's, through a bottleneck, in the kernel's collector and the bundled model."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from live_network import Network, network, why_not

import cctoolkit as cct
from cctoolkit.identify import Model
from cctoolkit.identify.live import KernelCollector, watch
from cctoolkit.identify.live.naming import Naming, load_classifier

pytestmark = pytest.mark.netns
#: CUBIC is beyond its crossover here, where it grows otherwise than Reno: a window of some hundred segments.
RATE_MBPS, RTT_MS, BUFFER_BDP = 50, 50, 3
PORTS = {5201: "reno", 5202: "cubic", 5203: "bbr"}


@pytest.fixture
def net() -> Iterator[Network]:
    why = why_not("iperf3", "chrt", "ss")
    if why:
        pytest.skip(f"cannot run here: {why}")
    with network() as made:
        yield made


def captured(paths: list[Path], since_slot: int, ports: dict[int, int]) -> pd.DataFrame:
    """Slots of captures, numbered as the live ones: flow numbers by the receiver's port."""
    before, after = map(cct.read_capture, paths)
    table = cct.compute_slots(before, after)
    keys = before.keys
    number = {
        flow: ports[port]
        for flow, *both in zip(keys.flow_id.tolist(), keys.sport.tolist(), keys.dport.tolist(), strict=True)
        for port in both
        if port in ports
    }
    table = table[table.flow_id.isin(list(number))].copy()
    table["flow_id"] = table.flow_id.map(number).astype(np.uint32)
    table["slot"] += min(before.meta.first_ts_ns, after.meta.first_ts_ns) // 1_000_000 - since_slot
    return table


def probabilities(
    model: Model, slots: pd.DataFrame, flow: int, first: int, last: int, window: int
) -> np.ndarray:
    """Of the windows between two slots, without drops, which live slots lack."""
    values = slots[(slots.flow_id == flow) & (slots.slot >= first) & (slots.slot < last)]
    array = values[list(model.inputs)].to_numpy(dtype=float, na_value=np.nan)
    array[:, model.inputs.index("drops_estimate")] = np.nan
    return model.predict_proba(array.reshape(-1, window, len(model.inputs)))


@pytest.mark.slow
def test_flows_are_named_in_flight(net: Network, tmp_path: Path) -> None:
    """Live slots of flows that were there before say what a capture's say; BBR, and nothing else, is BBR in 10 s.

    How often Reno and CUBIC are named right is the model's affair: ``python -m benchmarks live`` measures it.
    """
    model: Any = load_classifier()
    window = round(max(ms for ms in model.windows_ms if ms <= 3000))
    net.bottleneck(RATE_MBPS, RTT_MS, BUFFER_BDP)
    for port, cca in PORTS.items():
        net.iperf3(cca, port, 60)
        time.sleep(1)
    time.sleep(5)
    slots, names = [], []
    wrong: list[str] = []
    began_s = waiting_s()
    with (
        net.capture(tmp_path, "in0", "out0") as paths,
        net.inside("R"),
        KernelCollector("in0", "out0") as tap,
    ):
        first_slot = tap.now_ns // tap.slot_ns
        for update in watch(tap, heavy=3, heavy_mbps=0.3, classifier=model, duration_s=13):
            slots.append(update.slots)
            if update.flows is not None:
                names.append(update.flows)
        assert len(names) >= 5
        assert update.counts["acks"]["lost_packets"] <= 10
    waited_s = waiting_s() - began_s
    named = pd.concat(names, ignore_index=True)
    numbers = named.drop_duplicates("dport").set_index("dport").flow_id.to_dict()
    assert set(numbers) == set(PORTS)  # none of iperf3's other connections, over which it talks to itself
    live = pd.concat(slots, ignore_index=True).sort_values(["flow_id", "slot"], ignore_index=True)
    live.attrs["slot_ms"] = 1.0
    theirs = captured(paths, first_slot, numbers)
    for port, number in numbers.items():
        ours = live[live.flow_id == number].set_index("slot")
        beside = theirs[theirs.flow_id == number].set_index("slot").reindex(ours.index)
        # A capture's time is when a packet came to the interface, the collector's when the kernel comes to look at it:
        # on a busy machine some milliseconds later, and not the same for data and acknowledgements.
        apart = (ours.bytes_in_flight - beside.bytes_in_flight).astype(float).abs()
        assert apart.notna().mean() > 0.95
        assert apart.mean() < 0.03 * ours.bytes_in_flight.mean()
        assert apart.quantile(0.99) < 0.1 * ours.bytes_in_flight.max()
        first = int(ours.index[0]) + 200
        last = first + (int(ours.index[-1]) - 500 - first) // window * window
        one, other = (probabilities(model, table, number, first, last, window) for table in (live, theirs))
        assert len(one) >= 2
        difference = float(np.abs(one - other).sum(axis=1).mean())
        if difference >= 0.1:
            wrong.append(f"{PORTS[port]}'s probabilities differ by {difference:.2f} from the capture's")
        answers = named[named.flow_id == number]
        in_time = answers[answers.age_s <= 10].iloc[-1]
        assert in_time.probability >= 0
        if (in_time.cca == "bbr") != (PORTS[port] == "bbr"):
            wrong.append(f"{PORTS[port]} is {in_time.cca}")
    if wrong and waited_s > 0.15 * 13:
        pytest.skip(f"{', '.join(wrong)}, but processes waited {waited_s:.1f} of 13 s for a processor")
    assert not wrong


def waiting_s() -> float:
    """How long something has waited for a processor, as the kernel counts it, or a hypervisor had given it away."""
    path = Path("/proc/pressure/cpu")
    waited = int(path.read_text().split("total=")[1].split()[0]) / 1e6 if path.exists() else 0.0
    stolen = int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8])  # of all processors
    return waited + stolen / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)


def test_a_history_is_whole_though_rows_are_known_after_their_time() -> None:
    class Teller:
        shown: pd.DataFrame

        def predict_slots(self, slots: pd.DataFrame) -> pd.DataFrame:
            self.shown = slots
            return pd.DataFrame({"flow_id": slots.flow_id.unique(), "cca": "reno", "probability": 1.0})

    teller = Teller()
    naming = Naming(teller, 1_000_000, history_s=0.1)
    for begin in range(0, 300, 50):  # flow 0 waits for its last 20 slots, flow 1 has ended at 140
        for flow, end in ((0, begin + 30), (1, 140)):
            rows = pd.DataFrame(
                {"flow_id": flow, "slot": np.arange(max(begin - 20, 0), min(begin + 30, end))}
            )
            rows.attrs["slot_ms"] = 1.0
            naming.keep(rows)
        names = naming.names(begin + 50)
        assert set(names) == ({0, 1} if begin <= 150 else {0})
    assert teller.shown.slot.tolist() == list(range(180, 280))
