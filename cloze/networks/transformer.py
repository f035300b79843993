"""The Transformer of BERT, GPT, ALBERT, XLM, NEZHA, ModernBERT and others: one network with different arguments.

`forward` takes a batch through the embeddings, the inputs of attention (`blocks/layer_inputs.py`), the stack of layers
(`blocks/stack.py`), and the states that objectives read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne, Depth, Natural, Width
from cloze.errors import RecipeError
from cloze.networks import choices
from cloze.networks.blocks.attention import Attention, AttentionRecord
from cloze.networks.blocks.convolution import ConvolvedInput, InputConvolution
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.feed_forward import feed_forward_of
from cloze.networks.blocks.hooks import LayerHook
from cloze.networks.blocks.initial import attend_to_offsets, initialise, initialise_apart
from cloze.networks.blocks.inputs.characters import Characters
from cloze.networks.blocks.inputs.embeddings import Embeddings, to_residual_dtype
from cloze.networks.blocks.inputs.senses import sense_vectors
from cloze.networks.blocks.inputs.without_masks import WithoutMasks
from cloze.networks.blocks.layer import Layer
from cloze.networks.blocks.layer_inputs import LayerInputs, make_positions
from cloze.networks.blocks.mask_decoder import MaskDecoder
from cloze.networks.blocks.norm import QueryKeyNorm, make_norm
from cloze.networks.blocks.positions.disentangled import DistanceVectors, distance_maps
from cloze.networks.blocks.positions.distances import StepDropout
from cloze.networks.blocks.selected import Selected, real_tokens
from cloze.networks.blocks.stack import Cache, Stack, each_layer
from cloze.networks.blocks.visibility import AnyOrder
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.network import (
    Network,
    StateKind,
    attention_kinds,
    named_sizes,
    reading_kinds,
    reading_states,
    require_order,
)
from cloze.networks.spelling import mask_ids
from cloze.registry import Given, PartMark, register

PositionKinds = Annotated[
    choices.LearnedPositions | choices.LearnedWithBuckets | choices.Sinusoid | choices.Rotary | choices.RotaryTable
    | choices.FunctionalPositions | choices.Disentangled | choices.NoPositions,
    PartMark("positions"),
]
Embedding = Annotated[choices.TokenTable | Characters, PartMark("embedding")]


@register("network", "transformer")
class Transformer(Network):
    """Embeddings and `layers` equal layers (Vaswani et al., 2017, §3).

    `norm: post` with learned positions and segments is BERT (Devlin et al., 2019, §3), without the norm of the embeddings GPT
    (Radford et al., 2018, §4.1); `norm: pre` is GPT-2 (Radford et al., 2019, §2.3).

    With `attention: {key_value_heads: …}`, maps gated by SiLU, `norm: {pre: {kind: rms}}` and rotary positions it is Llama 2
    (Touvron et al., 2023, §2.2).

    `embedding`: a table of tokens, or a module that reads words by their characters (CharacterBERT). `segments` is the number of
    segments. `positions` are added to the embeddings or act in attention.

    With a `band` tokens see only their neighbourhood: `i - j < width` from left to right (GPT-3; Brown et al., 2020, §2.1),
    `|i - j| <= width / 2` in the open order (ModernBERT). `share`: layers share weights, with their norms, within each of the
    groups (ALBERT; Lan et al., 2020, §3.1).

    >>> network = Transformer(layers=1, width=8, heads=2, vocab_size=10, clock=Clock()).eval()
    >>> tuple(network(want=frozenset({"hidden"}), tokens=torch.zeros(2, 5, dtype=torch.long))["hidden"].shape)
    (2, 5, 8)
    """

    stack = "attention"
    one_stack, fits_offsets = True, True
    may_be_missing: tuple[str, ...] = ("embeddings.inputs", "embeddings.senses")
    looks_up: ClassVar[tuple[str, ...]] = ("embedding.senses",)
    sizes = named_sizes(
        "layers width heads", tiny=(2, 128, 2), mini=(4, 256, 4), small=(4, 512, 8), medium=(8, 512, 8), base=(12, 768, 12),
        large=(24, 1024, 16),
    )

    gives: Mapping[str, StateKind] = MappingProxyType({**reading_kinds("order"), **attention_kinds("order")})

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        attention: choices.BandedAttention = choices.BandedAttention(),
        feed_forward: choices.FeedForwards = choices.PlainFeedForward(),
        norm: choices.Norms = choices.PostNorm(),
        positions: PositionKinds = choices.LearnedPositions(),
        segments: Natural = 0,
        embedding: Embedding = choices.TokenTable(),
        share: choices.Share | None = None,
        dropout: BelowOne | choices.Dropouts = 0.1,
        initial: choices.Initials = choices.Truncated(),
        vocab_size: Given[int], clock: Given[Clock],
    ) -> None:
        super().__init__()
        self.width, self.vocab_size, self.heads, self.clock = width, vocab_size, heads, clock
        self.inner, self.initial = feed_forward.inner or 4 * width, initial
        self.max_length = None if isinstance(positions, choices.NoPositions) else positions.max_length
        disentangled = positions if isinstance(positions, choices.Disentangled) else None
        by_distance = disentangled is not None and disentangled.absolute is None
        self.unlimited = isinstance(positions, choices.FunctionalPositions) or by_distance
        self.rates = rates = choices.dropouts(dropout)
        table = embedding if isinstance(embedding, choices.TokenTable) else choices.TokenTable()
        self.embedding_width, self.inputs = table.width or width, table.inputs or {}
        check_attention(attention, heads=heads, positions=positions, initial=initial)
        head_width = attention.head_width or width // heads
        self.layer_inputs = LayerInputs(layers=layers, head_width=head_width, positions=positions, band=attention.band)
        self.embeddings = Embeddings(
            vocab_size=vocab_size, width=self.embedding_width, positions=positions, segments=segments, norm=norm,
            inputs=self.inputs, untrained_id=0 if isinstance(table, choices.TableWithLabels) else None,
            scale=self.embedding_width**0.5 if table.scaled else 1.0,
            characters=embedding if isinstance(embedding, Characters) else None,
            senses=sense_vectors(table, vocab_size, self.embedding_width) if isinstance(table, choices.TableWithSenses) else None,
            without_masks=WithoutMasks(mask_ids(table.spellings), table.usual)
            if isinstance(table, choices.TableWithoutMasks) else None,
        )
        self.embedding_dropout = Dropout(rates.hidden, clock)
        projects = self.embedding_width != width or table.project
        self.project = nn.Linear(self.embedding_width, width) if projects else None
        self.distances = make_positions(positions, width=width, heads=heads, epsilon=norm.epsilon)

        def make_attention() -> Attention:
            learned: dict[str, nn.Module | nn.Parameter] = {}
            if disentangled is not None:
                rate = rates.hidden if disentangled.drop_as == "hidden" else rates.of_attention
                learned = {"distance_dropout": StepDropout(rate, clock)}
                learned |= distance_maps(disentangled, width=width, inside=head_width * heads, biases=attention.biases)
            return Attention(
                width=width, heads=heads, head_width=attention.head_width, dropout=Dropout(rates.of_attention, clock),
                bias=attention.biases, output_bias=attention.output_bias, key_value_heads=attention.key_value_heads,
                gated=attention.gate, norm_epsilon=norm.epsilon if attention.norm else None,
                query_key_norm=query_key_norm(attention, norm), learned=learned,
                scale=None if disentangled is None
                else ((1 + disentangled.as_keys + disentangled.as_queries) * head_width) ** -0.5,
            )

        self.layers: Sequence[Layer] = nn.ModuleList(  # type: ignore[assignment]
            Layer(
                width=width, norm=norm, dropout=lambda: Dropout(rates.hidden, clock), active_dropout=Dropout(0.0, clock),
                attention=make_attention(), feed_forward=feed_forward_of(feed_forward, self.inner, norm.epsilon, stacked=True),
                number=number,
            )
            for number in range(layers)
        )
        if share is not None:
            share_weights(self.layers, share)
        self.convolution = None
        if table.convolution is not None:
            self.convolution = InputConvolution(table.convolution, width, norm.epsilon, Dropout(rates.hidden, clock))
        self.mask_decoder: MaskDecoder | None = None
        if disentangled is not None and disentangled.absolute == "decoder":
            self.mask_decoder = MaskDecoder(
                steps=disentangled.decoder_steps, max_length=disentangled.max_length, width=width
            )
            self.gives = {**self.gives, "decoded": StateKind("B L D", "order")}
        self.around = nn.ModuleList()  # objects that the stack calls in every pass, such as adapters
        self.norm = make_norm(norm.kind, width, norm.epsilon) if norm.final else None
        optional = {"order", "block", "visible", "summaries", "vectors"} | {f"inputs/{name}" for name in self.inputs}
        optional |= {"characters"} if isinstance(embedding, Characters) else set()
        optional |= {"segments"} if segments else set()
        optional |= set() if isinstance(positions, choices.NoPositions) else {"position_ids"}
        self.takes = self.needs | optional
        self.reset_parameters()
        name_dropouts(self)

    def reset_parameters(self) -> None:
        """Draw every weight from torch's generator; gains are one and biases zero (`uniform` draws biases too)."""
        initialise(self, self.initial)
        if self.embeddings.characters is not None:
            self.embeddings.characters.reset_parameters()
        if not isinstance(self.initial, choices.Uniform):
            by_depth = self.initial.residual == "feed_forward_by_depth"
            scaled = [[(layer.inner if by_depth else layer.attention.out).weight, layer.outer.weight] for layer in self.layers]
            initialise_apart(self.initial, [self.embeddings.positions], [scaled])
            tables = self.embeddings
            added = [part for part in (tables.tokens, tables.segments, *tables.inputs.values()) if isinstance(part, nn.Embedding)]
            attend_to_offsets(
                self.initial.offsets, tables.positions, [part.weight for part in added], self.layers,
                normed=tables.norm is not None, project=None if self.project is None else self.project.weight,
            )

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, segments: Tensor | None = None, position_ids: Tensor | None = None,
        order: AnyOrder = "open", block: Tensor | None = None, summaries: Tensor | None = None,
        vectors: Tensor | None = None, inputs: Mapping[str, Tensor] | None = None, characters: Tensor | None = None,
        cache: Cache | None = None, positions: Tensor | None = None, gates: Tensor | None = None,
        layer_hooks: Sequence[LayerHook] = (),
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L): `hidden` (B, L, D), `summary` (E, D), `layers` (N+1, B, L, D), and of attention
        `scores` and `attention` (N, B, H, L, L), `queries`, `keys` and `values` (N, B, H, L, W).

        `positions` (M,) are the flat positions of `hidden` that will be read, if the caller knows them: the last layer is then
        computed only there and at the summaries, and `hidden` is zero elsewhere (on a CPU; other devices compute all of it).
        With `cache` tokens also see those of earlier calls; the caller passes the `position_ids` that follow. `gates`, (N, H) or
        (N, B, H), multiply the output of each head. The objects `around` are called around every layer.
        """
        past = cache.length if cache is not None else 0
        record = AttentionRecord.of(want)
        inputs_by_layer = each_layer(
            self.layer_inputs(
                tokens, position_ids=position_ids, order=order, block=block, past=past, distances=self.distances
            ),
            caches=None if cache is None else cache.layers, gates=gates, record=record,
        )
        x = self.embeddings(tokens, position_ids, segments, vectors, inputs, characters, block, order)
        x = to_residual_dtype(self.embedding_dropout(x))
        x = x if self.project is None else self.project(x)
        hooks = [*self.around, *layer_hooks]
        if self.convolution is not None:
            require_order("a transformer with a convolution", order, "open")
            hooks.append(ConvolvedInput(self.convolution, block, self.layers))
        stack = Stack(self.layers, inputs_by_layer, hooks)
        selected = self._read_tokens(tokens, want, positions, summaries) if stack.per_token and record is None else None
        decoder = self.mask_decoder if "decoded" in want else None
        unread = decoder is not None and record is None and not want & {"hidden", "summary", "layers"}
        whole = "layers" in want or any(part is not None for part in (cache, record, decoder))
        rows = real_tokens(block, x) if stack.skips_padding and not whole else None
        layer_states = stack.run(x, selected=selected, unread=unread, rows=rows)
        states: dict[str, Tensor] = {}
        if not unread:
            hidden = self.finish(layer_states[-1])
            read = rows if selected is None else selected
            states = reading_states(want, hidden if read is None else read.put_back(hidden), layer_states, summaries)
        if decoder is not None:
            last_input = layer_states[-1] if unread else layer_states[-2]
            states["decoded"] = self.finish(decoder(last_input, self.layers[-1], inputs_by_layer[-1], position_ids))
        return states if record is None else {**states, **record.stacked()}

    @property
    def vector_tables(self) -> Mapping[str, Any]:
        """The table of tokens, and those of further inputs and of senses."""
        return {**self.token_tables, **self.embeddings.further}

    def finish(self, x: Tensor) -> Tensor:
        """The final norm of x (…, D), where there is one."""
        return x if self.norm is None else self.norm(x)

    def _read_tokens(
        self, tokens: Tensor, want: frozenset[str], positions: Tensor | None, summaries: Tensor | None
    ) -> Selected | None:
        """The tokens whose last state is read; None: all tokens, or the device computes all of them anyway."""
        batch, length = tokens.shape
        if positions is None or "layers" in want or tokens.device.type != "cpu":
            return None
        if "summary" in want:
            first = torch.arange(batch, device=tokens.device) * length if summaries is None else summaries
            positions = torch.cat([positions, first])
        return Selected.of(positions, batch, length, even=True)

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The tokens' way through the layers.

        A band masks tokens but saves no products: every layer multiplies all queries with all keys of a row.
        """
        counted.add(size, self.embeddings, self.project)
        if self.mask_decoder is None or "decoded" not in counted.want:
            self.count_layers(counted, size)
            return
        last = len(self.layers) - 1
        once = 1 if counted.want & {"hidden", "summary", "layers"} else 0
        for number in [*range(last), *[last] * (once + self.mask_decoder.steps)]:
            self.count_layer(counted, number, size)

    def rotate_by(self, positions: Any) -> None:
        """Rotate queries and keys by other positions from now on, where positions are rotary."""
        if isinstance(self.layer_inputs.positions, choices.Rotary):
            self.layer_inputs = replace(self.layer_inputs, positions=positions)

    def count_layer(self, counted: Operations, number: int, size: SequenceSize) -> None:
        """Also the vectors of distances, which are not trained where they are functions."""
        where = self.layer_inputs.positions
        if isinstance(self.distances, DistanceVectors):
            self.distances.count_in(self.layers[number].attention, counted, size)
        super().count_layer(counted, number, size)
        if number == 0 and self.convolution is not None:
            counted.add(size, self.convolution)
        if isinstance(where, choices.FunctionalPositions):
            counted.add_frozen_products(size.tokens * 2 * self.width * (2 * where.limit + 1))


def query_key_norm(attention: choices.BandedAttention, norm: choices.Norms) -> QueryKeyNorm | None:
    """The norms of queries and keys that a recipe chose, of the kind of the network's others."""
    which = attention.query_key_norm
    return None if which is None else QueryKeyNorm(norm.kind, norm.epsilon, whole=which == "all")


def check_attention(attention: choices.BandedAttention, *, heads: int, positions: Any, initial: choices.Initials) -> None:
    """A `RecipeError` if fewer heads of keys and values do not fit the heads, the positions or the initial weights."""
    fewer = attention.key_value_heads
    if fewer is None:
        return
    if attention.biases == "not_keys":
        raise RecipeError("transformer.attention: biases: not_keys needs as many heads of keys as of queries.")
    if heads % fewer:
        raise RecipeError(
            f"transformer.attention: {fewer} heads of keys and values cannot be shared evenly by {heads} heads of queries. "
            "Give key_value_heads a divisor of heads."
        )
    if fewer < heads and isinstance(positions, choices.Disentangled):
        raise RecipeError(
            "transformer.attention: disentangled positions pass the maps of queries and of keys, which must be of one size. "
            "Leave key_value_heads out."
        )
    if fewer < heads and not isinstance(initial, choices.Uniform) and initial.offsets:
        raise RecipeError(
            "transformer.initial: offsets need as many heads of keys as of queries. Leave offsets or key_value_heads out."
        )


def share_weights(layers: Sequence[Layer], share: choices.Share) -> None:
    """Layers of one group use the maps and norms of the group's first layer; layer i of L is in group i·groups // L.

    `attention`: the projections and the norm of attention; `feed_forward`: all of its maps and their norm; `all`: both. The first
    layer alone holds the parameters, so a state dict names each of them once. Dropout stays every layer's own.
    """
    groups = share.groups
    if groups > len(layers):
        raise RecipeError(f"transformer.share: {groups} groups of {len(layers)} layers. Give groups from 1 to {len(layers)}.")
    firsts: dict[int, Layer] = {}
    for number, layer in enumerate(layers):
        first = firsts.setdefault(number * groups // len(layers), layer)
        if first is layer:
            continue
        first.lends = True
        if share.weights in ("attention", "all"):
            _borrow(layer.attention, first.attention, *layer.attention.lent)
            _borrow(layer, first, "attention_norm")
        if share.weights in ("feed_forward", "all"):
            _borrow(layer, first, *layer.feed_forward.names, "inner_norm")


def _borrow(borrower: nn.Module, lender: nn.Module, *names: str) -> None:
    """Attributes past `nn.Module`: found by name, but neither registered, counted nor saved a second time."""
    for name in names:
        delattr(borrower, name)
        object.__setattr__(borrower, name, getattr(lender, name))
