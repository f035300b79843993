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
        masked = torch.isin(tokens, self.ids)
        text = torch.zeros_like(tokens) if block is None else block.long()
        sums = x.new_zeros(len(tokens), int(tokens.shape[1]) + 1, dtype=torch.float32)
        all_tokens = sums.scatter_add(1, text, torch.ones_like(text, dtype=torch.float32))
        shown = sums.scatter_add(1, text, (~masked).float()).clamp(min=1)
        factors = ((1 - self.usual) * all_tokens / shown).gather(1, text)
        return (x * factors.masked_fill(masked, 0.0)[..., None]).to(x.dtype)
