"""DeBERTa's spm.model: pieces are read from sentencepiece's format, and ids are those of transformers' class."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from cloze.errors import CheckpointError
from cloze.text import Tokenizer

PIECES = [("[PAD]", 0.0, 3), ("[CLS]", 0.0, 3), ("[SEP]", 0.0, 3), ("[UNK]", 0.0, 2), ("▁", -3.0, 1), ("▁the", -2.0, 1),
          ("▁cat", -2.5, 1), ("s", -3.1, 1), ("c", -4.0, 1), ("a", -4.0, 1), ("t", -4.0, 1), (".", -3.0, 1), ("é", -5.0, 1),
          ("▁cats", -9.0, 1), ("\n", 0.0, 4)]  # fmt: skip
TEXTS = ["the cats", "  the   cat .", "The cat", "the.cat", "cate\u0301s", "", " ", "cat ", "日本 the", "the cat\u00e9"]


def number(value: int) -> bytes:
    rest = value >> 7
    return bytes([value & 127]) if not rest else bytes([value & 127 | 128]) + number(rest)


def field(name: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return number(name << 3) + number(value)
    return number(name << 3 | 2) + number(len(value)) + value


def write(folder: Path, *, kind: int = 1, rules: bytes = b"", pieces: list[tuple[str, float, int]] = PIECES) -> Path:
    """A folder with such a file and nothing else."""
    data = b""
    for text, score, piece_kind in pieces:
        data += field(1, field(1, text.encode()) + number(2 << 3 | 5) + struct.pack("<f", score) + field(3, piece_kind))
    (folder / "spm.model").write_bytes(data + field(2, field(3, kind) + field(300, 200)) + field(3, rules))
    return folder


def test_ids_are_those_of_transformers_class(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = Tokenizer.load(write(tmp_path, pieces=PIECES[:-1]))
    theirs = transformers.DebertaV2Tokenizer(vocab=[(text, score) for text, score, _ in PIECES[:-1]], unk_id=3)
    composed = [text for text in TEXTS if "\u0301" not in text]  # which transformers 5 composes, and this file's table does not
    for text in composed:
        assert ours.encode(text).ids.tolist() == theirs(text, add_special_tokens=False)["input_ids"], text
    assert ours.roles == {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, "[MASK]": 14} == {
        token: theirs.convert_tokens_to_ids(token) for token in ours.roles
    }


def test_switches_of_the_file_and_of_the_folder_count(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "split_by_punct": True}))
    pieces = {text: number for number, (text, _, _) in enumerate(PIECES)}
    lowered = Tokenizer.load(write(tmp_path))
    assert lowered.encode("THE CAT").ids.tolist() == [pieces["▁the"], pieces["▁cat"]]
    assert lowered.encode("the\ncat").ids[1] == pieces["\n"]  # a piece of the user's, which is cut out first
    (tmp_path / "tokenizer_config.json").unlink()
    bare = Tokenizer.load(write(tmp_path, rules=field(3, 0) + field(4, 0)))
    assert bare.encode("cat").ids.tolist() == [pieces[letter] for letter in "cat"]


@pytest.mark.parametrize(("change", "reason"), [
    (lambda data: data[:40], "the file ends in the middle of a piece"),
    (lambda data: b"\x0f" + data, "no file of sentencepiece"),
    (lambda data: b"\xff" * 12, "no file of sentencepiece"),
])  # fmt: skip
def test_a_damaged_file_is_named(tmp_path: Path, change: object, reason: str) -> None:
    path = write(tmp_path) / "spm.model"
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=reason):
        Tokenizer.load(tmp_path)


def test_another_type_of_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="a sentencepiece model of type 2; expected a unigram model"):
        Tokenizer.load(write(tmp_path, kind=2))
