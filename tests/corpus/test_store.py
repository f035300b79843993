from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cloze import atomic
from cloze.corpus import Store
from cloze.corpus.stores.writer import StoreWriter
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


def test_the_files_of_a_store_are_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, early = tmp_path / "s", set()
    really = atomic._sync

    def sync(path: Path) -> None:
        really(path)
        if not out.exists():
            early.add(path.name)

    monkeypatch.setattr(atomic, "_sync", sync)
    with writer(out) as w:
        w.append(np.array([1]), np.array([True]), np.array([1]), np.array([1]))
        w.finish({}, lambda folder: folder.mkdir())
    assert early >= {path.name for path in out.rglob("*")} >= {"tokens.bin", "documents.bin", "store.json"}


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
    file.write_bytes(b"\x0b" + file.read_bytes()[1:])  # another word
    Store.open(store.path)
    with pytest.raises(CorpusError, match="damaged or edited; its checksum"):
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


@pytest.mark.parametrize(
    ("file", "place", "value", "message"),
    [
        ("tokens.bin", 1, 0xFF, r"tokens\.bin: damaged; it holds 65,\d\d\d, expected less than 1,000"),
        ("sentences.bin", 8, 0x7F, r"sentences\.bin: damaged; its bounds are not in order"),
        ("sentences.bin", 0, 1, r"sentences\.bin: damaged; its bounds are not in order"),
        ("documents.bin", 15, 0x80, r"documents\.bin: damaged; its bounds are not in order"),
    ],
)
def test_a_flipped_bit_that_would_lead_out_of_the_files_is_found_at_opening(
    make_store: object, file: str, place: int, value: int, message: str
) -> None:
    store: Store = make_store([[3, 4], [5], [2]])  # type: ignore[operator]
    data = bytearray((store.path / file).read_bytes())
    data[place] = value
    (store.path / file).write_bytes(data)
    with pytest.raises(CorpusError, match=message):
        Store.open(store.path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("dtype", "object"), ("vocab_size", -1), ("vocab_size", "many"), ("roles", {"[SEP]": 10**9}), ("report", [1]),
     ("tokenizer_hash", 5), ("languages", [3]), ("annotations", 3)],
)
def test_a_header_of_the_wrong_kind_is_told(make_store: object, key: str, value: object) -> None:
    store: Store = make_store([[3, 4]])  # type: ignore[operator]
    file = store.path / "store.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(CorpusError, match=f"damaged header .*{key}: not what a store holds"):
        Store.open(store.path)


def test_a_header_cannot_name_files_outside_of_the_store(make_store: object, tmp_path: Path) -> None:
    store: Store = make_store([[3, 4]])  # type: ignore[operator]
    file, data = store.path / "store.json", json.loads((store.path / "store.json").read_text())
    data["files"]["layers/../../../secret"] = {"bytes": 1, "sha256": "0"}
    file.write_text(json.dumps(data))
    with pytest.raises(CorpusError, match="is outside the store"):
        Store.open(store.path)


def test_an_edited_tokenizer_is_found(tmp_path: Path) -> None:
    from cloze.corpus.stores.build import build_store
    from cloze.text import Normalise, TextSpec, WordPiece, train

    text = tmp_path / "a.txt"
    text.write_text("The cat sleeps. It dreams of fish.\n" * 50)
    tokenizer = train(TextSpec(Normalise(lower=True), WordPiece(size=60)), text.read_text().split("\n"))
    store = build_store([text], tokenizer, tmp_path / "store")
    assert store.tokenizer().hash == tokenizer.hash
    file = store.path / "tokenizer" / "tokenizer.json"
    file.write_text(file.read_text().replace('"##s"', '"##z"'))
    with pytest.raises(CorpusError, match=r"tokenizer\.json: damaged or edited"):
        Store.open(store.path)
    header = json.loads((store.path / "store.json").read_text())  # edited, too: it lists no tokenizer files
    header["files"] = {name: one for name, one in header["files"].items() if not name.startswith("tokenizer/")}
    (store.path / "store.json").write_text(json.dumps(header))
    with pytest.raises(CorpusError, match="not the tokenizer that made this store's ids"):
        Store.open(store.path, verify=True)


def test_counts_come_from_the_header(make_store: object) -> None:
    store: Store = make_store([[400, 700]])  # type: ignore[operator]
    file = store.path / "store.json"
    header = json.loads(file.read_text())
    expected = np.bincount(store.tokens, minlength=store.vocab_size).tolist()
    assert store.counts().tolist() == expected == [int(number) for number in header["counts"].split()]
    file.write_text(json.dumps({**header, "counts": " ".join(["1"] * 1000)}))
    with pytest.raises(CorpusError, match="1,000 counts add up to 1,000, expected 1,000 of 1,100 tokens"):
        Store.open(store.path).counts()
    del header["counts"]
    file.write_text(json.dumps(header))
    with pytest.raises(CorpusError, match=r"damaged header \(KeyError: 'counts'\)"):
        Store.open(store.path)


def test_a_store_larger_than_memory_is_read_page_by_page(make_store: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloze.corpus import Passages
    from cloze.corpus.stores import store as module

    advised: list[int] = []
    monkeypatch.setattr(module, "advise_random", lambda array: advised.append(array.nbytes))
    store: Store = make_store([[3, 4], [5]])  # type: ignore[operator]
    Passages(length=8).bind(store, seed=0, entry="main")
    assert advised == []
    monkeypatch.setattr(module, "memory", lambda: 10)
    Passages(length=8).bind(store, seed=0, entry="main")
    assert advised == [24, 2, 32]
    monkeypatch.undo()
    module.advise_random(store.tokens)  # a mapped file takes the advice
