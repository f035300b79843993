"""Attention: one module for all networks, and one softmax.

`Layer` calls it, or a fast CPU function that computes the same (`networks/fast/`). An `Attention` is built once, from the
projections to queries, keys and values (`projections.py`), what it learns about relative positions (`distances.py`), a scale and
a dropout. `AttentionInputs` holds what differs from call to call: who sees whom (`visibility.py`), how positions enter
(`relation.py`), a memory, a cache, another sequence. GPU kernels are called in `gpu_attention.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.networks.blocks.dropout import Dropout, Positions, drop
from cloze.networks.blocks.gpu_attention import attend_by_kernel
from cloze.networks.blocks.norm import QueryKeyNorm, make_norm
from cloze.networks.blocks.positions.relation import NONE, Relation
from cloze.networks.blocks.projections import GroupedProjections, Projections, StackedProjections
from cloze.networks.blocks.selected import Selected
from cloze.networks.blocks.visibility import Visibility
from cloze.networks.cost import EncodedSource, Operations, SequenceSize

#: The states that attention can record: the first two are (B, H, Lq, Lk), the others (B, H, L, W). Scores are scaled and
#: include the terms of relative positions, but not the mask; `attention` holds the probabilities before dropout.
#: `content` @ keysᵀ are the scores without relative positions: queries, with their bias, times the scale of the scores.
STATES = ("scores", "attention", "queries", "keys", "values", "content")


class QueryKeyValue(NamedTuple):
    """Queries (B, H, Lq, W), keys and values (B, H, Lk, W), and the relation bound to the parameters of this layer. Heads that
    share keys and values each have a copy."""

    query: Tensor
    key: Tensor
    value: Tensor
    relation: Relation


@dataclass(frozen=True)
class AttentionInputs:
    """The inputs of one call of attention besides the states x.

    `seen`: who sees whom. `relation`: how positions enter. `selected`: only these tokens have queries, and the result is (M, D).
    `rows`: x is (M, D), the tokens that are not padding. `past`: a memory of states (B, M, D) before the row, which is only read.
    `cache`: the keys and values of earlier calls; this call adds its own. `source`: the states of another sequence, (B, S, D), or
    (M, D) for the tokens in `source_rows`. `projected`: queries, keys and values that the caller has already computed. `gates`,
    (H) or (B, H), multiply the heads' outputs. `record` collects the states that it names. `earlier`: the states that the
    residual connections have made so far, for layers that read a mean of them; each adds its own. `further`: the inputs of a
    second attention in the same residual connection, which a change has added (`fuse`); attention itself does not use them.
    `host`: what holds the maps of the feed-forward in this call, where that is not the layer itself.
    """

    seen: Visibility
    relation: Relation = NONE
    selected: Selected | None = None
    rows: Selected | None = None
    past: Tensor | None = None
    cache: list[Tensor] | None = None
    source: Tensor | None = None
    source_rows: Selected | None = None
    projected: QueryKeyValue | None = None
    gates: Tensor | None = None
    record: AttentionRecord | None = None
    earlier: list[Tensor] | None = None
    further: AttentionInputs | None = None
    host: Any = None

    @property
    def query_tokens(self) -> Selected | None:
        """The tokens that have queries; None: all tokens of (B, L)."""
        return self.rows if self.selected is None else self.selected

    @property
    def positions(self) -> Positions | None:
        """The row and the column in the batch of each of the states (M, D); None if the states are (B, L, D)."""
        return None if self.query_tokens is None else self.query_tokens.positions

    def take(self, x: Tensor) -> Tensor:
        """The states of the tokens that have queries, (M, D) out of (B, L, D); x itself if it holds no others."""
        return x if self.selected is None or x.dim() == 2 else self.selected.take(x)


@dataclass(frozen=True)
class AttentionRecord:
    """Collects states of attention: a list per wanted name, with one entry per layer."""

    states: Mapping[str, list[Tensor]] = field(default_factory=dict)

    @classmethod
    def of(cls, want: frozenset[str], prefix: str = "") -> AttentionRecord | None:
        """For those of `STATES` that are wanted under `prefix`; None if none is."""
        names = [name for name in STATES if prefix + name in want]
        return cls({name: [] for name in names}) if names else None

    def add(self, **states: Tensor) -> None:
        """Add the wanted ones of one layer's states."""
        for name, state in states.items():
            if name in self.states:
                self.states[name].append(state)

    def stacked(self, prefix: str = "") -> dict[str, Tensor]:
        """The states of all layers, (N, B, H, ·, ·)."""
        return {prefix + name: torch.stack(states) for name, states in self.states.items()}


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al., 2017, §3.2.2), (B, L, D) to (B, L, D).

    Parameters: those of `projections` (`projections`, or `query` and `memory`), those that are `learned` about relative
    positions, with `bias: not_keys` the `query_value_bias` in place of a bias of all projections, with `gated` those of `gate`,
    whose GELU multiplies the heads' outputs, and `out`. `scale` multiplies scores; None: 1/√(head width). `norm_epsilon` puts a
    layer norm without weights before `out`. With `key_value_heads` G < H, equally many heads share keys and values.
    `query_key_norm` makes the norms `query_norm` and `key_norm`, of one head or of all of them side by side. `output_bias`:
    whether `out` has a bias, `bias` if not given.

    Shapes of a plain call, for heads of width W = D/H, or `head_width`; Lq = Lk = L without a memory, a cache or a source:

        x        (B, L, D)
        q, k, v  (B, H, L, W)    `projections` (B, L, 3·H·W), split by head; with `source`, k and v are made of it
                                 `past` comes in front of k and v, `query_norm` and `key_norm`, `relation` rotates q, k and v,
                                 `cache` comes in front; with G heads of k and v, (B, G, L, W), each is then repeated
        scores   (B, H, Lq, Lk)  (`relation.content` of q) · scale @ kᵀ + `relation.scores`, such as a bias by distance
        mask     (…, Lq, Lk)     from `seen`: order, blocks, band; broadcasts, and scores become -∞ where it is false
        weights  (B, H, Lq, Lk)  softmax over the keys (which `record` takes), then dropout
        context  (B, H, Lq, W)   weights @ v + `relation.values`, each head times its number in `gates`
        joined   (B, Lq, H·W)    the heads side by side, times GELU(`gate` of x), then `norm`
        output   (B, Lq, D)      `out`

    With `selected` or `rows`, Lq is K, the cells of a row for its selected tokens; what is joined is (M, H·W). Where `_attend`
    can, a GPU kernel makes the context of q, k and v at once. A `LayerHook` acts outside, on the inputs and the layer's output.
    """

    projections: nn.Linear
    query: nn.Linear
    memory: nn.Linear
    query_key: nn.Linear
    value: nn.Linear
    query_norm: nn.Module | None
    key_norm: nn.Module | None
    query_value_bias: nn.Parameter | None

    def __init__(
        self, *, width: int, heads: int, dropout: Dropout, head_width: int | None = None, projections: Projections | None = None,
        scale: float | None = None, bias: bool | Literal["not_keys"] = True,
        learned: Mapping[str, nn.Module | nn.Parameter] | None = None,
        gated: bool = False, norm_epsilon: float | None = None, key_value_heads: int | None = None,
        query_key_norm: QueryKeyNorm | None = None, output_bias: bool | None = None,
    ) -> None:
        super().__init__()
        if head_width is None and width % heads:
            raise ValueError(f"width {width} is not a multiple of heads {heads}")
        self.heads, self.head_width = heads, head_width or width // heads
        self.inner_width, self.key_value_heads = heads * self.head_width, key_value_heads or heads
        self.scale = 1.0 / math.sqrt(self.head_width) if scale is None else scale
        grouped = self.key_value_heads < heads
        usual = GroupedProjections(heads, self.key_value_heads) if grouped else StackedProjections()
        self.projecting: Projections = projections or usual
        self.distance_keys: nn.Linear | None = None  # these two are learned where vectors of distances have maps of their own
        self.distance_queries: nn.Linear | None = None
        for name, part in {**self.projecting.maps(width, self.inner_width, bias=bias is True), **(learned or {})}.items():
            setattr(self, name, part)
        self.query_value_bias = nn.Parameter(torch.zeros(2 * self.inner_width)) if bias == "not_keys" else None
        self.gate = nn.Linear(width, self.inner_width, bias=bool(bias)) if gated else None
        self.norm = None if norm_epsilon is None else make_norm("layer_without_weights", self.inner_width, norm_epsilon)
        self.query_key_norm = query_key_norm
        for name, number in (("query_norm", heads), ("key_norm", self.key_value_heads)):
            setattr(self, name, None if query_key_norm is None else query_key_norm.module(number, self.head_width))
        self.out = nn.Linear(self.inner_width, width, bias=bool(bias) if output_bias is None else output_bias)
        self.dropout = dropout

    @property
    def projection_maps(self) -> list[nn.Linear]:
        """The maps that make queries, keys and values."""
        return [getattr(self, name) for name in self.projecting.names]

    @property
    def lent(self) -> list[str]:
        """The names of the modules that layers share if they share the weights of attention."""
        optional = {
            "query_norm": self.query_norm, "key_norm": self.key_norm, "query_value_bias": self.query_value_bias,
            "distance_keys": self.distance_keys, "distance_queries": self.distance_queries,
        }
        return [*self.projecting.names, *(name for name, part in optional.items() if part is not None), "out"]

    def count_operations(
        self, counted: Operations, size: SequenceSize, source: EncodedSource | None = None, inside: Iterable[Any] = ()
    ) -> None:
        """The products of a sequence that reads itself, or `source`; `inside` count what changes add to keys and values."""
        if source is None:
            counted.add(size, *self.projection_maps)
        else:
            read = counted.branch(needs_grad=source.needs_grad)
            read.add(source.size, self.memory)
            counted.add(size, self.query)
            counted.add_branches(read)
        counted.add(size, self.gate)
        counted.pass_through(self.query_norm, self.key_norm)
        counted.add_row_products(2 * size.tokens * (size if source is None else source.size).length * self.inner_width)
        for part in inside:
            part.count_inside(counted, size)
        counted.add(size, self.out)

    def forward(self, x: Tensor, inputs: AttentionInputs, dropout: Dropout | None = None) -> Tensor:
        """(B, L, D) to (B, L, D), or to (M, D) if only some tokens have queries; `dropout` replaces the module's own."""
        projected = self.project(x, inputs) if inputs.projected is None else inputs.projected
        context = self._attend(projected, inputs, self.dropout if dropout is None else dropout).transpose(1, 2).flatten(2)
        context = context if inputs.query_tokens is None else inputs.query_tokens.collect(context)
        context = context if self.gate is None else context * F.gelu(self.gate(inputs.take(x)))
        context = context if self.norm is None else self.norm(context)
        if inputs.gates is not None:  # behind the norm, where a pruned head is zero
            gates = inputs.gates.repeat_interleave(self.head_width, -1)  # (H·W) or (B, H·W)
            if gates.dim() == 2:
                gates = gates[:, None] if inputs.positions is None else gates[inputs.positions.row]
            context = context * gates
        output: Tensor = self.out(context)
        return output

    def project(self, x: Tensor, inputs: AttentionInputs) -> QueryKeyValue:
        """Queries, keys and values after rotation; the keys and values of a memory or a cache come first."""
        relation, cache, maps = inputs.relation.bind(self), inputs.cache, self.projecting
        if inputs.source is None and inputs.selected is None:
            query, key, value = self._project_all(x, inputs)
        else:
            query = self.project_queries(inputs.take(x), inputs.query_tokens)
            if inputs.source is not None and cache:
                return QueryKeyValue(query, cache[0], cache[1], relation)
            read, rows = (x, inputs.rows) if inputs.source is None else (inputs.source, inputs.source_rows)
            key, value = self._heads(maps.memory(self, read), 2, rows)
        if self.query_value_bias is not None:
            offsets = self.query_value_bias.to(query.dtype).view(2, self.heads, 1, self.head_width)
            query, value = query + offsets[0], value + offsets[1]
        if self.query_key_norm is not None:
            query, key = self.query_key_norm(self.query_norm, query), self.query_key_norm(self.key_norm, key)
        (query, key), value = relation.rotate(query, key), relation.rotate_values(value)
        if cache is not None:
            if cache:
                key, value = torch.cat([cache[0], key], dim=2), torch.cat([cache[1], value], dim=2)
            cache[:] = [key, value]
        if (times := self.heads // self.key_value_heads) > 1:
            key, value = key.repeat_interleave(times, dim=1), value.repeat_interleave(times, dim=1)
        return QueryKeyValue(query, key, value, relation)

    def project_queries(self, x: Tensor, tokens: Selected | None) -> Tensor:
        """Only the queries, (B, H, Lq, W), of x (B, L, D), or of the states (M, D) of `tokens`."""
        return self._heads(self.projecting.queries(self, x), 1, tokens)[0]

    def _project_all(self, x: Tensor, inputs: AttentionInputs) -> tuple[Tensor, ...]:
        """Queries, keys and values of all tokens; keys and values of the memory `past` come first."""
        if inputs.past is None:
            projected = self.projecting.everything(self, x)
            return tuple(heads for states, kinds in projected for heads in self._heads(states, kinds, inputs.rows))
        query, keys_values = self.projections(x).split([self.inner_width, 2 * self.inner_width], dim=-1)
        before = self.projecting.memory(self, inputs.past.to(x.dtype)).to(keys_values.dtype)
        return (*self._heads(query, 1, None), *self._heads(torch.cat([before, keys_values], dim=1), 2, None))

    def _heads(self, x: Tensor, kinds: int, rows: Selected | None) -> tuple[Tensor, ...]:
        """Split (B, L, kinds·H·W), or rows (M, kinds·H·W) of some tokens, into `kinds` tensors (B, H, L, W)."""
        block = x if rows is None else rows.lay_out(x)
        return block.unflatten(-1, (kinds, -1, self.head_width)).permute(2, 0, 3, 1, 4).unbind(0)

    def _attend(self, projected: QueryKeyValue, inputs: AttentionInputs, dropout: Dropout) -> Tensor:
        """The heads' outputs, (B, H, Lq, W)."""
        query, key, value, relation = projected
        if query.device.type == "cuda" and relation.by_kernel and inputs.record is None:
            return attend_by_kernel(query, key, value, inputs.seen, relation.bias, self.scale, dropout)
        content = relation.content(query)
        content = content * self.scale if self.scale != 1.0 else content
        scores = content @ key.transpose(-2, -1)
        added = relation.scores(query, key, self.scale)
        scores = scores if added is None else scores + added.to(scores.dtype)
        weights = probabilities(scores, inputs.seen.mask_of(scores), may_see_nothing=inputs.seen.may_see_nothing)
        if inputs.record is not None:
            inputs.record.add(scores=scores, attention=weights, queries=query, keys=key, values=value, content=content)
        if dropout.active:
            columns = None if inputs.selected is None else inputs.selected.columns
            queries = weights.shape[2] if inputs.selected is None else inputs.selected.length
            batch, heads, _, keys = weights.shape
            keep = dropout.keep_scores(batch, heads, queries, keys, weights.device, columns)
            weights = drop(weights, keep, dropout.scale)
        context, positional = weights @ value, relation.values(weights)
        return context if positional is None else context + positional


@dataclass(frozen=True)
class AttentionCall:
    """Attention with the inputs of one call: a function of x, which `Layer` puts into a residual connection."""

    attention: Attention
    inputs: AttentionInputs
    dropout: Dropout

    def __call__(self, x: Tensor) -> Tensor:
        output: Tensor = self.attention(x, self.inputs, self.dropout)
        return output


def probabilities(scores: Tensor, mask: Tensor | None, *, may_see_nothing: bool = False) -> Tensor:
    """The softmax of scores over the last axis where `mask` is true, zero elsewhere, in the dtype of the scores.

    With `may_see_nothing` a query whose keys are all masked gets zeros. Differs: the authors of XLNet add -1e30, so that such a
    query averages over all keys, masked ones included.
    """
    if mask is None:
        return torch.softmax(scores, dim=-1, dtype=scores.dtype)
    if not may_see_nothing:
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1, dtype=scores.dtype)
    sees_nothing = ~mask.any(dim=-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(~(mask | sees_nothing), float("-inf")), dim=-1, dtype=scores.dtype)
    return weights.masked_fill(sees_nothing, 0.0)
