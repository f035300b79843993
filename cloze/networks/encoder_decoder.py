"""The encoder-decoder of T5, BART and MASS: one network, told apart by norms, positions and scales."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import BelowOne, Count, Depth, NonNegative, Positive, Width
from cloze.networks.blocks.buckets import Buckets
from cloze.networks.blocks.cross import SequenceLayer
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.fused_attention import Real
from cloze.networks.blocks.initial import draw, initialise
from cloze.networks.blocks.layer import Activation
from cloze.networks.blocks.locked import LockedDropout
from cloze.networks.blocks.norm import Normalisation, make_norm
from cloze.networks.blocks.sinusoid import FixedTable
from cloze.networks.blocks.visibility import visibility
from cloze.networks.clock import Clock
from cloze.networks.cost import TRAINED, Shown, shown
from cloze.networks.network import StateKind
from cloze.networks.transformer import Cache
from cloze.registry import Given, register


class SequenceCache(Cache):
    """The decoder's keys and values so far, with the encoder's states and what the decoder made of them."""

    def __init__(self, layers: int) -> None:
        super().__init__(layers)
        self.source: list[list[Tensor]] = [[] for _ in range(layers)]
        self.encoded: Tensor | None = None


class Tables(nn.Module):
    """The token table that both stacks and the output share, and tables of further ids."""

    def __init__(self, *, vocab_size: int, width: int, inputs: Mapping[str, int], scale: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.inputs = nn.ModuleDict({name: nn.Embedding(rows, width) for name, rows in inputs.items()})
        self.scale = scale

    def forward(self, tokens: Tensor, inputs: Mapping[str, Tensor] | None, vectors: Tensor | None = None) -> Tensor:
        """(B, L) ids to (B, L, D); `vectors` stand in for the token table; further ids (B, L) or (B, 1) that are absent are 0."""
        x = F.embedding(tokens, self.tokens.weight) if vectors is None else vectors
        x = x if self.scale == 1.0 else x * self.scale
        for name, table in self.inputs.items():
            given, weight = None if inputs is None else inputs.get(name), table.weight
            assert isinstance(weight, Tensor)
            x = x + (weight[0] if given is None else F.embedding(given, weight))
        return x


class Stack(nn.Module):
    """Layers with what stands before the first and behind the last: positions, norms, dropout."""

    def __init__(
        self,
        layers: Sequence[nn.Module],
        *,
        positions: nn.Module | None,
        buckets: Buckets | None,
        embedding_norm: nn.Module | None,
        norm: nn.Module | None,
        dropout: tuple[Dropout, Dropout],
    ) -> None:
        super().__init__()
        self.positions, self.buckets, self.embedding_norm, self.norm = positions, buckets, embedding_norm, norm
        self.layers = nn.ModuleList(layers)
        self.embedding_dropout, self.final_dropout = dropout

    def begin(self, x: Tensor, position_ids: Tensor | None, past: int, table: nn.Module | None) -> Tensor:
        """Token vectors (B, L, D) as the first layer reads them."""
        if table is not None:
            weight = table.weight
            assert isinstance(weight, Tensor)
            x = x + (weight[past : past + x.shape[1]] if position_ids is None else F.embedding(position_ids, weight))
        return self.embedding_dropout(_cast(x if self.embedding_norm is None else self.embedding_norm(x)))

    def added(self, mask: Tensor | None, length: int, past: int = 0) -> Tensor | None:
        """What joins the scores of every layer: the mask and the numbers of the buckets."""
        if self.buckets is None:
            return mask
        numbers: Tensor = self.buckets(length, past)
        return numbers if mask is None else numbers + mask

    def real(self, block: Tensor | None) -> Real | None:
        """The tokens that are not padding, where the layers can leave padding out."""
        if block is None or not all(layer.takes_rows() for layer in self.layers if isinstance(layer, SequenceLayer)):
            return None
        real = Real.of(block)
        return real if len(real.flat) else None

    def end(self, x: Tensor) -> Tensor:
        """The last layer's output as the outside reads it."""
        return x if self.norm is None else self.final_dropout(self.norm(x))


@register("network", "encoder_decoder")
class EncoderDecoder(nn.Module):
    """An encoder over `tokens`, a decoder over `decoder_tokens` that reads it (Vaswani et al., 2017, §3).

    BART (Lewis et al., 2020, §2): `norm: post`, learned positions, a norm of the embeddings. T5 (Raffel et al., 2020, §2.1):
    `norm: pre`, `normalisation: rms`, `positions: buckets`, no biases, scores not scaled, `initial: t5`; v1.1 is gated.
    MASS (Song et al., 2019): as BART with `scale_embeddings`, or with `inputs: {language: …}`, `crossing` and
    `decoder_position_ids`. Token table and further tables are shared by both stacks, the table of positions with
    `share_positions`. The decoder runs from left to right; `order` is the encoder's. Further ids of the decoder are those of
    the row's first token; the row's first token can never be hidden by `crossing`, so that there is always one to read.
    `longest` is that of tables of positions, 512 if not given. `final_norm` is followed by dropout as in T5, `inner_dropout`
    acts between the two maps of a layer. `dropout_mask: row` drops the same numbers at all positions of a row, and the same keys
    for all queries (T5's noise shapes in Mesh TensorFlow).

    >>> network = EncoderDecoder(layers=1, width=8, heads=2, vocab_size=10, clock=Clock()).eval()
    >>> source, target = torch.zeros(2, 5, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long)
    >>> tuple(network(want=frozenset({"decoder_hidden"}), tokens=source, decoder_tokens=target)["decoder_hidden"].shape)
    (2, 3, 8)
    """

    sees: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"hidden": "every token of the encoder sees every other; the decoder sees them and the tokens to its left"}
    )
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = MappingProxyType(
        {
            "tiny": {"layers": 2, "width": 128, "heads": 2},
            "mini": {"layers": 4, "width": 256, "heads": 4},
            "small": {"layers": 6, "width": 512, "heads": 8},
            "base": {"layers": 12, "width": 768, "heads": 12},
            "large": {"layers": 24, "width": 1024, "heads": 16},
        }
    )

    def __init__(
        self,
        *,
        layers: Depth,
        width: Width,
        heads: Width,
        decoder_layers: Depth | None = None,
        head_width: Width | None = None,
        inner: Width | None = None,
        norm: Literal["post", "pre"] = "post",
        normalisation: Normalisation = "layer",
        norm_epsilon: Positive = 1e-5,
        embedding_norm: bool | None = None,
        final_norm: bool | None = None,
        positions: Literal["learned", "sinusoid", "buckets", "none"] = "learned",
        longest: Count | None = None,
        share_positions: bool = False,
        buckets: Count = 32,
        farthest: Count = 128,
        inputs: dict[str, int] | None = None,
        activation: Activation = "gelu",
        gated: bool = False,
        biases: bool = True,
        scale_scores: bool = True,
        scale_embeddings: bool = False,
        dropout: BelowOne = 0.1,
        attention_dropout: BelowOne | None = None,
        inner_dropout: BelowOne = 0.0,
        dropout_mask: Literal["position", "row"] = "position",
        initial: Literal["truncated", "normal", "t5"] = "truncated",
        deviation: NonNegative = 0.02,
        vocab_size: Given[int],
        clock: Given[Clock],
    ) -> None:
        super().__init__()
        self.width, self.heads, self.inner = width, heads, inner or 4 * width
        self.head_width = head_width or width // heads
        if head_width is None and width % heads:
            raise ValueError(f"width {width} is not a multiple of heads {heads}")
        rows = longest or 512
        self.longest = rows if positions in ("learned", "sinusoid") else None
        self.clock = clock
        self.initial, self.deviation = initial, deviation
        first = norm == "post" if embedding_norm is None else embedding_norm
        final = norm == "pre" if final_norm is None else final_norm
        scale = math.sqrt(width) if scale_embeddings else 1.0
        self.embeddings = Tables(vocab_size=vocab_size, width=width, inputs=inputs or {}, scale=scale)

        kind = LockedDropout if dropout_mask == "row" else Dropout

        def table() -> nn.Module | None:
            if positions == "learned":
                return nn.Embedding(rows, width)
            return FixedTable(rows, width) if positions == "sinusoid" else None

        def stack(number: int, across: bool) -> Stack:
            return Stack(
                [
                    SequenceLayer(
                        width=width, heads=heads, head_width=self.head_width, inner=self.inner, norm=norm,
                        normalisation=normalisation, norm_epsilon=norm_epsilon, activation=activation, gated=gated,
                        biases=biases, scaled=scale_scores, across=across, dropout=dropout,
                        attention_dropout=dropout if attention_dropout is None else attention_dropout,
                        inner_dropout=inner_dropout, clock=clock, locked=dropout_mask == "row",
                    )
                    for _ in range(number)
                ],
                positions=None if across and share_positions else table(),
                buckets=Buckets(heads=heads, both=not across, buckets=buckets, farthest=farthest)
                if positions == "buckets" else None,
                embedding_norm=make_norm(normalisation, width, norm_epsilon) if first else None,
                norm=make_norm(normalisation, width, norm_epsilon) if final else None,
                dropout=(kind(dropout, clock), kind(dropout, clock)),
            )  # fmt: skip

        self.encoder = stack(layers, across=False)
        self.decoder = stack(layers if decoder_layers is None else decoder_layers, across=True)
        self.needs = frozenset({"tokens"})
        optional = {"order", "block", "crossing", "vectors", "decoder_tokens", "decoder_block", "summaries"}
        optional |= {"position_ids", "decoder_position_ids"} if table() is not None else set()
        optional |= {f"inputs/{name}" for name in inputs or ()}
        self.takes = self.needs | optional
        self.gives: Mapping[str, StateKind] = {
            "hidden": StateKind("B L D", "order"),
            "layers": StateKind("N B L D", "order"),
            "decoder_hidden": StateKind("B T D", "left_to_right"),
            "summary": StateKind("B D", "order"),
        }
        self.reset_parameters()
        name_dropouts(self)

    @property
    def tables(self) -> dict[str, nn.Embedding]:
        """The token table, for heads that tie to it."""
        return {"tokens": self.embeddings.tokens}

    def depth_groups(self) -> list[nn.Module]:
        """Tables first, then the encoder's layers and the decoder's."""
        return [self.embeddings, *self.encoder.layers, *self.decoder.layers]

    def cache(self) -> SequenceCache:
        """An empty cache for generation."""
        return SequenceCache(len(self.decoder.layers))

    def reset_parameters(self) -> None:
        """Redraw every weight from torch's generator; gains are one, biases zero."""
        initialise(self, "truncated" if self.initial == "truncated" else "normal", self.deviation)
        if self.initial == "t5":
            initialise_t5(self)

    def forward(
        self,
        *,
        want: frozenset[str],
        tokens: Tensor,
        decoder_tokens: Tensor | None = None,
        order: Tensor | str = "open",
        block: Tensor | None = None,
        decoder_block: Tensor | None = None,
        position_ids: Tensor | None = None,
        decoder_position_ids: Tensor | None = None,
        crossing: Tensor | None = None,
        inputs: Mapping[str, Tensor] | None = None,
        vectors: Tensor | None = None,
        summaries: Tensor | None = None,
        cache: SequenceCache | None = None,
        carry: Any = None,
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L) and decoder_tokens (B, T).

        `hidden` (B, L, D) is the encoder's, `layers` (N+1, B, L, D) the words and its layers, `decoder_hidden` (B, T, D) the
        decoder's (at padding all mean nothing), `summary` (B, D) the decoder's at its last token; without `decoder_tokens` the
        decoder reads the encoder's tokens with the last one moved to the front (BART §3.1).

        With `cache` the encoder runs once and `decoder_tokens` continue those of earlier calls.
        """
        encoded, layers = cache.encoded if cache is not None else None, list[Tensor]()
        if encoded is None:
            encoded, layers = self._encode(tokens, order, block, position_ids, inputs, vectors, every="layers" in want)
            if cache is not None:
                cache.encoded = encoded
        states = {"hidden": encoded} if "hidden" in want else {}
        if "layers" in want:
            states["layers"] = torch.stack(layers)
        if not want & {"decoder_hidden", "summary"}:
            return states
        if decoder_tokens is None:
            decoder_tokens, decoder_block = rolled(tokens, block), block
        kinds = None if inputs is None else {name: ids[:, :1] for name, ids in inputs.items()}
        hidden = self._decode(
            decoder_tokens, decoder_block, decoder_position_ids, kinds, encoded, block, _readable(block, crossing, encoded), cache
        )
        if "decoder_hidden" in want:
            states["decoder_hidden"] = hidden
        if "summary" in want:
            last = _lengths(decoder_tokens, decoder_block) - 1
            states["summary"] = hidden[torch.arange(len(hidden), device=hidden.device), last]
        return states

    def _encode(
        self,
        tokens: Tensor,
        order: Tensor | str,
        block: Tensor | None,
        position_ids: Tensor | None,
        inputs: Mapping[str, Tensor] | None,
        vectors: Tensor | None,
        *,
        every: bool,
    ) -> tuple[Tensor, list[Tensor]]:
        """The encoder's states (B, L, D); with `every` also the words and the states of all layers, these in the place of the
        last.
        """
        x = self.encoder.begin(self.embeddings(tokens, inputs, vectors), position_ids, 0, self.encoder.positions)
        seen = visibility(order, block, length=tokens.shape[1], past=0, device=tokens.device)
        added = self.encoder.added(seen.bias(x.dtype, tokens.shape[1], tokens.device), tokens.shape[1])
        real = self.encoder.real(block)
        x = x if real is None else real.gather(x)
        passed = []
        for layer in self.encoder.layers:
            passed += [x if real is None else real.spread(x)] if every else []
            x = layer(x, added, real=real)
        hidden: Tensor = self.encoder.end(x if real is None else real.spread(x))
        return hidden, [*passed, hidden] if every else []

    def _decode(
        self,
        tokens: Tensor,
        block: Tensor | None,
        position_ids: Tensor | None,
        inputs: Mapping[str, Tensor] | None,
        source: Tensor,
        source_block: Tensor | None,
        source_added: Tensor | None,
        cache: SequenceCache | None,
    ) -> Tensor:
        """The decoder's states, (B, T, D)."""
        past, length = (cache.length if cache is not None else 0), tokens.shape[1]
        table = self.encoder.positions if self.decoder.positions is None else self.decoder.positions
        x = self.decoder.begin(self.embeddings(tokens, inputs), position_ids, past, table)
        seen = visibility("left_to_right", block, length=length, past=past, device=tokens.device)
        added = self.decoder.added(seen.bias(x.dtype, length, tokens.device), length, past)
        real, source_real = (self.decoder.real(b if cache is None else None) for b in (block, source_block))
        x = x if real is None else real.gather(x)
        source = source if source_real is None else source_real.gather(source)
        for number, layer in enumerate(self.decoder.layers):
            x = layer(
                x, added, source=source, source_added=source_added, real=real, source_real=source_real,
                kept=None if cache is None else cache.layers[number],
                source_kept=None if cache is None else cache.source[number],
            )  # fmt: skip
        return self.decoder.end(x if real is None else real.spread(x))

    def flops(self, fields: Mapping[str, Tensor], *, want: frozenset[str], positions: Tensor | None) -> float:
        """Floating-point operations of forward and backward; of the encoder alone where no state of the decoder is wanted."""
        source = shown(fields)
        second = shown(fields, "decoder_tokens", "decoder_block") if "decoder_tokens" in fields else source
        return self._flops(source, second if want & {"decoder_hidden", "summary"} else None)

    def _flops(self, source: Shown, target: Shown | None) -> float:
        inside, gate = self.heads * self.head_width, 1 if self.encoder.layers[0].gate is not None else 0
        own = 4 * self.width * inside + (2 + gate) * self.width * self.inner
        found = len(self.encoder.layers) * source.tokens * (own + 2 * inside * source.length)
        if target is not None:
            reads = own + 2 * inside * target.length + 2 * self.width * inside + 2 * inside * source.length
            found += len(self.decoder.layers) * (target.tokens * reads + source.tokens * 2 * self.width * inside)
        return TRAINED * found



def initialise_t5(network: EncoderDecoder) -> None:
    """The deviations of mesh_tensorflow: the token table 1, every map the root of what it reads, queries smaller still.

    Scores are not scaled, so queries begin with (width · head width)^-½; the table of the buckets with width^-½.
    """
    inside = network.heads * network.head_width
    narrow, inner = network.width**-0.5, network.inner**-0.5
    draw(network.embeddings.tokens.weight, "normal", 1.0)
    for stack in (network.encoder, network.decoder):
        if stack.buckets is not None:
            draw(stack.buckets.table.weight, "normal", narrow)
        for layer in stack.layers:
            assert isinstance(layer, SequenceLayer)
            for attention in (layer.attention, layer.crossing):
                if attention is None:
                    continue
                for linear in (attention.projections, attention.memory):
                    if linear is not None:
                        draw(linear.weight, "normal", narrow)
                query = attention.projections if attention.query is None else attention.query
                assert query is not None  # one of the two holds the queries
                draw(query.weight[:inside], "normal", (network.width * network.head_width) ** -0.5)
                draw(attention.out.weight, "normal", inside**-0.5)
            for linear in (layer.inner, layer.gate):
                if linear is not None:
                    draw(linear.weight, "normal", narrow)
            draw(layer.outer.weight, "normal", inner)


def rolled(tokens: Tensor, block: Tensor | None) -> Tensor:
    """Rows (B, L) whose last real token stands first, the others one further: what a decoder reads to predict the row."""
    last = (_lengths(tokens, block) - 1)[:, None]
    return torch.cat([tokens.gather(1, last), tokens[:, :-1]], dim=1)


def _lengths(tokens: Tensor, block: Tensor | None) -> Tensor:
    """Real tokens of each row, (B,)."""
    if block is None:
        return torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
    return (block > 0).sum(1)


def _readable(block: Tensor | None, crossing: Tensor | None, encoded: Tensor) -> Tensor | None:
    """0 where the decoder may read the encoder, minus infinity elsewhere, (B, 1, 1, L); None: everywhere."""
    if block is None and crossing is None:
        return None
    open_ = torch.ones(encoded.shape[:2], dtype=torch.bool, device=encoded.device) if block is None else block > 0
    open_ = open_ if crossing is None else open_ & crossing
    open_ = open_.index_fill(1, torch.zeros(1, dtype=torch.long, device=open_.device), True)
    return torch.zeros(open_.shape, dtype=encoded.dtype, device=open_.device).masked_fill_(~open_, -math.inf)[:, None, None]


def _cast(x: Tensor) -> Tensor:
    """The residual stream in the dtype of the products."""
    if torch.is_autocast_enabled(x.device.type):
        return x.to(torch.get_autocast_dtype(x.device.type))
    return x
