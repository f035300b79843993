"""Edge probing: labels of one span or two, from a mixture of the layers of a frozen network.

Tenney et al., "What do you learn from context? Probing for sentence structure in contextualized word representations" (2019, §2)
and "BERT rediscovers the classical NLP pipeline" (2019, §3); the classifier and its sizes as in nyu-mll/jiant, branch
ep_frozen_20190723 (modules/edge_probing.py, config/defaults.conf).

Differs: the first layer of a mixture is the input of layer 1, with positions, not the table of tokens alone; spans are those of
words, which the network's own tokenizer splits; Adam at 1e-3, measured once in an epoch of 50 updates or more on the last tenth
of the training sentences, its rate halved after three epochs without a lower loss and training ended after five (the code: 1e-4,
up to 250,000 updates, by the F1 on a development file).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from cloze.corpus.readers.objects import objects
from cloze.corpus.readers.trees import each_tree
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import TaskError, UserError
from cloze.probes.linear import control_labels
from cloze.probes.training import Convergence, converge, last_tenth, several_passes
from cloze.probes.words import join_words, row_states, word_rows

WIDTH, DROPOUT, INPUT_DROPOUT = 256, 0.3, 0.2  # of projections and hidden units; of the hidden units; of the mixture
_BATCH, _UPDATES = 32, 50  # sentences; batches of an epoch, at least about
_CONVERGENCE = Convergence(patience=2, margin=0.0, clip=5.0)
Labels = tuple[str, ...]


class SpanTarget(NamedTuple):
    """One span of words or two, each from and up to, and the labels of them."""

    spans: tuple[tuple[int, int], ...]
    labels: Labels


@dataclass(frozen=True)
class SpanTexts:
    """Sentences as words, and the targets of each."""

    words: Sequence[tuple[str, ...]]
    targets: Sequence[Sequence[SpanTarget]]


def read_edges(path: Path | str, *, most: int) -> SpanTexts:
    """The first sentences with targets of CoNLL-U (a word and its head, labelled by the relation; the root with itself), or of
    jiant's JSON lines: `{"text": …, "targets": [{"span1": [0, 2], "span2": [3, 4], "label": …}]}`, with words that spaces
    separate, and a label or a list of them.

    Raises:
        TaskError: A line is neither; with file and line.
    """
    words, targets = [], []
    if str(path).endswith((".conllu", ".conllu.xz", ".conllu.gz")):
        sentences = (
            (tree.words, [
                SpanTarget(((n, n + 1), (head - 1, head) if head else (n, n + 1)), (relation,))
                for n, (head, relation) in enumerate(zip(tree.heads, tree.relations, strict=True))
            ])
            for tree in each_tree(path)
        )  # fmt: skip
    else:
        sentences = (_sentence(f"{path}:{line}", row) for line, row in objects(path))
    for sentence, labelled in sentences:
        if labelled:
            words.append(sentence)
            targets.append(labelled)
        if len(words) == most:
            break
    if not words:
        raise UserError(f"{path}: no sentence with targets.")
    sides = {len(target.spans) for labelled in targets for target in labelled}
    if len(sides) > 1:
        raise TaskError(f"{path}: some targets have one span and some have two. Write a file of each kind.")
    return SpanTexts(words, targets)


def _sentence(where: str, row: Mapping[str, Any]) -> tuple[tuple[str, ...], list[SpanTarget]]:
    """The words and the targets of a line of JSON."""
    if not isinstance(row.get("text"), str) or not isinstance(row.get("targets", []), list):
        raise TaskError(f'{where}: expected an object with a "text" and a list of "targets".')
    words, targets = tuple(row["text"].split()), []
    for target in row.get("targets", []):
        spans: list[Any] = [
            target.get(name) for name in ("span1", "span2") if isinstance(target, dict) and target.get(name) is not None
        ]
        labels = target.get("label") if spans else None
        labels = [labels] if isinstance(labels, str) else labels
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise TaskError(
                f'{where}: expected a target with "span1", optionally "span2", and a "label" or a list of them, got {target!r}.'
            )
        for span in spans:
            numbers = isinstance(span, list) and len(span) == 2 and all(isinstance(number, int) for number in span)
            if not numbers or not 0 <= span[0] < span[1] <= len(words):
                raise TaskError(f"{where}: the span {span!r} is not [from, up to] in {len(words)} words.")
        targets.append(SpanTarget(tuple((span[0], span[1]) for span in spans), tuple(labels)))
    return words, targets


class EdgeBatch(NamedTuple):
    """States (N + 1, T, D) of the tokens of some sentences; spans of these tokens (M, S, 2), from and up to; labels (M, C)."""

    states: Tensor
    spans: Tensor
    labels: Tensor


@dataclass(frozen=True)
class EdgeSentences:
    """Sentences as one network reads them: states (N + 1, L, D), spans of tokens (M, S, 2), the labels of each target and its
    kind, which the control depends on: the words of the first span. `lost` targets were left out."""

    states: Sequence[Tensor]
    spans: Sequence[NDArray[np.int64]]
    labels: Sequence[Sequence[Labels]]
    kinds: Sequence[Sequence[str]]
    lost: int

    def batch(self, numbers: Sequence[int], binary: Sequence[Tensor], layers: slice) -> EdgeBatch:
        """Some sentences in a row, with their `binary` labels."""
        shifts = np.cumsum([0, *(self.states[n].shape[1] for n in numbers)])
        spans = [torch.from_numpy(self.spans[n] + shift) for n, shift in zip(numbers, shifts, strict=False)]
        return EdgeBatch(
            torch.cat([self.states[n][layers] for n in numbers], 1), torch.cat(spans), torch.cat([binary[n] for n in numbers])
        )


def edge_sentences(reader: Reader, texts: SpanTexts, *, length: int | None = None, size: int = 32) -> EdgeSentences:
    """The states of sentences, and the tokens of their spans; targets of which a word was not read are left out."""
    running, places = zip(*(join_words(words) for words in texts.words), strict=True)
    rows = word_rows(reader, running, places, length=length)
    states, spans, labels, kinds, lost = [], [], [], [], 0
    for number, layers in sorted(row_states(reader, [row.row for row in rows], size=size), key=lambda pair: pair[0]):
        columns, words, targets = rows[number].columns, texts.words[number], texts.targets[number]
        read = [all((columns[begin:end, 0] >= 0).all() for begin, end in target.spans) for target in targets]
        lost += read.count(False)
        targets = [target for target, whole in zip(targets, read, strict=True) if whole]
        if targets:
            states.append(torch.from_numpy(layers))
            spans.append(np.array([[(columns[a, 0], columns[b - 1, 1]) for a, b in target.spans] for target in targets]))
            labels.append([target.labels for target in targets])
            kinds.append([" ".join(words[slice(*target.spans[0])]) for target in targets])
    if not states:
        raise UserError("no labelled span was read by this network. Give shorter sentences, or a larger --length.")
    return EdgeSentences(states, spans, labels, kinds, lost)


class EdgeClassifier(nn.Module):
    """Scores of labels for spans: a mixture of layers, a projection and self-attentive pooling of each span, and an MLP.

    The mixture is Σ softmax(w)ₙ hₙ, times a scale (Peters et al., 2018). In a span, the weights of the projected tokens are the
    softmax of a linear map of them (Lee et al., 2017).
    """

    def __init__(self, layers: int, width: int, sides: int, classes: int, hidden: int = WIDTH) -> None:
        super().__init__()
        self.mix, self.scale = nn.Parameter(torch.zeros(layers)), nn.Parameter(torch.ones(1))
        self.project = nn.ModuleList(nn.Linear(width, hidden) for _ in range(sides))
        self.attend = nn.ModuleList(nn.Linear(hidden, 1) for _ in range(sides))
        self.classify = nn.Sequential(
            nn.Linear(sides * hidden, hidden), nn.Tanh(), nn.LayerNorm(hidden), nn.Dropout(DROPOUT), nn.Linear(hidden, classes)
        )

    def forward(self, states: Tensor, spans: Tensor) -> Tensor:
        """The scores (M, C) of spans (M, S, 2) of tokens with states (N + 1, T, D)."""
        mixed = self.scale * torch.einsum("n,ntd->td", self.mix.softmax(0), states)
        mixed = functional.dropout(mixed, INPUT_DROPOUT, self.training)
        pooled = []
        for side, (project, attend) in enumerate(zip(self.project, self.attend, strict=True)):
            begin, end = spans[:, side].unbind(1)
            tokens = begin[:, None] + torch.arange(int((end - begin).max()))
            inside = tokens < end[:, None]
            tokens = tokens.where(inside, begin[:, None])
            projected = project(mixed)
            shares = attend(projected)[:, 0][tokens].masked_fill(~inside, -torch.inf).softmax(1)
            pooled.append((shares[..., None] * projected[tokens]).sum(1))
        scores: Tensor = self.classify(torch.cat(pooled, 1))
        return scores


@dataclass(frozen=True)
class EdgeScores:
    """Micro-F1 of the binary labels of the test targets, by the highest layer that the probe reads, and of the control task.

    `weights` are the shares of the layers in the mixture of all. `gravity` is their centre (the second paper, eq. 2), `expected`
    the layer that is expected to bring a gain (eq. 4), NaN where only single layers are read. `precision` and `recall` are those
    of the last probe. `majority` is the F1 of always giving the most frequent labels.
    """

    f1: Sequence[float]
    control: Sequence[float]
    precision: float
    recall: float
    weights: Sequence[float]
    gravity: float
    expected: float
    majority: float
    classes: int
    train: int
    test: int
    remarks: Sequence[str] = ()

    @property
    def selectivity(self) -> list[float]:
        """F1 minus control, by layer."""
        return [a - b for a, b in zip(self.f1, self.control, strict=True)]


def probe_edges(
    loaded: Checkpoint, train: SpanTexts, test: SpanTexts, *, single: bool = False, control: bool = True, seed: int = 0,
    length: int | None = None, size: int = 32,
) -> EdgeScores:
    """Train a classifier on a mixture of the first layers, up to each of them, or with `single` on each layer alone.

    The control gives every target the labels of a random training target, the same wherever the words of its first span are the
    same (Hewitt and Liang, 2019, §2.1).
    """
    reader = Reader.of(loaded)
    parts = [edge_sentences(reader, part, length=length, size=size) for part in (train, test)]
    names = sorted({label for labels in parts[0].labels for target in labels for label in target})
    f1, controls, weights = [], [], torch.ones(1)
    counts = np.zeros(3)
    for layer in range(parts[0].states[0].shape[0]):
        layers = slice(layer if single else 0, layer + 1)
        counts, weights = _scored(parts, [part.labels for part in parts], names, layers, seed)
        f1.append(_f1(counts))
        if control:
            controls.append(_f1(_scored(parts, control_labels_of(parts, seed), names, layers, seed)[0]))
    shares = weights.tolist()
    targets = [[labels for sentence in part.labels for labels in sentence] for part in parts]
    usual = max(sorted(set(targets[0])), key=targets[0].count)
    always = np.sum([_counts(set(usual), set(labels)) for labels in targets[1]], axis=0)
    lost = sum(part.lost for part in parts)
    precision, recall = (float(counts[0] / max(counts[n], 1)) for n in (1, 2))
    return EdgeScores(
        f1, controls or [float("nan")] * len(f1), precision, recall, shares,
        float("nan") if single else gravity(shares), float("nan") if single else expected_layer(f1), _f1(always), len(names),
        len(targets[0]), len(targets[1]),
        [f"{lost:,} targets were left out: the network did not read all of their words"] if lost else [],
    )


def gravity(weights: Sequence[float]) -> float:
    """The centre of gravity of the weights of layers, Σ l · sₗ."""
    return float(np.arange(len(weights)) @ np.asarray(weights))


def expected_layer(scores: Sequence[float]) -> float:
    """Σ l · Δₗ / Σ Δₗ over the gains Δₗ of the scores from layer 1 on; NaN without a gain in all.

    >>> expected_layer([0.5, 0.7, 0.8])
    1.3333333333333335
    """
    gains = np.diff(scores)
    return float(np.arange(1, len(scores)) @ gains / gains.sum()) if len(gains) and gains.sum() != 0 else float("nan")


def control_labels_of(parts: Sequence[EdgeSentences], seed: int) -> list[list[list[Labels]]]:
    """Random labels of the kinds of all targets, distributed as those of the training targets are."""
    drawn = ["\0".join(labels) for sentence in parts[0].labels for labels in sentence]
    names = [tuple(name.split("\0")) if name else () for name in sorted(set(drawn))]
    return [[[names[n] for n in control_labels(kinds, drawn, seed)] for kinds in part.kinds] for part in parts]


def _scored(
    parts: Sequence[EdgeSentences], labels: Sequence[Sequence[Sequence[Labels]]], names: Sequence[str], layers: slice, seed: int
) -> tuple[NDArray[np.float64], Tensor]:
    """Right, predicted and true labels of the test targets by a classifier of these layers, and the weights of the layers."""
    number = {name: n for n, name in enumerate(names)}
    train, test = parts
    binary, test_binary = ([_binary(sentence, number) for sentence in sentences] for sentences in labels)
    model = _fit(train, binary, layers, seed)
    counts = np.zeros(3)
    with torch.no_grad():
        for at in range(0, len(test.states), _BATCH):
            numbers = range(at, min(at + _BATCH, len(test.states)))
            batch = test.batch(numbers, test_binary, layers)
            guess = model.eval()(batch.states, batch.spans) > 0
            true = sum(len(set(target)) for n in numbers for target in labels[1][n])  # also those that no training target has
            counts += [float((guess & (batch.labels > 0)).sum()), float(guess.sum()), float(true)]
    return counts, model.mix.detach().softmax(0)


def _fit(train: EdgeSentences, binary: Sequence[Tensor], layers: slice, seed: int) -> EdgeClassifier:
    """A classifier of these layers with the least loss of the `binary` labels on the last tenth of the sentences."""
    generator = torch.Generator().manual_seed(seed)
    count, held_out = last_tenth(len(train.states))
    development = list(range(len(train.states)))[held_out]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sides, classes = train.spans[0].shape[1], binary[0].shape[1]
        model = EdgeClassifier(len(train.states[0][layers]), train.states[0].shape[-1], sides, classes)

        def loss_of(batch: EdgeBatch) -> Tensor:
            return functional.binary_cross_entropy_with_logits(model.train()(batch.states, batch.spans), batch.labels)

        def evaluate() -> float:
            model.eval()
            total, answers = 0.0, 0
            for at in range(0, len(development), _BATCH):
                batch = train.batch(development[at : at + _BATCH], binary, layers)
                scores = model(batch.states, batch.spans)
                total += float(functional.binary_cross_entropy_with_logits(scores, batch.labels, reduction="sum"))
                answers += batch.labels.numel()
            return total / answers

        converge(
            list(model.parameters()),
            lambda: (
                train.batch(numbers.tolist(), binary, layers)
                for numbers in several_passes(count, _BATCH, _UPDATES, generator)
            ),
            loss_of, evaluate, _CONVERGENCE,
        )  # fmt: skip
    return model


def _binary(labels: Sequence[Labels], number: Mapping[str, int]) -> Tensor:
    """The labels of some targets as ones among zeros, (M, C)."""
    binary = torch.zeros(len(labels), len(number))
    for row, target in zip(binary, labels, strict=True):
        row[[number[label] for label in target if label in number]] = 1.0
    return binary


def _counts(guess: set[str], truth: set[str]) -> tuple[int, int, int]:
    return len(guess & truth), len(guess), len(truth)


def _f1(counts: Any) -> float:
    """The F1 of right, predicted and true labels."""
    right, predicted, true = (float(count) for count in counts)
    return 2 * right / (predicted + true) if predicted + true else 0.0
