"""The training loop that all networks share: batches, early stopping, checkpoints, mixed precision.

Needs the extra ``train``.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._support.atomic import replacing
from .._support.waiting import progress_bar
from .._support.words import first_line
from ..errors import ParameterError

__all__ = ["Recipe", "device_named", "train_network", "use_large_pages"]

#: Scores and targets to a loss.
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Parameters
    ----------
    epochs, batch : int
    learning_rate : float
    schedule : str
        ``"step"``: 0.9 of the rate every 25 epochs (the paper's code); ``"one_cycle"``: up and down once, to four
        times the rate.
    weight_decay : float
    patience : int, optional
        Stop after this many epochs without a lower validation loss, and keep the best network.
    seed : int
    device : str
        ``"auto"``: a GPU when there is one, in mixed precision.
    """

    epochs: int = 100
    batch: int = 32
    learning_rate: float = 1e-4
    schedule: str = "step"
    weight_decay: float = 0.0
    patience: int | None = None
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        for name, minimum in (("epochs", 1), ("batch", 2)):  # batch normalisation needs two
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < minimum:
                raise ParameterError(f"{name}: {value!r} is not a whole number of at least {minimum}")
        if not self.learning_rate > 0:
            raise ParameterError(f"learning_rate: {self.learning_rate!r} must be positive")
        if self.schedule not in ("step", "one_cycle"):
            raise ParameterError(f"schedule: {self.schedule!r} is neither 'step' nor 'one_cycle'")


@dataclass
class _State:
    """The state of training, and the best network so far."""

    epoch: int = 0
    best_loss: float = float("inf")
    best_epoch: int = 0
    best: dict[str, Tensor] | None = None
    history: list[dict[str, float]] = field(default_factory=list)


def train_network(
    network: nn.Module,
    X: np.ndarray,
    y: np.ndarray,
    loss: Loss,
    recipe: Recipe,
    *,
    rows: np.ndarray | None = None,
    validation: tuple[np.ndarray, np.ndarray] | None = None,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
    after_epoch: Callable[[int, nn.Module], dict[str, float]] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    identity: object = None,
    progress: bool = False,
) -> list[dict[str, float]]:
    """Train a network in place.

    Parameters
    ----------
    network : Module
    X : float32 or float16 array, windows x inputs x slots
    y : integer array
        Numbers of classes.
    loss : function
    recipe : Recipe
    rows : integer array, optional
        Windows to learn from, by default all; a copy of them would double the memory.
    validation : (X, y), optional
        Windows of other runs.
    augment : function of (batch, generator), optional
        Changes each batch.
    after_epoch : function of (epoch, network), optional
        Its results go into the history.
    checkpoint : path, optional
        Written after every epoch, resumed from if it exists and belongs to the same training, removed at the end.
    identity : object, optional
        What else identifies this training: its ``repr`` stands for the settings of `loss` and `augment`, which cannot
        be compared. Windows, labels, recipe and layers are always compared.
    progress : bool

    Returns
    -------
    list of dict
        ``epoch``, ``loss``, ``validation_loss`` of each epoch.

    Raises
    ------
    ParameterError
        The checkpoint belongs to another training.
    """
    device = device_named(recipe.device)
    mixed = device.type == "cuda"
    network.to(device)
    inputs, targets = torch.from_numpy(X), torch.from_numpy(np.asarray(y, np.int64))
    if mixed:  # windows are small: all of them fit beside the network
        inputs, targets = inputs.to(device), targets.to(device)
    learnt = torch.arange(len(X)) if rows is None else torch.from_numpy(rows)
    steps = -(-len(learnt) // recipe.batch)
    optimiser = torch.optim.AdamW(
        network.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay, fused=mixed or None
    )
    scheduler: Any
    if recipe.schedule == "step":
        scheduler = torch.optim.lr_scheduler.StepLR(optimiser, 25, 0.9)
    else:
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, 4 * recipe.learning_rate, epochs=recipe.epochs, steps_per_epoch=steps
        )
    scaler = torch.amp.GradScaler("cuda", enabled=mixed)
    generator = torch.Generator().manual_seed(recipe.seed)
    state = _State()
    path = Path(checkpoint) if checkpoint is not None else None
    training = _fingerprint((recipe, network, identity), X, y, learnt.numpy(), *(validation or ()))
    if path is not None and path.is_file():
        _resume(path, training, state, network, optimiser, scheduler, generator, scaler)

    bar = progress_bar(total=recipe.epochs, initial=state.epoch, unit="epoch", disable=not progress)
    with bar:
        while state.epoch < recipe.epochs and not _converged(state, recipe):
            network.train()
            total = torch.zeros(
                (), dtype=torch.float64, device=device
            )  # read once an epoch: a GPU works ahead
            for places in torch.randperm(len(learnt), generator=generator).split(recipe.batch):
                if len(places) < 2 <= len(learnt):
                    continue  # batch normalisation needs two
                chosen = learnt[places].to(inputs.device)
                batch, wanted = inputs[chosen].to(device, torch.float32), targets[chosen].to(device)
                if augment is not None:
                    batch = augment(batch, generator)
                with torch.autocast("cuda") if mixed else contextlib.nullcontext():
                    value = loss(network(batch), wanted)
                optimiser.zero_grad()
                scaler.scale(value).backward()
                scaler.step(optimiser)
                scaler.update()
                if recipe.schedule == "one_cycle":
                    scheduler.step()
                total += value.detach().double() * len(places)
            if recipe.schedule == "step":
                scheduler.step()
            _finish_epoch(state, network, total.item() / len(learnt), loss, validation, after_epoch, device)
            bar.update()
            bar.set_postfix(loss=f"{state.history[-1]['loss']:.3f}")
            if path is not None:
                _save(path, training, state, network, optimiser, scheduler, generator, scaler)
    if state.best is not None:
        network.load_state_dict(state.best)
    network.to("cpu").eval()
    if path is not None:
        path.unlink(missing_ok=True)
    return state.history


def use_large_pages() -> None:
    """Have torch put large tensors into large pages (Linux): much of the time of long windows is spent on new pages.

    torch asks once, at its first tensor, so call this before any is made.
    """
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def device_named(name: str) -> torch.device:
    """A device by torch's name; ``"auto"``: a GPU if there is one.

    Raises
    ------
    ParameterError
        There is no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as err:
        raise ParameterError(f"device: {name}: {first_line(err)}") from None


def _converged(state: _State, recipe: Recipe) -> bool:
    return (
        recipe.patience is not None
        and state.best is not None
        and state.epoch - state.best_epoch >= recipe.patience
    )


def _finish_epoch(
    state: _State, network: nn.Module, mean_loss: float, loss: Loss,
    validation: tuple[np.ndarray, np.ndarray] | None,
    after_epoch: Callable[[int, nn.Module], dict[str, float]] | None, device: torch.device,
) -> None:  # fmt: skip
    state.epoch += 1
    row: dict[str, float] = {"epoch": state.epoch, "loss": mean_loss}
    network.eval()
    if validation is not None:
        with torch.inference_mode():
            X, y = (torch.from_numpy(a) for a in validation)
            values = [
                loss(network(a.to(device, torch.float32)), b.to(device)).item() * len(a)
                for a, b in zip(X.split(1024), y.split(1024), strict=True)
            ]
        row["validation_loss"] = sum(values) / len(X)
        if row["validation_loss"] < state.best_loss:
            state.best_loss, state.best_epoch = row["validation_loss"], state.epoch
            state.best = copy.deepcopy({k: v.cpu() for k, v in network.state_dict().items()})
    if after_epoch is not None:
        row |= after_epoch(state.epoch, network)
    state.history.append(row)


# ---- checkpoints -----------------------------------------------------------------------------------------------------


def _fingerprint(settings: object, *arrays: np.ndarray) -> str:
    digest = hashlib.sha256(repr(settings).encode())
    for array in arrays:
        digest.update(repr((array.shape, array.dtype)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _save(path: Path, training: str, state: _State, network: nn.Module, *parts: Any) -> None:
    optimiser, scheduler, generator, scaler = parts
    content = {
        "training": training,
        "state": vars(state),
        "network": network.state_dict(),
        "optimiser": optimiser.state_dict(),
        "scheduler": scheduler.state_dict(),
        "generator": generator.get_state(),
        "scaler": scaler.state_dict(),
        "torch": torch.get_rng_state(),  # of dropout
    }
    whole = io.BytesIO()  # torch's own writer has errors of its own for a full disk
    torch.save(content, whole)
    with replacing(path) as tmp:
        tmp.write_bytes(whole.getbuffer())


def _resume(path: Path, training: str, state: _State, network: nn.Module, *parts: Any) -> None:
    optimiser, scheduler, generator, scaler = parts
    try:
        # tensors and plain values: nothing in the file is executed; the states move to where they are used
        found = torch.load(path, map_location="cpu", weights_only=True)
        if found["training"] != training:
            raise ParameterError(
                f"checkpoint: {path} belongs to another training (other windows or settings); remove it"
            )
        vars(state).update(found["state"])
        network.load_state_dict(found["network"])
        optimiser.load_state_dict(found["optimiser"])
        scheduler.load_state_dict(found["scheduler"])
        generator.set_state(found["generator"])
        if scaler.is_enabled() and found["scaler"]:  # none if it was saved where there is no GPU
            scaler.load_state_dict(found["scaler"])
        torch.set_rng_state(found["torch"])
    except ParameterError:
        raise
    except Exception as err:  # torch names no exception of its own for a file that is none of its
        raise ParameterError(f"checkpoint: {path} cannot be read ({type(err).__name__}); remove it") from None
