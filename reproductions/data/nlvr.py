"""Sentences about pictures of three boxes with coloured shapes, true or false: NLVR (Suhr et al., 2017), as files of items.

    python reproductions/data/nlvr.py ../shared/data/vl_en_nlvr NLVR
    cloze finetune RUN --train NLVR/train.jsonl --dev NLVR/dev.jsonl --items regions=NLVR/objects.npz --out DIR

The folder holds NLVR's dev.json.xz and test.json.xz (CC BY 4.0), which describe each picture by its objects; the pictures are
not needed. NLVR gets `objects.npz`, in which a region is an object: its colour, shape and size, the box that it lies in, and
the place of its middle, 14 numbers, with its edges as shares of the picture. `train.jsonl` and `dev.jsonl` are NLVR's dev set:
every tenth sentence is in dev, with all of its pictures. `test.jsonl` is NLVR's test set. `captions.jsonl` has the true sentences
of train, for pre-training.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLOURS, SHAPES, SIZES, BOXES, SIDE = ("black", "yellow", "#0099ff"), ("circle", "square", "triangle"), (10, 20, 30), 3, 100
NAMES = tuple(f"{colour} {shape}" for colour in ("black", "yellow", "blue") for shape in SHAPES)
Row = dict[str, Any]


def objects(boxes: Sequence[Sequence[Row]]) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32]]:
    """The features (R, 14), edges (R, 4) and kinds (R,) of the objects of three boxes that stand side by side."""
    features, edges, kinds = [], [], []
    for box, own in enumerate(boxes):
        for one in own:
            colour, shape, size = (
                COLOURS.index(one["color"].lower()), SHAPES.index(one["type"]), SIZES.index(one["size"]),
            )  # fmt: skip
            low = np.array([one["x_loc"], one["y_loc"]]) / SIDE
            high = np.minimum(low + one["size"] / SIDE, 1)
            marks = np.zeros(12)
            marks[[colour, 3 + shape, 6 + size, 9 + box]] = 1
            features.append([*marks, *((low + high) / 2)])
            edges.append([(box + low[0]) / BOXES, low[1], (box + high[0]) / BOXES, high[1]])
            kinds.append(colour * len(SHAPES) + shape)
    return (
        np.array(features, np.float32).reshape(-1, 14), np.array(edges, np.float32).reshape(-1, 4), np.array(kinds, np.int32)
    )


def write(folder: Path, out: Path) -> None:
    """Make the files."""
    out.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[Row]] = {"train": [], "dev": [], "test": []}
    keys: list[str] = []
    found = []
    sentences: dict[str, int] = {}
    for name in ("dev", "test"):
        with lzma.open(folder / f"{name}.json.xz", "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        for row in rows:
            keys.append(row["identifier"])
            found.append(objects(row["structured_rep"]))
            number = sentences.setdefault(row["sentence"], len(sentences))
            part = "test" if name == "test" else "dev" if number % 10 == 9 else "train"
            parts[part].append({"image": keys[-1], "text": row["sentence"], "label": row["label"]})
    features, edges, kinds = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    np.savez(
        out / "objects.npz", keys=np.array(keys), offsets=np.cumsum([0, *(len(one[0]) for one in found)]), features=features,
        boxes=edges, score=np.ones(len(kinds), np.float32), probabilities=np.eye(len(NAMES), dtype=np.float32)[kinds],
        **{"class": kinds, "class_names": np.array(NAMES)},
    )  # fmt: skip
    parts["captions"] = [{"image": row["image"], "caption": row["text"]} for row in parts["train"] if row["label"] == "true"]
    for name, own in parts.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in own)
        (out / f"{name}.jsonl").write_text(text, encoding="utf-8")
        print(f"{out / f'{name}.jsonl'}: {len(own)} rows")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="NLVR's sentences and objects as files of items.")
    parser.add_argument("folder", type=Path, help="the folder with dev.json.xz and test.json.xz")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    write(given.folder, given.out)


if __name__ == "__main__":
    main()
