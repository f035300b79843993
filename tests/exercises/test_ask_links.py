"""`ask_links`: a name means the entity of the mention with the same tokens, or none; masked names are not asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from cloze.exercises.knowledge.ask_links import AskLinks
from cloze.rng import Draw
from cloze.rows import Rows

TABLES = {"surfaces": SimpleNamespace(null=9, of_label=lambda layer: np.array([0, 4, 0, 6], np.int32))}
LINKS = np.array([[[1, 0], [2, 0], [1, 1], [4, 2], [5, 3]]])


def asked(**more: Any) -> list[int]:
    rows = Rows({
        "tokens": np.zeros((1, 6), np.int32), "length": np.array([6]), "items/surface": np.array([[1, 2, 3, 1]], np.int32),
        "links/surface": LINKS, "layers/entity": np.array([[0, 1, 2, 0, 1, 1]]), "labels/entity": np.array([[0, 1, 1, 0, 2, 3]]),
        **more,
    })  # fmt: skip
    made = AskLinks(layer="entity", tables=TABLES)(rows, Draw(np.zeros(1, np.uint64)))
    found: list[int] = made["items/entity"][0].tolist()
    return found


def test_a_name_means_the_entity_of_the_mention_with_the_same_tokens() -> None:
    """The second name is shorter than the mention, and the label of the third is no candidate."""
    assert asked() == [4, 9, 9, 6]


def test_names_with_a_masked_token_are_not_asked() -> None:
    assert asked(masked=np.array([[False, False, True, False, False, True]])) == [0, 9, 9, 0]
