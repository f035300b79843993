"""Make a view of the same text whose words are segmented at random by one of two vocabularies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Share
from cloze.errors import RecipeError
from cloze.exercises.edit import Edit
from cloze.exercises.retokenize import OtherReading, reading_of
from cloze.registry import Given, register
from cloze.rng import Draw
from cloze.rows import Rows, columns_before
from cloze.text.edges import word_edges


class _Word(NamedTuple):
    """A word of a row: its first column, its ids by the tokenizer of the rows and, if it may be read by it, by the other one."""

    column: int
    own: NDArray[np.int32]
    other: NDArray[np.int32] | None

    def shown(self, other: bool) -> NDArray[np.int32]:
        """The ids by one of the tokenizers."""
        return self.other if other and self.other is not None else self.own


@register("edit", "mix_vocabularies")
@dataclass(frozen=True)
class MixVocabularies(Edit):
    """Make the view `mixed`: each word keeps its pieces with the probability `rate`; otherwise it has those of the tokenizer of
    `network` (Zhao et al., "Extremely small BERT models from mixed-vocabulary training", 2019).

    That network comes from a checkpoint and has the change `join_vocabulary`: its own ids follow those of the text's tokenizer.
    Put the edit after the frame and before the mask; special tokens have the ids of the text's tokenizer. A word that the other
    tokenizer does not know, or of which the row has only the end, keeps its pieces. If a row became longer than a row may be,
    its last words with more pieces keep their own. With `label`, both views have the row's target of that set.

    Gives `mixed.tokens` (B, S), `mixed.length`, `mixed.segments`, `mixed.special` and `mixed.word_start`.
    """

    second: ClassVar[str | None] = "mixed"

    network: str
    rate: Share = 0.5
    label: str | None = None
    tables: Given[Mapping[str, Any] | None] = field(default=None, repr=False, compare=False)
    limit: Given[int | None] = None

    @property
    def takes(self) -> frozenset[str]:
        return frozenset({"tokens", "length", "special", "segments", "word_start"}) | self._labels

    @property
    def gives(self) -> frozenset[str]:
        names = {"tokens", "length", "special", "segments", "word_start"} | self._labels
        return frozenset(f"{self.second}.{name}" for name in names)

    @property
    def _labels(self) -> frozenset[str]:
        return frozenset() if self.label is None else frozenset({f"targets/{self.label}"})

    def for_length(self, length: int) -> MixVocabularies:
        """The same edit with rows of at most `length` tokens."""
        return replace(self, limit=length)

    @cached_property
    def _reading(self) -> OtherReading:
        reading = reading_of(self.network, self.tables)
        if reading is None or not reading.first:
            raise RecipeError(
                f"mix_vocabularies: no network {self.network!r} from a checkpoint that also reads the ids of this text.\n"
                f"  Write `{self.network}: {{from: NAME, change: [join_vocabulary: {{}}]}}`."
            )
        return reading

    @cached_property
    def _begins(self) -> NDArray[np.bool_]:
        """(V,) whether a piece may begin a word."""
        return ~word_edges(self._reading.rows).continues

    @cached_property
    def _known(self) -> dict[bytes, NDArray[np.int32] | None]:
        """The pieces of each word that has been read, by its own ids."""
        return {}

    def _other(self, pieces: NDArray[np.int32]) -> NDArray[np.int32] | None:
        """The ids of a word, in the joined vocabulary, by the other tokenizer; None if it does not know the word."""
        key = pieces.tobytes()
        if key not in self._known:
            reading = self._reading
            text = reading.rows.decode(pieces)
            if reading.tokenizer.kind == "byte_bpe" != reading.rows.kind:
                text = f" {text}"  # how it spells a word inside a text
            ids = reading.tokenizer.encode(text).ids
            is_known = self._begins[pieces[0]] and len(ids) and reading.tokenizer.roles.get("[UNK]", -1) not in ids
            self._known[key] = (ids + reading.first).astype(np.int32) if is_known else None
        return self._known[key]

    def __call__(self, rows: Rows, draw: Draw) -> Rows:
        tokens, length, special = rows["tokens"], rows["length"], rows["special"]
        width = tokens.shape[1]
        coins = draw.bits("mix_vocabularies", width) < self.rate * 2.0**32
        begins = rows["word_start"] | special
        begins[:, 1:] |= special[:, :-1]
        begins[:, :1] = True
        begins &= columns_before(length, width)
        mixtures = [self._row(*row) for row in zip(tokens, length, special, begins, coins, strict=True)]
        sizes = np.array([sum(map(len, words)) for _, words in mixtures], np.int32)
        shape = len(mixtures), max(int(sizes.max(initial=0)), 1)
        arrays = {name: np.zeros(shape, kind) for name, kind in (("tokens", np.int32), ("segments", np.int32))}
        marks = {name: np.zeros(shape, bool) for name in ("special", "word_start")}
        for number, (columns, words) in enumerate(mixtures):
            if not len(words):
                continue
            counts, stop = np.array([len(word) for word in words]), sizes[number]
            arrays["tokens"][number, :stop] = np.concatenate(words)
            arrays["segments"][number, :stop] = np.repeat(rows["segments"][number][columns], counts)
            marks["special"][number, :stop] = np.repeat(special[number][columns], counts)
            marks["word_start"][number, np.cumsum(counts) - counts] = rows["word_start"][number][columns]
        view = {**arrays, **marks, "length": sizes, **{name: rows[name] for name in self._labels}}
        return rows.having_all({f"{self.second}.{name}": value for name, value in view.items()})

    def _row(
        self, tokens: NDArray[np.int32], length: int, special: NDArray[np.bool_], begins: NDArray[np.bool_],
        unchanged: NDArray[np.bool_],
    ) -> tuple[NDArray[np.int64], list[NDArray[np.int32]]]:
        """The first columns of a row's words, and their pieces in the view."""
        columns = begins.nonzero()[0]
        pieces = np.split(tokens[:length], columns[1:]) if length else []
        words = [
            _Word(column, ids, None if special[column] or unchanged[column] else self._other(ids))
            for column, ids in zip(columns.tolist(), pieces, strict=True)
        ]
        spellings = [word.shown(other=True) for word in words]
        over = 0 if self.limit is None else sum(map(len, spellings)) - self.limit
        for index in reversed(range(len(words))):
            if over <= 0:
                break
            more = len(spellings[index]) - len(words[index].own)
            if more > 0:
                spellings[index], over = words[index].own, over - more
        return columns, spellings
