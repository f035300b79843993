"""Which word is the head of each word, from the vectors of both: dependency edge prediction with its control task.

Hewitt and Liang, "Designing and Interpreting Probes with Control Tasks" (2019, §2, §3); probes, figures and training as in
john-hewitt/control-tasks (probe.py: TwoWordBilinearLabelProbe, TwoWordNNLabelProbe; task.py: CorruptedEdgePositionTask;
reporter.py).

Differs: vectors are standardised; padding is no candidate; the last tenth of the training sentences is the development set, and
an epoch of a small treebank is repeated up to 50 updates; punctuation is recognised by its characters, not by Penn tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import UserError
from cloze.probes.distance import ProbedTrees, is_punctuation
from cloze.probes.linear import HiddenLayers, control_labels
from cloze.probes.training import Convergence, converge, last_tenth, several_passes
from cloze.probes.words import join_words, word_rows, word_states

Int64 = NDArray[np.int64]
_BATCH, _UPDATES = 20, 50
_BEHAVIOURS = ("self", "first", "last")  # of a word in the control task: where its head stands


@dataclass(frozen=True)
class HeadSentence:
    """A sentence that was read whole: by layer the vectors of its words (N + 1, K, D), the number of each word's head, -1 of the
    root, the same in the control task, and which words are not punctuation."""

    vectors: Tensor
    heads: Int64
    control: Int64
    words: Int64


@dataclass(frozen=True)
class HeadScores:
    """The share of heads that are found by layer (see `found_edges`), and of the heads of the control task. `neighbours`: the
    share of heads that stand next to their word."""

    accuracy: Sequence[float]
    control: Sequence[float]
    neighbours: float
    train: int
    test: int

    @property
    def selectivity(self) -> list[float]:
        """Accuracy minus control, by layer."""
        return [a - b for a, b in zip(self.accuracy, self.control, strict=True)]


class HeadScorer(nn.Module):
    """Scores of every word (rows) for every word as its head, (B, K, K) of vectors (B, K, D).

    Without hidden layers h_i L R h_j + b, of rank `layers.width`; else an MLP of both vectors side by side with ReLU.
    """

    left: nn.Parameter
    right: nn.Parameter
    bias: nn.Parameter

    def __init__(self, width: int, layers: HiddenLayers) -> None:
        super().__init__()
        self.dropout = nn.Dropout(layers.dropout)
        self.hidden = layers.hidden
        if not self.hidden:
            shapes = {"left": (width, layers.width), "right": (layers.width, width), "bias": (1,)}
            for name, shape in shapes.items():
                setattr(self, name, nn.Parameter(torch.empty(shape).uniform_(-0.05, 0.05)))
            return
        self.first = nn.Linear(2 * width, layers.width)
        self.middle = nn.Linear(layers.width, layers.width) if self.hidden == 2 else None
        self.last = nn.Linear(layers.width, 1)

    def forward(self, vectors: Tensor) -> Tensor:
        """The scores."""
        x: Tensor = self.dropout(vectors)
        if not self.hidden:
            bilinear: Tensor = (x @ self.left) @ (self.right @ x.mT) + self.bias
            return bilinear
        word, head = self.first.weight.chunk(2, dim=1)  # a map of two vectors side by side is the sum of two maps
        words, heads = functional.linear(x, word, self.first.bias), functional.linear(x, head)
        states = self.dropout((words[:, :, None] + heads[:, None]).relu())
        if self.middle is not None:
            states = self.dropout(self.middle(states).relu())
        scores: Tensor = self.last(states)[..., 0]
        return scores


def probe_attachments(
    loaded: Checkpoint, train: ProbedTrees, test: ProbedTrees, layers: HiddenLayers, *, control: bool = True, seed: int = 0,
    length: int | None = None, size: int = 32,
) -> HeadScores:
    """Train a scorer for every layer, and another for the control task, in which every word has its own behaviour: its head is
    itself, the first word or the last, the same wherever the word occurs."""
    reader = Reader.of(loaded)
    training, held_out = (_sentences(reader, part, seed, length, size) for part in (train, test))
    accuracies, controls = [], []
    for layer in range(len(training[0].vectors)):
        every = torch.cat([sentence.vectors[layer] for sentence in training])
        mean, deviation = every.mean(0), every.std(0, correction=0).clamp(min=1e-6)
        x, z = ([(sentence.vectors[layer] - mean) / deviation for sentence in part] for part in (training, held_out))
        model = _fit(x, [sentence.heads for sentence in training], layers, seed)
        accuracies.append(found_edges(_guesses(model, z), [s.heads for s in held_out], [s.words for s in held_out]))
        if control:
            model = _fit(x, [sentence.control for sentence in training], layers, seed)
            controls.append(found_edges(_guesses(model, z), [s.control for s in held_out], [s.words for s in held_out]))
    spans = np.concatenate([np.abs(s.heads - np.arange(len(s.heads)))[s.words[s.heads[s.words] >= 0]] for s in held_out])
    neighbours = float((spans == 1).mean()) if len(spans) else float("nan")
    return HeadScores(accuracies, controls or [float("nan")] * len(accuracies), neighbours, len(training), len(held_out))


def found_edges(guesses: Sequence[Int64], heads: Sequence[Int64], words: Sequence[Int64]) -> float:
    """The share of the edges from words to their heads that are also predicted, in either direction, as the authors' reporter
    counts them (report_uas_and_tikz): without words that are punctuation, and without the root."""
    right, edges = 0, 0
    for guess, truth, inside in zip(guesses, heads, words, strict=True):
        counted = [int(n) for n in inside if truth[n] >= 0]
        true, predicted = ({tuple(sorted((n, int(side[n])))) for n in counted} for side in (truth, guess))
        right, edges = right + len(true & predicted), edges + len(counted)
    return right / edges if edges else float("nan")


def _sentences(reader: Reader, trees: ProbedTrees, seed: int, length: int | None, size: int) -> list[HeadSentence]:
    """The sentences that were read whole."""
    running, spans = zip(*(join_words(words) for words in trees.words), strict=True)
    rows = word_rows(reader, running, spans, length=length)
    indices = [n for n, row in enumerate(rows) if (row.columns[:, 0] >= 0).all()]
    if not indices:
        raise UserError("this network cuts every sentence of the treebank. Give shorter sentences, or a larger --length.")
    states = dict(word_states(reader, [rows[n] for n in indices], size=size))
    sentences = []
    for number, n in enumerate(indices):
        words, places = trees.words[n], np.arange(len(trees.words[n]))
        behaviour = control_labels(words, _BEHAVIOURS, seed)  # numbers of the sorted names: first, last, self
        control = np.choose(behaviour, [np.zeros_like(places), np.full_like(places, len(words) - 1), places])
        marks = np.array([is_punctuation(word) for word in words])
        heads = np.array(trees.heads[n], np.int64) - 1
        sentences.append(HeadSentence(torch.from_numpy(states[number]), heads, control, np.flatnonzero(~marks)))
    return sentences


def _fit(x: Sequence[Tensor], heads: Sequence[Int64], layers: HiddenLayers, seed: int) -> HeadScorer:
    """A scorer with the least loss on the last tenth of the sentences, the cross-entropy of their heads, summed over words."""
    generator = torch.Generator().manual_seed(seed)
    count, held_out = last_tenth(len(x))
    development = list(range(len(x)))[held_out]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = HeadScorer(x[0].shape[1], layers)

        def loss_of(numbers: Sequence[int]) -> Tensor:
            scores = _padded_scores(model, [x[n] for n in numbers])
            truth = pad_sequence([torch.from_numpy(heads[n]) for n in numbers], batch_first=True, padding_value=-1)
            loss = functional.cross_entropy(scores.flatten(0, 1), truth.flatten(), ignore_index=-1, reduction="sum")
            return loss / len(numbers)

        def evaluate() -> float:
            model.eval()
            batches = [development[at : at + _BATCH] for at in range(0, len(development), _BATCH)]
            loss = sum(float(loss_of(batch)) * len(batch) for batch in batches) / len(development)
            model.train()
            return loss

        converge(
            list(model.parameters()),
            lambda: (batch.tolist() for batch in several_passes(count, _BATCH, _UPDATES, generator)), loss_of, evaluate,
            Convergence(),
        )  # fmt: skip
    return model.eval()


def _padded_scores(model: HeadScorer, x: Sequence[Tensor]) -> Tensor:
    """The scores (B, K, K) of sentences, with the least number where a candidate is padding."""
    lengths = torch.tensor([len(vectors) for vectors in x])
    scores: Any = model(pad_sequence(list(x), batch_first=True))
    padding = torch.arange(scores.shape[-1]) >= lengths[:, None]
    return scores.masked_fill(padding[:, None], torch.finfo(scores.dtype).min)


@torch.no_grad()
def _guesses(model: HeadScorer, x: Sequence[Tensor]) -> list[Int64]:
    """The likeliest head of every word."""
    return [model(vectors[None])[0].argmax(1).numpy() for vectors in x]
