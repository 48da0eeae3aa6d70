"""A capture's traffic by the network it comes from, for ABC's aggregates."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ...errors import ParameterError

if TYPE_CHECKING:
    import pandas as pd

    from ...capture.model import Capture
    from ...scenario import Scenario

__all__ = ["by_source", "source_prefixes"]


def source_prefixes(capture: Capture, ipv4_bits: int = 24, ipv6_bits: int = 48) -> pd.DataFrame:
    """The networks that a capture's packets come from, as aggregates.

    Parameters
    ----------
    capture : Capture
    ipv4_bits, ipv6_bits : int
        Prefix lengths.

    Returns
    -------
    DataFrame
        ``flow_id``, ``direction``, ``prefix`` (text) and ``number`` (from 0): the sender in each direction of a flow.

    Raises
    ------
    ParameterError
        A prefix length out of range.
    """
    import ipaddress

    import numpy as np
    import pandas as pd

    if not (0 <= ipv4_bits <= 32 and 0 <= ipv6_bits <= 128):
        raise ParameterError(f"source_prefixes: no prefixes have {ipv4_bits} and {ipv6_bits} bits")
    keys = capture.keys
    version = np.concatenate([keys.ip_version, keys.ip_version])
    address = np.concatenate([keys.src, keys.dst])
    bits = np.where(version == 4, ipv4_bits, ipv6_bits)
    mask = np.packbits(np.arange(128) < bits[:, None], axis=1)
    network = np.column_stack([version, address & mask])
    found, aggregate = np.unique(network, axis=0, return_inverse=True)
    names = np.array(
        [
            f"{ipaddress.ip_address(row[1:5].tobytes() if row[0] == 4 else row[1:].tobytes())}"
            f"/{ipv4_bits if row[0] == 4 else ipv6_bits}"
            for row in found
        ]
    )
    n = len(keys.flow_id)
    return pd.DataFrame(
        {
            "flow_id": np.concatenate([keys.flow_id, keys.flow_id]),
            "direction": np.repeat([0, 1], n),
            "prefix": names[aggregate.ravel()] if len(found) else np.array([], str),
            "number": aggregate.ravel(),
        }
    )


def by_source(scenario: Scenario, sources: pd.DataFrame) -> Scenario:
    """A capture's transfers with their source networks as aggregates.

    Parameters
    ----------
    scenario : Scenario
        From :func:`cctoolkit.scenario_from_capture`, whose flow names carry the capture's flow numbers.
    sources : DataFrame
        From :func:`source_prefixes` of the same capture. Aggregates are numbered from 0 and named after their prefix.
    """
    prefix = sources.set_index(["flow_id", "direction"]).prefix
    number: dict[str, int] = {}
    flows = []
    for flow in scenario.flows:
        _, flow_id, *back = flow.name.split()
        name = str(prefix.loc[int(flow_id), int(bool(back))])
        flows.append(dataclasses.replace(flow, aggregate=number.setdefault(name, len(number)), name=name))
    return dataclasses.replace(scenario, flows=tuple(flows))
