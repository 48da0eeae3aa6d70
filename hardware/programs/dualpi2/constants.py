"""Constants of DualPI2: the L queue's step and the scale of the sums, from
:class:`cctoolkit.aqm.IntegerDualPi2`.

The other parameters belong to the controller, in the control plane.
"""

from __future__ import annotations

from cctoolkit.aqm.dualpi2 import ONE, IntegerDualPi2

from ...constants import Constant, Macro

__all__ = ["CONSTANTS", "C_QUEUE", "L_QUEUE", "PORTS"]

PORTS = 512
#: Numbers of a port's two queues.
C_QUEUE, L_QUEUE = 0, 1

_RECORD = IntegerDualPi2().parameter_record()[0]

CONSTANTS: list[Constant | Macro] = [
    Constant("PORT_ENTRIES", PORTS, 32, "each with an L queue and a classic queue"),
    Constant("QUEUE_ENTRIES", 2 * PORTS, 32, "by port and queue"),
    Constant("C_QUEUE_ID", C_QUEUE, 1, "classic"),
    Constant("L_QUEUE_ID", L_QUEUE, 1, "ECT(1) and CE: RFC 9332, section 2.3"),
    Constant(
        "STEP_NS", int(_RECORD["step_ns"]), 32, "delay in the L queue from which all packets are marked"
    ),
    Constant(
        "MIN_BACKLOG_PACKETS", int(_RECORD["min_backlog_packets"]), 19, "Th_len, RFC 9332, appendix A.1"
    ),
    Constant("MIN_BACKLOG_CELLS", 1, 19, "the same on a Tofino, which counts cells"),
    Constant("ONE_Q30", ONE, 32, "probability 1; a signal is due when the sum exceeds it"),
]
