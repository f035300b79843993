"""Facts as gaps: does a masked language model know the object of "Paris is the capital of [MASK]."? (`cloze evaluate --facts`)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.readers.labelled import TextTable, read_table
from cloze.decoding.layout import Framed
from cloze.decoding.marks import marks_around
from cloze.decoding.reader import Reader
from cloze.errors import Parameter, TaskError
from cloze.tasks.task import Report, silent

MASK = "[MASK]"
LEAK, PIECES, LONG, FIRST = (
    "the name of the subject reveals the answer", "no answer is one token of this vocabulary",
    "longer than the network reads", "the gap comes first, and this network predicts a token at the one before it",
)


@dataclass(frozen=True)
class FactPrompt:
    """A sentence with one `[MASK]`, and the answers that are right there.

    `subject` is the name that the sentence is about, `where` the file and line.
    """

    text: str
    answers: tuple[str, ...]
    relation: str = ""
    subject: str = ""
    where: str = ""

    @property
    def leaks(self) -> bool:
        """Whether an answer is part of the subject's name, in upper or lower case: *Apple* of *Apple Watch*."""
        return any(answer.casefold() in self.subject.casefold() for answer in self.answers)


@dataclass(frozen=True)
class Knowledge:
    """How well a model ranks the right answers among all tokens of its vocabulary.

    `p1`, `p10`: the shares of facts with the right answer first, or among the first ten; `mrr`: the mean of one over its rank;
    `always`: `p1` of always giving the most frequent answer of the relation.
    """

    relation: str
    facts: int
    p1: float
    p10: float
    mrr: float
    always: float


@dataclass(frozen=True)
class FactResults:
    """All facts together, the mean over relations, each relation, and how many facts were left out for which reason."""

    overall: Knowledge
    mean: Knowledge
    relations: tuple[Knowledge, ...]
    left_out: Mapping[str, int]

    def record(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return asdict(self)


def read_facts(path: Path | str) -> list[FactPrompt]:
    """A table (TSV, CSV, JSON lines) with a row for each fact; faults are `TaskError`s with file and line.

    Columns: `object`, the right answer, or several separated by `|`; `text`, a sentence with `[MASK]`, or `template`, where [X]
    is the `subject` and [Y] the gap (as in LAMA; Petroni et al., 2019); optionally `subject` and `relation`.
    """
    table = read_table(path)
    templated = "template" in table.columns and "text" not in table.columns
    text = Parameter("text", "column text, or template and subject", "words")
    texts = table.column("template" if templated else "text", text)
    objects = table.column("object")
    subjects = table.column("subject") if templated or "subject" in table.columns else [""] * len(table)
    relations = table.column("relation") if "relation" in table.columns else [""] * len(table)
    return [
        _fact(table, *row) for row in zip(table.lines, texts, objects, subjects, relations, strict=True)
    ]


def _fact(table: TextTable, line: int, text: str, objects: str, subject: str, relation: str) -> FactPrompt:
    where = f"{table.path}:{line}"
    prompt = text if "text" in table.columns else text.replace("[Y]", MASK).replace("[X]", subject.strip())
    if prompt.count(MASK) != 1:
        expected = "one [MASK]" if "text" in table.columns else "one [Y]"
        raise TaskError(f"{where}: {text[:60]!r} has {prompt.count(MASK)} gaps, expected {expected} for the object.")
    answers = tuple(dict.fromkeys(answer.strip() for answer in objects.split("|") if answer.strip()))
    if not answers:
        raise TaskError(f"{where}: no object. Write the right answer, or several separated by |.")
    return FactPrompt(prompt, answers, relation.strip(), subject.strip(), where)


def without_leaks(facts: Sequence[FactPrompt]) -> list[FactPrompt]:
    """The facts whose subject's name does not contain an answer (Poerner et al., 2020, §3, the first of two heuristics).

    Raises a `TaskError` if there are no subjects, because nothing can be measured without them.
    """
    if not any(fact.subject for fact in facts):
        raise TaskError("--no-leaks compares the object with the name of the subject: give the facts a column `subject`.")
    return [fact for fact in facts if not fact.leaks]


@dataclass(frozen=True)
class _Gap:
    """A fact as it is read: its row with a mask in the column of the answer, and the ids that are right there."""

    fact: FactPrompt
    row: Framed
    column: int
    right: tuple[int, ...]


def evaluate(
    reader: Reader, head: Any, facts: Sequence[FactPrompt], *, no_leaks: bool = False, rows: int = 32,
    report: Report = silent,
) -> FactResults:
    """Rank the answers of facts by a masked language model, among all tokens but the special ones.

    Only answers of one token can be ranked. Of several right answers the best one counts, and the others do not compete with it.
    Answers of equal score share the mean of their ranks, so a model that gives all tokens one score has no answer right.
    """
    tested_facts = without_leaks(facts) if no_leaks else facts
    left, gaps = Counter({LEAK: len(facts) - len(tested_facts)}), []
    for fact in tested_facts:
        gap = _gap(reader, fact)
        if isinstance(gap, _Gap):
            gaps.append(gap)
        else:
            left[gap] += 1
    if not gaps:
        why = "; ".join(f"{number}: {reason}" for reason, number in left.items() if number)
        raise TaskError(f"none of {len(facts)} facts can be asked ({why}).\n  Give facts whose objects are single common words.")
    ranks = np.zeros(len(gaps))
    for index in reader.batches([len(gap.row) for gap in gaps], rows=rows):
        ranks[index] = _ranks(reader, head, [gaps[i] for i in index])
        report(len(index))
    return _found([gap.fact for gap in gaps], ranks, {reason: number for reason, number in left.items() if number})


def _gap(reader: Reader, fact: FactPrompt) -> _Gap | str:
    """A fact as this network reads it, or the reason why it cannot be asked."""
    start = fact.text.index(MASK)
    spelled = reader.tokenizer.encode_spelled([fact.text.replace(MASK, answer) for answer in fact.answers])
    candidates: list[tuple[Framed, int]] = []
    for number, answer in enumerate(fact.answers):
        tokens = slice(int(spelled.offsets[number]), int(spelled.offsets[number + 1]))
        before = len(fact.text[:start].rstrip(" "))  # a space before the answer may belong to its token, or be one
        at = np.flatnonzero((spelled.end[tokens] > before) & (spelled.begin[tokens] < start + len(answer)))
        ids = spelled.ids[tokens]
        if len(at) == 1 and ids[at[0]] not in reader.tokenizer.special_ids:
            row = reader.single([ids])
            candidates.append((row, int(np.flatnonzero(row.part == 0)[at[0]])))
    if not candidates:
        return PIECES
    row, column = candidates[0]
    if reader.max_length is not None and len(row) > reader.max_length:
        return LONG
    if not reader.predictable(row)[column]:
        return FIRST
    masked = row.ids.copy()
    masked[column] = reader.tokenizer.role(MASK)
    row = row.with_ids(masked).marked([marks_around(reader, masked[row.part == 0], fact.text)])
    return _Gap(fact, row, column, tuple(int(candidate.ids[position]) for candidate, position in candidates))


@torch.inference_mode()
def _ranks(reader: Reader, head: Any, gaps: Sequence[_Gap]) -> NDArray[np.float64]:
    """The rank of the best right answer of each gap, from 1; the mean of ranks where scores are equal."""
    batch = reader.batch([gap.row for gap in gaps])
    width = batch["tokens"].shape[1]
    columns = torch.tensor([number * width + gap.column for number, gap in enumerate(gaps)], device=reader.device)
    inputs, at = reader.prediction_inputs(head, batch, columns)
    scores = reader.token_scores(head, reader.states(inputs, head.reads, positions=at), inputs, at)
    scores[:, torch.as_tensor(reader.tokenizer.special_ids, dtype=torch.long, device=scores.device)] = -torch.inf
    ranks = np.zeros(len(gaps))
    for number, gap in enumerate(gaps):
        right = torch.tensor(gap.right, device=scores.device)
        best = scores[number, right].max()
        rivals = scores[number].index_fill(0, right, -torch.inf)
        ranks[number] = 1 + int((rivals > best).sum()) + int((rivals == best).sum()) / 2
    return ranks


def _found(facts: Sequence[FactPrompt], ranks: NDArray[np.float64], left: Mapping[str, int]) -> FactResults:
    names = list(dict.fromkeys(fact.relation for fact in facts))
    members = {name: [number for number, fact in enumerate(facts) if fact.relation == name] for name in names}
    always = np.zeros(len(facts))
    for places in members.values():
        counts = Counter(answer for number in places for answer in facts[number].answers)
        usual = counts.most_common(1)[0][0]
        always[places] = [usual in facts[number].answers for number in places]
    relations = tuple(_knowledge(name, ranks[places], always[places]) for name, places in members.items())
    means = np.mean([(relation.p1, relation.p10, relation.mrr, relation.always) for relation in relations], axis=0).tolist()
    return FactResults(_knowledge("all", ranks, always), Knowledge("mean of relations", len(facts), *means), relations, left)


def _knowledge(name: str, ranks: NDArray[np.float64], always: NDArray[np.float64]) -> Knowledge:
    shares = [float(np.mean(values)) for values in (ranks <= 1, ranks <= 10, 1 / ranks, always)]
    return Knowledge(name, len(ranks), *shares)
