"""Linux's own DualPI2 beside the simulator's, under the L4S experiment's load."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import TestbedUnavailableError
from ..runners import Case, for_simulator
from .cases import Case as L4sCase, Settings

if TYPE_CHECKING:
    from ...scenario import Scenario
    from ...scenario.run import Run
    from ...testbed.kernel import Kernel

__all__ = ["cases", "dctcp_scenario", "kernel_needed", "measure", "rows"]

#: Duration of a phase; real TCP at 120 Mbit/s runs in about real time.
_PHASE_S = 10.0
_LONGEST_S = 30.0
#: Configurations; at 1 Gbit/s a capture of the whole load would have tens of millions of packets.
_CONFIGURATIONS = ("I", "II")


def kernel_needed() -> Kernel:
    """The kernel of the testbed's ``uml`` backend.

    Raises
    ------
    TestbedUnavailableError
        There is no kernel, or it is too old for DualPI2.
    """
    from ...testbed.kernel import find_kernel

    kernel = find_kernel()
    number = tuple(int(part) for part in kernel.version.split("-")[0].split(".")[:2])
    if number < (6, 17):
        raise TestbedUnavailableError(f"testbed: Linux {kernel.version} has no DualPI2 (needs 6.17 or newer)")
    return kernel


def dctcp_scenario(configuration: str, seed: int, phase_s: float) -> Scenario:
    """The load with DCTCP as the scalable congestion control, because Linux has no Prague."""
    case = L4sCase(configuration, "DualPI2", seed, phase_s, scalable={"cca": "dctcp", "ecn": "l4s"})
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
        A run with both taps and a scenario, through a link that shapes (its egress tap stamps a packet's first byte).
    phase_s : float
        Duration of a phase.

    Yields
    ------
    dict
        ``phase``, ``quantity``, ``value``.
    """
    import numpy as np

    from ...analysis.metrics import queue_delay

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


def cases(settings: Settings) -> list[Case]:
    """Configurations I and II (of those asked for) on both sides, one seed, in shorter phases."""
    if settings.kernel is None:
        return []
    phase_s = min(_PHASE_S * max(settings.phase_s // 30, 1), _LONGEST_S)
    version = kernel_needed().version
    made = []
    for configuration in [c for c in settings.configurations if c in _CONFIGURATIONS] or ["I"]:
        scenario = dctcp_scenario(configuration, 1, phase_s)
        about = {"configuration": configuration, "phase_s": phase_s, "kernel": version}
        made.append(Case(about | {"side": "kernel"}, scenario, kernel=settings.kernel))
        made.append(Case(about | {"side": "simulator"}, for_simulator(scenario), record=True))
    return made


def rows(case: Case, run: Run) -> list[dict[str, Any]]:
    """What :func:`measure` finds, with the case's columns."""
    return [dict(case.about) | row for row in measure(run, case.about["phase_s"])]
