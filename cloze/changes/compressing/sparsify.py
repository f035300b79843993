"""`change: [sparsify: {share: 0.6}]`: the smallest weights are zero and stay zero."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne
from cloze.changes.change import Change, Tensors, Transition
from cloze.changes.maps import chosen_maps, parts_of
from cloze.errors import CheckpointError
from cloze.networks.blocks.computed import compute_weight
from cloze.networks.clock import Clock, clock_of
from cloze.registry import Live, register

By = Literal["magnitude", "random"]
STAIRS = 100  # the masks of a scheduled share are computed again after every hundredth of the budget


class PruningMask(nn.Module):
    """W ⊙ M: `kept` is M (out, in), false where a weight is pruned. `parts` are rows of W, each of which loses its share.

    `share` is a number, or a function of the share of the budget spent, which is that of the `clock`. In training, the mask is
    computed from the weights whenever another hundredth of the budget is spent; `stair` is the last one. Pruned weights stay
    pruned, because they count as zeros.
    """

    kept: Tensor
    stair: Tensor

    def __init__(
        self, weight: Tensor, parts: Sequence[slice], share: float | Callable[[float], float], by: By, *, clock: Clock | None,
        seed: int,
    ) -> None:
        super().__init__()
        self.parts, self.share, self.by, self.clock, self.seed = parts, share, by, clock, seed
        self.register_buffer("kept", torch.ones_like(weight, dtype=torch.bool))
        if callable(share):
            self.register_buffer("stair", torch.zeros((), dtype=torch.int64, device=weight.device))

    def forward(self, weight: Tensor) -> Tensor:
        """(out, in) to (out, in)."""
        if self.training and callable(self.share) and self.clock is not None:
            stair = int(float(self.clock.share) * STAIRS + 1e-6)
            if stair > int(self.stair):
                self.stair.fill_(stair)
                self.kept.copy_(self.of(weight.detach() * self.kept, stair / STAIRS))
        return weight * self.kept

    def of(self, weight: Tensor, spent: float = 0.0) -> Tensor:
        """The mask that prunes in each part the share of weights with the smallest magnitudes, (out, in), or a random one."""
        share = self.share(spent) if callable(self.share) else self.share
        generator = torch.Generator().manual_seed(self.seed)
        mask = torch.ones_like(weight, dtype=torch.bool)
        for rows in self.parts:
            sizes = weight[rows].abs().flatten()
            sizes = torch.rand(sizes.shape, generator=generator).to(sizes.device) if self.by == "random" else sizes
            selection = torch.ones_like(sizes, dtype=torch.bool)
            selection[sizes.argsort(stable=True)[: int(share * len(sizes) + 1e-6)]] = False
            mask[rows] = selection.view_as(weight[rows])
        return mask


@register("change", "sparsify")
@dataclass(frozen=True)
class Sparsify(Change):
    """Pruning of weights (Han et al., 2015, §3; Gordon et al., 2020, §2): of every chosen map, a `share` is set to zero.

    The share is that of each map, not of all together; of stacked projections, queries, keys and values lose it each, as they are
    maps of their own in the published models. `by: magnitude` prunes the smallest weights, `random` any (for
    comparison). `on` names linear maps as in `lora`; with `embeddings`, the table of tokens is pruned, too, and of a network of
    vectors, such as `word_vectors`, every table. The checkpoint decides which weights are pruned; the others are trained. Export
    writes the zeros.

    A share with a schedule grows while training: `{cubic: {start: 0, end: 0.6, until: 0.5}}` (Zhu and Gupta, 2017, §3). Such a
    network may start at random.

    Differs: while a share grows, masks change after every hundredth of the budget, and what is pruned stays pruned. TensorFlow's
    library, which Gordon et al. use (contrib.model_pruning), computes them every ten steps from the values behind the masks, so
    that a pruned weight can come back when others have become smaller.
    """

    share: Live[BelowOne]
    on: tuple[str, ...] | None = None
    embeddings: bool = False
    by: By = "magnitude"

    lasts: ClassVar[bool] = True
    masks: ClassVar[bool] = True

    @property
    def needs_checkpoint(self) -> bool:
        """Weights that start at random have no order yet; a share that grows finds one."""
        return not callable(self.share)

    def apply(self, network: Any) -> None:
        """Put a mask on every chosen map; it prunes nothing yet."""
        share: Any = self.share
        tables = network.compressible if self.embeddings else ()
        chosen: list[tuple[Any, Sequence[slice]]] = [
            (linear, parts_of(network, linear) if rows == slice(None) else (rows,))
            for linear, rows in chosen_maps(network, self.on, of="sparsify", tables=tables)
        ]
        clock = clock_of(network)
        if callable(share) and clock is None:
            raise CheckpointError(
                f"sparsify: {type(network).__name__} has no clock, so the share cannot follow a schedule.\n"
                "  Write a number, such as share: 0.5."
            )
        chosen += [(table, (slice(None),)) for table in tables]
        for number, (owner, parts) in enumerate(chosen):
            seed = zlib.crc32(f"sparsify {number}".encode())
            weight = next(owner.parameters())
            compute_weight(owner, "sparsify", PruningMask(weight, parts, share, self.by, clock=clock, seed=seed))

    def weights(self, state: Tensors, transition: Transition) -> Tensors:
        """The same tensors, and the masks that they give."""
        masks = {
            f"{name}.kept": module.of(state[f"{name.partition('.changes.')[0]}.weight"])
            for name, module in transition.new_network.named_modules()
            if isinstance(module, PruningMask) and f"{name}.kept" not in state
        }
        return {**state, **masks}
