"""Write with a draft: a smaller network proposes tokens, and the network that writes reads them all in one pass.

What is written is what `search.sample` writes: at temperature 0 the same tokens, otherwise tokens with the same distribution
(Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", 2023, algorithm 1 and appendix A.1). `generate` is
given a `Draft`, `sequence.write` calls `assisted`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from cloze.decoding.generating.sampling import Sampling
from cloze.decoding.generating.search import Continuation, Limits, Writer, cut_at
from cloze.decoding.reader import Reader
from cloze.errors import UserError


class Checker(Writer, Protocol):
    """A writer that can read several tokens at once and forget them again."""

    def following(self, tokens: Tensor, count: int) -> Tensor:
        """Scores (R, count, V) of the token after each of the last `count` of tokens (R, L), which have not been read before."""

    def forget(self, length: int) -> None:
        """Keep the first `length` tokens that were read."""


@dataclass
class Draft:
    """What proposes tokens: up to `tokens` at a time. `proposed` and `accepted` count what became of them."""

    reader: Reader
    head: Any
    tokens: int = 5
    proposed: int = 0
    accepted: int = 0

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise UserError(f"--draft-tokens {self.tokens}: expected at least 1.")

    def max_new(self, length: int) -> int:
        """How many tokens can be proposed after `length` ones."""
        most = self.reader.max_length
        return self.tokens if most is None else max(0, min(self.tokens, most - length + 1))


class RandomNumbers(NamedTuple):
    """Random numbers in [0, 1) for each new token (new,): to propose it, to accept it, and to draw it if nothing is accepted."""

    propose: Tensor
    accept: Tensor
    draw: Tensor


def assisted(
    writer: Checker, drafter: Checker, tokens: Tensor, *, draft: Draft, new: int, end: int, sampling: Sampling,
    numbers: RandomNumbers,
    limits: Limits, stops: Callable[[Sequence[int]], bool] | None = None, on_tokens: Callable[[list[int]], None] | None = None,
) -> Continuation:
    """Up to `new` tokens after tokens (1, L); `stops` and `on_tokens` as in `search.sample`."""
    start, size = tokens.shape[1], draft.reader.tokenizer.size
    while True:
        length = tokens.shape[1]
        offset = length - start
        proposed, shares = _proposed(
            drafter, tokens, min(draft.max_new(length), new - offset - 1), start=start, end=end, sampling=sampling,
            uniform=numbers.propose[offset:], limits=limits, size=size,
        )
        count = len(shares)
        draft.proposed += count
        predictions = writer.following(proposed, count + 1)[0, :, :size]
        for step in range(count + 1):
            before, number = proposed[:, : length + step], offset + step
            scores = limits.apply(predictions[step][None], before, start=start, end=end)
            proposal = int(proposed[0, length + step]) if step < count else None
            token = _judged(
                scores, proposal, shares[step] if step < count else None, sampling, numbers.accept[number], numbers.draw[number]
            )
            draft.accepted += token == proposal
            tokens = torch.cat([before, before.new_tensor([[token]])], dim=1)
            if on_tokens is not None:
                on_tokens([token])
            new_ids = tokens[0, start:].tolist()
            if token == end or len(new_ids) == new or (stops is not None and stops(new_ids)):
                return cut_at(new_ids, end)
            if token != proposal:
                break
        writer.forget(tokens.shape[1] - 1)
        drafter.forget(tokens.shape[1] - 1)


def _proposed(
    drafter: Checker, tokens: Tensor, count: int, *, start: int, end: int, sampling: Sampling, uniform: Tensor, limits: Limits,
    size: int,
) -> tuple[Tensor, list[Tensor]]:
    """Tokens (1, L) with up to `count` more, and the probabilities (V,) that each of these was drawn from; an end is the last."""
    shares: list[Tensor] = []
    for number in range(count):
        scores = limits.apply(drafter.scores(tokens)[:, :size], tokens, start=start, end=end)
        token = sampling.choose(scores, uniform[number : number + 1])
        shares.append(scores[0] if sampling.greedy else _shares(sampling, scores))
        tokens = torch.cat([tokens, token[:, None]], dim=1)
        if int(token) == end:
            break
    return tokens, shares


def _judged(
    scores: Tensor, proposal: int | None, shares: Tensor | None, sampling: Sampling, accept: Tensor, draw: Tensor
) -> int:
    """The next token, given its scores (1, V) and what was proposed from the probabilities `shares` (V,): the proposal with the
    probability min(1, p / q), else one from where p exceeds q. Without a proposal it is drawn from p."""
    if sampling.greedy or proposal is None or shares is None:
        return int(sampling.choose(scores, draw[None]))
    probabilities = _shares(sampling, scores)
    if float(accept) * float(shares[proposal]) < float(probabilities[proposal]):
        return proposal
    rest = (probabilities - shares).clamp(min=0)
    cumulative = (rest if float(rest.sum()) > 0 else probabilities).cumsum(0)
    index = int(torch.searchsorted(cumulative, draw.double() * cumulative[-1], right=True))
    last = int(cumulative.diff(prepend=cumulative.new_zeros(1)).nonzero()[-1])
    return min(index, last)  # rounding may point past it


def _shares(sampling: Sampling, scores: Tensor) -> Tensor:
    """The probability of each token (V,) in double precision, given scores (1, V)."""
    probabilities, ids = sampling.kept(scores)
    return torch.zeros(scores.shape[1], dtype=probabilities.dtype, device=scores.device).scatter(0, ids[0], probabilities[0])
