"""Writing fitted classifiers as a model's folder (:mod:`.bundle`), which needs the extra ``train``."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._support.atomic import replacing
from .._support.version import __version__
from ..errors import ParameterError
from .bundle import ABOUT, FORMAT
from .inputs import ANY_LENGTH, BIN_CHANNELS, BINS, VIEW_INPUTS, VIEWS

if TYPE_CHECKING:
    from .classifiers import SummaryClassifier, _NetworkClassifier

__all__ = ["save_model", "save_models", "write_onnx", "write_onnx_trees"]

#: Bins of a cut-off view in the example given to torch's exporter: three strided convolutions leave two of nine, and
#: it needs more than one. The exported network also takes one bin.
_LEAST_BINS = 9


def _parameters(classifier: Any) -> dict[str, Any]:
    """The parameters that define a training; for a pretrained model its name only, not its location."""
    found = {k: v for k, v in classifier.get_params().items() if k not in ("checkpoint", "progress")}
    if found.get("pretrained") is not None:
        found["pretrained"] = Path(found["pretrained"]).name
    return found


def write_onnx(classifier: _NetworkClassifier, path: str | os.PathLike[str]) -> Path:
    """Write the network of a fitted classifier as ONNX, with the output ``scores`` for any number of windows.

    The input is ``X``, as prepared; for a classifier of any length, each of its views, all but the first with as many
    bins as needed.

    Raises
    ------
    ParameterError
        The extra ``train`` is incomplete: torch's exporter needs onnx and onnxscript.
    """
    import torch

    network = classifier.network_.eval()
    windows = torch.export.Dim("windows", min=1)
    if classifier.preparation == "scale_view":
        names = list(VIEWS)
        examples = tuple(torch.zeros(2, len(BIN_CHANNELS), BINS - i) for i in range(len(VIEWS)))
        bins = [torch.export.Dim(f"{view}_bins", min=_LEAST_BINS, max=BINS) for view in VIEWS[1:]]
        shapes: Any = {"x": {0: windows}, "others": tuple({0: windows, 2: b} for b in bins)}
    else:
        names = ["X"]
        examples = (torch.zeros(2, *_prepared_shape(classifier)),)
        shapes = {"x": {0: windows}}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # torchvision is missing, and not needed
    with replacing(path) as tmp, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # by torch about its own exporter
        try:
            torch.onnx.export(
                network, examples, str(tmp), input_names=names, output_names=["scores"],
                dynamic_shapes=shapes, dynamo=True, external_data=False, verbose=False,
            )  # fmt: skip
            import onnx

            model = onnx.load(tmp)
        except ModuleNotFoundError as err:
            raise ParameterError(f"saving needs {err.name}: pip install 'cctoolkit[train]'") from None
        _strip(model)
        onnx.save(model, tmp)
    return Path(path)


def write_onnx_trees(classifier: SummaryClassifier, path: str | os.PathLike[str]) -> Path:
    """The trees of a fitted SummaryClassifier as ONNX: input ``X``, summaries of windows; output ``scores``.

    Raises
    ------
    ParameterError
        onnx, of the extra ``train``, is missing.

    Notes
    -----
    ONNX compares 32-bit numbers. A threshold becomes the greatest 32-bit number that does not exceed it, so that each
    summary, also of 32 bits, takes the same branch as in scikit-learn, whose trees are only available as private
    attributes.
    """
    try:
        from onnx import TensorProto, helper, save
    except ModuleNotFoundError as err:
        raise ParameterError(f"saving needs {err.name}: pip install 'cctoolkit[train]'") from None

    trees: Any = classifier.trees_
    rounds = trees._predictors  # a tree for each class in each; for two classes one, which is the second's
    first = int(len(classifier.classes_) == 2)
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    }
    leaves: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for tree, (target, predictor) in enumerate(
        pair for trees_ in rounds for pair in enumerate(trees_, first)
    ):
        nodes = predictor.nodes
        is_leaf = nodes["is_leaf"].astype(bool)
        at = np.arange(len(nodes))
        low = nodes["num_threshold"].astype(np.float32)
        low = np.where(low > nodes["num_threshold"], np.nextafter(low, np.float32(-np.inf)), low)
        columns["treeids"] += [tree] * len(nodes)
        columns["nodeids"] += at.tolist()
        columns["featureids"] += np.where(is_leaf, 0, nodes["feature_idx"]).astype(int).tolist()
        columns["values"] += np.where(is_leaf, 0, low).astype(float).tolist()
        columns["modes"] += ["LEAF" if leaf else "BRANCH_LEQ" for leaf in is_leaf]
        columns["truenodeids"] += np.where(is_leaf, 0, nodes["left"]).astype(int).tolist()
        columns["falsenodeids"] += np.where(is_leaf, 0, nodes["right"]).astype(int).tolist()
        leaves["treeids"] += [tree] * int(is_leaf.sum())
        leaves["nodeids"] += at[is_leaf].tolist()
        leaves["ids"] += [target] * int(is_leaf.sum())
        leaves["weights"] += nodes["value"][is_leaf].astype(float).tolist()
    base = [0.0] * first + trees._baseline_prediction.ravel().astype(float).tolist()
    attributes: dict[str, Any] = {f"nodes_{name}": values for name, values in columns.items()}
    attributes |= {f"target_{name}": values for name, values in leaves.items()}
    node = helper.make_node(
        "TreeEnsembleRegressor", ["X"], ["scores"], domain="ai.onnx.ml", n_targets=len(base), base_values=base,
        **attributes,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "trees",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["windows", trees.n_features_in_])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["windows", len(base)])],
    )  # fmt: skip
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    with replacing(path) as tmp:
        save(helper.make_model(graph, opset_imports=versions, ir_version=8), tmp)
    return Path(path)


def _strip(model: Any) -> None:
    """Remove what torch's exporter records about the machine: paths and source lines."""
    for part in (model.graph, *model.graph.node, *model.graph.value_info, *model.graph.initializer,
                 *model.graph.input, *model.graph.output, *model.functions):  # fmt: skip
        del part.metadata_props[:]
        part.doc_string = ""


def _prepared_shape(classifier: _NetworkClassifier) -> tuple[int, int]:
    ready = classifier._prepared(np.zeros((1, *classifier.shape_in_), np.float32))
    return ready.shape[1], ready.shape[2]


def save_model(
    classifier: _NetworkClassifier | SummaryClassifier, directory: str | os.PathLike[str], **facts: Any
) -> Path:
    """Write one classifier as a model's folder; see :func:`save_models`."""
    return save_models([classifier], directory, **facts)


def save_models(
    classifiers: Sequence[_NetworkClassifier | SummaryClassifier],
    directory: str | os.PathLike[str],
    *,
    windows_ms: Sequence[float] | None = None,
    data: str = "",
    results: pd.DataFrame | None = None,
    limits: str = "",
    provenance: Mapping[str, Any] | None = None,
) -> Path:
    """Write fitted classifiers of one kind, one per window length, as one model.

    Parameters
    ----------
    classifiers : sequence
        Classifiers fitted on Windows, so that inputs and slots are known.
    directory : path
    windows_ms : sequence of float, optional
        Training lengths; required for a classifier of any length.
    data, limits : str
        For the model card: the training data and its split; where not to trust the model.
    results : DataFrame, optional
        For the model card: scores.
    provenance : mapping, optional
        For ``model.json``: commands, versions, seeds, hashes of the data.

    Returns
    -------
    Path

    Raises
    ------
    ParameterError
        Classifiers were fitted on plain arrays, or do not belong together.

    See Also
    --------
    cctoolkit.identify.bundle.load : read a model
    cctoolkit.identify.bundle.bundled_models : models of the package

    Examples
    --------
    >>> recordings = [cct.identify.record(cct.example(name)) for name in ("cubic", "bbr")]
    >>> windows = cct.identify.cut_windows(recordings, 500, "cbiq+throughput", per_flow=8)
    >>> classifier = cct.identify.DragonflyClassifier(epochs=1, device="cpu").fit(windows)
    >>> folder = cct.identify.save_models([classifier], "my-model")
    >>> cct.identify.load(folder).windows_ms
    (500.0,)
    """
    from .card import write_card

    folder = Path(directory)
    first = classifiers[0]
    for classifier in classifiers:
        if not hasattr(classifier, "inputs_") and first.preparation not in ANY_LENGTH:
            raise ParameterError("classifier: expected one fitted on Windows, so that its inputs have names")
        if type(classifier) is not type(first) or list(classifier.classes_) != list(first.classes_):
            raise ParameterError("classifiers: expected one kind with the same classes")
    any_length = first.preparation in ANY_LENGTH
    inputs = VIEW_INPUTS if any_length else first.inputs_
    slot_ms = getattr(first, "slot_ms_", 1.0)
    if any_length and not windows_ms:
        raise ParameterError("windows_ms: expected the lengths it was trained on")
    lengths = list(windows_ms) if windows_ms else [c.shape_in_[0] * slot_ms for c in classifiers]
    folder.mkdir(parents=True, exist_ok=True)
    networks = []
    for classifier in classifiers:
        slots = None if any_length else int(classifier.shape_in_[0])
        file = "network.onnx" if slots is None else f"network-{slots * slot_ms:g}ms.onnx"
        write: Any = write_onnx_trees if first.preparation == "summaries" else write_onnx
        path = write(classifier, folder / file)
        networks.append(
            {"slots": slots, "file": file, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        )
    about = {
        "format": FORMAT,
        "cctoolkit": __version__,
        "classifier": type(first).__name__,
        "parameters": _parameters(first),
        "classes": [str(c) for c in getattr(first, "learnt_", first.classes_)],
        "inputs": list(inputs),
        "preparation": first.preparation,
        "slot_ms": slot_ms,
        "windows_ms": [float(ms) for ms in lengths],
        "networks": networks,
        "temperature": np.asarray(getattr(first, "temperature_", [])).tolist(),
        "least": np.asarray(getattr(first, "least_", [])).tolist(),
        "other": getattr(first, "other", "other"),
        "alike": {name: list(ccas) for name, ccas in (getattr(first, "alike", None) or {}).items()},
        "data": data,
        "limits": limits,
        "provenance": dict(provenance or {}),
    }
    with replacing(folder / ABOUT) as tmp:
        tmp.write_text(json.dumps(about, indent=1, default=str) + "\n", encoding="utf-8")
    write_card(folder, about, results)
    return folder
