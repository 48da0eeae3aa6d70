"""DualPI2 as the Linux kernel has it, beside the simulator's, on the L4S experiment's load."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TestbedUnavailableError

if TYPE_CHECKING:
    import pandas as pd

    from ..scenario import Scenario
    from ..scenario.run import Run
    from ..testbed.kernel import Kernel
    from .l4s import Settings

__all__ = ["beside_kernel", "kernel_needed", "measure"]

#: Of each phase: real TCP at 120 Mbit/s takes about as long as it lasts.
_PHASE_S = 10.0
_LONGEST_S = 30.0
#: At 1 Gbit/s a capture of the whole load would have tens of millions of packets.
_CONFIGURATIONS = ("I", "II")


def kernel_needed() -> Kernel:
    """The kernel of the testbed's ``uml`` backend.

    Raises
    ------
    TestbedUnavailableError
        There is none, or it is older than DualPI2.
    """
    from ..testbed.kernel import find_kernel

    kernel = find_kernel()
    number = tuple(int(part) for part in kernel.version.split("-")[0].split(".")[:2])
    if number < (6, 17):
        raise TestbedUnavailableError(f"testbed: Linux {kernel.version} has no DualPI2, 6.17 and newer have")
    return kernel


def _scenario(configuration: str, seed: int, phase_s: float) -> Scenario:
    """The load with DCTCP as scalable congestion control: Linux has no Prague."""
    from .l4s import Case

    case = Case(configuration, "DualPI2", seed, phase_s, scalable={"cca": "dctcp", "ecn": "l4s"})
    made = case.scenario()
    assert made.bottleneck.buffer_bytes is not None
    packets = made.bottleneck.buffer_bytes // made.flows[0].packet_bytes  # Linux counts packets here
    bottleneck = dataclasses.replace(made.bottleneck, buffer_packets=packets, buffer_bytes=None)
    return dataclasses.replace(made, bottleneck=bottleneck)


def measure(run: Run, phase_s: float) -> Iterator[dict[str, Any]]:
    """Rates and delays of both classes in each phase, from the two taps only.

    Parameters
    ----------
    run : Run
        With both taps and a scenario, of a link that shapes: the egress tap has the time of a packet's first byte.
    phase_s : float

    Yields
    ------
    dict
        ``phase``, ``quantity``, ``value``.
    """
    import numpy as np

    from ..analysis.metrics import queue_delay

    assert run.scenario is not None and run.ingress is not None and run.egress is not None
    rate_mbps = run.scenario.bottleneck.rate_mbps
    packets = queue_delay(run.ingress, run.egress, check_taps=False)
    packets = packets[(packets.direction == 0) & (packets.payload_bytes > 0)]
    cca = run.flows.set_index("flow_id").cca
    is_scalable = packets.flow_id.map(cca == "dctcp").to_numpy(bool)
    at_s = (packets.ts_ns.to_numpy(np.int64) - run.start_ns) / 1e9
    delay_ms = packets.delay_ns.astype("Float64").to_numpy(np.float64, na_value=np.nan) / 1e6
    left = np.isfinite(delay_ms)
    octets = packets.wire_bytes.to_numpy(np.float64)
    for phase in range(int(run.scenario.duration_s / phase_s)):
        here = (at_s >= phase * phase_s) & (at_s < (phase + 1) * phase_s)
        sent = here & left
        yield {
            "phase": phase + 1,
            "quantity": "utilisation",
            "value": octets[sent].sum() * 8e-6 / phase_s / rate_mbps,
        }
        yield {
            "phase": phase + 1,
            "quantity": "scalable share",
            "value": octets[sent & is_scalable].sum() / octets[sent].sum(),
        }
        for name, kind in (("scalable", is_scalable), ("classic", ~is_scalable)):
            p50, p99 = np.percentile(delay_ms[sent & kind], [50, 99])
            yield {"phase": phase + 1, "quantity": f"{name} p50, ms", "value": p50}
            yield {"phase": phase + 1, "quantity": f"{name} p99, ms", "value": p99}
            lost = 1 - (sent & kind).sum() / (here & kind).sum()
            yield {"phase": phase + 1, "quantity": f"{name} lost, %", "value": 100 * lost}


def beside_kernel(settings: Settings, folder: Path, kernel: Kernel) -> pd.DataFrame:
    """Configurations I and II (of those asked for) on both sides, one seed, in shorter phases.

    Returns
    -------
    DataFrame
        ``configuration side phase_s kernel phase quantity value``.
    """
    import pandas as pd

    from ..sim.simulation import simulate
    from ..testbed import run_testbed
    from .sim_vs_kernel import for_simulator

    phase_s = min(_PHASE_S * max(settings.phase_s // 30, 1), _LONGEST_S)
    rows = []
    for configuration in [c for c in settings.configurations if c in _CONFIGURATIONS] or ["I"]:
        scenario = _scenario(configuration, 1, phase_s)
        real = run_testbed(scenario, folder / configuration)
        simulated = simulate(for_simulator(scenario))
        for side, made in (("kernel", real), ("simulator", simulated)):
            about = {
                "configuration": configuration,
                "side": side,
                "phase_s": phase_s,
                "kernel": kernel.version,
            }
            rows += [about | row for row in measure(made, phase_s)]
    return pd.DataFrame(rows)
