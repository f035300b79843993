"""Transformer-XL ↔ transformers' `TransfoXL*`; version 4.57 is the last with it.

Source: Transformer-XL: Attentive Language Models beyond a Fixed-Length Context (Dai et al., 2019) and
kimiyoung/transformer-xl. Heads: `adaptive_prediction` with the network's cut-offs, or `token_prediction` without any.
Embeddings that are divided into tables of different widths (the released large model) are not exchanged.

Differs: transformers begins a stream with a memory of zeros, which is attended to; cloze with none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cloze.interop.architecture import Architecture, HeadTable, ModelClass, Setting, add
from cloze.interop.mapping import MappingLine, Move, TableSizes
from cloze.interop.model import PortableHead
from cloze.reading import Reading


class Repeated(Move):
    """One tensor of ours that their file contains under several names."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        return tuple(ours.clone() for _ in range(parts))


class WithFrequencies(Move):
    """The token table, with a buffer of theirs that follows from the width."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        width = sizes.letters["D"]
        return ours, 1 / (10000 ** (torch.arange(0.0, width, 2.0) / width))


def _adaptive(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    wrong = []
    if list(head.argument("cutoffs") or ()) != list(arguments["embedding.cutoffs"]):
        wrong.append(
            f"its cutoffs are {list(head.argument('cutoffs') or ())}, the network's {list(arguments['embedding.cutoffs'])}; "
            "transformers has one list for both"
        )
    if not head.argument("tie"):
        wrong.append("it is not tied, transformers' Transformer-XL is")
    if head.argument("divide") != 1:
        wrong.append("it divides its vectors, which cloze does not exchange")
    return wrong


def _plain(head: PortableHead, arguments: Mapping[str, Any]) -> list[str]:
    wrong = []
    if head.argument("transform") or not head.argument("tie") or "head.bias" not in head.state:
        wrong.append("transformers' Transformer-XL projects straight onto the tied vocabulary, with a bias")
    if arguments["embedding.cutoffs"]:
        wrong.append("the network has cutoffs, and transformers' head would then be adaptive")
    return wrong


ADAPTIVE = HeadTable(
    role="causal_lm",
    part="adaptive_prediction",
    sign=("crit.cluster_weight",),
    lines=(
        MappingLine("head.bias", "crit.out_layers.0.bias", "V"),
        MappingLine("head.cluster_weight", "crit.cluster_weight", "Q D"),
        MappingLine("head.cluster_bias", "crit.cluster_bias", "Q"),
    ),
    repeats={"crit.out_layers.0.weight": "{base}word_emb.emb_layers.0.weight"},
    objections=_adaptive,
    arguments=lambda config, tensors: {"cutoffs": list(config["cutoffs"]), "divide": 1, "tie": True},
)

PLAIN = HeadTable(
    role="plain_lm",
    part="token_prediction",
    sign=("crit.out_layers.0.bias",),
    lines=(MappingLine("head.bias", "crit.out_layers.0.bias", "V"),),
    repeats={"crit.out_layers.0.weight": "{base}word_emb.emb_layers.0.weight"},
    objections=_plain,
    arguments=lambda config, tensors: {"transform": None, "bias": True},
)


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    cutoffs, divide = config.get("cutoffs", [20000, 40000, 200000]), config.get("div_val", 4)
    if divide != 1:
        raise ValueError(f"div_val is {divide!r}; cloze exchanges Transformer-XL with undivided embeddings, div_val 1.")
    if config.get("d_embed", 1024) != config.get("d_model", 1024):
        raise ValueError("d_embed differs from d_model; cloze exchanges Transformer-XL without projected embeddings.")
    clamp, memory = config.get("clamp_len", 1000), config.get("mem_len", 1600)
    return {
        "embedding.cutoffs": list(cutoffs),
        "memory.size": memory or None,
        "memory.same_length": bool(config.get("same_length", True)) if memory else None,
        "positions.clamp": clamp if clamp > 0 else None,
        "positions.untie": bool(config.get("untie_r", True)),
    }


def _write(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    return {
        "cutoffs": list(arguments["embedding.cutoffs"]),
        "div_val": arguments["embedding.divide"],
        "d_embed": arguments["embedding.width"],
        "mem_len": arguments.get("memory.size", 0),
        "clamp_len": arguments["positions.clamp"] or -1,
        "same_length": arguments.get("memory.same_length", False),
        "untie_r": arguments["positions.untie"],
        "pre_lnorm": False,
        "proj_share_all_but_first": True,
    }


def _against(arguments: Mapping[str, Any]) -> list[str]:
    wrong = []
    if arguments["embedding.divide"] != 1 or arguments["embedding.width"] != arguments["width"]:
        wrong.append("its embedding is divided or projected, which cloze does not exchange")
    return wrong


def _biases(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    if arguments["positions.untie"]:
        return (
            MappingLine("layers.{i}.attention.content_bias", _ATTENTION + "r_w_bias", "N K"),
            MappingLine("layers.{i}.attention.distance_bias", _ATTENTION + "r_r_bias", "N K"),
        )
    layers = [_ATTENTION.replace("{i}", str(number)) for number in range(arguments["layers"])]
    return tuple(
        MappingLine(ours, ("{base}" + upstream, *(layer + upstream for layer in layers)), "N K", Repeated())
        for ours, upstream in (("content_bias", "r_w_bias"), ("distance_bias", "r_r_bias"))
    )


_ATTENTION = "{base}layers.{i}.dec_attn."
_INNER = "{base}layers.{i}.pos_ff."

TRANSFO_XL = add(Architecture(
    name="transfo-xl",
    title="Transformer-XL",
    until="4.57",
    settings=(
        Setting("layers", "n_layer", 18),
        Setting("width", "d_model", 1024),
        Setting("heads", "n_head", 16),
        Setting("head_width", "d_head", 64),
        Setting("feed_forward.inner", "d_inner", 4096),
        Setting("norm_epsilon", "layer_norm_epsilon", 1e-5),
        Setting("dropout.hidden", "dropout", 0.1),
        Setting("dropout.attention", "dropatt", 0.0),
        Setting("init_std", "init_std", 0.02),
    ),
    fixed={"feed_forward.activation": "relu"},
    assumed={"memory.reuse": 0, "embedding.divide": 1, "embedding.width": None},
    legal={"pre_lnorm": (False,), "attn_type": (0,), "proj_share_all_but_first": (True,)},
    base="transformer.",
    body=(
        MappingLine(
            "embeddings.tables.0.weight", ("{base}word_emb.emb_layers.0.weight", "{base}pos_emb.inv_freq"), "V D",
            WithFrequencies(),
        ),
        MappingLine("layers.{i}.attention.projections.weight", _ATTENTION + "qkv_net.weight", "3W D"),
        MappingLine("layers.{i}.attention.distances.weight", _ATTENTION + "r_net.weight", "W D"),
        MappingLine("layers.{i}.attention.out.weight", _ATTENTION + "o_net.weight", "D W"),
        MappingLine("layers.{i}.attention_norm.*", _ATTENTION + "layer_norm.*", "D"),
        MappingLine("layers.{i}.inner.*", _INNER + "CoreNet.0.*", "I D"),
        MappingLine("layers.{i}.outer.*", _INNER + "CoreNet.3.*", "D I"),
        MappingLine("layers.{i}.inner_norm.*", _INNER + "layer_norm.*", "D"),
    ),
    further=_biases,
    heads=(ADAPTIVE, PLAIN),
    classes=(
        ModelClass("TransfoXLLMHeadModel", frozenset({"causal_lm"}), "AutoModelForCausalLM", "text-generation"),
        ModelClass("TransfoXLLMHeadModel", frozenset({"plain_lm"}), "AutoModelForCausalLM", "text-generation"),
        ModelClass("TransfoXLModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="PreTrainedTokenizerFast",
    reading=Reading("{A}", None, "last"),
    recipe=lambda model: "transformer-xl",
    part="transformer_xl",
    orders=("left_to_right",),
    from_config=_read,
    to_config=_write,
    further_objections=_against,
    tokens={"bos_token_id": ("[BOS]", "[CLS]"), "eos_token_id": ("[EOS]", "[SEP]")},
    sizes=lambda arguments: {
        "N": arguments["heads"], "K": arguments["head_width"], "W": arguments["heads"] * arguments["head_width"],
        "Q": len(arguments["embedding.cutoffs"]),
    },
))
