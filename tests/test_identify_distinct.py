"""DeePCCI's modules on distinct slots are its layers slot by slot: results, gradients, running statistics."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tools import examples

torch = pytest.importorskip("torch", reason="the networks need torch: the extra 'train'")

from cctoolkit.identify import networks  # noqa: E402
from cctoolkit.identify.distinct import Distinct, _distinct_tuples  # noqa: E402


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 40),
    st.sampled_from([(3, 1, 1), (4, 4, 0), (2, 2, 0)]),
    st.integers(0, 2**32),
)
def test_every_tuple_has_its_number(windows: int, slots: int, shape: tuple[int, int, int], seed: int) -> None:
    width, step, before = shape
    numbers = np.random.default_rng(seed).integers(0, 3, (windows, slots), np.int32)
    at, tuples, counts = _distinct_tuples(numbers, width, step=step, before=before)
    assert at.shape == (windows, -(-slots // step))
    for window in range(windows):
        for place in range(at.shape[1]):
            around = [place * step - before + k for k in range(width)]
            wanted = [numbers[window, slot] if 0 <= slot < slots else -1 for slot in around]
            assert tuples[at[window, place]].tolist() == wanted
    assert len(np.unique(tuples, axis=0)) == len(tuples)
    assert counts.tolist() == np.bincount(at.ravel(), minlength=len(tuples)).tolist()


def packets(windows: int, inputs: int, slots: int) -> torch.Tensor:
    """Bursts of packets, as in captures: mostly nothing."""
    rng = np.random.default_rng(slots)
    sent = rng.integers(1, 4, (windows, inputs, slots)) * (rng.random((windows, inputs, slots)) < 0.1)
    return torch.from_numpy(sent.astype(np.float32))


def learnt(network: torch.nn.Module, x: torch.Tensor) -> dict[str, np.ndarray]:
    """Scores, gradients and running statistics after two steps."""
    for batch in (x, x.flip(2)):
        network.zero_grad()
        scores = network(batch)
        wanted = torch.arange(len(x)) % 3
        (torch.nn.functional.cross_entropy(scores[:, :3], wanted) + scores[:, 3].square().mean()).backward()
    found = {"scores": scores} | {f"gradient of {name}": p.grad for name, p in network.named_parameters()}
    return {
        name: value.detach().double().numpy()
        for name, value in (found | dict(network.named_buffers())).items()
    }


@pytest.mark.parametrize(("inputs", "slots"), [(1, 100), (1, 1001), (2, 262)])
def test_distinct_slots_give_what_the_layers_give(
    inputs: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layers in double precision: torch's own sums of many float32 values are less exact than ours."""
    torch.manual_seed(slots)
    network = networks.DeepcciNet(slots, inputs).train()
    x = packets(16, inputs, slots)
    assert Distinct.of(x).recur
    layers = copy.deepcopy(network).double()
    found = learnt(network, x)
    monkeypatch.setattr(Distinct, "recur", False)
    for name, wanted in learnt(layers, x.double()).items():
        if not name.endswith(
            ("first.bias", "second.bias")
        ):  # normalisation removes them: their gradients are zero
            np.testing.assert_allclose(
                found[name], wanted, rtol=2e-3, atol=1e-3 * np.abs(wanted).max(), err_msg=name
            )


def test_a_remainder_is_a_pool() -> None:
    slots = Distinct(
        np.array([[0, 1, 2, 0, 1]], np.int32),
        torch.tensor([[-1.0, 5.0], [2.0, 5.0], [3.0, -4.0]], requires_grad=True),
        torch.tensor([2.0, 2.0, 1.0]),
    )
    pooled = slots.pooled(4)
    assert pooled.steps().tolist() == [[[3.0, 5.0], [2.0, 5.0]]]
    pooled.steps().sum().backward()
    assert slots.rows.grad is not None
    assert slots.rows.grad.tolist() == [[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]  # of equal values, the first


def test_slots_that_do_not_recur_go_through_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Distinct, "convolved", None)
    network = networks.DeepcciNet(64).train()
    assert network(torch.rand(4, 1, 64)).shape == (4, 4)
    network.eval()
    assert network(packets(4, 1, 64)).shape == (4, 4)
