"""Small checkpoints that read pictures, and pictures whose second region decides what is right."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.cli.main import main


def write_items(path: Path, kinds: NDArray[np.int64]) -> None:
    """Two regions of six numbers for each picture; the largest of the second one is the kind of the picture."""
    count, g = len(kinds), np.random.default_rng(0)
    features = g.normal(scale=0.1, size=(count, 2, 6)).astype(np.float32)
    features[np.arange(count), 1, kinds] += 2.0
    corners = np.tile(np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]], np.float32), (count, 1, 1))
    np.savez(path, keys=np.arange(count).astype(str), features=features, boxes=corners)


def pretrain(system: str, folder: Path, captions: Sequence[Mapping[str, Any]], *values: str) -> Path:
    """A checkpoint of the system, after one step on captions of the pictures in `f.npz`. A system that also reads texts alone
    reads these captions."""
    (folder / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in captions), encoding="utf-8")
    items = ["--items", f"regions={folder / 'f.npz'}"]
    store = folder / f"{system}-store"
    built = ["corpus", "build", str(folder / "captions.jsonl"), "--recipe", system, *items, "--size", "40", "--out", str(store)]
    assert main(built) == 0
    train = ["pretrain", system, "--size", "tiny", "--corpus", str(store), "--budget", "1steps", "--device", "cpu", "--quiet"]
    given = ["training.batch=4", "training.held_out=0.0", "network.layers=1", *values]
    if system == "vl-bert":
        (folder / "texts.txt").write_text("".join(f"{text}\n" for row in captions for text in row["text"]), encoding="utf-8")
        train += ["--bind", f"text={folder / 'texts.txt'}"]
        given.append("network.items.gain=1.0")  # with 0, tiny runs would not get to see the pictures
    assert main([*train, *(word for value in given for word in ("--set", value)), "--out", str(folder / system)]) == 0
    return folder / system
