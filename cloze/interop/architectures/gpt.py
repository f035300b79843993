"""GPT ↔ transformers' `OpenAIGPT*`.

Source: Improving Language Understanding by Generative Pre-Training (Radford et al., 2018) and openai/finetune-transformer-lm:
norms after the residuals and none on the embeddings, GELU in the tanh form, which transformers calls `gelu` here alone.

Differs: the published code's softmax also runs over the rows of positions and of special tokens; transformers and cloze
predict tokens only.
"""

from __future__ import annotations

from cloze.interop.architecture import Architecture, ModelClass, Setting, add
from cloze.interop.architectures.gpt2 import next_token
from cloze.interop.classification import AUTO, GPT2_CLASSIFIER, PIPELINE, ROLE
from cloze.interop.mapping import TURNED, MappingLine
from cloze.reading import Reading

CAUSAL_LM = next_token("GPT", "tokens_embed.weight")

_BLOCK = "{base}h.{i}."

GPT = add(Architecture(
    name="openai-gpt",
    title="GPT",
    settings=(
        Setting("layers", "n_layer", 12),
        Setting("width", "n_embd", 768),
        Setting("heads", "n_head", 12),
        Setting("positions.max_length", "n_positions", 512),
        Setting("norm.epsilon", "layer_norm_epsilon", 1e-5),
        Setting("dropout.hidden", "embd_pdrop", 0.1),
        Setting("dropout.hidden", "resid_pdrop", 0.1),
        Setting("dropout.attention", "attn_pdrop", 0.1),
        Setting("initial.std", "initializer_range", 0.02),
    ),
    fixed={
        "norm": "post", "positions": "learned", "norm.embedding": False, "norm.final": False,
        "feed_forward.activation": "gelu_tanh",
    },
    assumed={"initial": "normal", "initial.residual": "as_drawn", "initial.positions": None, "segments": 0},
    legal={"afn": ("gelu",)},
    base="transformer.",
    body=(
        MappingLine("embeddings.tokens.weight", "{base}tokens_embed.weight", "V D"),
        MappingLine("embeddings.positions.weight", "{base}positions_embed.weight", "P D"),
        MappingLine("layers.{i}.attention.projections.*", _BLOCK + "attn.c_attn.*", "3D D", TURNED),
        MappingLine("layers.{i}.attention.out.*", _BLOCK + "attn.c_proj.*", "D D", TURNED),
        MappingLine("layers.{i}.attention_norm.*", _BLOCK + "ln_1.*", "D"),
        MappingLine("layers.{i}.inner.*", _BLOCK + "mlp.c_fc.*", "I D", TURNED),
        MappingLine("layers.{i}.outer.*", _BLOCK + "mlp.c_proj.*", "D I", TURNED),
        MappingLine("layers.{i}.inner_norm.*", _BLOCK + "ln_2.*", "D"),
    ),
    heads=(CAUSAL_LM, GPT2_CLASSIFIER),
    classes=(
        ModelClass("OpenAIGPTLMHeadModel", frozenset({"causal_lm"}), "AutoModelForCausalLM", "text-generation"),
        ModelClass("OpenAIGPTForSequenceClassification", frozenset({ROLE}), AUTO, PIPELINE),
        ModelClass("OpenAIGPTModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="OpenAIGPTTokenizer",
    reading=Reading("{A}", None, "last"),
    recipe=lambda model: "gpt",
    orders=("left_to_right",),
    from_config=lambda config: {"feed_forward.inner": 4 * config.get("n_embd", 768)},
    to_config=lambda arguments, order: {"n_embd": arguments["width"], "afn": "gelu"},
    further_objections=lambda arguments: (
        [] if arguments["feed_forward.inner"] == 4 * arguments["width"]
        else [f"inner is {arguments['feed_forward.inner']}, transformers' GPT has four times the width, {4 * arguments['width']}"]
    ),
    tokens={"bos_token_id": ("[BOS]", "[CLS]", "[EOS]"), "eos_token_id": ("[EOS]", "[SEP]", "[BOS]")},
    ignored=("{base}h.{i}.attn.bias", "{base}position_ids"),
    generates=True,
))
