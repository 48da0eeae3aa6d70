"""The systems in a real Linux kernel beside the simulator, under the L4S experiment's load.

DualPI2 is the kernel's own. iRED, PI2 and TCP Prague are those of ``hardware/linux``, and the kernel must have been
built with them (``cct testbed build --with hardware/linux/aqm --with hardware/linux/prague``). On request
(``--no-modules``), a kernel without them runs DualPI2 alone, with DCTCP in Prague's place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...errors import TestbedUnavailableError
from ..runners import Case, for_simulator
from .cases import Case as L4sCase, Settings
from .logs import SENDING
from .scenarios import AS_PUBLISHED_MTU, CONFIGURATIONS, NETEM, PUBLISHED

if TYPE_CHECKING:
    from ...scenario import Scenario
    from ...scenario.run import Run
    from ...testbed.kernel import Kernel

__all__ = [
    "cases",
    "kernel_needed",
    "linux_scenario",
    "measure",
    "modules_needed",
    "netem_cases",
    "netem_rows",
    "rows",
    "senders",
    "systems",
]

#: Longest phases by the link's rate in Mbit/s: a capture of a minute at 1 Gbit/s has ten million packets.
_LONGEST_S = {120.0: 20.0, 1000.0: 10.0}
#: Phases of the runs with netem at the receiver, which have twice as many packets.
_NETEM_S = {120.0: 10.0, 1000.0: 5.0}
#: Most seeds.
_SEEDS = {120.0: 2, 1000.0: 1}
#: Fields of scalable flows, by the name of the congestion control.
_SCALABLE: dict[str, dict[str, Any]] = {"Prague": {}, "DCTCP": {"cca": "dctcp", "ecn": "l4s"}}
#: What the kernel calls the papers' systems.
_MODULES = {"iRED": "ired", "PI2": "pi2"}


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


def modules_needed(kernel: Kernel) -> None:
    """Check that a kernel has the papers' systems and Prague.

    Raises
    ------
    TestbedUnavailableError
        It lacks one.
    """
    from ...testbed.kernel import check_modules

    check_modules(
        kernel, dict.fromkeys(_MODULES.values(), "hardware/linux/aqm") | {"prague": "hardware/linux/prague"}
    )


def systems(kernel: Kernel) -> list[str]:
    """The systems that a kernel has."""
    return [*(name for name in PUBLISHED if _MODULES[name] in kernel.modules), "DualPI2"]


def senders(kernel: Kernel) -> str:
    """The scalable congestion control of a kernel: Prague, or else DCTCP, which only DualPI2 can distinguish."""
    return "Prague" if "prague" in kernel.modules else "DCTCP"


def linux_scenario(
    configuration: str,
    system: str,
    seed: int,
    phase_s: float,
    scalable: str,
    mtu_bytes: int = 1500,
    **fields: Any,
) -> Scenario:
    """The load through a system, in a form that Linux can run: buffers count packets. All flows have `fields`."""
    from ...aqm import IntegerPi2, TofinoPi2

    made = L4sCase(
        configuration, system, seed, phase_s, classic=fields, scalable=_SCALABLE[scalable] | fields,
        mtu_bytes=mtu_bytes,
    ).scenario()  # fmt: skip
    old = made.bottleneck
    assert old.buffer_bytes is not None
    packets = old.buffer_bytes // made.flows[0].packet_bytes
    aqm = IntegerPi2(**old.aqm.parameters()) if isinstance(old.aqm, TofinoPi2) else old.aqm
    bottleneck = dataclasses.replace(old, buffer_packets=packets, buffer_bytes=None, aqm=aqm)
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
    names = run.flows.set_index("flow_id").name
    is_scalable = packets.flow_id.map(names == "scalable").to_numpy(bool)
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
    """Each configuration through each system that the kernel has, on both sides, in shorter phases."""
    if settings.kernel is None:
        return []
    kernel = kernel_needed()
    scalable = senders(kernel)
    made = []
    for configuration in settings.configurations:
        rate_mbps, _ = CONFIGURATIONS[configuration]
        phase_s = min(settings.phase_s / 3, _LONGEST_S[rate_mbps])
        for system in systems(kernel) if scalable == "Prague" else ["DualPI2"]:
            for seed in range(1, min(settings.seeds, _SEEDS[rate_mbps]) + 1):
                scenario = linux_scenario(configuration, system, seed, phase_s, scalable)
                about = {
                    "configuration": configuration, "system": system, "senders": scalable, "seed": seed,
                    "phase_s": phase_s, "kernel": kernel.version,
                }  # fmt: skip
                made.append(Case(about | {"side": "kernel"}, scenario, kernel=settings.kernel))
                made.append(Case(about | {"side": "simulator"}, for_simulator(scenario), record=True))
    return made


def rows(case: Case, run: Run) -> list[dict[str, Any]]:
    """The results of :func:`measure`, with the case's columns."""
    return [dict(case.about) | row for row in measure(run, case.about["phase_s"])]


def netem_cases(settings: Settings) -> list[Case]:
    """The paper's systems with packets as in its logs, and each :data:`~.scenarios.NETEM` at the receiver."""
    if settings.kernel is None:
        return []
    kernel = kernel_needed()
    modules_needed(kernel)
    made = []
    for configuration in settings.configurations:
        phase_s = min(settings.phase_s, _NETEM_S[CONFIGURATIONS[configuration][0]])
        for system in PUBLISHED:
            of = {"configuration": configuration, "system": system, "mtu_bytes": AS_PUBLISHED_MTU}
            for netem, (limit, fields) in NETEM.items():
                about = of | {"netem": netem, "phase_s": phase_s, "kernel": kernel.version}
                scenario = linux_scenario(
                    configuration, system, 1, phase_s, "Prague", AS_PUBLISHED_MTU, **fields
                )
                made.append(Case(about, scenario, kernel=settings.kernel, ack_limit=limit))
    return made


def netem_rows(case: Case, run: Run) -> list[dict[str, Any]]:
    """Prague's share of what is acknowledged in each phase, and how many of the flows that join in it stall.

    Returns
    -------
    list of dict
        Of each phase: the case's columns, ``phase``, ``scalable_share`` (0 to 1), ``goodput_mbps``, and of both kinds
        ``…_connections`` and ``…_stalled`` (:data:`.logs.SENDING`).
    """
    import numpy as np

    phase_s = case.about["phase_s"]
    series = run.flow_series
    acked = series.pivot_table(index="ts_ns", columns="flow_id", values="acked_bytes")
    second = np.ceil((acked.index - run.start_ns) / 1e9 - 1e-6).astype(int)
    each_second = acked.groupby(second).last().astype(float).diff().fillna(0.0)  # by the end of the second
    flows = run.flows.set_index("flow_id")
    joined = (flows.start_s // phase_s).astype(int) + 1
    stalled = []
    for flow, start_s in flows.start_s.items():
        later = each_second[each_second.index >= start_s + 2]  # than its first second
        stalled.append(flow not in later or (later[flow] > 0).mean() < SENDING)
    flows = flows.assign(stalled=stalled)
    rows = []
    for phase in range(1, joined.max() + 1):
        here = each_second[
            (each_second.index > (phase - 1) * phase_s) & (each_second.index <= phase * phase_s)
        ]
        octets = here.sum().groupby(flows.name).sum()
        row = dict(case.about) | {
            "phase": phase,
            "scalable_share": octets.scalable / octets.sum(),
            "goodput_mbps": octets.sum() * 8e-6 / phase_s,
        }
        for kind in ("classic", "scalable"):
            of = flows[(flows.name == kind) & (joined == phase)]
            row |= {f"{kind}_connections": len(of), f"{kind}_stalled": int(of.stalled.sum())}
        rows.append(row)
    return rows
