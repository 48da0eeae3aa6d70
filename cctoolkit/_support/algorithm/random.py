"""Random numbers for compiled functions: the stream belongs to a record, so a run depends only on its seed."""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["random"]


@numba.njit(error_model="numpy")
def random(record):
    """The next random number of a queue or flow, for use in a function of an AQM or congestion control.

    Parameters
    ----------
    record : record with a field ``rng``
        The owner of the stream: ``queue`` in an AQM, ``flow`` in a congestion control.

    Returns
    -------
    float
        Uniform in [0, 1), with 53 bits (splitmix64; Steele et al. 2014).

    See Also
    --------
    cctoolkit.aqm.Aqm : the functions of an AQM
    cctoolkit.cca.Cca : the functions of a congestion control

    Examples
    --------
    >>> from cctoolkit.aqm import DROP, PASS, Aqm, random
    >>> class RandomLoss(Aqm):
    ...     probability: float = 0.02
    ...
    ...     @staticmethod
    ...     def on_enqueue(p, s, stats, queue, packet, now_ns):
    ...         return DROP if random(queue) < p.probability else PASS
    >>> bottleneck = cct.Bottleneck(rate_mbps=10, buffer_packets=100, aqm=RandomLoss())
    >>> flows = [cct.Flow("bbr", rtt_ms=20)]
    >>> run = cct.simulate(cct.Scenario(bottleneck=bottleneck, flows=flows, duration_s=5))
    >>> round(run.summary()["drop_share"], 2)
    0.02
    """
    record.rng += np.uint64(0x9E3779B97F4A7C15)
    z = record.rng
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.float64(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)
