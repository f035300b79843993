"""Choose whole continuations, token by token or by beam search; the caller passes what reads the tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from cloze.decoding.sampling import Sampling
from cloze.errors import UserError

_NEVER = -1.0e9  # the score of what cannot be chosen, as in transformers
_MOST = 1_000  # beams: what each of them holds is memory


class Writer(Protocol):
    """Reads the tokens written so far and scores the next one."""

    def scores(self, tokens: Tensor) -> Tensor:
        """Scores (R, V) of the token after tokens (R, L); the tokens of earlier calls are not read again."""

    def select(self, rows: Tensor) -> None:
        """Go on with these rows, repeated or left out as they are named."""

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows, where each comes from a row that reads the same source."""


class Written(NamedTuple):
    """What was written after a start, without the end token; whether it ended; the score of a beam search."""

    ids: tuple[int, ...]
    ended: bool
    score: float | None = None


@dataclass(frozen=True)
class Limits:
    """What may not be written: the end before `min_tokens` new tokens, an n-gram of `no_repeat` tokens twice (0: free)."""

    min_tokens: int = 0
    no_repeat: int = 0

    def __post_init__(self) -> None:
        if self.min_tokens < 0 or self.no_repeat < 0:
            raise UserError(f"min-tokens {self.min_tokens}, no-repeat {self.no_repeat}: expected 0 or more.")

    def apply(self, scores: Tensor, tokens: Tensor, *, start: int, end: int) -> Tensor:
        """Scores (R, V) behind tokens (R, L), of which `start` were given, without what is not allowed."""
        if tokens.shape[1] - start < self.min_tokens and end >= 0:
            scores = scores.index_fill(1, torch.tensor([end], device=scores.device), -torch.inf)
        size, length = self.no_repeat, tokens.shape[1]
        if not size or length < size:
            return scores
        grams = tokens.unfold(1, size, 1)
        again = (grams[..., :-1] == tokens[:, None, length - size + 1 :]).all(-1)
        width = scores.shape[1]
        banned = torch.zeros(len(scores), width + 1, dtype=torch.bool, device=scores.device)
        banned.scatter_(1, torch.where(again, grams[..., -1], width), True)
        return scores.masked_fill(banned[:, :width], -torch.inf)


@dataclass(frozen=True)
class Beams:
    """Beam search as transformers 5 does it.

    A finished sequence has its summed log probability divided by its number of new tokens, the end included, to the power
    `length_penalty`. `early`: false stops when the best running sequence, at its present length, cannot beat the worst that
    is kept; true as soon as `count` have ended; `never` only when no running sequence can win at any length.
    """

    count: int = 4
    length_penalty: float = 1.0
    early: bool | Literal["never"] = False

    def __post_init__(self) -> None:
        if not 1 <= self.count <= _MOST:
            raise UserError(f"beams {self.count}: expected 1 to {_MOST:,}.")


def sample(
    writer: Writer, tokens: Tensor, *, new: int, end: int, sampling: Sampling, uniform: Tensor, limits: Limits
) -> list[Written]:
    """Up to `new` tokens behind tokens (R, L), drawn with the rows' random numbers `uniform` (R, new)."""
    start = tokens.shape[1]
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for number in range(new):
        scores = limits.apply(writer.scores(tokens), tokens, start=start, end=end)
        chosen = torch.where(ended, max(end, 0), sampling.choose(scores, uniform[:, number]))
        tokens = torch.cat([tokens, chosen[:, None]], dim=1)
        ended = ended | (chosen == end)
        if bool(ended.all()):
            break
    return [_cut(row[start:], end) for row in tokens.tolist()]


def _cut(ids: list[int], end: int, score: float | None = None) -> Written:
    ended = end in ids
    return Written(tuple(ids[: ids.index(end)] if ended else ids), ended, score)


def beam_search(
    writer: Writer, tokens: Tensor, *, new: int, end: int, beams: Beams, limits: Limits
) -> list[Written]:
    """The best continuation of each of tokens (R, L) by up to `new` tokens."""
    search = _Search(tokens, new, end, beams)
    first = writer.scores(tokens).float().log_softmax(-1)
    rows = torch.arange(len(tokens), device=tokens.device).repeat_interleave(beams.count)
    writer.select(rows)
    scores = first[rows]
    while True:
        flat = search.running.flatten(0, 1)
        origin = search.advance(limits.apply(scores, flat, start=search.start, end=end))
        if search.over:
            return search.best()
        writer.reorder(origin)
        scores = writer.scores(search.running.flatten(0, 1)).float().log_softmax(-1)


class _Search:
    """The state of a beam search over R rows with K beams: what runs, what has ended, with scores; all tensors.

    `running` (R, K, L) and `total` (R, K) are the running sequences; `kept` (R, K, start + new), `worth` (R, K) and `done`
    the best that have ended. `open` (R, 1): a running sequence can still win.
    """

    def __init__(self, tokens: Tensor, new: int, end: int, beams: Beams) -> None:
        rows, self.start = tokens.shape
        device, count = tokens.device, beams.count
        self.end, self.beams = end, beams
        self.max_length = self.start + new
        self.running = tokens[:, None].expand(-1, count, -1)
        self.total = torch.zeros(rows, count, device=device)
        self.total[:, 1:] = _NEVER  # all beams begin alike: only the first may go on
        fill = tokens.new_full((rows, count, new), end)
        self.kept = torch.cat([self.running, fill], dim=2)
        self.worth = torch.full((rows, count), _NEVER, device=device)
        self.done = torch.zeros(rows, count, dtype=torch.bool, device=device)
        self.open = torch.ones(rows, 1, dtype=torch.bool, device=device)
        self.over = False

    def advance(self, scores: Tensor) -> Tensor:
        """One token further, given log probabilities (R*K, V); the flat row that each running sequence came from, (R*K,)."""
        rows, count = self.total.shape
        vocabulary = scores.shape[1]
        every = (scores.view(rows, count, vocabulary) + self.total[:, :, None]).flatten(1)
        total, place = every.topk(2 * count)
        beam, token = place // vocabulary, place % vocabulary
        longer = torch.cat([_rows(self.running, beam), token[:, :, None]], dim=2)
        stops = (token == self.end) | (longer.shape[2] >= self.max_length)
        left, chosen = (total + stops.float() * _NEVER).topk(count)
        self._keep(longer, total, stops)
        self.running, self.total = _rows(longer, chosen), left
        self._judge(bool(stops.all()))
        offset = torch.arange(rows, device=beam.device)[:, None] * count
        return (beam.gather(1, chosen) + offset).flatten()

    def _keep(self, longer: Tensor, total: Tensor, stops: Tensor) -> None:
        """Let sequences that have just ended replace worse ones if they are among the best."""
        count, length = self.beams.count, longer.shape[2]
        among = stops & (torch.arange(2 * count, device=stops.device) < count)
        worth = total / (length - self.start) ** self.beams.length_penalty
        if self.beams.early is True:
            worth = worth + self.done.all(1, keepdim=True).float() * _NEVER
        worth = worth + (~self.open).float() * _NEVER + (~among).float() * _NEVER
        fill = longer.new_full((*longer.shape[:2], self.max_length - length), self.end)
        self.worth, chosen = torch.cat([self.worth, worth], dim=1).topk(count)
        self.kept = _rows(torch.cat([self.kept, torch.cat([longer, fill], dim=2)], dim=1), chosen)
        self.done = torch.cat([self.done, among], dim=1).gather(1, chosen)

    def _judge(self, all_stop: bool) -> None:
        """Whether a running sequence can still win, and whether the search is over."""
        early, penalty = self.beams.early, self.beams.length_penalty
        length = self.max_length if early == "never" and penalty > 0 else self.running.shape[2]
        hope = self.total[:, :1] / (length - self.start) ** penalty
        worst = torch.where(self.done, self.worth.min(1, keepdim=True).values, _NEVER)
        self.open = self.open & (hope > worst).any(1, keepdim=True)
        full = early is True and bool(self.done.all())
        self.over = all_stop or full or not bool(self.open.any())

    def best(self) -> list[Written]:
        """The best ended sequence of each row."""
        return [
            _cut(ids[self.start :], self.end, worth)
            for ids, worth in zip(self.kept[:, 0].tolist(), self.worth[:, 0].tolist(), strict=True)
        ]


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """x (R, N, L) at index (R, M): (R, M, L)."""
    return x.gather(1, index[:, :, None].expand(-1, -1, x.shape[2]))
