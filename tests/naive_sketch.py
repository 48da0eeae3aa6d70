"""The slow, obvious twin of cctoolkit.analysis.sketch: dictionaries and Python integers."""

from __future__ import annotations

import zlib
from collections import defaultdict

import numpy as np
from naive_rtt import crc32c


class NaiveSketch:
    def __init__(
        self, width: int, depth: int, conservative: bool, seed: int, hash: str = "multiply_shift"
    ) -> None:
        self.width, self.depth, self.hash = width, depth, hash
        self.bits = width.bit_length() - 1
        self.conservative = conservative
        random = np.random.default_rng(seed)
        self.functions = random.integers(0, 2**64, (depth, 3), np.uint64).tolist()
        self.counters: dict[tuple[int, int], int] = defaultdict(int)

    def places(self, key: int) -> list[tuple[int, int]]:
        if self.hash == "crc":
            wire = key.to_bytes(4, "big")
            one, two = zlib.crc32(wire), crc32c(wire)
            halves = [one % 2**16, one // 2**16, two % 2**16, two // 2**16]
            return [(row, half % self.width) for row, half in enumerate(halves[: self.depth])]
        low, high = key % 2**32, key // 2**32
        return [
            (row, (a * low + b * high + c) % 2**64 >> (64 - self.bits))
            for row, (a, b, c) in enumerate(self.functions)
        ]

    def query(self, key: int) -> int:
        return min(self.counters[place] for place in self.places(key))

    def update(self, key: int, amount: int) -> int:
        wanted = self.query(key) + amount
        for place in self.places(key):
            if not self.conservative:
                self.counters[place] += amount
            elif self.counters[place] < wanted:
                self.counters[place] = wanted
        return self.query(key)
