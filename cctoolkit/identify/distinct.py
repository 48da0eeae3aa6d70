"""DeePCCI's residual modules in training on a CPU: each layer computes every distinct input once.

Packets per slot are small whole numbers, most of them 0, so the same few slots around a slot recur all the time: of the
480 000 first pools in 32 windows of a minute, 2 % are distinct, of the second 30 %. A layer's result depends on these
slots alone. So slots carry the number of a distinct row of channels; a convolution makes one product for each distinct
row, and one sum for each distinct triple of numbers; normalisation counts how often each occurs; a pool takes the
greatest of four numbers' rows. The results are those of the layers, up to rounding. Needs the extra ``train``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._support.kernels import kernel
from .running_statistics import remember

__all__ = ["Distinct", "selected"]

#: Where a tuple reaches beyond a window.
_OUTSIDE = -1


@dataclass(frozen=True)
class Distinct:
    """Windows of slots as numbers of distinct rows.

    Parameters
    ----------
    numbers : int32 array, windows x slots
        The row of each slot.
    rows : Tensor, distinct rows x channels
    counts : float32 Tensor
        How many slots have each row.
    """

    numbers: np.ndarray
    rows: Tensor
    counts: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Distinct:
        """The distinct slots of windows x inputs x slots."""
        windows, inputs, slots = x.shape
        bits = x.transpose(1, 2).contiguous().numpy().reshape(windows, slots * inputs).view(np.int32)
        numbers, found, counts = _distinct_tuples(bits, inputs, step=inputs, before=0)
        return cls(numbers, torch.from_numpy(found.view(np.float32)), counts)

    @property
    def recur(self) -> bool:
        """Whether so few rows are distinct that this is faster than slot by slot."""
        return 16 * len(self.rows) <= self.numbers.size

    def with_rows(self, rows: Tensor) -> Distinct:
        """The same slots with other rows."""
        return replace(self, rows=rows)

    def convolved(self, convolution: nn.Conv2d) -> tuple[Distinct, np.ndarray]:
        """Results of a convolution with kernel 3, padded by 1, and the row in the middle of each."""
        numbers, triples, counts = _distinct_tuples(self.numbers, 3, step=1, before=1)
        filters = convolution.out_channels
        by_slot = convolution.weight.squeeze(2).permute(1, 2, 0).reshape(-1, 3 * filters)
        sums: Tensor = _Sums.apply(self.rows @ by_slot, triples)
        assert convolution.bias is not None
        return Distinct(numbers, sums + convolution.bias, counts), triples[:, 1]

    def normalised(self, norm: nn.BatchNorm2d) -> Tensor:
        """The rows after batch normalisation; the norm's running mean and variance are updated."""
        n = self.numbers.size
        rows, mean, variance = _Normalised.apply(self.rows, self.counts / n, norm.weight, norm.bias, norm.eps)
        remember(norm, mean, variance, n)
        found: Tensor = rows
        return found

    def pooled(self, slots: int) -> Distinct:
        """The greatest result of each channel in pools of so many slots; a remainder makes a pool, too."""
        numbers, tuples, counts = _distinct_tuples(self.numbers, slots, step=slots, before=0)
        return Distinct(numbers, _Greatest.apply(self.rows, tuples), counts)

    def steps(self) -> Tensor:
        """Every slot's row: windows x slots x channels."""
        windows, slots = self.numbers.shape
        return selected(self.rows, self.numbers.reshape(-1)).reshape(windows, slots, -1)


def selected(rows: Tensor, numbers: np.ndarray) -> Tensor:
    """The rows with these numbers."""
    found: Tensor = _Sums.apply(rows, numbers.reshape(-1, 1))
    return found


def _distinct_tuples(
    numbers: np.ndarray, width: int, *, step: int, before: int
) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """The number of the tuple at each place, the distinct tuples, and how often each occurs."""
    windows, slots = numbers.shape
    places = -(-slots // step)
    at = np.empty((windows, places), np.int32)
    tuples = np.empty((windows * places, width), np.int32)
    counts = np.empty(windows * places, np.int64)
    first_of_hash = np.zeros(1 << (2 * windows * places).bit_length(), np.int32)
    found = _number_tuples(numbers, step, before, at, tuples, counts, first_of_hash)
    return at, tuples[:found].copy(), torch.from_numpy(counts[:found]).float()


@kernel
def _number_tuples(
    numbers: np.ndarray, step: int, before: int, at: np.ndarray, tuples: np.ndarray, counts: np.ndarray,
    first_of_hash: np.ndarray,
) -> int:  # fmt: skip
    """Number the tuples in the order in which they first occur.

    Parameters
    ----------
    numbers : int32 array, windows x slots
    step : int
        Slots from one place to the next.
    before : int
        Slots of a tuple before its place.
    at : int32 array, windows x places
        Becomes the tuple at each place.
    tuples : int32 array, places of all windows x slots of a tuple
        Becomes the distinct tuples.
    counts : int64 array, places of all windows
        Becomes how often each occurs.
    first_of_hash : int32 array
        Zeros, at least twice as many as places, a power of two: becomes the number, plus one, of a tuple with this
        hash.

    Returns
    -------
    int
        How many are distinct.
    """
    windows, slots = numbers.shape
    width = tuples.shape[1]
    mask = len(first_of_hash) - 1
    found = 0
    for window in range(windows):
        for place in range(at.shape[1]):
            begin = place * step - before
            mixed = np.uint64(width)
            for k in range(width):
                slot = begin + k
                value = numbers[window, slot] if 0 <= slot < slots else np.int32(_OUTSIDE)
                tuples[found, k] = value
                mixed = (mixed ^ np.uint64(np.uint32(value))) * np.uint64(0x9E3779B97F4A7C15)
                mixed ^= mixed >> np.uint64(29)
            entry = np.int64(mixed >> np.uint64(20)) & mask
            while True:
                known = first_of_hash[entry] - 1
                if known < 0:
                    first_of_hash[entry] = found + 1
                    at[window, place] = found
                    counts[found] = 1
                    found += 1
                    break
                same = True
                for k in range(width):
                    same &= tuples[known, k] == tuples[found, k]
                if same:
                    at[window, place] = known
                    counts[known] += 1
                    break
                entry = (entry + 1) & mask
    return found


class _Sums(torch.autograd.Function):
    """Sums of parts of rows: of the first part of a tuple's first row, the second part of its second row, and so on."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, tuples: np.ndarray) -> Tensor:
        ctx.saved = rows.shape, tuples
        sums = torch.empty((len(tuples), rows.shape[1] // tuples.shape[1]))
        _add_rows(rows.numpy(), tuples, sums.numpy())
        return sums

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        shape, tuples = ctx.saved
        by_row = torch.zeros(shape)
        _add_to_rows(by_row.numpy(), tuples, gradient.contiguous().numpy())
        return by_row, None


@kernel(fastmath=True)
def _add_rows(rows: np.ndarray, tuples: np.ndarray, sums: np.ndarray) -> None:
    n, filters = sums.shape
    for i in range(n):
        total = sums[i]
        total[:] = np.float32(0.0)
        for k in range(tuples.shape[1]):
            if tuples[i, k] != _OUTSIDE:
                part = rows[tuples[i, k], k * filters : (k + 1) * filters]
                for f in range(filters):
                    total[f] += part[f]


@kernel(fastmath=True)
def _add_to_rows(rows: np.ndarray, tuples: np.ndarray, sums: np.ndarray) -> None:
    n, filters = sums.shape
    for i in range(n):
        total = sums[i]
        for k in range(tuples.shape[1]):
            if tuples[i, k] != _OUTSIDE:
                part = rows[tuples[i, k], k * filters : (k + 1) * filters]
                for f in range(filters):
                    part[f] += total[f]


class _Normalised(torch.autograd.Function):
    """Batch normalisation of rows that stand for shares of all slots."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, shares: Tensor, scale: Tensor, shift: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean = shares @ rows
        centred = rows - mean
        variance = shares @ centred.square()
        deviation = (variance + eps).sqrt()
        standard = centred.div_(deviation)
        ctx.save_for_backward(standard, shares, scale, deviation)
        ctx.mark_non_differentiable(mean, variance)
        return torch.addcmul(shift, standard, scale), mean, variance

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        standard, shares, scale, deviation = ctx.saved_tensors
        by_shift = gradient.sum(0)
        by_scale = (gradient * standard).sum(0)
        by_rows = torch.addcmul(by_shift, standard, by_scale).mul_(shares[:, None])
        by_rows = (gradient - by_rows).mul_(scale / deviation)
        return by_rows, None, by_scale, by_shift, None


class _Greatest(torch.autograd.Function):
    """The greatest value of each channel among the rows of a tuple; of equal ones, the first."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, tuples: np.ndarray) -> Tensor:
        greatest = torch.empty((len(tuples), rows.shape[1]))
        where = np.empty(greatest.shape, np.int32)
        _find_greatest(rows.numpy(), tuples, greatest.numpy(), where)
        ctx.saved = rows.shape, where
        return greatest

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        shape, where = ctx.saved
        by_row = torch.zeros(shape)
        _add_to_greatest(by_row.numpy(), where, gradient.contiguous().numpy())
        return by_row, None


@kernel
def _find_greatest(rows: np.ndarray, tuples: np.ndarray, greatest: np.ndarray, where: np.ndarray) -> None:
    n, channels = greatest.shape
    for i in range(n):
        top, at = greatest[i], where[i]
        top[:] = rows[tuples[i, 0]]
        at[:] = tuples[i, 0]
        for k in range(1, tuples.shape[1]):
            number = tuples[i, k]
            if number == _OUTSIDE:
                break
            row = rows[number]
            for c in range(channels):
                better = row[c] > top[c]
                at[c] = number if better else at[c]
                top[c] = row[c] if better else top[c]


@kernel
def _add_to_greatest(rows: np.ndarray, where: np.ndarray, gradient: np.ndarray) -> None:
    n, channels = where.shape
    for i in range(n):
        for c in range(channels):
            rows[where[i, c], c] += gradient[i, c]
