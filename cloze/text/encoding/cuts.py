"""Where a line of UTF-8 may be cut so that encoding the pieces separately gives the same ids as encoding the line.

A cutter reads a block of bytes, many lines joined by a separator byte, and returns the starts and lengths of its chunks.
Separators, and white space that yields no token, belong to no chunk. Every rule below is safe for the pre-tokenizer it is named
after: where it cannot be sure, it does not cut.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LINE_END = 0x0A
NEVER_IN_UTF8 = 0xFF

Bytes = NDArray[np.uint8]


class ChunkBounds(NamedTuple):
    """Chunks of a block: where each begins and how many bytes it has, both (n,) int64, in order."""

    start: NDArray[np.int64]
    length: NDArray[np.int64]


Cutter = Callable[[bytes, int], ChunkBounds]

_WHITE, _WORD, _MARK = 0, 1, 2
_LETTER, _DIGIT, _SIGN, _SPACE, _BLANK, _BREAK, _HIGH, _OTHER = 1, 2, 4, 8, 16, 32, 64, 128


def cutter_for(description: dict[str, Any]) -> Cutter | None:
    """The cutter that is exact for a tokenizer.json; None if there is none."""
    model = description["model"]
    normaliser = description.get("normalizer") or {}
    before = description.get("pre_tokenizer") or {}
    if any(not token["special"] for token in description.get("added_tokens", [])):
        return None
    per_word = model.get("type") in ("WordPiece", "WordLevel") or (model.get("type") == "BPE" and not model.get("dropout"))
    if per_word and before.get("type") == "BertPreTokenizer":
        if not normaliser:
            return BertCutter(ideographs=False)
        if normaliser.get("type") == "BertNormalizer":
            return BertCutter(ideographs=bool(normaliser.get("handle_chinese_chars")))
    plain = before.get("type") == "ByteLevel" and not before.get("add_prefix_space") and before.get("use_regex", True)
    if model.get("type") == "BPE" and plain and not normaliser and not model.get("dropout"):
        return cut_byte_level
    first, *rest = before.get("pretokenizers") or [{}]
    spaced = first.get("type") == "WhitespaceSplit" and not any(map(cuts_inside, rest))
    if model.get("type") in ("Unigram", "WordLevel") and spaced and _per_word(normaliser):
        return cut_white_space
    return None


def cuts_inside(step: dict[str, Any]) -> bool:
    """Whether a step of the pre-tokenizer cuts words elsewhere than at a special token that is the whole word."""
    return step.get("type") == "Split" and not str((step.get("pattern") or {}).get("Regex")).startswith(r"\A")


def _per_word(normaliser: dict[str, Any]) -> bool:
    """Whether the normaliser treats each word between spaces independently."""
    steps = normaliser.get("normalizers", [normaliser] if normaliser else [])
    return all(step.get("type") in ("BertNormalizer", "NFKC", "NFKD") for step in steps)


def _classes(default: int, members: dict[int, bytes]) -> bytes:
    table = bytearray([default]) * 256
    for kind, characters in members.items():
        for byte in characters:
            table[byte] = kind
    return bytes(table)


_PUNCTUATION = string.punctuation.encode()
_BERT_TABLE = _classes(_WORD, {_WHITE: b" \t\n\r\xff", _MARK: _PUNCTUATION})
_SPACE_TABLE = _classes(_WORD, {_WHITE: b" \t\n\r\xff"})
_GPT2_TABLE = _classes(
    _OTHER,
    {
        _HIGH: bytes(range(0x80, 0xFF)),
        _LETTER: string.ascii_letters.encode(),
        _DIGIT: string.digits.encode(),
        _SIGN: _PUNCTUATION.replace(b"'", b""),
        _SPACE: b" ",
        _BLANK: b"\t\n\v\f\r\x1c\x1d\x1e\x1f",
        _BREAK: b"\xff",
    },
)
_GPT2_LINES = _GPT2_TABLE[:LINE_END] + bytes([_BREAK]) + _GPT2_TABLE[LINE_END + 1 :]


class BertCutter:
    """BERT's pre-tokenizer: at white space, around ASCII punctuation, and around U+4E00-U+9FFF if these are spaced out."""

    def __init__(self, *, ideographs: bool) -> None:
        self.ideographs = ideographs

    def __call__(self, block: bytes, separator: int) -> ChunkBounds:
        kind = np.frombuffer(block.translate(_BERT_TABLE), dtype=np.uint8)
        mark = kind == _MARK
        begin, end = _word_bounds(kind == _WORD)
        if self.ideographs and not block.isascii():
            _cut_ideographs(np.frombuffer(block, dtype=np.uint8), kind, begin, end)
        begin |= mark
        end |= mark
        return _between(begin, end)


def cut_white_space(block: bytes, separator: int) -> ChunkBounds:
    """At ASCII white space only."""
    begin, end = _word_bounds(np.frombuffer(block.translate(_SPACE_TABLE), dtype=np.uint8) == _WORD)
    return _between(begin, end)


def cut_byte_level(block: bytes, separator: int) -> ChunkBounds:
    """The GPT-2 pattern: before a lone space, and where ASCII letters, digits and signs meet.

    Never cuts at an apostrophe (contractions), nor in runs of white space, whose last space the pattern treats differently.
    Cuts at a space between two non-ASCII characters only if the second cannot be white space.
    """
    table = _GPT2_LINES if separator == LINE_END else _GPT2_TABLE
    kind = np.frombuffer(block.translate(table), dtype=np.uint8)
    cut = np.zeros(len(kind) + 1, dtype=np.bool_)
    broken = kind == _BREAK
    if len(kind) > 1:
        left, right = kind[:-1], kind[1:]
        classes = _LETTER | _DIGIT | _SIGN
        cut[1:-1] = (left != right) & ((left & classes) != 0) & ((right & classes) != 0)
        cut[1:-1] |= broken[:-1]
    if len(kind) > 2:
        before, here, after = kind[:-2], kind[1:-1], kind[2:]
        white = _SPACE | _BLANK | _BREAK
        lone = (here == _SPACE) & ((before & white) == 0) & ((after & white) == 0)
        if not block.isascii():
            raw = np.frombuffer(block, dtype=np.uint8)[2:]
            doubtful = (raw == 0xC2) | ((raw >= 0xE1) & (raw <= 0xE3))
            lone &= ~((before == _HIGH) & doubtful)
        cut[1:-2] |= lone
    cut[0] = cut[-1] = True
    cut[:-1] |= broken
    bound = np.flatnonzero(cut)
    inside = ~broken[bound[:-1]]
    return ChunkBounds(bound[:-1][inside], np.diff(bound)[inside])


def _word_bounds(word: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """First and last byte of every run of true."""
    begin = word.copy()
    end = word.copy()
    begin[1:] &= ~word[:-1]
    end[:-1] &= ~word[1:]
    return begin, end


def _cut_ideographs(raw: Bytes, kind: Bytes, begin: NDArray[np.bool_], end: NDArray[np.bool_]) -> None:
    """Make every character U+4E00-U+9FFF (three bytes, E4 B8 80 to E9 BF BF) a chunk of its own."""
    lead = np.flatnonzero((raw >= 0xE4) & (raw <= 0xE9))
    lead = lead[(raw[lead] > 0xE4) | (raw[lead + 1] >= 0xB8)]
    begin[lead] = True
    end[lead + 2] = True
    before = lead[1:] - 1 if len(lead) and lead[0] == 0 else lead - 1
    end[before[kind[before] == _WORD]] = True
    after = lead + 3
    after = after[after < len(raw)]
    begin[after[kind[after] == _WORD]] = True


def _between(begin: NDArray[np.bool_], end: NDArray[np.bool_]) -> ChunkBounds:
    start = np.flatnonzero(begin)
    return ChunkBounds(start, np.flatnonzero(end) + 1 - start)
