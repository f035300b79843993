"""Which heads `cloze compress` prunes: their importance, measured here or by `cloze probe heads`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cloze.changes.compressing.attentions import KIND_OF
from cloze.checkpoint.build import Loaded
from cloze.compression.probe_file import examples_of, read_finding
from cloze.errors import CheckpointError
from cloze.probes.gates import families
from cloze.probes.heads import Scores, ordered

MOST = 5000  # sentences that are measured


def head_changes(loaded: Loaded, share: float, scores: Scores) -> list[tuple[str, Mapping[str, Any]]]:
    """The changes that prune the `share` of all heads with the lowest scores, each kind of attention by one change.

    Raises:
        CheckpointError: The scores are those of a network with other heads.
        UserError: The network has no heads.
    """
    expected = {kind.argument: (kind.layers, kind.heads) for kind in families(loaded.network)}
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
    from cloze.probes.heads import importance

    families(loaded.network)  # refuses a network without attention before anything is read
    examples = examples_of(loaded, task=task, text=text, most=MOST)
    return importance(examples), list(examples.remarks)


def _shapes(sizes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{argument} {' × '.join(map(str, size))}" for argument, size in sizes.items()) or "none"
