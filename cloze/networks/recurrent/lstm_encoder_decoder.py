"""The attentional LSTM translator of CoVe, and its encoder alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import BelowOne, Depth, NonNegative, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.attention import probabilities
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.inputs.word_table import WordTable
from cloze.networks.blocks.recurrence.lstm import LSTMLayer
from cloze.networks.blocks.recurrence.recurrent_state import StateCache, lengths_of
from cloze.networks.blocks.recurrence.stepping import State, count_directions, read_directions
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.network import Network, StateKind, TokenSequence, named_sizes, reading_kinds, require_order
from cloze.registry import Given, register


class EncoderStates(NamedTuple):
    """What the encoder made of a text: every layer's states (B, L, D), each layer's last state of both directions (B, D)."""

    layers: list[Tensor]
    last: list[State]


class LSTMEncoder(nn.Module):
    """Layers of LSTM in both directions, each direction half of `width`, with dropout between them."""

    def __init__(
        self, *, layers: int, input_width: int, width: int, forget_bias: float, dropout: float, clock: Clock
    ) -> None:
        super().__init__()

        def layer(number: int, reverse: bool) -> LSTMLayer:
            inputs = width if number else input_width
            return LSTMLayer(
                input_width=inputs, cell=width // 2, biases="two", forget_bias=forget_bias, reverse=reverse, clock=clock
            )

        self.forwards: Sequence[LSTMLayer] = nn.ModuleList(layer(n, False) for n in range(layers))  # type: ignore[assignment]
        self.backwards: Sequence[LSTMLayer] = nn.ModuleList(layer(n, True) for n in range(layers))  # type: ignore[assignment]
        self.dropouts: Sequence[Dropout] = nn.ModuleList(  # type: ignore[assignment]
            Dropout(dropout, clock) for _ in range(layers - 1)
        )

    @property
    def directions(self) -> list[tuple[LSTMLayer, LSTMLayer]]:
        """Both directions of each layer."""
        return list(zip(self.forwards, self.backwards, strict=True))

    def forward(self, x: Tensor, lengths: Tensor | None) -> EncoderStates:
        """(B, L, E) to the states of every layer."""
        layers, ends = [], []
        for number, both in enumerate(self.directions):
            x, last = read_directions(both, self.dropouts[number - 1](x) if number else x, None, lengths)
            layers.append(x)
            ends.append(last)
        return EncoderStates(layers, ends)


class Decoder(nn.Module):
    """Layers of LSTM that write, read the source by attention, and are fed what they made of it (Luong et al., 2015, §3)."""

    def __init__(
        self, *, layers: int, vocab_size: int, embedding_width: int, width: int, biases: bool, forget_bias: float,
        dropout: float, clock: Clock,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, embedding_width)
        self.layers: Sequence[LSTMLayer] = nn.ModuleList(  # type: ignore[assignment]
            LSTMLayer(
                input_width=width if number else embedding_width + width, cell=width, biases="two", forget_bias=forget_bias,
                clock=clock,
            )
            for number in range(layers)
        )
        self.query = nn.Linear(width, width, bias=biases)
        self.attended = nn.Linear(2 * width, width, bias=biases)
        self.dropouts: Sequence[Dropout] = nn.ModuleList(  # type: ignore[assignment]
            Dropout(dropout, clock) for _ in range(layers)
        )

    def forward(
        self, tokens: Tensor, cells: Sequence[State], fed: Tensor, source: Tensor, hidden: Tensor | None
    ) -> tuple[Tensor, Tensor, list[State], Tensor]:
        """Attentional states (B, T, D) and weights (B, T, L) for tokens (B, T); the layers' cells and the last state fed.

        `source` (B, L, D) are the encoder's states, `hidden` (B, 1, L) true where there is padding.
        """
        x = F.embedding(tokens, self.tokens.weight)
        cells, states, weights = list(cells), [], []
        # Drawn for all steps at once: a mask is a function of its place, and each step would be place 0.
        masks = [dropout(source.new_ones(len(tokens), tokens.shape[1], fed.shape[1])) for dropout in self.dropouts]
        for t in range(tokens.shape[1]):
            h = torch.cat([x[:, t], fed.to(x.dtype)], dim=1)
            for number, layer in enumerate(self.layers):
                h = h * masks[number - 1][:, t] if number else h
                out, cells[number] = layer(h[:, None], cells[number])
                h = out[:, 0]
            scores = torch.bmm(self.query(h)[:, None].to(source.dtype), source.transpose(1, 2)).float()
            chosen = probabilities(scores, None if hidden is None else ~hidden).to(source.dtype)
            seen = torch.bmm(chosen, source)[:, 0]
            fed = torch.tanh(self.attended(torch.cat([seen, h.to(seen.dtype)], dim=1))) * masks[-1][:, t]
            states.append(fed)
            weights.append(chosen[:, 0])
        return torch.stack(states, 1), torch.stack(weights, 1), cells, fed


@register("network", "lstm_encoder_decoder")
class LSTMEncoderDecoder(Network):
    """A translation model whose encoder gives features: CoVe (McCann et al., 2017, §3; salesforce/cove, `encoder.py`).

    The encoder is a bidirectional LSTM of `layers` layers, `width` / 2 in each direction, over word vectors of
    `embedding_width` (half of `width` if not given), which `vectors` takes from a table of the recipe and leaves as they are
    unless `tune`; see `WordTable`. The decoder has a table of its own, as many layers of `width`, begins with the encoder's last
    states, and is fed at each step the word before and the attentional state before: α = softmax(H (W₁ h + b₁)),
    h̃ = tanh(W₂ [Hᵀ α; h] + b₂). `attention_biases` has the paper's b₁ and b₂, which the code that trained it leaves out.

    `hidden` (B, L, D) are the states of the encoder's last layer, `summary` (B, D) their mean over a row, `layers` the states of
    every layer, and before them the word vectors twice side by side where `embedding_width` is half of `width`. With
    `decoder: false` there is the encoder alone, and with `words` in it the word vectors stand before the states, [GloVe; CoVe]
    (§4): what a classifier reads, and then the only one of `layers`.

    Everything but the word vectors is drawn from ±`bound`. Parameters: `embeddings.tokens.weight`, `encoder.forwards.n.*`,
    `encoder.backwards.n.*`, `decoder.*`; see `LSTMLayer`.

    >>> network = LSTMEncoderDecoder(width=8, vocab_size=9, clock=Clock()).eval()
    >>> source, target = torch.zeros(2, 5, dtype=torch.long), TokenSequence(torch.zeros(2, 3, dtype=torch.long))
    >>> tuple(network(want=frozenset({"decoder_hidden"}), tokens=source, decoder=target)["decoder_hidden"].shape)
    (2, 3, 8)
    """

    stack = "recurrent"
    summary_of = "mean"
    writes: str | None = "decoder_hidden"
    pooled: ClassVar[bool] = True
    sees: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "hidden": "every token of the encoder sees every other",
            "decoder_hidden": "every token of the decoder sees the encoder's, itself and the tokens to its left",
        }
    )
    sizes = named_sizes("layers width", tiny=(2, 64), mini=(2, 200), small=(2, 400), base=(2, 600), large=(2, 1200))

    def __init__(
        self, *,
        width: Width,
        layers: Depth = 2,
        embedding_width: Width | None = None,
        attention_biases: bool = False,
        dropout: BelowOne = 0.2,
        bound: NonNegative = 0.1,
        forget_bias: float = 0.0,
        decoder: bool = True,
        words: bool = False,
        vectors: str | None = None,
        tune: bool = False,
        vocab_size: Given[int], clock: Given[Clock], tables: Given[Mapping[str, Any] | None] = None,
    ) -> None:
        super().__init__()
        if layers < 1 or width % 2:
            raise RecipeError(f"lstm_encoder_decoder: layers {layers}, width {width}; expected at least one, and an even width.")
        if decoder and words:
            raise RecipeError("lstm_encoder_decoder: words joins the states that a classifier reads; write `decoder: false`.")
        read = embedding_width or width // 2
        self.width = read + width if words else width
        self.words, self.bound, self.vocab_size = words, bound, vocab_size
        self.embeddings = WordTable(
            vocab_size=vocab_size, width=read, vectors=vectors, tune=tune, tables=tables, network="lstm_encoder_decoder"
        )
        self.encoder = LSTMEncoder(
            layers=layers, input_width=read, width=width, forget_bias=forget_bias, dropout=dropout, clock=clock
        )
        self.decoder = None if not decoder else Decoder(
            layers=layers, vocab_size=vocab_size, embedding_width=read, width=width, biases=attention_biases,
            forget_bias=forget_bias, dropout=dropout, clock=clock,
        )  # fmt: skip
        self.takes = frozenset({"tokens", "order", "block"} | ({"decoder.tokens", "decoder.block"} if decoder else set()))
        writes = {"decoder_hidden": StateKind("B T D", "left_to_right")} if decoder else {}
        self.gives = {**reading_kinds("order"), "summary": StateKind("B D", "all"), **writes}
        self.writes = next(iter(writes), None)
        self.reset_parameters()
        name_dropouts(self)

    @property
    def layer_state_count(self) -> int:
        """The words, if two of them are as wide as a layer, and the encoder's layers; with `words` one."""
        return 1 if self.words else len(self.encoder.forwards) + int(2 * self.embeddings.tokens.embedding_dim == self.width)

    def depth_groups(self) -> list[nn.Module]:
        """Word vectors first, then the encoder's layers in order, then the decoder; nothing that is compiled."""
        decoder = [] if self.decoder is None else [nn.ModuleList([self.decoder])]
        return [self.embeddings, *map(nn.ModuleList, self.encoder.directions), *decoder]

    def cache(self) -> StateCache:
        return StateCache()

    def reset_parameters(self) -> None:
        """Redraw every weight from torch's generator."""
        self.embeddings.reset_parameters(lambda weight: nn.init.uniform_(weight, -self.bound, self.bound))
        for part in (self.encoder, self.decoder):
            for module in () if part is None else part.modules():
                if isinstance(module, LSTMLayer):
                    module.reset_parameters(self.bound)
        for module in () if self.decoder is None else (self.decoder.tokens, self.decoder.query, self.decoder.attended):
            for parameter in module.parameters():
                nn.init.uniform_(parameter, -self.bound, self.bound)

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, decoder: TokenSequence | None = None, order: Tensor | str = "open",
        block: Tensor | None = None, cache: StateCache | None = None,
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L) and those of the `decoder`, (B, T), which needs a sequence of its own.

        At padding `decoder_hidden` means nothing. With `cache` the encoder runs once, and the decoder's tokens continue those of
        earlier calls. Rows of several examples are a `RecipeError`.
        """
        require_order("lstm_encoder_decoder", order, "open")
        lengths = lengths_of(block, "lstm_encoder_decoder")
        states, encoded = {}, None
        if want & {"hidden", "summary", "layers"}:
            x = self.embeddings(tokens)
            encoded = self.encoder(x, lengths)
            hidden = torch.cat([x, encoded.layers[-1]], dim=2) if self.words else encoded.layers[-1]
            summary = self.summarise(hidden, tokens=tokens, block=block, summaries=None)
            states = {"hidden": hidden, "summary": summary}
            if "layers" in want:
                twice = [torch.cat([x, x], dim=2).to(hidden.dtype)] if 2 * x.shape[2] == self.width else []
                states["layers"] = torch.stack([hidden] if self.words else [*twice, *encoded.layers])
        if "decoder_hidden" in want:
            states["decoder_hidden"], _ = self._decode(tokens, decoder, block, lengths, cache, encoded)
        return {name: state for name, state in states.items() if name in want}

    def attention(self, *, tokens: Tensor, decoder: TokenSequence, block: Tensor | None = None) -> Tensor:
        """What the decoder looks at while it writes what follows each of its tokens: probabilities (B, T, L)."""
        return self._decode(tokens, decoder, block, lengths_of(block, "lstm_encoder_decoder"), None, None)[1]

    def _decode(
        self, tokens: Tensor, decoder: TokenSequence | None, block: Tensor | None, lengths: Tensor | None,
        cache: StateCache | None, encoded: EncoderStates | None,
    ) -> tuple[Tensor, Tensor]:
        """The decoder's states (B, T, D) and what it looked at (B, T, L)."""
        if self.decoder is None or decoder is None:
            missing = "it has no decoder" if self.decoder is None else "the exercise has no second text; write `answer` in it"
            raise RecipeError(f"lstm_encoder_decoder: decoder_hidden is wanted, but {missing}.")
        if cache is not None and cache.encoded is not None:
            *states_by_layer, (fed,) = cache.layers
            cells: Sequence[State] = [(h, c) for h, c in states_by_layer]
            source = cache.encoded
        else:
            encoded = self.encoder(self.embeddings(tokens), lengths) if encoded is None else encoded
            cells, source = encoded.last, encoded.layers[-1]
            fed = torch.zeros_like(source[:, 0])
        padding = None if block is None else (block == 0)[:, None]
        states, weights, cells, fed = self.decoder(decoder.tokens, cells, fed, source, padding)
        if cache is not None:
            cache.encoded = source
            cache.layers = [*map(list, cells), [fed]]
            cache.length += decoder.tokens.shape[1]
        return states, weights

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The encoder's tokens, then the decoder's where a state of it is wanted."""
        counted.add(size, self.embeddings)
        for both in self.encoder.directions:
            count_directions(counted, both, size)
        decoder, tokens = self.decoder, counted.fields.get("decoder.tokens")
        if decoder is None or "decoder_hidden" not in counted.want or tokens is None:
            return
        counted.pass_through(decoder)  # what it has put out is read with the next token
        counted.add(tokens.numel(), *decoder.layers, decoder.query)
        counted.add_row_products(tokens.numel() * 2 * decoder.query.out_features * size.length)
        counted.add(tokens.numel(), decoder.attended)
