"""How much labelled text a task has: rows and classes of its training files, to which its recipe is fitted (`fit_task.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from cloze.budget.fit_length import EvenSample, Lengths, lengths_of
from cloze.checkpoint.build import build_part
from cloze.checkpoint.several import LabelledFiles
from cloze.corpus import RecordStore, Store
from cloze.corpus.records.answer import label_names
from cloze.recipe.recipe import Recipe
from cloze.recipe.stages import stage_recipes
from cloze.text import Tokenizer

COUNTED = 50_000  # rows; beyond them the number does not matter


class RowCounts(NamedTuple):
    """The rows of a source, at most `COUNTED` of its files, the classes among them if each row has one, and their lengths (None:
    not counted)."""

    rows: int
    classes: int = 0
    lengths: Lengths | None = None


def count_rows(
    recipe: Recipe, files: Mapping[str, LabelledFiles], tokenizer: Tokenizer | None = None
) -> dict[str, RowCounts]:
    """The counts of the training files of every source. Files are read row by row; with a `tokenizer`, the tokens of a sample of
    the rows are counted, too."""
    counts = {}
    for stage in stage_recipes(recipe):
        for name, spec in stage.sources.items():
            source: Any = build_part(spec, {})
            stores = [Store.open(file) for file in files[name].train if Store.is_store(file)]
            texts = [file for file in files[name].train if not Store.is_store(file)]
            rows = sum(store.documents for store in stores)
            records, sample = [store for store in stores if isinstance(store, RecordStore)], EvenSample()
            classes = {label for store in records for label in store.classes}
            for record in islice((row for file in texts for row in source.answer.read(file, source.columns)), COUNTED):
                rows += 1
                sample.add(record)
                if not source.answer.ragged:
                    classes |= {label for _, label in source.answer.labels_of(record) or ()}
            columns = len(source.columns.texts)
            lengths = None if tokenizer is None else lengths_of(sample.records, records, source.answer, columns, tokenizer)
            counts[name] = RowCounts(rows, 0 if source.answer.ragged else len(classes), lengths)
    return counts


def training_classes(recipe: Recipe, files: Mapping[str, LabelledFiles]) -> list[dict[str, Sequence[str] | None]]:
    """The classes of the training files of every source (None: they have none), stage by stage."""
    return [
        {name: _classes_of(build_part(spec, {}), files[name].train) for name, spec in stage.sources.items()}
        for stage in stage_recipes(recipe)
    ]


def _classes_of(source: Any, train: Sequence[str]) -> Sequence[str] | None:
    """The labels of training files; None for answers that are not labels."""
    label_set: dict[str, None] = {}
    for file in train:
        if Store.is_store(file):
            store = Store.open(file)
            label_set |= dict.fromkeys(store.classes if isinstance(store, RecordStore) else ())
            continue
        for record in source.answer.read(file, source.columns):
            labels = source.answer.labels_of(record)
            if labels is None:
                return None
            label_set |= dict.fromkeys(label for _, label in labels)
    return label_names(list(label_set)) or None
