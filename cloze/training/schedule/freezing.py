"""Freezing and rates by depth: which parameters are trained, when, and at which rate.

The parameters of a network are grouped by depth: group 0 holds the embeddings, then comes one group per layer. One more group, on
top, holds all heads. An `Unfreezing` says which groups are trained at a given time, `DepthRates` how fast each learns. Both
know only numbers of groups, so they fit every network; the registered parts are in `cloze.changes`. A frozen group has no
gradients, so it gets no update, no weight decay and no moments: every bit stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn

from cloze.errors import RecipeError
from cloze.training.optimizers.optimizers import ModelPart
from cloze.training.schedule.phases import SchedulePhase, phase_at


class Unfreezing(Protocol):
    """Which depth groups are trained when (kind `unfreezing`)."""

    def trainable(self, groups: int, *, epochs: float, share: float) -> frozenset[int]:
        """The groups that are trained after so many epochs and this share of the budget.

        The network has `groups` depth groups, numbered from 0; the number `groups` stands for the heads. Must be a pure function,
        so that a resumed run freezes the same groups.
        """


class DepthRates(Protocol):
    """How fast each depth group learns (kind `layerwise`). `moves`: the factors depend on the share of the budget spent."""

    moves: bool

    def factors(self, groups: int, share: float = 0.0) -> Sequence[float]:
        """`groups` + 1 multiples of the learning rate, embeddings first, heads last. A pure function."""


Factor = float | Callable[[float], float]  # of the rate; a function of the share of the budget where it moves


@dataclass(frozen=True)
class Everything:
    """All groups are trained from the beginning."""

    def trainable(self, groups: int, *, epochs: float, share: float) -> frozenset[int]:
        """Every group and the heads."""
        return frozenset(range(groups + 1))


@dataclass(frozen=True)
class Only:
    """The heads and the named depth groups are trained: `embeddings`, or the number of a layer, from the top if negative.

    Without names the whole network is frozen.
    """

    names: tuple[str | int, ...] = ()

    def trainable(self, groups: int, *, epochs: float, share: float) -> frozenset[int]:
        """The named groups and the heads."""
        return frozenset({groups, *(self._number(name, groups) for name in self.names)})

    def _number(self, name: str | int, groups: int) -> int:
        if name == "embeddings":
            return 0
        layers = groups - 1
        try:
            number = int(name)
        except ValueError:
            number = layers
        if not -layers <= number < layers:
            raise RecipeError(
                f"train: there is no depth group {name!r}. Expected: embeddings, or a layer from 0 to {layers - 1}, "
                f"counted from the top: -1 to {-layers}."
            )
        return 1 + number % layers


@dataclass(frozen=True)
class ByPhase:
    """One of `ways` in each phase of the schedule."""

    phases: tuple[SchedulePhase, ...]
    ways: tuple[Unfreezing, ...]

    def trainable(self, groups: int, *, epochs: float, share: float) -> frozenset[int]:
        """The groups of the phase that a step with this share belongs to."""
        return self.ways[phase_at(self.phases, share)].trainable(groups, epochs=epochs, share=share)


def unfreezing_of(value: Any) -> Unfreezing:
    """The value of a recipe's `train:` as an `Unfreezing`: `all`, `none`, names of depth groups, or a part already built."""
    if value == "all":
        return Everything()
    if value == "none":
        return Only()
    if isinstance(value, str):
        return Only((value,))
    return Only(tuple(value)) if isinstance(value, (list, tuple)) else value


def parameters_by_depth(network: Any) -> list[list[nn.Parameter]]:
    """The parameters of a network by depth group.

    A parameter that several groups share is in the lowest of them. One that is in no group (a projection after the embeddings, a
    final norm) is in the group of the parameter before it in the network, or with the embeddings if there is none.
    """
    groups = network.depth_groups()
    depth: dict[int, int] = {}
    for number, group in enumerate(groups):
        for parameter in group.parameters():
            depth.setdefault(id(parameter), number)
    parts: list[list[nn.Parameter]] = [[] for _ in groups]
    last = 0
    for parameter in network.parameters():
        last = depth.get(id(parameter), last)
        parts[last].append(parameter)
    return parts


class Freezing:
    """Applies an `Unfreezing` to each network of a module, and `DepthRates` to all of them; what is in no network is a head.

    A parameter that needs no gradient when this is built stays frozen for good. Where the module is wrapped for several processes
    (`wrapped`), gradients of frozen groups are computed and dropped before the update.
    """

    def __init__(
        self, module: nn.Module, networks: Mapping[str, Any], *, train: Mapping[str, Unfreezing] | None = None,
        layerwise: DepthRates | None = None, wrapped: bool = False,
    ) -> None:
        self.train = {name: (train or {}).get(name, Everything()) for name in networks}
        self.wrapped = wrapped
        unfrozen = {id(p) for p in module.parameters() if p.requires_grad}
        seen: set[int] = set()
        self.groups: dict[tuple[str, int], list[nn.Parameter]] = {}
        self.depths: dict[str, int] = {}
        self._factors: dict[int, Factor] = {}
        for name, network in networks.items():
            groups = parameters_by_depth(network)
            self.depths[name] = len(groups)
            factors = _factors(layerwise, len(groups))
            for number, group in enumerate(groups):
                parameters = [p for p in group if id(p) in unfrozen and id(p) not in seen]
                seen.update(map(id, parameters))
                self.groups[name, number] = parameters
                self._factors.update({id(p): factors[number] for p in parameters})
        top = _factors(layerwise, max(self.depths.values()))[-1] if networks else 1.0
        self.heads = [p for p in module.parameters() if id(p) in unfrozen - seen]
        self._factors.update({id(p): top for p in self.heads})
        self._parts: dict[int, ModelPart] = {id(parameter): "heads" for parameter in self.heads}
        for (_, number), parameters in self.groups.items():
            self._parts.update({id(parameter): "layers" if number else "embeddings" for parameter in parameters})
        self._trainable: frozenset[tuple[str, int]] | None = None
        self._frozen: list[nn.Parameter] = []

    def prepare(self, optimizer: torch.optim.Optimizer) -> None:
        """Split the optimizer's groups so that each has one `factor` of the rate. Call it right after the optimizer is built."""
        split: list[dict[str, Any]] = []
        for group in optimizer.param_groups:
            parts: dict[Factor, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                parts.setdefault(self._factors.get(id(parameter), 1.0), []).append(parameter)
            split += [{**group, "params": part, "factor": factor} for factor, part in parts.items()]
        optimizer.param_groups[:] = split

    def part_of(self, parameter: nn.Parameter) -> ModelPart:
        """Whether a parameter belongs to embeddings, which are the lowest group of a network, to layers or to heads."""
        return self._parts[id(parameter)]

    def enter(self, *, epochs: float, share: float) -> bool:
        """Freeze and unfreeze groups for this point of the run; true if the set of trained groups has changed."""
        trainable = self.trainable(epochs=epochs, share=share)
        if trainable == self._trainable:
            return False
        self._trainable = trainable
        self._frozen = []
        for group, parameters in [*self.groups.items(), (_HEADS, self.heads)]:
            if group not in trainable:
                self._frozen += parameters
            if not self.wrapped:
                for parameter in parameters:
                    parameter.requires_grad_(group in trainable)
        self.drop_gradients()
        return True

    def trainable(self, *, epochs: float, share: float) -> frozenset[tuple[str, int]]:
        """The groups that are trained, by network and number; the heads are `("", -1)`, trained if any network's way says so."""
        trained: set[tuple[str, int]] = set()
        for name, way in self.train.items():
            groups = self.depths[name]
            numbers = way.trainable(groups, epochs=epochs, share=share)
            trained |= {(name, number) for number in numbers if number < groups}
            trained |= {_HEADS} if groups in numbers else set()
        if not any(self.heads if group == _HEADS else self.groups[group] for group in trained):
            ways = ", ".join(f"{name}: {type(way).__name__.lower()}" for name, way in self.train.items())
            raise RecipeError(
                f"train: {ways}: after {share:.0%} of the budget nothing is trained, because no head has parameters of its own.\n"
                "  Train at least one depth group from the beginning."
            )
        return frozenset(trained)

    def drop_gradients(self) -> None:
        """Drop the gradients of frozen groups. Call it before gradients are measured, clipped and applied."""
        for parameter in self._frozen:
            parameter.grad = None


_HEADS = ("", -1)


def set_rate(optimizer: torch.optim.Optimizer, rate: float, share: float = 0.0) -> None:
    """Give every group of an optimizer the learning rate times its `factor` after this share of the budget."""
    for group in optimizer.param_groups:
        factor: Factor = group.get("factor", 1.0)
        group["lr"] = rate * (factor(share) if callable(factor) else factor)


def _factors(layerwise: DepthRates | None, groups: int) -> list[Factor]:
    """The factor of each depth group and of the heads; one object each where they move, so that `prepare` keeps them apart."""
    if layerwise is None:
        return [1.0] * (groups + 1)
    checked = _checked(layerwise, groups)
    if not layerwise.moves:
        return [*checked]
    return [partial(_factor_at, layerwise, groups, number) for number in range(groups + 1)]


def _factor_at(layerwise: DepthRates, groups: int, number: int, share: float) -> float:
    return layerwise.factors(groups, share)[number]


def _checked(layerwise: DepthRates, groups: int) -> list[float]:
    factors = [float(factor) for factor in layerwise.factors(groups)]
    if len(factors) != groups + 1 or not all(factor >= 0 for factor in factors):
        raise RecipeError(
            f"training.layerwise_rates: {_shown(factors)} for a network with {groups} depth groups (embeddings and {groups - 1} "
            "layers). Expected one factor of at least 0 for each, and one for the heads."
        )
    return factors


def _shown(factors: Iterable[float]) -> str:
    return ", ".join(f"{factor:g}" for factor in factors)
