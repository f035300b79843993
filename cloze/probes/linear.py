"""Linear probes: how well labels can be read from vectors by one linear map, and how well random labels can (control tasks)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from cloze.probes.training import Convergence, converge, last_tenth, several_passes
from cloze.uncompiled import eager

Vectors = NDArray[np.float32]
Numbers = NDArray[np.int64]
Control = Literal["kinds", "shuffled"]
_SENTENCE = 20  # words of a sentence, about
_BATCH, _UPDATES = 20 * _SENTENCE, 50  # words; batches of an epoch, at least about
_CONVERGENCE = Convergence(margin=1e-3 / _SENTENCE)  # a thousandth of the loss of a sentence, which is summed over its words


@dataclass(frozen=True)
class ProbeSplit:
    """Vectors (N + 1, M, D) of the examples for training and for the test, with their labels and the kinds that controls depend
    on, such as the spelling of a word. `fallback`: the label of a kind that has no training example, where it is known."""

    train: Vectors
    test: Vectors
    train_labels: Sequence[str]
    test_labels: Sequence[str]
    train_kinds: Sequence[str]
    test_kinds: Sequence[str]
    fallback: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Accuracies:
    """Accuracies of the test examples by layer: of the probe, of its control task; and of answers without a network.

    `selectivity` is the difference of the first two (Hewitt and Liang, "Designing and Interpreting Probes with Control Tasks",
    2019, §2.2). `majority` always gives the most frequent label, `by_kind` the most frequent one of the kind.
    """

    accuracy: Sequence[float]
    control: Sequence[float]
    majority: float
    by_kind: float
    classes: int
    train: int
    test: int

    @property
    def without_network(self) -> float:
        """The better of the two answers without a network."""
        return max(self.majority, self.by_kind)

    @property
    def selectivity(self) -> list[float]:
        """Accuracy minus control, by layer."""
        return [a - b for a, b in zip(self.accuracy, self.control, strict=True)]


@dataclass(frozen=True)
class HiddenLayers:
    """A classifier as Hewitt and Liang (2019, §3) have it: one or two `hidden` layers of `width` units with ReLU (MLP-1, MLP-2),
    or none: a linear map of rank `width`. `dropout` is that of the input and, with two hidden layers, of the second."""

    hidden: int = 1
    width: int = 1000
    dropout: float = 0.0

    def network(self, width: int, classes: int) -> nn.Sequential:
        """Its layers, with the initial weights of torch, as in control-tasks/probe.py."""
        layers: list[nn.Module] = [nn.Dropout(self.dropout), nn.Linear(width, self.width)]
        if self.hidden:
            layers.append(nn.ReLU())
        if self.hidden == 2:
            layers += [nn.Linear(self.width, self.width), nn.ReLU(), nn.Dropout(self.dropout)]
        return nn.Sequential(*layers, nn.Linear(self.width, classes))


@dataclass(frozen=True)
class LinearMap:
    """A classifier without hidden layers and of full rank; `dropout` is that of the input."""

    dropout: float = 0.0

    def network(self, width: int, classes: int) -> nn.Sequential:
        """Its only layer."""
        return nn.Sequential(nn.Dropout(self.dropout), nn.Linear(width, classes))


def probe_linear(
    split: ProbeSplit, *, seed: int = 0, control: Control | None = "kinds", penalty: float = 1e-3,
    layers: HiddenLayers | None = None,
) -> Accuracies:
    """Train one linear classifier per layer, or one with hidden `layers`, and another for its control task."""
    names = sorted(set(split.train_labels))
    number = {name: n for n, name in enumerate(names)}
    truth = np.array([number[label] for label in split.train_labels], np.int64)
    expected = np.array([number.get(label, -1) for label in split.test_labels], np.int64)
    random = random_labels([*split.train_kinds, *split.test_kinds], split.train_labels, seed, control or "kinds")
    accuracies, controls = [], []
    for train, test in zip(split.train, split.test, strict=True):
        mean, deviation = train.mean(0), np.maximum(train.std(0), 1e-6)
        x, z = torch.from_numpy((train - mean) / deviation), torch.from_numpy((test - mean) / deviation)

        def guesses(labels: Numbers, x: Tensor = x, z: Tensor = z) -> Numbers:
            if layers is not None:
                scores = fit_layers(x, labels, len(names), layers, seed)(z)
            else:
                weight, bias = fit(x, labels, len(names), penalty=penalty)
                scores = z @ weight + bias
            best: Numbers = scores.argmax(1).numpy()
            return best

        accuracies.append(float((guesses(truth) == expected).mean()))
        if control is not None:
            train_control, test_control = random[: len(train)], random[len(train) :]
            controls.append(float((guesses(train_control) == test_control).mean()))
    usual, by_kind = majority(split.train_labels), most_frequent(split.train_kinds, split.train_labels)
    return Accuracies(
        accuracies, controls or [float("nan")] * len(accuracies), share_equal([usual] * len(expected), split.test_labels),
        share_equal([by_kind.get(kind, split.fallback.get(kind, usual)) for kind in split.test_kinds], split.test_labels),
        len(names), len(truth), len(expected),
    )


def random_labels(kinds: Sequence[str], labels: Sequence[str], seed: int, control: Control) -> Numbers:
    """The labels of a control task, as numbers of the sorted names of `labels`.

    `kinds` gives every kind a random label. `shuffled` gives every example the label of a random one: for senses, because there
    a kind is a word that all examples share.
    """
    if control == "kinds":
        return control_labels(kinds, labels, seed)
    numbers: Numbers = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    return np.random.default_rng(seed).choice(numbers, len(kinds))


def control_labels(kinds: Sequence[str], labels: Sequence[str], seed: int) -> Numbers:
    """A label for every kind, the same wherever it occurs: a function of the kind and the seed, distributed as the labels are.

    Numbers are those of the sorted names of `labels` (Hewitt and Liang, 2019, §2.1).
    """
    counts = Counter(labels)
    bounds = np.cumsum([counts[name] for name in sorted(counts)]) / len(labels)

    def uniform(kind: str) -> float:
        digest = hashlib.blake2b(f"{seed}\0{kind}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64

    drawn = {kind: uniform(kind) for kind in set(kinds)}
    numbers: Numbers = np.searchsorted(bounds, [drawn[kind] for kind in kinds], side="right").astype(np.int64)
    return np.minimum(numbers, len(counts) - 1)


def majority(labels: Iterable[str]) -> str:
    """The most frequent label; of equally frequent ones the first by name."""
    counts = Counter(labels)
    return min(counts, key=lambda label: (-counts[label], label))


def most_frequent(kinds: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """The most frequent label of every kind."""
    by_kind: dict[str, list[str]] = {}
    for kind, label in zip(kinds, labels, strict=True):
        by_kind.setdefault(kind, []).append(label)
    return {kind: majority(kind_labels) for kind, kind_labels in by_kind.items()}


def share_equal(guess: Sequence[str], truth: Sequence[str]) -> float:
    """The accuracy of guessed labels."""
    return float(np.mean([a == b for a, b in zip(guess, truth, strict=True)]))


def fit(vectors: Any, labels: Numbers, classes: int, *, penalty: float = 1e-3, steps: int = 60) -> tuple[Any, Any]:
    """Weights (D, C) and biases (C,) of multinomial logistic regression with a squared penalty, by L-BFGS from zero."""
    x, y = torch.as_tensor(vectors), torch.from_numpy(labels)
    weight = torch.zeros(x.shape[1], classes, requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    solver = eager(torch.optim.LBFGS)([weight, bias], max_iter=steps, history_size=10, line_search_fn="strong_wolfe")

    def closure() -> Any:
        solver.zero_grad()
        loss = functional.cross_entropy(x @ weight + bias, y) + penalty * weight.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        solver.step(closure)
    return weight.detach(), bias.detach()


def fit_layers(
    x: Tensor, labels: Numbers, classes: int, layers: HiddenLayers | LinearMap, seed: int,
    development: tuple[Tensor, Numbers] | None = None,
) -> nn.Sequential:
    """A trained classifier of vectors (M, D): Adam until the loss on `development` vectors with labels no longer falls, as in
    control-tasks/regimen.py. None takes the last tenth of the vectors from training.

    Differs: batches of 400 words, about 20 sentences, and the least improvement of an epoch, 0.001 for a sentence, is that of 20
    words; few words are repeated up to 50 batches an epoch.
    """
    y, count = torch.from_numpy(labels), len(x)
    if development is None:
        count, held_out = last_tenth(len(x))
        x_dev, y_dev = x[held_out], y[held_out]
    else:
        x_dev, y_dev = development[0], torch.from_numpy(development[1])
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = layers.network(x.shape[1], classes)
        converge(
            list(network.parameters()), lambda: several_passes(count, _BATCH, _UPDATES, generator),
            lambda batch: functional.cross_entropy(network.train()(x[batch]), y[batch]),
            lambda: float(functional.cross_entropy(network.eval()(x_dev), y_dev)), _CONVERGENCE,
        )
    return network.eval().requires_grad_(False)
