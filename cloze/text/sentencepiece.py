"""Tokenizers that are still files of sentencepiece: the file is read, and its model becomes a description for `tokenizers`.

A file is a `ModelProto` of google/sentencepiece (`src/sentencepiece_model.proto`): its pieces with scores, the kind of the model,
and the table by which texts are normalised. To add a layout: a line in `LAYOUTS`.
"""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from cloze.errors import CheckpointError
from cloze.text.roles import HIDDEN
from cloze.untrusted import parse_json, read_small, require_ordinary

Description = dict[str, Any]  # tokenizer.json as a mapping

#: The files from which tokenizers are read; `LAYOUTS` has the others.
MARIAN_FILES = ("source.spm", "target.spm", "vocab.json")

NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5  # types of pieces
UNIGRAM = 1  # the kind of model
_SPACE = "▁"
_STAND_IN = "\ue001"  # of Unicode's private use, as `HIDDEN`


class Piece(NamedTuple):
    """A piece, its score, and its type."""

    text: str
    score: float
    type: int


class SentencePieceModel(NamedTuple):
    """What a file says: pieces in the order of their ids, the kind of the model, the table that normalises, and whether a text
    gets a space in front and loses repeated ones."""

    pieces: Sequence[Piece]
    kind: int
    charsmap: bytes
    usual_spaces: bool


def read_model(path: Path) -> SentencePieceModel:
    """The model in a file; a `CheckpointError` if it is damaged."""
    try:
        require_ordinary(path)
        data = path.read_bytes()
        fields = [(number, value) for number, value in _fields(data) if isinstance(value, bytes)]
        pieces = [_piece(value) for number, value in fields if number == 1]
        trainer = dict(_fields(next((value for number, value in fields if number == 2), b"")))
        normaliser = dict(_fields(next((value for number, value in fields if number == 3), b"")))
    except (OSError, ValueError, IndexError, struct.error, UnicodeDecodeError) as problem:
        raise CheckpointError(f"{path}: cannot be read as a model of sentencepiece ({problem}); copy it again.") from None
    if not pieces:
        raise CheckpointError(f"{path}: cannot be read as a model of sentencepiece (no pieces); copy it again.")
    charsmap = normaliser.get(2, b"")
    usual = all(normaliser.get(key, 1) == 1 for key in (3, 4, 5)) and not trainer.get(24, 0)
    return SentencePieceModel(pieces, int(trainer.get(3, UNIGRAM)), bytes(charsmap) if charsmap else b"", usual)


def _piece(message: bytes) -> Piece:
    values = dict(_fields(message))
    score = struct.unpack("<f", values[2])[0] if 2 in values else 0.0
    return Piece(values.get(1, b"").decode(), score, values.get(3, NORMAL))


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The number and the value of each field of a message of Protocol Buffers: an integer, or bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        size, at = (8, at) if wire == 1 else (4, at) if wire == 5 else _varint(message, at)
        if wire not in (1, 2, 5) or at + size > len(message):
            raise ValueError("a field ends behind the file")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """An integer of seven bits a byte, and where the next field begins."""
    value = shift = 0
    while shift < 70:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    raise ValueError("an integer of more than ten bytes")


def unigram(
    model: SentencePieceModel, path: Path, vocabulary: Sequence[tuple[str, float]], *, unknown: int, special: Sequence[str],
    hidden: str = "",
) -> Description:
    """The description of a Unigram model whose pieces have the ids of `vocabulary`.

    Texts are normalised as sentencepiece does with its usual switches; a `CheckpointError` if the file has others. `special` are
    its special tokens. `hidden` stands before pieces that no text is cut into; texts never hold it, and decoding leaves it out.
    """
    if model.kind != UNIGRAM or not model.usual_spaces:
        raise CheckpointError(
            f"{path}: a model of sentencepiece of another kind; cloze reads those of the kind unigram that treat spaces as "
            "usual.\n  Use a checkpoint with such a file."
        )
    built = tokenizers.Tokenizer(models.Unigram(list(vocabulary), unk_id=unknown, byte_fallback=False))
    steps = [
        *([normalizers.Replace(hidden, _STAND_IN)] if hidden else []),
        *([normalizers.Precompiled(model.charsmap)] if model.charsmap else []),
        normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), " "),
    ]  # fmt: skip
    built.normalizer = normalizers.Sequence(steps)
    built.pre_tokenizer = pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme="always")
    spaces = decoders.Metaspace(replacement=_SPACE, prepend_scheme="always")
    built.decoder = decoders.Sequence([decoders.Replace(hidden, ""), spaces]) if hidden else spaces
    built.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return dict(json.loads(built.to_str()))


def read_sentencepiece(folder: Path, config: Mapping[str, Any]) -> tuple[Description, Description] | None:
    """The tokenizers of what is read and what is written (empty: the same) in a folder that has only files of sentencepiece; None
    if cloze does not know their layout, which is that of the class in tokenizer_config.json, or else of the type in config.json.
    """
    if all((folder / name).is_file() for name in MARIAN_FILES):
        return marian(folder, config)
    name = str(config.get("tokenizer_class") or _type_of(folder)).removesuffix("Fast")
    layout = next((layout for layout in LAYOUTS if name in layout.names and (folder / layout.file).is_file()), None)
    return None if layout is None else (layout.read(folder / layout.file, config), {})


def _type_of(folder: Path) -> Any:
    path = folder / "config.json"
    try:
        return parse_json(read_small(path)).get("model_type")
    except (OSError, ValueError, AttributeError):  # whoever needs the file says what is wrong with it
        return None


def fairseq(languages: str) -> Callable[[Path, Mapping[str, Any]], Description]:
    """The layout of fairseq: four special tokens of its own in place of the first three pieces; behind the last one the tokens
    of `languages` and `<mask>`."""
    codes = languages.split()

    def read(path: Path, config: Mapping[str, Any]) -> Description:
        model = read_model(path)
        first = ("<s>", "<pad>", "</s>", "<unk>")
        special = (*first, *codes, "<mask>")
        plain = [(piece.text, piece.score) for piece in model.pieces[3:]]
        vocabulary = [*((token, 0.0) for token in first), *plain, *((token, 0.0) for token in (*codes, "<mask>"))]
        return unigram(model, path, vocabulary, unknown=3, special=special)

    return read


def pegasus(path: Path, config: Mapping[str, Any]) -> Description:
    """The layout of PEGASUS: all ids are moved by `offset` (103), for tokens of its pre-training (google-research/pegasus,
    `pretrain_parsing_ops.cc`): `<mask_1>`, `<mask_2>` and `<unk_2>`, `<unk_3>`, …"""
    model = read_model(path)
    offset = config.get("offset", 103)
    if not isinstance(offset, int) or not 2 <= offset <= 1000:
        raise CheckpointError(f"{path.parent}: offset is {offset!r}; expected a number from 2 to 1000. Copy the file again.")
    special = ["<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, offset))]
    plain = [(piece.text, piece.score) for piece in model.pieces[2:]]
    unknown = next((number for number, piece in enumerate(model.pieces) if piece.type == UNKNOWN), None)
    if unknown is None or unknown < 2:
        raise CheckpointError(f"{path}: its token of what is unknown is not behind <pad> and </s>: no file of PEGASUS.")
    least = min(score for _, score in plain)
    vocabulary = [*((token, least) for token in special), *plain]
    return unigram(model, path, vocabulary, unknown=len(special) + unknown - 2, special=[*special, model.pieces[unknown].text])


def marian(folder: Path, config: Mapping[str, Any]) -> tuple[Description, Description]:
    """The tokenizers of what is read and what is written, of Marian: source.spm and target.spm, with the ids of vocab.json.

    Both know all pieces, and each cuts texts into those of its own file alone. A tag such as `>>fra<<`, which tells a model of
    several languages what to write, is one token.

    As in transformers, a run of characters that a file lacks is a piece of the other one if that is spelled so. Differs: a piece
    without an id in vocab.json is never used, where transformers reads [UNK] (a warning says how many there are).
    """
    path = folder / "vocab.json"
    if config.get("separate_vocabs"):
        raise CheckpointError(f"{folder}: separate_vocabs is true; cloze's networks have one vocabulary for both texts.")
    try:
        ids = parse_json(read_small(path))
        pieces = sorted(ids, key=ids.__getitem__)
        if [ids[piece] for piece in pieces] != list(range(len(pieces))):
            raise ValueError("ids that are not 0, 1, 2, …")
    except (AttributeError, TypeError, ValueError) as problem:
        raise CheckpointError(f"{path}: cannot be read as a vocabulary ({problem}); copy it again.") from None
    unknown = config.get("unk_token", "<unk>")
    unknown = unknown.get("content") if isinstance(unknown, dict) else unknown
    if unknown not in ids:
        raise CheckpointError(f"{path}: has no {unknown!r}, the token of what is unknown. Copy it again.")
    special = [unknown, *(token for token in ("</s>", "<pad>") if token in ids)]
    tags = [piece for piece in pieces if piece.startswith(">>") and piece.endswith("<<")]
    descriptions = []
    for name in MARIAN_FILES[:2]:
        model = read_model(folder / name)
        scores = {piece.text: piece.score for piece in model.pieces if piece.type not in (UNKNOWN, CONTROL, UNUSED)}
        if lost := scores.keys() - ids.keys():
            warnings.warn(
                f"{folder / name}: {len(lost):,} of {len(scores):,} pieces have no id in vocab.json, such as {min(lost)!r}. "
                "transformers reads an unknown token there, cloze cuts such words into other pieces.",
                stacklevel=1,
            )
        least = min(scores[piece] for piece in scores.keys() & ids.keys())
        plain = {*special, *tags}
        listed = [
            (piece if piece in plain or piece in scores else HIDDEN + piece, scores.get(piece, least)) for piece in pieces
        ]
        descriptions.append(
            unigram(model, folder / name, listed, unknown=ids[unknown], special=[*special, *tags], hidden=HIDDEN)
        )
    return descriptions[0], descriptions[1]


_CC25 = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX ro_RO "
    "ru_RU si_LK tr_TR vi_VN zh_CN"
)
_ADDED_IN_50 = (
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN "
    "th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)


class Layout(NamedTuple):
    """How a file is read, and the classes and types that have it."""

    names: tuple[str, ...]
    file: str
    read: Callable[[Path, Mapping[str, Any]], Description]


LAYOUTS = (
    Layout(("MBartTokenizer", "mbart"), "sentencepiece.bpe.model", fairseq(_CC25)),
    Layout(("MBart50Tokenizer",), "sentencepiece.bpe.model", fairseq(f"{_CC25} {_ADDED_IN_50}")),
    Layout(("PegasusTokenizer", "pegasus"), "spiece.model", pegasus),
)
