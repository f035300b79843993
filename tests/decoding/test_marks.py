"""What a network reads next to the tokens of a text with masks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cloze.decoding.links import labels_of
from cloze.decoding.marks import aligned, marks_around
from tests.tasks.conftest import load_systems


def reader_of(tokenizer: Any, words: dict[str, int]) -> Any:
    """A reader whose layer `entity` has a unit of each of these words, with the label that the word has."""

    def marks(texts: list[str]) -> list[dict[str, np.ndarray]]:
        rows = []
        for text, spelled in ((text, tokenizer.encode_spelled([text])) for text in texts):
            layer, labels = np.zeros(len(spelled.ids), np.uint8), np.zeros(len(spelled.ids), np.int32)
            for word, label in words.items():
                begin = text.find(word)
                covered = (spelled.begin < begin + len(word)) & (spelled.end > begin) & (begin >= 0)
                layer[covered], labels[covered] = 2, label
                layer[np.flatnonzero(covered)[:1]] = 1
            rows.append({"layers/entity": layer, "labels/entity": labels})
        return rows

    def ids(texts: list[str]) -> list[Any]:
        return [np.asarray(encoded.ids) for encoded in tokenizer.encode_batch(texts)]

    return SimpleNamespace(reads_marks=True, tokenizer=tokenizer, ids=ids, marks=marks)


@pytest.mark.parametrize("kind", ["wordpiece", "roberta", "unigram"])
def test_a_text_before_a_mask_keeps_its_labels_where_its_last_space_is_a_token_alone(kind: str) -> None:
    tokenizer = load_systems().tokenizer(kind)
    text = "the cat [MASK] the dog"
    ids = np.asarray(tokenizer.encode_template(text).ids, np.int32)
    marks = marks_around(reader_of(tokenizer, {"cat": 3, "dog": 4}), ids, text)
    labels, layer = marks["labels/entity"], marks["layers/entity"]
    cat, dog = np.flatnonzero(labels == 3), np.flatnonzero(labels == 4)
    assert cat.tolist() == [1] and dog.tolist() == list(range(4, len(ids)))  # behind: the mask, the
    assert layer[cat].tolist() == [1] and layer[dog].tolist() == [1, *[2] * (len(dog) - 1)]
    assert (layer > 0).sum() == len(cat) + len(dog)
    linked = labels_of(tokenizer, ids, text, [(4, 7, 8), (19, 22, 9)])
    assert linked.tolist() == np.where(labels == 3, 9, np.where(labels == 4, 10, 0)).tolist()


@pytest.mark.parametrize(("alone", "here", "source"), [
    ([5, 6, 7], [5, 6, 7], [0, 1, 2]), ([5, 6, 9], [5, 6], [0, 1]), ([5, 6], [9, 5, 6], [-1, 0, 1]),
    ([5, 6], [7, 8, 6], [0, 0, 1]), ([], [9], [-1]), ([9], [], []),
])  # fmt: skip
def test_tokens_are_aligned_with_those_of_their_text_alone(alone: list[int], here: list[int], source: list[int]) -> None:
    assert aligned(np.array(alone, np.int32), np.array(here, np.int32)).tolist() == source
