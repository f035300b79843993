"""The chunk encoder: the ids of the tokenizer, line by line, whatever the text and however small the dictionary."""

from __future__ import annotations

import lzma
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.text import ByteBPE, ChunkEncoder, Normalise, TextSpec, Tokenizer, Unigram, WordPiece, train
from cloze.text.encoding.chunks import EncodedLines
from cloze.text.encoding.table import KeyTable, keys_of
from tests.text.conftest import CHINESE, ENGLISH

# Characters that cuts, normalisers and patterns treat differently, and the separators used inside.
ASCII = "aaZz09 '  ,.[]-\t\n\r\x0b\x1c\x00\x7f"
CHARACTERS = ASCII + "\x85\u00a0\u2003\u3000\u2028éÉß\u0301\u0130中文\u4dff\u9fff\ua000ｱﬁ\ufb1d🐈мир한\u200d\ufffd"
WORDS = ["the", "cat", "'s", "'ll", " ", "  ", "[MASK]", "<s>", "</s>", "<|endoftext|>", "12", "Ünïcode", "睡觉", "x" * 17]
line = st.lists(st.one_of(st.sampled_from(WORDS), st.sampled_from(CHARACTERS)), max_size=24).map("".join)


def assert_exact(tokenizer: Tokenizer, lines: list[str], found: EncodedLines) -> None:
    expected = tokenizer.encode_batch(lines)
    assert len(found.offsets) == len(lines) + 1
    assert found.offsets[-1] == len(found.ids) == len(found.word_start)
    for number, (text, one) in enumerate(zip(lines, expected, strict=True)):
        here = slice(found.offsets[number], found.offsets[number + 1])
        assert found.ids[here].tolist() == one.ids.tolist(), repr(text)
        assert found.word_start[here].tolist() == one.word_start.tolist(), repr(text)


@pytest.fixture(scope="module")
def odd() -> dict[str, Tokenizer]:
    """Tokenizers with unusual switches."""
    off = Normalise(clean=False, cjk_spacing=False, strip_accents=False)
    return {
        "bare": train(TextSpec(off, WordPiece(size=220)), ENGLISH * 8 + CHINESE * 4),
        "no spacing": train(TextSpec(Normalise(lower=True, cjk_spacing=False), WordPiece(size=220)), ENGLISH + CHINESE),
        "accents": train(TextSpec(Normalise(lower=True, strip_accents=False), WordPiece(size=220)), ENGLISH + CHINESE),
        "lower bpe": train(TextSpec(Normalise(lower=True), ByteBPE(size=300)), ENGLISH + CHINESE),
        "lower unigram": train(TextSpec(Normalise(lower=True), Unigram(size=120)), ENGLISH + CHINESE),
    }


@settings(max_examples=25, deadline=None)
@given(lines=st.lists(line, max_size=8))
def test_any_lines_give_the_ids_of_the_tokenizer(
    trained: dict[str, Tokenizer], odd: dict[str, Tokenizer], lines: list[str]
) -> None:
    for tokenizer in (*trained.values(), *odd.values()):
        assert_exact(tokenizer, lines, ChunkEncoder(tokenizer, memory_mb=1).encode_lines(lines))


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "unigram"])
def test_a_warm_dictionary_gives_the_same_as_a_cold_one(trained: dict[str, Tokenizer], name: str) -> None:
    encoder = ChunkEncoder(trained[name], memory_mb=1)
    lines = [*ENGLISH, *CHINESE, "", "end"]
    first = encoder.encode_lines(lines)
    assert_exact(trained[name], lines, first)
    again = encoder.encode_lines(lines[::-1])
    assert_exact(trained[name], lines[::-1], again)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_full_dictionary_is_cleared_and_nothing_changes(trained: dict[str, Tokenizer], name: str) -> None:
    rng = np.random.default_rng(3)
    letters = list("abcdefghij")
    words = np.array(["".join(rng.choice(letters, size=rng.integers(3, 22))) for _ in range(20_000)])
    lines = [" ".join(rng.choice(words, size=40)) for _ in range(400)]
    encoder = ChunkEncoder(trained[name], memory_mb=0)
    for at in range(0, len(lines), 100):
        assert_exact(trained[name], lines[at : at + 100], encoder.encode_lines(lines[at : at + 100]))
    assert encoder.cleared >= 3


def test_text_that_never_repeats_goes_to_the_tokenizer_directly(trained: dict[str, Tokenizer]) -> None:
    rng = np.random.default_rng(4)
    ideographs = rng.integers(0x4E00, 0x9FA5, size=(12_000, 40))
    lines = ["".join(map(chr, row)) for row in ideographs.tolist()]
    encoder = ChunkEncoder(trained["roberta"])
    for at in range(0, len(lines), 6000):
        assert_exact(trained["roberta"], lines[at : at + 6000], encoder.encode_lines(lines[at : at + 6000]))
    assert encoder.direct_blocks == 1
    repeated = ENGLISH * 2_000
    usual = ChunkEncoder(trained["roberta"])
    assert len(usual.encode_lines(repeated).offsets) == len(repeated) + 1
    assert usual.direct_blocks == 0


def test_no_lines_and_empty_lines(trained: dict[str, Tokenizer]) -> None:
    for tokenizer in trained.values():
        encoder = ChunkEncoder(tokenizer)
        assert encoder.encode_lines([]).offsets.tolist() == [0]
        assert encoder.encode_lines(["", "", ""]).offsets.tolist() == [0, 0, 0, 0]
        assert_exact(tokenizer, ["", "cat", "", " "], encoder.encode_lines(["", "cat", "", " "]))


def test_lines_with_line_ends_or_lone_surrogates_inside(trained: dict[str, Tokenizer]) -> None:
    lines = ["a\nb", "\n", "cat \n\n sat\r\n", "x\ud800y", "\udfff"]
    for tokenizer in trained.values():
        assert_exact(tokenizer, lines, ChunkEncoder(tokenizer).encode_lines(lines))
        assert_exact(tokenizer, lines[3:], ChunkEncoder(tokenizer).encode_lines(lines[3:]))


def test_a_word_too_long_for_wordpiece_is_unknown(trained: dict[str, Tokenizer]) -> None:
    lines = ["cat " + "a" * size for size in (14, 15, 16, 99, 100, 101, 5000)]
    assert_exact(trained["bert"], lines, ChunkEncoder(trained["bert"]).encode_lines(lines))


def test_an_encoder_travels_to_another_process_as_a_folder(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    trained["bert"].save(tmp_path, length=64, frame_single="[CLS] {A} [SEP]")
    encoder = ChunkEncoder(tmp_path, memory_mb=4)
    encoder.encode_lines(ENGLISH)
    message = pickle.dumps(encoder)
    assert len(message) < 1000
    again = pickle.loads(message)
    assert again.memory_mb == 4
    assert_exact(trained["bert"], ENGLISH, again.encode_lines(ENGLISH))


@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(st.binary(min_size=1, max_size=15), min_size=1, max_size=200))
def test_the_key_table_finds_equal_keys_in_equal_slots(pieces: list[bytes]) -> None:
    table = KeyTable(bits=10)
    block = b"".join(pieces) + bytes(16)
    length = np.array([len(piece) for piece in pieces], dtype=np.int64)
    start = np.cumsum(length) - length
    slot, new = table.slots_of(keys_of(block, start, length))
    by_piece = dict(zip(pieces, slot.tolist(), strict=True))
    assert [by_piece[piece] for piece in pieces] == slot.tolist()
    assert len(set(by_piece.values())) == len(by_piece) == len(new) == table.used
    assert {pieces[i] for i in new.tolist()} == set(pieces)
    again, none = table.slots_of(keys_of(block, start, length))
    assert np.array_equal(again, slot) and len(none) == 0


@pytest.mark.parametrize("folder", ["text_en_wiki", "text_zh_wiki"])
@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram"])
def test_real_text_is_encoded_exactly(shared_data: Path, folder: str, kind: str) -> None:
    with lzma.open(shared_data / folder / "valid.txt.xz", "rt", encoding="utf-8") as file:
        lines = file.read(200_000).split("\n")
    builder = {"wordpiece": WordPiece, "byte_bpe": ByteBPE, "unigram": Unigram}[kind]
    tokenizer = train(TextSpec(Normalise(lower=kind == "wordpiece"), builder(size=1500)), lines[:600])
    encoder = ChunkEncoder(tokenizer)
    for at in range(0, len(lines), 1000):
        assert_exact(tokenizer, lines[at : at + 1000], encoder.encode_lines(lines[at : at + 1000]))


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["text_en_wiki", "text_zh_wiki"])
@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe"])
def test_whole_files_are_encoded_exactly(shared_data: Path, folder: str, kind: str) -> None:
    builder = {"wordpiece": WordPiece, "byte_bpe": ByteBPE}[kind]
    with lzma.open(shared_data / folder / "train.txt.xz", "rt", encoding="utf-8") as file:
        lines = file.read().split("\n")
    tokenizer = train(TextSpec(Normalise(lower=kind == "wordpiece"), builder(size=8000)), lines[:4000])
    encoder = ChunkEncoder(tokenizer)
    for at in range(0, len(lines), 5000):
        part = lines[at : at + 5000]
        ids, starts, offsets = tokenizer.encode_flat(part)
        found = encoder.encode_lines(part)
        assert np.array_equal(found.ids, ids)
        assert np.array_equal(found.word_start, starts)
        assert np.array_equal(found.offsets, offsets)
