"""The continuous cache: a model of the most recent words, mixed into a left-to-right network's predictions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cloze.errors import UserError

_TOGETHER = 256  # positions whose similarities with the window are held at once


@dataclass(frozen=True)
class Pointer:
    """The weight of recent words (Grave et al., "Improving Neural Language Models with a Continuous Cache", 2017, eq. 2-3).

    p(w) = (1 - share) p_network(w) + share · Σ over the last `window` tokens that were w of softmax(scale · h_i · h), where h_i
    is the state that the token was predicted from. Until `window` tokens have been read p is the network's, as in AWD-LSTM's code
    (salesforce/awd-lstm-lm, pointer.py): 3785 tokens, scale 0.66 and share 0.13 for WikiText-2; 500, 1.0 and 0.1 for the Penn
    Treebank.

    Differs: that code waits for one more token, leaves the first token of each piece of 5,000 unmixed, and divides the sum of the
    losses by one token more than it predicts.
    """

    window: int = 500
    scale: float = 1.0
    share: float = 0.1

    def __post_init__(self) -> None:
        if self.window < 1 or not 0 <= self.share < 1:
            raise UserError(
                f"the pointer's window is {self.window} tokens and its share {self.share}; expected 1 or more, and below 1."
            )


class PointerCache:
    """The last tokens with the states that they were predicted from, across texts."""

    def __init__(self, pointer: Pointer) -> None:
        self.pointer = pointer
        self._states: Tensor | None = None
        self._tokens: Tensor | None = None

    def require(self, tokens: int) -> None:
        """A `UserError` if this many tokens never fill the window, so that nothing would be mixed."""
        if tokens <= self.pointer.window:
            raise UserError(
                f"--pointer {self.pointer.window}: nothing is mixed before so many tokens have been read, and the "
                f"texts have {tokens}.\n  Give a smaller number, or more text."
            )

    def mix(self, log_probabilities: Tensor, states: Tensor, tokens: Tensor) -> Tensor:
        """log p of `tokens` (T,), which follow each other, from the network's own (T,) and the states (T, D) that predict
        them; they are added to the cache."""
        window, states = self.pointer.window, states.float()
        keys = states if self._states is None else torch.cat([self._states, states])
        key_tokens = tokens if self._tokens is None else torch.cat([self._tokens, tokens])
        before = len(keys) - len(states)
        mixed = []
        for start in range(0, len(states), _TOGETHER):
            stop = min(start + _TOGETHER, len(states))
            first = max(0, before + start - window)
            position = torch.arange(before + start, before + stop, device=states.device)[:, None]
            column = torch.arange(first, before + stop, device=states.device)[None]
            seen = (column < position) & (column >= position - window)
            full = position[:, 0] >= window
            scores = self.pointer.scale * (states[start:stop] @ keys[first : before + stop].t())
            shares = torch.softmax(scores.masked_fill(~seen, -torch.inf), dim=1)
            same = (key_tokens[first : before + stop][None] == tokens[start:stop, None]) & seen
            copied = torch.where(same, shares, 0.0).sum(1).double()
            mixture = (1 - self.pointer.share) * log_probabilities[start:stop].double().exp() + self.pointer.share * copied
            mixed.append(torch.where(full, mixture.log(), log_probabilities[start:stop].double()))
        self._states, self._tokens = keys[-window:], key_tokens[-window:]
        return torch.cat(mixed) if mixed else log_probabilities.double()
