"""Other pieces of the same words: against the encoder, against all that can be drawn with its probability, and in rows."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from functools import cache

import numpy as np
import pytest
import tokenizers

from cloze.checkpoint.build import build_step
from cloze.checkpoint.checks.check import check_recipe
from cloze.checkpoint.feeds import build_data
from cloze.corpus.stores.build import build_store_from_texts
from cloze.errors import RecipeError
from cloze.exercises import TokenFacts
from cloze.exercises.noise.resegment import Resegment
from cloze.recipe.load import recipe_from_data
from cloze.rows import Rows
from cloze.text import BPE, ByteBPE, Normalise, TextSpec, Tokenizer, Unigram, WordPiece, train
from cloze.text.vocabularies.merging import MergeTable
from cloze.text.vocabularies.unigram import unigram_engine

TEXTS = [
    "the old cat sleeps on the warm old mat and dreams of mice , cheese and long summers .",
    "wake the sleeping cat ; nobody wakes a dreaming cat or a dog in the long warm summer .",
    "in 1984 there were 12 cats and 345 dogs in the old town , said the brother of the mayor .",
]


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    specs = {"byte_bpe": ByteBPE(size=340), "bpe": BPE(size=120), "unigram": Unigram(size=90), "wordpiece": WordPiece(size=120)}
    return {name: train(TextSpec(Normalise(), spec), TEXTS * 8) for name, spec in specs.items()}


def rows_of(tokenizer: Tokenizer, texts: list[str], **more: np.ndarray) -> Rows:
    encoded = tokenizer.encode_batch(texts)
    width = max(len(one.ids) for one in encoded)
    tokens, starts = np.zeros((len(texts), width), np.int32), np.zeros((len(texts), width), np.bool_)
    for row, one in enumerate(encoded):
        tokens[row, : len(one.ids)], starts[row, : len(one.ids)] = one.ids, one.word_start
    return Rows({"tokens": tokens, "word_start": starts, "length": np.array([len(one.ids) for one in encoded], np.int32), **more})


def edit(tokenizer: Tokenizer, **given: float) -> Resegment:
    return Resegment(tokenizer=TokenFacts.of(tokenizer), **given)


def listed(rows: Rows) -> list[list[int]]:
    return [row[:length].tolist() for row, length in zip(rows["tokens"], rows["length"], strict=True)]


EXACT = [("byte_bpe", {"dropout": 0.0}), ("bpe", {"dropout": 0.0}), ("unigram", {"alpha": 400.0})]
DRAWN = [("byte_bpe", {"dropout": 0.3}), ("bpe", {"dropout": 0.3}), ("unigram", {"alpha": 0.02})]


@pytest.mark.parametrize(("kind", "given"), EXACT)
def test_without_chance_it_is_the_encoder(trained, draw, kind, given):
    texts = [*TEXTS, "unheardof wordlings, 77", "dreamiest summertime"]
    rows = rows_of(trained[kind], texts)
    made = edit(trained[kind], **given)(rows, draw(len(texts)))
    assert listed(made) == listed(rows)
    width = rows["tokens"].shape[1]
    assert (made["word_start"] == rows["word_start"])[np.arange(width) < rows["length"][:, None]].all()


@pytest.mark.parametrize("kind", ["byte_bpe", "bpe"])
def test_with_every_merge_left_out_words_are_single_symbols(trained, draw, kind):
    made = edit(trained[kind], dropout=1.0)(rows_of(trained[kind], TEXTS), draw(3))
    spelled = [[trained[kind].piece(number).removesuffix("</w>") for number in row] for row in listed(made)]
    assert all(len(piece) == 1 for row in spelled for piece in row)
    assert int(made["word_start"][0].sum()) == int(rows_of(trained[kind], TEXTS)["word_start"][0].sum())


@pytest.mark.parametrize(("kind", "given"), DRAWN)
def test_the_text_and_its_words_stay_and_rows_come_out_alike_in_any_block(trained, draw, kind, given):
    tokenizer, rows = trained[kind], rows_of(trained[kind], TEXTS)
    made = edit(tokenizer, **given)(rows, draw(3))
    assert [tokenizer.decode(row) for row in listed(made)] == [tokenizer.decode(row) for row in listed(rows)]
    assert made["word_start"].sum(1).tolist() == rows["word_start"].sum(1).tolist()
    assert sum(map(len, listed(made))) > 1.1 * sum(map(len, listed(rows)))
    alone = edit(tokenizer, **given)(rows.take(slice(1, 2)), draw(3).take(np.array([1])))
    assert listed(alone)[0] == listed(made)[1]
    assert listed(edit(tokenizer, **given)(rows, draw(3, epoch=1))) != listed(made)


# ---- BPE-dropout: the paper's algorithm, followed through every outcome of every coin


def outcomes(symbols: tuple[str, ...], ranks: dict[tuple[str, str], int], rate: float) -> dict[tuple[str, ...], float]:
    """The probability of each result of algorithm 1 of Provilkov et al."""

    @cache
    def from_here(now: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], float], ...]:
        pairs = sorted((ranks[pair], place) for place, pair in enumerate(itertools.pairwise(now)) if pair in ranks)
        found: Counter[tuple[str, ...]] = Counter()
        for number, (_, place) in enumerate(pairs):  # all before it are dropped, and it is not
            joined = (*now[:place], now[place] + now[place + 1], *now[place + 2 :])
            for result, chance in from_here(joined):
                found[result] += rate**number * (1 - rate) * chance
        found[now] += rate ** len(pairs)
        return tuple(found.items())

    return dict(from_here(symbols))


def by_spelling(tokenizer: Tokenizer, made: list[list[int]]) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokenizer.piece(number) for number in row) for row in made)


def distance(found: Counter[tuple[str, ...]], expected: dict[tuple[str, ...], float]) -> float:
    """The total variation between what was drawn and the probabilities."""
    total = sum(found.values())
    return 0.5 * sum(abs(found[result] / total - expected.get(result, 0.0)) for result in {*found, *expected})


MANY = 20_000


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_merges_are_dropped_with_the_probabilities_of_the_paper(trained, draw, rate):
    tokenizer = trained["byte_bpe"]
    model = json.loads(tokenizer.description)["model"]
    ranks = {tuple(merge): rank for rank, merge in enumerate(model["merges"])}
    (row,) = listed(rows_of(tokenizer, ["dreaming"]))
    symbols = tuple("".join(tokenizer.piece(number) for number in row))
    expected = outcomes(symbols, ranks, rate)
    assert len(expected) > 4
    rows = Rows({
        "tokens": np.tile(np.array(row, np.int32), (MANY, 1)), "length": np.full(MANY, len(row), np.int32),
        "word_start": np.tile(np.arange(len(row)) == 0, (MANY, 1)),
    })
    found = by_spelling(tokenizer, listed(edit(tokenizer, dropout=rate)(rows, draw(MANY))))
    assert distance(found, expected) < 0.02
    theirs = tokenizers.Tokenizer.from_str(tokenizer.description)
    theirs.model.dropout = rate
    theirs.model.unk_token = None
    drawn = Counter(tuple(theirs.encode("dreaming", add_special_tokens=False).tokens) for _ in range(MANY // 4))
    assert distance(drawn, expected) < 0.02 + 0.3 * rate  # it draws again for some pairs, which the paper does not


def test_a_pair_that_occurs_twice_is_merged_once_in_a_step():
    model = tokenizers.models.BPE(vocab={"a": 0, "b": 1, "ab": 2}, merges=[("a", "b")])
    table = MergeTable.of(tokenizers.Tokenizer(model).to_str(), 3)
    seen = []

    def dropped(step, places):
        seen.append((step, places.tolist()))
        return places == 2

    made = table.merged(np.array([0, 1, 0, 1, 0, 1]), np.array([True, False, False, False, True, False]), dropped)
    assert made.ids.tolist() == [2, 0, 1, 2] and made.first.tolist() == [0, 2, 3, 4]
    assert seen == [(0, [0, 2, 4]), (1, [2])]


# ---- subword sampling: all segmentations, by their scores


def dreaming() -> Tokenizer:
    """A unigram vocabulary that spells one word in many ways."""
    pieces = ["▁", *"dreaming", "▁d", "▁dream", "dream", "re", "am", "ing", "in", "ming", "rea"]
    scores = np.random.default_rng(4).uniform(-4.0, -1.0, len(pieces))
    engine = unigram_engine([*zip(dict.fromkeys(pieces), scores.tolist(), strict=False)], ["<unk>"], "<unk>", None)
    return Tokenizer(engine.to_str(), {"[UNK]": "<unk>"})


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_segmentations_are_drawn_in_proportion_to_powers_of_their_probabilities(draw, alpha):
    tokenizer = dreaming()
    scores = dict(json.loads(tokenizer.description)["model"]["vocab"])
    (row,) = listed(rows_of(tokenizer, ["dreaming"]))
    word = "".join(tokenizer.piece(number) for number in row)
    weights = {}
    for cuts in itertools.product([False, True], repeat=len(word) - 1):
        edges = [0, *(place + 1 for place, cut in enumerate(cuts) if cut), len(word)]
        pieces = tuple(word[a:b] for a, b in itertools.pairwise(edges))
        if all(piece in scores for piece in pieces):
            weights[pieces] = math.exp(alpha * sum(scores[piece] for piece in pieces))
    expected = {pieces: weight / sum(weights.values()) for pieces, weight in weights.items()}
    assert len(expected) > 8
    rows = Rows({
        "tokens": np.tile(np.array(row, np.int32), (MANY, 1)), "length": np.full(MANY, len(row), np.int32),
        "word_start": np.tile(np.arange(len(row)) == 0, (MANY, 1)),
    })
    found = by_spelling(tokenizer, listed(edit(tokenizer, alpha=alpha)(rows, draw(MANY))))
    assert distance(found, expected) < 0.5 * math.sqrt(len(expected) / MANY) + 0.01


def test_unknown_characters_and_special_tokens_stay(trained, draw):
    tokenizer = trained["unigram"]
    (row,) = listed(rows_of(tokenizer, ["dreaming ξ cats"]))
    unknown, last = tokenizer.role("[UNK]"), tokenizer.role("[SEP]")
    assert unknown in row
    row = [*row, last, *row]
    tokens = np.array([row], np.int32)
    starts = np.array([[tokenizer.piece(number).startswith("▁") or number in (unknown, last) for number in row]])
    rows = Rows({"tokens": tokens, "length": np.array([len(row)], np.int32), "word_start": starts})
    (made,) = listed(edit(tokenizer, alpha=0.1)(rows, draw(1)))
    assert (made.count(unknown), made.count(last)) == (row.count(unknown), 1)
    assert tokenizer.decode(made) == tokenizer.decode(row)


# ---- rows


def test_fields_follow_their_tokens_and_units_stay_one(trained, draw):
    tokenizer = trained["byte_bpe"]
    rows = rows_of(tokenizer, TEXTS[:1])
    columns = np.arange(rows["tokens"].shape[1])
    marks = np.where(columns == 2, 1, np.where(columns == 3, 2, 0)).astype(np.int32)[None]
    made = edit(tokenizer, dropout=0.7)(rows.having_all({"sentence": (columns // 4)[None], "layers/entity": marks}), draw(1))
    old = np.array([len(tokenizer.piece(number)) for number in listed(rows)[0]]).cumsum()
    new = np.array([len(tokenizer.piece(number)) for number in listed(made)[0]]).cumsum()
    begins = new - [len(tokenizer.piece(number)) for number in listed(made)[0]]
    source = np.searchsorted(old, begins, side="right")
    assert made["sentence"][0].tolist() == (source // 4).tolist()
    inside = np.flatnonzero((source == 2) | (source == 3))
    expected = np.where((source == 2) | (source == 3), 2, 0)
    expected[inside[0]] = 1
    assert made["layers/entity"][0].tolist() == expected.tolist() and len(inside) > 2


def test_a_row_is_cut_where_it_has_grown_beyond_its_length(trained, draw):
    rows = rows_of(trained["bpe"], TEXTS)
    whole = listed(edit(trained["bpe"], dropout=0.5)(rows, draw(3)))
    cut = edit(trained["bpe"], dropout=0.5).for_length(12)
    assert listed(cut(rows, draw(3))) == [row[:12] for row in whole] and cut.max_input(10) == 8
    within = edit(trained["bpe"], dropout=0.5).without_growth()(rows, draw(3))
    assert within["length"].tolist() == rows["length"].tolist()


@pytest.mark.parametrize(("kind", "given", "message"), [
    ("wordpiece", {"dropout": 0.1}, "dropout needs a byte_bpe or bpe vocabulary"),
    ("bpe", {"alpha": 0.1}, "alpha needs a unigram vocabulary"),
])  # fmt: skip
def test_a_vocabulary_of_another_kind_is_refused(trained, draw, kind, given, message):
    with pytest.raises(RecipeError, match=message):
        edit(trained[kind], **given)(rows_of(trained[kind], TEXTS), draw(3))


def test_neither_or_both_ways_are_refused():
    for given in ({}, {"dropout": 0.1, "alpha": 0.1}):
        with pytest.raises(RecipeError, match="either dropout, for a byte-pair vocabulary, or alpha"):
            Resegment(**given)


RECIPE = {
    "name": "mine", "text": {"tokenizer": {"byte_bpe": {"size": 400}}}, "corpus": {"passages": {"length": 32}},
    "network": {"transformer": {"layers": 1, "width": 16, "heads": 2, "segments": 2}},
    "exercise": [{"resegment": {"dropout": 0.1}}, {"frame": "[CLS] {A} [SEP]"}, "mask", "corrupt", {"predict": "masked"}],
    "objectives": [{"token_prediction": {"tie": True}}],
    "training": {"optimizer": "adamw", "rate": {"linear": {"peak": 1e-3}}, "batch": 4, "held_out": 0.3},
    "reading": {"single": "[CLS] {A} [SEP]"},
}


def test_a_text_from_elsewhere_in_other_pieces_is_refused():
    check_recipe(recipe_from_data(RECIPE))
    first, frame, *rest = RECIPE["exercise"]
    paired = {**RECIPE, "exercise": [first, "pair", {"frame": "[CLS] {A} [SEP] {B} [SEP]"}, *rest]}
    with pytest.raises(RecipeError, match=r"pair reads distractor\.tokens, which is not right for the text that resegment"):
        check_recipe(recipe_from_data(paired))


def test_held_out_texts_stay_as_they_are_stored(trained, tmp_path):
    tokenizer = trained["byte_bpe"]
    store = build_store_from_texts([TEXTS[number % 3] for number in range(30)], tokenizer, tmp_path / "store")
    recipe = recipe_from_data({**RECIPE, "text": {"tokenizer": {"byte_bpe": {"size": tokenizer.size}}}})
    step = build_step(recipe, vocab_size=tokenizer.size)
    data = build_data(recipe, {"main": store}, step, tokenizer, seed=1)
    edits = {part: [type(placed.edit) for placed in feeds["main"].edits] for part, feeds in (
        ("train", data.feeds), ("held_out", data.held_out_feeds)
    )}
    assert Resegment in edits["train"] and Resegment not in edits["held_out"]
