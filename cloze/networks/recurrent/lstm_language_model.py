"""Recurrent language models: words, or their characters, through layers of LSTM (AWD-LSTM, SiATL's, Kim et al.'s)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from cloze.bounds import Depth, Natural, NonNegative, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.hooks import after_layer
from cloze.networks.blocks.inputs.characters import Characters, CharacterTable
from cloze.networks.blocks.recurrence.locked import LockedDropout, Noise, WordDropout
from cloze.networks.blocks.recurrence.lstm import LSTMLayer
from cloze.networks.blocks.recurrence.recurrent_state import StateCache, ends_before, lengths_of, recall_states, remember_states
from cloze.networks.blocks.recurrence.stepping import State
from cloze.networks.choices import RecurrentDropouts
from cloze.networks.clock import Clock
from cloze.networks.network import Network, StateKind, last_positions, named_sizes, reading_kinds, reading_states, require_order
from cloze.registry import Given, PartMark, register


class WordInputs(nn.Module):
    """Vectors of words, from a table or from their characters. Words that fall are zero wherever they stand in the step."""

    def __init__(
        self, vocab_size: int, width: int, characters: Characters | CharacterTable | None, dropout: WordDropout
    ) -> None:
        super().__init__()
        self.tokens = None if characters is not None else nn.Embedding(vocab_size, width)
        self.characters, self.dropout = characters, dropout
        self.takes = frozenset({"tokens"}) if characters is None else frozenset({"tokens", "characters"})

    def reset_parameters(self, bound: float | None = None) -> None:
        """Draw a table between ±`bound`, by default 0.1. `Characters` have drawn their weights: they draw again for a bound."""
        if self.tokens is not None:
            bound = 0.1 if bound is None else bound
            nn.init.uniform_(self.tokens.weight, -bound, bound)
        elif isinstance(self.characters, CharacterTable):
            self.characters.reset_parameters()
        elif self.characters is not None and bound is not None:
            self.characters.reset_parameters(bound)

    def forward(self, tokens: Tensor, characters: Tensor | None) -> Tensor:
        """(B, L) ids to (B, L, E)."""
        if self.tokens is not None:
            return self.dropout.look_up(tokens, self.tokens.weight)
        assert self.characters is not None  # one of the two is there
        vectors: Tensor = self.characters(tokens, characters)
        return vectors


@register("network", "lstm")
class LSTM(Network):
    """`layers` layers of LSTM from left to right, whose state goes on from row to row of a lane (`streams`).

    AWD-LSTM (Merity et al., 2018): three layers, the last one as wide as the table (`width`), the others `inner`, with five
    dropouts. SiATL (Chronopoulou et al., 2019): `down` maps the last layer, of width `inner` too, to `width`. Kim et al.
    (2016): `embedding: char_cnn` in place of a table, and nothing locked. `noise` is the standard deviation of what is added to
    every number of a word's vector while training (SiATL's language model; alexandra-chron/siatl `layers.py`), before
    `dropout.input`.

    `truncate`: a text is read whole, but gradients end after every so many tokens (BPT3C: Howard and Ruder, 2018, §3.3).
    `reuse`: how many tokens at the end of a row the next one of the lane brings again; the state that is carried is the one
    before them. `biases: two` is torch's. With a `bound` everything, characters too, is drawn from ±`bound`; else the table
    from ±0.1, layers as torch does. `undropped` is the last layer before its dropout, for penalties.

    Parameters: `embeddings.tokens.weight`, `layers.n.*` (see `LSTMLayer`), `down.weight`, `down.bias`.

    >>> network = LSTM(layers=2, width=8, inner=12, vocab_size=10, clock=Clock()).eval()
    >>> states = network(want=frozenset({"hidden", "carry"}), tokens=torch.zeros(2, 5, dtype=torch.long))
    >>> tuple(states["hidden"].shape), tuple(states["carry"]["cell.0"].shape)
    ((2, 5, 8), (2, 12))
    """

    stack = "recurrent"
    carries = True
    summary_of = "last"
    pooled: ClassVar[bool] = True
    sizes = named_sizes(
        "layers width inner", tiny=(2, 128, 192), mini=(2, 256, 512), small=(3, 300, 650), base=(3, 400, 1150),
        large=(3, 512, 2048),
    )

    def __init__(
        self, *,
        layers: Depth, width: Width, inner: Width | None = None,
        down: bool = False,
        reuse: Natural = 0,
        biases: Literal["one", "two"] = "two",
        forget_bias: float = 0.0,
        noise: NonNegative = 0.0,
        dropout: RecurrentDropouts = RecurrentDropouts(),
        bound: NonNegative | None = None,
        truncate: Natural = 0,
        embedding: Annotated[Characters | None, PartMark("embedding")] = None,
        vocab_size: Given[int], clock: Given[Clock],
    ) -> None:
        super().__init__()
        if layers < 1 or reuse < 0:
            raise RecipeError(f"lstm: layers is {layers} and reuse is {reuse}; expected at least one layer and 0 tokens or more.")
        if embedding is not None and dropout.word:
            raise RecipeError(
                "lstm: dropout.word drops rows of a table, and words read by their characters have none.\n"
                "  Leave it at 0: --set network.dropout.word=0"
            )
        self.width, self.inner, self.reuse, self.bound = width, inner or width, reuse, bound
        self.vocab_size, self.truncate = vocab_size, truncate
        self.embeddings = WordInputs(vocab_size, width, embedding, WordDropout(dropout.word, clock))
        kind = LockedDropout if dropout.locked else Dropout
        between = LockedDropout if (dropout.locked if dropout.locked_between is None else dropout.locked_between) else Dropout
        cells = [self.inner] * (layers - 1) + [self.inner if down else width]
        inputs = [width if embedding is None else int(embedding.width), *cells]
        self.layers: Sequence[LSTMLayer] = nn.ModuleList(  # type: ignore[assignment]
            LSTMLayer(
                input_width=inputs[number], cell=cell, forget_bias=forget_bias, biases=biases, weight_dropout=dropout.weight,
                clock=clock,
            )
            for number, cell in enumerate(cells)
        )
        self.around = nn.ModuleList()  # objects that every pass calls
        self.down = nn.Linear(cells[-1], width) if down else None
        self.noise = Noise(noise, "noise", clock)
        self.input_dropout = kind(dropout.input, clock)
        self.hidden_dropouts: Sequence[Dropout] = nn.ModuleList(  # type: ignore[assignment]
            between(dropout.hidden, clock) for _ in cells[1:]
        )
        self.final_dropout = kind(dropout.output, clock)
        self.takes = self.embeddings.takes | {"order", "block", "restarts", "summaries"}
        self.gives = {**reading_kinds("left_to_right"), "undropped": StateKind("B L W", "left_to_right")}
        self.widths = {"undropped": cells[-1]}
        self.reset_parameters()
        name_dropouts(self)

    @property
    def layer_state_count(self) -> int:
        """Of the words and the layers, those that are as wide as the last."""
        return sum(width == self.width for width in (self.layers[0].input.in_features, *self.layer_widths[:-1])) + 1

    @property
    def layer_widths(self) -> list[int]:
        """The widths of the layers' outputs, which adapters read."""
        return [layer.width for layer in self.layers]

    def reset_parameters(self) -> None:
        """Redraw every weight from torch's generator; characters draw their own unless there is a bound."""
        self.embeddings.reset_parameters(self.bound)
        for layer in self.layers:
            layer.reset_parameters(self.bound)
        if self.down is not None and self.bound is None:
            self.down.reset_parameters()
        elif self.down is not None and self.bound is not None:
            for parameter in self.down.parameters():
                nn.init.uniform_(parameter, -self.bound, self.bound)

    def cache(self) -> StateCache:
        return StateCache()

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, order: Tensor | str = "left_to_right", block: Tensor | None = None,
        restarts: Tensor | None = None, summaries: Tensor | None = None, characters: Tensor | None = None,
        carry: Mapping[str, Tensor] | None = None, cache: StateCache | None = None,
    ) -> dict[str, Any]:
        """The wanted states of tokens (B, L): `hidden` (B, L, D), `undropped` (B, L, W), as wide as the last layer, `layers`
        (N, B, L, D), the words and the layers that are as wide as `hidden`, `summary` (E, D), the last token of each row unless
        `summaries` says otherwise, and `carry`, h and c of every layer, detached, for the rows that follow in the lanes.

        `cache`, instead of a carry, remembers the tokens read with it. Rows of several examples are a `RecipeError`.
        """
        require_order("lstm", order, "left_to_right")
        lengths = lengths_of(block, "lstm")
        ends = ends_before(self.reuse, tokens, lengths) if "carry" in want else None
        before = recall_states(carry, restarts, len(self.layers)) if cache is None else [(h, c) for h, c in cache.layers]
        x = self.input_dropout(self.noise(self.embeddings(tokens, characters)))
        passed, after = [x], []  # (B, L, ·), as wide as the words or their layer; h (B, H) and c (B, C) of each layer
        for number, layer in enumerate(self.layers):
            x, state = self._through(layer, x, before[number] if before else None, lengths, ends)
            x = after_layer(self.around, number, x)
            after.append(state)
            passed.append(x)
            if number < len(self.hidden_dropouts):
                x = self.hidden_dropouts[number](x)
        hidden = self.final_dropout(x)
        hidden = hidden if self.down is None else self.down(hidden)
        if cache is not None:
            cache.length += tokens.shape[1]
            cache.layers = [list(state) for state in after]
        if "summary" in want and summaries is None:
            summaries = last_positions(tokens, block)
        states: dict[str, Any] = reading_states(want, hidden, passed, summaries)
        if "undropped" in want:
            states["undropped"] = x
        if "carry" in want:
            states["carry"] = remember_states(after)
        return states

    def _through(
        self, layer: LSTMLayer, x: Tensor, state: State | None, lengths: Tensor | None, ends: Tensor | None
    ) -> tuple[Tensor, State]:
        """Tokens (B, L, I) through one layer, gradients ending after every `truncate` tokens of a whole text."""
        if not (self.truncate and self.training and ends is None):
            outputs: tuple[Tensor, State] = layer(x, state, lengths, ends)
            return outputs
        read = []
        for start in range(0, x.shape[1], self.truncate):
            piece = x[:, start : start + self.truncate]
            # How much of each row lies in the piece: a row that has ended has length 0, and its state stays as it is.
            piece_lengths = None if lengths is None else (lengths - start).clamp(0, piece.shape[1])
            state = None if state is None else tuple(part.detach() for part in state)
            out, state = layer(piece, state, piece_lengths)
            read.append(out)
        assert state is not None  # a row has at least one token
        return torch.cat(read, dim=1), state
