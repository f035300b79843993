"""Find the passage that belongs to a query among many, by the products of their vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.corpus.readers.labelled import TextTable
from cloze.decoding.layout import Framed
from cloze.decoding.lengths import cut_remark
from cloze.decoding.reader import Checkpoint, Reader, evaluating
from cloze.decoding.reader_and_head import to_embed
from cloze.decoding.unknown import known_words, leaves_out_unknown
from cloze.decoding.vectors.embedding import length_of
from cloze.errors import TaskError
from cloze.interop.prompts import NO_PROMPTS, PROMPTS, Prompts, prompts_of
from cloze.networks.blocks.dropout import name_dropouts
from cloze.objectives.distances.embedding import Embedding
from cloze.registry import register
from cloze.tasks.measures.ranking import METRICS, Nearest, Vectors, mean_metrics, metrics_by_query, nearest, ranks
from cloze.tasks.task import LabelledRow, Learner, Prediction, Report, silent
from cloze.tasks.texts import LabelledTexts, TextTask, head_of_task

_TOGETHER = 1024  # passages that are made into vectors before they are compared


class RetrievedPassage(NamedTuple):
    """A passage that was found: its number, and its product with the query."""

    passage: int
    score: float


@dataclass(frozen=True)
class Retrieval(TextTask):
    """A task whose rows are a query and its passage; the passages of all other rows are wrong for it."""

    text: str = "query"
    text_b: str | None = "passage"
    label: str = ""
    name: str = "retrieval"
    pipeline: ClassVar[str | None] = "sentence-similarity"
    one_text: ClassVar[bool] = False
    metrics: ClassVar[Mapping[str, bool]] = METRICS

    def read_labels(self, table: TextTable, second_texts: list[Any] | None) -> list[Any]:
        """None: the texts are all that there is."""
        return [None] * len(table)

    def load(self, loaded: Checkpoint, task_json: Mapping[str, Any]) -> Retriever:
        """What makes queries and passages into vectors, of a fine-tuned folder; either may have a network of its own."""
        towers = task_json.get("towers") or {}
        query, passage = (_tower(loaded, {**task_json, **towers.get(side, {})}) for side in ("query", "key"))
        return Retriever(*query, self, length=task_json.get("length"), passages=passage if towers else None)

    def truth(self, examples: LabelledTexts[Any], labels: Sequence[str], *, numbered: bool = False) -> list[Any]:
        """The passage of every query."""
        if examples.others is None:
            raise TaskError(f"{examples.path}: retrieval needs a passage for every query.")
        return examples.others

    def per_example(self, truth: Any, outputs: Ranked, labels: Sequence[str]) -> NDArray[np.float64]:
        """The metrics of the query of every row (see `metrics_by_query`), and last the row's share of its query (N, M + 1).

        Every query counts once: a query of several rows has several right passages. A passage of several rows is one passage.
        """
        number = {query: at for at, query in enumerate(outputs.ranks)}
        at = np.array([number[row.query] for row in outputs.rows], np.int64)
        shares = 1 / np.bincount(at, minlength=1)[at]
        return np.concatenate([metrics_by_query(list(outputs.ranks.values()))[at], shares[:, None]], axis=1)

    def compute_metrics(self, per_example: Any, labels: Sequence[str]) -> dict[str, float]:
        """The means over queries."""
        worth = np.asarray(per_example, np.float64)
        return mean_metrics(worth[:, :-1], worth[:, -1])

    def constant_metrics(self, constant_answer: str, truth: Any, labels: Sequence[str]) -> dict[str, float]:
        """No passage is the usual one."""
        return {}

    def description(self) -> dict[str, Any]:
        """The columns."""
        return {"columns": {"text": self.text, "text_b": self.text_b}}


@dataclass(frozen=True)
class PassageMatch(Prediction):
    """The best passage for a query among those of its file, and the rank of its own."""

    line: int
    query: str
    passage: str
    score: float
    rank: int


class Row(NamedTuple):
    """A query and its passage as texts; only all rows together have an answer."""

    query: str
    passage: str


class Ranked(NamedTuple):
    """What a learner finds for rows: the ranks of the right passages of each query among all passages of the rows, the vectors of
    the queries and of the passages, and the passages."""

    rows: Sequence[Row]
    ranks: dict[str, NDArray[np.int64]]
    query_vectors: Vectors
    passage_vectors: Vectors
    passages: list[str]


def _tower(loaded: Checkpoint, task_json: Mapping[str, Any]) -> tuple[Reader, Any]:
    """The network that reads one kind of texts, and the head that makes them into vectors."""
    name = task_json.get("network")
    checkpoint = loaded if name is None else loaded.other(name)
    return Reader.of(checkpoint), head_of_task(checkpoint, task_json)


class Retriever(Learner):
    """A network with a head that gives vectors of texts; `passages` are those of passages where they have others than queries.

    `prompts` come before the texts, and say whether the vectors are compared by cosines in place of products.
    `lost_tokens` are those that did not fit of each text that was read.
    """

    def __init__(
        self, reader: Reader, head: Any, task: Any, *, length: int | None, passages: tuple[Reader, Any] | None = None,
        prompts: Prompts = NO_PROMPTS,
    ) -> None:
        super().__init__(reader, head, task, length=length)
        other, self.passage_head = passages or (reader, head)
        self.passage_network: Any = other.network
        self.passage_reader = other
        self.prompts, self.lost_tokens = prompts, list[int]()
        name_dropouts(self)

    def vectors(self, texts: Sequence[str], *, size: int = 64, report: Report = silent) -> Vectors:
        """One vector for each query (N, D) in fp32; runs in eval mode."""
        return self._vectors(self.reader, self.head, [self.prompts.of_queries + text for text in texts], size, report)

    def passage_vectors(self, texts: Sequence[str], *, size: int = 64, report: Report = silent) -> Vectors:
        """One vector for each passage (N, D), as `vectors`."""
        texts = [self.prompts.of_passages + text for text in texts]
        return self._vectors(self.passage_reader, self.passage_head, texts, size, report)

    def _framed(self, reader: Reader, texts: Sequence[str]) -> list[Framed]:
        """Texts as the network reads them."""
        return reader.encode(texts, max_length=self.length)

    @torch.inference_mode()
    def _vectors(self, reader: Reader, head: Any, texts: Sequence[str], size: int, report: Report) -> Vectors:
        framed = self._framed(reader, texts)
        self.lost_tokens += [row.cut for row in framed]
        vectors: NDArray[np.float32] | None = None
        with evaluating(self):
            for index in reader.batches([len(row) for row in framed], rows=size):
                batch = reader.batch([framed[i] for i in index])
                states = reader.states(batch, head.reads)
                batch_vectors = head.scores({name: states[name] for name in head.reads}, batch).float().cpu().numpy()
                vectors = np.empty((len(framed), batch_vectors.shape[1]), np.float32) if vectors is None else vectors
                vectors[index] = batch_vectors
                report(len(index))
        if vectors is not None:
            vectors[[len(row) == 0 for row in framed]] = 0.0
            if self.prompts.similarity == "cosine":
                vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return np.zeros((0, 1), np.float32) if vectors is None else vectors

    def blocks(
        self, passages: Iterable[tuple[int, str]], *, size: int = 64, report: Report = silent
    ) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
        """The vectors of numbered passages, some at a time, in constant memory."""
        stream = iter(passages)
        while block := list(islice(stream, _TOGETHER)):
            numbers = np.array([number for number, _ in block], np.int64)
            yield numbers, self.passage_vectors([text for _, text in block], size=size, report=report)

    def retrieve(
        self, queries: Sequence[str], passages: Iterable[tuple[int, str]], *, most: int = 100, size: int = 64,
        report: Report = lambda done: None,
    ) -> list[list[RetrievedPassage]]:
        """The best passages of every query, the best first; memory is bounded by the queries, `most` and a block of passages."""
        query_vectors = self.vectors(queries, size=size)
        best: Nearest = nearest(query_vectors, self.blocks(passages, size=size, report=report), most)
        return [
            [RetrievedPassage(int(passage), float(score)) for passage, score in zip(*pair, strict=True)]
            for pair in zip(best.passages, best.scores, strict=True)
        ]

    def encode(self, examples: LabelledTexts[Any]) -> list[Row]:
        """The queries with their passages."""
        return [Row(*pair) for pair in zip(examples.texts, self.truth(examples), strict=True)]

    def row_outputs(self, rows: Sequence[Row], size: int = 64, report: Report = silent) -> Ranked:
        """What is found for the queries among the passages of all rows."""
        passages = list(dict.fromkeys(row.passage for row in rows))
        numbers = {text: number for number, text in enumerate(passages)}
        right: dict[str, set[int]] = {}
        for row in rows:
            right.setdefault(row.query, set()).add(numbers[row.passage])
        vectors = self.vectors(list(right), size=size, report=report)
        passage_vectors = self.passage_vectors(passages, size=size)
        right_ranks = ranks(vectors, passage_vectors, [sorted(ids) for ids in right.values()])
        return Ranked(rows, dict(zip(right, right_ranks, strict=True)), vectors, passage_vectors, passages)

    def remarks(self, examples: Any, rows: Sequence[LabelledRow], outputs: Any, per_example: Any) -> list[str]:
        """How many queries and passages were cut."""
        framed = self.reader.encode([row.inputs.query for row in rows], max_length=self.length)
        framed += self.passage_reader.encode([row.inputs.passage for row in rows], max_length=self.length)
        remark = cut_remark([row.cut for row in framed], self.length)
        return [] if remark is None else [remark]

    def predictions(self, examples: LabelledTexts[Any], rows: Sequence[Row], outputs: Ranked) -> list[PassageMatch]:
        """The best passage of the file for each of its queries."""
        vectors = outputs.passage_vectors
        best = nearest(outputs.query_vectors, [(np.arange(len(vectors)), vectors)], 1)
        first = {
            query: (outputs.passages[int(number)], round(float(score), 6), int(right[0]))
            for (query, right), number, score in zip(outputs.ranks.items(), best.passages[:, 0], best.scores[:, 0], strict=True)
        }
        return [PassageMatch(line, row.query, *first[row.query]) for line, row in zip(examples.lines, rows, strict=True)]


class MeanRetriever(Retriever):
    """By the mean of all tokens; of word vectors only known words count, as in `cloze embed`."""

    def _framed(self, reader: Reader, texts: Sequence[str]) -> list[Framed]:
        framed = super()._framed(reader, texts)
        return known_words(reader, framed) if leaves_out_unknown(reader) else framed


def untuned(loaded: Checkpoint) -> Retriever:
    """The same of a checkpoint that is not tuned for it: its own vectors of texts, else the mean of all tokens, and cosines.
    A run that compared queries with passages has a tower for each.

    A folder of sentence-transformers names the prompts of queries and passages, and how its vectors are compared.
    """
    prompts = prompts_of(loaded.folder)
    if prompts.similarity not in ("cosine", "dot", None):
        raise TaskError(
            f"{loaded.folder}: compares vectors by {prompts.similarity!r} ({PROMPTS}); cloze searches by cosines or products.\n"
            "  Write cosine or dot there, if the network was trained for it."
        )
    if loaded.towers:
        query, passage = (_tower(loaded, loaded.towers[side]) for side in ("query", "key"))
        return Retriever(*query, Retrieval(), length=length_of(loaded), passages=passage, prompts=prompts)
    reader, trained_head, _ = to_embed(loaded)
    if trained_head is not None:
        return Retriever(reader, trained_head, Retrieval(), length=length_of(loaded), prompts=prompts)
    mean = Embedding(width=loaded.network.width, normalise=prompts.similarity != "dot")
    return MeanRetriever(reader, mean, Retrieval(), length=length_of(loaded), prompts=prompts)


@register("task", "retrieval")
def retrieval(text: str = "query", text_b: str = "passage") -> Retrieval:
    """The passage that belongs to a query, among all others. The arguments are names of columns."""
    return Retrieval(text, text_b)
