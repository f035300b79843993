"""Segment memory: what a row may see of the tokens that its lane has read before (Dai et al., 2019, §3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Memory(NamedTuple):
    """Inputs of every layer at the remembered tokens (B, N, M, D), and which of these are real (B, M)."""

    states: Tensor
    known: Tensor


def recall(carry: Mapping[str, Tensor] | None, restarts: Tensor | None) -> Memory | None:
    """The memory out of a carry (`states`, and `known`; absent: all of it is); rows in `restarts` (B,) remember nothing."""
    if carry is None or carry["states"].shape[2] == 0:
        return None
    states = carry["states"]
    mask = carry.get("known")
    if mask is None:
        mask = torch.ones(states.shape[0], states.shape[2], dtype=torch.bool, device=states.device)
    return Memory(states, mask if restarts is None else mask & ~restarts[:, None])


def remember(passed: Sequence[Tensor], real: Tensor | None, memory: Memory | None, *, size: int, reuse: int) -> dict[str, Tensor]:
    """The carry after a row: the last `size` of what was remembered and of this row's layer inputs, detached.

    `passed` holds N inputs (B, L, D). The last `reuse` tokens of a row are left out: the next row brings them again.
    """
    states = torch.stack([x.detach() for x in passed], dim=1)  # (B, N, L, D), and the mask (B, L)
    mask = states.new_ones(states.shape[0], states.shape[2], dtype=torch.bool) if real is None else real
    keep = states.shape[2] - reuse
    states, mask = states[:, :, :keep], mask[:, :keep]
    if memory is not None:
        states = torch.cat([memory.states.to(states.dtype), states], dim=2)  # older tokens first
        mask = torch.cat([memory.known, mask], dim=1)
    start = max(states.shape[2] - size, 0)
    return {"states": states[:, :, start:].contiguous(), "known": mask[:, start:].contiguous()}


def with_memory(seen: Tensor | None, memory: Memory | None, *, queries: int) -> Tensor | None:
    """A mask (B or 1, 1, Lq, L), None for everything, grown by the remembered tokens in front: (B, 1, Lq, M + L)."""
    if memory is None:
        return seen
    batch, count = memory.known.shape
    past = memory.known[:, None, None, :].expand(batch, 1, queries, count)
    if seen is None:
        return torch.cat([past, past.new_ones(batch, 1, queries, queries)], dim=-1)
    return torch.cat([past, seen.expand(batch, 1, queries, seen.shape[-1])], dim=-1)
