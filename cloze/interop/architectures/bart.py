"""BART ↔ transformers' `Bart*`.

Source: BART (Lewis et al., 2020); fairseq `models/bart`. Their tables of positions begin with two unused rows, which are written
as zeros and dropped when read. `final_logits_bias` is a buffer of zeros, not a parameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cloze.interop import encoder, seq2seq
from cloze.interop.architecture import ACTIVATIONS, ACTIVATIONS_BACK, Architecture, HeadTable, ModelClass, Setting, add
from cloze.interop.mapping import MappingLine, Move, TableSizes
from cloze.reading import Reading

_NAMES = ("q_proj", "k_proj", "v_proj", "out_proj")


class Spare(Move):
    """Two unused rows before the first position."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        return (torch.cat([ours.new_zeros(2, ours.shape[1]), ours]),)

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return tensors[0][2:]


def read(config: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing; a `ValueError` if the two stacks differ in more than depth."""
    for name, usual in (("attention_heads", 16), ("ffn_dim", 4096)):
        first, second = config.get(f"encoder_{name}", usual), config.get(f"decoder_{name}", usual)
        if first != second:
            raise ValueError(f"encoder_{name} is {first}, decoder_{name} is {second}; cloze's two stacks have one number.")
    return {}


def write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    """The decoder's sizes, and what is normed."""
    return {
        "is_encoder_decoder": True,
        "decoder_attention_heads": arguments["heads"],
        "decoder_ffn_dim": arguments["feed_forward.inner"],
        # transformers ignores the two, but they are in the authors' files, and CTranslate2 reads them
        "normalize_before": arguments["norm"] == "pre",
        "normalize_embedding": bool(arguments["norm.embedding"]),
    }


def body(*, positions: Move | None, embedding_norm: bool, final_norm: bool) -> tuple[MappingLine, ...]:
    """The lines of both stacks. `positions` converts their tables of positions; None: files hold none."""
    lines = [MappingLine("embeddings.tokens.weight", "{base}shared.weight", "V D")]
    for stack, letter in (("encoder", "i"), ("decoder", "j")):
        ours, upstream = f"{stack}.layers.{{{letter}}}.", f"{{base}}{stack}.layers.{{{letter}}}."
        if positions is not None:
            table = f"{{base}}{stack}.embed_positions.weight"
            lines.append(MappingLine(f"{stack}.positions.weight", table, "P D", positions))
        if embedding_norm:
            lines.append(MappingLine(f"{stack}.embedding_norm.*", f"{{base}}{stack}.layernorm_embedding.*", "D"))
        if final_norm:
            lines.append(MappingLine(f"{stack}.norm.*", f"{{base}}{stack}.layer_norm.*", "D"))
        lines += [
            *seq2seq.attention(ours + "attention", upstream + "self_attn.", _NAMES, "*"),
            MappingLine(ours + "attention_norm.*", upstream + "self_attn_layer_norm.*", "D"),
            MappingLine(ours + "inner.*", upstream + "fc1.*", "I D"),
            MappingLine(ours + "outer.*", upstream + "fc2.*", "D I"),
            MappingLine(ours + "inner_norm.*", upstream + "final_layer_norm.*", "D"),
        ]
    upstream = "{base}decoder.layers.{j}."
    return (
        *lines,
        *seq2seq.crossing("decoder.layers.{j}.crossing", upstream + "encoder_attn.", _NAMES, "*"),
        MappingLine("decoder.layers.{j}.crossing_norm.*", upstream + "encoder_attn_layer_norm.*", "D"),
    )


def settings(activation: str = "gelu", **sizes: float) -> tuple[Setting, ...]:
    """The keys of config.json that the family shares; `activation` and `sizes` are transformers' defaults that are not BART's."""
    usual = {"attention_dropout": 0.0, "scale_embedding": False, **sizes}
    return (
        Setting("layers", "encoder_layers", 12),
        Setting("decoder_layers", "decoder_layers", 12),
        Setting("width", "d_model", 1024),
        Setting("heads", "encoder_attention_heads", 16),
        Setting("feed_forward.inner", "encoder_ffn_dim", 4096),
        Setting("positions.max_length", "max_position_embeddings", 1024),
        Setting("feed_forward.activation", "activation_function", activation, ACTIVATIONS.__getitem__,
                ACTIVATIONS_BACK.__getitem__),
        Setting("dropout.hidden", "dropout", 0.1),
        Setting("dropout.attention", "attention_dropout", usual["attention_dropout"]),
        Setting("dropout.inner", "activation_dropout", 0.0),
        Setting("initial.std", "init_std", 0.02),
        Setting("embedding.scaled", "scale_embedding", usual["scale_embedding"]),
    )  # fmt: skip


PREDICTION = HeadTable(
    role="seq2seq_lm",
    part="token_prediction",
    sign=("lm_head.weight",),
    lines=(),
    untied=(MappingLine("head.output.weight", "lm_head.weight", "V D"),),
    repeats={"lm_head.weight": "{base}shared.weight"},
    read={"": "decoder_hidden"},
    objections=lambda head, arguments: seq2seq.prediction_objections(head, "BART", scaled=False),
    arguments=lambda config, tensors: {"transform": None, "bias": False},
)

CLASSIFIER = encoder.pooled_head("classifier", pool="classification_head.dense", output="classification_head.out_proj")

BART = add(Architecture(
    name="bart",
    title="BART",
    part="encoder_decoder",
    settings=settings(),
    from_config=read,
    to_config=write,
    resemblance=lambda model, kind: 1,
    fixed={
        "norm": "post", "norm.kind": "layer", "norm.epsilon": 1e-5, "norm.embedding": True, "norm.final": False,
        "positions": "learned", "attention.biases": True, "attention.scaled": True, "feed_forward.biases": True,
    },
    assumed={"initial": "normal", "initial.positions": None, "initial.residual": "as_drawn", "dropout.mask": "position"},
    legal={"is_encoder_decoder": (True,)},
    base="model.",
    body=body(positions=Spare(), embedding_norm=True, final_norm=False),
    counts=seq2seq.counts,
    sizes=seq2seq.sizes,
    copies=("{base}encoder.embed_tokens.weight", "{base}decoder.embed_tokens.weight"),
    blank=("final_logits_bias",),
    ignored=("{base}encoder.version", "{base}decoder.version"),
    heads=(PREDICTION, CLASSIFIER),
    classes=(
        ModelClass("BartForConditionalGeneration", frozenset({"seq2seq_lm"}), "AutoModelForSeq2SeqLM", "text2text-generation"),
        ModelClass(
            "BartForSequenceClassification",
            frozenset({"classifier"}),
            "AutoModelForSequenceClassification",
            "text-classification",
        ),
        ModelClass("BartModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="BartTokenizer",
    reading=Reading("[CLS] {A} [SEP]", "[CLS] {A} [SEP] [SEP] {B} [SEP]", "last", start="[SEP]"),
    recipe=lambda model: "bart-base",
    tokens={
        "bos_token_id": ("[BOS]", "[CLS]"), "eos_token_id": ("[EOS]", "[SEP]"), "decoder_start_token_id": ("[SEP]", "[EOS]"),
    },
    generates=True,
))
