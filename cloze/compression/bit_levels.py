"""Which layers `cloze compress --bits 2,4` gives more bits: those whose loss bends most sharply (Q-BERT)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cloze.checkpoint.build import Loaded
from cloze.compression.probe_file import examples_of, read_finding
from cloze.errors import CheckpointError
from cloze.probes.curvature import curvature, layer_weights

MOST = 200  # examples that are measured


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
    examples = examples_of(loaded, task=task, text=text, most=MOST)
    probe = curvature(examples, most=MOST)
    return probe.sensitivity, list(probe.remarks)
