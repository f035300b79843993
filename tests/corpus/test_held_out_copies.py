"""Held-out documents that are trained on as well: counted token by token, and said before the first step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cloze.corpus import Store
from cloze.corpus.checks.held_out_copies import Copies, count_copies
from cloze.corpus.sources.bound import split_documents
from cloze.corpus.stores.writer import StoreWriter
from cloze.runs.planning import plan
from cloze.runs.run import pretrain
from tests.small_recipe import MINE

SMALL = (("size: 8000", "size: 60"), ("length: 128", "length: 16"), ("width: 64", "width: 16"), ("batch: 32", "batch: 4"))
A, B, C, D = [11, 12, 13, 14], [11, 12, 99, 14], [11, 15, 13, 14], [21]  # B differs from A only between the tokens compared first


def store_of(folder: Path, documents: list[list[int]]) -> Store:
    with StoreWriter(folder, vocab_size=1000, roles={"[PAD]": 0}, tokenizer_hash="0" * 64) as writer:
        ids = np.array([token for document in documents for token in document], np.int64)
        sizes = np.array([len(document) for document in documents], np.int64)
        writer.append(ids, np.ones(len(ids), bool), sizes, np.ones(len(documents), np.int64))
        return writer.finish({"odd": {}}, lambda path: path.mkdir())


def test_only_documents_with_the_same_tokens_are_copies(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", [A, B, C, D, A, D, [*A, 15]])
    training, held_out = np.array([0, 1, 3, 6]), np.array([2, 4, 5])
    assert count_copies(store, held_out, store, training) == Copies(2, 3, 5, 9)
    assert count_copies(store, np.array([2]), store, np.array([0, 1])) == Copies(0, 1, 0, 4)
    assert count_copies(store, np.array([], np.int64), store, training) == Copies(0, 0, 0, 0)


def test_another_store_is_compared_with_the_training_text(tmp_path: Path) -> None:
    training, apart = store_of(tmp_path / "training", [B, A]), store_of(tmp_path / "apart", [C, A, D])
    assert count_copies(apart, np.arange(3), training, np.arange(2)) == Copies(1, 3, 4, 9)


def test_a_hundredth_of_the_tokens_is_mentioned() -> None:
    assert Copies(1, 50, 9, 1000).note is None and Copies(0, 0, 0, 0).note is None
    note = Copies(1, 50, 10, 1000).note
    assert note is not None and note.startswith("note: 1 of 50 held-out documents (1% of their tokens) are also in the training")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    text = MINE
    for old, new in SMALL:
        text = text.replace(old, new)
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    return tmp_path / "mine.yaml"


def notes_of(recipe: Path, corpus: Path, out: str, **options: object) -> list[str]:
    said: list[str] = []
    pretrain(recipe, corpus=corpus, out=recipe.parent / out, budget="1steps", report=said.append, **options)  # type: ignore[arg-type]
    return [line.splitlines()[0] for line in said if "also in the training text" in line]


def test_a_run_says_how_much_of_its_held_out_text_it_trains_on(recipe: Path) -> None:
    words = ["red", "old", "new", "big", "wet", "hot"]
    lines = [f"the {a} {b} cat sees the {c} roof." for a in words for b in words for c in words[:2]]
    corpus = recipe.parent / "text.txt"
    corpus.write_text("\n".join(lines), encoding="utf-8")
    assert notes_of(recipe, corpus, "unlike") == []

    part = recipe.parent / "part.txt"
    part.write_text("\n".join([*lines[:2], "a new cat sees it.", ""]), encoding="utf-8")
    (note,) = notes_of(recipe, corpus, "apart", held_out=[str(part)])
    assert note.startswith("note: 2 of 3 held-out documents (")
    (planned,) = plan(recipe, corpus=corpus, budget="1steps", held_out=[str(part)])
    assert str(planned).splitlines()[-2] == note and note in planned._repr_html_()

    corpus.write_text("\n".join([*lines, *lines]), encoding="utf-8")
    held_out = split_documents(144, 0.01)["held_out"]
    copied = [document for document in held_out if (document + 72) % 144 not in held_out]
    (note,) = notes_of(recipe, corpus, "twice")
    assert note.startswith(f"note: {len(copied)} of {len(held_out)} held-out documents (")
