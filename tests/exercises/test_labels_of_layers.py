"""Labels of annotation layers as targets (`label`) and as further inputs (`show`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cloze.errors import RecipeError
from cloze.exercises.show import Show
from cloze.exercises.targets.label import Label
from cloze.rng import Draw
from cloze.rows import Rows

DRAW = Draw(np.zeros(2, np.uint64))


def rows(**more: Any) -> Rows:
    """Two rows: units of two, one and one tokens; the second begins inside a unit, and its last unit is padding."""
    return Rows({
        "tokens": np.arange(10, dtype=np.int32).reshape(2, 5), "length": np.array([5, 3], np.int32),
        "layers/pos": np.array([[0, 1, 2, 1, 0], [2, 1, 0, 1, 2]], np.uint8),
        "labels/pos": np.array([[0, 3, 3, 1, 0], [2, 2, 0, 1, 1]], np.int32),
        **{k.replace("__", "/"): v for k, v in more.items()},
    })


def targets(made: Rows) -> list[list[tuple[int, int]]]:
    """(column, target) of every row."""
    return [
        [(int(p), int(t)) for p, t in zip(place, target, strict=True) if p >= 0]
        for place, target in zip(made["positions/pos"], made["targets/pos"], strict=True)
    ]


def test_each_unit_is_asked_for_at_its_first_token_or_at_every_token() -> None:
    assert targets(Label(set="pos", of="units", layer="pos")(rows(), DRAW)) == [[(1, 2), (3, 0)], [(0, 1), (1, 1)]]
    assert targets(Label(set="pos", of="tokens", layer="pos")(rows(), DRAW)) == [[(1, 2), (2, 2), (3, 0)], [(0, 1), (1, 1)]]


def test_only_masked_units_are_asked_for_on_request() -> None:
    masked = np.array([[0, 0, 1, 1, 0], [1, 0, 0, 1, 1]], bool)
    given = rows(masked=masked)
    assert targets(Label(set="pos", of="units", layer="pos", only="masked")(given, DRAW)) == [[(3, 0)], [(0, 1)]]
    assert targets(Label(set="pos", of="tokens", layer="pos", only="masked")(given, DRAW)) == [[(2, 2), (3, 0)], [(0, 1)]]


def test_labels_are_shown_except_at_hidden_tokens() -> None:
    labels = rows()["labels/pos"]
    assert Show(layer="pos")(rows(), DRAW)["inputs/pos"].tolist() == labels.tolist()
    masked = np.array([[0, 1, 1, 0, 0], [1, 0, 0, 0, 0]], bool)
    hidden = Show(layer="pos", set="tags")(rows(masked=masked), DRAW)["inputs/tags"]
    assert hidden.tolist() == [[0, 0, 0, 1, 0], [0, 2, 0, 1, 1]]
    original = np.array([[0, 1, 99, 3, 4], [5, 6, 7, 8, 9]], np.int32)  # `corrupt` has kept tokens 1 and 5
    assert Show(layer="pos")(rows(masked=masked, original=original), DRAW)["inputs/pos"].tolist() == [
        [0, 3, 0, 1, 0], [2, 2, 0, 1, 1],
    ]


def test_the_label_of_a_record_is_shown_at_every_token_of_its_text() -> None:
    special = np.array([[1, 0, 0, 0, 1], [1, 0, 1, 0, 0]], bool)
    given = rows(column__stars=np.array([4, -1]), special=special)
    assert Show(column="stars")(given, DRAW)["inputs/stars"].tolist() == [[0, 5, 5, 5, 0], [0, 0, 0, 0, 0]]


@pytest.mark.parametrize("arguments", [{}, {"layer": "pos", "column": "stars"}])
def test_show_needs_one_source_of_labels(arguments: Any) -> None:
    with pytest.raises(RecipeError, match="a layer or of a column, one of them"):
        Show(**arguments)


@pytest.mark.parametrize("arguments", [{"of": "units"}, {"layer": "pos"}, {"only": "masked"}])
def test_label_refuses_a_layer_without_units_and_units_without_a_layer(arguments: Any) -> None:
    with pytest.raises(RecipeError, match="label: "):
        Label(**arguments)
