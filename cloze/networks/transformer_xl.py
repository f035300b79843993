"""Transformer-XL: a causal Transformer over segments of one stream, with a memory of the segments before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne, Depth, NonNegative, Positive, Width
from cloze.errors import RecipeError
from cloze.networks import choices
from cloze.networks.blocks.adaptive import AdaptiveEmbedding
from cloze.networks.blocks.around import Around
from cloze.networks.blocks.attention import Attention, AttentionInputs, Record
from cloze.networks.blocks.distances import Distances, StepDropout, distance_maps, distances_down, sinusoids
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.feed_forward import FeedForward
from cloze.networks.blocks.layer import Layer
from cloze.networks.blocks.memory import recall, remember, with_memory
from cloze.networks.blocks.norm import Post
from cloze.networks.blocks.stack import Cache, Stack, each_layer
from cloze.networks.blocks.visibility import Visibility
from cloze.networks.clock import Clock
from cloze.networks.cost import CONSTANT, TRAINED, Shown, maps, shown
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


@register("network", "transformer_xl")
class TransformerXL(Network):
    """Segment recurrence and relative attention (Dai et al., 2019, §3).

    Embeddings are scaled by √width; there are no absolute positions. Every layer reads [memory; row]: of its own inputs, the
    last `memory.size` tokens of the lane, without gradient; those that the next row repeats (`memory.reuse`: 1 where every
    token of a stream is to be predicted, see `streams`) are not remembered. `clamp` and `same_length` are for evaluation with a
    longer memory. u and v are shared by the layers unless `untie`. Weights, and the gains of norms around one, are drawn with
    the standard deviation `init_std`, as in the authors' code. Parameters: `embeddings.*`, `content_bias`, `distance_bias`,
    `layers.*`.

    A lane begins without memory, as in the authors' PyTorch code; their TensorFlow code begins with zeros, which are attended to.

    >>> network = TransformerXL(layers=1, width=8, heads=2, memory=choices.EvenMemory(size=4), vocab_size=10,
        clock=Clock()).eval()
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
        self,
        *,
        layers: Depth,
        width: Width,
        heads: Width,
        head_width: Width | None = None,
        feed_forward: Annotated[choices.FeedForward, PartMark("feed_forward")] = choices.FeedForward(activation="relu"),
        positions: Annotated[choices.RelativeDistances, PartMark("positions")] = choices.RelativeDistances(),
        memory: choices.EvenMemory | None = None,
        embedding: choices.AdaptiveTable = choices.AdaptiveTable(),
        norm_epsilon: Positive = 1e-5,
        dropout: BelowOne | choices.Dropouts = choices.Dropouts(hidden=0.1, attention=0.0),
        init_std: NonNegative = 0.02,
        vocab_size: Given[int],
        clock: Given[Clock],
    ) -> None:
        super().__init__()
        if head_width is None and width % heads:
            raise RecipeError(f"transformer_xl: width {width} is not a multiple of heads {heads}; write head_width.")
        rates = dropout if isinstance(dropout, choices.Dropouts) else choices.Dropouts(hidden=dropout)
        self.width, self.inner = width, feed_forward.inner or 4 * width
        self.head_width = head_width or width // heads
        self.memory, self.reuse = (memory.size, memory.reuse) if memory is not None else (0, 0)
        self.same_length = memory is not None and memory.same_length
        self.clamp, self.init_std, untie = positions.clamp, init_std, positions.untie
        self.carries = self.memory > 0
        self.embeddings = AdaptiveEmbedding(
            vocab_size=vocab_size, width=width, embedding_width=embedding.width, cutoffs=embedding.cutoffs,
            divide=embedding.divide,
        )
        own = (heads, self.head_width)
        self.content_bias = None if untie else nn.Parameter(torch.zeros(own))
        self.distance_bias = None if untie else nn.Parameter(torch.zeros(own))
        self.layers: Sequence[Layer] = nn.ModuleList(  # type: ignore[assignment]
            relative_layer(
                width=width, heads=heads, head_width=self.head_width, norm_epsilon=norm_epsilon, dropout=rates.hidden,
                feed_forward=FeedForward(self.inner, feed_forward.activation, feed_forward.biases),
                attention_dropout=rates.of_attention, segments=False, own_biases=untie, clock=clock,
            )
            for _ in range(layers)
        )
        self.around = nn.ModuleList()  # objects that every pass calls
        self.embedding_dropout = Dropout(rates.hidden, clock)
        self.distance_dropout = StepDropout(rates.hidden, clock)
        self.final_dropout = Dropout(rates.hidden, clock)
        self.takes = frozenset({"tokens", "order", "block", "restarts", "summaries"})
        self.gives = {**reading_kinds("left_to_right"), **attention_kinds("left_to_right")}
        self.reset_parameters()
        name_dropouts(self, EARLIER_NAMES)

    @property
    def tables(self) -> dict[str, Any]:
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
        cache: Cache | None = None, gates: Tensor | None = None, around: Sequence[Around] = (),
    ) -> dict[str, Any]:
        """The wanted states of tokens (B, L): `hidden` (B, L, D), `summary` (E, D), the last token of each row unless
        `summaries` says otherwise, `layers` (N+1, B, L, D), and `carry`, to be given to the rows that follow in the lanes; states
        of attention, `gates` and `around` as in `transformer`, where keys and values begin with the remembered ones.

        `cache`, instead of a carry, remembers all tokens read with it, for generation.
        """
        require_order("transformer_xl", order, "left_to_right")
        length = tokens.shape[1]
        memory = recall(carry, restarts) if cache is None else recall(_cached(cache), None)
        past = 0 if memory is None else memory.states.shape[2]
        x = self.embedding_dropout(self.embeddings(tokens) * math.sqrt(self.width))
        down = distances_down(length, past + length, ahead=False, clamp=self.clamp, device=tokens.device)
        distances = self.distance_dropout(sinusoids(down, self.width)[None])[0].to(x.dtype)
        seen = with_memory(causal(length, block, tokens.device), memory, queries=length)
        if self.same_length:
            assert seen is not None  # the order is causal
            seen = seen & _near(length, past + length, self.memory, tokens.device)
        u, v = self.content_bias, self.distance_bias
        biases = None if u is None or v is None else (u, v)
        record = Record.of(want)
        given = AttentionInputs(Visibility("mask", seen), Distances(distances, length, past + length, biases))
        each = each_layer(
            [given] * len(self.layers), past=None if memory is None else memory.states, gates=gates, record=record
        )
        passed = Stack(self.layers, each, [*self.around, *around]).run(x)
        if cache is not None:
            for number, kept in enumerate(cache.layers):
                kept[:] = [torch.cat([*kept, passed[number][:, None]], dim=2)]
        hidden = self.final_dropout(passed[-1])
        if "summary" in want and summaries is None:
            summaries = last_positions(tokens, block)
        states: dict[str, Any] = reading_states(want, hidden, passed, summaries)
        if "carry" in want and self.carries:
            real = None if block is None else block > 0
            states["carry"] = remember(passed[:-1], real, memory, size=self.memory, reuse=self.reuse)
        return states if record is None else states | record.stacked()

    def flops(self, fields: Mapping[str, Tensor], *, want: frozenset[str], positions: Tensor | None) -> float:
        """Floating-point operations of forward and backward over a full memory."""
        size = shown(fields)
        far = len(distances_down(size.length, self.memory + size.length, ahead=False, clamp=None, device=torch.device("meta")))
        layers = (relative_flops(layer, size, past=self.memory, far=far) for layer in self.layers)
        return sum(layers) + TRAINED * self.embeddings.products(fields["tokens"])


def relative_layer(
    *, width: int, heads: int, head_width: int, feed_forward: FeedForward, norm_epsilon: float, dropout: float,
    attention_dropout: float, segments: bool, own_biases: bool, clock: Clock,
) -> Layer:
    """A layer that reads by distances, with a norm behind both halves and no biases in its attention."""
    learned = distance_maps(width=width, heads=heads, head_width=head_width, segments=segments, own_biases=own_biases)
    attention = Attention(
        width=width, heads=heads, head_width=head_width, dropout=Dropout(attention_dropout, clock), bias=False, learned=learned
    )
    return Layer(
        width=width, attention=attention, feed_forward=feed_forward, place=Post(), dropout=lambda: Dropout(dropout, clock),
        norm=lambda: nn.LayerNorm(width, eps=norm_epsilon), active_dropout=Dropout(dropout, clock),
    )


def relative_flops(
    layer: Layer, size: Shown, *, past: int, far: int, queries: int | None = None, block: int = 0, content: bool = True
) -> float:
    """Floating-point operations of forward and backward for rows that remember `past` tokens and know `far` distances.

    `queries` are those of a second stream, None for none, in rows of `block`; without `content` the layer's own is not run.
    """
    inside, keys = layer.attention.inside, size.length + past
    width, after = layer.attention.out.out_features, maps(layer.attention.out, *layer.feed_forward_maps)
    met = inside * (2 * keys + far)  # scores by content and by distance, and values
    found = TRAINED * size.tokens * (3 * width * inside + (after + met if content else 0))
    found += CONSTANT * (size.rows * past * 2 * width * inside + far * width * inside)
    if queries is not None:
        found += TRAINED * (queries * (width * inside + after) + size.rows * block * met)
    return found


def _cached(cache: Cache) -> dict[str, Tensor] | None:
    """A cache holds the inputs of every layer (B, 1, M, D), as a carry does."""
    return {"states": torch.cat([kept[0] for kept in cache.layers], dim=1)} if cache.length else None


def causal(length: int, block: Tensor | None, device: torch.device) -> Tensor:
    """What stands before or at a token, in its own block: (B or 1, 1, L, L)."""
    seen = torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]
    return seen if block is None else seen & (block[:, :, None] == block[:, None, :])[:, None]


def _near(queries: int, keys: int, most: int, device: torch.device) -> Tensor:
    """The keys at a distance below `most`, (Lq, Lk)."""
    distance = torch.arange(keys - queries, keys, device=device)[:, None] - torch.arange(keys, device=device)
    return distance < most
