"""Vectors of every token of many texts, from one layer or several: feature files for models that are trained elsewhere."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.atomic import whole_file
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Reader
from cloze.errors import UserError

Features = NDArray[np.float32]


def chosen_layers(layers: str, count: int) -> list[int]:
    """`all`, or numbers with commas between them, as layers of a network that gives `count`; negative ones count from the top."""
    if layers == "all":
        return list(range(count))
    try:
        numbers = [int(number) for number in layers.split(",")]
    except ValueError:
        raise UserError(f"--layers {layers}: expected all, or numbers such as 0,1,2.") from None
    for number in numbers:
        if not -count <= number < count:
            raise UserError(f"--layers {layers}: this network gives the layers 0 to {count - 1}, or -1 to {-count}.")
    return [number % count for number in numbers]


def token_features(
    reader: Reader, framed: Sequence[Framed], layers: str = "all", *, rows: int = 64,
    report: Callable[[int], None] = lambda done: None,
) -> Iterator[tuple[int, Features]]:
    """The number of each text and its vectors (layers, tokens, D) float32, long texts first.

    Only tokens of the texts are given: tokens of the template, such as [CLS], are read and left out.
    """
    if "layers" not in reader.network.gives:
        raise UserError("this network gives only its top layer: it has no features by layer.")
    for index in reader.batches([len(row) for row in framed], rows=rows):
        batch = [framed[number] for number in index]
        with torch.inference_mode():
            states: Any = reader.states(reader.batch(batch), {"layers"})["layers"]
            states = states[chosen_layers(layers, len(states))].float().cpu().numpy()
        for position, number in enumerate(index):
            columns = np.flatnonzero(framed[number].part >= 0)
            yield int(number), states[:, position, columns]
        report(len(index))


def save_features(path: Path, features: Iterator[tuple[int, Features]], texts: Sequence[str]) -> Path:
    """Write a .npz file with an array for each text under its number, "0", "1", …, and `texts`; returns its path.

    Arrays are written one by one, so that memory holds one batch; `numpy.load` reads single arrays. The file is written
    atomically.
    """
    target = path if path.suffix == ".npz" else path.with_name(path.name + ".npz")
    with whole_file(target) as stage, zipfile.ZipFile(stage, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for number, array in features:
            _add(archive, str(number), array)
        _add(archive, "texts", np.array(list(texts), dtype=np.str_))
    return target


def _add(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
