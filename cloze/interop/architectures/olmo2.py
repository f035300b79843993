"""OLMo 2 ↔ transformers' `Olmo2*`, and Gemma ↔ transformers' `Gemma*`: layers of Llama with other norms.

Sources: 2 OLMo 2 Furious (OLMo et al., 2025), Gemma (Gemma Team, 2024), and transformers' classes. OLMo 2 has norms at the ends
of the residual branches, and norms of all queries and of all keys. Gemma's vectors of tokens are multiplied by the square root of
the width, and its norms store their gains minus 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from cloze.interop.architecture import Architecture, ModelClass, add
from cloze.interop.architectures import llama
from cloze.interop.architectures.gpt2 import next_token
from cloze.interop.architectures.llama import LLAMA
from cloze.interop.classification import AUTO, PIPELINE, ROLE
from cloze.interop.mapping import MappingLine, Move, TableSizes
from cloze.interop.rotary import write_rotary
from cloze.interop.tagging import tagger_class


class MinusOne(Move):
    """Their gain is ours minus 1."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        return (ours - 1.0,)

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return tensors[0] + 1.0


def _read_olmo2(config: Mapping[str, Any]) -> dict[str, Any]:
    return llama.read_plain({**config, "mlp_bias": False}, heads=32, fewer=None)


def _write_olmo2(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    return {**llama.write_heads(arguments), **write_rotary(arguments), "attention_bias": arguments["attention.biases"]}


def _read_gemma(config: Mapping[str, Any]) -> dict[str, Any]:
    return llama.read_plain({**config, "mlp_bias": False}, heads=16, fewer=16, head_width=256, width=3072)


def _without_head_width(arguments: Mapping[str, Any]) -> list[str]:
    if arguments.get("attention.head_width"):
        return ["heads have a width of their own, in transformers' OLMo 2 they divide the width"]
    return llama.against(arguments, OLMO2)


OLMO2: Architecture = add(replace(
    LLAMA,
    name="olmo2",
    title="OLMo 2",
    settings=tuple(
        replace(setting, default=1e-5) if setting.theirs == "rms_norm_eps" else setting for setting in LLAMA.settings
    ),
    fixed={
        **{name: value for name, value in LLAMA.fixed.items() if name != "norm.first"}, "norm": "branch",
        "attention.query_key_norm": "all",
    },
    body=(
        MappingLine("embeddings.tokens.weight", "{base}embed_tokens.weight", "V D"),
        MappingLine("layers.{i}.attention_norm.weight", "{base}layers.{i}.post_attention_layernorm.weight", "D"),
        MappingLine("layers.{i}.inner_norm.weight", "{base}layers.{i}.post_feedforward_layernorm.weight", "D"),
        MappingLine("norm.weight", "{base}norm.weight", "D"),
    ),
    heads=(next_token("OLMo 2", "embed_tokens.weight"), LLAMA.heads[1]),
    classes=(
        ModelClass("Olmo2ForCausalLM", frozenset({"causal_lm"}), "AutoModelForCausalLM", "text-generation"),
        ModelClass("Olmo2ForSequenceClassification", frozenset({ROLE}), AUTO, PIPELINE),
        ModelClass("Olmo2Model", frozenset(), "AutoModel", "feature-extraction"),
    ),
    from_config=_read_olmo2,
    to_config=_write_olmo2,
    further_objections=_without_head_width,
))

GEMMA: Architecture = add(replace(
    LLAMA,
    name="gemma",
    title="Gemma",
    settings=tuple(
        replace(setting, default="gelu_pytorch_tanh") if setting.theirs == "hidden_act" else setting
        for setting in llama.settings(
            num_hidden_layers=28, hidden_size=3072, num_attention_heads=16, intermediate_size=24576, max_position_embeddings=8192
        )
    ),
    fixed={**LLAMA.fixed, "embedding.scaled": True},
    legal={"use_bidirectional_attention": (None, False)},
    body=tuple(
        line if line.ours.startswith("embeddings") else replace(line, move=MinusOne()) for line in LLAMA.body
    ),
    heads=(next_token("Gemma", "embed_tokens.weight"), *LLAMA.heads[1:3]),
    classes=(
        ModelClass("GemmaForCausalLM", frozenset({"causal_lm"}), "AutoModelForCausalLM", "text-generation"),
        ModelClass("GemmaForSequenceClassification", frozenset({ROLE}), AUTO, PIPELINE),
        tagger_class("Gemma"),
        ModelClass("GemmaModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    from_config=_read_gemma,
    to_config=_write_olmo2,
    further_objections=lambda arguments: llama.against(arguments, GEMMA),
    ties=lambda config: bool(config.get("tie_word_embeddings", True)),
))
