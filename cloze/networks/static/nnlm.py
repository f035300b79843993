"""A network over a window of previous words: the first neural language model (NNLM)."""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import BelowOne, Count, NonNegative, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.initial import initialise
from cloze.networks.blocks.stack import Cache
from cloze.networks.choices import Normal
from cloze.networks.clock import Clock
from cloze.networks.network import Network, named_sizes, reading_kinds, reading_states
from cloze.registry import Given, register


@register("network", "window")
class Window(Network):
    """tanh(d + H x) over the `before` last words x, the nearest first (Bengio et al., 2003, §2).

    `hidden` at a token is what predicts the next one: `width` units h, and with `direct` x itself behind them, so that an untied
    output table with biases, `token_prediction: {}`, is the paper's [U W] and b. Before its first token an example goes on with
    that token: with the frame "[BOS] {A}" the words at the beginning are read after [BOS]s, as many as the window needs.

    `before` is n - 1 of the paper, `embedding_width` m, `width` h. Parameters: `embeddings.weight` (V, m), `inner.weight`
    (h, (n-1)m), `inner.bias` (h).
    """

    sizes = named_sizes(
        "width embedding_width", tiny=(32, 32), mini=(50, 30), small=(100, 60), medium=(200, 100), base=(500, 200),
        large=(1000, 300),
    )
    gives = MappingProxyType(reading_kinds("left_to_right"))
    takes: frozenset[str] = frozenset({"tokens", "block", "position_ids", "summaries"})
    pooled: ClassVar[bool] = True  # the last token sees the end of a text alone

    def __init__(
        self, *,
        before: Count,
        embedding_width: Width, width: Width,
        direct: bool = False,
        dropout: BelowOne = 0.0,
        init_std: NonNegative = 0.1,
        vocab_size: Given[int], clock: Given[Clock],
    ) -> None:
        super().__init__()
        if before < 1 or embedding_width < 1 or width < 0 or not (width or direct):
            raise RecipeError(
                f"window: before {before}, embedding_width {embedding_width}, width {width}, direct {str(direct).lower()}; "
                "expected at least one word before, an embedding, and a width above 0 or `direct: true`."
            )
        self.before = before
        self.width = width + (before * embedding_width if direct else 0)
        self.direct = direct
        self.embeddings = nn.Embedding(vocab_size, embedding_width)
        self.inner = nn.Linear(before * embedding_width, width) if width else None
        self.dropout = Dropout(dropout, clock)
        initialise(self, Normal(std=init_std))
        name_dropouts(self)

    @property
    def layer_state_count(self) -> int:
        """The hidden layer."""
        return 1

    def depth_groups(self) -> list[nn.Module]:
        """The table, then the hidden layer."""
        return [self.embeddings] if self.inner is None else [self.embeddings, self.inner]

    def cache(self) -> Cache:
        """Room for what was read, for generation."""
        return Cache(1)

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, block: Tensor | None = None, position_ids: Tensor | None = None,
        summaries: Tensor | None = None, cache: Cache | None = None,
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L): `hidden` (B, L, D), `layers` (1, B, L, D), the same, `summary` (E, D), the state of
        each example's first token.

        `block` is not needed: a token reads only what stands before it in its example, which `position_ids` tell. `cache` keeps
        the embeddings of the tokens read with it.
        """
        embedded = F.embedding(tokens, self.embeddings.weight)
        past = 0 if cache is None else cache.length
        if cache is not None:
            embedded = torch.cat([*(vectors[:, 0] for vectors in cache.layers[0]), embedded], dim=1)
            cache.layers[0][:] = [embedded[:, None]]
        columns = torch.arange(past, past + tokens.shape[1], device=tokens.device)
        # how many tokens of its example stand before each
        since = columns.expand(tokens.shape) if position_ids is None else torch.minimum(position_ids, columns)
        row = torch.arange(len(tokens), device=tokens.device)[:, None]
        seen = [embedded[row, columns - since.clamp(max=distance)] for distance in range(self.before)]
        x = self.dropout(torch.cat(seen, dim=-1))
        parts = [] if self.inner is None else [torch.tanh(self.inner(x))]
        hidden = torch.cat([*parts, x], dim=-1) if self.direct else parts[0]
        return reading_states(want, hidden, [hidden], summaries)
