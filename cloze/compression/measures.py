"""What `cloze compress` needs to know of a network: the importance of its heads, and which layers get more bits.

Both are measured here, or read from what `cloze probe` wrote. Layers whose loss bends most sharply get more bits (Q-BERT).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.changes.compressing.attentions import KIND_OF
from cloze.checkpoint.build import Loaded
from cloze.errors import CheckpointError
from cloze.interop.files import read_json
from cloze.probes.curvature import curvature, layer_weights
from cloze.probes.gates import head_kinds
from cloze.probes.heads import Scores, importance, ordered
from cloze.probes.losses import LossExamples, task_examples, text_examples

FILE = "probe.json"
SENTENCES, EXAMPLES = 5000, 200  # that are measured: for heads, for layers


def head_changes(loaded: Loaded, share: float, scores: Scores) -> list[tuple[str, Mapping[str, Any]]]:
    """The changes that prune the `share` of all heads with the lowest scores, each kind of attention by one change.

    Raises:
        CheckpointError: The scores are those of a network with other heads.
        UserError: The network has no heads.
    """
    expected = {kind.argument: (kind.layers, kind.heads) for kind in head_kinds(loaded.network)}
    shapes = {argument: matrix.shape for argument, matrix in scores.items()}
    if shapes != expected:
        raise CheckpointError(
            f"{loaded.folder}: the scores are those of a network with other heads: {_shapes(shapes)}; this one has "
            f"{_shapes(expected)} (layers × heads).\n  Measure its own: cloze probe heads {loaded.folder} --text FILE --out DIR"
        )
    order = ordered(scores)
    pruned = order[: int(share * len(order) + 1e-6)]
    pruned_heads = {
        argument: sorted([head.layer, head.head] for head in pruned if head.argument == argument) for argument in scores
    }
    return [("prune_heads", {"heads": heads, "of": KIND_OF[argument]}) for argument, heads in pruned_heads.items() if heads]


def read_scores(path: Path, loaded: Loaded) -> Scores:
    """The importance of heads from the file or the folder of `cloze probe heads`; a `CheckpointError` for any other file."""
    finding = read_finding(path, loaded, "heads", holds="importance of heads")
    return {str(argument): np.array(rows, dtype=np.float64) for argument, rows in finding["importance"].items()}


def measured_scores(loaded: Loaded, *, task: str | None, text: str | None) -> tuple[Scores, list[str]]:
    """The importance of heads on labelled rows (`NAME=FILE`, or a file) or on texts, and remarks."""
    head_kinds(loaded.network)  # refuses a network without attention before anything is read
    examples = examples_of(loaded, task=task, text=text, most=SENTENCES)
    return importance(examples), list(examples.remarks)


def bits_by_layer(sensitivity: NDArray[np.float64], levels: Sequence[int]) -> list[int]:
    """A number of bits for each layer (N): equally many layers for each level, the most sensitive ones with the most bits.

    If the numbers of layers differ, larger levels get one more.

    >>> bits_by_layer(np.array([0.1, 5.0, 2.0]), [2, 4])
    [2, 4, 4]
    """
    bits = [0] * len(sensitivity)
    order = (-sensitivity).argsort(kind="stable")
    for level, layers in zip(sorted(levels, reverse=True), np.array_split(order, len(levels)), strict=True):
        for layer in layers.tolist():
            bits[layer] = level
    return bits


def read_sensitivity(path: Path, loaded: Loaded) -> NDArray[np.float64]:
    """The sensitivity of each layer, from the file or the folder of `cloze probe curvature`; a `CheckpointError` for others."""
    sensitivity = np.array(read_finding(path, loaded, "curvature", holds="sensitivity of layers")["sensitivity"], np.float64)
    layers = len(layer_weights(loaded.network))
    if len(sensitivity) != layers:
        raise CheckpointError(
            f"{path}: the sensitivity of {len(sensitivity)} layers; {loaded.folder} has {layers}.\n"
            f"  Measure its own: cloze probe curvature {loaded.folder} --text FILE --out DIR"
        )
    return sensitivity


def measured_sensitivity(loaded: Loaded, *, task: str | None, text: str | None) -> tuple[NDArray[np.float64], list[str]]:
    """The sensitivity of each layer on labelled rows or on texts, and remarks."""
    layer_weights(loaded.network)  # refuses a network before anything is read
    examples = examples_of(loaded, task=task, text=text, most=EXAMPLES)
    probe = curvature(examples, most=EXAMPLES)
    return probe.sensitivity, list(probe.remarks)


def read_finding(path: Path, loaded: Loaded, kind: str, *, holds: str) -> Mapping[str, Any]:
    """The data of a probe about this checkpoint, from its file or folder; a `CheckpointError` if it `holds` no such thing."""
    path = path / FILE if path.is_dir() else path
    finding = read_json(path, f"what cloze probe {kind} wrote")
    checkpoints = finding.get("checkpoints") or {}
    if finding.get("probe") != kind or not checkpoints:
        raise CheckpointError(f"{path}: holds no {holds}. Expected {FILE} of cloze probe {kind}.")
    name = Path(os.path.abspath(loaded.folder)).name
    if len(checkpoints) > 1 and name not in checkpoints:
        raise CheckpointError(f"{path}: holds several checkpoints, {', '.join(checkpoints)}, and none is called {name}.")
    measures: Mapping[str, Any] = checkpoints.get(name) or next(iter(checkpoints.values()))
    return measures


def examples_of(loaded: Loaded, *, task: str | None, text: str | None, most: int) -> LossExamples:
    """Labelled rows (`NAME=FILE`, or a file) or sentences, at most so many of these, with a loss each."""
    from cloze.decoding.texts import gather

    if task is not None:
        return task_examples(loaded, task)
    return text_examples(loaded, [line for line in gather([], text) if line.strip()][:most])


def _shapes(sizes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{argument} {' × '.join(map(str, size))}" for argument, size in sizes.items()) or "none"
