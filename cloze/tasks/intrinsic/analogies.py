"""Analogies: how many of a file's questions the vectors answer, by section, with coverage and restriction stated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cloze.corpus.readers.text_files import cells_of, lines
from cloze.decoding.vectors.neighbours import EPSILON, Method, solve
from cloze.errors import TaskError
from cloze.interop.vectors import Vectors
from cloze.tasks.intrinsic.similarity import Unknown, check_unknown, lower_case_helps
from cloze.tasks.task import Report, silent

_TOGETHER = 256


@dataclass(frozen=True)
class AnalogyQuestion:
    """`a` is to `b` as `c` is to `d`; predicted is `d`. `line` is its line in the file."""

    section: str
    a: str
    b: str
    c: str
    d: str
    line: int

    @property
    def words(self) -> tuple[str, str, str, str]:
        """All four."""
        return self.a, self.b, self.c, self.d


@dataclass(frozen=True)
class AnalogyCounts:
    """Answers of some questions. questions: in the file; known: with all four words; right: answered correctly.

    Unknown questions are left out of the accuracy (`skip`) or count as wrong (`zero`).
    """

    questions: int
    known: int
    right: int
    unknown: Unknown

    @property
    def accuracy(self) -> float | None:
        """The share of right answers among those that count; None if there are none."""
        total = self.known if self.unknown == "skip" else self.questions
        return self.right / total if total else None

    @property
    def coverage(self) -> float:
        """The share of questions whose words are all known."""
        return self.known / self.questions


@dataclass(frozen=True)
class Analogies:
    """What `analogies` found: by section, in all, and of the semantic and syntactic (`gram…`) sections if there are both.

    words: how many words were looked among; missing: those of the questions that are not among them, each once.
    """

    sections: dict[str, AnalogyCounts]
    groups: dict[str, AnalogyCounts]
    method: Method
    words: int
    restrict: int | None
    missing: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def total(self) -> AnalogyCounts:
        """All sections together."""
        return self.groups["total"]


def read_questions(path: Path | str) -> list[AnalogyQuestion]:
    """A file in the manner of word2vec's questions-words.txt: `: section` lines, and lines of four words.

    .gz and .xz are unpacked, empty lines passed over. Raises a `TaskError` with the line for wrong columns.
    """
    questions = []
    section = Path(path).name
    for line in lines(path):
        cells = cells_of(line.text)
        if not cells:
            continue
        if cells[0].startswith(":"):
            section = line.text.strip()[1:].strip() or f"section of line {line.number}"
            continue
        if len(cells) != 4:
            hint = " A file of word pairs? Give it by --similarity." if len(cells) == 3 else ""
            raise TaskError(
                f"{path}:{line.number}: {len(cells)} columns, expected 4 words (a b c d: a is to b as c is to d) or a line "
                f"`: section`.{hint}"
            )
        questions.append(AnalogyQuestion(section, cells[0], cells[1], cells[2], cells[3], line.number))
    if not questions:
        raise TaskError(f"{path}: no questions; expected lines of four words, under lines `: section`.")
    return questions


def analogies(
    vectors: Vectors,
    questions: Sequence[AnalogyQuestion],
    *,
    method: Method = "add",
    restrict: int | None = None,
    unknown: Unknown = "skip",
    lower: bool = False,
    epsilon: float = EPSILON,
    report: Report = silent,
) -> Analogies:
    """Answer every question whose four words are among the vectors (the first `restrict` of them), by `solve`.

    The three words of a question are never its answer. `lower` looks words up in lower case.
    """
    check_unknown(unknown)
    most = len(vectors) if restrict is None else min(restrict, len(vectors))
    rows = np.full((len(questions), 4), -1, np.int64)
    missing: dict[str, None] = {}
    for number, question in enumerate(questions):
        for column, word in enumerate(question.words):
            row = vectors.row(word.lower() if lower else word)
            if row is None or row >= most:
                missing[word] = None
            else:
                rows[number, column] = row
    answerable = (rows >= 0).all(1)
    right = np.zeros(len(questions), np.bool_)
    numbers = np.flatnonzero(answerable)
    for start in range(0, len(numbers), _TOGETHER):
        batch = numbers[start : start + _TOGETHER]
        three = rows[batch, :3]
        answers, _ = solve(vectors, vectors.matrix[three], three.tolist(), method=method, restrict=restrict, epsilon=epsilon)
        right[batch] = answers[:, 0] == rows[batch, 3]
        report(len(batch))
    names = [question.section for question in questions]

    def part(chosen: Callable[[str], bool]) -> AnalogyCounts:
        mask = np.array([chosen(name) for name in names])
        return AnalogyCounts(int(mask.sum()), int((answerable & mask).sum()), int((right & mask).sum()), unknown)

    groups = {"total": part(lambda name: True)}
    grammar = {name.startswith("gram") for name in names}
    if len(grammar) == 2:
        groups = {
            "semantic": part(lambda name: not name.startswith("gram")),
            "syntactic": part(lambda name: name.startswith("gram")), **groups,
        }  # fmt: skip
    return Analogies(
        {name: part(lambda other, name=name: other == name) for name in dict.fromkeys(names)},  # type: ignore[misc]
        groups, method, most, restrict, tuple(missing), () if lower else lower_case_helps(vectors, missing, most=most),
    )  # fmt: skip
