"""When each depth group is trained: from the top down, one after the other, or as in SiATL.

`every` is the length of a stage: epochs, or with `of: budget` a share of the budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from cloze.bounds import Count, Depth, Natural, Positive
from cloze.errors import RecipeError
from cloze.registry import register
from cloze.training.schedule.freezing import Only

Of = Literal["epochs", "budget"]


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Training divided into stages of equal length. `opens`: a group that is trained stays trained, and in the end all are."""

    opens: ClassVar[bool] = False

    every: Positive = 1.0
    of: Of = "epochs"

    def __post_init__(self) -> None:
        if not self.every > 0:
            raise RecipeError(f"train: every {self.every}. Expected a number of {self.of} above 0.")

    def passed(self, epochs: float, share: float) -> int:
        """How many stages are complete."""
        return math.floor((epochs if self.of == "epochs" else share) / self.every + 1e-9)


@register("unfreezing", "gradual")
@dataclass(frozen=True, kw_only=True)
class Gradual(Stages):
    """The heads first, then with every stage one more depth group from the top (Howard and Ruder, 2018, §3.3).

    `together`: after so many stages all remaining groups are unfrozen at once. The authors' code has 2: the heads, then the top
    layer, then everything.
    """

    opens: ClassVar[bool] = True

    together: Count | None = None

    def trainable(self, groups: int, *, epochs: float, share: float) -> frozenset[int]:
        """The heads and the groups unfrozen so far."""
        passed = self.passed(epochs, share)
        if self.together is not None and passed >= self.together:
            passed = groups
        return frozenset(range(max(groups - passed, 0), groups + 1))


@register("unfreezing", "chain")
@dataclass(frozen=True, kw_only=True)
class Chain(Stages):
    """The heads alone, then each depth group alone from the bottom up, then everything (chain-thaw; Felbo et al., 2017)."""

    def trainable(self, groups: int, *, epochs: float, share: float) -> frozenset[int]:
        """One group, or in the end all of them."""
        passed = self.passed(epochs, share)
        if passed > groups:
            return frozenset(range(groups + 1))
        return frozenset({groups if passed == 0 else passed - 1})


@register("unfreezing", "alone")
@dataclass(frozen=True)
class Alone:
    """One depth group alone, without the heads: `embeddings`, or the number of a layer, from the top if negative.

    Stages that train one group after the other are chain-thaw (Felbo et al., 2017, §3.3); the recipe `chain_thaw` has them.
    """

    opens: ClassVar[bool] = False

    group: str | int

    def trainable(self, groups: int, *, epochs: float, share: float) -> frozenset[int]:
        """The named group."""
        return Only((self.group,)).trainable(groups, epochs=epochs, share=share) - {groups}


@register("unfreezing", "all_but")
@dataclass(frozen=True)
class AllBut:
    """The heads and all depth groups but the named ones: `embeddings`, or the number of a layer, from the top if negative.

    With `embeddings`, tokens keep the vectors of the checkpoint (Sun et al., VideoBERT, 2019, §4.3).
    """

    opens: ClassVar[bool] = False

    groups: tuple[str | int, ...]

    def trainable(self, groups: int, *, epochs: float, share: float) -> frozenset[int]:
        """All groups without the named ones, and the heads."""
        return frozenset(range(groups + 1)) - (Only(self.groups).trainable(groups, epochs=epochs, share=share) - {groups})


@register("unfreezing", "sequential")
@dataclass(frozen=True, kw_only=True)
class Sequential(Stages):
    """The heads; after `layers` stages all layers too; after `embeddings` stages everything (Chronopoulou et al., 2019).

    The defaults are those of the authors' code: layers from the second epoch on, embeddings from the fifth.
    Differs: there a tied embedding is also the decoder's weight and is trained with the layers; here it is an embedding.
    """

    opens: ClassVar[bool] = True

    layers: Depth = 1
    embeddings: Natural = 4

    def trainable(self, groups: int, *, epochs: float, share: float) -> frozenset[int]:
        """The heads, and the groups unfrozen so far."""
        passed = self.passed(epochs, share)
        joined = (set(range(1, groups)) if passed >= self.layers else set()) | ({0} if passed >= self.embeddings else set())
        return frozenset({groups, *joined})
