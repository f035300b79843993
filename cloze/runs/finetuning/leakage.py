"""Rows on which a model is measured although it has learned from them: found by 64-bit hashes of their texts.

`cloze/training_texts.npy` in the folder of a fine-tuned model holds the hashes of its training texts, eight bytes each, so that
`cloze evaluate` and `Model.evaluate` find such rows without the training files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.array_files import save_array
from cloze.atomic import whole_file
from cloze.checkpoint.build import build_part
from cloze.checkpoint.several import LabelledFiles
from cloze.corpus import Store
from cloze.corpus.readers.labelled import Format, Quoting
from cloze.corpus.records.check import text_hashes
from cloze.errors import ClozeError
from cloze.recipe.load import load_recipe
from cloze.recipe.recipe import PartSpec, Recipe
from cloze.recipe.stages import stage_recipes

HASH_FILE = Path("cloze") / "training_texts.npy"
Hashes = NDArray[np.uint64]


def hash_training_texts(recipe: Recipe, files: Mapping[str, LabelledFiles]) -> dict[str, Hashes]:
    """The hashes of the training texts of every source; token stores have none."""
    return {name: _hashes(spec, files[name].train) for name, spec in _sources(recipe).items()}


def shared_row_notes(
    recipe: Recipe, files: Mapping[str, LabelledFiles], training_hashes: Mapping[str, Hashes], *, test: str | None
) -> Iterator[str]:
    """A note for every dev or test file whose texts are among those of the training rows of its source."""
    for name, spec in _sources(recipe).items():
        for file in [*files[name].dev, *([test] if test is not None else [])]:
            if line := _note(file, spec, training_hashes[name], where=f" of {file}"):
                yield line


def write_training_hashes(out: Path, training_hashes: Mapping[Any, Hashes]) -> None:
    """Write the hashes of all training texts into the folder of a model."""
    with whole_file(out / HASH_FILE) as stage, stage.open("wb") as stream:
        save_array(stream, np.unique(np.concatenate([np.zeros(0, np.uint64), *training_hashes.values()])))


def add_training_texts(folder: Path, files: Sequence[str]) -> None:
    """Count the texts of further files among the training texts of a model."""
    path = folder / HASH_FILE
    hashes: list[Hashes] = [np.load(path, allow_pickle=False)] if path.is_file() else []
    hashes += [_hashes(spec, files) for spec in _sources(load_recipe(folder)).values()]
    write_training_hashes(folder, dict(enumerate(hashes)))


def shared_row_note(
    folder: Path, file: str | Path, *, task: str | None = None, in_memory: bool = False, names: Sequence[str] | None = None,
    format: Format | None = None, quoting: Quoting = "auto", **columns: str | None,
) -> str:
    """The note on a file on which a model is measured, empty if it shares no texts with the training rows, or if they are not
    known.

    `task` names one of several; `in_memory` is whether the file holds rows that the user gave in memory, and its name says
    nothing. `names`, `format` and `quoting` are how the file is read; `columns` replace the names that the recipe has.
    """
    try:
        hashes = np.load(folder / HASH_FILE, allow_pickle=False)
        sources = _sources(load_recipe(folder))
        spec = next(iter(sources.values())) if len(sources) == 1 else sources.get(task or "")
        if spec is not None and hashes.dtype == np.uint64:
            renamed = {column: name for column, name in columns.items() if name is not None}
            how = {"names": None if names is None else tuple(names), "format": format, "quoting": quoting, **renamed}
            return _note(str(file), spec, hashes, where="" if in_memory else f" of {file}", **how)
    except (OSError, ValueError, ClozeError):  # of another version, or a file that the recipe's source does not read
        pass
    return ""


def _sources(recipe: Recipe) -> dict[str, PartSpec]:
    return {name: spec for stage in stage_recipes(recipe) for name, spec in stage.sources.items()}


def _hashes(spec: PartSpec, files: Sequence[str], **read_as: Any) -> Hashes:
    source: Any = build_part(spec, {})
    tables = [file for file in files if not Store.is_store(file)]
    pictures = () if source.item_files is None else source.item_files.columns
    return text_hashes(tables, source.answer, replace(source.columns, **read_as), pictures=pictures)


def _note(file: str, spec: PartSpec, training_hashes: Hashes, *, where: str, **read_as: Any) -> str:
    hashes = _hashes(spec, [file], **read_as)
    rows = int(np.isin(hashes, training_hashes).sum())
    if not rows:
        return ""
    have = "has a text" if rows == 1 else "have texts"
    return (
        f"note: {rows:,} of {len(hashes):,} rows{where} ({rows / len(hashes):.0%}) {have} that the model is trained on: "
        f"scores on {'this file' if where else 'these rows'} are too high"
    )
