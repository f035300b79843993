"""Pairs of words with people's scores: the rank correlation of cosines with them, and how many pairs were known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.text_files import cells_of, lines
from cloze.decoding.vectors.neighbours import cosine
from cloze.errors import TaskError, propose
from cloze.interop.vectors import Vectors
from cloze.tasks.measures.agreement import spearman

Unknown = Literal["skip", "zero"]
FEWEST = 10  # pairs with which a rank correlation says something: its standard error is then about a third


@dataclass(frozen=True)
class WordPair:
    """Two words and how similar people find them; `line` is their line in the file."""

    one: str
    two: str
    score: float
    line: int


@dataclass(frozen=True)
class Similarity:
    """Spearman's rank correlation over the pairs that counted; None if fewer than two, or if all are equal.

    pairs: in the file; found: with vectors for both words; composed: of these, with a word that only its n-grams give;
    unknown: what was done with the others; missing: the words without a vector, each once.
    """

    spearman: float | None
    pairs: int
    found: int
    composed: int
    unknown: Unknown
    missing: tuple[str, ...] = ()
    remarks: tuple[str, ...] = field(default=())

    @property
    def telling(self) -> bool:
        """Whether enough pairs were found for the correlation to say something."""
        return self.found >= FEWEST

    @property
    def coverage(self) -> float:
        """The share of pairs that were found."""
        return self.found / self.pairs


def read_pairs(path: Path | str) -> list[WordPair]:
    """A file with two words and a score per line, separated by tabs or else by white space; .gz and .xz are unpacked.

    Lines that are empty or begin with `#` are passed over. Wrong columns and scores that are no finite number are
    `TaskError`s with the line.
    """
    pairs = []
    for line in lines(path):
        text = line.text.strip()
        if not text or text.startswith("#"):
            continue
        cells = [cell.strip() for cell in text.split("\t")] if "\t" in text else cells_of(text)
        if len(cells) != 3:
            raise TaskError(
                f"{path}:{line.number}: {len(cells)} columns, expected 3: word, word, score, separated by tabs or spaces."
                f"{' A file of analogies? Give it by --analogies.' if len(cells) == 4 or text.startswith(': ') else ''}"
            )
        try:
            score = float(cells[2])
        except ValueError:
            score = float("nan")
        if not isfinite(score):
            hint = " Take the header line out." if line.number == 1 else ""
            raise TaskError(f"{path}:{line.number}: the score {cells[2]!r} is not a finite number.{hint}")
        pairs.append(WordPair(cells[0], cells[1], score, line.number))
    if not pairs:
        raise TaskError(f"{path}: no pairs; expected lines of two words and a score.")
    return pairs


def similarity(vectors: Vectors, pairs: Sequence[WordPair], *, unknown: Unknown = "skip", lower: bool = False) -> Similarity:
    """Spearman's correlation of cosines with people's scores.

    A pair with a word that has no vector is left out of the correlation (`skip`) or has the cosine 0 (`zero`); either way it
    is counted and its words are named. `lower` looks words up in lower case.
    """
    check_unknown(unknown)
    vector_pairs: list[tuple[NDArray[np.float32], NDArray[np.float32]]] = []
    truth, left, missing, composed = [], [], dict[str, None](), 0
    for pair in pairs:
        words = [word.lower() if lower else word for word in (pair.one, pair.two)]
        two = [vectors.find(word) for word in words]
        missing.update({word: None for word, vector in zip((pair.one, pair.two), two, strict=True) if vector is None})
        if two[0] is None or two[1] is None:
            left.append(pair.score)
            continue
        vector_pairs.append((two[0], two[1]))
        truth.append(pair.score)
        composed += any(vectors.row(word) is None for word in words)
    guess = cosine(*(np.stack(side) for side in zip(*vector_pairs, strict=True))).tolist() if vector_pairs else []
    if unknown == "zero":
        truth, guess = truth + left, guess + [0.0] * len(left)
    return Similarity(
        spearman(truth, guess), len(pairs), len(vector_pairs), composed, unknown, tuple(missing),
        (*(lower_case_helps(vectors, missing) if not lower else ()), *too_few(len(vector_pairs))),
    )  # fmt: skip


def too_few(count: int) -> tuple[str, ...]:
    """A remark if a correlation over so few pairs says nothing."""
    return () if count >= FEWEST else (f"too few pairs for a correlation: {count} of at least {FEWEST}",)


def check_unknown(unknown: str) -> None:
    """Raise a `TaskError` for an unknown way of treating unknown words."""
    if unknown not in get_args(Unknown):
        raise TaskError(f"unknown way with unknown words {unknown!r}. {propose(unknown, get_args(Unknown))}")


def lower_case_helps(vectors: Vectors, missing: Iterable[str], *, most: int | None = None) -> tuple[str, ...]:
    """A remark if words that are not among the first `most` vectors (None: all) are among them in lower case."""
    rows = {word: vectors.row(word.lower()) for word in missing}
    spelt = [word for word, row in rows.items() if row is not None and (most is None or row < most)]
    if not spelt:
        return ()
    return (f"{len(spelt)} of the unknown words are known in lower case, such as {spelt[0]!r}: --lower finds them.",)
