"""The tokenizers of Marian's folders: source.spm for what is read, target.spm for what is written, with the ids of vocab.json.

Source: OPUS-MT (Tiedemann and Thottingal, 2020); transformers' `MarianTokenizer`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from cloze.errors import CheckpointError
from cloze.text.roles import HIDDEN
from cloze.text.sentencepiece import UNIGRAM, PieceModel, read_pieces
from cloze.untrusted import parse_json, read_small, require_ordinary

Description = dict[str, Any]  # tokenizer.json as a mapping

MARIAN_FILES = ("source.spm", "target.spm", "vocab.json")
_PLAIN = (1, 4)  # the types of pieces that texts are cut into: normal and defined by users
_STAND_IN = "\ue001"  # of Unicode's private use, as `HIDDEN`


def read_marian(folder: Path, settings: Mapping[str, Any]) -> tuple[Description, Description]:
    """The tokenizers of what is read and what is written. Both know all pieces, and each cuts texts into those of its own file
    alone. A tag such as `>>fra<<`, which tells a model of several languages what to write, is one token.

    As in transformers, a run of characters that a file lacks is a piece of the other one if that is spelled so. Differs: a piece
    without an id in vocab.json is never used, where transformers reads [UNK] (a warning says how many there are); a tag inside a
    text is one token, too.
    """
    path = folder / "vocab.json"
    if settings.get("separate_vocabs"):
        raise CheckpointError(f"{folder}: separate_vocabs is true; cloze's networks have one vocabulary for both texts.")
    try:
        ids = parse_json(read_small(path))
        pieces = sorted(ids, key=ids.__getitem__)
        if [ids[piece] for piece in pieces] != list(range(len(pieces))):
            raise ValueError("ids that are not 0, 1, 2, …")
    except (AttributeError, TypeError, ValueError) as problem:
        raise CheckpointError(f"{path}: cannot be read as a vocabulary ({problem}); copy it again.") from None
    unknown = settings.get("unk_token", "<unk>")
    unknown = unknown.get("content") if isinstance(unknown, dict) else unknown
    if unknown not in ids:
        raise CheckpointError(f"{path}: has no {unknown!r}, the token of what is unknown. Copy it again.")
    tags = [piece for piece in pieces if piece.startswith(">>") and piece.endswith("<<")]
    special = [unknown, *(token for token in ("</s>", "<pad>") if token in ids)]
    source, target = (_described(folder / name, ids, pieces, special, tags) for name in MARIAN_FILES[:2])
    return source, target


def _described(
    path: Path, ids: Mapping[str, int], pieces: list[str], special: list[str], tags: list[str]
) -> Description:
    """The tokenizer of a file whose pieces have these `ids`; those of the other file are hidden. The first of the `special`
    tokens is that of what is unknown."""
    model = _read(path)
    scores = {piece: score for (piece, score), kind in zip(model.pieces, model.types, strict=True) if kind in _PLAIN}
    if lost := scores.keys() - ids.keys():
        warnings.warn(
            f"{path}: {len(lost):,} of {len(scores):,} pieces have no id in vocab.json, such as {min(lost)!r}. "
            "transformers reads an unknown token there, cloze cuts such words into other pieces.",
            stacklevel=1,
        )
    least = min((scores[piece] for piece in scores.keys() & ids.keys()), default=0.0)
    plain = {*special, *tags, *scores}
    listed = [(piece if piece in plain else HIDDEN + piece, scores.get(piece, least)) for piece in pieces]
    built = tokenizers.Tokenizer(models.Unigram(listed, unk_id=ids[special[0]], byte_fallback=False))
    built.normalizer = normalizers.Sequence([
        normalizers.Replace(HIDDEN, _STAND_IN), *([normalizers.Precompiled(model.charsmap)] if model.charsmap else []),
        normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), " "),
    ])  # fmt: skip
    built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    built.decoder = decoders.Sequence([decoders.Replace(HIDDEN, ""), decoders.Metaspace(prepend_scheme="always")])
    built.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    built.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    return dict(json.loads(built.to_str()))


def _read(path: Path) -> PieceModel:
    """The model in a file; a `CheckpointError` if it is damaged or of another kind."""
    try:
        require_ordinary(path)
        model = read_pieces(path)
    except (OSError, ValueError, IndexError) as problem:
        raise CheckpointError(f"{path}: cannot be read as a model of sentencepiece ({problem}); copy it again.") from None
    if model.algorithm != UNIGRAM or model.odd:
        raise CheckpointError(
            f"{path}: its option {model.odd[0] if model.odd else 'model_type'} is not the usual one; cloze would cut texts in "
            "another way.\n  Use a checkpoint with a unigram model that treats spaces as usual."
        )
    return model
