"""Files of sentencepiece: the pieces of a unigram model, as the description of a tokenizer.

The file is a protocol buffer (google/sentencepiece, `sentencepiece_model.proto`): numbers and bytes, each after its key.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from cloze.untrusted import require_ordinary

#: Numbers of fields: pieces, training and normalisation of a model; the text, the score and the type of a piece.
_PIECES, _TRAINER, _NORMALISER, _TEXT, _SCORE, _TYPE = 1, 2, 3, 1, 2, 3
#: Of the training: the type of model. Of normalisation: the table of characters, and whether spaces are added and removed.
_MODEL, _TABLE, _PREFIX, _TRIM = 3, 2, 3, 4
_UNIGRAM, _UNKNOWN, _CONTROL, _OWN, _BYTE = 1, 2, 3, 4, 6


def from_pieces(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The description of DeBERTa's tokenizer, from the file of its pieces: normalised as sentencepiece does it, with [MASK]
    behind all pieces. `config` are the contents of tokenizer_config.json.

    Differs: transformers 5 leaves out the file's table of characters (full-width letters, ligatures) and only composes accents;
    sentencepiece, which the authors call, uses the table.

    Raises `ValueError` for a file that is no unigram model of sentencepiece.
    """
    require_ordinary(path)
    fields = list(_fields(path.read_bytes()))
    messages = {number: dict(_fields(value)) for number, value in fields if number in (_TRAINER, _NORMALISER)}
    kind = messages.get(_TRAINER, {}).get(_MODEL, _UNIGRAM)
    if kind != _UNIGRAM:
        raise ValueError(f"a sentencepiece model of type {kind}; expected a unigram model")
    pieces = [_piece(value) for number, value in fields if number == _PIECES]
    unknown = next((number for number, (_, _, kind) in enumerate(pieces) if kind == _UNKNOWN), None)
    built = tokenizers.Tokenizer(models.Unigram(
        [(text, score) for text, score, _ in pieces], unknown, any(kind == _BYTE for _, _, kind in pieces)
    ))  # fmt: skip
    rules = messages.get(_NORMALISER, {})
    steps: list[Any] = [normalizers.Lowercase()] if config.get("do_lower_case") else []
    if rules.get(_TABLE):
        steps.append(normalizers.Precompiled(rules[_TABLE]))
    if rules.get(_TRIM, 1):
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    built.normalizer = normalizers.Sequence(steps)
    scheme: Any = "always" if rules.get(_PREFIX, 1) else "never"
    before: list[Any] = [pre_tokenizers.Punctuation("isolated")] if config.get("split_by_punct") else []
    built.pre_tokenizer = pre_tokenizers.Sequence([*before, pre_tokenizers.Metaspace(prepend_scheme=scheme)])
    built.decoder = decoders.Metaspace(prepend_scheme=scheme)
    special = [text for text, _, kind in pieces if kind in (_UNKNOWN, _CONTROL)]
    built.add_special_tokens([AddedToken(text, normalized=False) for text in dict.fromkeys([*special, "[MASK]"])])
    built.add_tokens([AddedToken(text, normalized=False) for text, _, kind in pieces if kind == _OWN])
    return dict(json.loads(built.to_str()))


def _piece(message: bytes) -> tuple[str, float, int]:
    """The text of a piece, its score, and its type; 1 is an ordinary one."""
    fields = dict(_fields(message))
    score: float = struct.unpack("<f", fields.get(_SCORE, bytes(4)))[0]
    return fields[_TEXT].decode("utf-8"), score, fields.get(_TYPE, 1)


def _fields(message: Any) -> Iterator[tuple[int, Any]]:
    """The fields of a message in order: their numbers, and whole numbers, or bytes."""
    at = 0
    while at < len(message):
        key, at = _number(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _number(message, at)
            yield key >> 3, value
            continue
        if kind not in (1, 2, 5):
            raise ValueError("no file of sentencepiece")
        size, at = _number(message, at) if kind == 2 else (8 if kind == 1 else 4, at)
        if at + size > len(message):
            raise ValueError("the file ends in the middle of a piece")
        yield key >> 3, message[at : at + size]
        at += size


def _number(message: bytes, at: int) -> tuple[int, int]:
    """A whole number of seven bits per byte, the lowest first, and the place behind it."""
    number, shift = 0, 0
    while shift < 64:
        if at >= len(message):
            raise ValueError("the file ends in the middle of a piece")
        byte = message[at]
        at, number, shift = at + 1, number | (byte & 127) << shift, shift + 7
        if byte < 128:
            return number, at
    raise ValueError("no file of sentencepiece")
