"""Two LSTMs that meet at a hole: one vector for all of a sentence but one word (context2vec)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import BelowOne, Width
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.inputs.word_table import WordTable
from cloze.networks.blocks.recurrence.lstm import LSTMLayer
from cloze.networks.blocks.recurrence.recurrent_state import lengths_of
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.network import Network, StateKind, named_sizes, reading_kinds, reading_states, require_order
from cloze.registry import Given, register


@register("network", "two_sided_lstm")
class TwoSidedLSTM(Network):
    """A vector of the context of every token, left and right, without the token itself (Melamud et al., 2016, §2).

    Two LSTMs of `inner` numbers with a table each, one from the left, one from the right. Of token i the left state behind token
    i - 1 and the right state behind token i + 1 go through `mix` numbers with a ReLU (twice `inner` if not given) to `width`. At
    the ends of a row, where [BOS] and [EOS] stand, the missing state is zero. `hidden` is the same state as `context`.

    Tables are drawn with deviation 1/√V, V their rows, as in the authors' code (`context_models.py`); `vectors` names a table of
    the recipe that both begin with, see `WordTable`. Parameters: `embeddings.tokens.weight` (left),
    `right_embeddings.tokens.weight`, `left.*`, `right.*`, `mix.*`, `out.*`.

    >>> network = TwoSidedLSTM(width=6, inner=4, vocab_size=9, clock=Clock())
    >>> tuple(network(want=frozenset({"context"}), tokens=torch.tensor([[1, 2, 3]]))["context"].shape)
    (1, 3, 6)
    """

    stack = "recurrent"
    pooled: ClassVar[bool] = True
    sees: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"hidden": "every token sees the tokens to its left and to its right, not itself"}
    )
    sizes = named_sizes("width", tiny=(64,), mini=(128,), small=(300,), base=(600,), large=(1000,))

    def __init__(
        self, *,
        width: Width, embedding_width: Width | None = None, inner: Width | None = None,
        mix: Width | None = None,
        dropout: BelowOne = 0.0,
        forget_bias: float = 0.0,
        vectors: str | None = None,
        tune: bool = False,
        vocab_size: Given[int], clock: Given[Clock], tables: Given[Mapping[str, Any] | None] = None,
    ) -> None:
        super().__init__()
        self.width, self.inner = width, inner or width
        self.vocab_size = vocab_size
        read = embedding_width or self.inner

        def table() -> WordTable:
            return WordTable(
                vocab_size=vocab_size, width=read, vectors=vectors, tune=tune, tables=tables, network="two_sided_lstm"
            )

        def layer(reverse: bool) -> LSTMLayer:
            return LSTMLayer(input_width=read, cell=self.inner, forget_bias=forget_bias, reverse=reverse, clock=clock)

        self.embeddings, self.right_embeddings = table(), table()
        self.left, self.right = layer(reverse=False), layer(reverse=True)
        self.mix = nn.Linear(2 * self.inner, mix or 2 * self.inner)
        self.out = nn.Linear(self.mix.out_features, width)
        self.dropout = Dropout(dropout, clock)
        self.takes = frozenset({"tokens", "order", "block", "summaries"})
        self.gives = {**reading_kinds("all_but_itself"), "context": StateKind("B L D", "all_but_itself")}
        self.reset_parameters()
        name_dropouts(self)

    @property
    def layer_state_count(self) -> int:
        """What surrounds a word."""
        return 1

    def depth_groups(self) -> list[nn.Module]:
        """Both tables first, then both LSTMs, then what mixes them."""
        return [
            nn.ModuleList([self.embeddings, self.right_embeddings]), nn.ModuleList([self.left, self.right]),
            nn.ModuleList([self.mix, self.out]),
        ]

    def reset_parameters(self) -> None:
        """Redraw every weight from torch's generator."""
        for table in (self.embeddings, self.right_embeddings):
            table.reset_parameters(lambda weight: nn.init.normal_(weight, std=1 / math.sqrt(self.vocab_size)))
        for part in (self.left, self.right, self.mix, self.out):
            part.reset_parameters()

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, order: Tensor | str = "open", block: Tensor | None = None,
        summaries: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L): `context` (B, L, D), which is `hidden`, too, `layers` (1, B, L, D), the same, and
        `summary` (E, D), what is around the first token of each row unless `summaries` says otherwise.

        Rows of several examples are a `RecipeError`.
        """
        require_order("two_sided_lstm", order, "open")
        lengths = lengths_of(block, "two_sided_lstm")
        left, _ = self.left(self.dropout(self.embeddings(tokens)), None, lengths)
        right, _ = self.right(self.dropout(self.right_embeddings(tokens)), None, lengths)
        around = torch.cat([F.pad(left[:, :-1], (0, 0, 1, 0)), F.pad(right[:, 1:], (0, 0, 0, 1))], dim=2)
        context = self.out(F.relu(self.mix(around)))
        states = reading_states(want, context, [context], summaries)
        return {**states, "context": context} if "context" in want else states

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """Both LSTMs over every token, then what mixes them."""
        sides = counted.branch(), counted.branch()
        sides[0].add(size, self.embeddings, self.left)
        sides[1].add(size, self.right_embeddings, self.right)
        counted.add_branches(*sides)
        counted.add(size, self.mix, self.out)
