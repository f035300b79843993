"""Models of others, of configurations drawn at random: our scores are transformers', or the folder is refused in words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloze.errors import CheckpointError
from cloze.interop import import_folder

pytestmark = pytest.mark.parity

ENCODER = {
    "hidden_size": [16, 32], "num_attention_heads": [1, 2, 4], "num_hidden_layers": [1, 3], "intermediate_size": [8, 40],
    "hidden_act": ["gelu", "relu", "gelu_new", "gelu", "silu"], "layer_norm_eps": [1e-12, 1e-5, 0.1],
    "type_vocab_size": [1, 2, 3], "tie_word_embeddings": [True, True, False],
}  # fmt: skip
SUMMARY = {
    "summary_type": ["first", "last", "mean"], "summary_use_proj": [True, True, False], "summary_activation": [None, "tanh"],
}  # fmt: skip
XLM = {
    "emb_dim": [16, 32], "n_heads": [1, 4], "n_layers": [1, 3], "gelu_activation": [True, False], "causal": [False, True],
    "sinusoidal_embeddings": [False, True], "layer_norm_eps": [1e-12, 0.1], "tie_word_embeddings": [True, False], "asm": [False],
    **SUMMARY,
}  # fmt: skip
GPT = {"n_embd": [16, 32], "n_head": [1, 2, 4], "n_layer": [1, 3], "layer_norm_epsilon": [1e-5, 0.1],
       "tie_word_embeddings": [True, False]}  # fmt: skip
DEBERTA = {
    **ENCODER, "type_vocab_size": [0, 2], "relative_attention": [True, True, True, False], "max_relative_positions": [-1, 10],
    "pos_att_type": ["p2c|c2p", "c2p|p2c", "p2c", "c2p", None], "position_biased_input": [False, False, True],
    "legacy": [True, False], "pooler_hidden_act": ["gelu", "tanh"],
}  # fmt: skip
LLAMA = {"hidden_size": [16, 32], "num_attention_heads": [4], "num_key_value_heads": [1, 2, 4], "num_hidden_layers": [1, 3],
         "intermediate_size": [24], "hidden_act": ["silu", "silu", "gelu"], "rms_norm_eps": [1e-6, 0.1],
         "tie_word_embeddings": [True, False], "rope_parameters": [
             {"rope_type": "default", "rope_theta": 1e4}, {"rope_type": "linear", "factor": 3.0, "rope_theta": 500.0},
             {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 50.0,
              "original_max_position_embeddings": 16},
             {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}]}  # fmt: skip
WINDOW = {"use_sliding_window": [False, True], "sliding_window": [3], "max_window_layers": [0, 1, 2]}
DRAWN: dict[str, dict[str, list[Any]]] = {
    "bert": ENCODER,
    "distilbert": {"dim": [16, 32], "n_heads": [1, 4], "n_layers": [1, 3], "hidden_dim": [24], "activation": ["gelu", "relu"],
                   "sinusoidal_pos_embds": [False, True], "tie_word_embeddings": [True, False]},
    "mobilebert": {**ENCODER, "hidden_size": [32], "embedding_size": [8, 16], "hidden_act": ["relu", "relu", "gelu"],
                   "normalization_type": ["no_norm", "layer_norm"], "num_feedforward_networks": [1, 3],
                   "use_bottleneck_attention": [False, True], "key_query_shared_bottleneck": [True, False],
                   "classifier_activation": [True, False]},
    "roberta": ENCODER,
    "data2vec-text": ENCODER,
    "roberta-prelayernorm": ENCODER,
    "xlm-roberta-xl": ENCODER,
    "megatron-bert": ENCODER,
    "mpnet": {**{key: values for key, values in ENCODER.items() if key != "type_vocab_size"},
              "relative_attention_num_buckets": [32, 32, 40], "max_position_embeddings": [30, 200]},
    "esm": {**{key: values for key, values in ENCODER.items() if key not in ("type_vocab_size", "hidden_act")},
            "position_embedding_type": ["rotary", "absolute"], "token_dropout": [True, False], "rope_theta": [1e4, 100.0],
            "emb_layer_norm_before": [False, True, None]},
    "roformer": {**ENCODER, "embedding_size": [None, 8, 16], "rotary_value": [False, True]},
    "big_bird": {**ENCODER, "attention_type": ["block_sparse", "original_full"], "rescale_embeddings": [False, False, True],
                 "use_bias": [True, True, False]},
    "bert-generation": {**{key: values for key, values in ENCODER.items() if key != "type_vocab_size"},
                        "is_decoder": [False, True]},
    "albert": {**ENCODER, "tie_word_embeddings": [True], "embedding_size": [8, 16], "num_hidden_groups": [1, 2],
               "inner_group_num": [1, 1, 2]},
    "electra": {**ENCODER, "embedding_size": [8, 16, 32]},
    "deberta": DEBERTA,
    "deberta-v2": {**DEBERTA, "position_buckets": [-1, 8], "share_att_key": [True, False], "norm_rel_ebd": ["layer_norm", "none"],
                   "conv_kernel_size": [0, 0, 3], "conv_act": ["tanh", "gelu"], "conv_groups": [1, 2]},
    "xlm": {**XLM, "n_langs": [1, 3], "use_lang_emb": [True, False]},
    "flaubert": {**XLM, "n_langs": [1], "pre_norm": [False], "layerdrop": [0.0]},
    "xlnet": {"d_model": [16, 32], "n_head": [1, 4], "n_layer": [1, 3], "ff_activation": ["gelu", "relu"], "clamp_len": [-1, 3],
              "same_length": [False, False, True], "attn_type": ["bi", "bi", "uni"], "mem_len": [None, 4],
              "layer_norm_eps": [1e-12, 0.1], "tie_word_embeddings": [True, False], **SUMMARY,
              "summary_type": ["last", "last", "first", "mean"],
              "summary_activation": ["tanh", "tanh", "relu", ""]},
    "modernbert": {"hidden_size": [16, 32], "num_attention_heads": [1, 2], "num_hidden_layers": [1, 4], "norm_eps": [1e-5, 0.1],
                   "hidden_activation": ["gelu", "relu"], "global_attn_every_n_layers": [1, 2, 3], "local_attention": [4, 8],
                   "attention_bias": [False, True], "mlp_bias": [False, True], "norm_bias": [False, True],
                   "classifier_pooling": ["cls", "mean"], "tie_word_embeddings": [True, False]},
    "modernbert-decoder": {
        "hidden_size": [16, 32], "num_attention_heads": [1, 2], "num_hidden_layers": [1, 4], "norm_eps": [1e-5, 0.1],
        "hidden_activation": ["gelu", "relu"], "global_attn_every_n_layers": [1, 2, 3], "local_attention": [4, 7],
        "attention_bias": [False, True], "mlp_bias": [False, True], "norm_bias": [False, True],
        "classifier_bias": [False, True], "tie_word_embeddings": [True, False]},
    "openai-gpt": {**GPT, "afn": ["gelu", "gelu", "relu"]},
    "gpt2": {**GPT, "n_inner": [None, 24], "activation_function": ["gelu_new", "gelu", "relu"],
             "scale_attn_weights": [True, True, False], "scale_attn_by_inverse_layer_idx": [False, False, True]},
    "llama": {**LLAMA, "head_dim": [None, 4, 12], "attention_bias": [False, True], "mlp_bias": [False, True]},
    "mistral": {**LLAMA, "head_dim": [None, 4, 12], "sliding_window": [None, 3, 64]},
    "qwen2": {**LLAMA, **WINDOW},
    "qwen3": {**LLAMA, **WINDOW, "head_dim": [4, 16], "attention_bias": [False, True]},
    "smollm3": {**LLAMA, "attention_bias": [False, True], "mlp_bias": [False, True], "no_rope_layer_interval": [1, 2, 4, 9],
                "no_rope_layers": [None, None, [1, 0, 0, 1]], "use_sliding_window": [False, False, True], "sliding_window": [3]},
    "olmo2": {**LLAMA, "attention_bias": [False, True]},
    "gemma": {**LLAMA, "head_dim": [4, 12], "attention_bias": [False, True], "hidden_act": ["gelu_pytorch_tanh", "silu"],
              "use_bidirectional_attention": [None, None, True]},
    "mamba": {"hidden_size": [16, 24], "num_hidden_layers": [1, 3], "state_size": [3, 16], "expand": [1, 2],
              "conv_kernel": [2, 4], "time_step_rank": ["auto", 5], "use_bias": [False, True], "use_conv_bias": [True, False],
              "hidden_act": ["silu", "silu", "gelu"], "layer_norm_epsilon": [1e-5, 0.1], "tie_word_embeddings": [True, False]},
    "t5": {"d_model": [16, 32], "num_heads": [1, 3], "d_kv": [4, 8], "num_layers": [1, 2], "num_decoder_layers": [1, 3],
           "feed_forward_proj": ["relu", "gated-gelu", "gated-relu", "gelu_new"], "relative_attention_num_buckets": [8, 32],
           "relative_attention_max_distance": [12, 128], "tie_word_embeddings": [True, False]},
    "bart": {"d_model": [16, 32], "encoder_attention_heads": [1, 2], "decoder_attention_heads": [2, 2, 1],
             "encoder_layers": [1, 2], "decoder_layers": [1, 3], "scale_embedding": [False, True],
             "activation_function": ["gelu", "relu", "gelu_new"], "tie_word_embeddings": [True, True, False]},
}  # fmt: skip
DRAWN["umt5"] = {key: choices for key, choices in DRAWN["t5"].items() if key != "tie_word_embeddings"}
DRAWN["mbart"] = {**DRAWN["bart"], "activation_function": ["gelu", "relu", "silu", "swish", "tanh"]}
DRAWN["pegasus"] = DRAWN["m2m_100"] = {**DRAWN["mbart"], "static_position_embeddings": [True]}
DRAWN["marian"] = {**DRAWN["pegasus"], "share_encoder_decoder_embeddings": [True, True, True, False]}
#: Those that have no class that classifies.
WRITERS = ("t5", "umt5", "mbart", "m2m_100", "marian", "pegasus", "mamba", "bert-generation")


@st.composite
def configurations(draw: Any, names: tuple[str, ...]) -> tuple[str, bool, dict[str, Any], bool]:
    """An architecture, whether it classifies, its configuration, and whether buffers hold something."""
    name = draw(st.sampled_from(names))
    values = {key: draw(st.sampled_from(choices)) for key, choices in DRAWN[name].items()}
    return name, name not in WRITERS and draw(st.booleans()), values, draw(st.integers(0, 3)) == 0


def judge(systems: ModuleType, foreign: ModuleType, folder: Path, drawn: tuple[str, bool, dict[str, Any], bool]) -> str:
    """`equal`, `remarked` where a head is left out with a word, or `refused`; anything else fails."""
    name, classifies, values, filled = drawn
    kind = foreign.KINDS[name]
    pieces = systems.tokenizer(kind.tokenizer)
    model = foreign.model_of(kind, pieces, cls=kind.classifier if classifies else None, **values)
    for buffer, tensor in model.named_buffers():
        if filled and buffer == "final_logits_bias":
            tensor.copy_(torch.linspace(-1, 1, tensor.numel())[None])
    foreign.save(model, pieces, folder)
    try:
        imported = import_folder(folder)
    except CheckpointError as error:
        assert str(folder) in str(error) and len(str(error)) > len(str(folder)) + 30
        return "refused"
    if not imported.model.heads:
        assert any("head" in remark or "carried along" in remark for remark in imported.remarks), drawn
        return "remarked"
    languages = {"langs": 0} if values.get("n_langs", 1) > 1 and values.get("use_lang_emb", True) else {}
    foreign.assert_equal(model, folder, **languages)
    return "equal"


@pytest.mark.parametrize("names", [
    ("bert", "distilbert", "mobilebert", "roberta", "albert", "electra"),
    ("deberta", "deberta-v2"),
    ("xlm", "flaubert", "xlnet", "modernbert"), ("modernbert-decoder",), ("openai-gpt", "gpt2", "t5", "bart"), ("mamba",),
    ("umt5", "mbart", "m2m_100", "marian", "pegasus"),
    ("llama", "mistral"), ("qwen2", "qwen3", "smollm3"), ("olmo2", "gemma"),
    ("mpnet", "esm", "roformer"),
    ("data2vec-text", "roberta-prelayernorm", "xlm-roberta-xl", "big_bird", "megatron-bert", "bert-generation"),
])  # fmt: skip
def test_models_of_random_configurations_are_read_equal_or_refused_in_words(
    systems: ModuleType, foreign: ModuleType, tmp_path: Path, names: tuple[str, ...]
) -> None:
    found: Counter[str] = Counter()

    @settings(max_examples=16, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(configurations(names))
    def each(drawn: tuple[str, bool, dict[str, Any], bool]) -> None:
        found[judge(systems, foreign, tmp_path / str(sum(found.values())), drawn)] += 1

    each()
    assert found["equal"] >= 4 and sum(found.values()) >= 12, found
