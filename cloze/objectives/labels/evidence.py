"""Answers to questions from blocks of text that are retrieved for them, learned from questions and answers alone (ORQA)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import Count, Width
from cloze.errors import require_table
from cloze.networks.blocks.inputs.known_vectors import STAND_IN, matrix_of
from cloze.networks.cost import Operations
from cloze.objectives.heads import dense
from cloze.objectives.objective import Loss, Objective
from cloze.objectives.rewriter import Rewriter
from cloze.registry import Given, register

_OUTSIDE = -1e4  # the score of what is no answer, as in the authors' code


def evidence_of(where: str, name: str, tables: Mapping[str, Any] | None) -> Any:
    """The table of blocks of that name; None for a stand-in, which has no blocks. Another name is a `RecipeError`."""
    lookups = {} if tables is None else tables
    require_table(where, name, lookups)
    return None if matrix_of(lookups[name]) is STAND_IN else lookups[name]


@register("rewriter", "retrieve")
class Retrieve(Rewriter):
    """Rows of a question and each of the blocks nearest to it (Lee et al., 2019; `retrieve` in orqa/models/orqa_model.py).

    `query` (B, D) are vectors of the rows `tokens` (B, L); `table` is one of kind `evidence`, which says how many blocks are
    compared, k ≤ c, and how many are read. It gives rows (B · k, L'): the tokens of a question with those around it, a block,
    and the last token of the question's row once more, [SEP]. `segments` are 0 and 1. `retrieved` (B, c) are the numbers of the
    nearest blocks, the nearest first. There is no gradient here: the objective compares the vectors again.
    """

    keeps = frozenset({"answers"})
    vectors: Tensor | None

    def __init__(self, *, table: str = "evidence", tables: Given[Mapping[str, Any] | None] = None) -> None:
        super().__init__()
        self.evidence = evidence_of("retrieve.table", table, tables)
        self.takes, self.optional, self.reads = frozenset({"tokens"}), frozenset({"block"}), ("query",)
        self.gives = frozenset({"tokens", "segments", "block", "retrieved"})
        vectors = None if self.evidence is None else torch.from_numpy(self.evidence.matrix)
        self.register_buffer("vectors", vectors, persistent=False)

    @torch.no_grad()
    def forward(self, states: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """The rows to read."""
        assert self.vectors is not None  # a run has its tables
        retrieved = nearest_blocks(states["query"], self.vectors, self.evidence.settings.top)
        return {**rows_with_blocks(self.evidence, retrieved, batch), "retrieved": retrieved}

    def expected(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Rows with as many tokens as a block has on average."""
        if self.evidence is None:
            return {}
        tokens, settings = batch["tokens"], self.evidence.settings
        question = real_tokens(batch).sum(1).repeat_interleave(settings.read)
        size = (question + round(len(self.evidence.tokens) / self.evidence.size) + 1).clamp(max=settings.length)
        block = (torch.arange(int(size.max()), device=tokens.device) < size[:, None]).long()
        return {"tokens": torch.zeros_like(block), "segments": torch.zeros_like(block), "block": block}


def nearest_blocks(query: Tensor, vectors: Tensor, top: int) -> Tensor:
    """The numbers (B, top) of the blocks whose vectors (N, D) have the largest products with `query` (B, D), the largest first;
    of equals, those of lower numbers."""
    products = query.to(vectors.dtype) @ vectors.t()
    return torch.sort(products, dim=1, descending=True, stable=True).indices[:, :top]


def real_tokens(batch: Mapping[str, Tensor]) -> Tensor:
    """Which tokens are no padding, (B, L)."""
    return batch["block"] > 0 if "block" in batch else torch.ones_like(batch["tokens"], dtype=torch.bool)


def rows_with_blocks(evidence: Any, retrieved: Tensor, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`tokens`, `segments` and `block` of the rows of `batch` with each of the first blocks (B, c) that were retrieved for them,
    as many as are read; see `Retrieve`."""
    settings = evidence.settings
    blocks = retrieved[:, : settings.read].reshape(-1).cpu().numpy()
    texts, counts = evidence.rows(blocks)
    questions = batch["tokens"].cpu().numpy()
    lengths = real_tokens(batch).sum(1).cpu().numpy().repeat(settings.read)
    owner = np.arange(len(questions)).repeat(settings.read)
    counts = np.clip(counts, 0, np.maximum(settings.length - lengths - 1, 0))
    total = lengths + counts + 1
    columns = np.arange(int(total.max(initial=1)))
    block_column = columns - lengths[:, None]
    inside = (block_column >= 0) & (block_column < counts[:, None])
    tokens = np.where(
        inside, np.take_along_axis(texts, block_column.clip(0, texts.shape[1] - 1), axis=1),
        questions[owner[:, None], np.minimum(columns, lengths[:, None] - 1)],  # behind its end the last token, [SEP]
    )
    real = columns < total[:, None]
    tensors = {"tokens": tokens, "segments": ((block_column >= 0) & real).astype(np.int64), "block": real.astype(np.int64)}
    return {name: torch.from_numpy(array).to(batch["tokens"].device) for name, array in tensors.items()}


class SpanScorer(nn.Module):
    """w · norm(relu(W_s h_s + W_e h_e)) for all spans of at most `widest` tokens (Lee et al., 2019; `read` in
    orqa/models/orqa_model.py)."""

    def __init__(self, width: int, *, inner: int, widest: int) -> None:
        super().__init__()
        self.widest = widest
        self.ends = dense(width, 2 * inner)
        self.norm = nn.LayerNorm(inner, eps=1e-3)  # Keras's, in the authors' code
        self.output = dense(inner, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """(R, L, D) to (R, W, L): entry (w, s) scores the span from s to s + w; those beyond the row score `_OUTSIDE`."""
        start, end = self.ends(hidden).chunk(2, dim=-1)
        length, scores = hidden.shape[1], []
        for more in range(self.widest):
            spans = F.relu(start[:, : max(length - more, 0)] + end[:, more:])
            spans = self.output(self.norm(spans)).squeeze(-1)
            scores.append(F.pad(spans, (0, length - spans.shape[1]), value=_OUTSIDE))
        return torch.stack(scores, dim=1)


class ReadSpan(NamedTuple):
    """The best span for a question: which of its rows, the first and the last column, and how probable it is."""

    row: int
    first: int
    last: int
    probability: float


@register("objective", "latent_answer")
class LatentAnswer(Objective):
    """The marginal likelihood of an answer among the spans of blocks that were retrieved (ORQA: Lee et al., 2019).

    `hidden` (B · k, L, D) are the states of the rows that `retrieve` gives, `query` (B, D') the vectors of the questions. A span
    scores S_retr + S_read: the product of the vectors of question and block, plus a `SpanScorer` of spans of at most `widest`
    tokens. The full loss is -log of the share that spans which spell an answer have in a softmax over the spans of all k rows;
    the early loss -log of the share of blocks that contain an answer, in a softmax of S_retr over the c nearest blocks. Each is
    zero where nothing is right (`compute_loss` in orqa/models/orqa_model.py).

    `answers` (B, K) are ids + 1, with a 0 after each answer. Metrics: `correct`, the best span spells an answer; `readable`, some
    span does; `retrieved`, some of the c blocks contains one. Parameters: `head.ends.*`, `head.norm.*`, `head.output.*`.

    Differs: a block contains an answer if it has the answer's tokens; in the code, if it has its characters.
    """

    likelihood = False
    of_records = True  # a record as a whole: its answers are no targets at positions
    looks_up = ("table",)
    head: SpanScorer
    vectors: Tensor | None

    def __init__(
        self, *, table: str = "evidence", widest: Count = 10, inner: Width = 256, width: Given[int],
        tables: Given[Mapping[str, Any] | None] = None,
    ) -> None:
        super().__init__()
        self.evidence = evidence_of("latent_answer.table", table, tables)
        self.takes, self.optional = frozenset({"tokens", "segments", "retrieved", "answers"}), frozenset({"block"})
        self.reads = ("hidden", "query")
        self.head = SpanScorer(width, inner=inner, widest=widest)
        vectors = None if self.evidence is None else torch.from_numpy(self.evidence.matrix)
        self.register_buffer("vectors", vectors, persistent=False)

    def count(self, batch: Batch) -> Tensor:
        """The number of questions."""
        return torch.tensor(float(len(batch["answers"])))

    def count_operations(self, counted: Operations, batch: Batch) -> None:
        """Both maps at every token, and the output for every span."""
        tokens = int(real_tokens(batch).sum())
        counted.add(tokens, self.head.ends)
        counted.add(tokens * self.head.widest, self.head.output)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(B, c + k · W · L): S_retr of each of the c nearest blocks, then the scores of all spans of the k rows."""
        retrieval = self._retrieval(states, batch)
        return torch.cat([retrieval, self.spans(states, batch).flatten(1)], dim=1)

    def spans(self, states: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Tensor:
        """(B, k, W, L): the scores S_retr + S_read of all spans."""
        inside = self._in_block(batch)
        scores = self.head(states["hidden"].float())
        ends = [F.pad(inside[:, more:], (0, min(more, inside.shape[1]))) for more in range(self.head.widest)]
        scores = scores + torch.where(inside[:, None] & torch.stack(ends, dim=1), 0.0, _OUTSIDE)
        questions = len(batch["retrieved"])
        scores = scores.view(questions, -1, *scores.shape[1:])
        return scores + self._retrieval(states, batch)[:, : scores.shape[1], None, None]

    def best(self, spans: Tensor) -> list[ReadSpan]:
        """The best span (B) of scores (B, k, W, L), the first of equals."""
        flat = spans.float().flatten(1)
        probabilities = torch.softmax(flat, dim=1)
        width, length = spans.shape[2:]
        best = []
        for question, index in enumerate(flat.argmax(1).tolist()):
            row, more, first = index // (width * length), index // length % width, index % length
            best.append(ReadSpan(row, first, first + more, float(probabilities[question, index])))
        return best

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The sum over questions of the early loss and the full loss."""
        retrieved, tokens = batch["retrieved"], batch["tokens"]
        top, questions = retrieved.shape[1], len(retrieved)
        answers = [answer_texts(row) for row in batch["answers"].tolist()]
        holds = torch.stack([self._holding(*pair) for pair in zip(retrieved, answers, strict=True)])
        rows = tokens.masked_fill(~self._in_block(batch), -1).view(questions, -1, tokens.shape[1])
        right = torch.stack([spelled_spans(*pair, self.head.widest) for pair in zip(rows, answers, strict=True)]).flatten(1)
        early = marginal_loss(scores[:, :top].float(), holds)
        full = marginal_loss(scores[:, top:].float(), right)
        chosen = scores.detach()[:, top:].argmax(1, keepdim=True)
        metrics = {
            "correct": right.gather(1, chosen), "readable": right.any(1), "retrieved": holds.any(1),
        }
        return Loss((early + full).sum(), {name: value.float().sum() for name, value in metrics.items()})

    def _retrieval(self, states: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Tensor:
        """S_retr (B, c), with a gradient for the vectors of questions."""
        assert self.vectors is not None  # a run has its tables
        return torch.einsum("bd,bcd->bc", states["query"].float(), self.vectors[batch["retrieved"]])

    @staticmethod
    def _in_block(batch: Mapping[str, Tensor]) -> Tensor:
        """Which tokens (R, L) are of the block: the last real token of each row closes it."""
        following = F.pad(real_tokens(batch)[:, 1:], (0, 1))
        return (batch["segments"] == 1) & following

    def _holding(self, retrieved: Tensor, answers: Sequence[Sequence[int]]) -> Tensor:
        """Which of the retrieved blocks (c,) contain one of the answers."""
        rows, _ = self.evidence.rows(retrieved.cpu().numpy())
        holds = np.zeros(len(rows), np.bool_)
        for answer in answers:
            holds |= occurrences(torch.from_numpy(rows), answer).any(1).numpy()
        return torch.from_numpy(holds).to(retrieved.device)


def marginal_loss(scores: Tensor, right: Tensor) -> Tensor:
    """-log of the share of what is `right` in a softmax of scores, both (B, M): (B,), zero where nothing is right."""
    numerator = torch.logsumexp(scores + torch.where(right, 0.0, _OUTSIDE), dim=1)
    return (torch.logsumexp(scores, dim=1) - numerator) * right.any(1)


def answer_texts(row: Sequence[int]) -> list[list[int]]:
    """The ids of each answer of a row of `answers`.

    >>> answer_texts([4, 5, 0, 9, 0, 0])
    [[3, 4], [8]]
    """
    texts: list[list[int]] = [[]]
    for number in row:
        if number:
            texts[-1].append(number - 1)
        elif texts[-1]:
            texts.append([])
    return texts[:-1]


def occurrences(tokens: Tensor, text: Sequence[int]) -> Tensor:
    """Where `text` begins in rows of tokens (R, L): (R, L)."""
    length = tokens.shape[1]
    begins = torch.ones_like(tokens, dtype=torch.bool)
    for offset, token in enumerate(text):
        begins &= F.pad(tokens[:, offset:] == token, (0, min(offset, length)))
    return begins


def spelled_spans(tokens: Tensor, answers: Sequence[Sequence[int]], widest: int) -> Tensor:
    """Which spans of rows (k, L) spell one of the answers: (k, W, L), as `SpanScorer` lays them out."""
    right = torch.zeros((len(tokens), widest, tokens.shape[1]), dtype=torch.bool, device=tokens.device)
    for answer in answers:
        if len(answer) <= widest:
            right[:, len(answer) - 1] |= occurrences(tokens, answer)
    return right
