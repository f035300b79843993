"""Fits the length of a task's rows to its labelled text: the shortest that holds nearly all rows.

A row is padded to the longest of its batch, so a longer limit costs nothing where rows are short, and rows that the recipe's own
length already holds are trained to the same numbers. A limit below the rows costs quality: the same weights scored 0.65 on long
reviews cut to 128 tokens and 0.90 on 512 (docs/tasks.md). The time of a row grows faster than its length, so the fit never goes
beyond `MOST` tokens, and says so where rows are longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.budget.facts import ChangedValue
from cloze.checkpoint.checks.checked import build_or_report
from cloze.corpus import RecordStore
from cloze.corpus.records.answer import Answer, Record
from cloze.recipe.faults import Faults
from cloze.recipe.recipe import EntrySpec, Recipe
from cloze.recipe.references import max_length
from cloze.recipe.stages import stages_with_prefix
from cloze.text import Tokenizer

HELD = 0.99  # the share of the rows that the length holds whole
MOST = 512  # the longest rows that are chosen, as long as those of BERT
STEP = 32  # lengths are multiples of it
SAMPLED = 2000  # rows of which the tokens are counted
FRAME = 2  # special tokens around a text that is generated, at most
_UNLIMITED = 1 << 30


class Lengths(NamedTuple):
    """The tokens of a sample of rows, without those of a template, in ascending order: of the texts of a row together, of its
    longest text, and of its longest text to generate (empty: there is none)."""

    rows: tuple[int, ...]
    texts: tuple[int, ...]
    targets: tuple[int, ...] = ()


class EvenSample:
    """Keeps between `SAMPLED` and twice as many of the records that it is given, evenly spaced."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._seen, self._every = 0, 1

    def add(self, record: Record) -> None:
        """Take notice of the next record."""
        if self._seen % self._every == 0:
            self.records.append(record)
        self._seen += 1
        if len(self.records) > 2 * SAMPLED:
            self.records, self._every = self.records[::2], 2 * self._every


def lengths_of(
    records: Sequence[Record], stores: Iterable[RecordStore], answer: Answer, columns: int, tokenizer: Tokenizer
) -> Lengths:
    """The tokens of records with so many `columns` of texts, and of those of stores, which are encoded already."""
    sizes = _counted(tokenizer, [record.texts for record in records])
    apart = columns - 1 if answer.lists else columns  # the texts before a list, of which a row has one
    rows = [int(row[:apart].sum() + row[apart:].max(initial=0)) for row in sizes]
    texts = [int(row.max(initial=0)) for row in sizes]
    for store in stores:
        chosen = slice(None, None, 1 + store.documents // SAMPLED)
        rows += store.row_sizes[chosen].tolist()
        texts += store.lengths[chosen].max(1, initial=0).tolist()
    targets = [int(counts.max(initial=0)) for counts in _counted(tokenizer, [answer.generated(record) for record in records])]
    return Lengths(tuple(sorted(rows)), tuple(sorted(texts)), tuple(sorted(targets)) if any(targets) else ())


def fit_lengths(recipe: Recipe, lengths: Mapping[str, Lengths], most: int | None) -> list[ChangedValue]:
    """The lengths of the rows of a task recipe, stage by stage: at most `most` tokens, what the checkpoint reads, and where the
    rows of a source (`lengths`) need more than the recipe's own, enough for `HELD` of them. Windows (`stride`) lose nothing."""
    changes = []
    for at, stage in stages_with_prefix(recipe):
        for name, source in stage.sources.items():
            published = source.arguments.get("length")
            if published is None:
                continue
            limits = [most, *(max_length(network.part)[1] for network in stage.networks.values())]
            bound = min((limit for limit in limits if limit is not None), default=_UNLIMITED)
            path = f"{at}sources.{name}.length"
            if published > bound:
                changes.append(ChangedValue(path, published, bound, "the checkpoint reads no more tokens"))
            elif name in lengths and source.arguments.get("stride") is None:
                entries = [entry for entry in stage.entries.values() if entry.source == name]
                changes += _longer(path, published, bound, lengths[name], entries)
    return changes


def fit_targets(recipe: Recipe, lengths: Mapping[str, Lengths], most: int | None) -> list[ChangedValue]:
    """The lengths of the texts to generate, as `fit_lengths`. A text and its target may share a row, so a target gets at most
    half of what the checkpoint reads."""
    changes = []
    for at, stage in stages_with_prefix(recipe):
        for entry in stage.entries.values():
            sizes = np.array(lengths[entry.source].targets if entry.source in lengths else (), np.int64) + FRAME
            for spec in entry.exercise:
                published = spec.part.arguments.get("max_length")
                if not len(sizes) or not spec.part.arguments.get("of") or published is None:
                    continue
                bound = min(MOST, _UNLIMITED if most is None else most // 2)
                length = _shortest(published, bound, partial(_share_within, sizes))
                if length > published:
                    why = _reason("targets", _share_within(sizes, length), network=length < MOST)
                    edit = spec.part.path.removesuffix(f".{spec.part.name}")
                    changes.append(ChangedValue(f"{at}{edit}.max_length", published, length, why))
    return changes


def _longer(path: str, published: int, bound: int, lengths: Lengths, entries: Sequence[EntrySpec]) -> list[ChangedValue]:
    """The change to a longer length, if the rows need one."""
    def held(length: int) -> float:
        return min((_share_whole(entry, lengths, length) for entry in entries), default=1.0)

    length = _shortest(published, min(bound, MOST), held)
    return [
        ChangedValue(path, published, length, _reason("rows", held(length), network=length == bound))
    ] if length > published else []


def _share_within(sizes: NDArray[np.int64], length: int) -> float:
    return float((sizes <= length).mean())


def _shortest(published: int, most: int, held: Callable[[int], float]) -> int:
    """The shortest length, from the published one on, with which enough rows are `held` whole; else `most`."""
    longer = range(STEP * (published // STEP + 1), most, STEP)
    return next((length for length in (published, *longer) if held(length) >= HELD), max(most, published))


def _reason(what: str, held: float, *, network: bool) -> str:
    if held >= HELD:
        return f"the shortest that holds {HELD:.0%} of the {what} whole"
    why = "the network reads no more" if network else "longer ones cost too much time"
    return f"{1 - held:.0%} of the {what} are longer, but {why}"


def reading_of(entry: EntrySpec, lengths: Lengths, length: int) -> tuple[float, float]:
    """The share of the rows that an entry reads whole at a length, and the mean number of tokens of text that it reads of one."""
    row, text, _ = _max_tokens(entry, length)
    sizes, max_tokens = (np.array(lengths.rows), row) if text is None else (np.array(lengths.texts), text)
    return _share_whole(entry, lengths, length), float(np.minimum(sizes, max_tokens).mean())


def _share_whole(entry: EntrySpec, lengths: Lengths, length: int) -> float:
    """The share of the rows that an entry reads whole."""
    row, text, target = _max_tokens(entry, length)
    fits = [np.array(lengths.rows) <= row if text is None else np.array(lengths.texts) <= text]
    if target is not None:
        fits.append(np.array(lengths.targets) + FRAME <= target)
    return min((float(shares.mean()) for shares in fits if len(shares)), default=1.0)


def _max_tokens(entry: EntrySpec, length: int) -> tuple[int, int | None, int | None]:
    """The tokens of texts that fit into a row of an entry, those of each text if its edits separate texts, and those of a target
    that shares the row (None: none does, or it is as long as the recipe allows)."""
    row, text, target, max_tokens = None, None, None, length
    for spec in reversed(entry.exercise):
        edit = build_or_report(spec.part, {}, Faults())
        if edit is None or spec.view != "main":
            continue
        row = max_tokens if edit.spreads else row
        text = max_tokens if edit.separates else text
        left, of = edit.max_input(max_tokens), spec.part.arguments.get("of")
        limit = spec.part.arguments.get("max_length")
        if of and limit is not None and 0 < max_tokens - left < limit:  # the row cuts a target, not the recipe's limit
            target = max_tokens - left
        max_tokens = left
    return max_tokens if row is None else row, text, target


def _counted(tokenizer: Tokenizer, texts: Sequence[Sequence[str]]) -> list[NDArray[np.int64]]:
    """The number of tokens of each text of every row."""
    offsets = tokenizer.encode_flat([text for group in texts for text in group])[2]
    borders = np.cumsum([len(group) for group in texts])[:-1]
    return np.split(np.diff(np.asarray(offsets, np.int64)), borders) if texts else []
