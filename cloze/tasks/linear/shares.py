"""How much two models weigh when their answers are mixed: one share and one sharpness, chosen by the loss of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

SHARES = tuple(round(0.05 * step, 2) for step in range(21))  # of the second model
SHARPNESS = (0.1, 0.15, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)  # what the mixed logarithms are multiplied by
PRICE = 3.0  # nats, of using one model alone
_LEAST = 1e-6  # mean squared error


class Shares(NamedTuple):
    """The share of the second of two models, and what the mixed logarithms of probabilities are multiplied by."""

    share: float
    sharpness: float


def choose_shares(loss: Callable[[float, float], float], answers: int, *, sharpens: bool) -> Shares:
    """The share and the sharpness with the lowest `loss`, a mean over `answers` that neither model was trained on.

    With `sharpens`, the loss is a negative log-likelihood; otherwise it is a squared error, which counts in units of its lowest
    mean, and nothing is sharpened. To it comes a price for leaving equal shares, at most `PRICE`, because a few rows say little.
    """
    losses = {
        Shares(share, sharp): loss(share, sharp) for share in SHARES for sharp in (SHARPNESS if sharpens else (1.0,))
    }
    unit = 1.0 if sharpens else 2.0 * max(min(losses.values()), _LEAST)

    def price(shares: Shares) -> float:
        return answers * losses[shares] / unit + PRICE * (2.0 * shares.share - 1.0) ** 2

    return min(losses, key=price)
