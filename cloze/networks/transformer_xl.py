"""Transformer-XL: a causal Transformer over segments of one stream, with a memory of the segments before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne, Depth, NonNegative, Positive, Width
from cloze.errors import RecipeError
from cloze.networks import choices
from cloze.networks.blocks.attention import Attention, AttentionInputs, AttentionRecord
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.feed_forward import FeedForward
from cloze.networks.blocks.hooks import LayerHook, count_hooks
from cloze.networks.blocks.inputs.adaptive import AdaptiveEmbedding
from cloze.networks.blocks.layer import Layer
from cloze.networks.blocks.memory import Memory, recall, remember, with_memory
from cloze.networks.blocks.positions.distances import Distances, StepDropout, distance_maps, distances_down, sinusoids
from cloze.networks.blocks.stack import Cache, Stack, each_layer
from cloze.networks.blocks.visibility import Visibility
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, SequenceSize, is_trained
from cloze.networks.network import (
    Network,
    attention_kinds,
    last_positions,
    named_sizes,
    reading_kinds,
    reading_states,
    require_order,
)
from cloze.registry import Given, PartMark, register

#: What dropouts of relative layers were once called: they draw what they drew.
EARLIER_NAMES = {
    "attention.dropout": "drops.shares", "attention_dropout": "drops.attention", "active_dropout": "drops.activation",
    "inner_dropout": "drops.inner",
}


class RelativeTransformer(Network):
    """What `transformer_xl` and `two_stream` share: layers that read by distances, and a memory of the rows before (Dai et al.,
    2019, §3). `part` is the name of the network in messages."""

    summary_of = "last"

    def __init__(
        self, part: str, *, embeddings: nn.Module, layers: int, width: int, heads: int, head_width: int | None,
        feed_forward: choices.PlainFeedForward, positions: choices.RelativeDistances, memory: choices.SegmentMemory | None,
        segments: bool, norm_epsilon: float, dropout: float | choices.Dropouts, init_std: float, clock: Clock,
    ) -> None:
        super().__init__()
        if head_width is None and width % heads:
            raise RecipeError(f"{part}: width {width} is not a multiple of heads {heads}; write head_width.")
        rates = choices.dropouts(dropout)
        self.width, self.inner, self.head_width = width, feed_forward.inner or 4 * width, head_width or width // heads
        self.memory, self.reuse = (memory.size, memory.reuse) if memory is not None else (0, 0)
        self.clamp, self.init_std, self.carries = positions.clamp, init_std, self.memory > 0
        self.embeddings = embeddings
        shape = (heads, self.head_width)
        self.content_bias = None if positions.untie else nn.Parameter(torch.zeros(shape))
        self.distance_bias = None if positions.untie else nn.Parameter(torch.zeros(shape))
        make_dropout = partial(Dropout, rates.hidden, clock)

        def layer() -> Layer:
            learned = distance_maps(
                width=width, heads=heads, head_width=self.head_width, segments=segments, own_biases=positions.untie
            )
            attention = Attention(
                width=width, heads=heads, head_width=self.head_width, dropout=Dropout(rates.of_attention, clock), bias=False,
                learned=learned,
            )
            return Layer(
                width=width, attention=attention, norm=choices.PostNorm(epsilon=norm_epsilon), dropout=make_dropout,
                feed_forward=FeedForward(self.inner, feed_forward.activation, feed_forward.biases), active_dropout=make_dropout(),
            )

        self.layers: Sequence[Layer] = nn.ModuleList(layer() for _ in range(layers))  # type: ignore[assignment]
        self.around = nn.ModuleList()  # objects that every pass calls
        self.embedding_dropout, self.final_dropout = make_dropout(), make_dropout()
        self.distance_dropout = StepDropout(rates.hidden, clock)

    def _distances(self, length: int, memory: Memory | None, *, ahead: bool, like: Tensor) -> Distances:
        """The relation of rows of this length to [memory; row]."""
        keys = length if memory is None else memory.states.shape[2] + length
        # (R,) distances, then (R, D); dropout takes them as one row, (1, R, D). `shift` makes scores (…, L, M + L) of (…, L, R).
        down = distances_down(length, keys, ahead=ahead, clamp=self.clamp, device=like.device)
        far = self.distance_dropout(sinusoids(down, self.width)[None])[0].to(like.dtype)
        u, v = self.content_bias, self.distance_bias
        return Distances(far, length, keys, None if u is None or v is None else (u, v))

    def _run(
        self, x: Tensor, inputs: AttentionInputs, memory: Memory | None, want: frozenset[str], gates: Tensor | None,
        layer_hooks: Sequence[LayerHook], *, unread: bool = False,
    ) -> tuple[list[Tensor], dict[str, Any]]:
        """What the stack gives, and the wanted states of attention."""
        record = AttentionRecord.of(want)
        past = None if memory is None else memory.states
        inputs_by_layer = each_layer([inputs] * len(self.layers), past=past, gates=gates, record=record)
        passed = Stack(self.layers, inputs_by_layer, [*self.around, *layer_hooks]).run(x, unread=unread and record is None)
        return passed, {} if record is None else record.stacked()

    def _read(
        self, want: frozenset[str], passed: list[Tensor], memory: Memory | None, tokens: Tensor, block: Tensor | None,
        summaries: Tensor | None,
    ) -> dict[str, Any]:
        """Of `hidden`, `layers`, `summary` and `carry` what is wanted."""
        hidden = self.final_dropout(passed[-1]) if want & {"hidden", "summary", "layers"} else passed[-1]
        if "summary" in want and summaries is None:
            summaries = last_positions(tokens, block)
        states: dict[str, Any] = reading_states(want, hidden, passed, summaries)
        if "carry" in want and self.carries:
            real, inputs = None if block is None else block > 0, passed[: len(self.layers)]
            states["carry"] = remember(inputs, real, memory, size=self.memory, reuse=self.reuse)
        return states


@register("network", "transformer_xl")
class TransformerXL(RelativeTransformer):
    """Segment recurrence and relative attention (Dai et al., 2019, §3).

    Embeddings are scaled by √width; there are no absolute positions. Every layer reads [memory; row]: of its own inputs, the
    last `memory.size` tokens of the lane, without gradient; those that the next row repeats (`memory.reuse`: 1 where every
    token of a stream is to be predicted, see `streams`) are not remembered. `clamp` and `same_length` are for evaluation with a
    longer memory. u and v are shared by the layers unless `untie`. Weights, and the gains of norms around one, are drawn with
    the standard deviation `init_std`, as in the authors' code. Parameters: `embeddings.*`, `content_bias`, `distance_bias`,
    `layers.*`.

    A lane begins without memory, as in the authors' PyTorch code; their TensorFlow code begins with zeros, which are attended to.

    >>> memory = choices.EvenMemory(size=4)
    >>> network = TransformerXL(layers=1, width=8, heads=2, memory=memory, vocab_size=10, clock=Clock()).eval()
    >>> states = network(want=frozenset({"hidden", "carry"}), tokens=torch.zeros(2, 5, dtype=torch.long))
    >>> tuple(states["hidden"].shape), tuple(states["carry"]["states"].shape)
    ((2, 5, 8), (2, 1, 4, 8))
    """

    stack = "attention"
    sizes = named_sizes(
        "layers width heads", tiny=(2, 128, 2), mini=(4, 256, 4), small=(4, 512, 8), medium=(8, 512, 8), base=(16, 410, 10),
        large=(18, 1024, 16),
    )

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        head_width: Width | None = None,
        feed_forward: Annotated[choices.PlainFeedForward, PartMark("feed_forward")] = choices.PlainFeedForward(activation="relu"),
        positions: Annotated[choices.RelativeDistances, PartMark("positions")] = choices.RelativeDistances(),
        memory: choices.EvenMemory | None = None,
        embedding: choices.AdaptiveTable = choices.AdaptiveTable(),
        norm_epsilon: Positive = 1e-5,
        dropout: BelowOne | choices.Dropouts = choices.Dropouts(hidden=0.1, attention=0.0),
        init_std: NonNegative = 0.02,
        vocab_size: Given[int], clock: Given[Clock],
    ) -> None:
        table = AdaptiveEmbedding(
            vocab_size=vocab_size, width=width, embedding_width=embedding.width, cutoffs=embedding.cutoffs,
            divide=embedding.divide,
        )
        super().__init__(
            "transformer_xl", embeddings=table, layers=layers, width=width, heads=heads, head_width=head_width,
            feed_forward=feed_forward, positions=positions, memory=memory, segments=False, norm_epsilon=norm_epsilon,
            dropout=dropout, init_std=init_std, clock=clock,
        )
        self.same_length = memory is not None and memory.same_length
        self.takes = frozenset({"tokens", "order", "block", "restarts", "summaries"})
        self.gives = {**reading_kinds("left_to_right"), **attention_kinds("left_to_right")}
        self.reset_parameters()
        name_dropouts(self, EARLIER_NAMES)

    @property
    def token_tables(self) -> dict[str, Any]:
        """The token table, or where it is adaptive the module of its parts, for heads that tie to it."""
        return {"tokens": self.embeddings.single or self.embeddings}

    def reset_parameters(self) -> None:
        """Redraw every weight from torch's generator; gains are drawn around one, offsets are zero."""
        for name, parameter in self.named_parameters():
            if name.endswith("_norm.weight"):
                nn.init.normal_(parameter, mean=1.0, std=self.init_std)
            elif name.endswith(".bias"):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=0.01 if "embeddings.projections" in name else self.init_std)

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, order: Tensor | str = "left_to_right", block: Tensor | None = None,
        restarts: Tensor | None = None, summaries: Tensor | None = None, carry: Mapping[str, Tensor] | None = None,
        cache: Cache | None = None, gates: Tensor | None = None, layer_hooks: Sequence[LayerHook] = (),
    ) -> dict[str, Any]:
        """The wanted states of tokens (B, L): `hidden` (B, L, D), `summary` (E, D), the last token of each row unless
        `summaries` says otherwise, `layers` (N+1, B, L, D), and `carry`, to be given to the rows that follow in the lanes; states
        of attention, `gates` and `around` as in `transformer`, where keys and values begin with the remembered ones.

        `cache`, instead of a carry, remembers all tokens read with it, for generation.
        """
        require_order("transformer_xl", order, "left_to_right")
        length = tokens.shape[1]
        # Every layer reads its own inputs at the M remembered tokens, (B, M, D), as keys and values in front of the row.
        memory = recall(carry, restarts) if cache is None else recall(_cached(cache), None)
        x = self.embedding_dropout(self.embeddings(tokens) * math.sqrt(self.width))
        relation = self._distances(length, memory, ahead=False, like=x)
        seen = with_memory(causal(length, block, tokens.device), memory, queries=length)  # (B or 1, 1, L, M + L)
        if self.same_length:
            assert seen is not None  # the order is causal
            seen = seen & _near(length, relation.keys, self.memory, tokens.device)
        passed, states = self._run(x, AttentionInputs(Visibility("mask", seen), relation), memory, want, gates, layer_hooks)
        if cache is not None:
            for number, layer_cache in enumerate(cache.layers):
                layer_cache[:] = [torch.cat([*layer_cache, passed[number][:, None]], dim=2)]  # (B, 1, M + L, D)
        return states | self._read(want, passed, memory, tokens, block, summaries)

    def count_layers(self, counted: Operations, size: SequenceSize) -> None:
        """The layers over a full memory."""
        device = torch.device("meta")
        far = len(distances_down(size.length, self.memory + size.length, ahead=False, clamp=None, device=device))
        for number, layer in enumerate(self.layers):
            count_relative(counted, layer, size, past=self.memory, far=far)
            count_hooks(counted, self.around, number, size)


def count_relative(
    counted: Operations, layer: Layer, size: SequenceSize, *, past: int, far: int, queries: int | None = None, block: int = 0,
    content: bool = True,
) -> None:
    """Count the products of a layer for rows that remember `past` tokens and know `far` distances.

    `queries` are those of a second stream, None for none, in rows of `block`; without `content` the layer's own is not run.
    """
    attention = layer.attention
    inside, keys = attention.inner_width, size.length + past
    (projections,), distances = attention.projection_maps, attention.get_submodule("distances")
    counted.add(size, projections)
    remembered = size.rows * past * 2 * inside * projections.in_features
    counted.add_weight_products(remembered, trained=is_trained(projections), needs_grad=False)
    branch = counted.branch(needs_grad=False)
    branch.add(far, distances)
    counted.add_branches(branch)
    second = counted.branch()
    ways = [(counted, size, size.tokens)] if content else []
    if queries is not None:
        second.add_weight_products(queries * inside * projections.in_features, trained=is_trained(projections))
        ways.append((second, SequenceSize(size.rows, queries, size.length), size.rows * block))
    for way, read, cells in ways:
        way.add_row_products(2 * cells * inside * keys)  # scores by content, and values
        (way.add_row_products if is_trained(distances) else way.add_frozen_products)(cells * inside * far)  # scores by distance
        way.add(read, attention.out, layer.place_of("attention"))
        layer.count_feed_forward(way, read)
    if queries is not None:
        counted.add_branches(second)


def _cached(cache: Cache) -> dict[str, Tensor] | None:
    """A cache holds the inputs of every layer (B, 1, M, D), as a carry does."""
    return {"states": torch.cat([layer_cache[0] for layer_cache in cache.layers], dim=1)} if cache.length else None


def causal(length: int, block: Tensor | None, device: torch.device) -> Tensor:
    """What stands before or at a token, in its own block: (B or 1, 1, L, L)."""
    seen = torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]
    return seen if block is None else seen & (block[:, :, None] == block[:, None, :])[:, None]


def _near(queries: int, keys: int, most: int, device: torch.device) -> Tensor:
    """The keys at a distance below `most`, (Lq, Lk)."""
    distance = torch.arange(keys - queries, keys, device=device)[:, None] - torch.arange(keys, device=device)
    return distance < most
