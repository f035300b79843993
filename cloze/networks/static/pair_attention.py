"""Say each word of a sentence in the words of another: attention over the other sentence's embeddings (Unicoder)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import NonNegative, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.attention import probabilities
from cloze.networks.blocks.initial import draw
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.network import Network, StateKind, TokenSequence
from cloze.registry import Given, register


@register("network", "pair_attention")
class PairAttention(Network):
    """Cross-lingual word recovery (Huang et al., Unicoder, 2019, §3.2).

    With embeddings x of `tokens` (B, L) and y of `other.tokens` (B, T), the other sentence of the pair:
    score_ij = W [x_i; y_j; x_i ⊙ y_j], and the vector that stands for x_i is Σ_j softmax_j(score_ij) y_j. It is made of
    the other sentence's embeddings alone; x_i takes part in the probabilities, through the product. (Without `product` every x_i
    gets the same vector: the first third of W adds the same to all j.) One pair per row; it is not made for packed rows.

    Gives `vectors` (B, L, D), to be taken by a network in place of embeddings, and `alignment` (B, L, T), the probabilities.
    Parameters: `tokens.weight`, to tie to the other network's table, and `weight` (3D).

    >>> network = PairAttention(width=4, vocab_size=9)
    >>> other = TokenSequence(torch.tensor([[3]]))
    >>> made = network(want=frozenset({"vectors"}), tokens=torch.tensor([[1, 2]]), other=other)
    >>> torch.equal(made["vectors"], network.tokens(torch.tensor([[3, 3]])))
    True
    """

    takes: frozenset[str] = frozenset({"tokens", "other.tokens", "other.block", "summaries"})
    needs: frozenset[str] = frozenset({"tokens", "other.tokens"})

    def __init__(self, *, width: Width, product: bool = True, init_std: NonNegative = 0.02, vocab_size: Given[int]) -> None:
        super().__init__()
        self.width = width
        self.product = product
        self.tokens = nn.Embedding(vocab_size, width)
        self.weight = nn.Parameter(torch.empty(3 * width))
        draw(self.tokens.weight, "normal", init_std)
        draw(self.weight, "normal", init_std)
        self.gives: Mapping[str, StateKind] = {
            "vectors": StateKind("B L D", "order"),
            "alignment": StateKind("B L T", "order"),
        }

    @property
    def token_tables(self) -> dict[str, nn.Embedding]:
        """The token table."""
        return {"tokens": self.tokens}

    def depth_groups(self) -> list[nn.Module]:
        """The table alone."""
        return [self.tokens]

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, other: TokenSequence, summaries: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L) with the sentence `other` (B, T), whose padding gets probability 0."""
        if summaries is not None or len(tokens) != len(other.tokens):
            raise RecipeError(
                "pair_attention reads one pair per row, but these rows are packed. Write `training: {packing: false}`."
            )
        x, y = (F.embedding(ids, self.tokens.weight) for ids in (tokens, other.tokens))
        # The parts of W, (D,) each; their scores (B, L, 1), (B, 1, T) and (B, L, T) add up to (B, L, T).
        within, across, both = self.weight.to(x.dtype).chunk(3)
        scores = (x @ within)[:, :, None] + (y @ across)[:, None, :]
        if self.product:
            scores = scores + (x * both) @ y.transpose(1, 2)
        mask = None if other.block is None else other.block[:, None, :] > 0
        alignment = probabilities(scores, mask, may_see_nothing=True)
        states = {"vectors": alignment @ y, "alignment": alignment}
        return {name: states[name] for name in want}

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """Every token meets every token of the other sentence twice."""
        counted.pass_through(self)
        pairs = counted.fields["tokens"].numel() * counted.fields["other.tokens"].shape[1]
        counted.add_row_products(pairs * self.width * (2 if self.product else 1))
