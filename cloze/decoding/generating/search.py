"""Choose whole continuations, token by token or by beam search; the caller passes what reads the tokens.

`sample` draws one token after another; `beam_search` keeps the best sequences, in groups that avoid each other's tokens, or draws
them. `drafting.py` writes what `sample` writes with fewer calls of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from cloze.decoding.generating.sampling import Sampling
from cloze.errors import UserError, argument

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


class Continuation(NamedTuple):
    """What was written after a start, without the end token; whether it ended; the score of a beam search, and its next best
    texts."""

    ids: tuple[int, ...]
    ended: bool
    score: float | None = None
    others: tuple[Continuation, ...] = ()


@dataclass(frozen=True)
class Limits:
    """What may not be written, or is made less probable.

    The end does not come before `min_tokens` new tokens. No n-gram of `no_repeat` tokens occurs twice (0: no limit), and none of
    the sequences of ids `banned` occurs. `first` is the first new token. Scores of tokens that were read or written before are
    divided by `repetition_penalty` if they are positive and multiplied by it if they are negative (Keskar et al., "CTRL", 2019,
    §4.1; 1: no penalty). Differs: CTRL's paper divides negative scores too; this is what its code and transformers do.
    """

    min_tokens: int = 0
    no_repeat: int = 0
    repetition_penalty: float = 1.0
    banned: tuple[tuple[int, ...], ...] = ()
    first: int | None = None

    def __post_init__(self) -> None:
        if self.min_tokens < 0 or self.no_repeat < 0:
            raise UserError(f"min-tokens {self.min_tokens}, no-repeat {self.no_repeat}: expected 0 or more.")
        if not 0.0 < self.repetition_penalty < float("inf"):
            raise UserError(f"repetition-penalty {self.repetition_penalty}: expected a number above 0; 1 is no penalty.")

    def apply(self, scores: Tensor, tokens: Tensor, *, start: int, end: int) -> Tensor:
        """Scores (R, V) after tokens (R, L), of which `start` were given, under these limits; `first` has a score of 0."""
        if self.first is not None and tokens.shape[1] == start:
            only = torch.tensor([self.first], device=scores.device)
            return torch.full_like(scores, -torch.inf).index_fill(1, only, 0.0)
        if self.repetition_penalty != 1.0:
            token_scores = scores.gather(1, tokens)
            token_scores = torch.where(
                token_scores < 0, token_scores * self.repetition_penalty, token_scores / self.repetition_penalty
            )
            scores = scores.scatter(1, tokens, token_scores)
        refused = [scores.new_zeros(scores.shape, dtype=torch.bool)]
        if tokens.shape[1] - start < self.min_tokens and end >= 0:
            refused[0][:, end] = True
        refused += [_last(gram, tokens, scores.shape[1]) for gram in self.banned if len(gram) <= tokens.shape[1] + 1]
        size, length = self.no_repeat, tokens.shape[1]
        if size and length >= size:
            grams = tokens.unfold(1, size, 1)  # (R, L - size + 1, size): all n-grams so far
            # (R, L - size + 1): n-grams that begin with the last size - 1 tokens; their last id is refused.
            again = (grams[..., :-1] == tokens[:, None, length - size + 1 :]).all(-1)
            refused.append(_marked(torch.where(again, grams[..., -1], scores.shape[1]), scores.shape[1]))
        return scores.masked_fill(torch.stack(refused).any(0), -torch.inf)


def _last(gram: tuple[int, ...], tokens: Tensor, width: int) -> Tensor:
    """(R, V): the last id of `gram`, in the rows of tokens (R, L) that end with the ids before it."""
    *before, last = gram
    follows = (tokens[:, tokens.shape[1] - len(before) :] == tokens.new_tensor(before)).all(1)
    return _marked(torch.where(follows, last, width)[:, None], width)


def _marked(ids: Tensor, width: int) -> Tensor:
    """(R, V): true at the ids (R, N); an id of `width` marks nothing."""
    marks = torch.zeros(len(ids), width + 1, dtype=torch.bool, device=ids.device)
    return marks.scatter_(1, ids, True)[:, :width]


@dataclass(frozen=True)
class Beams:
    """Beam search as transformers 5 does it.

    A finished sequence has its summed log probability divided by its number of new tokens, the end included, to the power
    `length_penalty`. The `best` of them are returned. `early`: false stops when the best running sequence, at its present
    length, cannot beat the worst that is kept; true as soon as `count` have ended; `never` only when no running sequence can win
    at any length.

    With several `groups` each has an equal part of the beams and is searched by itself, one group after another at each token.
    The score of a token is lowered by `diversity` for each beam of the groups before that goes on with the same token now
    (Vijayakumar et al., "Diverse Beam Search", 2018, §3, with the Hamming distance). As in the authors' code (ashwinkalyan/dbs)
    scores of sequences contain what was subtracted. Differs: a sequence that has just ended lowers nothing, and the best are
    taken from all groups together (both as in transformers 4); the authors list each group's.

    `sampled`: candidates are not the best ones but are drawn without replacement, in proportion to the exponential of their
    scores.
    """

    count: int = 4
    length_penalty: float = 1.0
    early: bool | Literal["never"] = False
    best: int = 1
    groups: int = 1
    diversity: float = 0.5
    sampled: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.count <= _MOST:
            raise UserError(f"beams {self.count}: expected 1 to {_MOST:,}.")
        if not 1 <= self.best <= self.count:
            raise UserError(f"{self.best} texts from {self.count} beams: expected at most as many texts as beams.")
        if not isfinite(self.length_penalty):
            raise UserError(f"length-penalty {self.length_penalty}: expected a finite number; above 0 favours long texts.")
        if self.groups < 1 or self.count % self.groups:
            raise UserError(f"groups {self.groups}: expected a divisor of the number of beams, {self.count}.")
        if not 0.0 <= self.diversity < float("inf"):
            raise UserError(f"diversity {self.diversity}: expected 0 (groups ignore each other) or more.")
        if self.sampled and self.groups > 1:
            raise UserError(argument("groups"), " and ", argument("sampled"), " cannot be combined. Leave out one of them.")

    @property
    def each(self) -> int:
        """The number of beams of a group."""
        return self.count // self.groups

    @property
    def candidates(self) -> int:
        """How many continuations of a group are considered at a time: enough if the end follows each beam."""
        return 2 * self.each


def sample(
    writer: Writer, tokens: Tensor, *, new: int, end: int, sampling: Sampling, uniform: Tensor, limits: Limits,
    stops: Callable[[Sequence[int]], bool] | None = None, on_tokens: Callable[[list[int]], None] | None = None,
) -> list[Continuation]:
    """Up to `new` tokens after tokens (R, L), drawn with the rows' random numbers `uniform` (R, new).

    A row also ends where `stops` is true of its new tokens. `on_tokens` gets the next token of each row as soon as it is chosen.
    """
    start = tokens.shape[1]
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    lengths = [new] * len(tokens)
    for number in range(new):
        scores = limits.apply(writer.scores(tokens), tokens, start=start, end=end)
        chosen = torch.where(ended, max(end, 0), sampling.choose(scores, uniform[:, number]))
        tokens = torch.cat([tokens, chosen[:, None]], dim=1)
        ended = ended | (chosen == end)
        if on_tokens is not None:
            on_tokens(chosen.tolist())
        for row, ids in enumerate(tokens[:, start:].tolist() if stops is not None else ()):
            if stops is not None and not ended[row] and stops(ids):
                ended[row], lengths[row] = True, number + 1
        if bool(ended.all()):
            break
    return [cut_at(row[start : start + length], end) for row, length in zip(tokens.tolist(), lengths, strict=True)]


def cut_at(ids: list[int], end: int, score: float | None = None) -> Continuation:
    """What stands before the first end token."""
    ended = end in ids
    return Continuation(tuple(ids[: ids.index(end)] if ended else ids), ended, score)


def beam_search(
    writer: Writer, tokens: Tensor, *, new: int, end: int, beams: Beams, limits: Limits, sampling: Sampling | None = None,
    uniform: Tensor | None = None,
) -> list[Continuation]:
    """The best continuation of each of tokens (R, L) by up to `new` tokens, and the next best ones as its `others`.

    Sampled beams are drawn from what `sampling` leaves of each beam's tokens, at least two, with the random numbers `uniform`
    (R, new, candidates).
    """
    # Shapes: R rows, B beams in all, K beams of a group. `first` and `chosen` (R, V), `scores` (R, B, V).
    groups = [_Search(tokens, new, end, beams) for _ in range(beams.groups)]
    first = writer.scores(tokens).float().log_softmax(-1)
    writer.select(torch.arange(len(tokens), device=tokens.device).repeat_interleave(beams.count))
    scores = first[:, None].expand(-1, beams.count, -1)
    for number in range(new):
        origin, chosen = [], torch.zeros_like(first)  # how many beams of the groups before have chosen each token
        for index, group in enumerate(groups):
            span, flat = slice(index * beams.each, (index + 1) * beams.each), group.running.flatten(0, 1)
            # (R, K, V) to (R K, V); `flat` (R K, L).
            group_scores = (scores[:, span] - beams.diversity * chosen[:, None] if index else scores[:, span]).flatten(0, 1)
            group_scores = limits.apply(group_scores, flat, start=group.start, end=end)
            if beams.sampled and sampling is not None and uniform is not None:
                beam = group.advance(sampling.left(group_scores, least=2), uniform[:, number])
            else:
                beam = group.advance(group_scores)
            origin.append(beam + span.start)  # (R, K): from numbers in the group to numbers among all B
            chosen.scatter_add_(1, group.running[:, :, -1], group.live[:, None].expand(-1, beams.each).to(chosen.dtype))
        if all(group.over for group in groups):
            break
        offset = torch.arange(len(tokens), device=tokens.device)[:, None] * beams.count
        writer.reorder((torch.cat(origin, dim=1) + offset).flatten())  # (R, B) to the writer's rows (R B,)
        running = torch.cat([group.running for group in groups], dim=1)
        scores = writer.scores(running.flatten(0, 1)).float().log_softmax(-1).unflatten(0, running.shape[:2])
    return _ranked(groups, beams.best)


def _ranked(groups: Sequence[_Search], several: int) -> list[Continuation]:
    """The best ended sequence of each row among all groups, with the others that are wanted."""
    best = []
    for row in zip(*(group.ended() for group in groups), strict=True):
        first, *runners_up = sorted((sequence for group in row for sequence in group), key=_worth, reverse=True)[:several]
        best.append(first._replace(others=tuple(runners_up)))
    return best


def _worth(continuation: Continuation) -> float:
    return -float("inf") if continuation.score is None else continuation.score


def _drawn(scores: Tensor, uniform: Tensor) -> Tensor:
    """Places (R, N) that are drawn one after another, each once, with probabilities by the exponentials of scores (R, V);
    `uniform` (R, N) are in [0, 1). If fewer have a probability, the others are the next best."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    left = scores.gather(1, order).double().softmax(-1)  # (R, V) by rank, as are `unused` and `cumulative`
    unused = torch.ones_like(left, dtype=torch.bool)
    places = []
    for number in range(uniform.shape[1]):
        cumulative = left.cumsum(1)
        # One draw per row: `rank`, `last` and `next_best` are (R, 1).
        rank = torch.searchsorted(cumulative, uniform[:, number, None].double() * cumulative[:, -1:], right=True)
        last = left.shape[1] - 1 - (left > 0).flip(1).int().argmax(1, keepdim=True)  # rounding may point past it
        next_best = unused.int().argmax(1, keepdim=True)
        rank = torch.where(cumulative[:, -1:] > 0, rank.minimum(last), next_best)
        left, unused = left.scatter(1, rank, 0.0), unused.scatter(1, rank, False)
        places.append(rank)
    return order.gather(1, torch.cat(places, dim=1))


class _Search:
    """The state of a beam search over R rows with the K beams of one group: what runs, what has ended, with scores; all tensors.

    `running` (R, K, L) and `total` (R, K) are the running sequences; `kept` (R, K, start + new), `worth` (R, K) and `done`
    the best that have ended. `open` (R, 1): a running sequence can still win.
    """

    def __init__(self, tokens: Tensor, new: int, end: int, beams: Beams) -> None:
        rows, self.start = tokens.shape
        device, count = tokens.device, beams.each
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

    @property
    def live(self) -> Tensor:
        """(R,): whether the search goes on for a row."""
        return self.open[:, 0] & ~self.done.all(1) if self.beams.early is True else self.open[:, 0]

    def advance(self, scores: Tensor, uniform: Tensor | None = None) -> Tensor:
        """One token further, given log probabilities (R*K, V); the beam that each running sequence came from, (R, K).

        With `uniform` (R, candidates) the continuations are drawn.
        """
        # From all continuations (R, K V) to C candidates: `indices`, `total`, `beam`, `token` and `stops` are
        # (R, C), `longer` (R, C, L + 1). The K best of those that do not stop run on.
        rows, count = self.total.shape
        vocabulary = scores.shape[1]
        every = (scores.view(rows, count, vocabulary) + self.total[:, :, None]).flatten(1)
        indices = every.topk(self.beams.candidates).indices if uniform is None else _drawn(every, uniform)
        total = every.gather(1, indices)
        beam, token = indices // vocabulary, indices % vocabulary
        longer = torch.cat([_rows(self.running, beam), token[:, :, None]], dim=2)
        stops = (token == self.end) | (longer.shape[2] >= self.max_length)
        left, chosen = (total + stops.float() * _NEVER).topk(count)
        self._keep(longer, total, stops)
        self.running, self.total = _rows(longer, chosen), left
        self._judge(bool(stops.all()))
        return beam.gather(1, chosen)

    def _keep(self, longer: Tensor, total: Tensor, stops: Tensor) -> None:
        """Let sequences that have just ended replace worse ones if they are among the best.

        The candidates `longer` (R, C, L) have `total` and `stops` (R, C); only the first K of them may end. They
        and the K that are kept compete, (R, K + C).
        """
        count, length = self.beams.each, longer.shape[2]
        among = stops & (torch.arange(self.beams.candidates, device=stops.device) < count)
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
        self.over = all_stop or not bool(self.live.any())

    def ended(self) -> list[list[Continuation]]:
        """The ended sequences of each row, the best first."""
        return [
            [cut_at(sequence[self.start :], self.end, value) for sequence, value in zip(ids, worth, strict=True)]
            for ids, worth in zip(self.kept.tolist(), self.worth.tolist(), strict=True)
        ]


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """x (R, N, L) at index (R, M): (R, M, L)."""
    return x.gather(1, index[:, :, None].expand(-1, -1, x.shape[2]))
