"""Mentions of entities replaced by other names, and targets read from the tokens around them (WKLM)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cloze.batch import Batch
from cloze.errors import CorpusError, RecipeError
from cloze.exercises import Exercise, TokenFacts
from cloze.exercises.exercise import PlacedEdit
from cloze.exercises.frame import Frame
from cloze.exercises.knowledge.replace_mentions import ReplaceMentions
from cloze.exercises.noise.mask import Mask
from cloze.exercises.targets.label import Label
from cloze.knowledge.entities import BoundEntities
from cloze.networks.clock import Clock
from cloze.objectives.tokens.outside import outside
from cloze.rng import Draw, row_keys
from cloze.rows import Rows

# Entities 1 to 6 with the names 101, 102 102, …: the first three are cities, the fourth is alone, the others people.
NAMES = [[101], [102, 102], [103, 103, 103], [104], [105], [106, 106]]
TYPES = [("city",), ("city",), ("city",), ("planet",), ("human",), ("human", "writer")]
TABLE = BoundEntities(
    [f"Q{n}" for n in range(1, 7)], names=list("abcdef"), types=TYPES, tokens=NAMES,
    layers={"entity": np.array([0, 1, 2, 3, 4, 5, 6, 0], np.int32)},  # label 6 is no entity of the table
)
FACTS = TokenFacts(1000, {"[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "[PAD]": 0}, np.arange(5, 900, dtype=np.int32), lambda text: [])
ROW = [7, (1, 2), 8, (2, 1), (5, 2), 9, (4, 1), 10, (3, 1), (7, 1), 11]  # tokens, and (label, size) of mentions


def block(count: int = 200) -> Rows:
    """Equal rows of 16 tokens with six mentions of entities of the table; two more columns are padding."""
    tokens, marks, labels = [], [], []
    for one in ROW:
        label, size = one if isinstance(one, tuple) else (0, 1)
        tokens += [500 + label] * size if label else [one]
        marks += [1, *[2] * (size - 1)] if label else [0]
        labels += [label] * size
    wide = [np.tile(np.array([*value, 1, 1], np.int32), (count, 1)) for value in (tokens, marks, labels)]
    return Rows({
        "tokens": wide[0], "layers/entity": wide[1], "labels/entity": wide[2], "length": np.full(count, len(tokens), np.int32),
        "word_start": wide[1] != 2, "sentence": wide[2] * 0,
    })


def draw(count: int = 200) -> Draw:
    return Draw(row_keys(3, "main", 0, items=np.arange(count)))


def edit(**changed: Any) -> ReplaceMentions:
    return ReplaceMentions(table="entities", layer="entity", tables={"entities": TABLE}, **changed)


def mentions(rows: Rows, row: int, layer: str = "kept") -> list[tuple[list[int], int]]:
    """The tokens and the label of every unit of a layer."""
    found: list[tuple[list[int], int]] = []
    for column in range(int(rows["length"][row])):
        mark = rows[f"layers/{layer}"][row, column]
        if mark == 1:
            found.append(([], int(rows[f"labels/{layer}"][row, column])))
        if mark:
            found[-1][0].append(int(rows["tokens"][row, column]))
    return found


def test_a_replaced_mention_has_the_name_of_another_entity_of_its_type_and_never_two_in_a_row() -> None:
    made = edit(rate=0.5)(block(), draw())
    kinds = {101: "city", 102: "city", 103: "city", 104: "planet", 105: "human", 106: "human"}
    own = {0: (101, "city"), 1: (102, "city"), 2: (105, "human"), 3: (103, "city")}
    for row in range(200):
        found = mentions(made, row)
        assert len(found) == 4  # the planet has no other planet, the last mention is no entity of the table
        for place, (tokens, label) in enumerate(found):
            mine, kind = own[place]
            if label == 1:  # replaced
                assert tokens == NAMES[tokens[0] - 101] and tokens[0] != mine and kinds[tokens[0]] == kind
            else:
                assert label == 2 and tokens[0] >= 500
        replaced = [label == 1 for _, label in found][:3]  # the planet stands between the third and the fourth
        assert not any(one and two for one, two in zip(replaced, replaced[1:], strict=False))
        text = [int(t) for t in made["tokens"][row, : made["length"][row]] if t < 100]
        assert text == [7, 8, 9, 10, 11]  # the text around mentions is untouched


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_as_many_mentions_are_replaced_as_rate_says(rate: float) -> None:
    made = edit(rate=rate)(block(4000), draw(4000))
    # The planet, third of the mentions from the end, can never be replaced: the one after it is drawn as if it were not there.
    first = np.array([label for row in range(4000) for _, label in mentions(made, row)[:3]])
    assert abs((first == 1).mean() - rate) < 0.015


def test_words_and_layers_follow_the_new_name() -> None:
    made = edit(rate=0.5)(block(), draw())
    row = next(r for r in range(200) if mentions(made, r)[1][0] == [103, 103, 103])
    column = list(made["tokens"][row]).index(103)
    assert made["word_start"][row, column : column + 3].tolist() == [True, False, False]
    assert made["layers/entity"][row, column : column + 3].tolist() == [1, 2, 2]
    assert made["labels/entity"][row, column : column + 3].tolist() == [0, 0, 0]  # it mentions the old entity no more
    assert made["sentence"][row, column : column + 3].tolist() == [0, 0, 0]


def test_types_are_ignored_on_request_and_rows_are_cut_at_the_limit() -> None:
    made = edit(rate=0.5, same="any", limit=9)(block(), draw())
    assert made["length"].max() == 9 and made["tokens"].shape[1] == 9
    first = {tokens[0] for row in range(200) for tokens, label in mentions(made, row)[:1] if label == 1}
    assert first == {102, 103, 104, 105, 106}


@pytest.mark.parametrize("rate", [0.0, 0.6])
def test_a_rate_that_would_replace_neighbours_is_refused(rate: float) -> None:
    with pytest.raises(RecipeError, match=r"replace_mentions: rate is 0\.\d; expected a number above 0 and at most 0\.5"):
        edit(rate=rate)


@pytest.mark.parametrize(("lacks", "missing"), [({"tokens": None}, "names"), ({"types": ()}, "types")])
def test_a_table_without_names_or_types_is_refused(lacks: Any, missing: str) -> None:
    table = BoundEntities(**{
        "ids": TABLE.ids, "names": TABLE.names, "types": TYPES, "tokens": NAMES,
        "layers": {"entity": TABLE.of_label("entity")}, **lacks,
    })
    with pytest.raises(CorpusError, match=f"no {missing}. Name a file with them: --set tables.NAME.{missing}=FILE"):
        ReplaceMentions(table="entities", layer="entity", tables={"entities": table})(block(2), draw(2))


def test_every_mention_is_asked_for_at_the_tokens_around_it_and_none_is_masked() -> None:
    edits = [
        PlacedEdit(edit(rate=0.5)), PlacedEdit(Frame("[CLS] {A} [SEP]", tokenizer=FACTS)),
        PlacedEdit(Mask(rate=0.5, spare=["special", "entity"])), PlacedEdit(Label(set="kept", of="around", layer="kept")),
    ]
    made = Exercise(edits, 30, keep=frozenset({"layers/kept", "labels/kept", "layers/entity", "masked"}))(block(), draw())
    assert not (made["masked"] & (made["layers/entity"] > 0)).any() and made["masked"].any()
    assert (made["targets/kept"] == made["targets/kept_right"]).all()
    for row in range(200):
        found = mentions(made, row)
        left, right = made["positions/kept"][row], made["positions/kept_right"][row]
        assert (left >= 0).sum() == len(found) == 4
        for (tokens, label), before, after, target in zip(found, left, right, made["targets/kept"][row], strict=False):
            assert target == label - 1 and after - before == len(tokens) + 1
            assert made["tokens"][row, before + 1 : after].tolist() == tokens


def test_a_mention_at_the_end_of_a_row_has_no_token_outside_and_no_target() -> None:
    rows = Rows({
        "tokens": np.array([[1, 2, 3, 4]]), "length": np.array([3]), "layers/kept": np.array([[1, 0, 1, 2]]),
        "labels/kept": np.array([[1, 0, 2, 2]]),
    })
    made = Label(set="kept", of="around", layer="kept")(rows, draw(1))
    assert made["positions/kept"].size == 0
    longer = Label(set="kept", of="around", layer="kept")(rows.having(length=np.array([4])), draw(1))
    assert longer["positions/kept"].size == 0  # both mentions touch an end


def test_outside_reads_both_sides_and_is_a_binary_cross_entropy() -> None:
    head = outside(width=3, clock=Clock())
    assert sum(p.numel() for p in head.parameters()) == 7
    with torch.no_grad():
        head.head.output.weight.copy_(torch.tensor([[1.0, 0, 0, 0, 2.0, 0]]))
        head.head.output.bias.fill_(0.5)
    state = torch.arange(12.0).reshape(1, 4, 3)
    batch = Batch({
        "targets/kept": torch.tensor([1, 0]), "positions/kept": torch.tensor([0, 1]),
        "positions/kept_right": torch.tensor([2, 3]),
    })
    scores = head.scores({"hidden": state}, batch)
    assert scores.tolist() == [0 + 2 * 7 + 0.5, 3 + 2 * 10 + 0.5]
    loss = head.loss(scores, batch)
    expected = torch.nn.functional.softplus(torch.tensor([-14.5, 23.5])).sum()
    assert torch.allclose(loss.total, expected) and loss.metrics["correct"] == 1
