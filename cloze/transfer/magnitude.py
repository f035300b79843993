"""`change: [magnitude: {share: 0.6}]`: the smallest weights are zero and stay zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne
from cloze.networks.blocks.computed import compute_weight
from cloze.registry import register
from cloze.transfer.change import Change, Tensors, Transition
from cloze.transfer.maps import chosen_maps


class Mask(nn.Module):
    """W ⊙ M: `kept` is M (out, in), false where a weight is pruned. `rows` are those of W that are pruned by `change`."""

    kept: Tensor

    def __init__(self, weight: Tensor, rows: slice, change: Magnitude) -> None:
        super().__init__()
        self.rows, self.change = rows, change
        self.register_buffer("kept", torch.ones_like(weight, dtype=torch.bool))

    def forward(self, weight: Tensor) -> Tensor:
        """(out, in) to (out, in)."""
        return weight * self.kept

    def of(self, weight: Tensor) -> Tensor:
        """The mask that prunes the share of weights with the smallest magnitudes, (out, in)."""
        sizes = weight[self.rows].abs().flatten()
        kept = torch.ones_like(sizes, dtype=torch.bool)
        kept[sizes.argsort(stable=True)[: round(self.change.share * len(sizes))]] = False
        mask = torch.ones_like(weight, dtype=torch.bool)
        mask[self.rows] = kept.view_as(mask[self.rows])
        return mask


@register("change", "magnitude")
@dataclass(frozen=True)
class Magnitude(Change):
    """Magnitude pruning (Han et al., 2015, §3): of every chosen map the `share` of smallest weights is set to zero.

    The share is that of each map, not of all together (Gordon et al., 2020, §2). The checkpoint decides which weights are pruned;
    the others are trained. `on` names linear maps as in `lora`. Export writes the zeros.
    """

    share: BelowOne
    on: tuple[str, ...] | None = None

    lasts: ClassVar[bool] = True

    def apply(self, network: Any) -> None:
        """Put a mask on every chosen map; it prunes nothing yet."""
        for linear, rows in chosen_maps(network, self.on, of="magnitude"):
            compute_weight(linear, "magnitude", Mask(linear.weight, rows, self))

    def weights(self, state: Tensors, transition: Transition) -> Tensors:
        """The same tensors, and the masks that they give."""
        masks = {
            f"{name}.kept": module.of(state[f"{name.partition('.changes.')[0]}.weight"])
            for name, module in transition.here.named_modules() if isinstance(module, Mask) and module.change == self
        }
        return {**state, **masks}
