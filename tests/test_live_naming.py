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
CCAS = ("reno", "cubic", "bbr")
WATCHED_S = 13


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

    How often Reno and CUBIC are named right is the model's affair: ``python -m benchmarks live`` measures it. The
    senders share the machine's processors with whatever else runs, which shows in their packets: what is wrong must be
    wrong again while processors are to be had.
    """
    net.bottleneck(RATE_MBPS, RTT_MS, BUFFER_BDP)
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        wrong, waited_s = watched(net, folder, first_port=5201 + 10 * attempt)
        if not wrong:
            return
    if waited_s > 0.15 * WATCHED_S:
        pytest.skip(f"{', '.join(wrong)}, but processes waited {waited_s:.1f} s for a processor")
    assert not wrong


def watched(net: Network, folder: Path, first_port: int) -> tuple[list[str], float]:
    """Start a flow of each kind, watch all for `WATCHED_S`; what is not as it should be, and the wait meanwhile."""
    model: Any = load_classifier()
    window = round(max(ms for ms in model.windows_ms if ms <= 3000))
    ports = {first_port + i: cca for i, cca in enumerate(CCAS)}
    senders = []
    for port, cca in ports.items():
        senders.append(net.iperf3(cca, port, 60))
        time.sleep(1)
    time.sleep(5)
    slots, names = [], []
    began_s = waiting_s()
    with (
        net.capture(folder, "in0", "out0") as paths,
        net.inside("R"),
        KernelCollector("in0", "out0") as tap,
    ):
        first_slot = tap.now_ns // tap.slot_ns
        for update in watch(tap, heavy=3, heavy_mbps=0.3, classifier=model, duration_s=WATCHED_S):
            slots.append(update.slots)
            if update.flows is not None:
                names.append(update.flows)
    waited_s = waiting_s() - began_s
    for sender in senders:
        sender.terminate()
        sender.wait()
    wrong = []
    if len(names) < 5:
        wrong.append(f"{len(names)} updates in {WATCHED_S} s")
    if update.counts["acks"]["lost_packets"] > 10:
        wrong.append(f"{update.counts['acks']['lost_packets']} packets lost")
    named = pd.concat(names, ignore_index=True)
    numbers = named.drop_duplicates("dport").set_index("dport").flow_id.to_dict()
    assert set(numbers) == set(ports)  # none of iperf3's other connections, over which it talks to itself
    live = pd.concat(slots, ignore_index=True).sort_values(["flow_id", "slot"], ignore_index=True)
    live.attrs["slot_ms"] = 1.0
    theirs = captured(paths, first_slot, numbers)
    for port, number in numbers.items():
        ours = live[live.flow_id == number].set_index("slot")
        beside = theirs[theirs.flow_id == number].set_index("slot").reindex(ours.index)
        # A capture's time is when a packet came to the interface, the collector's when the kernel comes to look at it:
        # on a busy machine some milliseconds later, and not the same for data and acknowledgements.
        apart = (ours.bytes_in_flight - beside.bytes_in_flight).astype(float).abs()
        if not (
            apart.notna().mean() > 0.95
            and apart.mean() < 0.03 * ours.bytes_in_flight.mean()
            and apart.quantile(0.99) < 0.1 * ours.bytes_in_flight.max()
        ):
            wrong.append(f"{ports[port]}'s bytes in flight differ by {apart.mean():.0f} from the capture's")
        first = int(ours.index[0]) + 200
        last = first + (int(ours.index[-1]) - 500 - first) // window * window
        one, other = (probabilities(model, table, number, first, last, window) for table in (live, theirs))
        if len(one) < 2:
            wrong.append(f"{ports[port]} has {len(one)} windows")
        elif not (difference := float(np.abs(one - other).sum(axis=1).mean())) < 0.1:
            wrong.append(f"{ports[port]}'s probabilities differ by {difference:.2f} from the capture's")
        answers = named[named.flow_id == number]
        in_time = answers[answers.age_s <= 10].iloc[-1]
        if not in_time.probability >= 0:
            wrong.append(f"{ports[port]} has no name: {in_time.limited_by}")
        if (in_time.cca == "bbr") != (ports[port] == "bbr"):
            wrong.append(f"{ports[port]} is {in_time.cca}")
    return wrong, waited_s


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
