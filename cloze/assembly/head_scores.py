"""Which heads `cloze compress` prunes: their importance, measured here or by `cloze probe heads`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cloze.assembly.build import Loaded
from cloze.compression.prune_heads import OF
from cloze.errors import CheckpointError, UserError
from cloze.interop.files import read_json
from cloze.probes.gates import families
from cloze.probes.heads import Scores, ordered

FILE = "probe.json"


def head_changes(loaded: Loaded, share: float, scores: Scores) -> list[tuple[str, Mapping[str, Any]]]:
    """The changes that prune the `share` of all heads with the lowest scores, each kind of attention by one change.

    Raises:
        CheckpointError: The scores are those of a network with other heads.
        UserError: The network has no heads.
    """
    expected = {kind.argument: (kind.layers, kind.heads) for kind in families(loaded.network)}
    given = {argument: own.shape for argument, own in scores.items()}
    if given != expected:
        raise CheckpointError(
            f"{loaded.folder}: the scores are those of a network with other heads: {_shapes(given)}; this one has "
            f"{_shapes(expected)} (layers × heads).\n  Measure its own: cloze probe heads {loaded.folder} --text FILE --out DIR"
        )
    order = ordered(scores)
    pruned = order[: int(share * len(order) + 1e-6)]
    found = {argument: sorted([one.layer, one.head] for one in pruned if one.argument == argument) for argument in scores}
    return [("prune_heads", {"heads": heads, "of": OF[argument]}) for argument, heads in found.items() if heads]


def read_scores(path: Path, loaded: Loaded) -> Scores:
    """The importance of heads from the file or the folder of `cloze probe heads`; a `CheckpointError` for any other file."""
    path = path / FILE if path.is_dir() else path
    found = read_json(path, "what cloze probe heads wrote")
    checkpoints = found.get("checkpoints") or {}
    if found.get("probe") != "heads" or not checkpoints:
        raise CheckpointError(f"{path}: holds no importance of heads. Expected {FILE} of cloze probe heads.")
    name = Path(loaded.folder).resolve().name
    if len(checkpoints) > 1 and name not in checkpoints:
        raise CheckpointError(f"{path}: holds several checkpoints, {', '.join(checkpoints)}, and none is called {name}.")
    own = checkpoints.get(name) or next(iter(checkpoints.values()))
    return {str(argument): np.array(rows, dtype=np.float64) for argument, rows in own["importance"].items()}


def measured_scores(loaded: Loaded, *, task: str | None, text: str | None, most: int = 5000) -> tuple[Scores, list[str]]:
    """The importance of heads on labelled rows (`NAME=FILE`, or a file) or on texts, and remarks."""
    from cloze.decoding.texts import gather
    from cloze.probes.heads import importance
    from cloze.probes.losses import task_examples, text_examples

    families(loaded.network)  # refuses a network without attention before anything is read
    if task is not None:
        examples = task_examples(loaded, task)
    else:
        examples = text_examples(loaded, [line for line in gather([], text) if line.strip()][:most])
    return importance(examples), list(examples.remarks)


def require_choice(share: float | None, scores: Path | None, task: str | None, text: str | None) -> None:
    """A `UserError` unless a share of heads comes with one source of their importance."""
    given = [name for name, value in (("--scores", scores), ("--task", task), ("--text", text)) if value is not None]
    if share is None and given:
        raise UserError(f"{given[0]} says which heads are pruned. Add --heads SHARE.")
    if share is not None and not 0 < share < 1:
        raise UserError(f"--heads {share}: expected a share between 0 and 1: 0.4.")
    if share is not None and len(given) != 1:
        raise UserError("--heads needs the importance of heads. Give one of --scores FILE, --task ROWS and --text FILE.")


def _shapes(sizes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{argument} {' × '.join(map(str, size))}" for argument, size in sizes.items()) or "none"
