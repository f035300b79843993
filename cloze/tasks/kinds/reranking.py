"""Score how relevant a passage is to a query, and rank the candidates of a query: a cross-encoder, which reads both in one row.

monoBERT (Nogueira and Cho, 2019, "Passage Re-ranking with BERT", §3; nyu-dl/dl4marco-bert). It is the second stage of a search,
which MTEB and the libraries of such models call reranking; `retrieval` is the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.corpus.readers.judgments import JudgedPassage, candidates, is_qrels, require_no_folder
from cloze.corpus.readers.labelled import OPTION, TextTable
from cloze.corpus.records.relevance import answer_column, table_candidates
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import TaskError, counted
from cloze.registry import register
from cloze.tasks.linear.cutting import Cutter
from cloze.tasks.linear.estimators import GroupChoice
from cloze.tasks.linear.features import Bags
from cloze.tasks.linear.linear_task import LinearTask, of_pair
from cloze.tasks.measures.bm25 import bm25
from cloze.tasks.measures.ranking import mean_metrics, metrics_by_query
from cloze.tasks.task import LabelledRow, Prediction, Report, silent
from cloze.tasks.texts import LABEL, TEXT_B, LabelledTexts, SummaryLearner, TextTask, head_of_task

#: By name whether more is better; the first selects the checkpoint.
METRICS = dict.fromkeys(("ndcg@10", "mrr@10", "map", "recall@10", "recall@100", "success@1"), True)
_ORDERS = 16  # random orders that stand for equal scores


class Judgment(NamedTuple):
    """How relevant a candidate is, its query with its id, its own id, and the grades of the relevant passages of the query that
    are no candidates."""

    grade: int
    query: str
    query_id: str
    passage_id: str
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class JudgedPassages(LabelledTexts[int]):
    """Pairs of a query and a passage with their grades, the further fields of their `Judgment`s, and their scores in the run, 0
    without one."""

    query_ids: list[str] = field(default_factory=list)
    passage_ids: list[str] = field(default_factory=list)
    missing: list[tuple[int, ...]] = field(default_factory=list)
    run_scores: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, pairs: Iterable[JudgedPassage], path: Path | str, *, labelled: bool = True) -> JudgedPassages:
        """The candidates of a file."""
        columns: list[Any] = [list(column) for column in zip(*pairs, strict=True)] or [[] for _ in JudgedPassage._fields]
        lines, queries, passages, grades, *others = columns
        further = dict(zip(("query_ids", "passage_ids", "missing", "run_scores"), others, strict=True))
        return cls(queries, passages, grades if labelled else None, str(path), tuple(lines), **further)

    def by_query(self) -> list[list[int]]:
        """The numbers of the candidates of every query."""
        return groups(zip(self.query_ids, self.texts, strict=True))


def groups(queries: Iterable[tuple[str, str]]) -> list[list[int]]:
    """The numbers of the candidates of every query, which is an id and a text: lines of several files may be the same."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for number, query in enumerate(queries):
        numbers.setdefault(query, []).append(number)
    return list(numbers.values())


def ranked(numbers: Sequence[int], scores: NDArray[Any], passage_ids: Sequence[str]) -> list[int]:
    """The candidates of a query, the highest score first; of equal scores the alphabetically last id, as in trec_eval."""
    by_name = sorted(numbers, key=lambda number: passage_ids[number], reverse=True)
    return sorted(by_name, key=lambda number: -scores[number])


@dataclass(frozen=True)
class Reranking(TextTask):
    """A task whose rows are a query, a passage and how relevant it is; metrics are means over queries.

    `wrong` and `negatives`: see `RelevanceAnswer`."""

    text: str = "query"
    text_b: str | None = "passage"
    wrong: str = "wrong"
    negatives: int = 10
    name: str = "reranking"
    writes: ClassVar[tuple[str, ...]] = ("trec",)
    pipeline: ClassVar[str | None] = "text-ranking"
    instead_of_text: ClassVar[str] = "scores passages"
    metrics: ClassVar[Mapping[str, bool]] = METRICS

    def read(self, path: Path | str, *, labelled: bool = True) -> JudgedPassages:
        """The candidates of a file; with `labelled=False`, those of a table are its rows. Grades are read if they are there."""
        require_no_folder(path)
        if is_qrels(path):
            return JudgedPassages.of(candidates(path, negatives=self.negatives, whole_run=True), path)
        table = self.table(path)
        has_grades = self.label in table.columns
        columns = [table.column(self.text, OPTION), table.column(str(self.text_b), TEXT_B)]
        if labelled or has_grades:
            answer = answer_column(table.columns, self.label, self.wrong)
            columns += [] if answer is None else [table.column(answer, LABEL)]
        else:
            columns.append(["0"] * len(table))
        rows = zip(table.lines, zip(*columns, strict=True), strict=True)
        pairs = table_candidates(path, rows, graded=has_grades or not labelled, negatives=self.negatives)
        return JudgedPassages.of(pairs, table.path, labelled=labelled or has_grades)

    def rows_of(self, path: Path | str) -> TextTable | None:
        """The rows of a table; None for judgments."""
        return None if is_qrels(path) else self.table(path)

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> Reranker:
        """The reranker of a fine-tuned folder."""
        reader = Reader.of(loaded)
        return Reranker(reader, head_of_task(loaded, task_json), self, length=task_json.get("length"))

    def truth(self, examples: JudgedPassages, labels: Sequence[str], *, numbered: bool = False) -> list[Judgment]:
        """The judgment of every candidate."""
        columns = examples.require_labels(), examples.texts, examples.query_ids, examples.passage_ids, examples.missing
        return [Judgment(*row) for row in zip(*columns, strict=True)]

    def per_example(self, truth: Any, outputs: NDArray[Any], labels: Sequence[str]) -> NDArray[np.float64]:
        """What the ranking of the candidates of every query is worth by each metric, (Q, M), from judgments and scores (N,).

        As in trec_eval, a passage with a grade of 1 or more is relevant, grades are the gains of nDCG, candidates with equal
        scores are in the reverse order of their ids, and a query without a relevant passage counts 0.
        """
        ranks_by_query, grades_by_query = [], []
        passage_ids = [judgment.passage_id for judgment in truth]
        for numbers in groups([(judgment.query_id, judgment.query) for judgment in truth]):
            grades = np.array([truth[number].grade for number in ranked(numbers, outputs, passage_ids)], np.int64)
            ranks_by_query.append(1 + np.flatnonzero(grades >= 1))
            grades_by_query.append(np.concatenate([grades[grades >= 1], np.array(truth[numbers[0]].missing, np.int64)]))
        return metrics_by_query(ranks_by_query, grades_by_query, METRICS)

    def compute_metrics(self, per_example: Any, labels: Sequence[str]) -> dict[str, float]:
        """The means over queries."""
        if not len(per_example):
            raise TaskError("no query with candidates to measure on.")
        return mean_metrics(np.asarray(per_example, np.float64), metrics=METRICS)

    def constant_metrics(self, constant_answer: str, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        """The metrics of equal scores, by which nothing is ranked: the means over random orders."""
        orders = (rng.permutation(len(truth), number, "equal scores") for number in range(_ORDERS))
        return self.compute_metrics(np.concatenate([self.per_example(truth, order, labels) for order in orders]), labels)

    def linear(self, labels: Sequence[str] = ()) -> LinearReranking:
        """Whether a passage is relevant, by the n-grams of both texts."""
        return LinearReranking(self)

    def description(self) -> dict[str, Any]:
        """The columns, and how many passages are drawn."""
        return {**super().description(), "wrong": self.wrong, "negatives": self.negatives}


class PairScores(GroupChoice):
    """The log-odds that a pair is a relevant one: logistic regression. Targets are (N,) of 0 and 1."""

    def pooled(self, first: Any, second: Any, share: float, sharpness: float) -> NDArray[Any]:
        """The weighted mean of log-odds."""
        return np.asarray(sharpness * ((1.0 - share) * first + share * second))

    def loss(self, outputs: Any, targets: Any) -> float:
        """The mean binary cross-entropy."""
        return float(np.logaddexp(0.0, np.where(targets > 0.5, -outputs, outputs)).mean())


class LinearReranking(LinearTask):
    """A score for each candidate, by the n-grams of both texts, and those of both and of one alone."""

    @property
    def estimator(self) -> PairScores:
        """Logistic regression."""
        return PairScores()

    def texts(self, examples: Any) -> Iterable[str]:
        """Both texts together."""
        return (" ".join(texts) for texts in examples.rows())

    def texts_apart(self, examples: Any) -> Iterable[Sequence[str]]:
        """The query: its candidates belong together."""
        return ((query,) for query in examples.texts)

    def bags(self, examples: Any, cutter: Cutter) -> Iterator[Bags]:
        """The n-grams of the query and the passage."""
        return (of_pair(query, passage, cutter) for query, passage in examples.rows())

    def targets(self, examples: Any) -> NDArray[np.float64]:
        """1 for the relevant candidates, 0 for the others."""
        return (np.array(examples.require_labels(), np.int64) >= 1).astype(np.float64)

    def outputs(self, scores: NDArray[Any], examples: Any) -> NDArray[Any]:
        """The only score of each candidate, (N,)."""
        return scores[:, 0]


@dataclass(frozen=True)
class ScoredPassage(Prediction):
    """How relevant a passage is to a query.

    Attributes:
        line: The line of the file that the pair comes from.
        text: The query.
        text_b: The passage.
        score: The log-odds that it is relevant.
        probability: The same as a probability.
        rank: Its rank among the candidates of the query, from 1.
        query_id: The query, as TREC's files name it: by its id, in tables by the line where it is first.
        passage_id: The passage: by its id, in tables by the line.
        cut: How many tokens did not fit.
    """

    line: int
    text: str
    text_b: str
    score: float
    probability: float
    rank: int
    query_id: str
    passage_id: str
    cut: int = 0

    def written_as(self, format: str | None) -> str | None:
        """A line of a run of TREC: query, Q0, passage, rank, score and the name of the run."""
        return f"{self.query_id} Q0 {self.passage_id} {self.rank} {self.score:.6f} cloze\n" if format == "trec" else None


class Reranker(SummaryLearner):
    """A network with a head that scores a query with a passage: by one output, the log-odds, or as in monoBERT by two classes.
    `lost_tokens` are those that did not fit of each pair that `scores_of` has read."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.lost_tokens: list[int] = []

    def row_outputs(self, rows: Sequence[Framed], size: int = 64, report: Report = silent) -> NDArray[np.float64]:
        """The log-odds that the passage of every row is relevant, (N,)."""
        scores = self.all_scores(rows, size, report).astype(np.float64)
        return scores[:, -1] - scores[:, 0] if scores.shape[1] == 2 else scores[:, 0]

    def scores_of(
        self, queries: Sequence[str], passages: Sequence[str], *, size: int = 64, report: Report = silent
    ) -> NDArray[np.float64]:
        """The same of pairs of texts."""
        rows = self.reader.encode(queries, passages, max_length=self.length)
        self.lost_tokens += [row.cut for row in rows]
        return self.row_outputs(rows, size, report)

    def remarks(self, examples: JudgedPassages, rows: Sequence[LabelledRow], outputs: Any, per_example: Any) -> list[str]:
        """How the run or BM25 ranks the same candidates, how many relevant passages are none, and how many texts were cut."""
        truth = [row.truth for row in rows]
        whose, scores = "the run", np.array(examples.run_scores)
        if not scores.any():
            whose, scores = "BM25", bm25(examples.texts, examples.others or ())
        simple = self.compute_metrics(self.task.per_example(truth, scores, ()))
        remarks = [f"{whose} on the same candidates: {', '.join(f'{name} {value:.4f}' for name, value in simple.items())}"]
        missing = sum(len(truth[numbers[0]].missing) for numbers in examples.by_query())
        if missing:
            remarks.append(f"{counted(missing, 'relevant passage')} not among the candidates: no ranking of them can find these")
        return [*remarks, *super().remarks(examples, rows, outputs, per_example)]

    def predictions(
        self, examples: JudgedPassages, rows: Sequence[Framed], outputs: NDArray[np.floating]
    ) -> list[ScoredPassage]:
        """The score of every candidate, and its rank."""
        ranks = np.zeros(len(outputs), np.int64)
        for numbers in examples.by_query():
            ranks[ranked(numbers, outputs, examples.passage_ids)] = 1 + np.arange(len(numbers))
        probabilities = 0.5 * (1.0 + np.tanh(0.5 * outputs))
        columns = outputs.tolist(), probabilities.tolist(), ranks.tolist(), examples.query_ids, examples.passage_ids, rows
        return [
            ScoredPassage(*about, round(score, 6), round(probability, 6), rank, query_id, passage_id, self.cut_tokens(row))
            for about, (score, probability, rank, query_id, passage_id, row) in zip(
                examples.with_lines(), zip(*columns, strict=True), strict=True
            )
        ]


@register("task", "reranking")
def reranking(
    text: str = "query", text_b: str = "passage", label: str = "label", wrong: str = "wrong", negatives: int = 10
) -> Reranking:
    """How relevant a passage is to a query. The arguments are names of columns; `negatives`: see `RelevanceAnswer`."""
    return Reranking(text, text_b, label, wrong=wrong, negatives=negatives)
