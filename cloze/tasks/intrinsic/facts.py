"""Facts as gaps: does a masked language model know the object of "Paris is the capital of [MASK]."? (`cloze evaluate --facts`)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.readers.labelled import TextTable, read_table
from cloze.corpus.readers.text_files import lines, require_files
from cloze.decoding.layout import Framed
from cloze.decoding.marks import marks_around
from cloze.decoding.reader import Reader
from cloze.errors import Parameter, TaskError
from cloze.tasks.task import Report, silent

PREFIX = "ENTITY/"  # of the names of entities' tokens, which `cloze vocab entities` adds

MASK = "[MASK]"
#: How a subject is read whose entity has a token (E-BERT, Poerner et al., 2020, §4): its token for its name; its token, a slash
#: and its name; or by its name and by its token, and the probabilities are averaged or the surer reading counts.
EntityReading = Literal["replace", "concat", "ens_avg", "ens_max"]
LEAK, PIECES, LONG, FIRST, OUTSIDE = (
    "the name of the subject reveals the answer", "no answer is one token of this vocabulary",
    "longer than the network reads", "the gap comes first, and this network predicts a token at the one before it",
    "no answer is in the vocabulary that is ranked",
)


@dataclass(frozen=True)
class FactPrompt:
    """A sentence with one `[MASK]`, and the answers that are right there.

    `subject` is the name that the sentence is about, `entity` its id, `where` the file and line. With a `template`, the subject
    stands at its [X].
    """

    text: str
    answers: tuple[str, ...]
    relation: str = ""
    subject: str = ""
    where: str = ""
    entity: str = ""
    template: str = ""

    def naming(self, subject: str) -> FactPrompt:
        """The sentence with these words for the subject."""
        return replace(self, text=self.template.replace("[Y]", MASK).replace("[X]", subject))

    @property
    def leaks(self) -> bool:
        """Whether an answer is part of the subject's name, in upper or lower case: *Apple* of *Apple Watch*."""
        return any(answer.casefold() in self.subject.casefold() for answer in self.answers)


@dataclass(frozen=True)
class Knowledge:
    """How well a model ranks the right answers among all tokens of its vocabulary.

    `p1`, `p5`, `p10`: the shares of facts with the right answer first, or among the first five or ten; `mrr`: the mean of one
    over its rank; `always`: `p1` of always giving the most frequent answer of the relation.
    """

    relation: str
    facts: int
    p1: float
    p5: float
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
    is the `subject` and [Y] the gap (as in LAMA; Petroni et al., 2019); optionally `subject`, `relation`, and `entity`, its id.
    """
    table = read_table(path)
    templated = "template" in table.columns and "text" not in table.columns
    text = Parameter("text", "column text, or template and subject", "words")
    texts = table.column("template" if templated else "text", text)
    objects = table.column("object")
    subjects = table.column("subject") if templated or "subject" in table.columns else [""] * len(table)
    relations, entities = (
        table.column(name) if name in table.columns else [""] * len(table) for name in ("relation", "entity")
    )
    return [
        _fact(table, *row) for row in zip(table.lines, texts, objects, subjects, relations, entities, strict=True)
    ]


def _fact(table: TextTable, line: int, text: str, objects: str, subject: str, relation: str, entity: str) -> FactPrompt:
    where = f"{table.path}:{line}"
    prompt = text if "text" in table.columns else text.replace("[Y]", MASK).replace("[X]", subject.strip())
    if prompt.count(MASK) != 1:
        expected = "one [MASK]" if "text" in table.columns else "one [Y]"
        raise TaskError(f"{where}: {text[:60]!r} has {prompt.count(MASK)} gaps, expected {expected} for the object.")
    answers = tuple(dict.fromkeys(answer.strip() for answer in objects.split("|") if answer.strip()))
    if not answers:
        raise TaskError(f"{where}: no object. Write the right answer, or several separated by |.")
    template = "" if "text" in table.columns else text
    return FactPrompt(prompt, answers, relation.strip(), subject.strip(), where, entity.strip(), template)


def read_vocabulary(path: Path | str, reader: Reader) -> NDArray[np.int64]:
    """The ids of the words of a file, one per line, as they stand in a sentence: the vocabulary that several models share, as
    LAMA's common_vocab_cased.txt. Words that are no single token are left out; a `TaskError` if all are."""
    require_files([path])
    words = [line.text.strip() for line in lines(path) if line.text.strip()]
    if not words:
        raise TaskError(f"{path}: no words; expected one per line.")
    frame = FactPrompt(f"a {MASK} .", tuple(words))
    ids = sorted({token for *_, token in _single_tokens(reader, frame)})
    if not ids:
        raise TaskError(f"{path}: none of {len(words)} words is one token of this vocabulary, such as {words[0]!r}.")
    return np.array(ids, np.int64)


def readings(facts: Sequence[FactPrompt], reader: Reader, reading: EntityReading | None) -> list[tuple[FactPrompt, ...]]:
    """How each fact is asked: as it is, with the token of its subject's entity, or in both ways. An entity without a token is
    read by its name. Raises a `TaskError` for facts without templates and entities."""
    if reading is None:
        return [(fact,) for fact in facts]
    if not any(fact.template and fact.entity for fact in facts):
        raise TaskError(f"--entities {reading}: expected facts with the columns object, subject, template and entity.")
    pairs = list[tuple[FactPrompt, ...]]()
    for fact in facts:
        token = f"[{PREFIX}{fact.entity}]"
        has_token = bool(fact.template and fact.entity) and reader.tokenizer.id(token) is not None
        fact_of_entity = fact.naming(f"{token} / {fact.subject}" if reading == "concat" else token) if has_token else fact
        pairs.append((fact_of_entity,) if reading in ("replace", "concat") else (fact, fact_of_entity))
    return pairs


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
    reader: Reader, head: Any, facts: Sequence[FactPrompt], *, no_leaks: bool = False, entities: EntityReading | None = None,
    vocabulary: NDArray[np.int64] | None = None, rows: int = 32, report: Report = silent,
) -> FactResults:
    """Rank the answers of facts by a masked language model, among all tokens but the special ones, or among the ids of a
    `vocabulary`.

    `entities` says how a subject is read whose entity has a token (E-BERT). Of two readings of a fact, `ens_avg` averages the
    probabilities; `ens_max` takes those of the reading with the highest one, as in `run_lama.py` of NPoe/ebert.

    Only answers of one token can be ranked. Of several right answers the best one counts, and the others do not compete with it.
    Answers of equal score share the mean of their ranks, so a model that gives all tokens one score has no answer right.
    """
    tested_facts = without_leaks(facts) if no_leaks else facts
    left, gaps = Counter({LEAK: len(facts) - len(tested_facts)}), list[tuple[_Gap, ...]]()
    for versions in readings(tested_facts, reader, entities):
        prompts = [_gap(reader, fact, vocabulary) for fact in versions]
        reasons = [gap for gap in prompts if not isinstance(gap, _Gap)]
        if reasons:
            left[reasons[0]] += 1
        else:
            gaps.append(tuple(gap for gap in prompts if isinstance(gap, _Gap)))
    if not gaps:
        raise nothing_asked(facts, left, "Give facts whose objects are single common words.")
    ranks = np.zeros(len(gaps))
    banned = np.asarray(reader.tokenizer.special_ids, np.int64)
    if vocabulary is not None:
        banned = np.setdiff1d(np.arange(reader.tokenizer.size), np.setdiff1d(vocabulary, banned))
    for index in reader.batches([max(len(gap.row) for gap in versions) for versions in gaps], rows=rows):
        several = [gaps[i] for i in index]
        scores = [_scores(reader, head, version, banned) for version in zip(*several, strict=True)]
        ranks[index] = ranks_of([versions[0].right for versions in several], _ensemble(scores, entities))
        report(len(index))
    return fact_results([versions[0].fact for versions in gaps], ranks, left)


def nothing_asked(facts: Sequence[FactPrompt], left: Mapping[str, int], instead: str) -> TaskError:
    """The error if all facts were left out, for these reasons."""
    why = "; ".join(f"{number}: {reason}" for reason, number in left.items() if number)
    return TaskError(f"none of {len(facts)} facts can be asked ({why}).\n  {instead}")


def _single_tokens(reader: Reader, fact: FactPrompt) -> list[tuple[Framed, int, int]]:
    """For each answer of one token: the row with it, its column there, and its id."""
    start = fact.text.index(MASK)
    spelled = reader.tokenizer.encode_spelled([fact.text.replace(MASK, answer) for answer in fact.answers])
    candidates: list[tuple[Framed, int, int]] = []
    for number, answer in enumerate(fact.answers):
        tokens = slice(int(spelled.offsets[number]), int(spelled.offsets[number + 1]))
        before = len(fact.text[:start].rstrip(" "))  # a space before the answer may belong to its token, or be one
        at = np.flatnonzero((spelled.end[tokens] > before) & (spelled.begin[tokens] < start + len(answer)))
        ids = spelled.ids[tokens]
        if len(at) == 1 and ids[at[0]] not in reader.tokenizer.special_ids:
            row = reader.single_layout([ids])
            candidates.append((row, int(np.flatnonzero(row.part == 0)[at[0]]), int(ids[at[0]])))
    return candidates


def _gap(reader: Reader, fact: FactPrompt, vocabulary: NDArray[np.int64] | None) -> _Gap | str:
    """A fact as this network reads it, or the reason why it cannot be asked."""
    candidates = _single_tokens(reader, fact)
    if not candidates:
        return PIECES
    right = tuple(token for *_, token in candidates if vocabulary is None or token in vocabulary)
    if not right:
        return OUTSIDE
    row, column, _ = candidates[0]
    if reader.max_length is not None and len(row) > reader.max_length:
        return LONG
    if not reader.predictable(row)[column]:
        return FIRST
    row = row.masked(np.array([column]), reader.tokenizer.role(MASK))
    row = row.marked([marks_around(reader, row.ids[row.part == 0], fact.text)])
    (row,) = reader.with_facts([row], reader.max_length)
    return _Gap(fact, row, int(row.columns_of(np.array([column]))[0]), right)


@torch.inference_mode()
def _scores(reader: Reader, head: Any, gaps: Sequence[_Gap], banned: NDArray[np.int64]) -> torch.Tensor:
    """The score of each token in each gap, -inf for those that are not ranked."""
    batch = reader.batch([gap.row for gap in gaps])
    width = batch["tokens"].shape[1]
    columns = torch.tensor([number * width + gap.column for number, gap in enumerate(gaps)], device=reader.device)
    inputs, at = reader.prediction_inputs(head, batch, columns)
    scores = reader.token_scores(head, reader.states(inputs, head.reads, positions=at), inputs, at)
    return scores.index_fill(1, torch.from_numpy(banned).to(scores.device), -torch.inf)


def _ensemble(scores: Sequence[torch.Tensor], entities: EntityReading | None) -> torch.Tensor:
    """The scores of one reading, or the probabilities that two readings make."""
    if len(scores) == 1:
        return scores[0]
    by_name, by_entity = (reading.float().softmax(-1) for reading in scores)
    if entities == "ens_avg":
        return (by_name + by_entity) / 2
    return torch.where(by_name.amax(-1, keepdim=True) > by_entity.amax(-1, keepdim=True), by_name, by_entity)


def ranks_of(right_ids: Sequence[tuple[int, ...]], scores: torch.Tensor) -> NDArray[np.float64]:
    """The rank of the best right answer of each gap, from 1; the mean of ranks where scores are equal."""
    ranks = np.zeros(len(right_ids))
    for number, ids in enumerate(right_ids):
        right = torch.tensor(ids, device=scores.device)
        best = scores[number, right].max()
        rivals = scores[number].index_fill(0, right, -torch.inf)
        ranks[number] = 1 + int((rivals > best).sum()) + int((rivals == best).sum()) / 2
    return ranks


def fact_results(facts: Sequence[FactPrompt], ranks: NDArray[np.float64], left: Mapping[str, int]) -> FactResults:
    """The measures of facts whose right answers have these ranks (M,), and how many were left out for which reason."""
    names = list(dict.fromkeys(fact.relation for fact in facts))
    members = {name: [number for number, fact in enumerate(facts) if fact.relation == name] for name in names}
    always = np.zeros(len(facts))
    for places in members.values():
        counts = Counter(answer for number in places for answer in facts[number].answers)
        frequent_answer = counts.most_common(1)[0][0]
        always[places] = [frequent_answer in facts[number].answers for number in places]
    relations = tuple(_knowledge(name, ranks[places], always[places]) for name, places in members.items())
    means = np.mean([(of.p1, of.p5, of.p10, of.mrr, of.always) for of in relations], axis=0).tolist()
    reasons = {reason: number for reason, number in left.items() if number}
    return FactResults(_knowledge("all", ranks, always), Knowledge("mean of relations", len(facts), *means), relations, reasons)


def _knowledge(name: str, ranks: NDArray[np.float64], always: NDArray[np.float64]) -> Knowledge:
    shares = [float(np.mean(values)) for values in (ranks <= 1, ranks <= 5, ranks <= 10, 1 / ranks, always)]
    return Knowledge(name, len(ranks), *shares)
