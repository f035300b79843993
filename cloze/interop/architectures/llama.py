"""Llama, Mistral, Qwen2, Qwen3 and SmolLM3 ↔ transformers' classes of these names.

Sources: LLaMA (Touvron et al., 2023), Llama 2 (Touvron et al., 2023), The Llama 3 Herd of Models (Grattafiori et al., 2024),
Mistral 7B (Jiang et al., 2023), Qwen2 Technical Report (Yang et al., 2024), Qwen3 Technical Report (Yang et al., 2025), and
transformers' classes. SmolLM and SmolLM2, TinyLlama and others are Llama. The networks differ in biases, in the width of heads,
in norms of queries and keys, and in which layers see a window or have rotary positions.

Differs: a head of keys and values that several heads of queries share is repeated where transformers' kernels may share it; the
numbers are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cloze.interop import question_answering, tagging
from cloze.interop.architecture import ACTIVATIONS, ACTIVATIONS_BACK, Architecture, ModelClass, Setting, add
from cloze.interop.architectures.gpt2 import next_token
from cloze.interop.classification import AUTO, GPT2_CLASSIFIER, PIPELINE, ROLE
from cloze.interop.mapping import STACKED, MappingLine
from cloze.interop.rotary import read_rotary, write_rotary
from cloze.reading import Reading

FULL, WINDOW = "full_attention", "sliding_attention"
_LAYER = "{base}layers.{i}."
_TAGGER = replace(
    tagging.TAGGER, sign=("score.weight",), lines=(MappingLine("head.output.*", "score.*", "C D"),),
    arguments=lambda config, tensors: {"classes": int(tensors["score.weight"].shape[0]), "set": "label"},
)
#: The prefix of the body in most classes for question answering.
_OLD_BASE = "transformer."


def body(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    """The maps, with their biases or without, and the norms of queries and keys where there are some.

    Letters: W all heads of queries, K all heads of keys, Q and R what the norms of queries and of keys have.
    """
    biases = arguments["attention.biases"]
    inward, dense = ("*" if whether else "weight" for whether in (biases, arguments["feed_forward.biases"]))
    outward = "*" if _output_bias(arguments) else "weight"
    query, key, value = (f"{_LAYER}self_attn.{letter}_proj.{inward}" for letter in "qkv")
    attention: tuple[MappingLine, ...]
    if arguments.get("attention.key_value_heads"):
        attention = (
            MappingLine(f"layers.{{i}}.attention.query.{inward}", query, "W D"),
            MappingLine(f"layers.{{i}}.attention.memory.{inward}", (key, value), "2K D", STACKED),
        )
    else:
        attention = (MappingLine(f"layers.{{i}}.attention.projections.{inward}", (query, key, value), "3W D", STACKED),)
    normed = tuple(
        MappingLine(f"layers.{{i}}.attention.{name}_norm.weight", f"{_LAYER}self_attn.{name[0]}_norm.weight", letter)
        for name, letter in (("query", "Q"), ("key", "R")) if arguments.get("attention.query_key_norm")
    )
    return (
        *attention, *normed,
        MappingLine(f"layers.{{i}}.attention.out.{outward}", f"{_LAYER}self_attn.o_proj.{outward}", "D W"),
        MappingLine(
            f"layers.{{i}}.inner.{dense}", (f"{_LAYER}mlp.gate_proj.{dense}", f"{_LAYER}mlp.up_proj.{dense}"), "2I D", STACKED
        ),
        MappingLine(f"layers.{{i}}.outer.{dense}", f"{_LAYER}mlp.down_proj.{dense}", "D I"),
    )


def sizes(arguments: Mapping[str, Any]) -> dict[str, int]:
    """The letters of `body`."""
    heads, width = arguments["heads"], _head_width(arguments)
    all_heads = {"W": heads * width, "K": (arguments.get("attention.key_value_heads") or heads) * width}
    joint = arguments.get("attention.query_key_norm") == "all"
    return {**all_heads, "Q": all_heads["W"] if joint else width, "R": all_heads["K"] if joint else width}


def _output_bias(arguments: Mapping[str, Any]) -> bool:
    output_bias = arguments.get("attention.output_bias")
    return bool(arguments["attention.biases"] if output_bias is None else output_bias)


def _head_width(arguments: Mapping[str, Any]) -> int:
    return int(arguments.get("attention.head_width") or arguments["width"] // arguments["heads"])


def read_heads(config: Mapping[str, Any], *, heads: int, fewer: int | None, head_width: int | None = None) -> dict[str, Any]:
    """The arguments of heads; `heads`, `fewer` of keys and values, and `head_width` are the values for keys that are absent."""
    number = _whole(config, "num_attention_heads", heads) or heads
    return {
        "attention.key_value_heads": _other(_whole(config, "num_key_value_heads", fewer), number),
        "attention.head_width": _other(_whole(config, "head_dim", head_width), config.get("hidden_size", 4096) / number),
    }


def _whole(config: Mapping[str, Any], key: str, default: int | None) -> int | None:
    value = config.get(key, default)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"{key} is {value!r}; expected a whole number of 1 or more.")
    return value


def _other(value: int | None, usual: float) -> int | None:
    """The value, None if it is the usual one."""
    return None if value == usual else value


def write_heads(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that `read_heads` reads."""
    return {
        "num_key_value_heads": arguments.get("attention.key_value_heads") or arguments["heads"],
        "head_dim": _head_width(arguments),
    }


def read_window(config: Mapping[str, Any], types: list[str], width: Any) -> dict[str, Any]:
    """The band of layers of these types that see a window of this width: all, all from one on, or none."""
    if WINDOW not in types or width is None:
        return {"attention.band.width": None, "attention.band.dense_every": None, "attention.band.dense_first": None}
    first = types.index(WINDOW)
    if types != _types(len(types), first) or not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise ValueError(
            f"layer_types is {types} with a sliding_window of {width!r}; cloze's transformer has a window of some tokens in all "
            "layers, or in all from one on."
        )
    return {"attention.band.width": width, "attention.band.dense_every": None, "attention.band.dense_first": first or None}


def _types(layers: int, first: int) -> list[str]:
    return [FULL if layer < first else WINDOW for layer in range(layers)]


def _first(arguments: Mapping[str, Any]) -> int:
    """The first layer that sees a window only."""
    windowed = bool(arguments.get("attention.band.width"))
    return (arguments.get("attention.band.dense_first") or 0) if windowed else int(arguments["layers"])


def _bias(config: Mapping[str, Any], key: str) -> bool:
    return bool(config.get(key, False))


def read_plain(
    config: Mapping[str, Any], *, heads: int, fewer: int | None, head_width: int | None = None, width: int = 4096
) -> dict[str, Any]:
    """The arguments of a network whose layers all see the whole text; the numbers as in `read_heads`."""
    return {
        **read_heads({"hidden_size": width, **config}, heads=heads, fewer=fewer, head_width=head_width), **read_rotary(config),
        **read_window(config, [], None),
        "attention.biases": _bias(config, "attention_bias"), "attention.output_bias": None,
        "feed_forward.biases": _bias(config, "mlp_bias"), "positions.skip_every": None,
    }


def _read_llama(config: Mapping[str, Any]) -> dict[str, Any]:
    return read_plain(config, heads=32, fewer=None)


def _write_llama(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    return {
        **write_heads(arguments), **write_rotary(arguments), "attention_bias": arguments["attention.biases"],
        "mlp_bias": arguments["feed_forward.biases"],
    }


def _read_mistral(config: Mapping[str, Any]) -> dict[str, Any]:
    layers, window = config.get("num_hidden_layers", 32), config.get("sliding_window", 4096)
    return {
        **_read_llama({**config, "attention_bias": False, "mlp_bias": False}),
        **read_heads(config, heads=32, fewer=8), **read_window(config, [WINDOW] * layers, window),
    }


def _write_mistral(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    return {**write_heads(arguments), **write_rotary(arguments), "sliding_window": arguments.get("attention.band.width")}


def _read_layer_types(config: Mapping[str, Any]) -> dict[str, Any]:
    """The window of Qwen2 and Qwen3."""
    layers, window = config.get("num_hidden_layers", 32), config.get("sliding_window", 4096)
    window = window if config.get("use_sliding_window", False) else None
    types = config.get("layer_types") or _types(layers, config.get("max_window_layers", 28) if window is not None else layers)
    return read_window(config, list(types), window)


def _write_layer_types(arguments: Mapping[str, Any]) -> dict[str, Any]:
    windowed, first = bool(arguments.get("attention.band.width")), _first(arguments)
    return {
        "use_sliding_window": windowed, "sliding_window": arguments.get("attention.band.width"), "max_window_layers": first,
        "layer_types": _types(arguments["layers"], first), "num_hidden_layers": arguments["layers"],
    }


def _read_qwen2(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_read_llama({**config, "mlp_bias": False}), **read_heads(config, heads=32, fewer=32), **_read_layer_types(config),
        "attention.biases": True, "attention.output_bias": False,
    }


def _write_qwen2(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    return {**write_heads(arguments), **write_rotary(arguments), **_write_layer_types(arguments)}


def _read_qwen3(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_read_llama({**config, "mlp_bias": False}), **read_heads(config, heads=32, fewer=32, head_width=128),
        **_read_layer_types(config),
    }


def _write_qwen3(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    return {**_write_qwen2(arguments, order), "attention_bias": arguments["attention.biases"]}


def _read_smollm3(config: Mapping[str, Any]) -> dict[str, Any]:
    layers = config.get("num_hidden_layers", 36)
    every = config.get("no_rope_layer_interval", 4)
    rotated = config.get("no_rope_layers") or [int((layer + 1) % every != 0) for layer in range(layers)]
    rotated = [bool(whether) for whether in rotated[:layers]]
    first = next((number for number, whether in enumerate(rotated, 1) if not whether), None)
    if rotated != [first is None or number % first > 0 for number in range(1, layers + 1)]:
        raise ValueError(f"no_rope_layers is {rotated}; cloze's transformer leaves out the positions of every nth layer.")
    window = config.get("sliding_window") if config.get("use_sliding_window", False) else None
    types = config.get("layer_types") or [FULL if window is None or whether else WINDOW for whether in rotated]
    return {
        **read_plain(config, heads=16, fewer=4, width=2048), **read_rotary(config, 2e6),
        **read_window(config, list(types), window), "positions.skip_every": first,
    }


def _write_smollm3(arguments: Mapping[str, Any], order: str) -> dict[str, Any]:
    layers, every = arguments["layers"], arguments.get("positions.skip_every") or arguments["layers"] + 1
    return {
        **_write_llama(arguments, order), **_write_layer_types(arguments), "no_rope_layer_interval": every,
        "no_rope_layers": [int((layer + 1) % every != 0) for layer in range(layers)],
    }


def against(arguments: Mapping[str, Any], architecture: Architecture) -> list[str]:
    """Objections to the arguments that config.json would give back otherwise."""
    read = architecture.from_config(architecture.keys(arguments, "left_to_right"))
    if arguments.get("attention.band.width") is None:
        read = {name: value for name, value in read.items() if not name.startswith("attention.band")}
    return [
        f"{name} is {arguments.get(name)!r}, transformers' {architecture.title} has {value!r}"
        for name, value in read.items() if arguments.get(name) != value
    ]


def _llama_objections(arguments: Mapping[str, Any]) -> list[str]:
    if arguments["width"] % arguments["heads"]:
        return [f"{arguments['heads']} heads do not divide the width {arguments['width']}, in transformers' Llama they must"]
    return against(arguments, LLAMA)


def _classes(prefix: str, base: str | None) -> tuple[ModelClass, ...]:
    """transformers' classes; `base` is that of the one for question answering."""
    return (
        ModelClass(f"{prefix}ForCausalLM", frozenset({"causal_lm"}), "AutoModelForCausalLM", "text-generation"),
        ModelClass(f"{prefix}ForSequenceClassification", frozenset({ROLE}), AUTO, PIPELINE),
        tagging.tagger_class(prefix),
        replace(question_answering.answers_questions(f"{prefix}ForQuestionAnswering"), base=base),
        ModelClass(f"{prefix}Model", frozenset(), "AutoModel", "feature-extraction"),
    )


def settings(**defaults: int) -> tuple[Setting, ...]:
    """The keys of config.json that need no calculation; `defaults` are transformers' where they are not Llama's."""
    numbers = {
        "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 11008,
        "max_position_embeddings": 2048, **defaults,
    }
    ours = ("layers", "width", "heads", "feed_forward.inner", "positions.max_length")
    return (
        *(Setting(name, key, number) for name, (key, number) in zip(ours, numbers.items(), strict=True)),
        Setting("feed_forward.activation", "hidden_act", "silu", ACTIVATIONS.__getitem__, ACTIVATIONS_BACK.__getitem__),
        Setting("norm.epsilon", "rms_norm_eps", 1e-6),
        Setting("dropout.attention", "attention_dropout", 0.0),
        Setting("initial.std", "initializer_range", 0.02),
    )


LLAMA: Architecture = add(Architecture(
    name="llama",
    title="Llama",
    settings=settings(),
    fixed={
        "norm": "pre", "norm.kind": "rms", "norm.embedding": False, "norm.final": True, "norm.first": True, "positions": "rotary",
        "feed_forward": "gated", "feed_forward.norm": False, "dropout.hidden": 0.0, "attention.query_key_norm": None,
    },
    assumed={"initial": "normal", "initial.residual": "as_drawn", "initial.positions": None, "segments": 0},
    legal={},
    base="model.",
    body=(
        MappingLine("embeddings.tokens.weight", "{base}embed_tokens.weight", "V D"),
        MappingLine("layers.{i}.attention_norm.weight", _LAYER + "input_layernorm.weight", "D"),
        MappingLine("layers.{i}.inner_norm.weight", _LAYER + "post_attention_layernorm.weight", "D"),
        MappingLine("norm.weight", "{base}norm.weight", "D"),
    ),
    further=body,
    heads=(next_token("Llama", "embed_tokens.weight"), GPT2_CLASSIFIER, _TAGGER, question_answering.ANSWER),
    classes=_classes("Llama", _OLD_BASE),
    tokenizer_class="PreTrainedTokenizerFast",
    reading=Reading("{A}", None, "last"),
    recipe=lambda model: "smollm2-135m",
    orders=("left_to_right",),
    from_config=_read_llama,
    to_config=_write_llama,
    further_objections=_llama_objections,
    ties=lambda config: bool(config.get("tie_word_embeddings", False)),
    tokens={"bos_token_id": ("[BOS]",), "eos_token_id": ("[EOS]",)},
    sizes=sizes,
    ignored=("{base}layers.{i}.self_attn.rotary_emb.inv_freq",),
    framed=True,
    generates=True,
))

MISTRAL: Architecture = add(replace(
    LLAMA,
    name="mistral",
    title="Mistral",
    settings=settings(intermediate_size=14336, max_position_embeddings=4096 * 32),
    heads=(next_token("Mistral", "embed_tokens.weight"), *LLAMA.heads[1:]),
    classes=_classes("Mistral", None),
    from_config=_read_mistral,
    to_config=_write_mistral,
    further_objections=lambda arguments: against(arguments, MISTRAL),
))

QWEN2: Architecture = add(replace(
    LLAMA,
    name="qwen2",
    title="Qwen2",
    settings=settings(intermediate_size=22016, max_position_embeddings=32768),
    heads=(next_token("Qwen2", "embed_tokens.weight"), *LLAMA.heads[1:]),
    classes=_classes("Qwen2", _OLD_BASE),
    from_config=_read_qwen2,
    to_config=_write_qwen2,
    further_objections=lambda arguments: against(arguments, QWEN2),
))

QWEN3: Architecture = add(replace(
    QWEN2,
    name="qwen3",
    title="Qwen3",
    fixed={**LLAMA.fixed, "attention.query_key_norm": "head"},
    heads=(next_token("Qwen3", "embed_tokens.weight"), *LLAMA.heads[1:]),
    classes=_classes("Qwen3", _OLD_BASE),
    from_config=_read_qwen3,
    to_config=_write_qwen3,
    further_objections=lambda arguments: against(arguments, QWEN3),
))

SMOLLM3: Architecture = add(replace(
    LLAMA,
    name="smollm3",
    title="SmolLM3",
    settings=settings(num_hidden_layers=36, hidden_size=2048, num_attention_heads=16, max_position_embeddings=32768),
    heads=(next_token("SmolLM3", "embed_tokens.weight"), *LLAMA.heads[1:]),
    classes=_classes("SmolLM3", _OLD_BASE),
    from_config=_read_smollm3,
    to_config=_write_smollm3,
    further_objections=lambda arguments: against(arguments, SMOLLM3),
    ties=lambda config: bool(config.get("tie_word_embeddings", True)),
))
