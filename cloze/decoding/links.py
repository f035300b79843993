"""Links of words with items of the picture next to a text, for networks that add an item to the words that mean it (B2T2).

`cloze fill --links` states them, in the form of the captions' lines (`corpus/items/links.py`); retrieval with pictures
(`tasks/intrinsic/picture_retrieval.py`) takes those of a store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.batch import Batch
from cloze.batching.collate import flat_links, one_per_row
from cloze.corpus.items.links import LINKED, LINKS, checked_links, links_of
from cloze.decoding.layout import Framed
from cloze.decoding.marks import aligned
from cloze.errors import CheckpointError, UserError, counted
from cloze.exercises.items.link_items import LinkItems
from cloze.registry import recorded_parts
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.text.annotation.annotator import Unit

#: The labels of a framed row: the number of the item that a token means + 1, 0 for none.
LABELS = f"labels/{LINKED}"


@dataclass(frozen=True)
class Links:
    """Which words of some texts mean which item: the units of each text, and the edit that makes links of tokens of them."""

    edit: LinkItems
    units: Sequence[Sequence[Unit]]


def exercises_of(recipe: Any) -> Iterator[list[Any]]:
    """The edits of every exercise in a recipe, as plain data."""
    if isinstance(recipe, Mapping):
        edits = recipe.get("exercise")
        if isinstance(edits, list):
            yield edits
        for value in recipe.values():
            yield from exercises_of(value)


def link_of(recipe: Any) -> LinkItems | None:
    """The edit by which a network was trained on links; None if it was not."""
    arguments = next(recorded_parts(list(exercises_of(recipe)), "edit", LinkItems), None)
    return None if arguments is None else LinkItems(**{name: value for name, value in arguments.items() if name != "in"})


def given_links(
    loaded: Any, reader: Any, texts: Sequence[str], json_links: str | None, file: str | None, field: str
) -> Links | None:
    """The links of texts for a checkpoint whose `reader` shows a picture: `json_links` as JSON, else those of the
    lines of a JSON-lines `file`, else None. Links that cannot be used are a `UserError`."""
    if json_links is not None:
        units = _written(texts, json_links)
    elif file is not None:
        units = [links.get(text, ()) for text, (_, links) in zip(texts, links_of(file, field, None), strict=False)]
    else:
        return None
    if not any(units) and json_links is None:
        return None
    edit, where = link_of(loaded.recipe), "--links" if json_links is not None else f"{file}: {LINKS!r}"
    if edit is None:
        raise CheckpointError(
            f"{loaded.folder}: this network reads no links of words with items, as b2t2 does.\n  Leave {where} out."
        )
    if reader.pictures is None:
        raise UserError(f"{where}: links name items of a picture, and none is shown. Add its file: --items features.npz")
    start, stop = reader.pictures.sets[edit.set].spans[reader.pictures.default].tolist()
    largest = max((item for links in units for _, _, item in links), default=-1)
    if largest >= stop - start:
        raise UserError(
            f"{where}: item {largest}, but the picture has {counted(stop - start, 'item')} {edit.set!r}, which count from 0."
        )
    return Links(edit, units)


def _written(texts: Sequence[str], json_links: str) -> list[Sequence[Unit]]:
    """The links of each text from JSON: a list of links for each, or one such list if there is one text."""
    try:
        content = json.loads(json_links)
    except ValueError:
        raise UserError(
            f"--links {json_links[:60]}: no JSON; expected [[first character, the one after the last, number of an item], …], "
            "such as [[2, 8, 0]]."
        ) from None
    lists = [content] if len(texts) == 1 else content
    if not isinstance(lists, list) or len(lists) != len(texts):
        raise UserError(f"--links {json_links[:60]}: expected a list of links for each of {counted(len(texts), 'text')}.")
    return [checked_links(text, units, "--links") for text, units in zip(texts, lists, strict=True)]


def labels_of(tokenizer: Any, ids: NDArray[np.int32], text: str, units: Sequence[Unit]) -> NDArray[np.int32]:
    """The label of each token (T,) of a text with masks, whose tokens are `ids`. A mask that a unit covers has its item."""
    literals = {"[MASK]", tokenizer.literals.get("[MASK]", "[MASK]")}
    holes = [match.span() for match in re.finditer("|".join(map(re.escape, literals)), text)]
    labels = np.zeros(len(ids), np.int32)
    at = np.flatnonzero(ids == tokenizer.role("[MASK]")).tolist()
    edges = zip([0, *(stop for _, stop in holes)], [*(start for start, _ in holes), len(text)], strict=True)
    stretches = [(at[number], *hole) for number, hole in enumerate(holes)]
    for (begin, end), first, last in zip(edges, [0, *(index + 1 for index in at)], [*at, len(ids)], strict=True):
        spelled = tokenizer.encode_spelled([text[begin:end]])
        stretches += [
            (first + number, begin + int(spelled.begin[source]), begin + int(spelled.end[source]))
            for number, source in enumerate(aligned(spelled.ids, ids[first:last]).tolist()) if source >= 0
        ]
    for position, low, high in stretches:
        labels[position] = next((item + 1 for start, stop, item in units if start < high and stop > low), 0)
    return labels


def with_links(batch: Batch, rows: Sequence[Framed], edit: LinkItems) -> Batch:
    """A batch of rows next to their items, with the links that the labels of the rows state."""
    labels = np.zeros(batch["tokens"].shape, np.int32)
    for number, row in enumerate(rows):
        labels[number, : len(row)] = row.marks[LABELS]
    name, lengths = f"item_length/{edit.set}", [len(row) for row in rows]
    count = batch[name].cpu().numpy()
    fields = {"length": np.array(lengths, np.int32), LABELS: labels, f"layers/{LINKED}": (labels > 0) * 2}
    pairs = edit(Rows({"tokens": labels, **fields, name: count}), Draw(np.zeros(len(rows), np.uint64)))
    flat = flat_links(pairs[f"links/{edit.set}"], one_per_row(fields["length"], labels.shape[1]).base, int(count.max()))
    return Batch({**batch, f"links/{edit.set}": torch.from_numpy(flat).to(batch["tokens"].device)}, checked=True)
