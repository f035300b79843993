"""Marian ↔ transformers' `Marian*`, and PEGASUS ↔ `Pegasus*`: encoder-decoders with a fixed table of sines, then cosines.

Source: Marian (Junczys-Dowmunt et al., 2018) and OPUS-MT (Tiedemann & Thottingal, 2020); PEGASUS (Zhang et al., 2020) and
google-research/pegasus. Marian is the Transformer of Vaswani et al. (2017) with a bias of the output, which transformers calls
`final_logits_bias` and never trains; here it is a parameter, as in Marian. PEGASUS has norms before the branches and one behind
each stack. A file may lack the tables of positions, which follow from their size. The recipe for either is the nearest: the
translator of pairs of texts; PEGASUS' own exercise, which writes the sentences that were left out, is no recipe of cloze.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from cloze.interop import seq2seq
from cloze.interop.architecture import ModelClass, add
from cloze.interop.architectures import bart
from cloze.interop.mapping import SAME, MappingLine, Move, TableSizes
from cloze.interop.model import PortableHead
from cloze.networks.blocks.positions.sinusoid import sinusoids_in_halves
from cloze.reading import Reading


class OneRow(Move):
    """A vector (V,) is a table of one row there."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        return (ours[None],)

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return tensors[0].flatten()


def _positions(arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    rows = sinusoids_in_halves(arguments["positions.max_length"], arguments["width"])
    return {"encoder.positions.weight": rows, "decoder.positions.weight": rows.clone()}


def _write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    return {**bart.write(arguments, order), "static_position_embeddings": True}


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    size = config.get("vocab_size", 58101)
    if (target := config.get("decoder_vocab_size") or size) != size:
        raise ValueError(f"vocab_size is {size}, decoder_vocab_size is {target}; cloze's network has one vocabulary.")
    return bart.read(config)


def _bias_objections(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    wrong = seq2seq.prediction_objections(replace(head, state={}), "Marian", scaled=False)
    return wrong if "head.bias" in head.state else [*wrong, "it has no bias, transformers' Marian has one"]


_SINUSOIDS = {"positions": "sinusoid", "positions.layout": "halves", "positions.first": 0, "norm.embedding": False}
_READING = Reading("{A} [EOS]", "{A} {B} [EOS]", "last", start="[PAD]")
_NO_PADDING = replace(_READING, unwritten=("[PAD]",))  # `bad_words_ids` of the published models
_TOKENS = {"eos_token_id": ("[EOS]", "[SEP]"), "decoder_start_token_id": ("[PAD]",)}

MARIAN = add(replace(
    bart.BART,
    name="marian",
    title="Marian",
    resemblance=lambda model, kind: 0,
    from_config=_read,
    to_config=_write,
    fixed={**bart.BART.fixed, **_SINUSOIDS},
    legal={"is_encoder_decoder": (True,), "share_encoder_decoder_embeddings": (True,)},
    body=bart.body(positions=SAME, embedding_norm=False, final_norm=False),
    computed=_positions,
    blank=(),
    heads=(replace(
        bart.PREDICTION,
        sign=("final_logits_bias",),
        lines=(MappingLine("head.bias", "final_logits_bias", "V", OneRow()),),
        objections=_bias_objections,
        arguments=lambda config, tensors: {"transform": None, "bias": True},
    ),),
    classes=(
        ModelClass("MarianMTModel", frozenset({"seq2seq_lm"}), "AutoModelForSeq2SeqLM", "translation"),
        ModelClass("MarianModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="PreTrainedTokenizerFast",
    reading=_NO_PADDING,
    recipe=lambda model: "transformer-iwslt",
    tokens=_TOKENS,
))  # fmt: skip

PEGASUS = add(replace(
    bart.BART,
    name="pegasus",
    title="PEGASUS",
    resemblance=lambda model, kind: 0,
    to_config=_write,
    fixed={
        **bart.BART.fixed, **_SINUSOIDS, "norm": "pre", "norm.first": True, "norm.final": True, "norm.depth_means": False,
        "dropout.final": 0.0,
    },
    body=bart.body(positions=SAME, embedding_norm=False, final_norm=True),
    computed=_positions,
    heads=(replace(
        bart.PREDICTION, objections=lambda head, arguments: seq2seq.prediction_objections(head, "PEGASUS", scaled=False)
    ),),
    classes=(
        ModelClass("PegasusForConditionalGeneration", frozenset({"seq2seq_lm"}), "AutoModelForSeq2SeqLM", "summarization"),
        ModelClass("PegasusModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="PreTrainedTokenizerFast",
    reading=_READING,
    recipe=lambda model: "transformer-iwslt",
    tokens=_TOKENS,
))  # fmt: skip
