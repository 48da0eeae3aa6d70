"""An experiment with a P4 program: what it sets up on the switch, does during the run, and reads at the end.

Each program's ``experiment.py`` has a function ``experiment(scenario, ingress, egress)`` that returns an
:class:`Experiment`: senders come in at port `ingress`, the bottleneck is at port `egress`.
``launch/switch.py`` runs it.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import pandas as pd

import cctoolkit as cct
from cctoolkit.errors import ParameterError

from .switch import Switch, SwitchError

__all__ = [
    "Experiment",
    "aqm_of",
    "check_built_in",
    "frame_bytes",
    "integer_model",
    "shape_bottleneck",
]


@dataclass
class Experiment:
    """What a program does for a scenario.

    Attributes
    ----------
    set_up : function of the switch
        Fills tables, shapes ports.
    step : function of the switch, optional
        Called every `period_s` during the run.
    read_out : function of the switch, optional
        Returns tables by name, at the end.
    queues : int
        Priority queues the program needs at a port (BMv2).
    tables : dict of str to DataFrame
        What `read_out` returned.
    """

    set_up: Callable[[Switch], object]
    step: Callable[[Switch], object] | None = None
    period_s: float = 1.0
    read_out: Callable[[Switch], dict[str, pd.DataFrame]] | None = None
    queues: int = 1
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self, switch: Switch) -> Iterator[None]:
        """Set up; step until the block ends; read out."""
        self.set_up(switch)
        stop, errors = threading.Event(), []

        def loop() -> None:
            assert self.step is not None
            try:
                while not stop.wait(self.period_s):
                    self.step(switch)
            except SwitchError as err:
                errors.append(err)

        thread = threading.Thread(target=loop, daemon=True)
        if self.step is not None:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            if self.step is not None:
                thread.join(timeout=30)
        if errors:
            raise errors[0]
        if self.read_out is not None:
            self.tables = self.read_out(switch)


# ---- the scenario's bottleneck ---------------------------------------------------------------------------------------


def frame_bytes(scenario: cct.Scenario) -> int:
    """Size of the scenario's largest frames."""
    return max(f.packet_bytes for f in scenario.flows)


def shape_bottleneck(switch: Switch, scenario: cct.Scenario, port: int) -> None:
    """Give a port the bottleneck's rate and buffer."""
    bottleneck, frame = scenario.bottleneck, frame_bytes(scenario)
    room = bottleneck.buffer_packets or (bottleneck.buffer_bytes or frame) // frame
    switch.shape(port, bottleneck.rate_mbps, frame_bytes=frame, buffer_packets=room)


def aqm_of(scenario: cct.Scenario, *kinds: type[cct.aqm.Aqm], queues: int = 1) -> cct.aqm.Aqm:
    """The scenario's AQM with its parameters.

    Parameters
    ----------
    scenario : Scenario
    *kinds : classes
        The AQMs that the program can be; ``TailDrop`` for a program without one.
    queues : int
        The most queues that the program has at a port.

    Raises
    ------
    ParameterError
        It is none of `kinds`, there are more queues, or these have different AQMs.
    """
    given = scenario.bottleneck.queue_list()
    if len(given) > queues:
        raise ParameterError(
            f"bottleneck.queues: must be at most {queues} for this program, not {len(given)}"
        )
    aqm: cct.aqm.Aqm = given[0].aqm  # type: ignore[assignment]  # queue_list fills it in
    for other in given[1:]:
        if other.aqm != aqm:
            raise ParameterError("bottleneck.queues: must all have the same AQM for this program")
    if not isinstance(aqm, kinds):
        names = " or ".join(k.name for k in kinds)
        raise ParameterError(f"bottleneck.aqm: must be {names} for this program, not {aqm.name}")
    return aqm


def check_built_in(aqm: cct.aqm.Aqm, model: cct.aqm.Aqm, *names: str) -> None:
    """Refuse parameters that the program has as constants if they differ from `model`'s.

    Parameters
    ----------
    aqm : Aqm
        The scenario's.
    model : Aqm
        With the program's parameters.
    *names : str
        Of the parameters; those that `aqm` lacks are not looked at.

    Raises
    ------
    ParameterError
        A parameter of `aqm` is another than that of `model`.
    """
    given, built = aqm.parameters(), model.parameters()
    for name in names:
        if name in given and given[name] != built[name]:
            wanted, has = json.dumps(given[name]), json.dumps(built[name])
            raise ParameterError(
                f"bottleneck.aqm.{name}: must be {has}, as built into the program, not {wanted}"
            )


_Model = TypeVar("_Model", bound=cct.aqm.Aqm)


def integer_model(kind: type[_Model], aqm: cct.aqm.Aqm) -> _Model:
    """The integer model with the parameters that it shares with `aqm`."""
    if isinstance(aqm, kind):
        return aqm
    known = kind().parameters()
    return kind(**{name: value for name, value in aqm.parameters().items() if name in known})
