"""Which parameters move, how fast and when: the ladder of depth, and what climbs it.

A ladder has a rung for every depth group of a network, embeddings first, and one on top for all heads. An `Unfreezing` says which
rungs move at a given time, `LayerwiseRates` how fast each is. Both know numbers only, so they fit every network; the parts are in
`cloze.transfer`. A rung that does not move has no gradients: no update, no weight decay, no moments, bit for bit what it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from cloze.errors import RecipeError


class Unfreezing(Protocol):
    """Who moves when (kind `unfreezing`)."""

    def moving(self, groups: int, *, epochs: float, share: float) -> frozenset[int]:
        """The rungs of a network with `groups` depth groups that move when so much is spent; rung `groups` is the heads.

        A pure function, so that a run that goes on after a break goes on alike.
        """


class LayerwiseRates(Protocol):
    """How fast each rung moves (kind `layerwise`)."""

    def factors(self, groups: int) -> Sequence[float]:
        """`groups` + 1 multiples of the learning rate, embeddings first, heads last."""


@dataclass(frozen=True)
class Everything:
    """All rungs move all the time."""

    def moving(self, groups: int, *, epochs: float, share: float) -> frozenset[int]:
        """Every rung."""
        return frozenset(range(groups + 1))


@dataclass(frozen=True)
class Only:
    """The heads, and the depth groups that are named: `embeddings`, or the number of a layer, from the top if negative.

    No name: the network stays what it is.
    """

    names: tuple[str | int, ...] = ()

    def moving(self, groups: int, *, epochs: float, share: float) -> frozenset[int]:
        """The named rungs, and that of the heads."""
        return frozenset({groups, *(self._rung(name, groups) for name in self.names)})

    def _rung(self, name: str | int, groups: int) -> int:
        if name == "embeddings":
            return 0
        layers = groups - 1
        try:
            number = int(name)
        except ValueError:
            number = layers
        if not -layers <= number < layers:
            raise RecipeError(
                f"train: {name!r} is no depth group. Expected: embeddings, or layers 0 … {layers - 1}, from above -1 … {-layers}."
            )
        return 1 + number % layers


def unfreezing_of(told: Any) -> Unfreezing:
    """What a recipe's `train:` says: `all`, `none`, names of depth groups, or a part that is already built."""
    if told == "all":
        return Everything()
    if told == "none":
        return Only()
    if isinstance(told, str):
        return Only((told,))
    return Only(tuple(told)) if isinstance(told, (list, tuple)) else told


def ladder(network: Any) -> list[list[nn.Parameter]]:
    """The parameters of a network by depth group.

    One that several groups share is in the lowest of them; one that is in no group goes with what comes before it in the network
    (a projection behind the embeddings, a last norm), or with the embeddings.
    """
    groups = network.depth_groups()
    place: dict[int, int] = {}
    for number, group in enumerate(groups):
        for parameter in group.parameters():
            place.setdefault(id(parameter), number)
    rungs: list[list[nn.Parameter]] = [[] for _ in groups]
    last = 0
    for parameter in network.parameters():
        last = place.get(id(parameter), last)
        rungs[last].append(parameter)
    return rungs


class Movement:
    """Who moves and how fast in one module: its networks by their ladders, all else as heads.

    `train` and `layerwise` say it, by the network's name and for all networks alike. What never needed a gradient never gets one.
    Where the module is wrapped for several processes (`wrapped`) gradients are made as always, and dropped before the update.
    """

    def __init__(
        self, module: nn.Module, networks: Mapping[str, Any], *, train: Mapping[str, Unfreezing] | None = None,
        layerwise: LayerwiseRates | None = None, wrapped: bool = False,
    ) -> None:
        self.train = {name: (train or {}).get(name, Everything()) for name in networks}
        self.wrapped = wrapped
        movable = {id(p) for p in module.parameters() if p.requires_grad}
        seen: set[int] = set()
        self.rungs: dict[tuple[str, int], list[nn.Parameter]] = {}
        self.groups: dict[str, int] = {}
        self._factors: dict[int, float] = {}
        for name, network in networks.items():
            rungs = ladder(network)
            self.groups[name] = len(rungs)
            factors = [1.0] * (len(rungs) + 1) if layerwise is None else _checked(layerwise, len(rungs))
            for number, rung in enumerate(rungs):
                own = [p for p in rung if id(p) in movable and id(p) not in seen]
                seen.update(map(id, own))
                self.rungs[name, number] = own
                self._factors.update({id(p): factors[number] for p in own})
        top = 1.0 if layerwise is None or not networks else _checked(layerwise, max(self.groups.values()))[-1]
        self.heads = [p for p in module.parameters() if id(p) in movable - seen]
        self._factors.update({id(p): top for p in self.heads})
        self._moving: frozenset[tuple[str, int]] | None = None
        self._held: list[nn.Parameter] = []

    @property
    def plain(self) -> bool:
        """Whether everything moves all the time and equally fast, so that nothing need be done."""
        return all(isinstance(way, Everything) for way in self.train.values()) and set(self._factors.values()) <= {1.0}

    def prepare(self, optimizer: torch.optim.Optimizer) -> None:
        """Split the optimiser's groups so that each has one `factor` of the rate. To be called as soon as it is built."""
        made: list[dict[str, Any]] = []
        for group in optimizer.param_groups:
            parts: dict[float, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                parts.setdefault(self._factors.get(id(parameter), 1.0), []).append(parameter)
            made += [{**group, "params": part, "factor": factor} for factor, part in parts.items()]
        optimizer.param_groups[:] = made

    def enter(self, *, epochs: float, share: float) -> bool:
        """Let move what moves when so much is spent; true if that is another set of rungs than before."""
        moving = self.moving(epochs=epochs, share=share)
        if moving == self._moving:
            return False
        self._moving = moving
        self._held = []
        for rung, parameters in [*self.rungs.items(), (_HEADS, self.heads)]:
            if rung not in moving:
                self._held += parameters
            if not self.wrapped:
                for parameter in parameters:
                    parameter.requires_grad_(rung in moving)
        self.drop()
        return True

    def moving(self, *, epochs: float, share: float) -> frozenset[tuple[str, int]]:
        """The rungs that move, by network and number from below; the heads are `("", -1)`, and move if any network lets them."""
        found: set[tuple[str, int]] = set()
        for name, way in self.train.items():
            groups = self.groups[name]
            numbers = way.moving(groups, epochs=epochs, share=share)
            found |= {(name, number) for number in numbers if number < groups}
            found |= {_HEADS} if groups in numbers else set()
        if not any(self.heads if rung == _HEADS else self.rungs[rung] for rung in found):
            said = ", ".join(f"{name}: {type(way).__name__.lower()}" for name, way in self.train.items())
            raise RecipeError(
                f"train: {said}: when {share:.0%} is spent nothing moves, for no head has parameters of its own.\n"
                "  Let a depth group move from the beginning."
            )
        return frozenset(found)

    def drop(self) -> None:
        """Forget the gradients of what does not move; to be called before gradients are measured, clipped and applied."""
        for parameter in self._held:
            parameter.grad = None

    def release(self) -> None:
        """Let everything need gradients that did before."""
        for parameter in [*self.heads, *(p for rung in self.rungs.values() for p in rung)]:
            parameter.requires_grad_(True)
        self._moving, self._held = None, []


_HEADS = ("", -1)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group of an optimiser the learning rate times its `factor`."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)


def _checked(layerwise: LayerwiseRates, groups: int) -> list[float]:
    factors = [float(factor) for factor in layerwise.factors(groups)]
    if len(factors) != groups + 1 or not all(factor >= 0 for factor in factors):
        raise RecipeError(
            f"training.layerwise_rates: {_shown(factors)} for a network with {groups} depth groups (embeddings and {groups - 1} "
            "layers). Expected a factor of at least 0 for each, and one for the heads."
        )
    return factors


def _shown(factors: Iterable[float]) -> str:
    return ", ".join(f"{factor:g}" for factor in factors)
