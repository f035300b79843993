"""Annotations of a text, token by token: words from a segmenter, and layers of units from user lists."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError
from cloze.registry import lookup, register
from cloze.text.annotation.annotator import Annotator, Unit
from cloze.text.encodings import readable
from cloze.text.matching import Span, WordList, read_list
from cloze.text.segment import Segmenter, segmenter_of
from cloze.text.tokenizer import Spelled, Tokenizer

Int64 = NDArray[np.int64]

OUTSIDE, STARTS, INSIDE = 0, 1, 2
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@register("annotator", "list")
class ListAnnotator(Annotator):
    """Units from a user's list, the longest match from the left (ERNIE 1.0's phrases and entities; Sun et al. 2019, §3.2).

    file: one unit per line, spaces included. A recipe may omit it; building a store requires it.
    """

    def __init__(self, *, file: str | None = None) -> None:
        if file is None:
            raise RecipeError(
                "text.annotate: a layer of kind list names no file of entries, with one entry per line.\n"
                "  Give each such layer its file: --set text.annotate.NAME.file=FILE (NAME: phrase, entity …)."
            )
        self.file = file
        self._list = WordList(read_list(file, "text.annotate: list.file"))

    @cached_property
    def hash(self) -> str:
        """A hash of the units."""
        return hashlib.sha256(f"list:{self._list.hash}".encode()).hexdigest()

    def annotate(self, text: str) -> list[Span]:
        """The units of a text."""
        return self._list.spans(text)


class Annotated(NamedTuple):
    """Annotated lines: ids (T,) int32, word starts (T,), offsets (n+1,) of the lines, and layers of (T,) uint8.

    A layer holds 0 outside all units, 1 at the first token of a unit, 2 inside it. `labels` (T,) int32 of a layer that has them
    holds the number of the unit's label + 1 at each of its tokens, 0 outside. `matched_records` are the records of an
    annotator's file that these lines match.
    """

    ids: NDArray[np.int32]
    word_start: NDArray[np.bool_]
    offsets: Int64
    layers: dict[str, NDArray[np.uint8]]
    labels: dict[str, NDArray[np.int32]]
    matched_records: dict[str, frozenset[int]]


@dataclass(frozen=True)
class Annotations:
    """What a store keeps of its text besides tokens: the segmenter of its words (None: the tokenizer), its layers, and whether
    lines keep their ends.

    `met_layers` are the layers whose file has named one of the texts that `label_marks` was given.
    """

    words: Segmenter | None = None
    layers: Mapping[str, Annotator] = field(default_factory=dict)
    line_ends: bool = False
    met_layers: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in self.layers:
            if not _NAME.fullmatch(name):
                raise RecipeError(f"text.annotate: {name!r} cannot name a layer; expected lower-case letters, digits and _.")

    @classmethod
    def of(cls, text: Any) -> Annotations:
        """The annotations of a recipe's `text`: any object with `line_ends`, and with `words` and `annotate` whose parts have
        `name` and `arguments`."""
        annotators = {name: lookup("annotator", part.name)(**part.arguments) for name, part in text.annotate.items()}
        return cls(segmenter_of(text), annotators, text.line_ends)

    def __bool__(self) -> bool:
        return self.marks or self.line_ends

    @property
    def marks(self) -> bool:
        """Whether tokens have to be marked: as the beginnings of words, or as units."""
        return self.words is not None or bool(self.layers)

    def of_words(self, tokenizer: Tokenizer) -> Annotations:
        """The same for a store of this tokenizer: if it cuts whole words with a segmenter, that segmenter gives the words.

        Raises `RecipeError` if it cuts whole words with another segmenter or none, since then every token is a word.
        """
        if tokenizer.kind != "words":
            return self
        segmenter_hash = None if tokenizer.segmenter is None else tokenizer.segmenter.hash
        if self.words is not None and self.words.hash != segmenter_hash:
            cut = (
                "as white space and punctuation do" if segmenter_hash is None
                else f"by another segmenter (hash {segmenter_hash[:12]})"
            )  # fmt: skip
            raise RecipeError(
                f"text.words: this tokenizer of whole words was trained on words cut {cut}; expected the segmenter that "
                f"`text.words` names (hash {self.words.hash[:12]}).\n"
                "  Train a new one with `text.words`, without --tokenizer, or omit the segmenter."
            )
        return replace(self, words=tokenizer.segmenter)

    def to_find(self, tokenizer: Tokenizer) -> Annotations:
        """The annotations to compute; tokens of whole words are words already."""
        return replace(self, words=None) if tokenizer.kind == "words" else self

    def header(self) -> dict[str, Any]:
        """Their entry in the header of a store: the hash of each."""
        words = None if self.words is None else self.words.hash
        ends = {"line_ends": True} if self.line_ends else {}
        return {"words": words, "annotations": {name: layer.hash for name, layer in self.layers.items()}, **ends}

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """The names of the labels of each layer that has labels."""
        return {name: tuple(layer.labels) for name, layer in self.layers.items() if layer.labelled}

    def label_marks(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[dict[str, NDArray[Any]]]:
        """The labelled layers of each text as the fields of a row: `layers/NAME` and `labels/NAME`, (T,) each."""
        annotated = self.encode(tokenizer, texts, [1] * len(texts))
        self.met_layers.update(name for name, records in annotated.matched_records.items() if records)
        rows: list[dict[str, NDArray[Any]]] = [{} for _ in texts]
        for name, labels in annotated.labels.items():
            for field_, values in ((f"layers/{name}", annotated.layers[name]), (f"labels/{name}", labels)):
                for number, part in enumerate(np.split(values, annotated.offsets[1:-1])):
                    rows[number][field_] = part
        return rows

    def require_files(self) -> None:
        """Raise `RecipeError` if a layer cannot be made, because its annotator names no file."""
        for name, layer in self.layers.items():
            layer.require_file(name)

    def require_matches(self, matched_records: Mapping[str, frozenset[int]]) -> None:
        """Raise `CorpusError` if the file of a layer names texts that the corpus does not have."""
        for name, layer in self.layers.items():
            layer.require_matches(matched_records.get(name, frozenset()))

    def encode(
        self, tokenizer: Tokenizer, texts: Sequence[str], documents: Sequence[int] | None = None,
        units: Mapping[str, Sequence[Sequence[Unit]]] | None = None,
    ) -> Annotated:
        """The tokenizer's ids of some texts, with words and layers. `documents` counts the texts of each document; without it
        all are of one. `units` are those of each text in further layers, which no annotator has to find."""
        texts = readable(texts)
        spelled = tokenizer.encode_spelled(texts)
        base = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum([len(text) + 1 for text in texts], out=base[1:])
        places = TokenPositions.of(spelled, base)
        starts = spelled.word_start
        if self.words is not None:
            starts = places.starting(_laid_out([self.words.segment(text) for text in texts], base))
        layers: dict[str, NDArray[np.uint8]] = {}
        labels: dict[str, NDArray[np.int32]] = {}
        for name, annotator in self.layers.items():
            spans = annotator.annotate_documents(texts, [len(texts)] if documents is None else documents)
            layers[name], owner = places.within(spans, base)
            if annotator.labelled:
                labels[name] = _labels(spans, owner)  # type: ignore[arg-type]
        for name, layer_units in (units or {}).items():
            layers[name], owner = places.within(layer_units, base)
            labels[name] = _labels(layer_units, owner)
        records = {name: annotator.matched_records(texts) for name, annotator in self.layers.items()}
        return Annotated(spelled.ids, starts, spelled.offsets, layers, labels, records)


class TokenPositions(NamedTuple):
    """The place of every token in the concatenated texts, (T,) each; `first` marks the first token of each text."""

    begin: Int64
    end: Int64
    first: NDArray[np.bool_]

    @classmethod
    def of(cls, spelled: Spelled, base: Int64) -> TokenPositions:
        """From the offsets of every text's own tokens; `base` is where each text begins."""
        count = np.diff(spelled.offsets)
        shift = np.repeat(base[:-1], count)
        first = np.zeros(len(spelled.ids), dtype=np.bool_)
        first[spelled.offsets[:-1][count > 0]] = True
        return cls(spelled.begin + shift, spelled.end + shift, first)

    def starting(self, starts: Int64) -> NDArray[np.bool_]:
        """Which tokens start a word, for words that begin at `starts`.

        A token starts a word if one begins after the end of the previous token and before its own end. Of several tokens
        that spell one character only the first can; characters that the normaliser dropped belong to the next token.
        """
        reached = np.maximum.accumulate(self.end)
        word_counts = np.searchsorted(starts, reached, "left")
        begins = np.ones(len(word_counts), dtype=np.bool_)
        begins[1:] = word_counts[1:] > word_counts[:-1]
        return begins | self.first

    def within(self, spans: Sequence[Sequence[Span | Unit]], base: Int64) -> tuple[NDArray[np.uint8], Int64]:
        """For every token 0 (outside all spans), 1 (first of a span) or 2 (inside one), and the number of its span in order, -1
        for none. Overlapping tokens are inside."""
        begin = _laid_out([[span[0] for span in text_spans] for text_spans in spans], base)
        end = _laid_out([[span[1] for span in text_spans] for text_spans in spans], base)
        layer = np.zeros(len(self.begin), dtype=np.uint8)
        if not len(begin):
            return layer, np.full(len(layer), -1, np.int64)
        which = np.searchsorted(end, self.begin, "right")
        inside = which < len(end)
        inside[inside] = begin[which[inside]] < self.end[inside]
        which[~inside] = -1
        layer[inside] = INSIDE
        fresh = inside.copy()
        fresh[1:] &= which[1:] != which[:-1]
        layer[fresh] = STARTS
        return layer, which


def _labels(units: Sequence[Sequence[Unit]], owner: Int64) -> NDArray[np.int32]:
    """The label + 1 of the unit at every token (T,), 0 for none, from the number of that unit."""
    return np.array([0, *(unit[2] + 1 for text_units in units for unit in text_units)], np.int32)[owner + 1]


def _laid_out(places: list[list[int]], base: Int64) -> Int64:
    """Offsets in each text as offsets in the concatenated texts."""
    count = np.fromiter(map(len, places), dtype=np.int64, count=len(places))
    flat = np.fromiter(chain.from_iterable(places), dtype=np.int64, count=int(count.sum()))
    return flat + np.repeat(base[:-1], count)
