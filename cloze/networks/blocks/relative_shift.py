"""Distances instead of positions: their sinusoids, and scores by distance turned into scores by key.

The token in column i of a row that remembers m tokens reads the key in column j of [memory; row] from the distance m + i - j.
Scores are made for every distance once, from the largest down, and then moved: one product instead of one per query.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sinusoids(distances: Tensor, width: int) -> Tensor:
    """Sines, then cosines, of distances (R,): (R, D) float32 (Dai et al., 2019, §3.3; not interleaved, as in their code)."""
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device=distances.device) / width
    angles = distances.to(torch.float32)[:, None] * (10000.0**-exponents)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def distances_down(queries: int, keys: int, *, ahead: bool, clamp: int | None, device: torch.device) -> Tensor:
    """The distances of `shift`, from keys - 1 down to -1, or to those of the keys `ahead` of a query; clamped to ±`clamp`."""
    beyond = max(queries, 2) - 1 if ahead else 1
    down = torch.arange(keys - 1, -beyond - 1, -1, device=device)
    return down if clamp is None else down.clamp(-clamp, clamp)


def shift(scores: Tensor, keys: int) -> Tensor:
    """Scores by distance (…, Lq, R) to scores by key (…, Lq, Lk), for R > Lk: [i, j] is the score of distance Lk - Lq + i - j.

    Column c of `scores` is the distance Lk - 1 - c. Where R does not reach a key ahead of the query, its entry is another
    query's score, to be masked.
    """
    queries, across = scores.shape[-2:]
    flat = scores.flatten(-2)[..., queries - 1 : queries * across - 1]
    return flat.unflatten(-1, (queries, across - 1))[..., :keys]


def shift_at(scores: Tensor, columns: Tensor, queries: int, keys: int) -> Tensor:
    """`shift` for the queries at `columns` (B, K) of rows of `queries` tokens: (B, H, K, R) to (B, H, K, Lk)."""
    shifted = queries - 1 - columns[:, :, None] + torch.arange(keys, device=scores.device)
    return scores.gather(-1, shifted[:, None].expand(-1, scores.shape[1], -1, -1))
