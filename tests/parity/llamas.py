"""Small networks of Llama's family: arguments, heads, and the auto class and the class of transformers that open them."""

from __future__ import annotations

from typing import Any

SIZES: dict[str, Any] = {
    "layers": 3, "width": 16, "heads": 4, "feed_forward.inner": 24, "positions.max_length": 20, "attention.biases": False,
    "attention.key_value_heads": 2, "feed_forward": "gated", "feed_forward.activation": "silu", "feed_forward.biases": False,
    "norm": "pre", "norm.kind": "rms", "norm.epsilon": 1e-5, "positions": "rotary", "dropout": 0.0, "initial": "normal",
}  # fmt: skip
LLAMA3 = {"positions.scaling": "llama3", "positions.scaling.factor": 4.0, "positions.scaling.low": 1.0,
          "positions.scaling.high": 4.0, "positions.scaling.length": 16, "positions.base": 50.0}  # fmt: skip
WINDOW = {"attention.band.width": 3, "attention.band.dense_every": None, "attention.band.dense_first": None}
TIED = {"lm": ("token_prediction", {"transform": None, "tie": True, "bias": False})}
APART = {"lm": ("token_prediction", {"transform": None, "tie": False, "bias": False})}
SCORE = {"class": ("classify", {"classes": 3, "set": "label", "reading": "summary", "output_bias": False})}
TAGS = {"tags": ("sequence_labelling", {"classes": 3})}
AUTO = "AutoModelForCausalLM"

#: name → arguments, heads, the auto class that opens it, the class that it is
LLAMAS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "llama": (SIZES, APART, AUTO, "LlamaForCausalLM"),
    "llama-1": ({**SIZES, "attention.key_value_heads": None, "attention.head_width": 6}, TIED, AUTO, "LlamaForCausalLM"),
    "llama-3": ({**SIZES, **LLAMA3, "attention.key_value_heads": 1}, TIED, AUTO, "LlamaForCausalLM"),
    "llama-biases": ({**SIZES, "attention.biases": True, "feed_forward.biases": True, "positions.scaling": "linear",
                      "positions.scaling.factor": 2.0}, APART, AUTO, "LlamaForCausalLM"),
    "llama-classifier": (SIZES, SCORE, "AutoModelForSequenceClassification", "LlamaForSequenceClassification"),
    "llama-tagger": (SIZES, TAGS, "AutoModelForTokenClassification", "LlamaForTokenClassification"),
    "mistral": ({**SIZES, **WINDOW, "attention.head_width": 6}, APART, AUTO, "MistralForCausalLM"),
    "qwen2": ({**SIZES, "attention.biases": True, "attention.output_bias": False}, TIED, AUTO, "Qwen2ForCausalLM"),
    "qwen2-window": ({**SIZES, **WINDOW, "attention.band.dense_first": 2, "attention.biases": True,
                      "attention.output_bias": False}, APART, AUTO, "Qwen2ForCausalLM"),
    "qwen3": ({**SIZES, "attention.query_key_norm": "head", "attention.head_width": 6}, TIED, AUTO, "Qwen3ForCausalLM"),
    "smollm3": ({**SIZES, "positions.skip_every": 2}, TIED, AUTO, "SmolLM3ForCausalLM"),
    "olmo2": ({**SIZES, "norm": "branch", "attention.query_key_norm": "all"}, APART, AUTO, "Olmo2ForCausalLM"),
    "gemma": ({**SIZES, "embedding.scaled": True, "attention.head_width": 6, "feed_forward.activation": "gelu_tanh"}, TIED, AUTO,
              "GemmaForCausalLM"),
}  # fmt: skip
#: Networks that fit another architecture, too.
HINTS: dict[str, str] = {}
