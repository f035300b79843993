"""Vectors of tokens without those of [MASK], as if dropout had hit masked tokens (ESM)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cloze.errors import RecipeError
from cloze.networks.blocks.visibility import AnyOrder, Restricted


class WithoutMasks(nn.Module):
    """The vectors of [MASK] become zero, the others of a text are multiplied by (1 - `usual`) / (1 - share of [MASK] in it).

    `ids` (N,), those of [MASK], follow from the tokenizer and are no part of a checkpoint (facebookresearch/esm, `model/esm2.py`,
    `token_dropout`).
    """

    def __init__(self, ids: Sequence[int], usual: float) -> None:
        super().__init__()
        self.usual = usual
        self.ids: Tensor
        self.register_buffer("ids", torch.tensor(ids, dtype=torch.long), persistent=False)

    def forward(self, x: Tensor, tokens: Tensor, block: Tensor | None, order: AnyOrder) -> Tensor:
        """(B, L, E) to (B, L, E). Raises `RecipeError` if not all tokens of a text see each other."""
        if (order.order if isinstance(order, Restricted) else order) is not order or order != "open":
            raise RecipeError(
                "embedding.table_without_masks: the vectors depend on how many tokens of the whole text are masked; a network "
                "that reads in another order than `open` would see tokens that it must not see. Write `order: open`."
            )
        masked = (tokens[..., None] == self.ids).any(-1)
        text = torch.zeros_like(tokens) if block is None else block
        same = (text[:, :, None] == text[:, None, :]).float()  # (B, L, L)
        shown = (same @ (~masked).float()[..., None]).clamp(min=1)
        factors = (1 - self.usual) * same.sum(-1, keepdim=True) / shown
        return (x * factors.masked_fill(masked[..., None], 0.0)).to(x.dtype)
