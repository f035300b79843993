"""How probable a network finds a text: log-probability, pseudo-log-likelihood, or a discriminator's belief.

Three methods, by what the network was trained to do. All are sums of natural logarithms over the tokens of the text, never
over what the reading puts around it, and are comparable only within one checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cloze.batch import Batch
from cloze.decoding.layout import Framed
from cloze.decoding.reader import Checkpoint, Reader, describe_heads, head_of_kind, orders_of, refuse_answering
from cloze.decoding.scores.pointer_cache import Pointer, PointerCache
from cloze.decoding.scores.windows import ScoredWindow, Windows
from cloze.errors import CheckpointError, UserError

GPU_TOKENS = 8192  # of a batch on a GPU, where scores over the vocabulary need memory

Method = Literal["log_probability", "pseudo_log_likelihood", "originality"]


@dataclass(frozen=True)
class Score:
    """The score of a text.

    Attributes:
        score: A sum of natural logarithms.
        tokens: How many tokens the sum is over.
        cut: How many tokens of an answer and its text did not fit; other texts are never cut.
        unknown: How many of the tokens are [UNK].
    """

    score: float
    tokens: int
    cut: int = 0
    unknown: int = 0

    @property
    def per_token(self) -> float:
        """The mean log-probability of a token; NaN for an empty text."""
        return self.score / self.tokens if self.tokens else float("nan")


def method_of(loaded: Checkpoint, order: str | None = None) -> tuple[Method, Any]:
    """The method that suits a checkpoint and the head it uses; `order`: another that it reads in than the usual one."""
    refuse_answering(loaded, verb="score")
    check_order(loaded, order)
    predicting, labelling = head_of_kind(loaded, "token_prediction"), head_of_kind(loaded, "token_labelling")
    if predicting is not None:
        if (order or orders_of(loaded)[0]) == "left_to_right":
            return "log_probability", predicting
        if "[MASK]" not in loaded.tokenizer.roles:
            raise UserError(
                f"{loaded.folder}: this network reads in both directions, so cloze score would hide each token behind [MASK], "
                "which its tokenizer does not have.\n  Score with a network that reads from left to right, or one trained to "
                "fill in [MASK]; cloze embed gives this one's vectors."
            )
        return "pseudo_log_likelihood", predicting
    if labelling is not None:
        return "originality", labelling
    raise CheckpointError(
        f"{loaded.folder}: cloze score needs a head that predicts or labels tokens; this checkpoint has: "
        f"{describe_heads(loaded)}.\n  Use a checkpoint that was trained with token_prediction or token_labelling."
    )


def check_order(loaded: Checkpoint, order: str | None) -> None:
    """A `UserError` for an order that a checkpoint does not read in; None is its usual one."""
    orders = orders_of(loaded)
    if order is not None and order not in orders:
        raise UserError(
            f"{loaded.folder}: this network does not read in the order {order}.\n"
            f"  Write --order {' or '.join(orders)}, or leave it out."
        )


def score(
    reader: Reader,
    head: Any,
    texts: Sequence[str],
    *,
    method: Method,
    rows: int | None = None,
    windows: Windows = Windows(),  # noqa: B008
    pointer: Pointer | None = None,
    whole_words: bool = False,
    report: Callable[[int], None] = lambda done: None,
) -> list[Score]:
    """The score of every text. A text longer than the network reads is scored in overlapping `windows`, each token once.

    `log_probability`: the sum of log P(token | those before it). A text is read after [BOS] where the tokenizer has one,
    so that its first token counts too; without, and with nothing in its reading before the text, the first token is not scored.
    `pseudo_log_likelihood`: the sum of log P(token | all others), each token masked alone in a row of its own (Salazar et
    al., "Masked Language Model Scoring", 2020, §2). A network with a query stream predicts
    each token there, after all others (XLNet); a system that predicts one position to the left cannot predict the first token.
    With `whole_words` the rest of the token's word is masked, too: the sum for a word is then the logarithm of P(word | all
    other words), whatever its pieces (Kauf and Ivanova, "A Better Way to Do Masked Language Model Scoring", 2023).
    `originality`: the sum of a discriminator's log P(token is original), one pass over the unchanged text. It is no
    likelihood of the text, but ranks minimal pairs (Clark et al., "ELECTRA", 2020, §2 for the discriminator).

    With a `pointer` a left-to-right network remembers the last tokens of all texts, which are read in the order given.
    Texts with the same tokens are else computed once, so equal texts have equal scores to the last bit. `report` gets the
    number of texts done, those that were repeated included. `rows` are the most rows of a batch.
    """
    if pointer is not None and method != "log_probability":
        raise UserError("a pointer to the words before needs a network that reads from left to right.")
    framed = [_behind_begin(reader, row, method) for row in reader.encode_whole(texts)]
    if whole_words:
        words = [encoded.word_start for encoded in reader.tokenizer.encode_batch(list(texts))]
        framed = [row.with_words(starts) for row, starts in zip(framed, words, strict=True)]
    first: dict[tuple[bytes, bytes], int] = {}
    same = [first.setdefault(_spelling(row), number) for number, row in enumerate(framed)]
    if pointer is not None:
        same = list(range(len(framed)))
    masks = {number: _asked(reader, framed[number], method) for number in sorted(set(same))}
    parts = [part for number, row in masks.items() for part in _windows(reader, framed[number], row, windows, method, number)]
    done = _Done(parts, np.bincount(same, minlength=len(framed)), report)
    for number in sorted(set(same) - {part.text for part in parts}):
        done.empty(number)
    score_rows = {"log_probability": _left_to_right, "pseudo_log_likelihood": _masked, "originality": _original}[method]
    partial_scores = _remembering(reader, head, parts, pointer) if pointer else score_rows(reader, head, parts, rows)
    sums = np.zeros(len(framed))
    for number, value, left in partial_scores:
        sums[parts[number].text] += value
        done(number, left)
    unknown = reader.tokenizer.roles.get("[UNK]", -1)
    return [
        Score(float(sums[index]), int(masks[index].sum()), 0, int((framed[index].ids[masks[index]] == unknown).sum()))
        for index in same
    ]


class _Done:
    """Reports texts, repeated ones included, once the last of their windows is scored."""

    def __init__(self, parts: Sequence[ScoredWindow], copies: NDArray[np.int64], report: Callable[[int], None]) -> None:
        self.parts, self.copies, self.report = parts, copies, report
        self.left = np.bincount([part.text for part in parts], minlength=len(copies))

    def __call__(self, number: int, left: int) -> None:
        """Of a window, `left` positions are still to be scored."""
        text = self.parts[number].text
        self.left[text] -= left == 0
        if left == 0 and self.left[text] == 0:
            self.report(int(self.copies[text]))

    def empty(self, text: int) -> None:
        """A text without tokens to score."""
        self.report(int(self.copies[text]))


def _spelling(row: Framed) -> tuple[bytes, bytes]:
    return row.ids.tobytes(), b"" if row.characters is None else row.characters.tobytes()


def _windows(
    reader: Reader, row: Framed, mask: NDArray[np.bool_], windows: Windows, method: Method, text: int
) -> list[ScoredWindow]:
    """The windows with tokens to score."""
    before = len(reader.single_layout.opening)
    frame = before, reader.single_layout.added - before
    left_to_right = method == "log_probability"
    limit = reader.max_length
    pieces = windows.over(row, mask, text=text, frame=frame, max_length=reader.max_tokens(limit), left_to_right=left_to_right)
    return [piece.with_facts(reader, limit) for piece in pieces if piece.asked.any()]


def _asked(reader: Reader, row: Framed, method: Method) -> NDArray[np.bool_]:
    if method == "pseudo_log_likelihood":
        return reader.predictable(row)
    mask = row.part == 0
    if method == "log_probability":
        mask[:1] = False  # nothing stands before it
    return mask


def _behind_begin(reader: Reader, row: Framed, method: Method) -> Framed:
    """The row after [BOS], if it begins with a token that is to be scored and was read with others before it."""
    begin = reader.tokenizer.roles.get("[BOS]")
    if method != "log_probability" or begin is None or (len(row) and row.part[0] == -1):
        return row
    return row.with_first(begin)


Sums = Iterator[tuple[int, float, int]]  # the number of a window, what is added to its score, how many positions are left


@torch.inference_mode()
def _left_to_right(reader: Reader, head: Any, parts: Sequence[ScoredWindow], rows: int | None) -> Sums:
    for index in reader.batches([len(part.row) for part in parts], rows=rows, gpu_tokens=GPU_TOKENS):
        batch = reader.batch([parts[i].row for i in index])
        width = batch["tokens"].shape[1]
        positions = _positions([parts[i].asked for i in index], width, reader.device) - 1
        targets = batch["tokens"].flatten()[positions + 1]
        log_probs = _log_probabilities(reader, head, batch, positions, targets)
        for i, value in zip(index.tolist(), _by_row(log_probs, positions // width, len(index)), strict=True):
            yield i, value, 0


def _positions(masks: Sequence[NDArray[np.bool_]], width: int, device: torch.device) -> Tensor:
    """The flat positions of what is asked in rows that are padded to a width."""
    positions = [row * width + column for row, mask in enumerate(masks) for column in np.flatnonzero(mask).tolist()]
    return torch.tensor(positions, dtype=torch.int64, device=device)


@torch.inference_mode()
def _remembering(reader: Reader, head: Any, parts: Sequence[ScoredWindow], pointer: Pointer) -> Sums:
    """Scores of windows one after another, mixed with what a cache of the tokens before says."""
    cache = PointerCache(pointer)
    cache.require(sum(int(part.asked.sum()) for part in parts))
    for number, window in enumerate(parts):
        batch = reader.batch([window.row])
        positions = _positions([window.asked], len(window.row), reader.device) - 1
        targets = batch["tokens"].flatten()[positions + 1]
        log_probs = _log_probabilities(reader, head, batch, positions, targets)
        states = reader.states(batch, head.reads)[head.reads[0]].flatten(0, 1)[positions]
        yield number, float(cache.mix(log_probs, states, targets).sum()), 0


@torch.inference_mode()
def _masked(reader: Reader, head: Any, parts: Sequence[ScoredWindow], rows: int | None) -> Sums:
    owner = np.repeat(np.arange(len(parts)), [int(part.asked.sum()) for part in parts])
    columns = np.concatenate([np.flatnonzero(part.asked) for part in parts] or [np.zeros(0, np.int64)])
    left = np.bincount(owner, minlength=len(parts))
    lengths = np.array([len(part.row) for part in parts], np.int64)
    for index in reader.batches(lengths[owner].tolist(), rows=rows, gpu_tokens=GPU_TOKENS):
        read, at, targets = masked_each(reader, head, [parts[i].row for i in owner[index]], columns[index])
        log_probs = _log_probabilities(reader, head, read, at, targets)
        for i, value in zip(owner[index].tolist(), log_probs.tolist(), strict=True):
            left[i] -= 1
            yield i, value, int(left[i])


@torch.inference_mode()
def _original(reader: Reader, head: Any, parts: Sequence[ScoredWindow], rows: int | None) -> Sums:
    for index in reader.batches([len(part.row) for part in parts], rows=rows, gpu_tokens=GPU_TOKENS):
        batch = reader.batch([parts[i].row for i in index])
        width = batch["tokens"].shape[1]
        positions = _positions([parts[i].asked for i in index], width, reader.device)
        scores = reader.scores(head, reader.states(batch, head.reads), batch, positions)
        log_probs = F.logsigmoid(-scores) if scores.dim() == 1 else scores.log_softmax(-1)[:, 0]
        for i, value in zip(index.tolist(), _by_row(log_probs, positions // width, len(index)), strict=True):
            yield i, value, 0


def masked_each(
    reader: Reader, head: Any, framed: Sequence[Framed], columns: NDArray[np.int64]
) -> tuple[Batch, Tensor, Tensor]:
    """Rows of which each has one token masked, at `columns`, and the rest of its word if words are known: what is read, the flat
    positions of the tokens at `columns`, and these tokens."""
    mask, places = reader.tokenizer.role("[MASK]"), columns.tolist()
    rows = [row.masked(np.append(row.rest_of_word(at), at), mask) for row, at in zip(framed, places, strict=True)]
    batch = reader.batch(rows)
    flat = torch.from_numpy(np.arange(len(framed)) * batch["tokens"].shape[1] + columns).to(reader.device)
    targets = torch.tensor([int(row.ids[at]) for row, at in zip(framed, places, strict=True)], device=reader.device)
    read, at = reader.prediction_inputs(head, batch, flat)
    return read, at, targets


def _log_probabilities(reader: Reader, head: Any, batch: Batch, positions: Tensor, targets: Tensor) -> Tensor:
    return log_probabilities(reader, head, reader.states(batch, head.reads, positions=positions), batch, positions, targets)


def log_probabilities(
    reader: Reader, head: Any, states: Mapping[str, Tensor], batch: Batch, positions: Tensor, targets: Tensor
) -> Tensor:
    """log P(target) at every position (M,), 2,048 positions at a time, so that memory never holds M x V scores."""
    log_probs = [torch.zeros(0, device=positions.device)]
    for block, answers in zip(positions.split(2048), targets.split(2048), strict=True):
        log_probs.append(-F.cross_entropy(reader.token_scores(head, states, batch, block), answers, reduction="none"))
    return torch.cat(log_probs)


def _by_row(values: Tensor, row: Tensor, count: int) -> list[float]:
    sums = torch.zeros(count, dtype=torch.float64, device=values.device).index_add(0, row, values.double())
    return sums.tolist()
