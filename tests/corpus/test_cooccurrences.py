"""Co-occurrences: cells by hand, borders, roles, spilling, both ways of counting, the order of an epoch."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloze.corpus import Store
from cloze.corpus.counting.cells import CellPlan, CooccurrenceCells, shuffled
from cloze.corpus.counting.cooccurrences import Cooccurrences, count_cells
from cloze.corpus.counting.pair_counting import counted
from cloze.corpus.counting.spill import Keys, Runs, Sums
from cloze.corpus.counting.word_chunks import chunks
from cloze.corpus.stores.writer import StoreWriter
from cloze.errors import CorpusError, RecipeError
from cloze.kernels import has_numba

WORDS = {"the": 4, "cat": 5, "sat": 6, "on": 7, "mat": 8}
SENTENCE = ["the", "cat", "sat", "on", "the", "mat"]
PATHS = [pytest.param(True, marks=pytest.mark.skipif(not has_numba(), reason="needs numba"), id="compiled"),
         pytest.param(False, id="plain")]
relaxed = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def store_of(folder: Path, documents: Sequence[Sequence[Sequence[int]]], vocab_size: int = 12) -> Store:
    """A store of documents of sentences of ids; 0 to 3 are roles, 1 the unknown word."""
    roles = {"[PAD]": 0, "[UNK]": 1, "[BOS]": 2, "[EOS]": 3}
    ids = np.array([t for d in documents for s in d for t in s], np.int64)
    with StoreWriter(folder, vocab_size=vocab_size, roles=roles, tokenizer_hash="0" * 64) as writer:
        sizes = np.array([len(s) for d in documents for s in d], np.int64)
        writer.append(ids, np.ones(len(ids), np.bool_), sizes, np.array([len(d) for d in documents]))
        return writer.finish({"odd": {}}, lambda inner: inner.mkdir())


def matrix(cells: CooccurrenceCells) -> np.ndarray:
    dense = np.zeros((cells.vocab_size, cells.vocab_size))
    assert len(set(zip(cells.rows.tolist(), cells.columns.tolist(), strict=True))) == len(cells)
    dense[cells.rows, cells.columns] = cells.counts
    return dense


def whole(runs: Runs, block: int) -> tuple[Keys, Sums]:
    """All keys and sums of some runs."""
    keys, sums = zip(*runs.merged(block), strict=True) if list(runs.merged(block)) else ([np.zeros(0, np.uint64)], [np.zeros(0)])
    return np.concatenate(keys), np.concatenate(sums)


def by_hand(documents: Sequence[Sequence[Sequence[int]]], source: Cooccurrences, vocab_size: int = 12) -> np.ndarray:
    """The matrix as its definition says, pair by pair."""
    dense = np.zeros((vocab_size, vocab_size))
    units = [[t for s in d for t in s] for d in documents] if source.unit == "document" else [s for d in documents for s in d]
    for unit in units:
        words = [t for t in unit if t > 3]
        for i, word in enumerate(words):
            for d in range(1, min(source.radius, i) + 1):
                dense[word, words[i - d]] += source.weights[d - 1]
                if source.symmetric:
                    dense[words[i - d], word] += source.weights[d - 1]
    return dense


@pytest.mark.parametrize("compiled", PATHS)
def test_the_cat_sat_on_the_mat(tmp_path: Path, compiled: bool) -> None:
    store = store_of(tmp_path / "store", [[[WORDS[w] for w in SENTENCE]]])
    (tmp_path / "cells").mkdir()
    cells = count_cells(Cooccurrences(radius=2), store, np.arange(1), tmp_path / "cells", compiled=compiled)
    found = matrix(cells)
    ones = ["the cat", "the sat", "the on", "the mat", "cat sat", "sat on"]
    for pair in ones + ["cat on", "on mat"]:
        one, other = (WORDS[w] for w in pair.split())
        assert found[one, other] == found[other, one] == (1.0 if pair in ones else 0.5), pair
    assert len(cells) == 16
    assert cells.mass == found.sum() == 14 == 2 * sum((6 - d) / d for d in (1, 2))


@pytest.mark.parametrize("compiled", PATHS)
def test_a_word_next_to_itself_counts_twice(tmp_path: Path, compiled: bool) -> None:
    store = store_of(tmp_path / "store", [[[5, 5, 5]]])
    (tmp_path / "cells").mkdir()
    cells = count_cells(Cooccurrences(radius=2), store, np.arange(1), tmp_path / "cells", compiled=compiled)
    assert cells.counts.tolist() == [2 * (1 + 1 + 0.5)]


documents_of = st.lists(st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=12), max_size=3), min_size=1, max_size=4)


@relaxed
@given(
    documents=documents_of, radius=st.integers(1, 5), weight=st.sampled_from(["inverse_distance", "flat", "linear"]),
    symmetric=st.booleans(), unit=st.sampled_from(["document", "sentence"]), chunk=st.integers(1, 9),
)
def test_both_paths_count_what_the_definition_says(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[list[int]]], radius: int, weight: str, symmetric: bool,
    unit: str, chunk: int,
) -> None:
    folder = tmp_path_factory.mktemp("cells")
    source = Cooccurrences(radius=radius, weight=weight, symmetric=symmetric, unit=unit)  # type: ignore[arg-type]
    store = store_of(folder / "store", documents)
    expected = by_hand(documents, source)
    for compiled in (True, False) if has_numba() else (False,):
        for threads in (1, 3):
            inner = folder / f"{compiled}{threads}"
            inner.mkdir()
            cells = count_cells(source, store, np.arange(store.documents), inner, threads=threads, compiled=compiled)
            np.testing.assert_allclose(matrix(cells), expected, rtol=1e-6)
            assert cells.tokens == sum(t > 3 for d in documents for s in d for t in s)
    chunked = sum((w.ids[w.new :].tolist() for w in chunks(store, np.arange(store.documents), unit=source.unit, radius=radius,
                                                              chunk=chunk)), [])
    assert chunked == [t for d in documents for s in d for t in s if t > 3]


@relaxed
@given(documents=documents_of, radius=st.integers(1, 5), chunk=st.integers(1, 9), unit=st.sampled_from(["document", "sentence"]))
def test_where_chunks_end_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[list[int]]], radius: int, chunk: int, unit: str
) -> None:
    folder = tmp_path_factory.mktemp("chunks")
    store = store_of(folder / "store", documents)
    weights = 1 / np.arange(1.0, radius + 1)

    def found(size: int) -> Counter[int]:
        words = chunks(store, np.arange(store.documents), unit=unit, radius=radius, chunk=size)  # type: ignore[arg-type]
        made = counted(words, weights, vocab_size=12, symmetric=True, memory=1 << 24, folder=folder, compiled=False)
        keys, sums = whole(made, 1000)
        return Counter(dict(zip(keys.tolist(), sums.round(9).tolist(), strict=True)))

    assert found(chunk) == found(1 << 20)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("compiled", PATHS)
def test_what_does_not_fit_is_spilled_and_merged(tmp_path: Path, compiled: bool, threads: int) -> None:
    ids = (4 + np.random.default_rng(1).integers(0, 996, 20000)).tolist()
    store = store_of(tmp_path / "store", [[ids]], vocab_size=1000)
    weights = np.ones(5)
    words = list(chunks(store, np.arange(1), unit="document", radius=5, chunk=3000))
    results = []
    for memory in (1 << 30, 1 << 18):
        folder = tmp_path / str(memory)
        folder.mkdir()
        found = counted(iter(words), weights, vocab_size=1000, symmetric=True, memory=memory, folder=folder, threads=threads,
                        compiled=compiled)
        assert len(found.spilled) > 6 if memory == 1 << 18 else not found.spilled
        blocks = [keys for keys, _ in found.merged(1000)]
        assert max(map(len, blocks)) <= 1000 and len(blocks) > 3
        results.append(whole(found, 1000))
        found.discard()
        assert not list(folder.iterdir())
    assert (results[0][0] == results[1][0]).all() and (results[0][1] == results[1][1]).all()
    assert (np.diff(results[0][0].astype(np.int64)) > 0).all()


def test_a_spilled_count_gives_the_same_files(tmp_path: Path) -> None:
    ids = (4 + np.random.default_rng(2).integers(0, 4996, 60000)).tolist()
    store = store_of(tmp_path / "store", [[ids]], vocab_size=5000)
    found = []
    for memory in (16, 4096):
        folder = tmp_path / str(memory)
        folder.mkdir()
        found.append(count_cells(Cooccurrences(radius=15, memory=memory), store, np.arange(1), folder, compiled=False))
    assert [cells.header["spilled"] for cells in found] == [True, False]
    assert sorted(p.name for p in found[0].folder.iterdir()) == sorted(p.name for p in found[1].folder.iterdir())
    for name in ("rows", "columns", "counts", "tiles"):
        assert (getattr(found[0], name) == getattr(found[1], name)).all()
    assert len(found[0].tiles) == 26  # 5 x 5 tiles of 1024 words
    tile = found[0].rows // 1024 * 5 + found[0].columns // 1024
    assert (np.diff(tile) >= 0).all()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits what a process may allocate")
@pytest.mark.parametrize(
    ("words", "threads", "compiled", "spilled"),
    [(115_000, 8, True, False), (120_000, 2, True, True), (100_000, 1, False, True)],
)
def test_counting_stays_within_its_memory(tmp_path: Path, words: int, threads: int, compiled: bool, spilled: bool) -> None:
    if compiled:
        pytest.importorskip("numba")
    ids = (4 + np.random.default_rng(4).integers(0, 29_996, words)).tolist()
    store_of(tmp_path / "store", [[ids]], vocab_size=30_000)
    command = [sys.executable, "-c", LIMITED, str(tmp_path), str(threads), "compiled" * compiled]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(words), str(spilled)], done.stderr


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from cloze.corpus import Store
from cloze.corpus.counting.cooccurrences import Cooccurrences, count_cells

folder, threads, compiled = Path(sys.argv[1]), int(sys.argv[2]), bool(sys.argv[3])
store = Store.open(folder / "store")

def count(name, memory):
    (folder / name).mkdir()
    return count_cells(Cooccurrences(memory=memory), store, np.arange(1), folder / name, threads=threads, compiled=compiled)

if compiled:
    count("first", 48)  # loads the compiler, which takes memory of its own
lines = Path("/proc/self/status").read_text().splitlines()
used = next(int(line.split()[1]) for line in lines if line.startswith("VmData")) << 10
resource.setrlimit(resource.RLIMIT_DATA, (used + (64 << 20) + threads * (10 << 20), -1))  # and the threads' stacks
cells = count("cells", 64)
print(cells.tokens, cells.header["spilled"])
"""


@relaxed
@given(size=st.integers(1, 5000), key=st.integers(0, 2**64 - 1))
def test_shuffling_is_one_to_one(size: int, key: int) -> None:
    index = np.arange(size)
    where = shuffled(index, np.full(size, size), np.full(size, key, np.uint64))
    assert sorted(where.tolist()) == index.tolist()
    if size > 1000:
        assert abs(np.corrcoef(index, where)[0, 1]) < 0.2


def test_an_epoch_reads_every_cell_once_and_epochs_differ(tmp_path: Path) -> None:
    ids = (4 + np.random.default_rng(3).integers(0, 2000, 30000)).tolist()
    store = store_of(tmp_path / "store", [[ids]], vocab_size=2004)
    bound = Cooccurrences(radius=3).bind(store, seed=1, entry="main")
    cells = bound.cells
    assert len(cells.pieces) - 1 > 8 and (np.diff(cells.pieces) <= 1 << 14).all()
    plans = [bound.plan(epoch, 2) for epoch in (0, 1)]
    orders = [plan.cells(np.arange(len(plan))) for plan in plans]
    for order in orders:
        assert len(order) == len(cells) and (np.bincount(order) == 1).all()
    assert (orders[0] != orders[1]).mean() > 0.9
    items = np.array([5, 70000, 5, 12])
    rows = bound.read(plans[0], items, frozenset())
    assert (rows["cell"][:, 0] == cells.rows[orders[0][items]]).all()
    assert (rows["cell_count"] == cells.counts[orders[0][items]]).all()
    assert rows["tokens"].tolist() == rows["cell"].tolist() and rows["length"].tolist() == [2] * 4
    again = pickle.loads(pickle.dumps(bound))
    assert (again.plan(0, 2).cells(np.arange(99)) == orders[0][:99]).all()


def test_cells_are_counted_once_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path / "store", [[[4, 5, 6, 5]]])
    source = Cooccurrences(radius=2)
    first = source.bind(store, seed=1, entry="main").cells
    monkeypatch.setattr("cloze.corpus.counting.cooccurrences.count_cells", lambda *_: pytest.fail("counted again"))
    again = source.bind(Store.open(store.path), seed=2, entry="other").cells
    assert again.folder == first.folder and (matrix(again) == matrix(first)).all()
    assert [p.name for p in first.folder.parent.iterdir()] == [first.folder.name]
    (first.folder / "counts.bin").write_bytes(b"1234")
    assert CooccurrenceCells.open(first.folder) is None  # a half-copied folder is counted again


def test_held_out_documents_are_not_counted_and_compare_in_size(tmp_path: Path) -> None:
    documents = [[[4 + (7 * d + t * t) % 8 for t in range(9)]] for d in range(40)]
    store = store_of(tmp_path / "store", documents)
    source = Cooccurrences(radius=2)
    train, aside = (source.bind(store, seed=1, entry="main", held_out=0.1, subset=p) for p in ("train", "held_out"))
    np.testing.assert_allclose(matrix(train.cells), by_hand([documents[d] for d in train.documents], source), rtol=1e-6)
    assert not set(train.documents.tolist()) & set(aside.documents.tolist()) and len(aside.documents) >= 2
    plan = aside.plan(0, 2)
    rows = aside.read(plan, np.arange(len(plan)), frozenset())
    assert float(rows["cell_count"].sum()) == pytest.approx(train.cells.mass, rel=1e-4)


def test_a_corpus_without_pairs_says_so(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", [[[4], [5]], [[6]]])
    with pytest.raises(CorpusError, match="no two words of the corpus occur near each other in any sentence"):
        Cooccurrences(unit="sentence").bind(store, seed=1, entry="main").plan(0, 2)
    assert len(Cooccurrences().bind(store, seed=1, entry="main").cells) == 2


@pytest.mark.parametrize("wrong", [{"radius": 0}, {"weight": "cubic"}, {"unit": "line"}, {"memory": 1}])
def test_wrong_arguments_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(RecipeError, match=f"cooccurrences.{next(iter(wrong))}"):
        Cooccurrences(**wrong)  # type: ignore[arg-type]


def test_a_plan_of_no_cells_is_empty() -> None:
    assert len(CellPlan.of(np.zeros(1, np.int64), 0, 1, "main")) == 0


@pytest.mark.parametrize(
    ("name", "value", "kind", "told"),
    [("rows.bin", 2**31 - 1, np.int32, "2147483647, expected the numbers of 12 words"), ("columns.bin", -1, np.int32, "holds -1"),
     ("counts.bin", np.nan, np.float32, "holds nan"), ("counts.bin", -1.0, np.float32, "holds -1.0"),
     ("tiles.bin", 2**40, np.int64, "borders that fall")],
)
def test_numbers_out_of_range_are_found_when_cells_are_opened(
    name: str, value: float, kind: type, told: str, tmp_path: Path
) -> None:
    bound = Cooccurrences(radius=2).bind(store_of(tmp_path / "store", [[[4, 5, 6, 5]]]), seed=1, entry="main")
    file = bound.cells.folder / name
    numbers = np.fromfile(file, kind)
    numbers[0] = value
    numbers.tofile(file)
    with pytest.raises(CorpusError, match=told) as found:
        CooccurrenceCells.open(file.parent)
    assert str(file) in str(found.value) and "Delete the folder" in str(found.value)


def test_counts_in_the_folder_for_temporary_files_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = Cooccurrences(radius=2).bind(store_of(tmp_path / "store", [[[4, 5, 6, 5]]]), seed=1, entry="main")
    monkeypatch.setattr("cloze.corpus.counting.cooccurrences.os.access", lambda *_: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = tmp_path / f"cloze-{os.getuid()}"
    own.mkdir()
    own.chmod(0o777)
    with pytest.raises(CorpusError, match="a folder that other users can write to"):
        bound.cells  # noqa: B018
    own.rmdir()
    own.symlink_to(tmp_path / "store")
    with pytest.raises(CorpusError, match="is no folder"):
        bound.cells  # noqa: B018
    own.unlink()
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    other = tmp_path / f"cloze-{os.getuid()}"
    other.mkdir(mode=0o700)
    with pytest.raises(CorpusError, match="expected a private folder of this user"):
        bound.cells  # noqa: B018
    monkeypatch.undo()
    monkeypatch.setattr("cloze.corpus.counting.cooccurrences.os.access", lambda *_: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert bound.cells.folder.parent == own and own.stat().st_mode & 0o777 == 0o700


def test_what_a_pair_counts_at_each_distance() -> None:
    """`linear` is what windows with a radius drawn from 1 to R count on average: (R + 1 - d) / R."""
    found = {weight: Cooccurrences(radius=4, weight=weight).weights.tolist() for weight in ("inverse_distance", "flat", "linear")}
    assert found == {"inverse_distance": [1, 1 / 2, 1 / 3, 1 / 4], "flat": [1, 1, 1, 1], "linear": [1, 3 / 4, 1 / 2, 1 / 4]}
