"""The encoder-decoder of T5, BART and MASS: one network, told apart by norms, positions and scales."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne, Depth, Width
from cloze.networks import choices
from cloze.networks.blocks.attention import Attention, AttentionInputs, AttentionRecord
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.feed_forward import feed_forward_of
from cloze.networks.blocks.hooks import count_hooks
from cloze.networks.blocks.initial import attend_to_offsets, draw, initialise, initialise_apart
from cloze.networks.blocks.inputs.embeddings import Embeddings, add_positions, position_table, to_residual_dtype
from cloze.networks.blocks.layer import Layer
from cloze.networks.blocks.norm import make_norm
from cloze.networks.blocks.positions.buckets import Bias, Buckets
from cloze.networks.blocks.positions.relation import NONE, Relation
from cloze.networks.blocks.positions.sinusoid import FixedTable
from cloze.networks.blocks.projections import Across, StackedProjections
from cloze.networks.blocks.recurrence.locked import LockedDropout
from cloze.networks.blocks.selected import Selected
from cloze.networks.blocks.stack import Cache, Stack, each_layer
from cloze.networks.blocks.visibility import AnyOrder, Visibility, visibility
from cloze.networks.clock import Clock
from cloze.networks.cost import EncodedSource, Operations, SequenceSize, is_trained, size_of
from cloze.networks.fast.switch import takes_device
from cloze.networks.network import (
    Network,
    StateKind,
    TokenSequence,
    attention_kinds,
    last_positions,
    named_sizes,
    reading_kinds,
)
from cloze.registry import Given, PartMark, register

PositionKinds = Annotated[
    choices.LearnedPositions | choices.Sinusoid | choices.DistanceBuckets | choices.NoPositions, PartMark("positions")
]
Initials = Annotated[choices.Truncated | choices.Normal | choices.T5Initial, PartMark("initial")]


class SequenceCache(Cache):
    """The decoder's keys and values so far, with the encoder's states and what the decoder made of them."""

    def __init__(self, layers: int) -> None:
        super().__init__(layers)
        self.source: list[list[Tensor]] = [[] for _ in range(layers)]
        self.encoded: Tensor | None = None


class Coder(nn.Module):
    """An encoder or a decoder: layers, and what stands before the first and behind the last: positions, norms, dropout.

    `norms` and `dropouts` are those of the embeddings and those behind the last layer. `buckets` are the same for all layers, or
    a list with those of each.
    """

    def __init__(
        self, layers: Sequence[Layer], *, positions: nn.Embedding | FixedTable | None, buckets: Buckets | nn.ModuleList | None,
        norms: tuple[nn.Module | None, nn.Module | None], dropouts: tuple[Dropout, Dropout],
    ) -> None:
        super().__init__()
        self.positions, self.buckets, (self.embedding_norm, self.norm) = positions, buckets, norms
        self.layers: Sequence[Layer] = nn.ModuleList(layers)  # type: ignore[assignment]
        self.embedding_dropout, self.final_dropout = dropouts
        self.around = nn.ModuleList()  # objects that every pass calls

    def forward(
        self, vectors: Tensor, order: AnyOrder, block: Tensor | None, position_ids: Tensor | None, *, want: frozenset[str],
        prefix: str = "", cache: SequenceCache | None = None, source: AttentionInputs | None = None,
        gates: tuple[Tensor | None, Tensor | None], further: AttentionInputs | None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Token vectors (B, L, D) to states (B, L, D), and of `layers` and the states of attention what is wanted.

        `source`: what attention to another sequence is given. `gates` are those of both attentions. `prefix` stands before the
        names of the states of attention to the own sequence. `further`: see `AttentionInputs`.
        """
        past, length = (0 if cache is None else cache.length), vectors.shape[1]
        x = add_positions(vectors, self.positions, position_ids, past)
        x = self.embedding_dropout(to_residual_dtype(x if self.embedding_norm is None else self.embedding_norm(x)))
        seen = visibility(order, block, length=length, past=past, device=x.device)
        rows, record, crossing = _real(block, x, cache), AttentionRecord.of(want, prefix), None
        caches, sources = (None, None) if cache is None else (cache.layers, cache.source)
        number, across = len(self.layers), None
        relations = self._relations(length, past)
        attention_inputs = [AttentionInputs(seen, relation, rows=rows, further=further) for relation in relations]
        inputs_by_layer = each_layer(attention_inputs, caches=caches, gates=gates[0], record=record)
        if source is not None:
            crossing = AttentionRecord.of(want, "crossing_")
            inputs = replace(source, rows=rows, further=further)
            across = each_layer([inputs] * number, caches=sources, gates=gates[1], record=crossing)
        # Where padding is left out, the layers pass on the M real tokens, (M, D), and (B, L, D) is restored behind them.
        passed = Stack(self.layers, inputs_by_layer, [*self.around], across).run(x if rows is None else rows.take(x))
        if rows is not None:
            passed = [rows.put_back(states) for states in (passed if f"{prefix}layers" in want else passed[-1:])]
        hidden = passed[-1] if self.norm is None else self.final_dropout(self.norm(passed[-1]))
        states = {} if record is None else record.stacked(prefix)
        states |= {} if crossing is None else crossing.stacked("crossing_")
        if f"{prefix}layers" in want:
            states[f"{prefix}layers"] = torch.stack([*passed[:-1], hidden])
        return hidden, states

    def _relations(self, length: int, past: int) -> Sequence[Relation]:
        """What joins the scores of each layer."""
        number = len(self.layers)
        if isinstance(self.buckets, nn.ModuleList):
            return [Bias(buckets(length, past)) for buckets in self.buckets]
        return [NONE if self.buckets is None else Bias(self.buckets(length, past))] * number


@register("network", "encoder_decoder")
class EncoderDecoder(Network):
    """An encoder over `tokens`, a decoder over the view `decoder` that reads it (Vaswani et al., 2017, §3).

    BART (Lewis et al., 2020, §2): norms behind, learned positions. T5 (Raffel et al., 2020, §2.1): `norm: {pre: {kind: rms}}`,
    `positions: buckets`, no biases, scores not scaled, `initial: t5`; the feed-forward of v1.1 is gated. MASS (Song et al.,
    2019): as BART with scaled embeddings, or with further inputs (`language`), `crossing` and `decoder.position_ids`. Token table
    and further tables are shared by both stacks. The decoder runs from left to right; `order` is the encoder's. Further ids of
    the decoder are those of the row's first token; the row's first token can never be hidden by `crossing`, so that there is
    always one to read. A final norm is followed by dropout as in T5.

    >>> network = EncoderDecoder(layers=1, width=8, heads=2, vocab_size=10, clock=Clock()).eval()
    >>> source, target = torch.zeros(2, 5, dtype=torch.long), TokenSequence(torch.zeros(2, 3, dtype=torch.long))
    >>> tuple(network(want=frozenset({"decoder_hidden"}), tokens=source, decoder=target)["decoder_hidden"].shape)
    (2, 3, 8)
    """

    stack = "attention"
    summary_of = "last"
    summarises_decoder = True
    writes = "decoder_hidden"
    sees: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "hidden": "every token of the encoder sees every other",
            "decoder_hidden": "every token of the decoder sees the encoder's, itself and the tokens to its left",
        }
    )
    sizes = named_sizes(
        "layers width heads", tiny=(2, 128, 2), mini=(4, 256, 4), small=(6, 512, 8), base=(12, 768, 12), large=(24, 1024, 16),
    )

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        decoder_layers: Depth | None = None,
        head_width: Width | None = None,
        attention: choices.ScaledAttention = choices.ScaledAttention(),
        feed_forward: choices.FeedForwards = choices.PlainFeedForward(),
        norm: choices.Norms = choices.PostNorm(),
        positions: PositionKinds = choices.LearnedPositions(),
        embedding: choices.SharedTable = choices.SharedTable(),
        dropout: BelowOne | choices.SequenceDropouts = 0.1,
        initial: Initials = choices.Truncated(),
        vocab_size: Given[int], clock: Given[Clock],
    ) -> None:
        super().__init__()
        self.width, self.heads, self.inner = width, heads, feed_forward.inner or 4 * width
        self.head_width = head_width or width // heads
        if head_width is None and width % heads:
            raise ValueError(f"width {width} is not a multiple of heads {heads}")
        self.max_length = positions.max_length if isinstance(positions, choices.LearnedPositions | choices.Sinusoid) else None
        self.clock, self.initial, self.inputs = clock, initial, embedding.inputs or {}
        rates = dropout if isinstance(dropout, choices.SequenceDropouts) else choices.SequenceDropouts(hidden=dropout)
        scale = math.sqrt(width) if embedding.scaled else 1.0
        self.embeddings = Embeddings(vocab_size=vocab_size, width=width, inputs=self.inputs, scale=scale)
        kind = LockedDropout if rates.mask == "row" else Dropout
        feed = feed_forward_of(feed_forward, self.inner, norm.epsilon, stacked=False)
        hidden_dropout, make = partial(kind, rates.hidden, clock), partial(make_norm, norm.kind, width, norm.epsilon)

        def attending(projections: StackedProjections | Across) -> Attention:
            return Attention(
                width=width, heads=heads, head_width=self.head_width, projections=projections, bias=attention.biases,
                scale=None if attention.scaled else 1.0, dropout=kind(rates.of_attention, clock),
            )

        def stack(number: int, across: bool) -> Coder:
            stacked = [
                Layer(
                    width=width, norm=norm, dropout=hidden_dropout, active_dropout=kind(rates.inner, clock), number=layer,
                    attention=attending(StackedProjections()), crossing=attending(Across()) if across else None,
                    feed_forward=feed,
                )
                for layer in range(number)
            ]
            table, buckets = position_table(positions, width), None
            if isinstance(positions, choices.DistanceBuckets):
                buckets = _buckets(positions, heads=heads, both=not across, layers=number)
            norms = make() if norm.embedding else None, make() if norm.final else None
            around = hidden_dropout(), kind(rates.of_final, clock)
            return Coder(stacked, positions=table, buckets=buckets, norms=norms, dropouts=around)

        self.encoder = stack(layers, across=False)
        self.decoder = stack(layers if decoder_layers is None else decoder_layers, across=True)
        optional = {"order", "block", "crossing", "vectors", "decoder.tokens", "decoder.block"}
        optional |= {"position_ids", "decoder.position_ids", "visible"} if position_table(positions, width) is not None else set()
        optional |= {f"inputs/{name}" for name in self.inputs}
        self.takes = self.needs | optional
        self.gives = {
            **reading_kinds("order"), "summary": StateKind("B D", "order"), "decoder_hidden": StateKind("B T D", "left_to_right"),
            "decoder_layers": StateKind("S B T D", "left_to_right"),
            **attention_kinds("order"), **attention_kinds("left_to_right", "decoder_"), **attention_kinds("order", "crossing_"),
        }
        self.reset_parameters()
        name_dropouts(self)

    @property
    def encoder_and_decoder(self) -> tuple[Coder, Coder]:
        """The encoder and the decoder."""
        return self.encoder, self.decoder

    def depth_groups(self) -> list[nn.Module]:
        """Tables first, then the encoder's layers and the decoder's."""
        return [self.embeddings, *self.encoder.layers, *self.decoder.layers]

    def finish(self, x: Tensor) -> Tensor:
        """The final norm of the decoder's x (…, D), where there is one."""
        return x if self.decoder.norm is None else self.decoder.norm(x)

    def cache(self) -> SequenceCache:
        return SequenceCache(len(self.decoder.layers))

    @property
    def layer_state_count(self) -> int:
        """The words and the layers of the encoder."""
        return 1 + len(self.encoder.layers)

    def reset_parameters(self) -> None:
        """Redraw every weight from torch's generator; gains are one, biases zero."""
        if isinstance(self.initial, choices.T5Initial):
            initialise(self, choices.Normal())
            initialise_t5(self)
            return
        initialise(self, self.initial)
        inward = [[_inward(layer) for layer in coder.layers] for coder in self.encoder_and_decoder]
        initialise_apart(self.initial, [coder.positions for coder in self.encoder_and_decoder], inward)
        tables = [
            self.embeddings.tokens.weight * self.embeddings.scale,
            *(table.weight for table in self.embeddings.inputs.values()),
        ]
        attend_to_offsets(
            self.initial.offsets, self.encoder.positions, tables, self.encoder.layers,
            normed=self.encoder.embedding_norm is not None,
        )

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, decoder: TokenSequence | None = None, order: AnyOrder = "open",
        block: Tensor | None = None, position_ids: Tensor | None = None, crossing: Tensor | None = None,
        inputs: Mapping[str, Tensor] | None = None, vectors: Tensor | None = None,
        cache: SequenceCache | None = None,
        gates: Tensor | None = None, decoder_gates: Tensor | None = None, crossing_gates: Tensor | None = None,
        further: AttentionInputs | None = None,
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L) and those of the `decoder`, (B, T).

        `hidden` (B, L, D) is the encoder's, `layers` (N+1, B, L, D) the words and its layers, `decoder_hidden` (B, T, D) the
        decoder's (at padding all mean nothing), `decoder_layers` (N+1, B, T, D) its tokens and its layers, `summary` (B, D) the
        decoder's at its last token; without `decoder` it reads the encoder's tokens with the last one moved to the front (BART
        §3.1). The states of attention are those of `transformer`, of the decoder with `decoder_` before their names, of its
        attention to the encoder with `crossing_`; so are the `gates` of heads. `further` is for attentions that a change has
        added to the layers (`fuse`).

        With `cache` the encoder runs once and the decoder's tokens continue those of earlier calls.
        """
        encoded = cache.encoded if cache is not None else None
        states: dict[str, Tensor] = {}
        if encoded is None:
            embedded = self.embeddings(tokens, vectors=vectors, inputs=inputs)
            encoded, states = self.encoder(embedded, order, block, position_ids, want=want, gates=(gates, None), further=further)
            if cache is not None:
                cache.encoded = encoded
        if "hidden" in want:
            states["hidden"] = encoded
        if not _reads_decoder(want):
            return states
        read = TokenSequence(rolled(tokens, block), block=block) if decoder is None else decoder
        kinds = None if inputs is None else {name: ids[:, :1] for name, ids in inputs.items()}  # (B, 1), for all T tokens
        # What the decoder reads: (B, L, D), or the states (M, D) of the encoder's real tokens.
        rows = _real(block, encoded, cache)
        source = AttentionInputs(
            _readable(block, crossing, encoded), source=encoded if rows is None else rows.take(encoded), source_rows=rows
        )
        hidden, seen = self.decoder(
            self.embeddings(read.tokens, inputs=kinds), "left_to_right", read.block, read.position_ids, want=want,
            prefix="decoder_", cache=cache, source=source, gates=(decoder_gates, crossing_gates), further=further,
        )
        states |= seen
        if "decoder_hidden" in want:
            states["decoder_hidden"] = hidden
        if "summary" in want:
            states["summary"] = self.summarise(hidden, tokens=read.tokens, block=read.block, summaries=None)  # (B, D)
        return states

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The encoder's tokens, then the decoder's where a state of it is wanted."""
        branch = counted.branch(needs_grad=is_trained(self.embeddings))
        counted.pass_through(self.embeddings)
        _count_stack(counted, self.encoder, size)
        if _reads_decoder(counted.want):
            target = size_of(counted.fields, "decoder.") if "decoder.tokens" in counted.fields else size
            _count_stack(branch, self.decoder, target, counted.source(size))
            counted.add_branches(branch)


def _buckets(positions: choices.DistanceBuckets, *, heads: int, both: bool, layers: int) -> Buckets | nn.ModuleList:
    """The buckets of a stack: one table, or one for each layer."""
    make = partial(Buckets, heads=heads, both=both, buckets=positions.buckets, farthest=positions.farthest)
    return make() if positions.shared else nn.ModuleList(make() for _ in range(layers))


def _reads_decoder(want: frozenset[str]) -> bool:
    """Whether some of the wanted states are the decoder's."""
    return any(name == "summary" or name.startswith(("decoder_", "crossing_")) for name in want)


def _count_stack(counted: Operations, stack: Any, size: SequenceSize, source: EncodedSource | None = None) -> None:
    for number, layer in enumerate(stack.layers):
        layer.count_operations(counted, size, source)
        count_hooks(counted, stack.around, number, size)


def _inward(layer: Layer) -> list[Tensor]:
    """The weights of the maps whose output is added to the residual stream."""
    attentions = [layer.attention, *([] if layer.crossing is None else [layer.crossing])]
    return [*(attention.out.weight for attention in attentions), layer.outer.weight]


def initialise_t5(network: EncoderDecoder) -> None:
    """The law of mesh_tensorflow: the deviation of the token table is 1, that of every map inputs^-½, of queries less.

    Scores are not scaled, so queries begin with (width · head width)^-½ (`attention.py`). The maps of the feed-forward are cut at
    two deviations (`layers.py`, `VarianceScalingInitializer`), the others are not; the table of the buckets is uniform in
    ±√(6 / (heads + buckets)), the default of `mtf.get_variable`.
    """
    inside = network.heads * network.head_width
    narrow, inner = network.width**-0.5, network.inner**-0.5
    draw(network.embeddings.tokens.weight, "normal", 1.0)
    for stack in network.encoder_and_decoder:
        for buckets in () if stack.buckets is None else stack.buckets.modules():
            if isinstance(buckets, Buckets):
                nn.init.xavier_uniform_(buckets.table.weight)
        for layer in stack.layers:
            for attention, reads, asks in (
                (layer.attention, "projections", "projections"), (layer.crossing, "memory", "query"),
            ):
                if attention is None:
                    continue
                draw(attention.get_parameter(f"{reads}.weight"), "normal", narrow)
                draw(attention.get_parameter(f"{asks}.weight")[:inside], "normal", (network.width * network.head_width) ** -0.5)
                draw(attention.out.weight, "normal", inside**-0.5)
            *reading, writing = layer.feed_forward_maps
            for linear in reading:
                draw(linear.weight, "truncated", narrow)
            draw(writing.weight, "truncated", inner)


def rolled(tokens: Tensor, block: Tensor | None) -> Tensor:
    """Rows (B, L) whose last real token stands first, the others one further: what a decoder reads to predict the row."""
    last = tokens.flatten()[last_positions(tokens, block)]
    return torch.cat([last[:, None], tokens[:, :-1]], dim=1)


def _real(block: Tensor | None, x: Tensor, cache: SequenceCache | None) -> Selected | None:
    """The tokens that are not padding, where padding is left out: on a CPU, outside of generation."""
    if block is None or cache is not None or not takes_device(x):
        return None
    rows = Selected.real(block)
    return rows if len(rows.flat) else None


def _readable(block: Tensor | None, crossing: Tensor | None, encoded: Tensor) -> Visibility:
    """Where the decoder may read the encoder, (B, 1, 1, L)."""
    if block is None and crossing is None:
        return Visibility("all")
    open_ = torch.ones(encoded.shape[:2], dtype=torch.bool, device=encoded.device) if block is None else block > 0
    open_ = open_ if crossing is None else open_ & crossing
    first = torch.zeros(1, dtype=torch.long, device=open_.device)
    return Visibility("mask", open_.index_fill(1, first, True)[:, None, None])
