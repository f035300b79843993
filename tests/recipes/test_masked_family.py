"""What the recipes of the masked family take from their authors' code, value by value, and that it reaches training."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cloze.checkpoint.build import build_part, build_step
from cloze.recipe.load import load_recipe

#: Values by path in the canonical recipe, with the program of the authors that states them.
PUBLISHED: dict[str, dict[str, Any]] = {
    "albert-base": {  # google-research/albert create_pretraining_data.py, tokenization.py
        "exercise.0.pair.alone": "random_document", "exercise.2.split_words.pieces": ["marks", "foreign"],
        "texts.main.normalise.strip_accents": True, "exercise.3.mask.most": 20,  # README.md, the command; issue 51
    },
    # README of google-research/albert
    "albert-base-v2": {"training.steps": 10_000_000, "networks.main.transformer.dropout": 0.0},
    "albert-xxlarge": {"training.steps": 1_500_000, "networks.main.transformer.dropout": 0.0},  # README of google-research/albert
    "bert-wwm-zh": {  # ymcui/LAMB_Optimizer_TF optimization.py, which the authors' README links
        "training.optimizer.lamb.ratio": "all", "training.optimizer.lamb.bias_correction": False,
        "training.rate.in_turn.first.linear.decay": "from_start",
    },
    "bertje": {  # wietsedv/bertje pretraining/run-pretraining.sh, create-pretrain-data.py
        "sources.main.passages.length": 512, "exercise.0.pair.right": 1, "exercise.2.mask.unit": "token",
        "exercise.2.mask.most": 20, "training.batch": 256, "training.steps": 1_000_000, "training.rate.linear.peak": 1e-4,
        "training.rate.linear.warmup_steps": 10_000, "schedule": [],
    },
    "camembert": {  # fairseq mask_tokens_dataset.py
        "exercise.1.mask.of": "words", "exercise.1.mask.spare": "none", "exercise.1.mask.rounding": "stochastic",
        "exercise.2.corrupt.per": "word",
    },
    "deberta-base": {"exercise.1.split_words.pieces": ["unicode"]},  # microsoft/DeBERTa spm_tokenizer.py, part_of_whole_word
    "electra-base": {  # google-research/electra build_pretraining_dataset.py, run_pretraining.py
        "exercise.0.pair.cut": "half", "exercise.0.pair.trim": "end", "sources.main.passages.short_by": "passage",
        "exercise.2.mask.rounding": "replacement",  # pretrain/pretrain_helpers.py, mask
    },
    "modern": {  # AnswerDotAI/ModernBERT src/sequence_packer.py, mlm_masking: a draw for every position, special ones included
        "exercise.1.mask.rounding": "independent", "exercise.1.mask.spare": "none",
    },
    "electra-large": {  # google-research/electra configure_pretraining.py
        "exercise.2.mask.rate": 0.25, "training.batch": 2048, "networks.generator.transformer.width": 256,
        "networks.generator.transformer.layers": 24, "networks.generator.transformer.heads": 4,
    },
    "roberta-wwm-ext-large": {  # README of ymcui/Chinese-BERT-wwm
        "training.batch": 512, "training.steps": 2_000_000, "schedule": [],
    },
    "spanbert-base": {  # an author in issue 6 of facebookresearch/SpanBERT
        "training.batch": 8 * 256, "training.steps": 2_400_000 // 8, "training.rate.linear.peak": 5e-4,
    },
    "ib-bert": {  # google-research/google-research mobilebert/modeling.py, gelu; README.md, the command; optimization.py:27
        "training.batch": 4096, "training.steps": 500_000,  # the paper, §4.2
        "networks.main.mobile_transformer.feed_forward.plain.activation": "gelu_tanh", "exercise.2.mask.most": 20,
        "training.rate.linear.floor": 1.5e-7,  # end_lr_rate is 0.0001
    },
    "unilm": {  # microsoft/unilm unilm-v1/src/pytorch_pretrained_bert/modeling.py:226, 379, 419, 647, 534
        "networks.main.transformer.norm.post.epsilon": 1e-5,
        "networks.main.transformer.initial.normal.residual": "scaled_by_depth",
        "mixture.left_to_right.passes.0.objectives.0.token_prediction.norm_epsilon": 1e-5,
    },
    "ernie": {  # PaddlePaddle/ERNIE batching.py, pretrain_args.py, model/ernie.py
        "networks.main.transformer.norm.post.epsilon": 1e-5, "training.steps": 1_000_000,
        "training.rate.linear.warmup_steps": 5000, "training.rate.linear.decay": "from_start",  # optimization.py
    },
    "ernie-thu": {  # thunlp/ERNIE code/run_pretrain.py, create_instances.py, ernie_base/ernie_config.json
        "networks.main.knowledge_fusion.mix_at": 5, "networks.main.knowledge_fusion.entities.heads": 4,
        "sources.main.passages.length": 256, "exercise.2.mask.most": 40, "exercise.7.corrupt_items.other": 0.05,
        "exercise.7.corrupt_items.drop": 0.15, "training.epochs": 1, "training.rate.constant.peak": 5e-5,
    },
    "knowbert": {  # allenai/kb training_config/pretraining/knowbert_wiki.jsonnet, kb/bert_pretraining_reader.py
        "networks.main.linked.linkers.surface.after_layer": 9, "networks.main.linked.linkers.surface.width": 300,
        "networks.main.linked.linkers.surface.inner": 1024, "exercise.3.mask.most": 20, "training.steps": 500_000,
        "training.batch": 32,
        "training.rate.slanted_triangular.peak": 1e-4, "training.rate.slanted_triangular.cut": 0.01,
    },
    "tinybert": {  # TinyBERT/pregenerate_training_data.py:161-162 with masked_lm_prob 0.0 (352), 182-194
        "exercise.2.mask.most": 1, "exercise.2.mask.rounding": "nearest", "exercise.3.corrupt.mask": 0.8,
        "exercise.3.corrupt.random": 0.1,
    },
    "ernie-2.0": {  # PaddlePaddle/ERNIE release/r2.0 optimization.py:79 (Paddle's Adam), 91-92, pretrain_args.py:39
        "training.optimizer.adamw.epsilon": 1e-8, "training.optimizer.adamw.weight_decay": 0.01, "training.clip": 1.0,
    },
    "flaubert": {"texts.main.tokenizer.bpe.size": 68_729},  # the vocabulary released with getalp/Flaubert
    "robbert": {"training.optimizer.adamw.weight_decay": 0.1},  # model card of iPieter/RobBERT
    # sinovation/ZEN create_pre_train_data.py; examples/run_pre_train.py:393 with --fp16, apex's FusedAdam (eps=1e-8)
    "zen": {
        "sources.main.passages.distractor": "sentences", "training.optimizer.bert_adam.epsilon": 1e-8,
        "training.optimizer.bert_adam.weight_decay": 0.01, "training.clip": 1.0,
        "training.rate.linear.decay": "after_warmup",
    },
}


def at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value.get(key, [] if key == "schedule" else None)
    return value


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_recipe_has_its_authors_values(name: str) -> None:
    canonical = load_recipe(name).canonical()
    assert {path: at(canonical, path) for path in PUBLISHED[name]} == PUBLISHED[name]


def test_both_runs_of_chinese_bert_warm_up_and_fall_to_zero() -> None:
    """An author in issue 106 of ymcui/Chinese-BERT-wwm: 10k steps up to 1e-4, 90k down, for each run of 100k steps."""
    rate = build_part(load_recipe("bert-wwm-zh").training.rate)
    at = [rate(step / 200, 200_000) for step in (0, 5, 10, 55, 100, 105, 110, 155, 200)]
    assert at == pytest.approx([0, 5e-5, 9e-5, 4.5e-5, 0, 5e-5, 9e-5, 4.5e-5, 0], abs=1e-9)


def test_every_mask_of_ernie_is_a_coin_for_each_unit() -> None:
    entries = load_recipe("ernie").canonical()["mixture"].values()
    assert [entry["exercise"][2]["mask"]["rounding"] for entry in entries] == ["independent"] * 3


def test_electras_last_layer_begins_as_tensorflows_do() -> None:
    step = build_step(load_recipe("electra-small", size="tiny"), vocab_size=200, seed=0)
    weight = next(v for k, v in step.objectives.named_parameters() if k.endswith("output.weight") and "labelling" in k).detach()
    bound = (6 / (weight.shape[1] + 1)) ** 0.5
    assert 0.95 * bound < float(weight.abs().max()) <= bound and bound > 0.1  # all others stop at 0.04
    assert abs(float(weight.std()) - bound / 3**0.5) < 0.1 * bound
    assert torch.isfinite(weight).all()
