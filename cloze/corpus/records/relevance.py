"""How relevant a passage is to a query."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count, Natural
from cloze.corpus.readers.judgments import JudgedPassage, candidates, drawn_numbers, grade_of, is_qrels, require_no_folder
from cloze.corpus.readers.labelled import members, names_of
from cloze.corpus.readers.unusable import Fault, unusable
from cloze.corpus.records.answer import Columns, Record, RecordEncoder
from cloze.corpus.records.number import NumberAnswer
from cloze.corpus.records.table import table_rows, wanted_columns
from cloze.corpus.records.windows import TextParts
from cloze.errors import Parameter, TaskError
from cloze.registry import register

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer

Cells = tuple[int, tuple[str, ...]]  # a row of a table: its line, the query, the passage, and perhaps what answers


@register("answer", "relevance")
class RelevanceAnswer(NumberAnswer):
    """Whether the second text, a passage, is relevant to the first, a query: 1 for a grade of 1 or more, else 0.

    Files are tables with the grade in the column of the label, tables with a passage that is not relevant, or a list of such, in
    the column `wrong`, tables of relevant pairs alone, and judgments with their collection (`cloze/corpus/readers/judgments.py`).
    In the last two, `negatives` further passages are drawn at random for every query; where a run stands next to the judgments,
    from the `top` passages that it ranks highest and that are not judged, or from all of them.
    """

    def __init__(self, *, wrong: str = "wrong", negatives: Natural = 10, top: Count | None = None) -> None:
        self.wrong, self.negatives, self.top = wrong, negatives, top

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The pairs of a file; a row with a grade that is no whole number cannot be used."""
        if columns.text_b is None:
            raise TaskError("corpus.text_b: relevance needs a query and a passage. Name the column of the passage.")
        require_no_folder(path)
        if is_qrels(path):
            pairs = candidates(path, negatives=self.negatives, top=self.top, fault=fault)
        else:
            how = {"format": columns.format, "columns": columns.names, "quoting": columns.quoting}
            header = (columns.label,) if str(path) == "-" else names_of(path, **how)  # type: ignore[arg-type]
            answer = answer_column(header, columns.label, self.wrong)
            wanted = wanted_columns(columns)
            if answer != columns.label:
                wanted.pop(columns.label)
                wanted |= {} if answer is None else {answer: Parameter("corpus.answer.wrong", "NAME")}
            rows = table_rows(path, columns, fault, wanted)
            pairs = table_candidates(path, rows, graded=answer == columns.label, negatives=self.negatives, fault=fault)
        for pair in pairs:
            yield Record(pair.line, (pair.query, pair.passage), float(pair.grade >= 1))

    def parse(self, cell: str) -> float:
        """A cell as a grade."""
        return float(grade_of(cell))

    def head_arguments(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """One output, and the share of relevant pairs, smoothed by half a pair of each kind."""
        labels = np.asarray(stored["label"], np.float64)
        return {"classes": 1, "shares": [float((labels.sum() + 0.5) / (len(labels) + 1))]}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """How many pairs are relevant, and the constant answer, by which no passage is before another."""
        relevant = int(np.asarray(stored["label"]).sum())
        return {"constant_answer": "equal scores", "label_counts": {"0": len(stored["label"]) - relevant, "1": relevant}}


class _FirstEncoder(RecordEncoder):
    def answers(self, records: Sequence[Record], path: str) -> tuple[Mapping[str, NDArray[Any]], None]:
        return {"label": np.zeros(len(records), np.int32)}, None


@register("answer", "candidates")
class CandidatesAnswer(RelevanceAnswer):
    """As `relevance`, but a record is a query with a relevant passage, which is the first, and at most `negatives` others of the
    query, drawn at random. A query without a relevant passage or without others has no record."""

    columns: Mapping[str, Any] = {"label": np.int32}
    gives: frozenset[str] = frozenset({"column/label"})
    lists: ClassVar[bool] = True

    def encoder(self, tokenizer: Tokenizer, classes: Sequence[str] | None) -> _FirstEncoder:
        """The encoder of records."""
        return _FirstEncoder(tokenizer)

    def read(self, path: Path | str, columns: Columns, fault: Fault | None = None) -> Iterator[Record]:
        """The groups of a file; one without any is a `TaskError`."""
        pairs: dict[str, tuple[list[tuple[int, str]], list[str]]] = {}
        for record in super().read(path, columns, fault):
            query, passage = record.texts
            relevant, others = pairs.setdefault(query, ([], []))
            if record.answer:
                relevant.append((record.line, passage))
            else:
                others.append(passage)
        groups = [(query, *group) for query, group in pairs.items() if all(group)]
        if not groups and fault is None:
            raise TaskError(f"{path}: no query has a relevant passage and another one; expected both for at least one query.")
        for query, relevant, others in groups:
            for line, passage in relevant:
                numbers = drawn_numbers(len(others), (), self.negatives, query, passage)
                yield Record(line, (query, passage, *(others[number] for number in numbers)), 0)

    def fields(self, stored: Mapping[str, NDArray[Any]], parts: TextParts, class_count: int) -> Mapping[str, NDArray[Any]]:
        """`column/label` (B,)."""
        return {"column/label": stored["label"]}

    def head_arguments(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """None."""
        return {}

    def description(self, stored: Mapping[str, NDArray[Any]], classes: Sequence[str]) -> dict[str, Any]:
        """The constant answer."""
        return {"constant_answer": "equal scores"}


def answer_column(names: Collection[str], label: str, wrong: str) -> str | None:
    """The column that tells which passages are relevant: that of grades, else that of wrong passages; None if neither."""
    return next((name for name in (label, wrong) if name in names), None)


def table_candidates(
    path: Path | str, rows: Iterable[Cells], *, graded: bool, negatives: int, fault: Fault | None = None
) -> Iterator[JudgedPassage]:
    """The candidates in the rows of a table, whose third cell, if there is one, is a grade (`graded`) or wrong passages.

    The id of a query is the line where it is first, that of a passage its line; wrong passages also have a number.
    Where rows have two cells, `negatives` passages of other rows are drawn for each query.
    """
    first: dict[str, int] = {}
    relevant: dict[str, dict[str, int]] = {}
    for line, (query, passage, *answer) in rows:
        query_id = str(first.setdefault(query, line))
        if graded:
            try:
                yield JudgedPassage(line, query, passage, grade_of(answer[0]), query_id, str(line))
            except ValueError as error:
                unusable(path, line, f"the grade is {error}", fault=fault)
        elif answer:
            yield JudgedPassage(line, query, passage, 1, query_id, str(line))
            for number, wrong in enumerate(members(answer[0]), start=1):
                yield JudgedPassage(line, query, str(wrong or ""), 0, query_id, f"{line}.{number}")
        else:
            relevant.setdefault(query, {}).setdefault(passage, line)
    line_of: dict[str, int] = {}
    for passages in relevant.values():
        for passage, line in passages.items():
            line_of.setdefault(passage, line)
    every = list(line_of)
    number_of = {passage: number for number, passage in enumerate(every)}
    for query, passages in relevant.items():
        query_id = str(first[query])
        for passage, line in passages.items():
            yield JudgedPassage(line, query, passage, 1, query_id, str(line_of[passage]))
        for number in drawn_numbers(len(every), {number_of[passage] for passage in passages}, negatives, query):
            yield JudgedPassage(first[query], query, every[number], 0, query_id, str(line_of[every[number]]))
