"""Tokenizers of folders without tokenizer.json: BERT's list of pieces, lists with merges, models of sentencepiece, added tokens.

What these files mean depends on the class of transformers that wrote them. tokenizer_config.json or config.json names it; else it
is that of the `model_type`. A class that cuts texts in a way of its own is refused.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from cloze.errors import CheckpointError, ClozeError
from cloze.text.roles import CONFIG_KEYS, ESM_LITERALS, XLM_LITERALS, guess_literals
from cloze.text.sentencepiece import CLASS_OF, FAMILIES, FILES, describe
from cloze.untrusted import parse_json, read_small

#: The tokens that a user added to the vocabulary, with their ids.
ADDED = "added_tokens.json"
WORD_LIST, PIECES, MERGES, SPECIAL_MAP = "vocab.txt", "vocab.json", "merges.txt", "special_tokens_map.json"
#: Every file of these layouts, and config.json for the kind of network.
OLD_FILES = (SPECIAL_MAP, ADDED, WORD_LIST, PIECES, MERGES, "config.json", *FILES)
#: Classes whose vocab.txt is BERT's. Others have such a file too, and cut words with a program of their own.
_WORD_LISTS = (
    "BertTokenizer", "ElectraTokenizer", "DistilBertTokenizer", "MobileBertTokenizer", "LxmertTokenizer", "ConvBertTokenizer",
    "SqueezeBertTokenizer", "MPNetTokenizer", "ErnieTokenizer", "NezhaTokenizer", "LayoutLMTokenizer", "FunnelTokenizer",
    "DPRContextEncoderTokenizer", "DPRQuestionEncoderTokenizer", "DPRReaderTokenizer", "RetriBertTokenizer", "RealmTokenizer",
    "SplinterTokenizer", "RoFormerTokenizer", "EsmTokenizer",
)  # fmt: skip
_BYTE_LEVEL = (
    "GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer", "MvpTokenizer",
    "DebertaTokenizer", "CodeGenTokenizer", "BlenderbotTokenizer",
)  # fmt: skip


class _WordMerges(NamedTuple):
    """A class of BPE whose pieces end a word in `</w>`: whether it lower-cases and strips accents, the switch for that in
    tokenizer_config.json, and whether it cuts words by the rules of Moses."""

    lowers: bool
    strips: bool
    switch: str = ""
    by_moses: bool = False


_GPT = _WordMerges(lowers=True, strips=True)
_WORD_MERGES: Mapping[str, _WordMerges] = {
    "OpenAIGPTTokenizer": _GPT,
    "XLMTokenizer": _WordMerges(True, True, "do_lowercase_and_remove_accent", by_moses=True),
    "FlaubertTokenizer": _WordMerges(False, False, "do_lowercase", by_moses=True),
    "HerbertTokenizer": _WordMerges(False, False),
}
_WORD_MERGES_OF = {"openai-gpt": "OpenAIGPTTokenizer", "xlm": "XLMTokenizer", "flaubert": "FlaubertTokenizer"}


def read_old_layout(folder: Path, settings: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, str]] | None:
    """The tokenizer.json of a folder that has none, and the literals of roles that its class has unless `settings` (see
    `read_settings`) says otherwise, also such as the vocabulary lacks; None if the folder has no file of a tokenizer."""
    name = class_of(folder, settings)
    family = FAMILIES.get(name)
    usual = XLM_LITERALS if name in _WORD_MERGES and _WORD_MERGES[name].by_moses else None
    if family is not None and (folder / family.file).is_file():
        data = _built(folder / family.file, lambda: describe(folder / family.file, family, settings))
        usual = family.literals
    elif (folder / WORD_LIST).is_file():
        _require(name in ("", *FAMILIES, *_WORD_LISTS), folder / WORD_LIST, name)
        data = _built(folder / WORD_LIST, lambda: _from_word_list(folder / WORD_LIST, settings))
    elif (folder / PIECES).is_file() and (folder / MERGES).is_file():
        data = _built(folder / PIECES, lambda: _from_merges(folder, name, settings))
    else:
        for file in sorted((*folder.glob("*.model"), *folder.glob("*.spm"))):
            _require(False, file, name)
        return None
    data = with_added(folder, data, settings)
    return data, guess_literals(data["model"]["vocab"]) if usual is None else usual


def read_settings(folder: Path) -> dict[str, Any]:
    """What tokenizer_config.json and special_tokens_map.json say; the latter is followed if tokens were not saved with their ids,
    as in transformers."""
    config, special = read_json_object(folder / "tokenizer_config.json"), read_json_object(folder / SPECIAL_MAP)
    return {**special, **config} if "added_tokens_decoder" in config else {**config, **special}


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON object; empty if there is no such file."""
    if not path.is_file():
        return {}
    try:
        data = parse_json(read_small(path))
    except ValueError as problem:
        raise CheckpointError(f"{path}: not valid JSON ({problem}); the file is damaged or was copied only in part.") from None
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {type(data).__name__}.")
    return data


def unreadable(path: Path, problem: Exception) -> CheckpointError:
    """The error for a damaged file of a tokenizer."""
    return CheckpointError(f"{path}: cannot be read as a tokenizer ({problem}); copy it again.")


def with_added(folder: Path, data: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The description with the tokens that a user added and that it lacks: those of `added_tokens_decoder`, or of
    added_tokens.json."""
    source = folder / ("tokenizer_config.json" if isinstance(settings.get("added_tokens_decoder"), dict) else ADDED)
    contents = settings if source.name != ADDED else read_json_object(source)
    try:
        added = _added_tokens(contents, settings.get("additional_special_tokens") or ())
    except (AttributeError, KeyError, TypeError, ValueError) as problem:  # damaged in one of many ways
        raise unreadable(source, problem) from None
    if not added:
        return data
    vocabulary, here = data["model"]["vocab"], data.get("added_tokens") or []
    as_mapping = isinstance(vocabulary, Mapping)
    pieces = {*(vocabulary if as_mapping else (piece for piece, _ in vocabulary)), *(token["content"] for token in here)}
    ids = [*(vocabulary.values() if as_mapping else range(len(vocabulary))), *(token["id"] for token in here)]
    tokens: list[dict[str, Any]] = []
    for id, token in added:
        if token["content"] in pieces:
            continue
        expected = 1 + max(ids, default=-1) + len(tokens)
        if id != expected:
            raise CheckpointError(
                f"{source}: the added token {token['content']!r} has the id {id}; expected {expected}, the next one.\n"
                "  Save the tokenizer again in the present layout: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
            )
        tokens.append({**token, "id": id})
    return {**data, "added_tokens": [*here, *tokens]}


def class_of(folder: Path, settings: Mapping[str, Any], further: Mapping[str, str] | None = None) -> str:
    """The class of transformers that reads these files, without `Fast`; empty if no file says so. `further`: classes by
    `model_type`, besides those of sentencepiece and of pieces that end a word in `</w>`."""
    config = read_json_object(folder / "config.json")
    name = settings.get("tokenizer_class") or config.get("tokenizer_class")
    if isinstance(name, str):
        return name.removesuffix("Fast")
    kind = str(config.get("model_type", ""))
    return {**(further or {}), **CLASS_OF, **_WORD_MERGES_OF}.get(kind, "")


def _require(is_read: bool, file: Path, name: str) -> None:
    if is_read:
        return
    of_sentencepiece = [cls for cls, family in FAMILIES.items() if family.file == file.name]
    readable = of_sentencepiece or {WORD_LIST: _WORD_LISTS[:1], PIECES: (*_BYTE_LEVEL[:2], *_WORD_MERGES)}.get(file.name, ())
    says = f"belongs to {name}, which cloze does not read" if name else "may belong to several classes of tokenizers"
    other_way = f", or tokenizer_class {' or '.join(readable)} in tokenizer_config.json" if readable else ""
    raise CheckpointError(
        f"{file}: {says}; expected tokenizer.json{other_way}.\n"
        "  Let transformers write tokenizer.json: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
    )


def _built(path: Path, build: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The description of a tokenizer that is built from the file of its vocabulary."""
    try:
        return build()
    except ClozeError:
        raise
    except Exception as problem:  # `tokenizers` raises bare Exception for a damaged file
        raise unreadable(path, problem) from None


def _special_tokens(literals: Iterable[str], settings: Mapping[str, Any], vocabulary: Iterable[str]) -> list[AddedToken]:
    """Special tokens that the vocabulary has, with their switches: those of `literals`, and those that the folder names."""
    by_content = {}
    for value in (settings.get(key) for key in CONFIG_KEYS.values()):
        content = value.get("content") if isinstance(value, Mapping) else value
        if isinstance(content, str):
            by_content[content] = value if isinstance(value, Mapping) else {}
    # The mask of RoBERTa takes the space before it, so that what is predicted for it may begin with one.
    switches = {"<mask>": {"lstrip": True}} | {content: value for content, value in by_content.items() if value}
    pieces = set(vocabulary)
    return [
        AddedToken(
            literal, normalized=False, special=True,
            **{name: bool(switches.get(literal, {}).get(name, False)) for name in ("lstrip", "rstrip", "single_word")},
        )
        for literal in dict.fromkeys([*literals, *by_content]) if literal in pieces
    ]  # fmt: skip


def _from_word_list(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """BERT's first layout: one piece per line, the line number is the id; lower-casing by default."""
    with path.open(encoding="utf-8") as lines:  # str.splitlines also cuts at U+2028, which is a piece of Chinese vocabularies
        pieces = {line.removesuffix("\n"): number for number, line in enumerate(lines)}
    if pieces.keys() >= set(ESM_LITERALS.values()):
        return _from_letters(pieces)
    if "do_lower_case" not in settings and (cased := [piece for piece in pieces if _is_cased(piece)]):
        warnings.warn(
            f"{path}: pieces have capitals ({', '.join(cased[:3])}), but texts are lower-cased, because tokenizer_config.json "
            'does not say otherwise. For a cased model, write {"do_lower_case": false} into that file.',
            stacklevel=1,
        )
    unknown = settings.get("unk_token", "[UNK]")
    built = tokenizers.Tokenizer(
        models.WordPiece(pieces, unk_token=unknown["content"] if isinstance(unknown, Mapping) else unknown)
    )
    built.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        strip_accents=settings.get("strip_accents"),
        lowercase=bool(settings.get("do_lower_case", True)),
    )
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.decoder = decoders.WordPiece(prefix="##")
    built.add_special_tokens(_special_tokens(guess_literals(pieces).values(), settings, pieces))
    return dict(json.loads(built.to_str()))


def _from_letters(pieces: Mapping[str, int]) -> dict[str, Any]:
    """ESM's layout: every letter of a protein is a piece; a run of other characters is one unknown piece."""
    special = list(ESM_LITERALS.values())
    letters = sorted((piece for piece in pieces if piece and piece not in special), key=len, reverse=True)
    built = tokenizers.Tokenizer(models.WordLevel(dict(pieces), unk_token=ESM_LITERALS["[UNK]"]))
    cut = pre_tokenizers.Split(tokenizers.Regex("|".join(map(re.escape, letters))), "isolated")
    built.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), cut])
    built.add_special_tokens(special)
    return dict(json.loads(built.to_str()))


def _is_cased(piece: str) -> bool:
    """Whether a piece has a capital, and is not a special token such as `[CLS]`."""
    return piece != piece.lower() and piece.isalpha()


def _from_merges(folder: Path, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """GPT-2's and RoBERTa's first layout: vocab.json with merges.txt."""
    built = tokenizers.Tokenizer(models.BPE.from_file(str(folder / PIECES), str(folder / MERGES)))
    vocabulary = built.get_vocab()
    if any(piece.endswith("</w>") for piece in vocabulary):
        _require(name in ("", *_WORD_MERGES), folder / PIECES, name)
        return _from_word_merges(folder, name or "OpenAIGPTTokenizer", settings)
    _require(name in ("", *_BYTE_LEVEL, *_WORD_MERGES_OF.values()), folder / PIECES, name)
    spaced = settings.get("add_prefix_space", name == "BlenderbotTokenizer")
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(spaced))
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens(_special_tokens(guess_literals(vocabulary).values(), settings, vocabulary))
    return dict(json.loads(built.to_str()))


def _from_word_merges(folder: Path, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """GPT's and XLM's first layout: pieces that end a word end in `</w>`.

    Differs: XLM and FlauBERT cut words with Moses; here BERT's cuts stand for it, which a warning says.
    """
    rules = _WORD_MERGES[name]
    lowers = bool(settings.get(rules.switch, rules.lowers))
    if rules.by_moses:
        warnings.warn(
            f"{folder / PIECES}: {name} cuts texts into words by the rules of Moses, and cloze by those of BERT, so words with "
            "apostrophes, abbreviations and numbers get other ids. Set words apart by spaces as Moses does, or train further.",
            stacklevel=1,
        )
    files = str(folder / PIECES), str(folder / MERGES)
    unknown = str(settings.get("unk_token", "<unk>"))
    built = tokenizers.Tokenizer(models.BPE.from_file(*files, unk_token=unknown, end_of_word_suffix="</w>"))
    built.normalizer = normalizers.BertNormalizer(lowercase=lowers, strip_accents=lowers and rules.strips)
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.decoder = decoders.BPEDecoder(suffix="</w>")
    vocabulary = built.get_vocab()
    literals = dict.fromkeys([*guess_literals(vocabulary).values(), *XLM_LITERALS.values()])
    built.add_special_tokens(_special_tokens(literals, settings, vocabulary))
    return dict(json.loads(built.to_str()))


def _added_tokens(contents: Mapping[str, Any], special: Iterable[Any]) -> list[tuple[int, dict[str, Any]]]:
    """The added tokens in the order of their ids, from the contents of tokenizer_config.json or added_tokens.json. `special`: the
    special ones of the latter, which says nothing but their ids."""
    decoder = contents.get("added_tokens_decoder")
    if decoder is None:
        marked = {token["content"] if isinstance(token, dict) else token for token in special}
        decoder = {
            id: {"content": token, "normalized": token not in marked, "special": token in marked}
            for token, id in contents.items()
        }
    switches = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    added = [
        (int(id), {"content": str(token["content"]), **{name: bool(token.get(name, switches[name])) for name in switches}})
        for id, token in decoder.items()
    ]
    return sorted(added, key=lambda item: item[0])
