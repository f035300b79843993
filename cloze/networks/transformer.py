"""The Transformer of BERT, GPT, ALBERT, XLM, NEZHA, ModernBERT and others: one network, told apart by its arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne, Count, Depth, Natural, NonNegative, Positive, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.around import Around, Silence
from cloze.networks.blocks.attention import Attention, Record
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.embeddings import Embeddings, residual_dtype
from cloze.networks.blocks.feed_forward import Activation, FeedForward, StackedGate
from cloze.networks.blocks.initial import Initial, draw, initialise
from cloze.networks.blocks.layer import Layer
from cloze.networks.blocks.norm import Normalisation, make_norm
from cloze.networks.blocks.norm_place import Post, Pre
from cloze.networks.blocks.selected import Selected
from cloze.networks.blocks.sharing import Repeat, share
from cloze.networks.blocks.sight import PositionScheme, Sights
from cloze.networks.blocks.stack import Cache, Stack, each_layer, seed_kernels
from cloze.networks.clock import Clock
from cloze.networks.cost import CONSTANT, TRAINED, shown
from cloze.networks.network import ATTENTION_STATES, StateKind, reading_states
from cloze.registry import Given, Part, register

if TYPE_CHECKING:
    CharactersPart = Any
else:
    CharactersPart = Part["characters"]


@register("network", "transformer")
class Transformer(nn.Module):
    """Embeddings and `layers` equal layers (Vaswani et al., 2017, §3).

    **Norms.** `norm: post` with learned positions and segments is BERT (Devlin et al., 2019, §3), without
    `embedding_norm` GPT (Radford et al., 2018, §4.1); `pre` with a final norm is GPT-2 (Radford et al., 2019, §2.3).
    `normalisation`, `norm_biases`, `biases` and `gated` (feed-forward) are as in the later systems; `first_norm: false`
    leaves out the first layer's norm before attention, where the embeddings have just had one (ModernBERT; Warner et al.,
    2024). `silence_padding` zeroes the states of padding in every layer (XLM's code).

    **Positions.** `learned` and `sinusoid` are added to the embeddings, `longest` of them; `rotary` rotates queries and keys
    (`rotary_base`; `rotary_local_base` in banded layers); `functional` adds a fixed vector for each distance, clipped to
    `relative_limit`, to keys and values (NEZHA). `inputs` names further tables of ids and gives their sizes:
    `{language: 15}` reads the field `inputs/language`. `characters` (`char_cnn`, `letter_trigrams`) read words by their
    characters in place of a table of tokens (CharacterBERT).

    **Attention.** With `attention_band` layers see their neighbourhood alone: `i - j < band` from left to right (GPT-3;
    Brown et al., 2020, §2.1), `|i - j| <= band / 2` in the open order (ModernBERT). `dense_every: n` leaves each nth layer
    dense, the first of them layer 0.

    **Sharing.** `embedding_width` below `width` adds a projection after the embedding norm, as ELECTRA and ALBERT do;
    `projection` forces or forbids it. `repeat` shares attention, feed-forward or both, with their norms, within each of
    `groups` runs of layers (ALBERT; Lan et al., 2020, §3.1).

    **Start.** `initial` draws weights with `deviation`, truncated at two deviations (BERT) or not, and biases are zero;
    `uniform` draws maps and biases from ±1/√inputs and tables with deviation 1/√width (XLM's code: torch's defaults).
    `position_deviation` is that of learned positions alone (GPT-2's code: 0.01); `residual_scaling` divides the projections
    into the residual by the root of their number (GPT-2 §2.3); `by_depth` by the root of how many there are up to their layer
    (UniLM's code, `rescale_some_parameters`).

    >>> network = Transformer(layers=1, width=8, heads=2, vocab_size=10, clock=Clock()).eval()
    >>> tuple(network(want=frozenset({"hidden"}), tokens=torch.zeros(2, 5, dtype=torch.long))["hidden"].shape)
    (2, 5, 8)
    """

    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = MappingProxyType(
        {
            "tiny": {"layers": 2, "width": 128, "heads": 2},
            "mini": {"layers": 4, "width": 256, "heads": 4},
            "small": {"layers": 4, "width": 512, "heads": 8},
            "medium": {"layers": 8, "width": 512, "heads": 8},
            "base": {"layers": 12, "width": 768, "heads": 12},
            "large": {"layers": 24, "width": 1024, "heads": 16},
        }
    )

    gives: ClassVar[Mapping[str, StateKind]] = MappingProxyType(
        {
            "hidden": StateKind("B L D", "order"),
            "layers": StateKind("N B L D", "order"),
            "summary": StateKind("E D", "order"),
            **ATTENTION_STATES,
        }
    )

    def __init__(
        self,
        *,
        layers: Depth,
        width: Width,
        heads: Width,
        inner: Width | None = None,
        norm: Literal["post", "pre"] = "post",
        positions: PositionScheme = "learned",
        longest: Count = 512,
        segments: Natural = 0,
        embedding_width: Width | None = None,
        activation: Activation = "gelu",
        norm_epsilon: Positive = 1e-12,
        dropout: BelowOne = 0.1,
        attention_dropout: BelowOne | None = None,
        initial: Initial = "truncated",
        deviation: NonNegative = 0.02,
        position_deviation: NonNegative | None = None,
        residual_scaling: bool | Literal["by_depth"] = False,
        embedding_norm: bool | None = None,
        final_norm: bool | None = None,
        first_norm: bool = True,
        normalisation: Normalisation = "layer",
        norm_biases: bool = True,
        biases: bool = True,
        gated: bool = False,
        projection: bool | None = None,
        inputs: Mapping[str, int] | None = None,
        rotary_base: Positive = 10000.0,
        rotary_local_base: Positive | None = None,
        relative_limit: Count = 64,
        attention_band: Count | None = None,
        dense_every: Count | None = None,
        repeat: Repeat = "none",
        groups: Width = 1,
        silence_padding: bool = False,
        characters: CharactersPart = None,
        vocab_size: Given[int],
        clock: Given[Clock],
    ) -> None:
        super().__init__()
        self.width, self.vocab_size = width, vocab_size
        self.heads, self.inner = heads, inner or 4 * width
        self.norm_place = norm
        self.longest = longest
        self.embedding_width = embedding_width or width
        self.initial = initial
        self.deviation, self.position_deviation = deviation, position_deviation
        self.residual_scaling = residual_scaling
        self.sights = Sights(
            layers=layers, head_width=width // heads, positions=positions,
            bases=(rotary_base, rotary_base if rotary_local_base is None else rotary_local_base), limit=relative_limit,
            band=attention_band, dense_every=dense_every,
        )
        self.silence_padding = silence_padding
        self.clock = clock
        self.embeddings = Embeddings(
            vocab_size=vocab_size, width=self.embedding_width, longest=longest, segments=segments,
            positions=positions if positions in ("learned", "sinusoid") else None,
            norm=norm == "post" if embedding_norm is None else embedding_norm, norm_epsilon=norm_epsilon, inputs=inputs,
            normalisation=normalisation, norm_bias=norm_biases, characters=characters,
        )
        self.embedding_dropout = Dropout(dropout, clock)
        projecting = self.embedding_width != width if projection is None else projection
        if self.embedding_width != width and not projecting:
            raise RecipeError(
                f"transformer: embeddings of width {embedding_width} cannot enter layers of width {width} with `projection: "
                "false`. Leave projection out, or give both one width."
            )
        self.project = nn.Linear(self.embedding_width, width) if projecting else None
        kind = StackedGate if gated else FeedForward
        attending = dropout if attention_dropout is None else attention_dropout
        self.layers: Sequence[Layer] = nn.ModuleList(  # type: ignore[assignment]
            Layer(
                width=width, place=Pre() if norm == "pre" else Post(),
                attention=Attention(width=width, heads=heads, dropout=Dropout(attending, clock), bias=biases),
                feed_forward=kind(self.inner, activation, biases), dropout=lambda: Dropout(dropout, clock),
                norm=lambda: make_norm(normalisation, width, norm_epsilon, bias=norm_biases),
                active_dropout=Dropout(0.0, clock), first_norm=first_norm or number > 0,
            )
            for number in range(layers)
        )
        share(self.layers, repeat, groups)
        self.around = nn.ModuleList()  # objects that every pass calls
        final = norm == "pre" if final_norm is None else final_norm
        self.norm = make_norm(normalisation, width, norm_epsilon, bias=norm_biases) if final else None
        self.needs = frozenset({"tokens"})
        optional = {"order", "block", "summaries", "vectors"} | {f"inputs/{name}" for name in inputs or ()}
        optional |= set() if characters is None else {"characters"}
        read = {"segments": segments > 0, "position_ids": positions in ("learned", "sinusoid", "rotary")}
        self.takes = self.needs | optional | {field for field, whether in read.items() if whether}
        self.reset_parameters()
        name_dropouts(self)

    @property
    def tables(self) -> dict[str, nn.Embedding]:
        """The token table, for heads that tie to it; its width is `embedding_width`. None where words are read by characters."""
        return {} if self.embeddings.characters is not None else {"tokens": self.embeddings.tokens}

    def depth_groups(self) -> list[nn.Module]:
        """Embeddings first, then the layers in order."""
        return [self.embeddings, *self.layers]

    def reset_parameters(self) -> None:
        """Redraw every weight from torch's generator; gains are one, biases zero (with `uniform` drawn too)."""
        initialise(self, self.initial, self.deviation)
        if self.embeddings.characters is not None:
            self.embeddings.characters.reset_parameters()
        if self.position_deviation is not None and isinstance(self.embeddings.positions, nn.Embedding):
            draw(self.embeddings.positions.weight, self.initial, self.position_deviation)
        if self.residual_scaling:
            below: dict[Tensor, int] = {}  # a shared map once
            for number, layer in enumerate(self.layers, 1):
                for linear in (layer.attention.out, layer.outer):
                    below.setdefault(linear.weight, number)
            with torch.no_grad():
                for weight, number in below.items():
                    weight.mul_(1.0 / math.sqrt(2 * (number if self.residual_scaling == "by_depth" else len(self.layers))))

    def forward(
        self,
        *,
        want: frozenset[str],
        tokens: Tensor,
        segments: Tensor | None = None,
        position_ids: Tensor | None = None,
        order: Tensor | str = "open",
        block: Tensor | None = None,
        summaries: Tensor | None = None,
        vectors: Tensor | None = None,
        inputs: Mapping[str, Tensor] | None = None,
        characters: Tensor | None = None,
        cache: Cache | None = None,
        positions: Tensor | None = None,
        gates: Tensor | None = None,
        around: Sequence[Around] = (),
        carry: Any = None,
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L): `hidden` (B, L, D), `summary` (E, D), `layers` (N+1, B, L, D), and of attention
        `scores` and `attention` (N, B, H, L, L), `queries`, `keys` and `values` (N, B, H, L, W).

        `positions` (M,) names the flat positions of `hidden` that will be read, where the caller knows them: the last layer is
        then computed only there and at the summaries, and `hidden` is zero elsewhere (on a CPU; other devices compute all of it).
        With `cache` the keys and values of earlier calls are seen too; the caller gives `position_ids` that continue. `gates`
        (N, H) or (N, B, H) multiply the output of each head. The objects `around` are called around every layer.
        """
        past = cache.length if cache is not None else 0
        seed_kernels(self.layers, self.clock, tokens.device)
        record = Record.of(want)
        given = each_layer(
            self.sights(tokens, position_ids=position_ids, order=order, block=block, past=past),
            caches=None if cache is None else cache.layers, gates=gates, record=record,
        )
        x = self.embeddings(tokens, position_ids, segments, vectors, inputs, characters)
        x = residual_dtype(self.embedding_dropout(x))
        x = x if self.project is None else self.project(x)
        objects = [*self.around, *around, *([Silence(block)] if self.silence_padding and block is not None else [])]
        stack = Stack(self.layers, given, objects)
        at = self._read(tokens, want, positions, summaries) if stack.per_token and record is None else None
        passed = stack.run(x, at=at)
        hidden = passed[-1] if self.norm is None else self.norm(passed[-1])
        states = reading_states(want, hidden if at is None else at.put_back(hidden), passed, summaries)
        return states if record is None else {**states, **record.stacked()}

    def _read(self, tokens: Tensor, want: frozenset[str], positions: Tensor | None, summaries: Tensor | None) -> Selected | None:
        """The tokens whose last state is read; None: all, or the device computes all of them in any case."""
        batch, length = tokens.shape
        if positions is None or "layers" in want or tokens.device.type != "cpu":
            return None
        if "summary" in want:
            first = torch.arange(batch, device=tokens.device) * length if summaries is None else summaries
            positions = torch.cat([positions, first])
        return Selected.of(positions, batch, length, even=True)

    def flops_per_token(self, length: int) -> float:
        """Floating-point operations of forward and backward for one token in a row of `length`, heads not counted.

        A band hides tokens and saves no products: every layer multiplies all queries with all keys of a row.
        """
        inward = 2 if self.layers and isinstance(self.layers[0].feed_forward, StackedGate) else 1
        dense = len(self.layers) * (4 * self.width**2 + (1 + inward) * self.width * self.inner)
        dense += 0 if self.project is None else self.embedding_width * self.width
        distances = 0 if self.sights.positions != "functional" else 2 * self.width * (2 * self.sights.limit + 1)
        far = CONSTANT * len(self.layers) * distances  # from vectors of distances, which are not trained
        return TRAINED * dense + 2 * TRAINED * self.width * len(self.layers) * length + far

    def flops(self, fields: Mapping[str, Tensor], *, want: frozenset[str], positions: Tensor | None) -> float:
        """Floating-point operations of forward and backward, those of words that are read by their characters included."""
        size, reads = shown(fields), self.embeddings.characters
        spelled = 0.0 if reads is None else reads.flops(fields["tokens"], fields.get("characters"))
        return size.tokens * self.flops_per_token(size.length) + spelled
