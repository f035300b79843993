from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cloze.corpus import Store
from cloze.corpus.writer import StoreWriter
from cloze.errors import CorpusError


def writer(out: Path, size: int = 1000) -> StoreWriter:
    return StoreWriter(out, vocab_size=size, roles={}, tokenizer_hash="0" * 64)


def test_a_store_gives_back_what_was_written(make_store: object) -> None:
    store: Store = make_store([[3, 4], [], [5], [1, 1, 1]])  # type: ignore[operator]
    assert store.tokens.tolist() == list(range(10, 25))
    assert store.sentence_starts.tolist() == [0, 3, 7, 12, 13, 14, 15]
    assert store.document_sentences.tolist() == [0, 2, 2, 3, 6]
    assert store.document_starts.tolist() == [0, 7, 7, 12, 15]
    assert store.words(np.arange(15)).tolist() == [n % 3 != 1 for n in range(15)]
    assert (store.documents, store.sentences, store.tokens.dtype) == (4, 6, np.uint16)
    store.verify()


def test_large_vocabularies_take_32_bits(tmp_path: Path) -> None:
    with writer(tmp_path / "s", 70000) as w:
        w.append(np.array([69999]), np.array([True]), np.array([1]), np.array([1]))
        store = w.finish({}, lambda folder: folder.mkdir())
    assert store.tokens.tolist() == [69999]


def test_nothing_is_visible_before_finish_and_nothing_stays_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), writer(tmp_path / "s") as w:
        w.append(np.array([1]), np.array([True]), np.array([1]), np.array([1]))
        assert not (tmp_path / "s").exists()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_an_older_store_is_replaced_whole_and_other_folders_are_left_alone(tmp_path: Path) -> None:
    for value in (5, 6):
        with writer(tmp_path / "s") as w:
            w.append(np.array([value]), np.array([True]), np.array([1]), np.array([1]))
            w.finish({}, lambda folder: folder.mkdir())
    assert Store.open(tmp_path / "s").tokens.tolist() == [6]
    assert [p.name for p in tmp_path.iterdir()] == ["s"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(CorpusError, match="not a token store"):
        writer(tmp_path / "mine")


def test_half_copied_stores_name_the_file(make_store: object) -> None:
    store: Store = make_store([[3, 4]])  # type: ignore[operator]
    file = store.path / "tokens.bin"
    whole = file.read_bytes()
    file.write_bytes(whole[:-2])
    with pytest.raises(CorpusError, match=r"tokens\.bin: has 12 bytes, expected 14"):
        Store.open(store.path)
    file.unlink()
    with pytest.raises(CorpusError, match="is missing"):
        Store.open(store.path)


def test_a_flipped_byte_is_found_by_verify(make_store: object) -> None:
    store: Store = make_store([[3, 4]])  # type: ignore[operator]
    file = store.path / "tokens.bin"
    file.write_bytes(b"\xff" + file.read_bytes()[1:])
    Store.open(store.path)
    with pytest.raises(CorpusError, match="damaged; its checksum"):
        Store.open(store.path, verify=True)


def test_files_of_two_stores_do_not_mix(make_store: object) -> None:
    one: Store = make_store([[3, 4]])  # type: ignore[operator]
    other: Store = make_store([[2, 4]])  # type: ignore[operator]
    (one.path / "sentences.bin").write_bytes((other.path / "sentences.bin").read_bytes())
    with pytest.raises(CorpusError, match="files disagree"):
        Store.open(one.path)


@pytest.mark.parametrize("header", ["", "[]", "{}", '{"version": 1, "files": {}}'])
def test_damaged_headers_are_a_corpus_error(make_store: object, header: str) -> None:
    store: Store = make_store([[3, 4]])  # type: ignore[operator]
    (store.path / "store.json").write_text(header)
    with pytest.raises(CorpusError, match="damaged header"):
        Store.open(store.path)


def test_other_versions_missing_folders_and_other_tokenizers_are_refused(make_store: object, tmp_path: Path) -> None:
    store: Store = make_store([[3, 4]])  # type: ignore[operator]
    with pytest.raises(CorpusError, match="built with another tokenizer"):
        store.require_tokenizer("1" * 64, whose="the checkpoint run/bert")
    header = json.loads((store.path / "store.json").read_text())
    (store.path / "store.json").write_text(json.dumps({**header, "version": 99}))
    with pytest.raises(CorpusError, match="store version 99"):
        Store.open(store.path)
    with pytest.raises(CorpusError, match="found not there"):
        Store.open(tmp_path / "nowhere")
    with pytest.raises(CorpusError, match=r"a folder without store\.json"):
        Store.open(tmp_path)


def test_counts_are_those_of_every_id(make_store: object) -> None:
    store: Store = make_store([[400, 700]])  # type: ignore[operator]
    counts = store.counts()
    assert counts.shape == (1000,) and counts.sum() == 1100
    assert counts[:10].sum() == 0 and counts[10] == 2 and counts[300] == 1
