"""What `cloze probe` wrote about a checkpoint, read again by `cloze compress`, and the examples that it measures itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloze.checkpoint.build import Loaded
from cloze.errors import CheckpointError
from cloze.interop.files import read_json
from cloze.probes.losses import Examples

FILE = "probe.json"


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


def examples_of(loaded: Loaded, *, task: str | None, text: str | None, most: int) -> Examples:
    """Labelled rows (`NAME=FILE`, or a file) or sentences, at most so many of these, with a loss each."""
    from cloze.decoding.texts import gather
    from cloze.probes.losses import task_examples, text_examples

    if task is not None:
        return task_examples(loaded, task)
    return text_examples(loaded, [line for line in gather([], text) if line.strip()][:most])
