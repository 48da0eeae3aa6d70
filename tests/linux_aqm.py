"""The decision arithmetic of hardware/linux/aqm, compiled and called as the twin of a Python model."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from cctoolkit.aqm import DROP_LATE, MARK, PASS
from cctoolkit.testbed.paper_qdiscs import module_parameters

HERE = Path(__file__).parent
MODULES = HERE.parent / "hardware" / "linux" / "aqm"

#: Parameters in the order of their struct; all have 32 bits.
FIELDS = {
    "pi2": (
        *("target_us", "update_us", "alpha_uhz", "beta_uhz", "coupling_milli", "identifier", "egress"),
        "control_plane_us",
    ),
    "ired": (
        *("min_us", "max_us", "coupling_milli", "square", "identifier", "recirculation_us"),
        "max_notifications",
    ),
    "abc": (
        *("meter_memory_us", "average_memory_us", "min_packets", "base_packets", "gamma_packets"),
        "aggregates",
    ),
    "codel_pisa": (
        *("target_us", "interval_us", "mtu_bytes", "from_now", "count_first", "wrap", "signed", "clock_us"),
    ),
}
_DECIDE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64
)


class Packet(ctypes.Structure):
    _fields_ = (
        ("enqueued_ns", ctypes.c_uint64),
        ("bytes", ctypes.c_uint32),
        ("aggregate", ctypes.c_uint32),
        ("ecn", ctypes.c_uint32),
    )


def compiled(folder: Path) -> ctypes.CDLL:
    """The library; with the compiler's checks for undefined behaviour, which end the process, if it has them."""
    if shutil.which("cc") is None:
        pytest.skip("cc is not on PATH")
    library = folder / "linux_aqm.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{MODULES}", "-o", library]
    source = HERE / "linux_aqm.c"
    checks = ["-fsanitize=undefined", "-fsanitize-trap=undefined", "-fsanitize-undefined-trap-on-error"]
    for flags in (checks[:1] + checks[2:], []):
        if subprocess.run([*command, *flags, source], check=False, capture_output=True).returncode == 0:
            return ctypes.CDLL(str(library))
    raise AssertionError(
        subprocess.run([*command, source], capture_output=True, text=True, check=False).stderr
    )


class Twin:
    """One queue's algorithm in C; made from the Python model, its parameters or both."""

    def __init__(self, library: ctypes.CDLL, aqm=None, *, kind: str = "", seed: int = 1, **parameters):
        values = {}
        if aqm is not None:
            kind, values = module_parameters(aqm)
        values = values | parameters
        self.library, self.kind, self.values = library, kind, values
        self._arguments = [self._u32(*(values[name] for name in FIELDS[kind]))]
        if kind == "abc":
            rates = [int(rate) for rate in values["reference_kbps"].split(",") if rate]
            self._arguments += [self._u32(*rates), ctypes.c_uint32(len(rates))]
        make = self._function("make", ctypes.c_void_p)
        seeds = [ctypes.c_uint64(seed)] if kind in ("pi2", "ired") else []
        self.wrong = self._function("wrong", ctypes.c_char_p)(*self._arguments)
        if self.wrong is not None:
            return
        self.queue = ctypes.c_void_p(make(*self._arguments, *seeds))
        self.packet = Packet()
        self._arrives = self._decision("arrives")
        self._leaves = self._decision("leaves")

    @staticmethod
    def _u32(*values):
        return (ctypes.c_uint32 * len(values))(*values)

    def _function(self, name, result=None):
        function = self.library[f"{self.kind}_{name}"]
        function.restype = result
        return function

    def _decision(self, name):
        try:
            return _DECIDE((f"{self.kind}_{name}", self.library))
        except AttributeError:
            return lambda *_: PASS

    def _decided(self, decide, facts, packet, now_ns):
        copy = self.packet
        copy.enqueued_ns, copy.bytes = packet.enqueued_ns, packet.bytes
        copy.aggregate, copy.ecn = packet.aggregate, packet.ecn
        return decide(self.queue, ctypes.addressof(copy), facts.packets, facts.bytes, now_ns)

    # -- the twin of one_queue.Link

    def on_enqueue(self, facts, packet, now_ns):
        return self._decided(self._arrives, facts, packet, now_ns)

    def on_dequeue(self, facts, packet, now_ns):
        verdict = self._decided(self._leaves, facts, packet, now_ns)
        # after the shaper, as on a switch; a queue discipline drops before it
        late = verdict == MARK and packet.ecn == 0 and self.kind in ("pi2", "codel_pisa")
        return DROP_LATE if late else verdict

    def on_update(self, facts, packet, now_ns):
        if self.kind == "pi2":
            head = now_ns - facts.head_enqueued_ns if facts.packets else 0
            self._function("updates")(self.queue, ctypes.c_uint64(head), ctypes.c_uint64(now_ns))
        return PASS

    def shows(self):
        """Probability (in units of 2**-32), two statistics of its own, and a number of its state."""
        out = np.zeros(4, np.int64)
        self._function("shows")(self.queue, ctypes.c_void_p(out.ctypes.data))
        return out.tolist()

    def table(self, name="", length=0, kind=np.int64):
        out = np.zeros(length, kind)
        words = [name.encode()] if self.kind == "abc" else []
        self._function("table")(self.queue, *words, ctypes.c_void_p(out.ctypes.data))
        return out
