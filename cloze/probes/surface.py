"""The loss on lines and on a plane through the weights of checkpoints of one shape.

Hao et al., "Visualizing and Understanding the Effectiveness of BERT" (2019): lines and planes from a pre-trained network to what
became of it. Li et al., "Visualizing the Loss Landscape of Neural Nets" (2018): random directions whose filters are as long as
those of the weights; directions as in net_plotter.py of tomgoldstein/loss-landscape, with biases and norms left alone.

Differs: a head that one checkpoint lacks stays as it is in the checkpoint whose loss is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.decoding.reader import Checkpoint
from cloze.errors import UserError, counted
from cloze.probes.losses import LossExamples
from cloze.tasks.tuned_folder import find_task_json

Floats = NDArray[np.float64]
Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class LossLine:
    """The `losses` (P) at the places `x` (P) of a line: around a checkpoint at 0, or from one at 0 to another at 1.

    `length`: the Euclidean length from 0 to 1, and as a multiple of the length of the weights at 0 (`relative`).
    """

    x: Floats
    losses: Floats
    length: float
    relative: float

    @property
    def barrier(self) -> float:
        """By how much the loss between 0 and 1 rises above the straight line between both ends; 0 if it does not."""
        ends = np.interp([0.0, 1.0], self.x, self.losses)
        inside = (self.x >= 0) & (self.x <= 1)
        return float(max(0.0, (self.losses - ends[0] - self.x * (ends[1] - ends[0]))[inside].max()))


@dataclass(frozen=True)
class LossPlane:
    """The `losses` (Y, X) on a plane at the places `x` and `y`, and where checkpoints are on it, by name."""

    x: Floats
    y: Floats
    losses: Floats
    places: Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Surface:
    """The losses around each checkpoint, on the lines from the first to each other one by pair of names, and on a plane."""

    around: Mapping[str, LossLine]
    between: Mapping[str, LossLine]
    plane: LossPlane | None
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class MeasuredPlaces:
    """Where losses are measured: at so many `points` of a line, at a `grid` of so many on each axis of the plane (0: none), and
    how far `beyond` the checkpoints at its ends. Random directions go from -1 to 1."""

    points: int = 21
    grid: int = 9
    beyond: float = 0.5

    def places(self, count: int, *, random: bool) -> Floats:
        """So many places on an axis."""
        low, high = (-1.0, 1.0) if random else (-self.beyond, 1.0 + self.beyond)
        return np.linspace(low, high, count)


def loss_surface(
    checkpoints: Mapping[str, Checkpoint], examples: LossExamples, measured: str, at: MeasuredPlaces = MeasuredPlaces(), *,
    seed: int = 0, size: int = 32,
) -> Surface:
    """The losses of `examples`, which belong to the checkpoint of the name `measured`, with the weights of others in its place.

    The first axis of the plane goes from the first checkpoint to the second, its second axis to the third; what there is not is
    a random direction.

    Raises:
        UserError: The networks of two checkpoints have different shapes, or their vocabularies differ.
    """
    host = checkpoints[measured]
    for name, loaded in checkpoints.items():
        if loaded.tokenizer.hash != host.tokenizer.hash:
            raise UserError(
                f"{name} and {measured} have different vocabularies, so the weights of one mean nothing to the other.\n"
                "  Give checkpoints of one run, or a network before and after it was fine-tuned."
            )
    parameters = parameters_of(host)
    original = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    weights, remarks = {}, list(examples.remarks)
    for name, loaded in checkpoints.items():
        weights[name], absent = matched(parameters_of(loaded), original, names=(name, measured))
        remarks += [f"the weights of {measured} stand for those that {name} lacks: {', '.join(absent)}"] if absent else []
    first, *others = weights
    origin = weights[first]
    with restored(parameters, original):

        def loss_at(start: Weights, *along: tuple[float, Weights]) -> float:
            move(parameters, start, along)
            return examples.mean_loss(size=size)

        def line(start: Weights, direction: Weights, *, random: bool) -> LossLine:
            x = at.places(at.points, random=random)
            length = _length(direction)
            losses = np.array([loss_at(start, (float(a), direction)) for a in x])
            return LossLine(x, losses, length, length / max(_length(start), 1e-30))

        around = {
            name: line(part, random_direction(part, torch.Generator().manual_seed(seed)), random=True)
            for name, part in weights.items()
        }
        directions = {name: {key: weights[name][key] - origin[key] for key in origin} for name in others}
        between = {f"{first}, {name}": line(origin, direction, random=False) for name, direction in directions.items()}
        plane = None
        if at.grid:
            generators = [torch.Generator().manual_seed(seed + axis) for axis in range(2)]
            random = [(random_direction(origin, generator), True) for generator in generators]
            axes = [*((directions[name], False) for name in others), *random][:2]
            x, y = (at.places(at.grid, random=drawn) for _, drawn in axes)
            losses = np.array([[loss_at(origin, (float(a), axes[0][0]), (float(b), axes[1][0])) for a in x] for b in y])
            places = dict(zip(weights, ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0)), strict=False))
            plane = LossPlane(x, y, losses, places)
    return Surface(around, between, plane, remarks)


def require_same_classes(checkpoints: Mapping[str, Checkpoint], measured: str, task: str | None) -> None:
    """Refuse a checkpoint whose head has as many classes as that of `measured`, but others or in another order.

    `task` names one of several. A head with another number of classes is not compared: that of `measured` stands for it.

    Raises:
        UserError: The outputs of two heads mean different classes.
    """
    classes = {name: _classes_of(Path(loaded.folder), task) for name, loaded in checkpoints.items()}
    expected = classes[measured]
    for name, labels in classes.items():
        if labels != expected and len(labels) == len(expected):
            raise UserError(
                f"{name} and {measured} have different classes, {', '.join(labels)} and {', '.join(expected)}, so the weights of "
                "one head mean nothing to the other.\n"
                "  Give checkpoints that were fine-tuned to the same classes in the same order."
            )


def _classes_of(folder: Path, task: str | None) -> tuple[str, ...]:
    """The classes of a fine-tuned folder in their order; none of any other."""
    described = find_task_json(folder) or {}
    return tuple((described if task is None else described.get("tasks", {}).get(task, {})).get("labels") or ())


def parameters_of(loaded: Checkpoint) -> dict[str, Any]:
    """The parameters of a checkpoint's network and of its heads by name, each once."""
    parameters, ids = {}, set()
    for prefix, module in (("network", loaded.network), *loaded.heads.items()):
        for name, parameter in module.named_parameters():
            if id(parameter) not in ids:
                ids.add(id(parameter))
                parameters[f"{prefix}.{name}"] = parameter
    return parameters


def matched(weights: Weights, host: Weights, *, names: tuple[str, str]) -> tuple[dict[str, Tensor], list[str]]:
    """The weights of one checkpoint under the names of the `host`'s, and the names of the heads that are those of the host.

    Raises:
        UserError: The networks differ; `names` are those of the checkpoints.
    """
    networks = [{key: tuple(part.shape) for key, part in side.items() if key.startswith("network.")} for side in (weights, host)]
    if networks[0] != networks[1]:
        differing = sorted(key for key in networks[0].keys() | networks[1].keys() if networks[0].get(key) != networks[1].get(key))
        key = differing[0]
        shapes = [str(list(side[key])) if key in side else "none" for side in networks]
        raise UserError(
            f"{names[0]} and {names[1]} have different networks: {counted(len(differing), 'differing weight')}, such as "
            f"{key.partition('.')[2]} ({shapes[0]} and {shapes[1]}).\n  Give checkpoints of one shape, such as a network before "
            "and after it was fine-tuned."
        )
    full = {
        key: weights[key].detach().to(part) if key in weights and weights[key].shape == part.shape else part
        for key, part in host.items()
    }
    absent = {key.partition(".")[0] for key, part in host.items() if full[key] is part and not key.startswith("network.")}
    return {key: part.clone() for key, part in full.items()}, sorted(absent)


def random_direction(weights: Weights, generator: torch.Generator) -> dict[str, Tensor]:
    """A random direction in which each filter, a row of a matrix, is as long as in `weights`; vectors, such as biases, get 0."""
    direction = {}
    for name, weight in weights.items():
        drawn = torch.randn(weight.shape, generator=generator)
        if weight.dim() > 1:
            rows, filters = drawn.flatten(1), weight.float().cpu().flatten(1)
            rows *= filters.norm(dim=1, keepdim=True) / (rows.norm(dim=1, keepdim=True) + 1e-10)
            direction[name] = drawn.to(weight)
        else:
            direction[name] = torch.zeros_like(weight)
    return direction


@torch.no_grad()
def move(parameters: Mapping[str, Any], start: Weights, along: Sequence[tuple[float, Weights]]) -> None:
    """Set parameters to `start`, moved by multiples of the directions `along`."""
    for name, parameter in parameters.items():
        value = start[name]
        for step, direction in along:
            value = value + step * direction[name]
        parameter.copy_(value)


@contextmanager
def restored(parameters: Mapping[str, Any], weights: Weights) -> Iterator[None]:
    """Parameters have these values again afterwards."""
    try:
        yield
    finally:
        move(parameters, weights, ())


def _length(weights: Weights) -> float:
    return float(torch.stack([part.double().square().sum() for part in weights.values()]).sum().sqrt())
