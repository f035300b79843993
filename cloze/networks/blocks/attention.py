"""Attention: the one module of all networks, and the one softmax.

It is built from objects: how queries, keys and values are made (`projections.py`), what it learns about positions
(`distances.py`), a scale, a dropout. It is called with `AttentionInputs`: who sees whom, a relation of positions
(`relation.py`), a memory, a cache, another sequence. Kernels of a GPU are in `kernels.py`, functions of a CPU in
`networks/fast/`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cloze.networks.blocks.dropout import Dropout, Positions, drop
from cloze.networks.blocks.kernels import attend_by_kernel
from cloze.networks.blocks.projections import Projections, Stacked
from cloze.networks.blocks.relation import NONE, Relation
from cloze.networks.blocks.selected import Selected
from cloze.networks.blocks.visibility import Visibility

#: What attention computes on the way, by the name of the state: (B, H, Lq, Lk) the first two, (B, H, L, W) the others.
#: Scores are scaled and hold the terms of columns, not the mask; probabilities are those before dropout.
STATES = ("scores", "attention", "queries", "keys", "values")


class Projected(NamedTuple):
    """Queries (B, H, Lq, W), keys and values (B, H, Lk, W), and the relation with what the layer has learned about it."""

    query: Tensor
    key: Tensor
    value: Tensor
    relation: Relation


@dataclass(frozen=True)
class AttentionInputs:
    """What one call of attention is given beside the states x.

    `at`: only these tokens ask, and the result is (M, D). `rows`: x is (M, D), the tokens without padding. `past`: states
    (B, M, D) before the row, read without being written. `cache`: holds and receives keys and values. `source`: the states of
    another sequence (B, S, D), or (M, D), those in `source_rows`. `projected`: made by the caller. `gates` (H) or (B, H)
    multiply the heads' outputs. `record` receives the states that it names.
    """

    seen: Visibility
    relation: Relation = NONE
    at: Selected | None = None
    rows: Selected | None = None
    past: Tensor | None = None
    cache: list[Tensor] | None = None
    source: Tensor | None = None
    source_rows: Selected | None = None
    projected: Projected | None = None
    gates: Tensor | None = None
    record: Record | None = None

    @property
    def asking(self) -> Selected | None:
        """The tokens that ask, where these are not all."""
        return self.rows if self.at is None else self.at

    @property
    def positions(self) -> Positions | None:
        """Where the rows of (M, D) states stand."""
        return None if self.asking is None else self.asking.positions

    def take(self, x: Tensor) -> Tensor:
        """The states of the tokens that ask, (M, D) of (B, L, D); x itself where all do or it holds no others."""
        return x if self.at is None or x.dim() == 2 else self.at.take(x)


@dataclass(frozen=True)
class Record:
    """Receives states of attention, a list per wanted name with an entry per layer."""

    states: Mapping[str, list[Tensor]] = field(default_factory=dict)

    @classmethod
    def of(cls, want: frozenset[str], prefix: str = "") -> Record | None:
        """For those of `STATES` that are wanted under `prefix`; None if none is."""
        wanted = [name for name in STATES if prefix + name in want]
        return cls({name: [] for name in wanted}) if wanted else None

    def add(self, **made: Tensor) -> None:
        """Keep what is wanted of one layer's states."""
        for name, state in made.items():
            if name in self.states:
                self.states[name].append(state)

    def stacked(self, prefix: str = "") -> dict[str, Tensor]:
        """The states of all layers, (N, B, H, ·, ·)."""
        return {prefix + name: torch.stack(found) for name, found in self.states.items()}


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al., 2017, §3.2.2), (B, L, D) to (B, L, D).

    Parameters: those of `projections` (`projections`, or `query` and `memory`), those that are `learned` about columns, `out`.
    `scale` multiplies the scores; None: 1/√(head width).
    """

    projections: nn.Linear
    query: nn.Linear
    memory: nn.Linear

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        dropout: Dropout,
        head_width: int | None = None,
        projections: Projections | None = None,
        scale: float | None = None,
        bias: bool = True,
        learned: Mapping[str, nn.Module | nn.Parameter] | None = None,
    ) -> None:
        super().__init__()
        if head_width is None and width % heads:
            raise ValueError(f"width {width} is not a multiple of heads {heads}")
        self.heads, self.head_width = heads, head_width or width // heads
        self.inside = heads * self.head_width
        self.scale = 1.0 / math.sqrt(self.head_width) if scale is None else scale
        self.projecting: Projections = projections or Stacked()
        for name, part in {**self.projecting.maps(width, self.inside, bias=bias), **(learned or {})}.items():
            setattr(self, name, part)
        self.out = nn.Linear(self.inside, width, bias=bias)
        self.dropout = dropout

    def forward(self, x: Tensor, given: AttentionInputs, dropout: Dropout | None = None) -> Tensor:
        """(B, L, D) to (B, L, D), or to (M, D) where some tokens ask; another `dropout` for a second stream."""
        projected = self.project(x, given) if given.projected is None else given.projected
        context = self._attend(projected, given, self.dropout if dropout is None else dropout).transpose(1, 2).flatten(2)
        made: Tensor = self.out(context if given.asking is None else given.asking.collect(context))
        return made

    def project(self, x: Tensor, given: AttentionInputs) -> Projected:
        """Queries, keys and values, rotated, those of a memory or a cache in front."""
        relation, cache, maps = given.relation.bind(self), given.cache, self.projecting
        if given.source is None and given.at is None:
            query, key, value = self._own(x, given)
        else:
            query = self.ask(given.take(x), given.asking)
            if given.source is not None and cache:
                return Projected(query, cache[0], cache[1], relation)
            read, rows = (x, given.rows) if given.source is None else (given.source, given.source_rows)
            key, value = self._heads(maps.memory(self, read), 2, rows)
        query, key = relation.rotate(query, key)
        if cache is not None:
            if cache:
                key, value = torch.cat([cache[0], key], dim=2), torch.cat([cache[1], value], dim=2)
            cache[:] = [key, value]
        return Projected(query, key, value, relation)

    def ask(self, x: Tensor, asking: Selected | None) -> Tensor:
        """Queries alone, (B, H, Lq, W)."""
        return self._heads(self.projecting.queries(self, x), 1, asking)[0]

    def _own(self, x: Tensor, given: AttentionInputs) -> tuple[Tensor, ...]:
        """Queries, keys and values of all tokens, and keys and values of those that are remembered."""
        made = self.projections(x)
        if given.past is None:
            return self._heads(made, 3, given.rows)
        query, own = made.split([self.inside, 2 * self.inside], dim=-1)
        before = self.projecting.memory(self, given.past.to(x.dtype)).to(own.dtype)
        return (*self._heads(query, 1, None), *self._heads(torch.cat([before, own], dim=1), 2, None))

    def _heads(self, x: Tensor, kinds: int, rows: Selected | None) -> tuple[Tensor, ...]:
        """(B, L, kinds·H·W), or the rows (M, ·) of some tokens, to `kinds` of (B, H, L, W)."""
        block = x if rows is None else rows.lay_out(x)
        return block.unflatten(-1, (kinds, self.heads, self.head_width)).permute(2, 0, 3, 1, 4).unbind(0)

    def _attend(self, made: Projected, given: AttentionInputs, dropout: Dropout) -> Tensor:
        """The heads' outputs, (B, H, Lq, W)."""
        query, key, value, relation = made
        if query.device.type == "cuda" and relation.by_kernel and given.gates is None and given.record is None:
            return attend_by_kernel(query, key, value, given.seen, relation.bias, self.scale, dropout)
        content = relation.content(query)
        scores = (content * self.scale if self.scale != 1.0 else content) @ key.transpose(-2, -1)
        added = relation.scores(query, self.scale)
        scores = scores if added is None else scores + added.to(scores.dtype)
        chosen = probabilities(scores, given.seen.mask_of(scores), may_see_nothing=given.seen.may_see_nothing)
        if given.record is not None:
            given.record.add(scores=scores, attention=chosen, queries=query, keys=key, values=value)
        if dropout.active:
            columns = None if given.at is None else given.at.columns
            queries = chosen.shape[2] if given.at is None else given.at.length
            batch, heads, _, keys = chosen.shape
            keep = dropout.keep_scores(batch, heads, queries, keys, chosen.device, columns)
            chosen = drop(chosen, keep, dropout.scale)
        context, moved = chosen @ value, relation.values(chosen)
        context = context if moved is None else context + moved
        return context if given.gates is None else context * given.gates[..., None, None]


@dataclass(frozen=True)
class Reading:
    """One call of attention: what a residual connection goes around."""

    attention: Attention
    given: AttentionInputs
    dropout: Dropout

    def __call__(self, x: Tensor) -> Tensor:
        made: Tensor = self.attention(x, self.given, self.dropout)
        return made


def probabilities(scores: Tensor, mask: Tensor | None, *, may_see_nothing: bool = False) -> Tensor:
    """The softmax of scores over the last axis where `mask` is true, zero elsewhere, in the dtype of the scores.

    With `may_see_nothing` a row of scores that is hidden throughout gets zeros. Differs: the authors of XLNet add -1e30, so that
    such a query averages over all keys, the hidden ones included.
    """
    if mask is None:
        return torch.softmax(scores, dim=-1, dtype=scores.dtype)
    if not may_see_nothing:
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1, dtype=scores.dtype)
    blind = ~mask.any(dim=-1, keepdim=True)
    made = torch.softmax(scores.masked_fill(~(mask | blind), float("-inf")), dim=-1, dtype=scores.dtype)
    return made.masked_fill(blind, 0.0)
