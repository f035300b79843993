"""The vectors that a frozen network gives to what a linear model decides on: texts, words, or the choices of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from itertools import chain, repeat
from typing import Any

import numpy as np

from cloze.checkpoint.build import Loaded
from cloze.comparison.best.question import TEXTS_OF_TEACHER, QuestionRows
from cloze.decoding.reader import Reader
from cloze.decoding.vectors.embedding import embed, length_of, sentence_head
from cloze.decoding.vectors.prompted import with_prompts
from cloze.probes.words import join_words, word_rows, word_states
from cloze.tasks.kinds.multiple_choice import LinearChoice
from cloze.tasks.linear.linear_task import LinearTask, LinearTexts
from cloze.tasks.linear.linear_words import LinearLabelling
from cloze.tasks.linear.vectors import Scaling, Vectors
from cloze.tasks.task import selected

LABELLED, WITHOUT = "labelled", "without"  # arrays of vectors


@singledispatch
def vectors_of(linear: LinearTask, loaded: Loaded, examples: Any) -> Vectors:
    """The vectors (D, W) of all decisions of examples."""
    raise NotImplementedError(f"{type(linear).__name__} has no vectors")


@vectors_of.register
def _of_texts(linear: LinearTexts, loaded: Loaded, examples: Any) -> Vectors:
    return _of_pairs(loaded, examples.texts, examples.others)


@vectors_of.register
def _of_choices(linear: LinearChoice, loaded: Loaded, examples: Any) -> Vectors:
    texts = chain.from_iterable(map(repeat, examples.texts, map(len, examples.others)))
    return _of_pairs(loaded, list(texts), list(chain.from_iterable(examples.others)))


@vectors_of.register
def _of_words(linear: LinearLabelling, loaded: Loaded, examples: Any) -> Vectors:
    """The means over the pieces of each word: of the embeddings, of the middle layer and of the top layer, one after the other. A
    table of words gives a word its vector and those of its neighbours."""
    reader = Reader.of(loaded)
    network: Any = loaded.network
    if network.of_words or "layers" not in network.gives:
        return _with_neighbours(reader, examples.words)
    texts, spans = zip(*map(join_words, examples.words), strict=True)
    words: dict[int, Vectors] = {}
    for number, states in word_states(reader, word_rows(reader, texts, spans, length=length_of(loaded))):
        depth = len(states) - 1
        layers = states[sorted({0, depth // 2, depth})]
        words[number] = layers.transpose(1, 0, 2).reshape(layers.shape[1], -1)
    return np.concatenate([words[number] for number in range(len(texts))])


def _with_neighbours(reader: Reader, texts: Sequence[Sequence[str]]) -> Vectors:
    numbers = {word: number for number, word in enumerate(dict.fromkeys(chain.from_iterable(texts)))}
    table = embed(reader, list(numbers))
    table = np.concatenate([table, np.zeros_like(table[:1])])  # the last row is beyond the ends of a text
    rows = []
    for words in texts:
        padded = np.array([-1, *(numbers[word] for word in words), -1])
        rows.append(np.concatenate([table[padded[1:-1]], table[padded[:-2]], table[padded[2:]]], axis=1))
    return np.concatenate(rows)


def _of_pairs(loaded: Loaded, texts: Sequence[str], second_texts: Sequence[str] | None) -> Vectors:
    """The vectors (N, W) of texts or of pairs: those that a sentence encoder was trained to give, else the means of the states of
    the middle layer and of the top layer, one after the other. A network that reads one text at a time, as encoders of sentences
    and tables of words do, gives a pair both vectors and their absolute difference."""
    reader, head = Reader.of(loaded), sentence_head(loaded)
    network: Any = loaded.network
    depth = len(network.layers) if head is None and "layers" in network.gives and not network.of_words else 0
    layers = [depth // 2, -1] if depth > 1 else [-1]

    def read(texts: Sequence[str], second_texts: Sequence[str] | None = None) -> Vectors:
        read_texts = texts if second_texts is not None else with_prompts(loaded, texts)
        framed = reader.encode(read_texts, second_texts, max_length=length_of(loaded))
        return np.concatenate([embed(reader, framed, layer=layer, head=head) for layer in layers], axis=1)

    if second_texts is None or not (head is not None or network.of_words):
        return read(texts, second_texts)
    first, second = read(texts), read(second_texts)
    return np.concatenate([first, second, np.abs(first - second)], axis=1)


def vectors_for(loaded: Loaded, rows: QuestionRows) -> dict[str, Vectors]:
    """The vectors that a teacher needs: of labelled rows and of the first texts without labels."""
    vectors = {LABELLED: vectors_of(rows.linear, loaded, rows.labelled)}
    if rows.texts is not None:
        first = selected(rows.texts, range(min(TEXTS_OF_TEACHER, len(rows.texts))))
        vectors[WITHOUT] = vectors_of(rows.linear, loaded, first)
    return vectors


def scaling_of(vectors: Mapping[str, Vectors]) -> Scaling:
    """The scaling of the vectors of labelled rows and of texts without labels."""
    return Scaling.of(np.concatenate([vectors[name] for name in (LABELLED, WITHOUT) if name in vectors]))
