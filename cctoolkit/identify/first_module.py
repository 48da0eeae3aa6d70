"""Dragonfly's first module in training, in one pass: convolution, batch normalisation and max-pooling.

Layer by layer, the module's results in every slot (60 000 slots of 50 filters in a window of a minute) go to memory and
back ten times, which takes nearly all of the time. But normalisation keeps the order of a filter's results, up to the
sign of its factor, and its mean and variance follow from those of the input. So only the slot that wins its pool needs
to be known, and the gradients need only the inputs around it. Needs the extra ``train``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._support.kernels import kernel
from .running_statistics import remember

__all__ = ["first_module"]


@kernel(fastmath=True)
def _moments(x: np.ndarray, total: np.ndarray, squares: np.ndarray) -> None:
    """Sums of the three inputs of each position, and of their products.

    `x` is windows x slots + 2 x inputs, with a slot of zeros at both ends; `total` and `squares` have a row per input
    of a kernel, slot by slot.
    """
    windows, padded, inputs = x.shape
    of_window = np.zeros((len(total), len(total)))
    for window in range(windows):
        of_window[:] = 0.0
        flat = x[window].reshape(padded * inputs)
        for slot in range(padded - 2):
            begin = slot * inputs
            for i in range(len(total)):
                value = np.float64(flat[begin + i])
                total[i] += value
                for j in range(i + 1):
                    of_window[i, j] += value * flat[begin + j]
        for i in range(len(total)):
            for j in range(i + 1):
                squares[i, j] += of_window[i, j]
                if i != j:
                    squares[j, i] += of_window[i, j]


@kernel(fastmath=True)
def _winners(x: np.ndarray, weights: np.ndarray, pool: int, best: np.ndarray, where: np.ndarray) -> None:
    """The greatest result of each filter in each pool, and its slot.

    `weights` are inputs of a kernel x filters; `best` and `where` are windows x pools x filters.
    """
    windows, padded, inputs = x.shape
    reach, filters = weights.shape
    result = np.empty(filters, np.float32)
    for window in range(windows):
        flat = x[window].reshape(padded * inputs)
        for place in range(best.shape[1]):
            top, at = best[window, place], where[window, place]
            for slot in range(place * pool, (place + 1) * pool):
                result[:] = np.float32(0.0)
                for i in range(reach):
                    value = flat[slot * inputs + i]
                    for f in range(filters):
                        result[f] += value * weights[i, f]
                if slot == place * pool:
                    top[:] = result
                    at[:] = slot
                else:
                    number = np.int32(slot)
                    for f in range(filters):
                        better = result[f] > top[f]
                        at[f] = number if better else at[f]
                        top[f] = result[f] if better else top[f]


@kernel(fastmath=True)
def _gathered(x: np.ndarray, where: np.ndarray, gradient: np.ndarray, found: np.ndarray) -> None:
    """Sums of the inputs around the winners, weighted by their gradients: inputs of a kernel x filters."""
    windows, padded, inputs = x.shape
    reach = len(found)
    part = np.empty(found.shape, np.float32)
    for window in range(windows):
        part[:] = np.float32(0.0)
        flat = x[window].reshape(padded * inputs)
        for place in range(where.shape[1]):
            for f in range(where.shape[2]):
                weight = gradient[window, place, f]
                begin = where[window, place, f] * inputs
                for i in range(reach):
                    part[i, f] += weight * flat[begin + i]
        for i in range(reach):
            for f in range(where.shape[2]):
                found[i, f] += part[i, f]


class _FirstModule(torch.autograd.Function):
    """The module as a function of its weights; the inputs of a network need no gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, scale: Tensor, shift: Tensor, eps: float, pool: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        windows, inputs, slots = x.shape
        padded = np.zeros((windows, slots + 2, inputs), np.float32)
        padded[:, 1:-1] = x.numpy().transpose(0, 2, 1)
        by_input = weight[:, :, 0].permute(2, 1, 0).reshape(3 * inputs, -1).double().numpy()
        total, squares = np.zeros(3 * inputs), np.zeros((3 * inputs, 3 * inputs))
        _moments(padded, total, squares)
        n = windows * slots
        mean = total / n
        covariance = squares / n - np.outer(mean, mean)
        variance = np.einsum("if,ij,jf->f", by_input, covariance, by_input).clip(0)
        factor = scale.double().numpy()
        signs = np.where(factor < 0, -1.0, 1.0)
        best = np.empty((windows, slots // pool, len(signs)), np.float32)
        where = np.empty(best.shape, np.int32)
        _winners(padded, np.ascontiguousarray(by_input * signs, np.float32), pool, best, where)
        deviation = np.sqrt(variance + eps)
        best *= (np.abs(factor) / deviation).astype(np.float32)
        best += (shift.double().numpy() - factor / deviation * (mean @ by_input)).astype(np.float32)
        ctx.saved = padded, where, by_input, mean, covariance, factor, deviation
        like_torch = torch.from_numpy(best).unsqueeze(1).permute(0, 3, 1, 2)  # channels last
        found = torch.from_numpy(mean @ by_input), torch.from_numpy(variance)
        ctx.mark_non_differentiable(*found)
        return like_torch, *found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        padded, where, by_input, mean, covariance, factor, deviation = ctx.saved
        gradient = np.ascontiguousarray(gradients[0].permute(0, 2, 3, 1)[:, 0].numpy())
        around = np.zeros(by_input.shape)
        _gathered(padded, where, gradient, around)
        shift = gradient.sum(axis=(0, 1), dtype=np.float64)
        centred = around - np.outer(mean, shift)
        by_scale = (by_input * centred).sum(axis=0) / deviation
        by_weight = factor / deviation * (centred - by_scale / deviation * (covariance @ by_input))
        weight = torch.from_numpy(by_weight.astype(np.float32)).reshape(3, -1, len(shift)).permute(2, 1, 0)
        scale_and_shift = (torch.from_numpy(part.astype(np.float32)) for part in (by_scale, shift))
        return None, weight.unsqueeze(2), *scale_and_shift, None, None


def first_module(x: Tensor, convolution: nn.Conv2d, norm: nn.BatchNorm2d, pool: int) -> Tensor:
    """Pooled results of a convolution with kernel 3 and its batch normalisation, in training.

    Parameters
    ----------
    x : float32 Tensor, windows x inputs x slots
        On the CPU.
    convolution : Conv2d
        Kernel 1 x 3, padded by 1.
    norm : BatchNorm2d
        Its running mean and variance are updated.
    pool : int
        Slots of a pool.

    Returns
    -------
    Tensor, windows x filters x 1 x pools
        What ``MaxPool2d((1, pool))(norm(convolution(x)))`` is, up to rounding, and with the same gradients. The
        convolution's bias has none, because normalisation removes it.
    """
    pooled, mean, variance = _FirstModule.apply(x, convolution.weight, norm.weight, norm.bias, norm.eps, pool)
    assert convolution.bias is not None
    remember(norm, mean.float() + convolution.bias.detach(), variance, x.shape[0] * x.shape[2])
    return pooled
