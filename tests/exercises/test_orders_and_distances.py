"""The tasks of ERNIE that ask for the order of segments, the distance of sentences, and whether a dialogue is real."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from cloze.errors import RecipeError
from cloze.exercises.companions.dialogue import Dialogue
from cloze.exercises.companions.distance import Distance
from cloze.exercises.targets.reorder import Reorder
from cloze.recipe.load import load_recipe
from cloze.rng import Draw, row_keys
from cloze.rows import Rows

SIZES = (2, 1, 3, 2)  # tokens of the sentences of a passage


def passages(sentences: int, count: int = 3000) -> Rows:
    """Passages of the first sentences; a token is 10 · its sentence + its place. The distractor has sentences of two and one."""
    sentence = np.repeat(np.arange(sentences), SIZES[:sentences])
    tokens = np.concatenate([10 * s + np.arange(SIZES[s]) for s in range(sentences)]) + 10
    padded = [np.tile(np.concatenate([value, [0, 0]]).astype(np.int32), (count, 1)) for value in (tokens, sentence)]
    other = {"tokens": np.tile(np.int32([900, 901, 950]), (count, 1)), "sentence": np.tile(np.int32([0, 0, 1]), (count, 1)),
             "length": np.full(count, 3, np.int32)}
    return Rows({
        "tokens": padded[0], "sentence": padded[1], "length": np.full(count, len(tokens), np.int32),
        **{f"distractor.{name}": value for name, value in other.items()},
    })


def draw(count: int = 3000) -> Draw:
    return Draw(row_keys(5, "main", 0, items=np.arange(count)))


def test_three_segments_have_nine_orders_and_each_target_names_one() -> None:
    assert Reorder(most=3).classes == 9 and Reorder(most=4).classes == 33
    made = Reorder(most=3)(passages(3), draw())
    found: dict[int, set[tuple[int, ...]]] = {}
    for tokens, target in zip(made["tokens"], made["targets/order"], strict=True):
        found.setdefault(int(target), set()).add(tuple(dict.fromkeys(int(t) // 10 - 1 for t in tokens[:6])))
    assert sorted(found) == list(range(9))
    # Class 0: one segment. 1 and 2: two segments, cut after the first or the second sentence. 3 to 8: three, in lexical order.
    assert found[0] == found[1] == {(0, 1, 2)} and found[2] == {(1, 2, 0), (2, 0, 1)}
    assert [found[3 + number] for number in range(6)] == [{order} for order in permutations(range(3))]
    segments = np.select([made["targets/order"] == 0, made["targets/order"] < 3], [1, 2], 3)
    assert np.bincount(segments)[1:] == pytest.approx([1000, 1000, 1000], abs=90)


def test_sentences_stay_whole_and_short_passages_have_fewer_segments() -> None:
    made = Reorder(most=3)(passages(4), draw())
    assert (np.sort(made["tokens"][:, :8], axis=1) == np.sort(passages(4)["tokens"][:, :8], axis=1)).all()
    for tokens in made["tokens"][:50, :8]:
        inside = [int(t) for t in tokens]
        assert [t for t in inside if t // 10 == 3] == [30, 31, 32] and inside.index(32) - inside.index(30) == 2
    assert set(Reorder()(passages(1), draw())["targets/order"].tolist()) == {0}
    assert set(Reorder()(passages(2), draw())["targets/order"].tolist()) == {0, 1, 2}


def test_segments_apart_are_the_parts_of_the_row_in_their_new_order_and_missing_ones_are_empty() -> None:
    made = Reorder(most=3, apart=True)(passages(3, 200), draw(200))
    for tokens, target, parts in zip(made["tokens"], made["targets/order"], made["parts"], strict=True):
        texts = [[int(t) for t in tokens[start:stop]] for start, stop in parts]
        assert [t for text in texts for t in text] == [int(t) for t in tokens[:6]]
        assert [len(text) > 0 for text in texts] == [True, target > 0, target > 2]
        assert all(text == sorted(text) for text in texts)  # sentences of a segment keep their order


def test_a_number_of_segments_without_an_order_to_tell_is_refused() -> None:
    with pytest.raises(RecipeError, match="most is 1; expected 2 to 6 segments"):
        Reorder(most=1)


def texts(rows: Rows) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """The class and the tokens of both parts of every row."""
    return [
        (int(kind), *(tuple(int(t) for t in tokens[start:stop]) for start, stop in parts))  # type: ignore[misc]
        for kind, tokens, parts in zip(rows["targets/distance"], rows["tokens"], rows["parts"], strict=True)
    ]


def test_distances_are_adjacent_of_one_document_or_of_two() -> None:
    made = Distance()(passages(4), draw())
    sentence = [tuple(10 + 10 * s + k for k in range(SIZES[s])) for s in range(4)]
    other = (900, 901)
    seen = {kind: {(a, b) for k, a, b in texts(made) if k == kind} for kind in range(3)}
    assert seen[0] == {(sentence[s], sentence[s + 1]) for s in range(3)}
    assert seen[1] == {(sentence[0], sentence[2]), (sentence[0], sentence[3]), (sentence[1], sentence[3])}
    assert seen[2] == {(one, other) for one in sentence}
    assert np.bincount(made["targets/distance"]) == pytest.approx([1000, 1000, 1000], abs=90)


@pytest.mark.parametrize(("sentences", "kinds"), [(1, {2}), (2, {0, 2}), (3, {0, 1, 2})])
def test_a_short_passage_has_the_distances_that_it_can_have(sentences: int, kinds: set[int]) -> None:
    made = Distance()(passages(sentences), draw())
    assert {kind for kind, _, _ in texts(made)} == kinds


@pytest.mark.parametrize("turns", [2, 4])
def test_a_fake_dialogue_has_one_turn_of_another_one_and_each_turn_is_replaced_equally_often(turns: int) -> None:
    made = Dialogue(turns=3)(passages(turns), draw())
    real = [tuple(10 + 10 * s + k for k in range(SIZES[s])) if s < turns else () for s in range(3)]
    others = [tuple((900, 901) if s == place else text for s, text in enumerate(real)) for place in range(min(turns, 3))]
    seen: dict[int, list[tuple[tuple[int, ...], ...]]] = {0: [], 1: []}
    for label, tokens, parts in zip(made["targets/dialogue"], made["tokens"], made["parts"], strict=True):
        seen[int(label)].append(tuple(tuple(int(t) for t in tokens[start:stop]) for start, stop in parts))
    assert set(seen[1]) == {tuple(real)} and len(seen[1]) == pytest.approx(1500, abs=90)
    assert [seen[0].count(fake) for fake in others] == pytest.approx([len(seen[0]) / len(others)] * len(others), abs=90)
    assert sum(map(seen[0].count, others)) == len(seen[0])


@pytest.mark.parametrize("name", ["ernie-2.0", "ernie-2.0-large", "ernie-2.0-zh", "ernie-2.0-large-zh"])
def test_every_task_of_ernie_2_has_fifty_thousand_steps(name: str) -> None:
    told = load_recipe(name).canonical()
    steps = dict.fromkeys(told["mixture"], 0.0)
    for place, phase in enumerate(told["schedule"]):
        odds = {name: phase["set"][f"odds.{name}"] for name in steps}
        assert [name for name, share in odds.items() if share] == list(steps)[: place + 1]  # the tasks so far
        for name, share in odds.items():
            steps[name] += told["training"]["steps"] * phase["share"] * share / sum(odds.values())
            if share and list(steps).index(name) < place:
                assert told["training"]["steps"] * phase["share"] * share / sum(odds.values()) == pytest.approx(10_000)
    assert steps == pytest.approx(dict.fromkeys(steps, 50_000))
