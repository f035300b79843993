"""Words in context with their supersense: does a network of senses tell them apart? (`cloze evaluate --senses`)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.batch import Batch
from cloze.corpus.readers.labelled import read_table
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import CheckpointError, TaskError, propose
from cloze.objectives.tokens.sense_prediction import SensePrediction
from cloze.tasks.task import Report, silent

PIECES, SINGLE, OTHER, LONG = (
    "the word is not one token of this vocabulary, or not in the list", "the list gives the word one sense",
    "the list does not give the word this sense", "longer than the network reads",
)


@dataclass(frozen=True)
class Occurrence:
    """A word of a text, from character `start`, and its sense there; `where` is the file and line."""

    text: str
    word: str
    start: int
    sense: str
    where: str = ""


@dataclass(frozen=True)
class SenseAccuracy:
    """How often the most probable of the senses that a word may have is right, over words with several.

    `shown`: the network reads the word; `masked`: it reads [MASK] in its place. `first`: always giving the list's first sense,
    which is the most frequent one if the list is in that order. `most_frequent`: always giving the sense that the word has most
    often in these very texts, the most that is possible without context. `left_out` counts words that are not judged, by reason.
    """

    words: int
    shown: float
    masked: float
    first: float
    most_frequent: float
    left_out: Mapping[str, int]

    def record(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return asdict(self)


def read_occurrences(path: Path | str) -> list[Occurrence]:
    """A table (TSV, CSV, JSON lines) with the columns `text`, `word`, `sense` and optionally `start`, the word's first character.

    Without `start` the word must stand in the text once. Faults are `TaskError`s with file and line.
    """
    table = read_table(path)
    texts, words, senses = (table.column(name) for name in ("text", "word", "sense"))
    starts = table.column("start") if "start" in table.columns else [""] * len(table)
    occurrences = []
    for line, text, word, sense, cell in zip(table.lines, texts, words, senses, starts, strict=True):
        where, word = f"{path}:{line}", word.strip()
        if cell.strip() and not cell.strip().isdecimal():
            raise TaskError(f"{where}: start is {cell!r}; expected the number of characters before the word.")
        if not cell.strip() and (not word or text.count(word) != 1):
            raise TaskError(
                f"{where}: {word!r} stands {text.count(word) if word else 0} times in {text[:60]!r}, expected once.\n"
                "  Give a column `start` with the number of characters before the word."
            )
        start = int(cell) if cell.strip() else text.index(word)
        if not word or text[start : start + len(word)] != word:
            raise TaskError(f"{where}: {text[start : start + len(word)]!r} stands at character {start}, expected {word!r}.")
        occurrences.append(Occurrence(text, word, start, sense.strip(), where))
    return occurrences


@dataclass(frozen=True)
class Judge:
    """A network of senses: its reader, the head over the vocabulary whose rows are read, the head of senses, and their table."""

    reader: Reader
    head: Any
    senses: SensePrediction
    table: Any

    @classmethod
    def of(cls, loaded: Checkpoint, tables: Mapping[str, Any]) -> Judge:
        """That of a checkpoint; a `CheckpointError` for one without a head of senses."""
        name = next((name for name, head in loaded.heads.items() if isinstance(head, SensePrediction)), None)
        if name is None:
            raise CheckpointError(
                f"{loaded.folder}: this network has no head of senses.\n"
                "  Use one that learned sense_prediction, such as sensebert."
            )
        senses: Any = loaded.heads[name]
        return cls(Reader.of(loaded), loaded.heads[loaded.reads[name][""]], senses, tables[senses.name])

    @torch.inference_mode()
    def scores(self, rows: Sequence[Framed], columns: Sequence[int]) -> Tensor:
        """The scores of all senses (M, S) at one column of each row."""
        batch = self.reader.batch(rows)
        width = batch["tokens"].shape[1]
        at = torch.tensor([number * width + column for number, column in enumerate(columns)], device=self.reader.device)
        states = self.reader.states(batch, self.head.reads, positions=at)
        head_batch = Batch({**batch, self.head.positions_field: at}, checked=True)
        with self.reader.autocast():
            scores = self.senses.of_rows(self.head.head.transform_rows(self.head.rows(states, head_batch)))
        return scores.float().cpu()


def evaluate(
    judge: Judge, occurrences: Sequence[Occurrence], *, rows: int = 32, report: Report = silent
) -> SenseAccuracy:
    """Judge the words that may have several senses. Raises a `TaskError` for an unknown sense."""
    for occurrence in occurrences:
        if occurrence.sense not in judge.table.names:
            raise TaskError(
                f"{occurrence.where}: {occurrence.sense!r} is no sense of this network. "
                f"{propose(occurrence.sense, judge.table.names)}"
            )
    left: Counter[str] = Counter()
    cases: list[tuple[Occurrence, Framed, int, int]] = []
    for occurrence in occurrences:
        placement = _placed(judge, occurrence)
        if isinstance(placement, str):
            left[placement] += 1
        else:
            cases.append((occurrence, *placement))
    if not cases:
        why = "; ".join(f"{number}: {reason}" for reason, number in left.items())
        raise TaskError(f"none of {len(occurrences)} words can be judged ({why}).")
    right: NDArray[np.float64] = np.zeros((len(cases), 3))
    for index in judge.reader.batches([len(row) for _, row, _, _ in cases], rows=rows):
        part = [cases[number] for number in index]
        right[index] = _judged(judge, part)
        report(len(index))
    sense_counts = Counter((case.word.casefold(), case.sense) for case, *_ in cases)
    best: dict[str, int] = {}
    for (word, _), number in sense_counts.items():
        best[word] = max(best.get(word, 0), number)
    unmasked, masked, first = right.mean(0).tolist()
    return SenseAccuracy(len(cases), unmasked, masked, first, sum(best.values()) / len(cases), dict(left))


def _placed(judge: Judge, occurrence: Occurrence) -> tuple[Framed, int, int] | str:
    """The row of a text, the column of the word and the id of its sense; or why it is not judged."""
    spelled = judge.reader.tokenizer.encode_spelled([occurrence.text])
    at = np.flatnonzero((spelled.end > occurrence.start) & (spelled.begin < occurrence.start + len(occurrence.word)))
    allowed = judge.table.allowed[spelled.ids[at[0]]] if len(at) == 1 else np.zeros(1, bool)
    sense = judge.table.names.index(occurrence.sense)
    if not allowed.any():
        return PIECES
    if not allowed[sense]:
        return OTHER
    if allowed.sum() == 1:
        return SINGLE
    row = judge.reader.single_layout([spelled.ids]).marked(judge.reader.marks([occurrence.text]))
    if judge.reader.max_length is not None and len(row) > judge.reader.max_length:
        return LONG
    (row,) = judge.reader.with_facts([row], judge.reader.max_length)
    return row, int(np.flatnonzero(row.part == 0)[at[0]]), sense


def _judged(judge: Judge, part: Sequence[tuple[Occurrence, Framed, int, int]]) -> NDArray[np.float64]:
    """Whether the answer is right: of the network with the word, without it, and the first sense of the list, (M, 3)."""
    rows, columns = [row for _, row, _, _ in part], [column for _, _, column, _ in part]
    senses, ids = np.array([sense for *_, sense in part]), np.array([row.ids[column] for _, row, column, _ in part])
    mask = judge.reader.tokenizer.role("[MASK]")
    hidden = [row.masked(np.array([column]), mask) for row, column in zip(rows, columns, strict=True)]
    impossible = torch.from_numpy(~judge.table.allowed[ids])
    answers = [
        judge.scores(inputs, columns).masked_fill(impossible, -torch.inf).argmax(1).numpy() == senses for inputs in (rows, hidden)
    ]
    return np.stack([*answers, judge.table.first[ids] == senses], axis=1).astype(np.float64)
