"""AQMs as the project's own queue disciplines, of ``hardware/linux``: their kinds and module parameters."""

from __future__ import annotations

from collections.abc import Callable

from ..aqm import Abc, Aqm, IntegerAbc, IntegerIRed, IntegerPi2, IRed, Opportunity, Pi2, PisaCoDel
from ..aqm.pi2 import IDENTIFIERS
from ..errors import ParameterError

__all__ = ["MODULES", "module_parameters"]

#: Numbers of the identifiers; :attr:`~cctoolkit.Flow.aggregate`, the simulator's DSCP, is the packet's mark in Linux.
_IDENTIFIERS = {"ect1": 0, "any_ect": 1, "dscp": 2}
assert set(_IDENTIFIERS) == set(IDENTIFIERS)

Values = dict[str, int | str]


def module_parameters(aqm: Aqm) -> tuple[str, Values] | None:
    """Kind of queue discipline and parameters of its module for an AQM; without ``limit``.

    Returns
    -------
    tuple of (str, dict) or None
        ``tc``'s kind (the module is ``sch_KIND``), and values by name; None: there is no module for this AQM.

    Raises
    ------
    ParameterError
        The module does not support a value.

    Notes
    -----
    :class:`~cctoolkit.aqm.Pi2`, :class:`~cctoolkit.aqm.IntegerPi2`, :class:`~cctoolkit.aqm.IntegerIRed`,
    :class:`~cctoolkit.aqm.IntegerAbc` and :class:`~cctoolkit.aqm.PisaCoDel` make the same decisions as the modules.
    :class:`~cctoolkit.aqm.IRed` and :class:`~cctoolkit.aqm.Abc` differ by the rounding of their integer forms. A
    packet that is dropped on departure takes no time on the link in Linux.
    """
    found = MODULES.get(type(aqm))
    return None if found is None else found(aqm)


def _whole(aqm: Aqm, name: str, per_unit: float = 1.0, unit: str = "") -> int:
    """A parameter converted to the module's unit, `per_unit` times as small."""
    value = getattr(aqm, name) * per_unit
    if abs(value - round(value)) > 1e-6 * max(1.0, abs(value) * 1e-6) or not 0 <= value < 2**32:
        raise ParameterError(
            f"bottleneck.aqm.{name}: {getattr(aqm, name)!r}, but {aqm.name} in Linux supports only whole "
            f"{unit or 'numbers'}"
        )
    return round(value)


def _us(aqm: Aqm, name: str) -> int:
    return _whole(aqm, name, {"s": 1e6, "ms": 1e3, "us": 1.0}[name.rpartition("_")[2]], "microseconds")


def _identified(aqm: Pi2 | IntegerPi2 | IRed) -> Values:
    return {
        "coupling_milli": _whole(aqm, "coupling", 1e3, "thousandths"),
        "identifier": _IDENTIFIERS[aqm.identifier],
        "seed": 0,
    }


def _pi2(aqm: Pi2 | IntegerPi2) -> tuple[str, Values]:
    values: Values = {f"{name}_us": _us(aqm, f"{name}_ms") for name in ("target", "update")}
    values |= {f"{name}_uhz": _whole(aqm, name, 1e6, "microhertz") for name in ("alpha", "beta")}
    control_plane_us = _us(aqm, "control_plane_ms") if isinstance(aqm, IntegerPi2) else 0
    egress = int(isinstance(aqm, IntegerPi2))
    return "pi2", values | _identified(aqm) | {"egress": egress, "control_plane_us": control_plane_us}


def _ired(aqm: IRed) -> tuple[str, Values]:
    for name, only in (("measure", "delay"), ("weight", 0.5), ("coupled", False)):
        if getattr(aqm, name) != only:
            raise ParameterError(
                f"bottleneck.aqm.{name}: {getattr(aqm, name)!r}, but {aqm.name} in Linux has {only!r}"
            )
    values: Values = {"min_us": _us(aqm, "min_ms"), "max_us": _us(aqm, "max_ms"), **_identified(aqm)}
    values |= {"square": int(aqm.square), "recirculation_us": _us(aqm, "recirculation_us")}
    return "ired", values | {"max_notifications": aqm.max_notifications}


def _abc(aqm: Abc) -> tuple[str, Values]:
    rates = aqm.reference_kbps if isinstance(aqm.reference_kbps, tuple) else (aqm.reference_kbps,)
    if any(rate != round(rate) for rate in rates) or len(rates) > 256:
        raise ParameterError(
            f"bottleneck.aqm.reference_kbps: {aqm.reference_kbps!r}, but {aqm.name} in Linux supports at most 256 "
            "whole numbers"
        )
    values: Values = {"reference_kbps": ",".join(str(round(rate)) for rate in rates)}
    values |= {f"{name}_us": _us(aqm, f"{name}_s") for name in ("meter_memory", "average_memory")}
    values |= {
        name: _whole(aqm, name, unit="packets") for name in ("min_packets", "base_packets", "gamma_packets")
    }
    return "abc", values | {"aggregates": aqm.aggregates}


def _codel_pisa(aqm: PisaCoDel) -> tuple[str, Values]:
    values: Values = {f"{name}_us": _us(aqm, f"{name}_ms") for name in ("target", "interval", "clock")}
    values |= {
        name: int(getattr(aqm, name)) for name in ("mtu_bytes", "from_now", "count_first", "wrap", "signed")
    }
    return "codel_pisa", values


def _opportunity(link: Opportunity) -> tuple[str, Values]:
    return "opportunity", {"bytes": link.bytes, "interval_us": _us(link, "interval_ms")}


#: AQMs that have a queue discipline there.
MODULES: dict[type[Aqm], Callable[..., tuple[str, Values]]] = {
    Pi2: _pi2,
    IntegerPi2: _pi2,
    IRed: _ired,
    IntegerIRed: _ired,
    Abc: _abc,
    IntegerAbc: _abc,
    PisaCoDel: _codel_pisa,
    Opportunity: _opportunity,
}
