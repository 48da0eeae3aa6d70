"""What a batch normalisation remembers of its batches, for code that normalises instead of it. Needs ``train``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["remember"]


@torch.no_grad()
def remember(norm: nn.BatchNorm2d, mean: Tensor, variance: Tensor, n: int) -> None:
    """Update the running mean and variance as the norm itself does.

    Parameters
    ----------
    norm : BatchNorm2d
    mean, variance : Tensor
        Of a batch, by channel; the variance is that of the batch itself.
    n : int
        Values of a channel in the batch.
    """
    assert norm.running_mean is not None and norm.running_var is not None
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked += 1
    share = norm.momentum if norm.momentum is not None else 1 / float(norm.num_batches_tracked)
    norm.running_mean.lerp_(mean, share)
    norm.running_var.lerp_((variance * n / (n - 1)).float(), share)
