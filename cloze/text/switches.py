"""Switches of tokenizer_config.json that transformers follows where tokenizer.json says otherwise: capitals, accents, spaces.

Some classes of transformers 5 take only the vocabulary from tokenizer.json and build the rest from these switches and their
defaults; others use the file as it is. cloze does the same, and says so where the two files differ.

Differs: XLNet's `keep_accents` is followed here; transformers 5 ignores it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloze.text.old_layouts import class_of
from cloze.text.sentencepiece import FAMILIES

#: Classes that build BERT's normaliser from switches. The other classes of the kind leave the file as it is.
_OF_BERT = (
    "BertTokenizer", "ElectraTokenizer", "DistilBertTokenizer", "MobileBertTokenizer", "MPNetTokenizer", "LxmertTokenizer",
    "SqueezeBertTokenizer", "LayoutLMTokenizer", "FunnelTokenizer", "SplinterTokenizer",
)  # fmt: skip
#: Classes that build the cuts of byte-level BPE from a switch, with its default.
_BYTE_LEVEL: Mapping[str, bool] = {
    **dict.fromkeys(("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "LongformerTokenizer", "LEDTokenizer"), False),
    **dict.fromkeys(("DebertaTokenizer", "GPTNeoXTokenizer", "Qwen2Tokenizer"), False),
    "BlenderbotTokenizer": True,
}
#: The class of a folder that names none, by the `model_type` of its config.json.
_CLASS_OF: Mapping[str, str] = {
    **dict.fromkeys(("bert", "convbert", "ernie", "megatron-bert", "visual_bert"), "BertTokenizer"),
    "electra": "ElectraTokenizer", "distilbert": "DistilBertTokenizer", "mobilebert": "MobileBertTokenizer",
    "mpnet": "MPNetTokenizer", "lxmert": "LxmertTokenizer", "squeezebert": "SqueezeBertTokenizer",
    "layoutlm": "LayoutLMTokenizer", "funnel": "FunnelTokenizer", "splinter": "SplinterTokenizer",
    "gpt2": "GPT2Tokenizer", "roberta": "RobertaTokenizer", "bart": "BartTokenizer", "deberta": "DebertaTokenizer",
    "blenderbot": "BlenderbotTokenizer", "gpt_neox": "GPTNeoXTokenizer", "longformer": "LongformerTokenizer",
    "led": "LEDTokenizer",
}  # fmt: skip


def follow_switches(folder: Path, data: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The contents `data` of a tokenizer.json, with the switches that the class of the folder follows; `settings` are those of
    `read_settings`. A warning names each switch that the file contradicts."""
    name = class_of(folder, settings, _CLASS_OF)
    normaliser, cuts = data.get("normalizer") or {}, data.get("pre_tokenizer") or {}
    changed: dict[str, tuple[Any, Any]] = {}
    if name in _OF_BERT and normaliser.get("type") == "BertNormalizer":
        keys = {"do_lower_case": "lowercase", "tokenize_chinese_chars": "handle_chinese_chars", "strip_accents": "strip_accents"}
        defaults = {"do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None}
        values = {switch: settings.get(switch, defaults[switch]) for switch in keys}
        changed = {
            switch: (normaliser.get(key), values[switch]) for switch, key in keys.items() if normaliser.get(key) != values[switch]
        }
        data = {**data, "normalizer": {**normaliser, **{keys[switch]: value for switch, (_, value) in changed.items()}}}
    elif name in _BYTE_LEVEL and cuts.get("type") == "ByteLevel":
        spaced = bool(settings.get("add_prefix_space", _BYTE_LEVEL[name]))
        if bool(cuts.get("add_prefix_space", True)) != spaced:
            changed = {"add_prefix_space": (not spaced, spaced)}
            data = {**data, "pre_tokenizer": {**cuts, "add_prefix_space": spaced}}
    elif name in FAMILIES and FAMILIES[name].cleans and normaliser.get("type") == "Sequence":
        steps, changed = _cleaning_steps(normaliser["normalizers"], settings, lowers=FAMILIES[name].lowers)
        data = {**data, "normalizer": {**normaliser, "normalizers": steps}} if changed else data
    for switch, (in_file, value) in _that_matter(changed, data).items():
        says = f"says {value!r}" if switch in settings else f"does not say; the default of {name} is {value!r}"
        warnings.warn(
            f"{folder / 'tokenizer.json'}: {switch} is {in_file!r} there, and tokenizer_config.json {says}. "
            f"{value!r} is followed. For the other, write {{\"{switch}\": {json.dumps(in_file)}}} into tokenizer_config.json.",
            stacklevel=1,
        )
    return data


def _cleaning_steps(
    steps: list[dict[str, Any]], settings: Mapping[str, Any], *, lowers: bool
) -> tuple[list[dict[str, Any]], dict[str, tuple[bool, bool]]]:
    """ALBERT's and XLNet's normalisers with the switches, and what each switch was and is."""
    kinds = [step.get("type") for step in steps]
    before = {"do_lower_case": "Lowercase" in kinds, "keep_accents": "StripAccents" not in kinds}
    after = {
        "do_lower_case": bool(settings.get("do_lower_case", lowers)), "keep_accents": bool(settings.get("keep_accents", False)),
    }  # fmt: skip
    changed = {switch: (before[switch], after[switch]) for switch in before if before[switch] != after[switch]}
    rest = [step for step in steps if step.get("type") not in ("NFKD", "StripAccents", "Lowercase")]
    accents: list[dict[str, Any]] = [] if after["keep_accents"] else [{"type": "NFKD"}, {"type": "StripAccents"}]
    capitals: list[dict[str, Any]] = [{"type": "Lowercase"}] if after["do_lower_case"] else []
    quotes = sum(step.get("type") == "Replace" and "String" in (step.get("pattern") or {}) for step in rest[:2])
    return [*rest[:quotes], *accents, *capitals, *rest[quotes:]], changed


def _that_matter(changed: Mapping[str, tuple[Any, Any]], data: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The switches without that of accents where it follows capitals in both files."""
    lowers = (data.get("normalizer") or {}).get("lowercase")
    return {
        switch: values for switch, values in changed.items()
        if not (switch == "strip_accents" and {lowers if value is None else value for value in values} == {lowers})
    }  # fmt: skip
