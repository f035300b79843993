"""Term-document counts: rows of documents, the whole matrix, roles and empty documents left out."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloze.corpus import Store, TermDocuments
from cloze.corpus.stores.writer import StoreWriter
from cloze.errors import CorpusError, RecipeError

relaxed = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def store_of(folder: Path, documents: Sequence[Sequence[Sequence[int]]]) -> Store:
    roles = {"[PAD]": 0, "[UNK]": 1, "[BOS]": 2, "[EOS]": 3}
    ids = np.array([t for d in documents for s in d for t in s], np.int64)
    with StoreWriter(folder, vocab_size=12, roles=roles, tokenizer_hash="0" * 64) as writer:
        sizes = np.array([len(s) for d in documents for s in d], np.int64)
        writer.append(ids, np.ones(len(ids), np.bool_), sizes, np.array([len(d) for d in documents]))
        return writer.finish({"odd": {}}, lambda inner: inner.mkdir())


@relaxed
@given(
    documents=st.lists(
        st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=12), max_size=3), min_size=1, max_size=6
    ).filter(lambda documents: any(t > 3 for d in documents for s in d for t in s)),
    unit=st.sampled_from(["document", "sentence"]), max_tokens=st.integers(1, 9),
)
def test_rows_and_matrix_are_what_counting_gives(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[list[int]]], unit: str, max_tokens: int
) -> None:
    store = store_of(tmp_path_factory.mktemp("counts") / "store", documents)
    bound = TermDocuments(unit=unit).bind(store, seed=1, entry="main")  # type: ignore[arg-type]
    units = [[t for s in d for t in s] for d in documents] if unit == "document" else [s for d in documents for s in d]
    expected = [counts for counts in (Counter(t for t in u if t > 3) for u in units) if counts]
    found = bound.counts()
    by_document: list[Counter[int]] = [Counter() for _ in expected]
    for term, document, count in zip(*found, strict=True):
        by_document[document][int(term)] = int(count)
    assert by_document == expected
    plan = bound.plan(0, max_tokens)
    assert sorted(plan.order.tolist()) == list(range(len(expected)))
    rows = bound.read(plan, np.arange(len(plan)), frozenset())
    for n, document in enumerate(plan.order):
        size = rows["length"][n]
        row = dict(zip(rows["tokens"][n, :size].tolist(), rows["weights/main"][n, :size].tolist(), strict=True))
        assert row == dict(sorted(expected[document].items())[:max_tokens])
        assert rows["positions/main"][n].tolist() == [*range(size), *[-1] * (rows["tokens"].shape[1] - size)]
    again = pickle.loads(pickle.dumps(bound))
    assert (again.plan(3, max_tokens).order == bound.plan(3, max_tokens).order).all()


def test_a_corpus_of_unknown_words_says_so(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", [[[1, 1]], [[2]]])
    with pytest.raises(CorpusError, match="no document of the corpus has a word"):
        TermDocuments().bind(store, seed=1, entry="main")
    with pytest.raises(RecipeError, match=r"term_documents.unit: 'page'; expected document or sentence"):
        TermDocuments(unit="page")  # type: ignore[arg-type]


def test_held_out_documents_are_other_documents(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", [[[4 + d % 8, 5]] for d in range(30)])
    train, aside = (TermDocuments().bind(store, seed=1, entry="main", held_out=0.1, subset=p) for p in ("train", "held_out"))
    assert len(train.start) + len(aside.start) == 30 and not set(train.start.tolist()) & set(aside.start.tolist())
