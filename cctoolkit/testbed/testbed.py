"""Run a scenario on the testbed: plan, backend, collection."""

from __future__ import annotations

import dataclasses
import importlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._support.arguments import number, whole
from .._support.ranges import LEAST_SNAPLEN, MOST_FRAME_BYTES
from .._support.waiting import progress_bar
from ..errors import ParameterError
from ..scenario import Bottleneck, Scenario
from ..scenario.run import Run, load_run, replacing_directory
from ..scenario.scenario import LONG
from .collect import collect
from .control import Steering
from .netns import Switch
from .plan import Plan, TapSettings, make_plan

__all__ = ["BACKENDS", "planned", "run_testbed"]

BACKENDS = ("uml", "netns", "mininet")
_WIDE = Bottleneck(rate_mbps=10_000, buffer_packets=100_000)


def run_testbed(
    scenario: Scenario,
    directory: str | os.PathLike[str],
    *,
    backend: str = "uml",
    sample_s: float = 0.1,
    snaplen: int = 96,
    control: Callable[[Steering], None] | None = None,
    control_s: float = 0.1,
    iperf3: bool = False,
    offload: bool = False,
    ack_limit: int | None = None,
    progress: bool = False,
    switch: Switch | None = None,
) -> Run:
    """Run a scenario on real Linux TCP and queue disciplines.

    Parameters
    ----------
    scenario : Scenario
        What to run.
    directory : path
        For the result; it appears only when complete, and replaces an earlier run.
    backend : str
        ``"uml"`` (virtual time, without root), ``"netns"`` or ``"mininet"`` (real time, with root).
    sample_s : float
        Sampling interval of the series in s.
    snaplen : int
        Snap length of the captures in bytes.
    control : function, optional
        Called every `control_s` with a :class:`~.control.Steering`, which has the members of a
        :class:`cctoolkit.Simulation` that a controller needs. Virtual time stands still meanwhile.
    control_s : float
        Interval of `control` in s.
    iperf3 : bool
        Generate traffic with iperf3 (``uml`` only; see :mod:`~cctoolkit.testbed.iperf3`) instead of the testbed's own
        program, which needs less and reports more.
    offload : bool
        Leave the senders' segmentation offload on, as hosts, virtual machines and Mininet do by default. Taps and
        queues then see packets of up to 64 kB, about as many as a flow sends in a millisecond at its rate, and a
        buffer of so many packets holds more bytes. Linux counts a queue's arrivals and departures in segments, but its
        drops in packets.
    ack_limit : int, optional
        One netem, as at a receiver that all flows share, delays what receivers send by the whole round trip, and holds
        so many packets at most (``uml`` only). netem's own default is 1000. Without, each path delays both ways, and
        no packet is lost there. All flows need the same ``rtt_ms``, without ``access_ms``, ``jitter_ms`` and ``loss``.
    progress : bool
        Show a progress bar.
    switch : function, optional
        Starts a software switch in place of the bottleneck (``netns`` only), such as BMv2 in
        ``hardware/launch/switch.py``. It must set up rate, queues and AQM; `control` is not possible, and there is a
        single row of queues with drops counted by the taps.

    Returns
    -------
    Run
        The run, as :func:`load_run` reads it from `directory`.

    Raises
    ------
    ParameterError
        A value is invalid, or not supported by Linux; the text names the field.
    TestbedUnavailableError
        This machine cannot run the backend; the text says what is missing.
    TestbedError
        The run failed.

    See Also
    --------
    simulate : the same scenario in the simulator
    run_testbed_sweep : many scenarios
    load_run : read a run again

    Examples
    --------
    >>> scenario = cct.Scenario(
    ...     bottleneck=cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm="codel_linux"),
    ...     flows=[cct.Flow("cubic", rtt_ms=20)],
    ...     duration_s=10,
    ... )
    >>> run = cct.run_testbed(scenario, "codel")  # doctest: +SKIP
    >>> run.summary()["mean_delay_ms"]  # doctest: +SKIP
    """
    number("sample_s", sample_s, above=0.0, high=LONG)
    if not LEAST_SNAPLEN <= snaplen <= MOST_FRAME_BYTES:
        raise ParameterError(f"snaplen: {snaplen!r} must be between {LEAST_SNAPLEN} and {MOST_FRAME_BYTES}")
    if control is not None:
        number("control_s", control_s, above=0.0, high=LONG)
    recording = TapSettings(
        sample_ns=max(round(sample_s * 1e9), 1),
        snaplen=snaplen,
        control_ns=None if control is None else max(round(control_s * 1e9), 1),
        iperf3=iperf3,
    )
    if switch is not None and (backend != "netns" or control is not None or offload):
        raise ParameterError("switch: requires backend netns, without control and offload")
    if ack_limit is not None:
        ack_limit = whole("ack_limit", ack_limit, low=1)
        if backend != "uml":
            raise ParameterError(f"ack_limit: requires backend uml, not {backend}")
    plan = planned(scenario, backend, switched=switch is not None, offload=offload, ack_limit=ack_limit)
    if iperf3 and backend != "uml":
        raise ParameterError(f"iperf3: requires backend uml, not {backend}")
    run: Callable[..., dict[str, Any]] = importlib.import_module(f".{backend}", __package__).run
    with replacing_directory(Path(directory)) as folder:
        raw = folder.with_name(f"{folder.name}.raw")
        raw.mkdir()
        steering = None
        if control is not None and recording.control_ns is not None:
            steering = Steering(plan, raw / "control", recording.control_ns, control)
        with progress_bar(total=scenario.duration_s, unit="s", disable=not progress, leave=False) as bar:

            def show(reached_s: float) -> None:
                bar.update(round(reached_s, 1) - bar.n)

            poll = steering.poll if steering else None
            extra = {} if switch is None else {"switch": switch}
            about = run(plan, raw, recording, poll=poll, progress=show if progress else None, **extra)
        collect(plan, raw, folder, recording, about, steering.assignments if steering else [])
    return load_run(directory)


def planned(
    scenario: Scenario,
    backend: str,
    *,
    switched: bool = False,
    offload: bool = False,
    ack_limit: int | None = None,
) -> Plan:
    """Make the plan of a scenario for a backend; `switched` if a switch replaces the bottleneck.

    Raises
    ------
    ParameterError
        As for :func:`run_testbed`.
    """
    if not isinstance(scenario, Scenario):
        raise ParameterError(f"scenario: {type(scenario).__name__} must be a Scenario")
    if backend not in BACKENDS:
        raise ParameterError(f"backend: {backend!r} must be one of {', '.join(BACKENDS)}")
    virtual = backend == "uml"
    # on the host's own kernel, names must be unique
    prefix = "" if virtual else f"cct{secrets.token_hex(3)}"
    if not switched:
        return make_plan(scenario, prefix=prefix, virtual=virtual, offload=offload, ack_limit=ack_limit)
    # the router before the switch must never be the bottleneck
    flows = tuple(dataclasses.replace(f, queue=None) for f in scenario.flows)
    wide = dataclasses.replace(scenario, bottleneck=_WIDE, flows=flows)
    return make_plan(wide, prefix=prefix, virtual=virtual).with_switch(scenario)
