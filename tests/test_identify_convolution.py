"""The convolution along time is the library's: results, gradients and answers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

torch = pytest.importorskip("torch", reason="the networks need torch: the extra 'train'")

from cctoolkit.identify.convolution import TimeConvolution  # noqa: E402


@settings(deadline=None)
@given(
    windows=st.integers(1, 4),
    channels=st.integers(1, 6),
    filters=st.integers(1, 6),
    kernel=st.sampled_from([1, 3, 5, 9]),
    slots=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_results_and_gradients_are_the_library_s(
    windows: int, channels: int, filters: int, kernel: int, slots: int, seed: int
) -> None:
    torch.manual_seed(seed)
    own = TimeConvolution(channels, filters, kernel).double().train()
    library = torch.nn.Conv2d(channels, filters, (1, kernel), padding=(0, kernel // 2)).double()
    library.load_state_dict(own.state_dict())
    x = torch.randn(windows, channels, 1, slots, dtype=torch.double)
    asked = torch.randn(windows, filters, 1, slots, dtype=torch.double)
    found = []
    for layer in (own, library):
        begin = x.clone().contiguous(memory_format=torch.channels_last).requires_grad_()
        y = layer(begin)
        found.append([y.detach(), *torch.autograd.grad(y, [begin, layer.weight, layer.bias], asked)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("channels", [1, 3])
def test_results_are_channels_last(channels: int) -> None:
    """A layout that the layers after it need not change."""
    layer = TimeConvolution(channels, 4, 3).to(memory_format=torch.channels_last)
    x = torch.rand(2, channels, 1, 10).contiguous(memory_format=torch.channels_last)
    assert layer(x).is_contiguous(memory_format=torch.channels_last)


def test_answers_are_the_library_s_own() -> None:
    """Outside training nothing is replaced, so that a network can be exported."""
    layer = TimeConvolution(2, 3, 3).eval()
    x = torch.rand(2, 2, 1, 10)
    assert "TimeConvolution" not in str(layer(x).grad_fn)
    assert "TimeConvolution" in str(layer.train()(x).grad_fn)
