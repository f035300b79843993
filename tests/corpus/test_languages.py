"""Languages: folders, smoothed shares, rounds without repeats, and rows that know their language."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.corpus import Passages, Sentences, Store
from cloze.corpus.stores.build import build_store, build_store_from_texts, train_tokenizer_from
from cloze.corpus.stores.languages import language_folders, resample, shares, smoothed
from cloze.errors import CorpusError, RecipeError
from cloze.text import Normalise, TextSpec, WordPiece

ENGLISH = "The cat sleeps on the mat. It dreams of fish.\n\nAnother text begins here. It ends here.\n\n"
FRENCH = "Le chat dort sur le tapis. Il ne fait pas de bruit.\n\nUn autre texte commence ici. Il finit ici.\n\n"
SPEC = TextSpec(Normalise(lower=True), WordPiece(size=150))


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name, text in (("en", ENGLISH * 60), ("fr", FRENCH * 6)):
        (tmp_path / "text" / name).mkdir(parents=True)
        (tmp_path / "text" / name / "all.txt").write_text(text, encoding="utf-8")
    return tmp_path / "text"


@pytest.fixture
def store(folders: Path, tmp_path: Path) -> Store:
    tokenizer = train_tokenizer_from([folders], SPEC, languages=True)
    return build_store([folders], tokenizer, tmp_path / "store", languages=True)


def test_shares_are_those_of_multilingual_bert() -> None:
    assert np.round(shares([0.9, 0.09, 0.01], 0.7), 4).tolist() == [0.8049, 0.1606, 0.0345]
    assert np.round(shares([0.9, 0.09, 0.01], 0.5), 4).tolist() == [0.7034, 0.2224, 0.0741]
    ratio = shares([1000, 1], 0.7)
    assert round(float(ratio[0] / ratio[1])) == 126
    assert shares([3, 0, 1], 1.0).tolist() == [0.75, 0.0, 0.25] and shares([3, 0, 1], 0.0).tolist() == [0.5, 0.0, 0.5]


def test_a_folder_of_folders_names_the_languages(folders: Path, tmp_path: Path) -> None:
    assert list(language_folders([folders])) == ["en", "fr"]
    (tmp_path / "de.txt.gz").touch()
    assert language_folders([folders / "fr", tmp_path / "de.txt.gz"]) == {
        "fr": [str(folders / "fr")], "de": [str(tmp_path / "de.txt.gz")]
    }
    with pytest.raises(CorpusError, match="does not name a language"):
        language_folders(["-"])


def test_a_store_knows_the_language_of_every_document(store: Store) -> None:
    assert store.languages == ("en", "fr") and not store.pairs
    assert store.document_languages.tolist() == [0] * 120 + [1] * 12


def test_rows_know_their_language_and_do_not_leave_it(store: Store) -> None:
    bound = Passages(across_documents=True, overrun=False).bind(store, seed=1, entry="main")
    assert "language" in bound.gives
    plan = bound.plan(0, 50)
    rows = bound.read(plan, np.arange(len(plan)), frozenset({"language", "distractor.tokens"}))
    border = int(store.document_starts[120])
    assert ((plan.start < border) == (plan.passages.stop <= border)).all()
    assert rows["language"].tolist() == (plan.start[plan.order] >= border).astype(int).tolist()
    assert ((rows["distractor.document"] >= 120) == (rows["language"] == 1)).all()


def test_without_languages_in_the_store_the_message_says_how_to_get_them(tmp_path: Path, store: Store) -> None:
    plain = build_store_from_texts([ENGLISH] * 5, store.tokenizer(), tmp_path / "plain")
    with pytest.raises(CorpusError, match="--languages"):
        Passages(languages={"smooth": 0.7}).bind(plain, seed=1, entry="main")
    with pytest.raises(RecipeError, match="expected smooth"):
        Passages(languages={"smoth": 0.7})
    with pytest.raises(RecipeError, match="expected 0 to 1"):
        Sentences(languages={"smooth": 7.0})


@settings(max_examples=40, deadline=None)
@given(counts=st.lists(st.integers(1, 60), min_size=1, max_size=5), smooth=st.sampled_from([0.0, 0.5, 0.7, 1.0]))
def test_epochs_hold_the_smoothed_shares_and_no_row_repeats_before_its_group_is_through(
    counts: list[int], smooth: float
) -> None:
    group = np.repeat(np.arange(len(counts)), counts)
    expected = shares(counts, smooth) * len(group)
    seen: Counter[tuple[int, int]] = Counter()
    for epoch in range(6):
        found = resample(group, smooth, epoch, 1, "main")
        again = resample(group, smooth, epoch, 1, "main")
        assert (found.order == again.order).all() and len(found.order) == len(group)
        drawn = np.bincount(group[found.order], minlength=len(counts))
        assert (np.abs(drawn - expected) < 1).all()
        seen.update(zip(found.order.tolist(), found.repeat.tolist(), strict=True))
    assert set(seen.values()) == {1}  # a row comes once in every round
    for row, repeat in seen:
        assert repeat == 0 or (row, repeat - 1) in seen


def test_a_passage_that_comes_again_gets_new_masks(store: Store) -> None:
    bound = Passages(languages={"smooth": 0.0}).bind(store, seed=1, entry="main")
    plan = bound.plan(0, 30)
    small = np.flatnonzero(store.document_languages[plan.passages.document[plan.order]] == 1)
    assert abs(len(small) - len(plan) / 2) <= 1
    assert plan.repeat is not None and plan.repeat[small].max() >= 4
    keys = bound.draw(plan, np.arange(len(plan))).keys
    assert len(set(keys.tolist())) == len(plan)
    one = bound.draw(plan, small[3:4]).keys
    assert one[0] == keys[small[3]]
    static = Passages(languages={"smooth": 0.0}, static=True).bind(store, seed=1, entry="main")
    fixed = static.draw(static.plan(0, 30), np.arange(len(plan))).keys
    assert len(set(fixed.tolist())) == len(set(static.plan(0, 30).order.tolist())) < len(plan)


def test_a_passage_that_comes_again_has_other_parts(store: Store) -> None:
    def parts(static: bool) -> dict[int, list[tuple[int, bool]]]:
        source = Passages(languages={"smooth": 0.0}, static=static)
        bound = source.bind(store, seed=1, entry="main", put_back=0.5)
        plan, found = bound.plan(0, 30), dict[int, list[tuple[int, bool]]]()
        rows = bound.read(plan, np.arange(len(plan)), frozenset({"tokens", "border", "apart"}))
        assert plan.repeat is not None and plan.passages.apart is not None and (plan.passages.sentences > 1).any()
        first = plan.repeat == 0
        assert (rows["apart"][first] == plan.passages.apart[plan.order[first]]).all()
        several = plan.passages.sentences[plan.order] > 1
        for place in np.flatnonzero(several).tolist():
            found.setdefault(int(plan.order[place]), []).append((int(rows["border"][place]), bool(rows["apart"][place])))
        return {passage: seen for passage, seen in found.items() if len(seen) > 3}

    fresh, fixed = parts(False), parts(True)
    assert fresh.keys() == fixed.keys() and len(fresh) > 1
    assert all(len(set(seen)) == 1 for seen in fixed.values())
    assert np.mean([len(set(seen)) > 1 for seen in fresh.values()]) > 0.5


def test_without_smoothing_the_plan_is_what_it_was(store: Store) -> None:
    plan = Passages(languages=None).bind(store, seed=1, entry="main").plan(0, 30)
    assert plan.repeat is None and sorted(plan.order.tolist()) == list(range(len(plan)))


def test_the_tokenizer_learns_from_smoothed_shares() -> None:
    texts = {"en": ["x" * 10] * 900, "is": ["y" * 10] * 90}
    lines = list(smoothed(texts, {"en": 9000, "is": 900}, 0.5, 10**9))
    found = Counter(line[0] for line in lines)
    expected = 990 * shares([9000, 900], 0.5)
    assert abs(found["x"] - expected[0]) < 1 and abs(found["y"] - expected[1]) < 1
    assert found["y"] > 90  # a small language is repeated
    half = Counter(line[0] for line in smoothed(texts, {"en": 9000, "is": 900}, 1.0, 4950))
    assert half == {"x": 450, "y": 45}


def test_sentences_come_one_by_one(store: Store) -> None:
    bound = Sentences(max_length=6).bind(store, seed=1, entry="main")
    plan = bound.plan(0, 64)
    rows = bound.read(plan, np.argsort(plan.order), frozenset({"language", "next.tokens", "distractor.tokens", "sentence"}))
    assert np.concatenate([rows["tokens"][i, : rows["length"][i]] for i in range(len(plan))]).tolist() == store.tokens.tolist()
    assert rows["length"].max() == 6 and rows["distractor.length"].max() <= 6
    whole = Sentences().bind(store, seed=1, entry="main")
    plan = whole.plan(0, 64)
    rows = whole.read(plan, np.argsort(plan.order), frozenset({"next.tokens", "distractor.tokens", "sentence"}))
    sizes = np.diff(store.sentence_starts)
    assert rows["length"].tolist() == sizes.tolist()
    last = np.isin(np.arange(len(plan)) + 1, store.document_sentences)
    assert rows["next.length"].tolist() == np.where(last, 0, np.append(sizes[1:], 0)).tolist()
    assert set(rows["distractor.length"].tolist()) <= set(sizes.tolist())
    assert not rows["sentence"].any()
    with pytest.raises(RecipeError, match="expected 2 or more"):
        Sentences(max_length=1)
