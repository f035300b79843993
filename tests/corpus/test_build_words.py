"""Stores of whole words: the vocabulary is counted in the whole corpus, and the ids are the tokenizer's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cloze.corpus.stores import build
from cloze.corpus.stores.build import build_store, train_tokenizer_from
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError, RecipeError
from cloze.text import Annotations, Dictionary, Normalise, TextSpec, Words, split_sentences

TEXT = "The cat sat. The cat, a rare one, sat on the mat!\n\nA dog is here.\x0cÉléphants are not. 你好。他\n\n" * 3


@pytest.mark.parametrize("split", ["punctuation", "whitespace"])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_store_holds_every_word_once_counted(
    tmp_path: Path, split: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled:
        pytest.importorskip("numba")
        monkeypatch.setattr(build, "_SMALL", 0)
        monkeypatch.setattr("cloze.text.encoding.counting._PLAIN_BYTES", 0)
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "b.txt").write_text("Nowhere else: zebra zebra zebra.\n", encoding="utf-8")
    said: list[str] = []
    spec = TextSpec(Normalise(lower=True), Words(min_count=3, split=split))  # type: ignore[arg-type]
    tokenizer = train_tokenizer_from([tmp_path], spec, budget_bytes=10, report=said.append)  # the budget is for samples
    assert tokenizer.id("éléphants") is not None
    assert (tokenizer.id("zebra") is None) == (split == "whitespace")  # "zebra." is the third
    store = build_store([tmp_path / "a.txt", tmp_path / "b.txt"], tokenizer, tmp_path / "store", workers=1)
    sentences = [s for part in (TEXT, "Nowhere else: zebra zebra zebra.") for s in split_sentences(part)]
    expected = Counter(i for sentence in sentences for i in tokenizer.encode(sentence).ids.tolist())
    assert {i: n for i, n in enumerate(store.counts().tolist()) if n} == expected
    counts = store.counts()[len(tokenizer.special_ids) :]
    assert (np.diff(counts) <= 0).all() and counts.min() >= 3  # learnt from uncut lines, as often as in cut ones
    assert store.words(np.arange(len(store.tokens))).all()
    assert len(said) == 1 and f"the vocabulary has {tokenizer.size - 4} of " in said[0]


def test_workers_give_the_same_store(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT * 20, encoding="utf-8")
    tokenizer = train_tokenizer_from([tmp_path / "a.txt"], TextSpec(Normalise(), Words(min_count=1)))
    one = build_store([tmp_path / "a.txt"], tokenizer, tmp_path / "one", workers=1)
    two = build_store([tmp_path / "a.txt"], tokenizer, tmp_path / "two", workers=2)
    assert one.header["files"] == two.header["files"]
    assert Store.open(tmp_path / "two", verify=True).tokenizer().hash == tokenizer.hash


def test_a_corpus_without_a_frequent_word_is_named_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two two\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="'two' with 2"):
        train_tokenizer_from([tmp_path / "a.txt"], TextSpec(Normalise(), Words(min_count=3)))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt"]


CHINESE = "我们在图书馆学习，我们在家。猫在图书馆！\n\n我们学习the cat。\n\n"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_segmenters_words_are_the_words_of_vocabulary_and_store(tmp_path: Path, workers: int) -> None:
    (tmp_path / "a.txt").write_text(CHINESE * 30, encoding="utf-8")
    spec = TextSpec(Normalise(), Words(min_count=1), Dictionary())
    tokenizer = train_tokenizer_from([tmp_path / "a.txt"], spec, workers=workers)
    store = build_store(
        [tmp_path / "a.txt"], tokenizer, tmp_path / "store", annotations=Annotations(Dictionary()), workers=workers
    )
    words = ["我们", "在", "图书馆", "学习", "，", "我们", "在", "家", "。", "猫", "在", "图书馆", "！"]
    words += ["我们", "学习", "the", "cat", "。"]
    assert [tokenizer.piece(i) for i in store.tokens[: len(words)].tolist()] == words
    assert {tokenizer.piece(i): n for i, n in enumerate(store.counts().tolist()) if n} == {
        word: 30 * n for word, n in Counter(words).items()
    }
    assert store.words(np.arange(len(store.tokens))).all()
    assert store.header["words"] == Dictionary().hash
    assert store.tokenizer().hash == tokenizer.hash
    assert [store.tokenizer().piece(i) for i in store.tokenizer().encode("猫在图书馆").ids] == ["猫", "在", "图书馆"]


def test_a_store_of_other_words_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(CHINESE, encoding="utf-8")
    (tmp_path / "list.txt").write_text("在家\n", encoding="utf-8")
    plain = train_tokenizer_from([tmp_path / "a.txt"], TextSpec(Normalise(), Words(min_count=1)))
    other = Annotations(Dictionary(file=str(tmp_path / "list.txt")))
    for tokenizer, cut in ((plain, "white space"), (plain.cut_by(Dictionary()), "by another segmenter")):
        with pytest.raises(RecipeError, match=f"cut .*{cut}"):
            build_store([tmp_path / "a.txt"], tokenizer, tmp_path / "store", annotations=other)
    assert not (tmp_path / "store").exists()
    store = build_store([tmp_path / "a.txt"], plain.cut_by(Dictionary()), tmp_path / "store")  # the tokenizer says the words
    store.require_annotations(Annotations(Dictionary()), whose="a recipe")
    with pytest.raises(CorpusError, match="other words"):
        store.require_annotations(other, whose="a recipe")
    with pytest.raises(CorpusError, match="tokenizer"):
        store.require_tokenizer(plain.hash, whose="a recipe")
