"""Choose whole continuations, token by token or by beam search; the caller passes what reads the tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """What was written after a start, without the end token; whether it ended; the score of a beam search, and its next best
    texts."""

    ids: tuple[int, ...]
    ended: bool
    score: float | None = None
    others: tuple[Written, ...] = ()


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
        """Scores (R, V) behind tokens (R, L), of which `start` were given, under these limits; `first` has a score of 0."""
        if self.first is not None and tokens.shape[1] == start:
            only = torch.tensor([self.first], device=scores.device)
            return torch.full_like(scores, -torch.inf).index_fill(1, only, 0.0)
        if self.repetition_penalty != 1.0:
            known = scores.gather(1, tokens)
            known = torch.where(known < 0, known * self.repetition_penalty, known / self.repetition_penalty)
            scores = scores.scatter(1, tokens, known)
        refused = [scores.new_zeros(scores.shape, dtype=torch.bool)]
        if tokens.shape[1] - start < self.min_tokens and end >= 0:
            refused[0][:, end] = True
        refused += [_last(gram, tokens, scores.shape[1]) for gram in self.banned if len(gram) <= tokens.shape[1] + 1]
        size, length = self.no_repeat, tokens.shape[1]
        if size and length >= size:
            grams = tokens.unfold(1, size, 1)
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
    """

    count: int = 4
    length_penalty: float = 1.0
    early: bool | Literal["never"] = False
    best: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.count <= _MOST:
            raise UserError(f"beams {self.count}: expected 1 to {_MOST:,}.")
        if not 1 <= self.best <= self.count:
            raise UserError(f"{self.best} texts of {self.count} beams: expected at most as many texts as beams.")


def sample(
    writer: Writer, tokens: Tensor, *, new: int, end: int, sampling: Sampling, uniform: Tensor, limits: Limits,
    stops: Callable[[Sequence[int]], bool] | None = None, told: Callable[[list[int]], None] | None = None,
) -> list[Written]:
    """Up to `new` tokens behind tokens (R, L), drawn with the rows' random numbers `uniform` (R, new).

    A row also ends where `stops` is true of its new tokens. `told` gets the next token of each row as soon as it is chosen.
    """
    start = tokens.shape[1]
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    lengths = [new] * len(tokens)
    for number in range(new):
        scores = limits.apply(writer.scores(tokens), tokens, start=start, end=end)
        chosen = torch.where(ended, max(end, 0), sampling.choose(scores, uniform[:, number]))
        tokens = torch.cat([tokens, chosen[:, None]], dim=1)
        ended = ended | (chosen == end)
        if told is not None:
            told(chosen.tolist())
        for row, ids in enumerate(tokens[:, start:].tolist() if stops is not None else ()):
            if stops is not None and not ended[row] and stops(ids):
                ended[row], lengths[row] = True, number + 1
        if bool(ended.all()):
            break
    return [_cut(row[start : start + length], end) for row, length in zip(tokens.tolist(), lengths, strict=True)]


def _cut(ids: list[int], end: int, score: float | None = None) -> Written:
    ended = end in ids
    return Written(tuple(ids[: ids.index(end)] if ended else ids), ended, score)


def beam_search(
    writer: Writer, tokens: Tensor, *, new: int, end: int, beams: Beams, limits: Limits
) -> list[Written]:
    """The best continuation of each of tokens (R, L) by up to `new` tokens, and the next best ones as its `others`."""
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
        """The best ended sequence of each row, with the others that are wanted."""
        found, several = [], self.beams.best
        for ids, worth in zip(self.kept.tolist(), self.worth.tolist(), strict=True):
            first, *others = (_cut(one[self.start :], self.end, value) for one, value in zip(ids[:several], worth, strict=False))
            found.append(first._replace(others=tuple(others)))
        return found


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """x (R, N, L) at index (R, M): (R, M, L)."""
    return x.gather(1, index[:, :, None].expand(-1, -1, x.shape[2]))
