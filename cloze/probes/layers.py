"""What can be read from each layer about words: their labels and their senses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.readers.marked_texts import TextFields, read_marked
from cloze.corpus.readers.sense_xml import read_sense_xml
from cloze.corpus.readers.tagged import read_tagged
from cloze.decoding.reader import Checkpoint, Reader
from cloze.errors import UserError
from cloze.probes.linear import Accuracies, ProbeSplit, majority, share_equal
from cloze.probes.measures import Floats, unit
from cloze.probes.words import Spans, join_words, word_rows, word_states

Vectors = NDArray[np.float32]


class WordExample(NamedTuple):
    """One or several words of a text, by their numbers, with their label, and their kind, on which controls depend."""

    text: int
    words: tuple[int, ...]
    label: str
    kind: str


@dataclass(frozen=True)
class LabelledWords:
    """Texts, the characters (K, 2) of their words, and the labelled words.

    `fallback`: the label of a kind that has no training example, where it is known.
    """

    texts: Sequence[str]
    spans: Sequence[Spans]
    examples: Sequence[WordExample]
    fallback: Mapping[str, str] = field(default_factory=dict)


def tagged_words(path: Path | str, column: str, *, most: int) -> LabelledWords:
    """The words of a file with their labels; CoNLL-U, CoNLL, or lists in JSON lines."""
    universal = str(path).endswith((".conllu", ".conllu.xz", ".conllu.gz"))
    text = "form" if universal else "text"
    tagged = read_tagged(path, text=text, label=column, columns=None, format=None, labelled=True)
    texts, spans, examples = [], [], []
    for number, (words, labels) in enumerate(zip(tagged.words[:most], tagged.labels or (), strict=False)):
        running, places = join_words(words)
        texts.append(running)
        spans.append(places)
        examples += [WordExample(number, (n,), label, word) for n, (word, label) in enumerate(zip(words, labels, strict=True))]
    return LabelledWords(texts, spans, examples)


def sense_words(path: Path | str, *, most: int) -> LabelledWords:
    """The words with senses in `NAME.data.xml` (Raganato et al., 2017); the kind is the lemma with its part of speech.

    Differs: of several keys of a word the first is right; the framework's scorer accepts any.
    """
    texts, spans, examples = [], [], []
    for number, (words, senses) in enumerate(read_sense_xml(path, most=most)):
        running, places = join_words(words)
        texts.append(running)
        spans.append(places)
        examples += [WordExample(number, (sense.number,), sense.keys[0], sense.lemma) for sense in senses]
    return LabelledWords(texts, spans, examples)


def marked_spans(path: Path | str, *, most: int) -> LabelledWords:
    """Texts with one marked word and its sense: rows of the task span_classification. The kind is the word as it is spelled."""
    rows = read_marked(path, TextFields("text", "spans", "label"), labelled=True).each[:most]
    spans = [np.array(row.spans[:1], np.int64).reshape(-1, 2) for row in rows]
    examples = [
        WordExample(n, (0,), str(row.label), row.text[row.spans[0][0] : row.spans[0][1]].lower()) for n, row in enumerate(rows)
    ]  # fmt: skip
    return LabelledWords([row.text for row in rows], spans, examples)


def vectors_of(
    reader: Reader, marked: LabelledWords, *, length: int | None = None, size: int = 32
) -> tuple[Vectors, list[WordExample]]:
    """The examples whose words were read, and their vectors (N + 1, M, D), those of several words side by side."""
    rows = word_rows(reader, marked.texts, marked.spans, length=length)
    by_text: dict[int, list[int]] = {}
    for n, example in enumerate(marked.examples):
        if all(rows[example.text].columns[word, 0] >= 0 for word in example.words):
            by_text.setdefault(example.text, []).append(n)
    vectors: dict[int, Vectors] = {}
    for text, states in word_states(reader, rows, size=size):
        for n in by_text.get(text, ()):
            vectors[n] = np.concatenate([states[:, word] for word in marked.examples[n].words], axis=-1)
    if not vectors:
        raise UserError("no labelled word was read by this network.")
    numbers = sorted(vectors)
    return np.stack([vectors[n] for n in numbers], axis=1), [marked.examples[n] for n in numbers]


def remarks_on_lost(every: Sequence[LabelledWords], examples: Sequence[Sequence[WordExample]]) -> list[str]:
    """A remark on the words of some parts that were not read, if there are any."""
    lost = sum(map(len, (part.examples for part in every))) - sum(map(len, examples))
    return [f"{lost:,} words were left out: the network did not read them"] if lost else []


def split_of(
    loaded: Checkpoint, train: LabelledWords, test: LabelledWords, *, length: int | None = None, size: int = 32
) -> tuple[ProbeSplit, list[str]]:
    """The vectors of both parts in one network, and remarks on what was left out."""
    reader = Reader.of(loaded)
    x, examples = vectors_of(reader, train, length=length, size=size)
    z, others = vectors_of(reader, test, length=length, size=size)
    (_, _, labels, kinds), (_, _, other_labels, other_kinds) = zip(*examples, strict=True), zip(*others, strict=True)
    split = ProbeSplit(x, z, labels, other_labels, kinds, other_kinds, test.fallback)
    return split, remarks_on_lost([train, test], [examples, others])


@dataclass(frozen=True)
class Senses:
    """The accuracy of the nearest neighbour by layer: of the nearest occurrence, and of the nearest mean of a sense."""

    occurrence: Sequence[float]
    mean: Sequence[float]


def nearest_senses(split: ProbeSplit) -> Senses:
    """Senses of words by their nearest neighbours of the same word in the training part, by cosine (Peters et al., "Deep
    contextualized word representations", 2018, §5.3).

    A word without training examples gets its first sense in WordNet, where the files say it.

    Differs: otherwise it gets the most frequent sense of all words, which is nearly always wrong.
    """
    usual = majority(split.train_labels)
    by_kind: dict[str, list[int]] = {}
    for n, kind in enumerate(split.train_kinds):
        by_kind.setdefault(kind, []).append(n)
    occurrence: list[float] = []
    mean: list[float] = []
    for train, test in zip(split.train, split.test, strict=True):
        guesses: tuple[list[str], list[str]] = ([], [])
        x, z = unit(train), unit(test)
        centres = {kind: _centres(x, indexes, split.train_labels) for kind, indexes in by_kind.items()}
        for n, kind in enumerate(split.test_kinds):
            indexes = by_kind.get(kind)
            if indexes is None:
                for labels in guesses:
                    labels.append(split.fallback.get(kind, usual))
                continue
            guesses[0].append(split.train_labels[indexes[int((x[indexes] @ z[n]).argmax())]])
            names, vectors = centres[kind]
            guesses[1].append(names[int((vectors @ z[n]).argmax())])
        for shares, labels in zip((occurrence, mean), guesses, strict=True):
            shares.append(share_equal(labels, split.test_labels))
    return Senses(occurrence, mean)


def _centres(x: Floats, indices: Sequence[int], labels: Sequence[str]) -> tuple[list[str], Floats]:
    """The senses of a word and the mean of each (S, D), of length 1."""
    names = sorted({labels[n] for n in indices})
    return names, unit(np.stack([x[[n for n in indices if labels[n] == name]].mean(0) for name in names]))


@dataclass(frozen=True)
class LayerScores:
    """What linear probes read from the layers of one network, and `second` probes, if there are any; with senses, also their
    nearest neighbours."""

    scores: Accuracies
    senses: Senses | None = None
    second: Accuracies | None = None
    remarks: Sequence[str] = ()
