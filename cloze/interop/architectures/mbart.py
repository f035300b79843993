"""mBART ↔ transformers' `MBart*`, and M2M-100 and NLLB ↔ `M2M100*`: translators that are told languages by tokens.

Source: Multilingual Denoising Pre-training (Liu et al., 2020); Multilingual Translation with Extensible Multilingual Pretraining
(Tang et al., 2020: mBART-50); Beyond English-Centric Multilingual Machine Translation (Fan et al., 2021); No Language Left Behind
(NLLB Team, 2022); facebookresearch/fairseq. Their layers are BART's with norms before the branches and one behind each stack.

M2M-100 has sines and cosines in the order of tensor2tensor, from the position behind the id of padding (2); they are in no file.
The recipe for either is the nearest: BART's exercise, and the translator of one pair of languages.

Differs: layers are not left out in training (`encoder_layerdrop`, 0.05 in the 418M model of M2M-100).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from cloze.interop import seq2seq
from cloze.interop.architecture import ModelClass, ReadingFacts, add
from cloze.interop.architectures import bart
from cloze.networks.blocks.positions.sinusoid import fairseq_sinusoids
from cloze.reading import Reading
from cloze.text.tokenizer import Tokenizer

#: The language that transformers' tokenizers read where none is given.
_USUAL_LANGUAGES = ("en_XX", "eng_Latn", "__en__")


def _reading_of(facts: ReadingFacts) -> tuple[Reading, Tokenizer, list[str]] | None:
    """The token of the language is the first one of both texts, and the decoder begins with the end; in mBART, and in the first
    version of NLLB's tokenizer, the language read is the last token; in mBART the decoder begins with the language written.

    The languages are those of the folder: of its tokenizer, else for what is read the usual one, and for what is written that
    which the configuration forces to be first.
    """
    tokenizer, config, settings = facts.tokenizer, facts.config, facts.settings
    codes = tokenizer.languages
    usual = next((language for language in _USUAL_LANGUAGES if language in codes), None)
    if usual is None:
        return None
    remarks, languages = [], {}
    if "[SOURCE]" not in tokenizer.roles:
        languages["source"] = usual
        remarks.append(f"texts are read as {usual}, as transformers does where no language is given.")
    ids = {tokenizer.id(language): language for language in codes}
    forced = next((ids[id] for key in _WRITTEN_FIRST if (id := config.get(key)) in ids), None)
    if "[TARGET]" not in tokenizer.roles and forced is not None:
        languages["target"] = forced
    first, last = "[SOURCE] {A} [EOS]", "{A} [EOS] [SOURCE]"
    in_front = str(settings.get("tokenizer_class")).startswith("MBart50Tokenizer")  # mBART-50; its decoder begins with the end
    in_front |= config.get("decoder_start_token_id") == tokenizer.roles.get("[EOS]", -1)
    if config.get("model_type") == "mbart" and not in_front:
        reading = Reading(last, None, "last", start="[TARGET]", target="{A} [EOS]")
    else:
        single = last if settings.get("legacy_behaviour") else first
        reading = Reading(single, None, "last", start="[EOS]", target="[TARGET] {A} [EOS]")
    return reading, tokenizer.speaking(**languages), remarks


_WRITTEN_FIRST = ("forced_bos_token_id", "decoder_start_token_id")  # keys of the configuration

_NORMS = {"norm": "pre", "norm.first": True, "norm.final": True, "norm.depth_means": False, "dropout.final": 0.0}

_TOKENS = {
    "bos_token_id": ("[BOS]", "[CLS]"), "eos_token_id": ("[EOS]", "[SEP]"), "decoder_start_token_id": ("[EOS]", "[SEP]"),
}

MBART = add(replace(
    bart.BART,
    name="mbart",
    title="mBART",
    resemblance=lambda model, kind: 0,
    fixed={**bart.BART.fixed, **_NORMS},
    body=bart.body(positions=bart.Spare(), embedding_norm=True, final_norm=True),
    heads=(replace(
        bart.PREDICTION, objections=lambda head, arguments: seq2seq.prediction_objections(head, "mBART", scaled=False)
    ),),
    classes=(
        ModelClass("MBartForConditionalGeneration", frozenset({"seq2seq_lm"}), "AutoModelForSeq2SeqLM", "text2text-generation"),
        ModelClass("MBartModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="PreTrainedTokenizerFast",
    reading=Reading("{A} [EOS]", "{A} {B} [EOS]", "last", start="[EOS]"),
    reading_of=_reading_of,
    recipe=lambda model: "bart-base",
    tokens=_TOKENS,
))  # fmt: skip


def _positions(arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    first = arguments["positions.first"]
    rows = fairseq_sinusoids(first + arguments["positions.max_length"], arguments["width"])[first:]
    return {"encoder.positions.weight": rows, "decoder.positions.weight": rows.clone()}


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    pad = config.get("pad_token_id", 1)
    if not isinstance(pad, int) or pad < 0:
        raise ValueError(f"pad_token_id is {pad!r}; expected an id, from which positions are counted.")
    return {**bart.read(config), "positions.first": pad + 1}


def _write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    return {**bart.write(arguments, order), "pad_token_id": M2M_100.pad_of(arguments)}


M2M_100 = add(replace(
    MBART,
    name="m2m_100",
    title="M2M-100",
    settings=bart.settings("relu", attention_dropout=0.1, scale_embedding=True),
    fixed={
        **MBART.fixed, "norm.embedding": False, "positions": "sinusoid", "positions.layout": "tensor2tensor",
    },
    fixed_shifted=True,
    from_config=_read,
    to_config=_write,
    body=bart.body(positions=None, embedding_norm=False, final_norm=True),
    computed=_positions,
    ignored=(*MBART.ignored, "{base}encoder.embed_positions.weights", "{base}decoder.embed_positions.weights"),
    heads=(replace(
        bart.PREDICTION, objections=lambda head, arguments: seq2seq.prediction_objections(head, "M2M-100", scaled=False)
    ),),
    classes=(
        ModelClass("M2M100ForConditionalGeneration", frozenset({"seq2seq_lm"}), "AutoModelForSeq2SeqLM", "text2text-generation"),
        ModelClass("M2M100Model", frozenset(), "AutoModel", "feature-extraction"),
    ),
    recipe=lambda model: "transformer-iwslt",
    blank=(),
))  # fmt: skip
