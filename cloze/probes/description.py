"""How many bits describe the labels of words to someone who has their vectors: the online code of a classifier.

Voita and Titov, "Information-Theoretic Probing with Minimum Description Length" (2020), online coding. The labels are sent in
parts: the first by a uniform code, each other one by the probabilities of a classifier that was trained on all parts before it.
Parts, classifiers and training as in lena-voita/description-length-probing (control_tasks: run_experiment.py, regimen.py,
mdl_configs/online_l0.yml), the code length as in its notebook Eval_MDL_online_code.

Differs: all is in bits, as in the paper; the notebook adds a first part in bits to losses in nats. Vectors are standardised. The
classifier is a linear map unless hidden layers are asked for; the authors' has two of 1,000 units. An epoch of few words is
repeated up to 50 batches. Parts without a sentence are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import UserError, counted
from cloze.probes.layers import LabelledWords, remarks_on_lost, vectors_of
from cloze.probes.linear import Control, HiddenLayers, LinearMap, Numbers, fit_layers, random_labels

Bits = NDArray[np.float64]
#: The shares of the sentences after which the classifier is trained again.
SHARES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class OnlineCode:
    """The `bits` of the labels of each part by layer (N + 1, S), and the `accuracy` of the classifier of all parts on the words
    of the second file (N + 1)."""

    bits: Bits
    accuracy: Sequence[float]

    @property
    def lengths(self) -> Bits:
        """The bits of all labels by layer (N + 1)."""
        total: Bits = self.bits.sum(1)
        return total


@dataclass(frozen=True)
class Description:
    """The codes of the labels and of the control task's. `ends` (S): the words up to the end of each part."""

    labels: OnlineCode
    control: OnlineCode | None
    ends: Sequence[int]
    classes: int
    held_out: int
    remarks: Sequence[str] = ()

    @property
    def uniform(self) -> float:
        """The bits of the labels if all classes were equally likely."""
        return float(self.ends[-1] * np.log2(self.classes))

    def compression(self, code: OnlineCode) -> list[float]:
        """By what factor a code is shorter than the uniform one, by layer."""
        factors: list[float] = (self.uniform / code.lengths).tolist()
        return factors


def describe(
    loaded: Checkpoint, train: LabelledWords, development: LabelledWords, layers: HiddenLayers | LinearMap, *,
    control: Control | None = "kinds", seed: int = 0, length: int | None = None, size: int = 32,
) -> Description:
    """The online code of the labels of `train` at every layer, and that of the labels of the control task.

    A classifier is trained until its loss on the `development` words no longer falls; labels that `train` lacks do not count
    there. `seed` draws the order of the sentences.

    Raises:
        UserError: There is one sentence, or all labels are alike.
    """
    reader = Reader.of(loaded)
    x, examples = vectors_of(reader, train, length=length, size=size)
    z, development_examples = vectors_of(reader, development, length=length, size=size)
    names = sorted({example.label for example in examples})
    number = {name: n for n, name in enumerate(names)}
    order, ends = parts(np.array([example.text for example in examples]), seed)
    if len(ends) < 2 or len(names) < 2:
        raise UserError(
            f"an online code needs labels of two kinds and two sentences; read: {counted(len(names), 'kind')} in "
            f"{counted(len({example.text for example in examples}), 'sentence')}.\n  Give more text, or another column."
        )
    truth = np.array([number[example.label] for example in examples], np.int64)
    expected = np.array([number.get(example.label, -1) for example in development_examples], np.int64)

    def code(labels: Numbers, held_out: Numbers) -> OnlineCode:
        in_train, bits, accuracies = held_out >= 0, [], []
        if not in_train.any():
            raise UserError("the second file has no label of the first. Give two files with the same labels.")
        for vectors, other in zip(x, z, strict=True):
            mean, deviation = vectors.mean(0), np.maximum(vectors.std(0), 1e-6)
            a, b = torch.from_numpy((vectors[order] - mean) / deviation), torch.from_numpy((other - mean) / deviation)
            judged = b[in_train], held_out[in_train]

            def train_on(count: int, a: Tensor = a, judged: tuple[Tensor, Numbers] = judged) -> Callable[[Tensor], Tensor]:
                return fit_layers(a[:count], labels[order][:count], len(names), layers, seed, judged)

            bits.append(online_bits(a, labels[order], ends, len(names), train_on))
            accuracies.append(float((train_on(ends[-1])(b).argmax(1).numpy() == held_out).mean()))
        return OnlineCode(np.array(bits), accuracies)

    random = None
    if control is not None:
        kinds = [example.kind for example in (*examples, *development_examples)]
        drawn = random_labels(kinds, [example.label for example in examples], seed, control)
        random = code(drawn[: len(truth)], drawn[len(truth) :])
    remarks = remarks_on_lost([train, development], [examples, development_examples])
    return Description(code(truth, expected), random, ends, len(names), len(development_examples), remarks)


def parts(sentences: NDArray[np.int64], seed: int) -> tuple[Numbers, list[int]]:
    """The words, of which the numbers of their sentences are given, in a random order of sentences, and how many of them there
    are up to the end of each part.

    >>> parts(np.array([0, 0, 1, 2, 2, 2, 3]), seed=0)[1]  # a quarter, half of the sentences, all
    [1, 4, 7]
    """
    numbers = np.unique(sentences, return_inverse=True)[1]
    ranks = np.random.default_rng(seed).permutation(int(numbers.max()) + 1)
    order = np.argsort(ranks[numbers], kind="stable")
    counts = sorted({int(share * len(ranks)) for share in SHARES} - {0})
    return order, np.searchsorted(ranks[numbers][order], counts).tolist()


def online_bits(
    x: Tensor, labels: Numbers, ends: Sequence[int], classes: int, train: Callable[[int], Callable[[Tensor], Tensor]]
) -> Bits:
    """The bits of each part (S) of the labels of vectors (M, D). `train` trains a classifier on so many of the first vectors; its
    scores become probabilities by a softmax."""
    bits = [ends[0] * np.log2(classes)]
    for begin, end in pairwise(ends):
        scores = train(begin)(x[begin:end])
        nats = functional.cross_entropy(scores.double(), torch.from_numpy(labels[begin:end]), reduction="sum")
        bits.append(float(nats) / np.log(2))
    return np.array(bits)
