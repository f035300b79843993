"""Tokenizer folders in Hugging Face's layout: AutoTokenizer gives the same ids for those that cloze writes; cloze reads any.

cloze writes tokenizer.json (with a post-processor that adds the special tokens of the frame) and tokenizer_config.json.
Transformers 5 rebuilds BertTokenizer, RobertaTokenizer and GPT2Tokenizer from a few switches and ignores the rest of
tokenizer.json. So such a class is named only if it would rebuild the tokenizer exactly; otherwise the class is
PreTrainedTokenizerFast, which uses the file unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import tokenizers

from cloze.errors import CheckpointError, ClozeError, RecipeError
from cloze.text.apart import read_segmenter, write_segmenter
from cloze.text.joins import PHRASES, Joins, read_joins
from cloze.text.marian import MARIAN_FILES, read_marian
from cloze.text.old_layouts import OLD_FILES, read_json_object, read_old_layout, read_settings, unreadable, with_added
from cloze.text.roles import CONFIG_KEYS, LANGUAGE_ROLES, guess_literals
from cloze.text.segment import Segmenter
from cloze.text.switches import follow_switches

T = TypeVar("T", bound="Described")


class Described(Protocol):
    """What a folder records of a `cloze.text.Tokenizer`."""

    @property
    def kind(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def roles(self) -> Mapping[str, int]: ...
    @property
    def literals(self) -> Mapping[str, str]: ...
    @property
    def segmenter(self) -> Segmenter | None: ...
    @property
    def joins(self) -> Joins | None: ...
    @property
    def targets(self) -> Any: ...
    def role(self, name: str) -> int: ...
    def with_targets(self, targets: Any) -> Any: ...


BERT_LIKE = ("BertTokenizer", "ElectraTokenizer")
FILE_AS_IT_IS = "PreTrainedTokenizerFast"
_USUAL = {"wordpiece": "BertTokenizer", "byte_bpe": "RobertaTokenizer", "bpe": "OpenAIGPTTokenizer"}
_OUR_ROLES = "cloze_roles"  # roles without a name in Hugging Face's files
_BERT_FRAMES = ("[CLS] {A} [SEP]", "[CLS] {A} [SEP] {B} [SEP]")
_BEGINS, _ENDS = ("[BOS]", "[CLS]", "[EOS]", "[SEP]"), ("[EOS]", "[SEP]", "[BOS]", "[CLS]")
_ROBERTA_FRAMES = ("[CLS] {A} [SEP]", "[CLS] {A} [SEP] [SEP] {B} [SEP]")


def write_folder(
    tokenizer: Described,
    folder: Path,
    length: int,
    frame_single: str,
    frame_pair: str | None,
    tokenizer_class: str | None,
) -> None:
    """Write tokenizer.json and tokenizer_config.json, segmenter.json if a segmenter cuts words, phrases.tsv if it
    has phrases.

    `length` is the maximum number of tokens; frames are templates of roles, `{A}` and `{B}`. `tokenizer_class` is the class to
    name if it rebuilds this tokenizer exactly; by default the class follows from the kind.
    """
    class_name = tokenizer_class or _USUAL.get(tokenizer.kind)
    data = json.loads(tokenizer.description)
    segments = class_name in BERT_LIKE
    data["post_processor"] = _post_processor(tokenizer, frame_single, frame_pair, segments)
    name = class_name if class_name and _rebuilds(class_name, tokenizer, data, frame_single, frame_pair) else FILE_AS_IT_IS
    config: dict[str, Any] = {
        "tokenizer_class": name,
        "model_max_length": length,
        "clean_up_tokenization_spaces": False,
        **{CONFIG_KEYS[role]: _token(data, literal) for role, literal in tokenizer.literals.items() if role in CONFIG_KEYS},
    }
    ours = {role: literal for role, literal in tokenizer.literals.items() if role not in CONFIG_KEYS}
    if ours:
        config[_OUR_ROLES] = ours
    normaliser = data.get("normalizer") or {}
    if name in BERT_LIKE:
        config["do_lower_case"] = normaliser["lowercase"]
        config["strip_accents"] = normaliser["strip_accents"]
        config["tokenize_chinese_chars"] = normaliser["handle_chinese_chars"]
    elif tokenizer.kind == "byte_bpe":
        config["add_prefix_space"] = _prefix_space(data)
    if not segments:
        config["model_input_names"] = ["input_ids", "attention_mask"]
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "tokenizer.json", data)
    if tokenizer.targets is not tokenizer:
        _write_json(folder / TARGETS, json.loads(tokenizer.targets.description))
    _write_json(folder / "tokenizer_config.json", config)
    if tokenizer.segmenter is not None:
        write_segmenter(tokenizer.segmenter, folder)
    if tokenizer.joins is not None:
        tokenizer.joins.write(folder)


#: cloze's own: the tokenizer of what is written for a text, if it is another.
TARGETS = "target_tokenizer.json"
#: Every file from which a tokenizer is read.
_FILES = (
    "tokenizer.json", "tokenizer_config.json", *OLD_FILES, *MARIAN_FILES, "segmenter.json", "segmenter.txt", PHRASES, TARGETS,
)  # fmt: skip
_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
_in_use: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()


def read_folder(folder: Path, make: Callable[[str, Mapping[str, str], Segmenter | None, Joins | None], T]) -> T:
    """The tokenizer of a folder, from its description, literals, segmenter and phrases: tokenizer.json, else an old layout (see
    `old_layouts`). A tokenizer of the same unchanged files that is in use is shared, because tokenizers never
    change.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; expected a folder with tokenizer.json or vocab.txt.")
    stats = [path.stat() for name in _FILES if (path := folder / name).exists()]
    key = (folder.resolve(), make, *((stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats))
    tokenizer: T | None = _in_use.get(key)
    if tokenizer is None:
        tokenizer = _in_use[key] = _read(folder, make)
    return tokenizer


def _read(folder: Path, make: Callable[[str, Mapping[str, str], Segmenter | None, Joins | None], T]) -> T:
    settings, targets = read_settings(folder), read_json_object(folder / TARGETS)
    if (folder / "tokenizer.json").is_file():
        data = _whole(folder, settings)
    elif all((folder / name).is_file() for name in MARIAN_FILES):
        data, targets = read_marian(folder, settings)
    elif (old := read_old_layout(folder, settings)) is not None:
        data, usual = old
        settings = {**{CONFIG_KEYS[role]: literal for role, literal in usual.items() if role in CONFIG_KEYS}, **settings}
    else:
        raise CheckpointError(
            f"{folder}: no tokenizer here; expected tokenizer.json, vocab.txt, vocab.json and merges.txt, or a model of "
            "sentencepiece such as spiece.model."
        )
    if _asks_jieba(folder, settings):
        data = _for_jieba(folder / ("tokenizer.json" if (folder / "tokenizer.json").is_file() else "vocab.txt"), data)
    try:
        literals = _literals(data, settings)
        tokenizer = _make_or_share(make, json.dumps(data), literals, read_segmenter(folder), read_joins(folder))
        return tokenizer.with_targets(make(json.dumps(targets), literals, None, None)) if targets else tokenizer
    except ClozeError:
        raise
    except Exception as problem:  # `tokenizers` raises bare Exception for a damaged file
        raise unreadable(folder / "tokenizer.json", problem) from None


def _make_or_share(
    make: Callable[[str, Mapping[str, str], Segmenter | None, Joins | None], T], data: str, literals: Mapping[str, str],
    segmenter: Segmenter | None, joins: Joins | None,
) -> T:
    """A tokenizer; one of the same contents that is in use, such as that of another checkpoint of the run, is shared."""
    if segmenter is not None or joins is not None:
        return make(data, literals, segmenter, joins)
    key = (make, data, *sorted(literals.items()))
    tokenizer: T | None = _in_use.get(key)
    if tokenizer is None:
        tokenizer = _in_use[key] = make(data, literals, None, None)
    return tokenizer


def _whole(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The tokenizer.json of a folder, with the switches of tokenizer_config.json and tokens that a user added after it was
    written."""
    data = read_json_object(folder / "tokenizer.json")
    try:
        return with_added(folder, follow_switches(folder, data, settings), settings)
    except ClozeError:
        raise
    except Exception as problem:  # a damaged file, in one of many ways
        raise unreadable(folder / "tokenizer.json", problem) from None


def frame_parts(tokenizer: Described, frame: str) -> list[str]:
    """The parts of a frame in order: roles, `{A}` and `{B}`. Anything else is a `RecipeError`."""
    parts = frame.split()
    for part in parts:
        if part not in ("{A}", "{B}"):
            if not (part.startswith("[") and part.endswith("]")):
                raise RecipeError(
                    f"reading: {part!r} in the frame {frame!r} is neither a role nor {{A}} or {{B}}; "
                    "a saved tokenizer can only add special tokens around a text."
                )
            tokenizer.role(part)
    return parts


def saved_frame(tokenizer: Described, folder: Path) -> str:
    """The frame that transformers' tokenizer of a folder that cloze did not write puts around one text, as a template of roles.

    tokenizer_config.json decides where it says `add_bos_token` or `add_eos_token`, else the post-processor of tokenizer.json. Its
    special tokens need roles: any other is a `CheckpointError`.
    """
    config, file = read_json_object(folder / "tokenizer_config.json"), folder / "tokenizer.json"
    switches = {"[BOS]": config.get("add_bos_token"), "[EOS]": config.get("add_eos_token")}
    if any(isinstance(switch, bool) for switch in switches.values()):
        begin, end = ([role] if switch and role in tokenizer.roles else [] for role, switch in switches.items())
        return " ".join([*begin, "{A}", *end])
    post_processor = read_json_object(file).get("post_processor")
    if not post_processor:
        return "{A}"
    engine = tokenizers.Tokenizer.from_file(str(file))
    text, framed = (engine.encode(".", add_special_tokens=special).ids for special in (False, True))
    first = next((start for start in range(len(framed)) if framed[start : start + len(text)] == text), 0)
    roles = [
        [next((role for role in kinds if tokenizer.roles.get(role) == number), None) for number in numbers]
        for numbers, kinds in ((framed[:first], _BEGINS), (framed[first + len(text) :], _ENDS))
    ]
    if None in [*roles[0], *roles[1]]:
        raise CheckpointError(
            f"{file}: the post-processor puts {', '.join(map(str, framed[:first] + framed[first + len(text) :]))} around a text; "
            "expected ids of the tokens that tokenizer_config.json names, such as bos_token. Copy the folder again."
        )
    return " ".join([*map(str, roles[0]), "{A}", *map(str, roles[1])])


def _post_processor(tokenizer: Described, single: str, pair: str | None, segments: bool) -> dict[str, Any]:
    """TemplateProcessing for the frames. With segments, tokens before `{B}` have type 0, the rest type 1."""
    used: dict[str, Any] = {}

    def template(frame: str) -> list[dict[str, Any]]:
        pieces: list[dict[str, Any]] = []
        kind = 0
        for part in frame_parts(tokenizer, frame):
            if part == "{B}" and segments:
                kind = 1
            if part in ("{A}", "{B}"):
                pieces.append({"Sequence": {"id": part[1], "type_id": kind}})
            else:
                literal = tokenizer.literals[part]
                used[literal] = {"id": literal, "ids": [tokenizer.role(part)], "tokens": [literal]}
                pieces.append({"SpecialToken": {"id": literal, "type_id": kind}})
        return pieces

    single_template = template(single)
    pair_template = template(pair) if pair else [*single_template, {"Sequence": {"id": "B", "type_id": 0}}]
    return {"type": "TemplateProcessing", "single": single_template, "pair": pair_template, "special_tokens": used}


def _rebuilds(name: str, tokenizer: Described, data: Mapping[str, Any], single: str, pair: str | None) -> bool:
    """Whether transformers' class of that name, rebuilt from its switches, equals this tokenizer."""
    normaliser = data.get("normalizer") or {}
    before = data.get("pre_tokenizer") or {}
    if name in BERT_LIKE:
        return (
            tokenizer.kind == "wordpiece"
            and normaliser.get("type") == "BertNormalizer"
            and bool(normaliser.get("clean_text"))
            and before.get("type") == "BertPreTokenizer"
            and _same_frames((single, pair), _BERT_FRAMES)
        )
    plain = tokenizer.kind == "byte_bpe" and not normaliser and before.get("type") == "ByteLevel"
    if name == "OpenAIGPTTokenizer":
        return _is_gpt(tokenizer, data) and single.strip() == "{A}" and pair is None
    if name == "RobertaTokenizer":
        return plain and _same_frames((single, pair), _ROBERTA_FRAMES)
    return name == "GPT2Tokenizer" and plain and single.strip() == "{A}" and pair is None


def _is_gpt(tokenizer: Described, data: Mapping[str, Any]) -> bool:
    """Whether it is BPE with BERT's cuts and lower-casing, as `OpenAIGPTTokenizer` always is."""
    normaliser = data.get("normalizer") or {}
    usual = normaliser.get("type") == "BertNormalizer" and normaliser.get("strip_accents") in (None, True)
    switches = all(normaliser.get(switch) for switch in ("clean_text", "handle_chinese_chars", "lowercase"))
    cuts = (data.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
    return tokenizer.kind == "bpe" and usual and switches and cuts and data["model"].get("end_of_word_suffix") == "</w>"


def _same_frames(frames: tuple[str, str | None], fixed: tuple[str, str]) -> bool:
    return frames[0].split() == fixed[0].split() and (frames[1] is None or frames[1].split() == fixed[1].split())


def _token(data: Mapping[str, Any], literal: str) -> str | dict[str, Any]:
    """A special token as tokenizer_config.json writes it: plain, or with its switches if one is on."""
    for token in data["added_tokens"]:
        if token["content"] == literal and (token["lstrip"] or token["rstrip"]):
            return {"__type": "AddedToken", **{key: value for key, value in token.items() if key != "id"}}
    return literal


def _prefix_space(data: Mapping[str, Any]) -> bool:
    before = data.get("pre_tokenizer") or {}
    return bool(before.get("add_prefix_space", False))


def _literals(data: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, str]:
    """role → literal, from the configuration, or else guessed from literals in the vocabulary."""
    vocabulary = data["model"]["vocab"]
    pieces = {p[0] if isinstance(p, list) else p for p in vocabulary} | {t["content"] for t in data["added_tokens"]}
    special = {token["content"] for token in data["added_tokens"]}
    literals: dict[str, str] = {}
    for role, key in CONFIG_KEYS.items():
        value = config.get(key)
        literal = value.get("content") if isinstance(value, dict) else value
        if role in LANGUAGE_ROLES:
            literal = language_token(literal, special)
        if isinstance(literal, str) and literal in pieces:
            literals[role] = literal
    ours = config.get(_OUR_ROLES)
    our_literals = ours if isinstance(ours, dict) else {"[EOD]": "<eod>", "[EOP]": "<eop>"}
    literals.update({role: literal for role, literal in our_literals.items() if literal in special})
    guessed = guess_literals(pieces)
    if not literals.keys() - set(LANGUAGE_ROLES):
        return {**guessed, **literals}
    # GPT-2's own files name three roles; its only literal also serves as padding.
    if len(set(literals.values())) == 1:
        return {**guessed, **literals}
    # Llama's files name nothing to pad with; rows are padded with a token that no text has.
    spare = literals.get("[EOS]", literals.get("[UNK]"))
    return literals if spare is None or "[PAD]" in literals else {**literals, "[PAD]": spare}


def _asks_jieba(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether transformers would cut Chinese words with jieba: RoFormer's tokenizer, by default that of a RoFormer."""
    name = config.get("tokenizer_class")
    return name in ("RoFormerTokenizer", "RoFormerTokenizerFast") or (
        name is None and read_json_object(folder / "config.json").get("model_type") == "roformer"
    )


def _for_jieba(path: Path, data: dict[str, Any]) -> dict[str, Any]:
    """RoFormer's tokenizer for a vocabulary in which every Chinese piece is one ideograph, so that words do not matter: what is
    no Latin letter or digit stands alone, whatever tokenizer.json says.

    Differs: words with signs in jieba's dictionary, such as c++, are cut at the signs.
    """
    words = [piece for piece in data["model"]["vocab"] if len(piece.removeprefix("##")) > 1 and _IDEOGRAPH.search(piece)]
    if words:
        raise CheckpointError(
            f"{path}: {len(words):,} pieces are Chinese words, such as {words[0]!r}. transformers' RoFormerTokenizer finds words "
            "with rjieba, which cloze does not, so its ids would differ.\n"
            "  Use a RoFormer of characters, whose Chinese pieces are single ideographs."
        )
    alone = {"type": "Split", "pattern": {"Regex": r"[a-zA-Z0-9]+|[^\sa-zA-Z0-9]"}, "behavior": "Isolated", "invert": False}
    return {**data, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, alone]}}


def language_token(language: Any, tokens: Container[str]) -> str | None:
    """The token of a language that is called `fr_XX`, or `fr` where tokens are `__fr__` (M2M-100); None if there is none."""
    return next((token for token in (language, f"__{language}__") if token in tokens), None)


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    """One line per key. `json` indents in Python, which takes half a second for a vocabulary of 30,000 pieces."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in data.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
