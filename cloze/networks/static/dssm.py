"""A text as the letter trigrams of its words, through two layers: the network of DSSM."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import Count, Width
from cloze.networks.blocks.inputs.characters import LetterTrigrams
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.network import Network, StateKind, named_sizes, reading_kinds
from cloze.networks.static.bag_of_ngrams import examples_of
from cloze.registry import Given, register


class WordHashing(nn.Module):
    """The first trained map, of trigram counts to `width` numbers: a row for each trigram, and the bias of the sum."""

    def __init__(
        self, *, width: int, trigrams: int, per_word: int, vocab_size: int, spellings: Sequence[str] | None
    ) -> None:
        super().__init__()
        self.rows = LetterTrigrams(
            width=width, size=trigrams, per_word=per_word, vocab_size=vocab_size, spellings=spellings
        )
        self.bias = nn.Parameter(torch.zeros(width))


@register("network", "dssm")
class DSSM(Network):
    """tanh layers over the counts of a text's letter trigrams (DSSM: Huang et al., 2013, §3.1 and §3.2).

    With the count c_t of each trigram t in the words of a text, l₂ = tanh(Σ_t c_t W₂[t] + b₂) and l₃ = tanh(W₃ l₂ + b₃), both
    `inner` wide, and y = tanh(W₄ l₃ + b₄), `width` numbers. The paper's W₁, from words to trigrams, is fixed and has no weights
    here either. `trigrams` and `per_word` are `size` and `per_word` of `letter_trigrams`.

    **States.** `summary` (E, D): y of each example, for one without words that of b₂ alone; `hidden` (B, L, D): y of each word
    as a text of its own; `layers` (1, B, L, D) has nothing else.

    **Start.** Weights are uniform in ±√(6 / (inputs + outputs)) (§3.4), biases zero.

    Parameters: `embeddings.rows.table.weight` (T, I), `embeddings.bias` (I), `layers.0.*` (I, I), `layers.1.*` (D, I).

    Differs: a trigram that a word holds twice counts once in that word; text beyond ASCII is read as bytes.
    """

    sees: ClassVar[Mapping[str, str]] = MappingProxyType({"hidden": "a word sees nothing but itself"})
    sizes = named_sizes(
        "width inner", tiny=(32, 64), mini=(64, 128), small=(128, 300), medium=(128, 300), base=(256, 500), large=(512, 1000)
    )

    def __init__(
        self, *, width: Width = 128, inner: Width = 300, trigrams: Count = 30000, per_word: Count = 50,
        vocab_size: Given[int], spellings: Given[Sequence[str] | None] = None,
    ) -> None:
        super().__init__()
        self.width = width
        self.embeddings = WordHashing(
            width=inner, trigrams=trigrams, per_word=per_word, vocab_size=vocab_size, spellings=spellings
        )
        self.layers: Sequence[nn.Linear] = nn.ModuleList(  # type: ignore[assignment]
            [nn.Linear(inner, inner), nn.Linear(inner, width)]
        )
        self.takes = self.needs | {"block", "characters"}
        self.gives = {**reading_kinds("itself"), "summary": StateKind("E D", "all")}
        self.reset_parameters()

    @property
    def token_tables(self) -> Mapping[str, Any]:
        """None that heads may tie to: a word is the sum of several rows."""
        return {}

    @property
    def layer_state_count(self) -> int:
        """The output."""
        return 1

    def reset_parameters(self) -> None:
        """Redraw every weight from torch's generator."""
        table = self.embeddings.rows.table
        self.embeddings.rows.reset_parameters(math.sqrt(6 / (table.num_embeddings + table.embedding_dim)))
        nn.init.zeros_(self.embeddings.bias)
        for layer in self.layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, block: Tensor | None = None, characters: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L); `characters` (B, L, C) spell words without an id, zeros elsewhere."""
        vectors = self.embeddings.rows(tokens, characters)  # (B, L, I)
        states: dict[str, Tensor] = {}
        if want & {"hidden", "layers"}:
            hidden = self._output(vectors)
            states |= {name: state for name, state in (("hidden", hidden), ("layers", hidden[None])) if name in want}
        if "summary" in want:
            example, inside, exists = examples_of(tokens, block)
            sums = vectors.new_zeros(len(exists), vectors.shape[-1])
            sums = sums.index_add(0, example[inside], vectors.flatten(0, 1)[inside])
            states["summary"] = self._output(sums[exists])
        return states

    def _output(self, sums: Tensor) -> Tensor:
        """Sums of rows (…, I) to the output (…, D)."""
        x = torch.tanh(sums + self.embeddings.bias)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The layers, for every example or, if its words are wanted, for each; sums of rows cost no products."""
        counted.pass_through(self.embeddings)
        rows = size.rows * ("summary" in counted.want) + size.tokens * bool(counted.want & {"hidden", "layers"})
        counted.add(rows, *self.layers)
