"""The contract of every registered edit, so that a new edit is tested by being registered."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cloze.exercises  # noqa: F401  the import registers the edits
from cloze import fields, registry
from cloze.corpus.tables.lexicon import BoundLexicon
from cloze.errors import RecipeError
from cloze.exercises import Edit, TokenFacts
from cloze.exercises.exercise import PlacedEdit
from cloze.exercises.retokenize import OtherReading
from cloze.knowledge.entities import BoundEntities
from cloze.knowledge.fact_table import BoundFacts
from cloze.knowledge.senses import BoundSenses
from cloze.recipe.schema import arguments_of_part
from cloze.registry import GivenMark, mark_of, parameters
from cloze.rng import Draw, row_keys
from cloze.rows import Rows

ROLES = {"[PAD]": 0, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "[BOS]": 2, "[EOS]": 3}
FACTS = TokenFacts(
    1000, ROLES, np.arange(5, 950, dtype=np.int32), lambda t: [], np.arange(999, 949, -1, dtype=np.int32),
    [*map(str, range(940)), *(f"[frames/{number}]" for number in range(10)), *map(str, range(950, 1000))],
    json.dumps({"model": {"type": "BPE", "vocab": {"a": 5, "b": 6, "ab": 7, "abab": 8}, "merges": [["a", "b"], ["ab", "ab"]]}}),
)
SAME: Any = SimpleNamespace(
    hash="", size=1000, roles=ROLES, ordinary_ids=FACTS.ordinary, encode=None, sentinels=FACTS.sentinels, spellings=(),
    description="",
)
#: Spells an id as its number, and reads a number as two ids, or none.
DIGITS: Any = SimpleNamespace(
    kind="unigram", size=1000, roles=ROLES, spellings=["\u2581"] * 1000, special_ids=np.arange(5),
    decode=lambda ids: " ".join(map(str, ids)),
    encode=lambda text: SimpleNamespace(ids=np.array([int(text.split()[0]), 7] if int(text.split()[0]) % 3 else [], np.int32)),
)
REQUIRED = {
    "template": "[CLS] {A} [SEP]", "to": "other", "companion": "next", "table": "ngrams", "network": "bert", "layer": "entity",
}
OF_EDIT = {
    ("mix_vocabularies", "network"): "teacher", ("link", "table"): "entities", ("replace_mentions", "table"): "entities",
    ("inject", "table"): "facts",
}
MORE: dict[str, dict[str, Any]] = {
    "show": {"layer": "entity"}, "favour": {"senses": "senses"}, "ask_links": {"of": "entity"}, "ask_items": {"items": "frames"},
    "resegment": {"dropout": 0.5}, "ask_mention": {"table": "surfaces", "of": "entity", "prefix": "frames/"},
}
ENTITIES = BoundEntities(
    [f"Q{number}" for number in range(5)], names=["a", "b", "c", "d", "e"], types=[("x",)] * 5,
    tokens=[[5], [6, 7], [8], [9], [10]],
    layers={"entity": np.array([0, 3, 0, 5], np.int32)},
)
ROWS, WIDTH = 64, 30
GIVEN = {
    "tokenizer": FACTS, "counts": np.arange(1000, 0, -1),
    "tables": {
        "facts": BoundFacts(
            grams=np.array([[-1, -1], [6, 7], [300, 301], *([i, -1] for i in range(20, 90))], np.int32),
            subject=np.arange(73), first=np.arange(73) * 2, begin=np.arange(145) * 2, predicate=np.ones(144, int),
            tokens=np.arange(5, 293, dtype=np.int32), edges=np.zeros((2, 1000)),
        ),
        "ngrams": BoundLexicon(np.array([[-1, -1], [5, -1], [6, 7], [300, 301]], np.int32)),
        "entities": ENTITIES,
        "surfaces": SimpleNamespace(
            null=9, of_label=ENTITIES.of_label, ids=("0", "1", "2", "x"),
            candidates=np.array([[0, 0], [1, 2], [3, 4], [2, 0], [4, 0], [1, 3]], np.int32),
            priors=np.full((6, 2), 0.5, np.float32),
        ),
        "senses": BoundSenses(np.ones((1000, 2), np.bool_), np.zeros(1000, np.int32), ("noun.act", "verb.motion")),
        "bert": OtherReading(SAME, SAME, "[CLS] {A} [SEP]", None, 1000),
        "teacher": OtherReading(DIGITS, DIGITS, "[CLS] {A} [SEP]", None, 2000, 1000),
    },
}


def block() -> Rows:
    """Rows that hold every field that some edit takes."""
    g = np.random.default_rng(3)
    columns = np.broadcast_to(np.arange(WIDTH, dtype=np.int32), (ROWS, WIDTH))
    length = g.integers(5, WIDTH + 1, ROWS).astype(np.int32)
    length[0] = WIDTH
    special = (columns == 0) | (columns == length[:, None] - 1)
    passage = {
        "tokens": np.where(special, 2, g.integers(5, 1000, (ROWS, WIDTH))).astype(np.int32), "length": length,
        "sentence": columns // 7, "word_start": g.random((ROWS, WIDTH)) < 0.6,
    }
    masked = (g.random((ROWS, WIDTH)) < 0.2) & ~special & (columns < length[:, None])
    companions = {f"{c}.{k}": v for c in ("next", "distractor", "translation", "target", "lead") for k, v in passage.items()}
    span = np.where(masked, np.cumsum(masked & ~np.pad(masked[:, :-1], ((0, 0), (1, 0))), axis=1), 0)
    return Rows({
        **passage, **companions, "special": special, "masked": masked, "segments": columns // 15, "layers/span": span,
        "layers/shuffled": np.zeros_like(span), "layers/entity": np.minimum(columns % 5, 2) * (columns % 5 < 4),
        "labels/entity": np.where((columns % 5 > 0) & (columns % 5 < 4), 1 + columns // 5 % 3, 0),
        **{f"{kind}/linked": np.where(columns % 7 == 3, 2, 0).astype(np.int32) for kind in ("layers", "labels")},
        "target_length": np.full(ROWS, WIDTH, np.int32), "document": np.arange(ROWS, dtype=np.int64),
        "targets/answer": g.integers(-1, 2, ROWS), "positions/answer": g.integers(-1, 5, (ROWS, 2)),
        "target.parts": _references(length), "column/label": g.integers(0, 3, ROWS),
        "column/relation": g.integers(-1, 3, (ROWS, 4)), "column/chain": g.integers(-1, 3, (ROWS, 2)).astype(np.int32),
        "spans": np.tile(np.array([1, 2, 4, -1]), (ROWS, 1)),
        "column/head": g.integers(-1, 5, (ROWS, 4)).astype(np.int32), "words": np.tile(np.array([1, 2, 4, -1]), (ROWS, 1)),
        "items/entity": g.integers(0, 6, (ROWS, 4)).astype(np.int32),
        "links/entity": np.tile(np.array([[1, 0], [2, 0], [4, 3], [-1, -1]]), (ROWS, 1, 1)),
        **_regions(g), **{f"distractor.{name}": value for name, value in _regions(g).items()},
        "items/frames/masked": g.integers(0, 2, (ROWS, 5)), "item_originals/frames": g.random((ROWS, 5, 3), np.float32),
        "item_length/frames": np.full(ROWS, 4, np.int32), "items/frames/word": np.tile(np.array([9, 0, -1, 7, 7]), (ROWS, 1)),
        "item_length/sounds": np.count_nonzero(passage["word_start"] & ~special & (columns < length[:, None]), axis=1),
        "numbers/label": g.random((ROWS, 2)).astype(np.float32),
        "choices": np.full(ROWS, 2), "parts": np.stack([np.zeros((ROWS, 3), int), np.minimum(length[:, None], [2, 3, 4])], 2),
    })


def _regions(g):
    """Items with vectors, at most five in a row."""
    return {
        "item_length/regions": g.integers(0, 6, ROWS).astype(np.int32),
        "item_vectors/regions": g.random((ROWS, 5, 3), np.float32),
    }


def _references(length):
    """Two references of each companion, of the first row one."""
    half = length // 2
    parts = np.stack([np.stack([0 * half, half], axis=1), np.stack([half, length], axis=1)], axis=1).astype(np.int64)
    parts[0] = [[0, length[0]], [-1, -1]]
    return parts


def build(name: str):
    builder = registry.lookup("edit", name)
    arguments = dict(MORE.get(name, {}))
    for key, p in parameters(builder).items():
        if isinstance(mark_of(p), GivenMark):
            arguments |= {key: GIVEN[key]} if key in GIVEN else {}
        elif p.default is inspect.Parameter.empty:
            if (name, key) not in OF_EDIT and key not in REQUIRED:
                pytest.fail(f"{name} needs a value for {key!r}: add a line to REQUIRED or OF_EDIT.")
            arguments[key] = OF_EDIT[name, key] if (name, key) in OF_EDIT else REQUIRED[key]
    return builder(**arguments)


def draw(rows: int = ROWS, epoch: int = 0) -> Draw:
    return Draw(row_keys(7, "main", epoch, items=np.arange(rows)))


@pytest.mark.parametrize("name", registry.names("edit"))
class TestEdit:
    def test_same_address_gives_the_same_rows(self, name):
        first, second = build(name)(block(), draw()), build(name)(block(), draw())
        assert set(first) == set(second)
        assert all((first[k] == second[k]).all() for k in first)

    def test_the_input_is_not_changed(self, name):
        rows, before = block(), {k: v.copy() for k, v in block().items()}
        for value in rows.values():
            value.flags.writeable = False
        build(name)(rows, draw())
        assert all((rows[k] == before[k]).all() for k in before)

    def test_it_gives_what_it_declares_and_every_name_is_legal(self, name):
        edit, rows = build(name), block()
        out = edit(rows, draw())
        for field in edit.takes | edit.gives:
            fields.find(field)
        assert edit.gives <= set(out)
        copied = None if edit.makes == "main" else edit.makes
        fresh = {k for k in out if k not in rows and not (copied and k.startswith(copied + "."))}
        assert fresh <= edit.gives

    def test_it_declares_what_it_reads_and_how_it_is_treated(self, name):
        edit = build(name)
        assert isinstance(edit, Edit)
        for fields_of in (edit.takes, edit.gives, edit.optional):
            assert isinstance(fields_of, frozenset) and all(fields.find(field) for field in fields_of)
        assert {type(flag) for flag in (edit.spreads, edit.separates, edit.shortens)} == {bool}
        assert edit.copies in (None, edit.makes) and isinstance(edit.joins, tuple)
        assert edit.described.keys() <= parameters(registry.lookup("edit", name)).keys()
        assert (type(edit).widths is not Edit.widths) == edit.spreads == ("owner" in edit.gives)

    def test_special_tokens_stay_what_they_are(self, name):
        rows = block()
        out = build(name)(rows, draw())
        if out["tokens"].shape == rows["tokens"].shape and (out["length"] == rows["length"]).all():
            assert (out["tokens"][rows["special"]] == rows["tokens"][rows["special"]]).all()

    def test_rows_come_out_alike_alone_and_in_a_block(self, name):
        edit, rows = build(name), block()
        whole = edit(rows, draw())
        for row in (1, 17):
            alone = edit(rows.take(slice(row, row + 1)), draw().take(np.array([row])))
            size = int(alone["length"][0])
            first = row if "owner" not in whole else int(np.flatnonzero(whole["owner"] == row)[0])
            assert (alone["tokens"][0, :size] == whole["tokens"][first, :size]).all()

    def test_it_fits_the_room_it_asks_for(self, name):
        edit, rows = build(name), block()
        if type(edit).for_length is not Edit.for_length and type(edit).max_input is not Edit.max_input:
            fitted = edit.for_length(20)
            assert fitted.max_input(20) <= 20 or edit.separates  # one row becomes two
            out = fitted(rows.having(length=np.minimum(rows["length"], fitted.max_input(20)).astype(np.int32)), draw())
            assert out["length"].max() <= 20 or "parts" in edit.gives


NUMBERS = [(name, key) for name in registry.names("edit") for key, given in arguments_of_part("edit", name).items() if given.live]
#: Where a schedule from 0.2 to 0.4, or from 1 to 5, is not legal: another one, and the arguments that it needs.
COURSES: dict[tuple[str, str], tuple[float, float, dict[str, Any]]] = {
    ("corrupt", "frequent"): (100, 500, {}), ("mask", "count"): (1, 5, {"unit": "ngram"}), ("pair", "right"): (0, 1, {}),
    ("pair", "rate"): (0.2, 0.4, {"wrong": "swapped"}), ("pair", "single"): (0.2, 0.4, {"wrong": "swapped"}),
    ("reorder", "most"): (2, 4, {}), ("shuffle", "size"): (2, 4, {}),
}
ALONE = ("corrupt", "mask"), ("corrupt", "random"), ("corrupt", "keep"), *(
    ("mask_items", key) for key in ("zero", "other", "keep")
)
#: Need a table with a hidden entity, boxes, or a unigram vocabulary; a reserve is for the planning of rows.
ELSEWHERE = ("corrupt_items", "mask"), ("mask_items", "overlap"), ("resegment", "alpha"), ("resegment", "reserve")
CUTS: dict[tuple[str, str], tuple[float, float, dict[str, Any]]] = {
    ("inject", "reserve"): (0.2, 0.4, {}), ("mask", "mean"): (2.0, 4.0, {"unit": "alternating"}),
    ("mask", "rate"): (0.2, 0.4, {"unit": "alternating"}), ("pair", "rate"): (0.2, 0.4, {}),
}


def following(name, key, given, low, high):
    """An edit one number of which goes from `low` to `high` in a straight line."""
    whole = registry.is_whole(parameters(registry.lookup("edit", name))[key].annotation)
    course = (lambda share: round(low + share * (high - low))) if whole else (lambda share: low + share * (high - low))
    return PlacedEdit(replace(build(name), **given), schedules={key: course})


@pytest.mark.parametrize("name, key", sorted({*NUMBERS} - {*ALONE, *ELSEWHERE, ("inject", "reserve"), ("mask", "mean")}))
def test_every_number_follows_its_schedule(name, key):
    whole = registry.is_whole(parameters(registry.lookup("edit", name))[key].annotation)
    low, high, given = COURSES.get((name, key), (1, 5, {}) if whole else (0.2, 0.4, {}))
    placed = following(name, key, given, low, high)
    found = placed.when(0.5)(block(), draw())
    expected = replace(placed.edit, **{key: round((low + high) / 2) if whole else low + 0.5 * (high - low)})(block(), draw())
    assert set(found) == set(expected)
    assert all((found[field] == expected[field]).all() for field in found)


@pytest.mark.parametrize("name, key", ALONE)
def test_shares_that_add_up_to_one_change_only_together(name, key):
    with pytest.raises(RecipeError, match="add up|sum"):
        following(name, key, {}, 0.2, 0.4)


@pytest.mark.parametrize("name, key", CUTS)
def test_a_number_that_decides_where_texts_are_cut_follows_no_schedule(name, key):
    with pytest.raises(RecipeError, match=f"texts are cut once, and {key} decides"):
        low, high, given = CUTS[name, key]
        following(name, key, given, low, high)


def test_a_schedule_that_ends_where_an_edit_makes_no_target_is_refused():
    with pytest.raises(RecipeError, match="the schedule of rate reaches a value at which this edit makes other fields"):
        following("pair", "rate", {}, 0.5, 0.0)
