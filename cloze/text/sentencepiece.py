"""Models of sentencepiece, such as `spiece.model`, as the tokenizers that classes of transformers make of them.

A file holds pieces with scores, their types, and a table of characters that are replaced first (Kudo and Richardson, 2018). It
does not say which special tokens a network has, nor what happens to a text before sentencepiece gets it: a `PieceFamily` does.
The families are those of transformers' `convert_slow_tokenizer.py`, whose tables most published tokenizer.json have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from cloze.errors import CheckpointError
from cloze.text.protobuf import Message
from cloze.text.roles import CONFIG_KEYS, ROBERTA_LITERALS

UNIGRAM = 1
_CONTROL = 3


@dataclass(frozen=True)
class PieceModel:
    """What a file of sentencepiece says: pieces with their scores, and their types, in the order of ids.

    `algorithm` is 1 for a unigram model and 2 for byte-pair merges; `charsmap` is the table of characters, which may be empty;
    `odd` names the options that no class of transformers obeys.
    """

    pieces: list[tuple[str, float]]
    types: list[int]
    algorithm: int
    unknown: int
    byte_fallback: bool
    charsmap: bytes
    odd: tuple[str, ...]


def read_pieces(path: Path) -> PieceModel:
    """Read a file of sentencepiece (`ModelProto` of its sentencepiece_model.proto); a `ValueError` if it is none."""
    model = Message(path.read_bytes())
    pieces = [Message(piece) for piece in model.each(1)]
    if not pieces:
        raise ValueError("it holds no pieces")
    trainer, normaliser = Message(model.data(2)), Message(model.data(3))
    usual = (
        ("treat_whitespace_as_suffix", trainer.whole(24, 0) == 0),
        ("add_dummy_prefix", normaliser.whole(3, 1) == 1),
        ("remove_extra_whitespaces", normaliser.whole(4, 1) == 1),
        ("escape_whitespaces", normaliser.whole(5, 1) == 1),
    )
    return PieceModel(
        pieces=[(piece.text(1), piece.real(2)) for piece in pieces],
        types=[piece.whole(3, 1) for piece in pieces],
        algorithm=trainer.whole(3, UNIGRAM),
        unknown=trainer.whole(40, 0),
        byte_fallback=bool(trainer.whole(35, 0)),
        charsmap=normaliser.data(2),
        odd=tuple(name for name, is_usual in usual if not is_usual),
    )


@dataclass(frozen=True)
class PieceFamily:
    """What a class of transformers adds to a file of sentencepiece.

    file: the name of the file.
    literals: how the special tokens are spelled, by role, unless the folder says otherwise.
    first: tokens that come before the pieces: roles, or spellings as they are. `dropped` pieces of the file give way to them.
    last: tokens that follow the pieces.
    sentinels: the sentinels that follow the pieces unless the folder says otherwise.
    special: further special tokens.
    switches: keys of tokenizer_config.json with the only value that is read.
    cleans: whether quotes, accents and capitals are changed first, and a comma never follows a digit inside a piece; `lowers`
      whether it lower-cases if the folder does not say.
    refused: switches of the folder that cloze does not obey.
    """

    file: str
    literals: Mapping[str, str]
    first: tuple[str, ...] = ()
    dropped: int = 0
    last: tuple[str, ...] = ()
    sentinels: int = 0
    cleans: bool = False
    lowers: bool = False
    special: tuple[str, ...] = field(default=())
    switches: Mapping[str, Any] = field(default_factory=dict)
    refused: tuple[str, ...] = field(default=())


_SPECIAL = {"[PAD]": "<pad>", "[UNK]": "<unk>"}
_BRACKETED = {role: role for role in ("[CLS]", "[SEP]", "[MASK]")}
_PEGASUS = ("<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, 103)))  # of its pre-training
_CC25 = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX ro_RO "
    "ru_RU si_LK tr_TR vi_VN zh_CN"
)
_CC50 = _CC25 + (
    " af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN "
    "th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
_FAIRSEQ = ("[BOS]", "[PAD]", "[EOS]", "[UNK]")
_XLNET = {"[CLS]": "<cls>", "[SEP]": "<sep>", "[MASK]": "<mask>", "[BOS]": "<s>", "[EOS]": "</s>"}
#: fairseq puts its own special tokens before the pieces, so every id of the file moves.
FAMILIES: Mapping[str, PieceFamily] = {
    "T5Tokenizer": PieceFamily("spiece.model", {**_SPECIAL, "[EOS]": "</s>"}, sentinels=100),
    "AlbertTokenizer": PieceFamily(
        "spiece.model", {**_SPECIAL, **_BRACKETED, "[BOS]": "[CLS]", "[EOS]": "[SEP]"}, cleans=True, lowers=True
    ),
    "DebertaV2Tokenizer": PieceFamily(
        "spm.model", {"[PAD]": "[PAD]", "[UNK]": "[UNK]", **_BRACKETED, "[BOS]": "[CLS]", "[EOS]": "[SEP]"}, last=("[MASK]",),
        refused=("do_lower_case", "split_by_punct"),
    ),
    "XLNetTokenizer": PieceFamily("spiece.model", {**_SPECIAL, **_XLNET}, cleans=True, special=("<eop>", "<eod>")),
    "XLMRobertaTokenizer": PieceFamily(
        "sentencepiece.bpe.model", ROBERTA_LITERALS, ("[BOS]", "[PAD]", "[EOS]", "[UNK]"), dropped=3, last=("[MASK]",)
    ),
    "MBartTokenizer": PieceFamily(
        "sentencepiece.bpe.model", ROBERTA_LITERALS, _FAIRSEQ, dropped=3, last=(*_CC25.split(), "[MASK]"),
        special=tuple(_CC25.split()),
    ),
    "MBart50Tokenizer": PieceFamily(
        "sentencepiece.bpe.model", ROBERTA_LITERALS, _FAIRSEQ, dropped=3, last=(*_CC50.split(), "[MASK]"),
        special=tuple(_CC50.split()),
    ),
    "PegasusTokenizer": PieceFamily(
        "spiece.model", {**_SPECIAL, "[EOS]": "</s>", "[MASK]": "<mask_2>"}, ("[PAD]", "[EOS]", *_PEGASUS), dropped=2,
        special=_PEGASUS, switches={"offset": 103},
    ),
    "CamembertTokenizer": PieceFamily(
        "sentencepiece.bpe.model", ROBERTA_LITERALS,
        ("<s>NOTUSED", "[PAD]", "</s>NOTUSED", "[UNK]", "<unk>NOTUSED"), dropped=1, last=("[MASK]",),
    ),
}  # fmt: skip
#: The class of a folder that names none, by the `model_type` of its config.json.
CLASS_OF: Mapping[str, str] = {
    "t5": "T5Tokenizer", "mt5": "T5Tokenizer", "umt5": "T5Tokenizer", "mbart": "MBartTokenizer", "pegasus": "PegasusTokenizer",
    "albert": "AlbertTokenizer", "deberta-v2": "DebertaV2Tokenizer", "xlnet": "XLNetTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer", "camembert": "CamembertTokenizer",
}  # fmt: skip
FILES = tuple(dict.fromkeys(family.file for family in FAMILIES.values()))


def describe(path: Path, family: PieceFamily, config: Mapping[str, Any]) -> dict[str, Any]:
    """The tokenizer.json of a file of sentencepiece; `config` holds what the folder says of special tokens and switches.

    Raises:
        CheckpointError: The file has an option that a tokenizer.json of this family cannot hold.
        ValueError: It is no file of sentencepiece.
    """
    model = read_pieces(path)
    odd = model.odd if model.algorithm == UNIGRAM else ("model_type",)
    odd += tuple(switch for switch in family.refused if config.get(switch))
    if odd:
        raise CheckpointError(
            f"{path}: its option {odd[0]} is not the usual one of {family.file}; cloze would cut texts in another way.\n"
            "  If another library reads the folder, save its tokenizer there as tokenizer.json."
        )
    for key, value in family.switches.items():
        if config.get(key, value) != value:
            raise ValueError(f"{key} is {config[key]!r} in tokenizer_config.json; expected {value!r}")
    literals = {role: _literal(config.get(CONFIG_KEYS[role]), usual) for role, usual in family.literals.items()}
    vocabulary, unknown = _vocabulary(model, family, literals, config)
    built = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=unknown, byte_fallback=model.byte_fallback))
    steps = _cleaning(family, config) if family.cleans else []
    steps += [normalizers.Precompiled(model.charsmap)] if model.charsmap else []
    if steps:
        built.normalizer = normalizers.Sequence(steps) if family.cleans else steps[0]
    built.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    built.decoder = decoders.Metaspace()
    built.add_tokens(_added(model, family, literals, {piece for piece, _ in vocabulary}, config))
    return dict(json.loads(built.to_str()))


def _literal(value: Any, usual: str) -> str:
    literal = value.get("content") if isinstance(value, Mapping) else value
    return literal if isinstance(literal, str) else usual


def _vocabulary(
    model: PieceModel, family: PieceFamily, literals: Mapping[str, str], config: Mapping[str, Any]
) -> tuple[list[tuple[str, float]], int]:
    """The pieces with their scores in the order of ids, and the id of the unknown piece."""
    pieces = [(piece, score - 100 if family.cleans and _ends_number(piece) else score) for piece, score in model.pieces]
    if not family.first:
        behind = [*_sentinels(family, config), *(literals.get(token, token) for token in family.last)]
        return [*pieces, *((token, 0.0) for token in behind if (token, 0.0) not in pieces)], model.unknown
    # No text may become the unused <unk> of the file.
    first = [(literals.get(token, token), -100.0 if token == "<unk>NOTUSED" else 0.0) for token in family.first]
    last = [(literals.get(token, token), 0.0) for token in family.last]
    moved = len(first) - family.dropped
    unknown = family.first.index("[UNK]") if "[UNK]" in family.first else model.unknown + moved
    return [*first, *pieces[family.dropped :], *last], unknown


def _ends_number(piece: str) -> bool:
    """Whether a piece is digits with a comma behind them, which XLNet's and ALBERT's authors cut again."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _sentinels(family: PieceFamily, config: Mapping[str, Any]) -> list[str]:
    count = config.get("extra_ids", family.sentinels)
    if not isinstance(count, int) or not 0 <= count <= 10_000:
        raise ValueError(f"extra_ids is {count!r}; expected a number of sentinels")
    return [f"<extra_id_{number}>" for number in reversed(range(count if family.sentinels else 0))]


def _cleaning(family: PieceFamily, config: Mapping[str, Any]) -> list[Any]:
    """What XLNet's authors do to a text before sentencepiece gets it (`preprocess_text` in their prepro_utils.py)."""
    accents = [] if config.get("keep_accents", False) else [normalizers.NFKD(), normalizers.StripAccents()]
    capitals = [normalizers.Lowercase()] if config.get("do_lower_case", family.lowers) else []
    return [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), *accents, *capitals]


def _added(
    model: PieceModel, family: PieceFamily, literals: Mapping[str, str], vocabulary: set[str], config: Mapping[str, Any]
) -> list[AddedToken]:
    """The special tokens, which are no pieces of a text. The mask takes the space before it.

    Differs: pieces that the trainer of the model defined (XLNet's marks) remain pieces, which sentencepiece prefers by their
    score. transformers 5 makes added tokens of them, behind which a word begins.
    """
    special = [*literals.values(), *family.special, *_sentinels(family, config)]
    special += [piece for (piece, _), kind in zip(model.pieces, model.types, strict=True) if kind == _CONTROL]
    tokens = dict.fromkeys(token for token in special if token in vocabulary)
    return [AddedToken(token, lstrip=token == literals.get("[MASK]"), normalized=False, special=True) for token in tokens]
