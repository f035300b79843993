"""A table of facts: (subject, predicate, object) by the subjects that occur in a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.stores.store import Store
from cloze.corpus.tables.lexicon import BoundLexicon
from cloze.corpus.tables.look_up import LookUp
from cloze.errors import CorpusError, RecipeError, propose
from cloze.knowledge.triple_files import COLUMNS, header_order
from cloze.registry import register
from cloze.text import Tokenizer
from cloze.text.edges import Edges, word_edges
from cloze.text.encodings import decoded
from cloze.text.matching import read_list

Int64 = NDArray[np.int64]

_LONGEST = 32  # tokens of a subject; longer ones are left out


class SubjectMentions(NamedTuple):
    """The subjects found in a block of rows, (M,) each, by row and column, none overlapping another: the row, the first column,
    the columns, and the number of the subject."""

    row: Int64
    start: Int64
    size: Int64
    subject: Int64


@register("table", "triples")
class Facts(LookUp):
    """Facts that `inject` adds to texts (K-BERT, Liu et al., 2020, §3.2).

    file: a line for each fact: subject, predicate and object, separated by tabs. Of a subject with many facts the first lines
      count; a fact that is there twice counts once.
    words: a list of further words, one per line. In a text without spaces, a subject inside one of them is not found.
    built_in: cloze's short list of frequent Chinese words is among them.

    Subjects are found as tokens. The longest one or word wins, from left to right, and both ends are ends of words.

    Differs: the authors segment with pkuseg, to whose dictionary the subjects are added; here the subjects and the lists are the
    dictionary. They keep facts in sets, so that the facts that are taken change from process to process; here the order of the
    file decides.
    """

    has_weights: ClassVar[bool] = False

    def __init__(self, *, file: str | None = None, words: str | None = None, built_in: bool = True) -> None:
        self.file, self.words, self.built_in = file, words, built_in

    def bind(self, store: Store) -> BoundFacts:
        """The facts as tokens of a store's tokenizer. Raises `CorpusError` if no subject can be found in its texts."""
        if self.file is None:
            raise RecipeError("tables: triples: no file. Give one with a fact per line, subject TAB predicate TAB object: "
                              "--bind NAME=FILE")
        words = [] if self.words is None else read_list(self.words, "triples.words")
        if self.built_in:
            from cloze.text.words_zh import FREQUENT

            words += sorted(FREQUENT)
        facts = BoundFacts.of(read_triples(self.file), store.tokenizer(), words)
        if not len(facts.first) - 1:
            raise CorpusError(
                f"{self.file}: none of its subjects can be spelled with the tokens of {store.path}.\n"
                "  Give facts in the language and the script of the text, and set text.normalise.lower to match them."
            )
        return facts

    @staticmethod
    def restored(arrays: Mapping[str, NDArray[Any]]) -> BoundFacts:
        """The bound table from `BoundFacts.arrays`. Raises `CorpusError` for any other arrays."""
        if arrays.keys() != set(_ARRAYS) or arrays["grams"].ndim != 2 or len(arrays["grams"]) != len(arrays["subject"]):
            raise CorpusError(f"triples: expected the arrays {', '.join(_ARRAYS)}. The file is damaged: copy it again.")
        return BoundFacts(**arrays)


_ARRAYS = ("grams", "subject", "first", "begin", "predicate", "tokens", "edges")


class BoundFacts:
    """Facts as tokens.

    `grams` (G, longest) int32 are the subjects and words as a text may spell them, padded with -1, after an empty one; `subject`
    (G) the number of each subject from 1 on, 0 for a word. Subject s has the branches `first[s - 1]` to `first[s]`; branch b
    the `tokens` from `begin[b]` to `begin[b + 1]`, of which the first `predicate[b]` are the predicate. `edges` (2, V) are those
    of the tokenizer's pieces (`cloze/text/edges.py`).
    """

    def __init__(
        self, *, grams: NDArray[Any], subject: NDArray[Any], first: NDArray[Any], begin: NDArray[Any], predicate: NDArray[Any],
        tokens: NDArray[Any], edges: NDArray[Any],
    ) -> None:
        self.subject, self.first, self.begin = subject, first.astype(np.int64), begin.astype(np.int64)
        self.predicate, self.tokens = predicate, tokens.astype(np.int32)
        self.edges = Edges(*edges.astype(np.bool_))
        self._lexicon = BoundLexicon(grams)
        self.size = len(grams)

    @classmethod
    def of(cls, triples: Sequence[tuple[str, str, str]], tokenizer: Tokenizer, words: Sequence[str] = ()) -> BoundFacts:
        """The facts as a tokenizer reads them, each once, in their order. Subjects that it reads alike, such as Cat and cat in
        lower case, are one. Subjects and words with special tokens are left out."""
        spelled = _spelled(list(dict.fromkeys(subject for subject, *_ in triples)), tokenizer)
        first_name: dict[tuple[tuple[int, ...], ...], str] = {}
        canonical = {name: first_name.setdefault(tuple(ways), name) for name, ways in spelled.items()}
        facts: dict[str, list[tuple[str, str]]] = {}
        for subject, predicate, object_ in dict.fromkeys((canonical[subject], *fact) for subject, *fact in triples):
            facts.setdefault(subject, []).append((predicate, object_))
        special = set(tokenizer.special_ids.tolist())
        grams: dict[tuple[int, ...], int] = {}
        subjects: list[str] = []
        for name in facts:
            spellings = [
                ids for ids in spelled[name] if 0 < len(ids) <= _LONGEST and special.isdisjoint(ids) and ids not in grams
            ]
            if spellings:
                subjects.append(name)
                grams.update(dict.fromkeys(spellings, len(subjects)))
        for ways in _spelled(words, tokenizer).values():
            grams.update({ids: 0 for ids in ways if 1 < len(ids) <= _LONGEST and special.isdisjoint(ids) and ids not in grams})
        table = np.full((len(grams) + 1, max(map(len, grams), default=1)), -1, np.int32)
        for row, ids in zip(table[1:], grams, strict=True):
            row[: len(ids)] = ids
        subject_facts = [fact for name in subjects for fact in facts[name]]
        behind_word = [f" {text}" for fact in subject_facts for text in fact]
        pieces = [encoded.ids for encoded in tokenizer.encode_batch(behind_word)]
        lengths = np.array(list(map(len, pieces)), np.int64)
        counts = [len(facts[name]) for name in subjects]
        return cls(
            grams=table, subject=np.array([0, *grams.values()], np.int32), first=np.cumsum([0, *counts]),
            begin=np.concatenate([[0], np.cumsum(lengths)[1::2]]), predicate=lengths[::2].astype(np.int32),
            tokens=np.concatenate([*pieces, np.zeros(0, np.int32)]), edges=np.stack(word_edges(tokenizer)).astype(np.uint8),
        )

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Its complete state, to save with a checkpoint."""
        return {
            "grams": self._lexicon.grams, "subject": self.subject, "first": self.first, "begin": self.begin,
            "predicate": self.predicate, "tokens": self.tokens, "edges": np.stack(self.edges).astype(np.uint8),
        }

    def find(self, tokens: NDArray[Any], length: NDArray[np.integer]) -> SubjectMentions:
        """The subjects in rows of tokens (B, L) with lengths (B,)."""
        matches = self._lexicon.match(tokens, length)
        stop, width = matches.start + matches.size, tokens.shape[1]
        first = tokens[matches.row, matches.start]
        mask = (matches.start == 0) | ~self.edges.cut(tokens[matches.row, np.maximum(matches.start - 1, 0)], first)
        last, after = tokens[matches.row, stop - 1], tokens[matches.row, np.minimum(stop, width - 1)]
        mask &= (stop >= np.asarray(length)[matches.row]) | ~self.edges.cut(last, after)
        longest = np.zeros(tokens.shape, np.int64)  # the item of the longest match at each column: sizes ascend
        longest[matches.row[mask], matches.start[mask]] = matches.item[mask]
        steps = np.ones(tokens.shape, np.int64)
        steps[matches.row[mask], matches.start[mask]] = matches.size[mask]
        chosen = _walked(steps) & (self.subject[longest] > 0)
        row, start = np.nonzero(chosen)
        return SubjectMentions(row, start, steps[row, start], self.subject[longest[row, start]].astype(np.int64))


def _walked(steps: Int64) -> NDArray[np.bool_]:
    """(B, L) the columns that are reached from the first one if each column says how far the next is."""
    count, width = steps.shape
    reached = np.zeros((count, width), np.bool_)
    rows, column = np.arange(count), np.zeros(count, np.int64)
    while len(rows):
        reached[rows, column] = True
        column = column + steps[rows, column]
        left = column < width
        rows, column = rows[left], column[left]
    return reached


def _spelled(names: Sequence[str], tokenizer: Tokenizer) -> dict[str, list[tuple[int, ...]]]:
    """The ways in which a text may spell each name as tokens: at its beginning, after a space, and after a mark."""
    spellings: dict[str, dict[tuple[int, ...], None]] = {name: {} for name in names}
    for before in ("", " ", "("):
        size = 0 if before.isspace() else len(tokenizer.encode(before).ids)
        for name, encoded in zip(names, tokenizer.encode_batch([before + name for name in names]), strict=True):
            spellings[name][tuple(encoded.ids[size:].tolist())] = None
    return {name: list(ways) for name, ways in spellings.items()}


def read_triples(file: str) -> list[tuple[str, str, str]]:
    """The facts of a file, a line each: subject, predicate, object, separated by tabs. Empty lines count nothing. A first line
    that names the columns, as in a graph's file (`triple_files.py`), is no fact and states their order.

    Raises `RecipeError` for a missing file, and `CorpusError` with file and line for a line of another form.
    """
    path = Path(file).expanduser()
    if path.is_dir():
        raise RecipeError(f"triples.file: {file}: is a folder; expected a file with lines `subject TAB predicate TAB object`.")
    if not path.is_file():
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = propose(path.name, siblings) if siblings else "Give a file with lines `subject TAB predicate TAB object`."
        raise RecipeError(f"triples.file: {file}: no such file. {hint}")
    lines = decoded(path.read_bytes(), file).split("\n")
    facts = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 3:
            raise CorpusError(
                f"{file}:{number}: {len(cells)} column{'s' * (len(cells) != 1)}, expected subject, predicate and object, "
                f"separated by tabs: {line.strip()[:60]!r}.\n  Write one fact per line; a cell has no tab."
            )
        if not all(cells):
            empty = ("subject", "predicate", "object")[cells.index("")]
            raise CorpusError(f"{file}:{number}: the {empty} is empty: {line.strip()[:60]!r}.\n  Fill it in, or delete the line.")
        facts.append((cells[0], cells[1], cells[2]))
    if facts and (order := header_order(facts[0])) is not None:
        head, relation, tail = (order.index(name) for name in COLUMNS)
        facts = [(fact[head], fact[relation], fact[tail]) for fact in facts[1:]]
    if not facts:
        raise CorpusError(f"{file}: no facts; expected lines `subject TAB predicate TAB object`.")
    return facts
