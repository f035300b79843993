"""The Transformer of MobileBERT: deep and narrow, every layer computes inside a bottleneck between two wide maps.

Source: MobileBERT: a Compact Task-Agnostic BERT for Resource-Limited Devices (Sun et al., 2020), google-research/mobilebert,
`modeling.py`. The teacher (IB-BERT) is the same network with a `bottleneck` that is wider than the layers' inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import BelowOne, Count, Depth, Natural, Width
from cloze.errors import RecipeError
from cloze.networks import choices
from cloze.networks.blocks.attention import Attention, AttentionInputs, AttentionRecord, QueryKeyValue
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.feed_forward import activate
from cloze.networks.blocks.hooks import LayerHook
from cloze.networks.blocks.initial import initialise
from cloze.networks.blocks.inputs.embeddings import to_residual_dtype
from cloze.networks.blocks.layer_inputs import LayerInputs
from cloze.networks.blocks.positions.relation import NONE
from cloze.networks.blocks.projections import SplitProjections
from cloze.networks.blocks.stack import Stack, each_layer
from cloze.networks.clock import Clock
from cloze.networks.network import (
    Network,
    StateKind,
    attention_kinds,
    named_sizes,
    reading_kinds,
    reading_states,
    require_order,
)
from cloze.registry import Given, PartMark, register


class NoNorm(nn.Module):
    """A gain and an offset for every number, in place of layer norm (Sun et al., 2020, §3.3)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """(…, D) to (…, D)."""
        return x * self.weight.to(x.dtype) + self.bias.to(x.dtype)


def _norm(norm: choices.BottleneckNorm, width: int) -> nn.Module:
    return NoNorm(width) if norm.kind == "none" else nn.LayerNorm(width, eps=norm.epsilon)


class TrigramEmbeddings(nn.Module):
    """Narrow vectors of tokens, mapped to the width of the layers, plus positions and segments, then the norm.

    A token also sees the vectors of its neighbours in the same block; outside of it they are zero. Parameters: `tokens.weight`
    (V, E), `project.*` (D, 3E or E), `positions.weight`, `segments.weight`, `norm.*`.
    """

    def __init__(
        self, *, vocab_size: int, width: int, table: choices.TrigramTable, max_length: int, segments: int,
        norm: choices.BottleneckNorm,
    ) -> None:
        super().__init__()
        self.width, self.trigrams = table.width or width, table.trigrams
        self.tokens = nn.Embedding(vocab_size, self.width)
        projects = self.trigrams or self.width != width
        self.project = nn.Linear(3 * self.width if self.trigrams else self.width, width) if projects else None
        self.positions = nn.Embedding(max_length, width)
        self.segments = nn.Embedding(segments, width) if segments else None
        self.norm = _norm(norm, width)

    def forward(
        self, tokens: Tensor, position_ids: Tensor | None, segments: Tensor | None, block: Tensor | None, vectors: Tensor | None
    ) -> Tensor:
        """(B, L) ids to (B, L, D); `vectors` (B, L, E) replace the vectors of tokens."""
        x = F.embedding(tokens, self.tokens.weight) if vectors is None else vectors
        if self.trigrams:
            following, before = F.pad(x[:, 1:], (0, 0, 0, 1)), F.pad(x[:, :-1], (0, 0, 1, 0))
            if block is not None:
                same = (block[:, 1:] == block[:, :-1])[..., None]
                following = F.pad(following[:, :-1] * same, (0, 0, 0, 1))
                before = F.pad(before[:, 1:] * same, (0, 0, 1, 0))
            x = torch.cat([following, x, before], dim=-1)
        x = x if self.project is None else self.project(x)
        table = self.positions.weight
        x = x + (table[: x.shape[1]] if position_ids is None else F.embedding(position_ids, table))
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else F.embedding(segments, self.segments.weight))
        embedded: Tensor = self.norm(x)
        return embedded


class ResidualFeedForward(nn.Module):
    """A feed-forward with its norm: norm(x + outer(activate(inner x)))."""

    def __init__(self, width: int, feed_forward: choices.PlainFeedForward, norm: choices.BottleneckNorm) -> None:
        super().__init__()
        inner = feed_forward.inner or 4 * width
        self.inner = nn.Linear(width, inner, bias=feed_forward.biases)
        self.outer = nn.Linear(inner, width, bias=feed_forward.biases)
        self.norm = _norm(norm, width)
        self.activation = feed_forward.activation

    def forward(self, x: Tensor) -> Tensor:
        """(…, W) to (…, W)."""
        output: Tensor = self.norm(self.outer(activate(self.inner(x), self.activation)) + x)
        return output


class MobileLayer(nn.Module):
    """Into the bottleneck, attention, feed-forwards one after another, and out again, around which the layer's input is added.

    Parameters, W the width of the bottleneck: `enter.*` (W, D) with `enter_norm.*`; with `reads: shared` `shared.*` and
    `shared_norm.*`, of which queries and keys are made; `attention.*`, `attention_norm.*`, `feed_forwards.n.*`, `leave.*` (D, W),
    `leave_norm.*`.
    """

    means: ClassVar[Mapping[str, nn.Module]] = MappingProxyType({})  # over the depth: it has none

    def __init__(
        self, *, width: int, bottleneck: choices.Bottleneck, heads: int, feed_forward: choices.PlainFeedForward,
        feed_forwards: int,
        norm: choices.BottleneckNorm, attention_dropout: Dropout, dropout: Dropout,
    ) -> None:
        super().__init__()
        inside, self.reads = bottleneck.width, bottleneck.reads
        self.enter, self.enter_norm = nn.Linear(width, inside), _norm(norm, inside)
        if self.reads == "shared":
            self.shared, self.shared_norm = nn.Linear(width, inside), _norm(norm, inside)
        projections = SplitProjections(
            reads=width if self.reads == "input" else inside, value_reads=inside if self.reads == "layer" else width
        )
        self.attention = Attention(width=inside, heads=heads, dropout=attention_dropout, projections=projections)
        self.attention_norm = _norm(norm, inside)
        self.feed_forwards: Sequence[ResidualFeedForward] = nn.ModuleList(  # type: ignore[assignment]
            ResidualFeedForward(inside, feed_forward, norm) for _ in range(feed_forwards)
        )
        self.leave, self.leave_norm, self.dropout = nn.Linear(inside, width), _norm(norm, width), dropout

    def forward(self, x: Tensor, inputs: AttentionInputs, across: AttentionInputs | None = None) -> Tensor:
        """(B, L, D) to (B, L, D)."""
        inside = self.enter_norm(self.enter(x))
        asking = inside if self.reads == "layer" else x
        if self.reads == "shared":
            asking = self.shared_norm(self.shared(x))
        attention = self.attention
        projected = [*attention.query_key(asking).chunk(2, dim=-1), attention.value(inside if self.reads == "layer" else x)]
        query, key, value = (
            projection.unflatten(-1, (attention.heads, attention.head_width)).transpose(1, 2) for projection in projected
        )
        seen = attention(x, replace(inputs, projected=QueryKeyValue(query, key, value, NONE)))
        inside = self.attention_norm(seen + inside)
        for part in self.feed_forwards:
            inside = part(inside)
        output: Tensor = self.leave_norm(self.dropout(self.leave(inside)) + x)
        return output


@register("network", "mobile_transformer")
class MobileTransformer(Network):
    """MobileBERT (Sun et al., 2020, §3): layers of width `width` with a `bottleneck` inside, and several feed-forward blocks.

    `feed_forwards` of them follow one another, each with `inner` numbers, four times the width of the bottleneck if not given.
    The published network has gains and offsets in place of norms (`norm: {kind: none}`). Its teacher IB-BERT has layer norm, one
    feed-forward and a bottleneck that is wider than the layers: `bottleneck: {width: 1024, reads: input}`. It only reads in the
    open order.

    >>> network = MobileTransformer(layers=1, width=8, heads=2, vocab_size=10, clock=Clock()).eval()
    >>> tuple(network(want=frozenset({"hidden"}), tokens=torch.zeros(2, 5, dtype=torch.long))["hidden"].shape)
    (2, 5, 8)
    """

    stack = "attention"
    sizes = named_sizes(
        "layers width bottleneck.width heads", tiny=(2, 128, 64, 2), mini=(4, 192, 64, 2), small=(6, 256, 64, 4),
        medium=(12, 384, 96, 4), base=(24, 512, 128, 4),
    )
    gives: Mapping[str, StateKind] = MappingProxyType({**reading_kinds("order"), **attention_kinds("order")})

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        bottleneck: choices.Bottleneck = choices.Bottleneck(),
        feed_forward: Annotated[choices.PlainFeedForward, PartMark("feed_forward")] = choices.PlainFeedForward(activation="relu"),
        feed_forwards: Count = 4,
        norm: choices.BottleneckNorm = choices.BottleneckNorm(),
        positions: Annotated[choices.LearnedPositions, PartMark("positions")] = choices.LearnedPositions(),
        segments: Natural = 0,
        embedding: choices.TrigramTable = choices.TrigramTable(),
        dropout: BelowOne | choices.Dropouts = 0.0,
        initial: choices.Initials = choices.Truncated(),
        vocab_size: Given[int], clock: Given[Clock],
    ) -> None:
        super().__init__()
        if bottleneck.width % heads:
            raise RecipeError(f"mobile_transformer: a bottleneck of {bottleneck.width} is not a multiple of {heads} heads.")
        if isinstance(initial, choices.Normal | choices.Truncated) and initial.offsets:
            raise RecipeError("mobile_transformer: initial.offsets: its attention reads two states; leave it out.")
        self.width, self.vocab_size, self.heads, self.clock = width, vocab_size, heads, clock
        self.max_length, self.initial = positions.max_length, initial
        rates = choices.dropouts(dropout)
        self.embeddings = TrigramEmbeddings(
            vocab_size=vocab_size, width=width, table=embedding, max_length=positions.max_length, segments=segments, norm=norm
        )
        self.embedding_dropout = Dropout(rates.hidden, clock)
        self.layer_inputs = LayerInputs(layers=layers, head_width=bottleneck.width // heads, positions=positions, band=None)
        self.layers: Sequence[MobileLayer] = nn.ModuleList(  # type: ignore[assignment]
            MobileLayer(
                width=width, bottleneck=bottleneck, heads=heads, feed_forward=feed_forward, feed_forwards=feed_forwards,
                norm=norm, attention_dropout=Dropout(rates.of_attention, clock), dropout=Dropout(rates.hidden, clock),
            )
            for _ in range(layers)
        )
        self.around = nn.ModuleList()  # objects that the stack calls in every pass
        self.takes = frozenset({"tokens", "order", "block", "summaries", "vectors", "position_ids"})
        self.takes |= {"segments"} if segments else set()
        self.reset_parameters()
        name_dropouts(self)

    @property
    def layer_widths(self) -> list[int]:
        """The widths of the layers' outputs, which adapters read."""
        return [self.width] * len(self.layers)

    def reset_parameters(self) -> None:
        """Draw every weight from torch's generator; gains are one and offsets zero."""
        initialise(self, self.initial)

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, segments: Tensor | None = None, position_ids: Tensor | None = None,
        order: Tensor | str = "open", block: Tensor | None = None, summaries: Tensor | None = None,
        vectors: Tensor | None = None, gates: Tensor | None = None, layer_hooks: Sequence[LayerHook] = (),
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L): `hidden` (B, L, D), `summary` (E, D), `layers` (N+1, B, L, D), and of attention
        `scores` and `attention` (N, B, H, L, L), `queries`, `keys` and `values` (N, B, H, L, W).

        `gates`, (N, H) or (N, B, H), multiply the output of each head. The objects `around` are called around every layer.
        """
        require_order("mobile_transformer", order, "open")
        record = AttentionRecord.of(want)
        inputs = self.layer_inputs(tokens, position_ids=position_ids, order=order, block=block, past=0)
        x = to_residual_dtype(self.embedding_dropout(self.embeddings(tokens, position_ids, segments, block, vectors)))
        stack = Stack(self.layers, each_layer(inputs, gates=gates, record=record), [*self.around, *layer_hooks])  # type: ignore[arg-type]
        passed = stack.run(x)
        states = reading_states(want, passed[-1], passed, summaries)
        return states if record is None else {**states, **record.stacked()}
