"""A fitted linear model on n-grams: its answers, and its two files next to a network, which need no scikit-learn."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from cloze.atomic import whole_file
from cloze.errors import CheckpointError
from cloze.interop.files import read_json, read_tensors
from cloze.tasks.linear.cutting import Cutter
from cloze.tasks.linear.estimators import Weights
from cloze.tasks.linear.features import FeatureBlock, FeatureSpace, SparseRows
from cloze.tasks.linear.linear_task import LinearTask, Outputs

TENSORS, SETTINGS = "ngrams.safetensors", "ngrams.json"  # in the folder `cloze` of a model; of several tasks each has its own
_VERSION = 1


@dataclass(frozen=True)
class LinearFit:
    """How a model was fitted: the regularisation that was chosen, on what, and what it took; with texts without labels, how many,
    and the share of naive Bayes in it."""

    constant: float
    chosen_on: str
    rows: int
    of_rows: int
    features: int
    seconds: float
    texts: int = 0
    bayes: float = 0.0

    @property
    def reads(self) -> str:
        """What the model has learned from, in a word or three: the head of its column."""
        return "n-grams and texts" if self.texts else "n-grams"


@dataclass(frozen=True)
class LinearModel:
    """A linear model of a task. Its coefficients have the precision in which they are stored (`Estimator.stored`)."""

    task: LinearTask
    cutter: Cutter
    features: FeatureSpace
    weights: Weights
    fit: LinearFit

    def rows(self, examples: Any) -> SparseRows:
        """The features of all decisions."""
        return self.features.rows(self.task.bags(examples, self.cutter))

    def outputs(self, examples: Any) -> Outputs:
        """The probabilities (N, C) of the task's labels, numbers (N,), or an array for every example: of words (words, C), of
        choices (choices,)."""
        scores = self.rows(examples).product(self.weights.coefficients) + self.weights.intercepts
        return self.task.outputs(scores, examples)

    def per_example(self, examples: Any) -> Any:
        """The items of `Learner.per_example` for examples with answers."""
        return self.task.per_example(examples, self.outputs(examples))

    def measure(self, examples: Any) -> dict[str, float]:
        """The metrics of the task on examples with answers."""
        return self.task.compute_metrics(self.per_example(examples))

    def save(self, folder: Path, name: str = "") -> int:
        """Write the two files into a folder, each whole or not at all, and return their bytes. `name` is one of several tasks."""
        settings = {
            "version": _VERSION, "task": self.task.task.name, "labels": list(self.task.labels), "spaced": self.cutter.spaced,
            "fit": asdict(self.fit),
            "blocks": [
                {"name": block.name, "weighting": block.weighting, "features": list(block.numbers)}
                for block in self.features.blocks
            ],
        }  # fmt: skip
        tensors: dict[str, Any] = {
            "coefficients": self.weights.coefficients.astype(self.task.estimator.stored), "intercepts": self.weights.intercepts,
            **{f"idf.{block.name}": block.idf for block in self.features.blocks},
        }  # fmt: skip
        tensor_path, settings_path = files_of(folder, name)
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(tensor_path) as fresh:
            fresh.touch()  # an ordinary file first: safetensors makes new files readable by their owner only
            mode = fresh.stat().st_mode
            save_file(tensors, fresh)
            fresh.chmod(mode & 0o777)
        with whole_file(settings_path) as fresh:
            fresh.write_text(json.dumps(settings, ensure_ascii=False) + "\n", encoding="utf-8")
        return tensor_path.stat().st_size + settings_path.stat().st_size


def files_of(folder: Path, name: str = "") -> tuple[Path, Path]:
    """The file of tensors and that of settings; those of one of several tasks begin with its name."""
    lead = f"{name}." if name else ""
    return folder / f"{lead}{TENSORS}", folder / f"{lead}{SETTINGS}"


def load_linear(folder: Path, task: Any, name: str = "", *, labels: tuple[str, ...] = ()) -> LinearModel | None:
    """The linear model that was saved in a folder for a task; None if there is none.

    `labels` are those of the network, whose probabilities have the same order. Files that do not belong to the task, or are
    damaged, are a `CheckpointError`.
    """
    tensor_path, settings_path = files_of(folder, name)
    if not settings_path.exists():
        return None
    settings = read_json(settings_path, "the linear model on n-grams of a fine-tuned folder")
    tensors = {key: tensor.numpy() for key, tensor in read_tensors(tensor_path).items()}
    try:
        return _loaded(settings, tensors, task, labels)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{settings_path}: damaged, or of another model than {tensor_path.name} ({error}).\n"
            "  Copy both files again. Without them, the network is compared with no linear model."
        ) from None


def _loaded(settings: dict[str, Any], tensors: dict[str, Any], task: Any, labels: tuple[str, ...]) -> LinearModel:
    if settings["version"] != _VERSION:
        raise ValueError(f"version {settings['version']!r}; this cloze reads {_VERSION}")
    linear = task.linear(tuple(map(str, settings["labels"]))) if settings["task"] == task.name else None
    if linear is None:
        raise ValueError(f"it is for the task {settings['task']!r}")
    if labels and labels != linear.labels:
        raise ValueError("its labels are not those of task.json")
    blocks = tuple(_block(description, tensors) for description in settings["blocks"])
    if tuple((block.name, block.weighting) for block in blocks) != linear.blocks:
        raise ValueError("its blocks of features are not those of the task")
    features = FeatureSpace(blocks)
    weights = Weights(tensors["coefficients"], tensors["intercepts"])
    if weights.coefficients.shape != (features.width, len(weights.intercepts)):
        raise ValueError(f"coefficients {weights.coefficients.shape} for {features.width} features")
    if not all(np.isfinite(array).all() for array in (*weights, *(block.idf for block in blocks))):
        raise ValueError("numbers that are not finite")
    return LinearModel(linear, Cutter(spaced=bool(settings["spaced"])), features, weights, LinearFit(**settings["fit"]))


def _block(block: dict[str, Any], tensors: dict[str, Any]) -> FeatureBlock:
    numbers = {str(feature): number for number, feature in enumerate(block["features"])}
    idf = tensors[f"idf.{block['name']}"]
    if idf.shape != (len(numbers),) or len(numbers) != len(block["features"]):
        raise ValueError(f"{len(numbers)} features of {block['name']!r} for {idf.shape[0] if idf.ndim else 1} weights")
    return FeatureBlock(str(block["name"]), block["weighting"], numbers, idf)
