"""A convolution along time for training on a CPU: torch's results, with gradients from matrix products.

On a CPU, torch's own gradient of a convolution's weights takes most of a network's training. That gradient is a sum
over all slots of products of input and gradient of the output. One matrix product per slot of the kernel gives the same
sum, several times as fast. Needs the extra ``train``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

__all__ = ["TimeConvolution"]


class TimeConvolution(nn.Conv2d):
    """A convolution along the last axis of images one pixel high, channels last, padded to keep the ends.

    Parameters
    ----------
    channels, filters : int
    kernel : int
        Slots of the kernel, an odd number.
    """

    def __init__(self, channels: int, filters: int, kernel: int) -> None:
        super().__init__(channels, filters, (1, kernel), padding=(0, kernel // 2))

    def forward(self, x: Tensor) -> Tensor:
        """What :class:`torch.nn.Conv2d` gives, up to rounding, and with the same gradients."""
        if not self.training or x.device.type != "cpu" or not torch.is_grad_enabled():
            return super().forward(x)
        found: Tensor = _TimeConvolution.apply(x, self.weight, self.bias)
        return found


class _TimeConvolution(torch.autograd.Function):
    """The convolution as a function of its input and weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        filters, channels, _, kernel = weight.shape
        if channels > 1:
            return conv2d(x, weight, bias, padding=(0, kernel // 2))
        # of one channel, torch would leave its results in another layout
        windows, _, _, slots = x.shape
        around = pad(x.reshape(windows, slots), (kernel // 2, kernel // 2)).unfold(1, kernel, 1)
        y = torch.addmm(bias, around.reshape(-1, kernel), weight.reshape(filters, kernel).T)
        return y.reshape(windows, 1, slots, filters).permute(0, 3, 1, 2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        by_input = None
        if ctx.needs_input_grad[0]:  # a convolution of the gradient, with the kernel turned around
            turned = weight.flip(3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
            by_input = conv2d(gradient, turned, padding=(0, weight.shape[3] // 2))
        return by_input, _by_weight(x, gradient, weight.shape[3]), gradient.sum((0, 2, 3))


def _by_weight(x: Tensor, gradient: Tensor, kernel: int) -> Tensor:
    """The gradient of the weights: filters x channels x 1 x kernel.

    Windows lie behind one another, so that a shift by some slots pairs ends of windows with their neighbours; those
    pairs are taken out again.
    """
    x, gradient = (part.permute(0, 2, 3, 1).squeeze(1) for part in (x, gradient))
    windows, slots, _ = x.shape
    inputs, wanted = x.reshape(windows * slots, -1), gradient.reshape(windows * slots, -1)
    found = []
    for shift in range(-(kernel // 2), kernel // 2 + 1):
        if abs(shift) >= slots:  # only zeros are so far away
            found.append(torch.zeros_like(wanted[0, :, None] * inputs[0]))
            continue
        later, earlier = max(-shift, 0), max(shift, 0)  # slots without a partner, at the begin and at the end
        part = wanted[later : len(wanted) - earlier].T @ inputs[earlier : len(inputs) - later]
        for i in range(max(later, earlier)):
            if later:
                part -= gradient[1:, i].T @ x[:-1, slots - later + i]
            else:
                part -= gradient[:-1, slots - earlier + i].T @ x[1:, i]
        found.append(part)
    return torch.stack(found, dim=2).unsqueeze(2)
