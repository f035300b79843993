from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest

from cloze.cli.main import main
from cloze.corpus import Store
from cloze.corpus.readers import blocks as block_reading
from cloze.corpus.readers import read_documents
from cloze.corpus.stores import build as building
from cloze.corpus.stores.build import build_store, build_store_from_texts, train_tokenizer_from
from cloze.corpus.stores.writer import StoreWriter
from cloze.errors import CorpusError, RunError
from cloze.text import Annotations, TextSpec, Tokenizer

EN = (
    "The cat sleeps on the mat. It dreams of fish, 3.5 of them!\nDr. Smith wakes it.\n\n"
    "Another text begins here.  It has two spaces. “Quotes,” she said.\nThe end.\n\n"
)
ZH = "猫在垫子上睡觉。它梦见了鱼！\n\n第二篇文章。“真的吗？”他问道；没有人回答。\n\n"
LINES = [line for line in (EN + ZH).split("\n") if line] * 3


def trained(kind: str, **switches: bool) -> Tokenizer:
    from cloze.text import train

    return train(TextSpec.of(switches, kind, {"size": 400}), LINES)


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {"wordpiece": trained("wordpiece", lower=True), "byte_bpe": trained("byte_bpe"), "unigram": trained("unigram")}


def expected_ids(path: Path, tokenizer: Tokenizer) -> list[list[int]]:
    return [
        tokenizer.encode(sentence).ids.tolist() for document in read_documents([path]) for sentence in document.sentences
    ]


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram"])
@pytest.mark.parametrize("text", [EN * 3, ZH * 3], ids=["en", "zh"])
def test_a_store_holds_the_ids_of_every_sentence(
    kind: str, text: str, tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    tokenizer = tokenizers[kind]
    (tmp_path / "a.txt").write_text(text)
    store = build_store([tmp_path / "a.txt"], tokenizer, tmp_path / "store")
    starts = store.sentence_starts
    found = [store.tokens[a:b].tolist() for a, b in zip(starts[:-1], starts[1:], strict=True)]
    assert found == expected_ids(tmp_path / "a.txt", tokenizer)
    assert store.documents == 6
    assert store.report["documents"] == 6
    assert store.report["tokens"] == len(store.tokens)
    sentences = [s for document in read_documents([tmp_path / "a.txt"]) for s in document.sentences]
    words = np.concatenate([tokenizer.encode(sentence).word_start for sentence in sentences])
    assert (store.words(np.arange(len(store.tokens))) == words).all()
    assert store.tokenizer().hash == tokenizer.hash == store.tokenizer_hash
    store.verify()


def test_byte_level_ids_of_a_line_are_those_of_the_whole_line(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(EN)
    store = build_store([tmp_path / "a.txt"], tokenizers["byte_bpe"], tmp_path / "store")
    whole = [i for line in EN.split("\n") if line for i in tokenizers["byte_bpe"].encode(line).ids.tolist()]
    assert store.tokens.tolist() == whole


@pytest.mark.parametrize("size", [1 << 20, 70])
def test_lines_of_a_document_keep_their_ends_if_the_text_says_so(
    size: int, tokenizers: dict[str, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_reading, "BLOCK", size)
    (tmp_path / "a.txt").write_text(EN)
    tokenizer = tokenizers["byte_bpe"]
    given = {"annotations": Annotations(line_ends=True)}
    store = build_store([tmp_path / "a.txt"], tokenizer, tmp_path / "store", **given)
    bounds = store.sentence_starts[store.document_sentences]
    found = [tokenizer.decode(store.tokens[a:b]) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    assert found == EN.removesuffix("\n\n").split("\n\n")
    assert store.header["line_ends"] is True
    plain = build_store([tmp_path / "a.txt"], tokenizer, tmp_path / "plain")
    assert "line_ends" not in plain.header and len(plain.tokens) == len(store.tokens) - 2
    rows = build_store([tmp_path / "a.txt"], tokenizer, tmp_path / "rows", format="sentence", **given)
    assert tokenizer.decode(rows.tokens[:]) == EN.replace("\n\n", "").replace("\n", " ")
    words = build_store([tmp_path / "a.txt"], tokenizers["wordpiece"], tmp_path / "words", **given)
    assert words.tokens[:].tolist() == [i for ids in expected_ids(tmp_path / "a.txt", tokenizers["wordpiece"]) for i in ids]


@pytest.mark.parametrize("format", ["blank", "book", "line"])
def test_workers_and_block_sizes_do_not_change_the_store(
    format: str, tokenizers: dict[str, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(3):
        (tmp_path / f"{i}.txt").write_text((EN + ZH) * (i + 1))
    paths = [tmp_path / f"{i}.txt" for i in range(3)]
    tokenizer = tokenizers["wordpiece"]
    one = build_store(paths, tokenizer, tmp_path / "one", format=format, workers=1)
    original = block_reading.read_blocks
    monkeypatch.setattr(building, "read_blocks", lambda p, f, r: original(p, f, r, size=200))
    two = build_store(paths, tokenizer, tmp_path / "two", format=format, workers=2)
    small = build_store(paths, tokenizer, tmp_path / "small", format=format, workers=1)
    for other in (two, small):
        assert other.header["files"] == one.header["files"]
        assert other.report == one.report


def test_documents_without_a_token_are_left_out_and_noted(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One.\n\u200b\nTwo.\n \n")
    store = build_store([tmp_path / "a.txt"], tokenizers["wordpiece"], tmp_path / "store", format="line")
    assert store.documents == 2
    assert store.report["odd"]["empty_document"]["count"] == 2
    assert store.report["odd"]["empty_document"]["places"] == [f"{tmp_path}/a.txt:2", f"{tmp_path}/a.txt:4"]


def test_nothing_is_left_when_a_build_fails(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(EN)
    (tmp_path / "in" / "b.txt").write_bytes(bytes(range(256)) * 9)
    for workers in (1, 2):
        with pytest.raises(CorpusError, match="binary file"):
            build_store([tmp_path / "in"], tokenizers["wordpiece"], tmp_path / "store", workers=workers)
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


def test_a_corpus_of_nothing_is_refused(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\u200b\n")
    with pytest.raises(CorpusError, match="the corpus is empty"):
        build_store([tmp_path / "a.txt"], tokenizers["wordpiece"], tmp_path / "store")
    (tmp_path / "b.txt").write_text("")
    (tmp_path / "c.txt").write_text("")
    with pytest.raises(CorpusError, match="the corpus is empty"):
        build_store([tmp_path / "b.txt", tmp_path / "c.txt"], tokenizers["wordpiece"], tmp_path / "store")
    with pytest.raises(CorpusError, match="expected 1 or more"):
        build_store([tmp_path / "a.txt"], tokenizers["wordpiece"], tmp_path / "store", workers=0)
    assert not (tmp_path / "store").exists()


def test_a_full_disk_is_one_message_and_leaves_nothing(
    tokenizers: dict[str, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a.txt").write_text(EN)
    monkeypatch.setattr(StoreWriter, "append", full)
    with pytest.raises(RunError, match="No space left on device"):
        build_store([tmp_path / "a.txt"], tokenizers["wordpiece"], tmp_path / "store")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_a_lost_worker_is_one_message(
    tokenizers: dict[str, Tokenizer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cloze.corpus.stores import workers

    start = workers._start

    def start_and_kill(theirs: object) -> object:
        process = start(theirs)  # type: ignore[arg-type]
        process.kill()
        return process

    monkeypatch.setattr(workers, "_start", start_and_kill)
    (tmp_path / "a.txt").write_text(EN)
    with pytest.raises(RunError, match="ended unexpectedly"):
        build_store([tmp_path / "a.txt"], tokenizers["wordpiece"], tmp_path / "store", workers=2)


def test_texts_in_memory_become_a_store(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    lines: list[str] = []
    texts = ["One. Two.\n\nThree.", "Four."]
    store = build_store_from_texts(texts, tokenizers["wordpiece"], tmp_path / "s", report=lines.append)
    assert (store.documents, store.sentences) == (2, 4)
    assert "2 documents, 4 sentences" in lines[0]


def test_progress_counts_every_byte(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(EN)
    seen: list[tuple[int, int | None]] = []
    build_store([tmp_path / "a.txt"], tokenizers["wordpiece"], tmp_path / "s", progress=lambda *x: seen.append(x))
    assert seen[-1] == (len(EN.encode()),) * 2


def test_a_tokenizer_learns_from_an_even_sample_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("".join(f"Word{chr(97 + i // 10)} is here.\n" for i in range(260)))
    original = block_reading.read_blocks
    monkeypatch.setattr(building, "read_blocks", lambda p, f, r: original(p, f, r, size=160))
    spec = TextSpec.of({}, "byte_bpe", {"size": 300})
    said: list[str] = []
    one = train_tokenizer_from([tmp_path / "a.txt"], spec, budget_bytes=2000, report=said.append)
    assert "even sample" in said[0]
    assert one.hash == train_tokenizer_from([tmp_path / "a.txt"], spec, budget_bytes=2000).hash
    said.clear()
    train_tokenizer_from([tmp_path / "a.txt"], spec, report=said.append)
    assert not any("sample" in line for line in said)


def test_real_text_is_encoded_like_sentence_by_sentence(
    tokenizers: dict[str, Tokenizer], shared_data: Path, tmp_path: Path
) -> None:
    for name in ("text_en_wiki", "text_zh_wiki"):
        file = shared_data / name / "valid.txt.xz"
        documents = list(read_documents([file], block_bytes=1 << 16))
        (tmp_path / "a.txt").write_text("\n\n".join(d.text for d in documents[:60]), encoding="utf-8")
        store = build_store([tmp_path / "a.txt"], tokenizers["wordpiece"], tmp_path / name, format="sentence")
        assert store.documents == 60
        texts = [sentence for d in read_documents([tmp_path / "a.txt"], format="sentence") for sentence in d.sentences]
        ids = [i for encoded in tokenizers["wordpiece"].encode_batch(texts) for i in encoded.ids.tolist()]
        assert store.tokens.tolist() == ids


def test_real_folders_hold_the_documents_their_page_states(shared_data: Path) -> None:
    counts = {"text_en_wiki": 518, "text_zh_wiki": 810}
    for name, count in counts.items():
        assert sum(1 for _ in read_documents([shared_data / name / "valid.txt.xz"])) == count
    from cloze.corpus.readers.report import CorpusReport

    books = shared_data / "text_en_books"
    report = CorpusReport()
    documents = list(read_documents([books / "Haggard_She_1887.txt.xz"], report=report))
    assert (len(documents), report.formats) == (1, {"book": 1})
    assert np.mean([len(s) for s in documents[0].sentences]) > 100  # lines are cut at 73 characters
    documents = list(read_documents([books / "Lee_Brown_1884.txt.xz"], format="book"))
    assert documents[0].sentences[0] == "Miss Brown"  # neither byte-order mark nor carriage return


def test_the_header_holds_the_report_as_json(tokenizers: dict[str, Tokenizer], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(EN)
    build_store([tmp_path / "a.txt"], tokenizers["wordpiece"], tmp_path / "s")
    header = json.loads((tmp_path / "s" / "store.json").read_text())
    assert header["report"]["formats"] == {"blank": 1}
    assert header["report"]["files"][0]["why"] == "blank lines end documents"
    assert Store.open(tmp_path / "s", verify=True).role("[SEP]") == tokenizers["wordpiece"].role("[SEP]")


def test_the_verb_replaces_a_store_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.txt").write_text("The cat sat on the mat.\n\nRain fell all night.\n")
    line = ["corpus", "build", str(tmp_path / "t.txt"), "--out", str(tmp_path / "s"), "--workers", "1"]
    assert main([*line, "--size", "40"]) == 0
    before = (tmp_path / "s" / "store.json").read_bytes()
    assert main([*line, "--size", "30"]) == 2
    assert "already holds a token store. Choose another --out, or replace it with --overwrite." in capsys.readouterr().err
    assert (tmp_path / "s" / "store.json").read_bytes() == before
    assert main([*line, "--size", "30", "--overwrite"]) == 0
    assert (tmp_path / "s" / "store.json").read_bytes() != before
