"""`cloze augment`: rows in which words are replaced, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.decoding.reader_and_head import to_fill
from cloze.tasks.augmentation import FUNCTION_WORDS, Augmenter, Slot, TagAugmenter, copies_of
from cloze.text.annotation.annotators import LexiconAnnotator

Folder = Callable[..., Path]
TEXTS = ["The cat saw the elephants in the garden.", "the dog: rain, 3rd night"]


@pytest.fixture(scope="module")
def augmenter(folder: Folder) -> Augmenter:
    reader, head, _ = to_fill(load_checkpoint(folder("bert")))
    return Augmenter(reader, head)


def test_the_candidates_of_a_word_are_the_words_among_the_most_probable_tokens_in_its_place(augmenter: Augmenter) -> None:
    reader, pieces = augmenter.reader, augmenter.reader.tokenizer
    found = [{TEXTS[n][slot.begin : slot.end]: slot for slot in own} for n, own in enumerate(augmenter.slots(TEXTS))]
    assert [set(own) for own in found] == [{"cat", "saw", "garden"}, {"dog", "night"}]  # not rain: it is several tokens
    (ids,) = reader.ids(TEXTS[:1])
    shown = ids.copy()
    shown[1] = pieces.role("[MASK]")
    row = reader.pair_layout([shown, ids])  # the masked text, then the text itself
    position = torch.tensor([int(np.flatnonzero(row.ids == pieces.role("[MASK]"))[0])])
    batch = reader.batch([row])
    with torch.no_grad():
        scores = reader.token_scores(augmenter.head, reader.states(batch, augmenter.head.reads), batch, position)
    best = [pieces.piece(token) for token in scores[0].topk(15).indices.tolist()]
    words = [piece for piece in best if piece.isalpha()]
    assert list(found[0]["cat"].candidates) == words and 0 < len(words) < 15
    one = Augmenter(reader, augmenter.head, rows=1)
    assert one.slots(TEXTS) == augmenter.slots(TEXTS)


def test_words_of_several_tokens_have_near_words_and_function_words_nothing(augmenter: Augmenter, tmp_path: Path) -> None:
    from cloze.interop.vectors import open_vectors

    rows = ["elephants 1 0", "mammoths 0.9 0.1", "whales 0.5 0.5", "rains 0 1", "snows 0.1 0.9"]
    (tmp_path / "vectors.txt").write_text("\n".join(["5 2", *rows]) + "\n")
    near = Augmenter(augmenter.reader, augmenter.head, open_vectors(tmp_path / "vectors.txt"), count=2)
    found = {TEXTS[0][slot.begin : slot.end]: slot.candidates for slot in near.slots(TEXTS)[0]}
    assert found["elephants"] == ("mammoths", "whales") and not {"The", "the", "in"} & set(found)
    (slot,) = near.slots(["Rains"])[0]
    assert slot.candidates == ("Snows", "Whales")
    assert not any(slot.candidates == ("mammoths",) for own in augmenter.slots(TEXTS) for slot in own)


def test_copies_differ_from_the_text_and_from_each_other_and_only_in_their_slots() -> None:
    text, slots = "A cat: a dog!", [Slot(2, 5, ("cat", "mouse", "bird")), Slot(9, 12, ("owl",))]

    def copies(seed: int, rate: float = 0.4) -> list[str]:
        return copies_of(text, slots, copies=200, rate=rate, draw=np.random.default_rng(seed))

    made = copies(0)
    assert sorted(made) == sorted({f"A {a}: a {b}!" for a in ("cat", "mouse", "bird") for b in ("dog", "owl")} - {text})
    assert copies(0) == made != copies(1) and copies(0, rate=0.0) == []
    assert copies_of("the", [], copies=5, rate=1.0, draw=np.random.default_rng(0)) == []


def test_words_of_a_lexicon_are_replaced_by_words_of_their_label_as_often_as_these_occur(tmp_path: Path) -> None:
    (tmp_path / "tags.tsv").write_text("cat\tN\ndog\tN\nbird\tN\nsaw\tV\n")
    texts = ["A cat saw a Dog.", "the cat, a fish"]
    found = TagAugmenter(LexiconAnnotator(file=str(tmp_path / "tags.tsv")), texts)
    nouns = ("cat", "Dog", "cat")
    assert found.slots(texts) == [[Slot(2, 5, nouns), Slot(6, 9, ("saw",)), Slot(12, 15, nouns)], [Slot(4, 7, nouns)]]
    copies = copies_of("A cat", [Slot(2, 5, nouns)], copies=600, rate=0.0, ngrams=1.0, draw=np.random.default_rng(0))
    assert sorted(copies) == ["A", "cat"]


def test_one_to_five_words_of_a_text_are_left_each_number_and_place_equally_often() -> None:
    draws = np.random.default_rng(0)
    lefts = [copy for _ in range(3000) for copy in copies_of("a b, c d e", [], copies=1, rate=0.0, ngrams=0.25, draw=draws)]
    assert len(lefts) == pytest.approx(750, abs=60)  # of six words, counting the comma; the others are the text itself
    assert {left for left in lefts if len(left) == 1} == {*"ab,cde"}
    assert [sum(len(re.findall(r"\w|,", left)) == n for left in lefts) for n in range(1, 6)] == pytest.approx([150] * 5, abs=40)


def test_labels_of_rows_are_copied_without_a_language_model(tmp_path: Path, cloze: Callable[..., Any]) -> None:
    (tmp_path / "tags.tsv").write_text("cat\tN\ndog\tN\n")
    (tmp_path / "rows.tsv").write_text("text\tlabel\na cat\tx\nthe dog\ty\n")
    asked = ["augment", tmp_path / "rows.tsv", "--tags", tmp_path / "tags.tsv", "--rate", "0.5", "--out", tmp_path / "more.tsv"]
    assert cloze(*asked).code == 0
    assert (tmp_path / "more.tsv").read_text() == "text\tlabel\na cat\tx\na dog\tx\nthe dog\ty\nthe cat\ty\n"
    refused = cloze(*asked, "--with", "bert", "--overwrite")
    assert refused.code == 2 and "expected --with CHECKPOINT, which predicts words, or --tags FILE" in refused.err
    refused = cloze(*asked, "--keep", tmp_path / "tags.tsv", "--overwrite")
    assert refused.code == 2 and "--vectors and --keep need --with CHECKPOINT" in refused.err


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_words_to_keep_are_read_in_any_encoding(
    folder: Folder, tmp_path: Path, cloze: Callable[..., Any], encoding: str
) -> None:
    (tmp_path / "keep.txt").write_text("Cat\ngarden\n", encoding=encoding)
    (tmp_path / "rows.tsv").write_text("text\tlabel\nthe cat in the garden\tx\n")
    asked = ["augment", tmp_path / "rows.tsv", "--with", folder("bert"), "--keep", tmp_path / "keep.txt", "--rate", "1"]
    assert cloze(*asked, "--out", tmp_path / "more.tsv").code == 0
    copies = [line.split("\t")[0] for line in (tmp_path / "more.tsv").read_text().splitlines()[2:]]
    assert copies and all(copy.split()[1] == "cat" and copy.split()[-1] == "garden" for copy in copies)


def test_rows_keep_their_other_columns_and_pairs_change_one_text_at_a_time(
    folder: Folder, tables: Path, tmp_path: Path, cloze: Callable[..., Any]
) -> None:
    first = (tables / "pairs.csv").read_text().splitlines()[:4]
    (tmp_path / "pairs.csv").write_text("\n".join(first) + "\n")
    asked = ["augment", tmp_path / "pairs.csv", "--with", folder("bert"), "--copies", "3", "--text", "one", "--text-b", "two"]
    said = cloze(*asked, "--out", tmp_path / "more.jsonl")
    assert said.code == 0, said.err
    assert cloze(*asked, "--batch", "1", "--out", tmp_path / "again.jsonl").code == 0
    assert (tmp_path / "again.jsonl").read_text() == (tmp_path / "more.jsonl").read_text()
    rows = [json.loads(line) for line in (tmp_path / "more.jsonl").read_text().splitlines()]
    given = [line.split(",") for line in first[1:]]
    assert len(rows) > 2 * len(given) and f"{len(rows)} rows of 3" in said.out
    at = -1
    for row in rows:
        at += at + 1 < len(given) and [row["one"], row["two"], row["label"]] == given[at + 1]
        one, two, label = given[at]
        assert row["label"] == label and (row["one"] == one or row["two"] == two)
        for text, old in ((row["one"], one), (row["two"], two)):
            pairs = list(zip(re.findall(r"\w+", text), re.findall(r"\w+", old), strict=True))
            assert all(a == b or b not in FUNCTION_WORDS for a, b in pairs)
    assert at == len(given) - 1


@pytest.mark.parametrize(("name", "text", "out", "with_", "said"), [
    ("rows.conll", "cat\tN\n", "more.tsv", "bert", "labelled words. A replaced word may not have the label of the old one"),
    ("rows.jsonl", '{"text": ["a", "cat"], "label": ["D", "N"]}\n', "more.tsv", "bert",
     "rows.jsonl: one object with lists of 2 values each: columns, not rows."),
    ("rows.csv", 'text,label\n"a\tcat",x\n', "more.tsv", "bert", "a tab or a line end, which TSV cannot hold"),
    ("rows.tsv", "text\tlabel\na cat\tx\n", "more.txt", "bert", "expected a file that ends in .tsv, .csv or .jsonl"),
    ("rows.tsv", "text\tlabel\na cat\tx\n", "more.tsv", "gpt2", "a network that reads in the order open; this"),
    ("rows.tsv", "text\tlabel\na cat\tx\n", "more.tsv", "gpt2", "left_to_right.\n  Give --with a masked language model"),
    ("rows.tsv", "words\tlabel\na cat\tx\n", "more.tsv", "bert", "no column 'text'; it has: words, label"),
    ("rows.tsv", "text\tlabel\na cat\tx\n", "none/more.tsv", "bert", "its folder does not exist. Make it first"),
])  # fmt: skip
def test_what_cannot_be_augmented_is_refused_and_nothing_is_written(
    folder: Folder, tmp_path: Path, cloze: Callable[..., Any], name: str, text: str, out: str, with_: str, said: str
) -> None:
    (tmp_path / name).write_text(text)
    refused = cloze("augment", tmp_path / name, "--with", folder(with_), "--out", tmp_path / out)
    assert refused.code == 2 and said in refused.err, refused.err
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(("options", "said"), [
    (["--text-b", "more"], "no column 'more'; it has: text, label.\n  Choose a column with --text-b NAME"),
    (["--keep", "none.txt"], "none.txt: no such file."),
])  # fmt: skip
def test_a_missing_column_or_file_is_named_with_its_option(
    folder: Folder, tmp_path: Path, cloze: Callable[..., Any], options: list[str], said: str
) -> None:
    (tmp_path / "rows.tsv").write_text("text\tlabel\na cat\tx\n")
    refused = cloze("augment", tmp_path / "rows.tsv", "--with", folder("bert"), "--out", tmp_path / "more.tsv", *options)
    assert refused.code == 2 and said in refused.err and not (tmp_path / "more.tsv").exists()
