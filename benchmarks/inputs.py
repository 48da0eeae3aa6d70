"""The captures the benchmarks read, made once a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cctoolkit.capture.synth.mawi import synth_mawi


def mawi_like(directory: Path, packets: int, suffix: str = ".pcap") -> Path:
    """A MAWI-like capture of so many packets, snap length 96."""
    path = directory / f"mawi-like-{packets}{suffix}"
    if not path.exists():
        synth_mawi(path, packets, seed=1)
    return path


def many_flows(directory: Path, packets: int, flows: int) -> Path:
    """A capture of so many TCP packets without payload, one flow after another in turn, a packet each microsecond."""
    path = directory / f"{flows}-flows-{packets}.pcap"
    if path.exists():
        return path
    with path.open("wb") as file:
        file.write(
            np.array([0xA1B2C3D4, 2 | 4 << 16, 0, 0, 96, 1], "<u4").tobytes()
        )  # microseconds, Ethernet
        for begin in range(0, packets, 1 << 16):
            number = np.arange(begin, min(begin + (1 << 16), packets))
            flow = number % flows
            frames = np.zeros((len(number), 16 + 54), np.uint8)
            head, ip, tcp = frames[:, :16].view("<u4"), frames[:, 30:50], frames[:, 50:]
            head[:, 0], head[:, 1] = 10**9 + number // 10**6, number % 10**6
            head[:, 2:] = 54
            frames[:, 28] = 8  # IPv4
            ip[:, [0, 3, 8, 9]] = 0x45, 40, 64, 6
            ip[:, 12:16] = (0x0A000000 + flow).astype(">u4")[:, None].view(np.uint8)
            ip[:, 16:20] = 192, 0, 2, 1
            tcp[:, 0:2] = (1024 + flow % 60000).astype(">u2")[:, None].view(np.uint8)
            tcp[:, 3] = 80
            tcp[:, 4:8] = (1 + number // flows).astype(">u4")[:, None].view(np.uint8)
            tcp[:, [12, 13, 14]] = 0x50, 0x10, 0xFF  # no options, ACK, a window
            file.write(frames.tobytes())
    return path
