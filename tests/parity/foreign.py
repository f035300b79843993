"""Small models that transformers makes and saves itself, as other people's folders are, and their scores next to ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from cloze.batch import Batch
from cloze.checkpoint.build import load_checkpoint
from cloze.decoding.bound_head import bind_head
from cloze.decoding.reader import Reader

TEXTS = ["The cat sleeps on the mat and dreams.", "A dog", "Rain fell, and the river rose."]

_ENCODER = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 1, "intermediate_size": 24,
            "max_position_embeddings": 30}  # fmt: skip
_DISTIL = {"dim": 64, "n_layers": 2, "n_heads": 1, "hidden_dim": 24, "max_position_embeddings": 30}
_MOBILE = {**_ENCODER, "intra_bottleneck_size": 16, "true_hidden_size": 16, "embedding_size": 8, "num_feedforward_networks": 2,
           "classifier_activation": False}  # fmt: skip
_XLM = {"emb_dim": 64, "n_layers": 2, "n_heads": 2, "max_position_embeddings": 30, "n_langs": 3}
_LLAMA = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
          "max_position_embeddings": 30}  # fmt: skip
_GPT = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 30}
_BART = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
         "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 30}  # fmt: skip
_T5 = {"d_model": 64, "num_layers": 2, "num_decoder_layers": 1, "num_heads": 2, "d_kv": 8, "d_ff": 24,
       "relative_attention_num_buckets": 8}  # fmt: skip
_DEBERTA = {**_ENCODER, "num_attention_heads": 2, "relative_attention": True, "pos_att_type": "p2c|c2p",
            "position_biased_input": False, "layer_norm_eps": 1e-7}  # fmt: skip
_DEBERTA_V3 = {**_DEBERTA, "position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"}


@dataclass(frozen=True)
class Kind:
    """One architecture: its `model_type`, its class that predicts tokens, the vocabulary it is tried with, small sizes."""

    model_type: str
    cls: str
    tokenizer: str
    sizes: Mapping[str, Any] = field(default_factory=lambda: dict(_ENCODER))
    classifier: str | None = None


#: Every architecture that transformers 5 still has, but those of pictures.
KINDS = {
    "bert": Kind("bert", "BertForPreTraining", "wordpiece", classifier="BertForSequenceClassification"),
    "distilbert": Kind("distilbert", "DistilBertForMaskedLM", "wordpiece", _DISTIL, "DistilBertForSequenceClassification"),
    "ernie": Kind("ernie", "ErnieForPreTraining", "wordpiece", {**_ENCODER, "use_task_id": True, "task_type_vocab_size": 4},
                  "ErnieForSequenceClassification"),
    "mobilebert": Kind("mobilebert", "MobileBertForPreTraining", "wordpiece", _MOBILE, "MobileBertForSequenceClassification"),
    "roberta": Kind("roberta", "RobertaForMaskedLM", "roberta", {**_ENCODER, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
                    "RobertaForSequenceClassification"),
    "xlm-roberta": Kind("xlm-roberta", "XLMRobertaForMaskedLM", "unigram", {**_ENCODER, "type_vocab_size": 1},
                        "XLMRobertaForSequenceClassification"),
    "camembert": Kind("camembert", "CamembertForMaskedLM", "unigram", {**_ENCODER, "type_vocab_size": 1},
                      "CamembertForSequenceClassification"),
    "data2vec-text": Kind("data2vec-text", "Data2VecTextForMaskedLM", "roberta", {**_ENCODER, "type_vocab_size": 1},
                          "Data2VecTextForSequenceClassification"),
    "roberta-prelayernorm": Kind("roberta-prelayernorm", "RobertaPreLayerNormForMaskedLM", "roberta",
                                 {**_ENCODER, "type_vocab_size": 1}, "RobertaPreLayerNormForSequenceClassification"),
    "xlm-roberta-xl": Kind("xlm-roberta-xl", "XLMRobertaXLForMaskedLM", "unigram", _ENCODER,
                           "XLMRobertaXLForSequenceClassification"),
    "mpnet": Kind("mpnet", "MPNetForMaskedLM", "mpnet", _ENCODER, "MPNetForSequenceClassification"),
    "esm": Kind("esm", "EsmForMaskedLM", "esm", {**_ENCODER, "position_embedding_type": "rotary", "token_dropout": True},
                "EsmForSequenceClassification"),
    "roformer": Kind("roformer", "RoFormerForMaskedLM", "wordpiece", {**_ENCODER, "num_attention_heads": 2},
                     "RoFormerForSequenceClassification"),
    "big_bird": Kind("big_bird", "BigBirdForPreTraining", "unigram", _ENCODER, "BigBirdForSequenceClassification"),
    "bert-generation": Kind("bert-generation", "BertGenerationDecoder", "gpt2", {**_ENCODER, "is_decoder": True}),
    "megatron-bert": Kind("megatron-bert", "MegatronBertForPreTraining", "wordpiece",
                          classifier="MegatronBertForSequenceClassification"),
    "albert": Kind("albert", "AlbertForPreTraining", "unigram", {**_ENCODER, "embedding_size": 8},
                   "AlbertForSequenceClassification"),
    "electra": Kind("electra", "ElectraForPreTraining", "wordpiece", {**_ENCODER, "embedding_size": 8},
                    "ElectraForSequenceClassification"),
    "deberta": Kind("deberta", "DebertaForMaskedLM", "roberta", _DEBERTA, "DebertaForSequenceClassification"),
    "deberta-v2": Kind("deberta-v2", "DebertaV2ForMaskedLM", "unigram", _DEBERTA_V3, "DebertaV2ForSequenceClassification"),
    "xlm": Kind("xlm", "XLMWithLMHeadModel", "unigram", _XLM, "XLMForSequenceClassification"),
    "flaubert": Kind("flaubert", "FlaubertWithLMHeadModel", "unigram", {**_XLM, "n_langs": 1},
                     "FlaubertForSequenceClassification"),
    "xlnet": Kind("xlnet", "XLNetLMHeadModel", "unigram", {"d_model": 64, "n_layer": 2, "n_head": 2, "d_inner": 24},
                  "XLNetForSequenceClassification"),
    "modernbert": Kind("modernbert", "ModernBertForMaskedLM", "roberta",
                       {**_ENCODER, "num_hidden_layers": 4, "local_attention": 8}, "ModernBertForSequenceClassification"),
    "modernbert-decoder": Kind("modernbert-decoder", "ModernBertDecoderForCausalLM", "gpt2",
                               {**_ENCODER, "num_hidden_layers": 4, "local_attention": 8},
                               "ModernBertDecoderForSequenceClassification"),
    "openai-gpt": Kind("openai-gpt", "OpenAIGPTLMHeadModel", "gpt2", _GPT, "OpenAIGPTForSequenceClassification"),
    "gpt2": Kind("gpt2", "GPT2LMHeadModel", "gpt2", _GPT, "GPT2ForSequenceClassification"),
    "llama": Kind("llama", "LlamaForCausalLM", "gpt2", _LLAMA, "LlamaForSequenceClassification"),
    "mistral": Kind("mistral", "MistralForCausalLM", "gpt2", {**_LLAMA, "head_dim": 8, "sliding_window": 4},
                    "MistralForSequenceClassification"),
    "qwen2": Kind("qwen2", "Qwen2ForCausalLM", "gpt2", {**_LLAMA, "tie_word_embeddings": True, "use_sliding_window": True,
                  "sliding_window": 4, "max_window_layers": 1}, "Qwen2ForSequenceClassification"),
    "qwen3": Kind("qwen3", "Qwen3ForCausalLM", "gpt2", {**_LLAMA, "head_dim": 8}, "Qwen3ForSequenceClassification"),
    "smollm3": Kind("smollm3", "SmolLM3ForCausalLM", "gpt2", {**_LLAMA, "no_rope_layer_interval": 2},
                    "SmolLM3ForSequenceClassification"),
    "olmo2": Kind("olmo2", "Olmo2ForCausalLM", "gpt2", _LLAMA, "Olmo2ForSequenceClassification"),
    "gemma": Kind("gemma", "GemmaForCausalLM", "gpt2", {**_LLAMA, "head_dim": 8}, "GemmaForSequenceClassification"),
    "mamba": Kind("mamba", "MambaForCausalLM", "gpt2", {"hidden_size": 64, "num_hidden_layers": 2}),
    "t5": Kind("t5", "T5ForConditionalGeneration", "t5", _T5),
    "mt5": Kind("mt5", "MT5ForConditionalGeneration", "t5", _T5),
    "umt5": Kind("umt5", "UMT5ForConditionalGeneration", "t5", _T5),
    "bart": Kind("bart", "BartForConditionalGeneration", "roberta", _BART, "BartForSequenceClassification"),
    "mbart": Kind("mbart", "MBartForConditionalGeneration", "unigram", _BART),
    "m2m_100": Kind("m2m_100", "M2M100ForConditionalGeneration", "unigram", _BART),
    "marian": Kind("marian", "MarianMTModel", "t5", _BART),
    "pegasus": Kind("pegasus", "PegasusForConditionalGeneration", "t5", _BART),
}  # fmt: skip

#: The role of the token that the decoder of each starts with.
STARTS = {
    "t5": "[PAD]", "mt5": "[PAD]", "umt5": "[PAD]", "marian": "[PAD]", "pegasus": "[PAD]", "bart": "[SEP]", "mbart": "[EOS]",
    "m2m_100": "[EOS]",
}  # fmt: skip


def model_of(kind: Kind, pieces: Any, *, cls: str | None = None, seed: int = 0, **changes: Any) -> Any:
    """A model with every trained parameter shaken, made by transformers' own class from its own configuration."""
    roles = pieces.roles
    begin, end = roles.get("[BOS]", roles.get("[CLS]")), roles.get("[EOS]", roles.get("[SEP]"))
    ids = {"pad_token_id": roles["[PAD]"], "bos_token_id": begin, "eos_token_id": end}
    if kind.model_type in STARTS:
        ids["decoder_start_token_id"] = roles[STARTS[kind.model_type]]
    if kind.model_type == "esm":
        ids["mask_token_id"] = roles["[MASK]"]
    if kind.model_type.startswith("modernbert"):
        ids |= {"cls_token_id": begin, "sep_token_id": end}
    sizes = {"vocab_size": pieces.size, **kind.sizes, **ids, **changes}
    config = transformers.AutoConfig.for_model(kind.model_type, **sizes)
    torch.manual_seed(seed)
    model = getattr(transformers, cls or kind.cls)(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in dict.fromkeys(p for p in model.parameters() if p.requires_grad):  # tables of sines hold still
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


def save(model: Any, pieces: Any, folder: Path) -> Path:
    """The folder as transformers writes it, with a tokenizer next to it."""
    model.save_pretrained(folder)
    pieces.save(folder, length=30, frame_single="{A}", frame_pair=None)
    return folder


def ours(loaded: Any) -> dict[str, Tensor]:
    """The scores of every head for `TEXTS`, one text at a time, read as the verbs read them; by the head's kind."""
    reader = Reader.of(loaded)
    found: dict[str, list[Tensor]] = {}
    for text in TEXTS:
        plain = reader.batch(reader.encode([text]))
        for name, objective in loaded.heads.items():
            kind, head = objective.kind or name, bind_head(objective, loaded.reads.get(name))
            batch = plain if head.reads[0] == "summary" else with_targets(plain, reader)
            positions = batch["summaries"][:1] * 0 if head.reads[0] == "summary" else asked(reader, head, batch)
            shown, where = reader.prediction_inputs(head, batch, positions)
            with torch.no_grad():
                states = reader.states(shown, set(head.reads))
                found.setdefault(kind, []).append(reader.scores(head, states, shown, where))
    return {kind: torch.cat(rows) for kind, rows in found.items()}


def with_targets(batch: Batch, reader: Reader) -> Batch:
    """For two stacks: the decoder reads the text behind the token that it starts with."""
    if "decoder.tokens" not in reader.network.takes:
        return batch
    start = torch.full((1, 1), reader.tokenizer.roles[reader.reading.start])
    return Batch({**batch, "decoder.tokens": torch.cat([start, batch["tokens"][:, :-1]], 1)}, checked=True)


def asked(reader: Reader, head: Any, batch: Batch) -> Tensor:
    """Every token; the last but one alone where a head may not know what else is asked (XLNet's query stream)."""
    length = batch["tokens"].shape[1]
    alone = any(reader.network.gives[name].sees == "before" for name in head.reads if name in reader.network.gives)
    return torch.tensor([length - 2]) if alone else torch.arange(length)


def theirs(model: Any, loaded: Any, **fields: int) -> dict[str, Tensor]:
    """The same of transformers' model on the same ids; `fields` are further ids, one for all tokens (`langs`)."""
    reader = Reader.of(loaded)
    found: dict[str, list[Tensor]] = {}
    for text in TEXTS:
        batch = with_targets(reader.batch(reader.encode([text])), reader)
        given = {"input_ids": batch["tokens"], **{name: torch.full_like(batch["tokens"], id) for name, id in fields.items()}}
        if "decoder.tokens" in batch and "SequenceClassification" not in type(model).__name__:
            given["decoder_input_ids"] = batch["decoder.tokens"]
        if type(model).__name__ == "XLNetLMHeadModel":
            length = batch["tokens"].shape[1]
            given["perm_mask"] = torch.zeros(1, length, length).index_fill(2, torch.tensor(length - 2), 1.0)
            given["target_mapping"] = torch.nn.functional.one_hot(torch.tensor([[length - 2]]), length).float()
        with torch.no_grad():
            output = model(**given)
        for kind, scores in _named(output, model).items():
            found.setdefault(kind, []).append(scores.flatten(0, 1) if kind.startswith("token") else scores)
    return {kind: torch.cat(rows) for kind, rows in found.items()}


def _named(output: Any, model: Any) -> dict[str, Tensor]:
    """Their outputs under the names of our kinds of heads."""
    name = type(model).__name__
    if "SequenceClassification" in name:
        return {"classifier": output.logits}
    if name == "ElectraForPreTraining":
        return {"token_labelling": output.logits}
    pair = next((output[key] for key in ("seq_relationship_logits", "sop_logits") if key in output), None)
    tokens = output.prediction_logits if "prediction_logits" in output else output.logits
    return {"token_prediction": tokens, **({} if pair is None else {"relation_prediction": pair})}


def assert_equal(model: Any, folder: Path, **fields: int) -> None:
    """Every head of theirs has one of ours with the same scores, and none of ours is missing there."""
    loaded = load_checkpoint(folder)
    mine, others = ours(loaded), theirs(model, loaded, **fields)
    if "classifier" in others:  # of whichever part it is made here
        (only,) = mine
        mine = {"classifier": mine[only]}
    assert mine.keys() == others.keys()
    for kind, scores in mine.items():
        torch.testing.assert_close(scores, others[kind], atol=2e-4, rtol=1e-4, msg=lambda said, kind=kind: f"{kind}: {said}")
