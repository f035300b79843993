"""How named recipes train, where their authors' code does something that its paper does not say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from cloze.checkpoint.build import build_part, build_step
from cloze.recipe.load import load_recipe


def optimizer(name: str, module: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a recipe over a module, at a rate of 0.1."""
    spec: Any = build_part(load_recipe(name).training.optimizer)
    made: torch.optim.Optimizer = spec.build(module.named_parameters())
    for group in made.param_groups:
        group["lr"] = 0.1
    return made


@pytest.mark.parametrize(
    "name",
    ["roberta", "roberta-doc-sentences", "roberta-segment-pair", "roberta-sentence-pair", "roberta-layerdrop", "camembert",
     "robbert", "spanbert", "bart-base", "bart-large"],
)
def test_what_was_trained_in_fairseq_decays_biases_and_norms_too(name: str) -> None:
    norm = nn.LayerNorm(2)
    made = optimizer(name, norm)
    for parameter in norm.parameters():
        nn.init.constant_(parameter, 3.0)
        parameter.grad = torch.zeros_like(parameter)
    made.step()
    decay = 0.1 if name == "robbert" else 0.01
    assert [value for p in norm.parameters() for value in p.tolist()] == pytest.approx([3.0 * (1 - 0.1 * decay)] * 4)


def test_nezha_scales_the_step_of_a_bias_by_its_norm_but_never_by_more_than_ten() -> None:
    dense = nn.Linear(2, 1)
    with torch.no_grad():
        dense.weight.copy_(torch.tensor([[30.0, 40.0]]))
        dense.bias.fill_(2.0)
    made = optimizer("nezha", dense)
    dense.weight.grad, dense.bias.grad = torch.tensor([[1.0, 1.0]]), torch.tensor([1.0])
    made.step()  # bias-corrected, the first step is 1 for each weight, and 0.01 of a matrix's weights are added for its decay
    assert dense.bias.item() == pytest.approx(2.0 - 0.1 * 2.0 * 1.0, rel=1e-5)
    assert dense.weight[0].tolist() == pytest.approx([30.0 - 0.1 * 10 * 1.3, 40.0 - 0.1 * 10 * 1.4], rel=1e-5)


def test_character_bert_predicts_the_words_it_masks_through_a_head_like_berts() -> None:
    recipe = load_recipe("character-bert", size="tiny")
    entry = recipe.entries["main"]
    head = next(objective.part for _, objective in entry.objectives())
    limits = {e.part.arguments["frequent"] for e in entry.exercise if e.part.name in ("mask", "corrupt")}
    assert limits == {head.arguments["frequent"]} == {100_000}
    step = build_step(recipe, vocab_size=100_010, device="meta")
    shapes = {name: tuple(p.shape) for name, p in step.objectives["sampled_prediction"].named_parameters()}
    width = step.networks["main"].width
    assert shapes == {
        "head.dense.weight": (width, width), "head.dense.bias": (width,),
        "head.norm.weight": (width,), "head.norm.bias": (width,),
        "head.bias": (100_000,), "head.output.weight": (100_000, width),
    }


def test_character_bert_trains_in_two_runs_with_a_rate_each() -> None:
    training = load_recipe("character-bert").training
    rate: Any = build_part(training.rate)
    at = 7038 / 8601
    assert rate(at * 0.2844) == pytest.approx(6e-3 * (1 - 0.2843) ** 0.5, rel=1e-3)
    assert rate(at * 0.2842) == pytest.approx(6e-3, rel=1e-3)
    assert rate(at + 1e-6) < 1e-4 and rate(at + (1 - at) * 0.1279) == pytest.approx(4e-3, rel=2e-3)
    assert rate(1.0) == 0.0


def test_the_head_of_modern_begins_as_in_its_authors_code() -> None:
    """AnswerDotAI/ModernBERT src/bert_layers/model.py:739, initialization.py:115: init_std, cut at two deviations."""
    step = build_step(load_recipe("modern", overrides=["network.layers=1", "text.tokenizer.size=300"]), vocab_size=300)
    weight = step.objectives["token_prediction"].get_parameter("head.dense.weight")
    assert float(weight.detach().std()) == pytest.approx(0.02 * 0.8796, rel=0.02)
    assert float(weight.detach().abs().max()) == pytest.approx(2 * 0.02, rel=0.01)


#: Recipes of authors whose heads begin by `normal_(0, 0.02)`, and their heads' weights that are not tied.
PLAIN = {
    "roberta": ["dense"], "camembert": ["dense"], "robbert": ["dense"],  # fairseq transformer_sentence_encoder.py:35
    "roberta-segment-pair": ["dense", "pool", "output"],
    "spanbert": ["dense", "join", "positions", "dense"],  # facebookresearch/SpanBERT fairseq/models/pair_bert.py:455
    "unilm": ["dense", "pool", "output"],  # microsoft/unilm modeling.py:647
    "character-bert": ["dense", "output", "pool", "output"],  # transformers' BertPreTrainedModel
    "deberta-v3-small": ["dense", "dense", "output"],  # microsoft/DeBERTa DeBERTa/deberta/nnmodule.py:51
}


@pytest.mark.parametrize("name", PLAIN)
def test_heads_begin_with_weights_that_are_not_cut_where_the_authors_are_not(name: str) -> None:
    step = build_step(load_recipe(name, size="small"), vocab_size=300, seed=0)
    weights = {key: p.detach() for key, p in step.objectives.named_parameters() if key.endswith(".weight") and p.dim() > 1}
    assert sorted(key.split(".")[-2] for key in weights) == sorted(PLAIN[name])
    for weight in weights.values():
        assert float(weight.std()) == pytest.approx(0.02, rel=0.1)
        assert float(weight.abs().max()) > 0.04


def test_the_heads_of_univilm_that_predict_words_begin_with_weights_that_are_not_cut() -> None:
    """microsoft/UniVL modules/until_module.py:70, `init_weights`."""
    step = build_step(load_recipe("univilm", size="small"), vocab_size=300, seed=0)
    for head in ("token_prediction.head", "decoder.head"):
        assert float(step.objectives.get_parameter(f"{head}.dense.weight").detach().abs().max()) > 0.04


#: What the authors clip and divide is this many times the gradient of the mean; then their norm and their epsilon.
MULTIPLES = {
    # pretraining/fairseq/criterions/spanbert_loss.py:65 and trainer.py:239 both divide by the targets, 15 % of the 4,096 tokens
    "spanbert": (1 / (0.15 * 4096), 1.0, 1e-8), "spanbert-base": (1 / (0.15 * 4096), 1.0, 1e-8),
    "flaubert": (16.0, 5.0, 1e-6),  # xlm/trainer.py:247 adds, with --accumulate_gradients 16
    "uniter": (2.0, 5.0, 1e-6),  # pretrain.py:298 adds, with gradient_accumulation_steps 2
    # train_vqa.py:189 and train_vcr.py:240 add, too, with gradient_accumulation_steps 5
    "uniter_visual_question_answering": (5.0, 2.0, 1e-6), "uniter_multiple_choice": (5.0, 2.0, 1e-6),
}


@pytest.mark.parametrize("size", [1e-7, 1e-3, 1.0])  # of a gradient's numbers: below epsilon, usual, clipped
@pytest.mark.parametrize("name", MULTIPLES)
def test_an_update_is_that_of_the_multiple_of_the_gradient_that_the_authors_have(name: str, size: float) -> None:
    multiple, limit, epsilon = MULTIPLES[name]
    ours = load_recipe(name)
    theirs = load_recipe(name, overrides=[f"training.optimizer.epsilon={epsilon}", f"training.clip={limit}"])
    start, gradient = torch.randn(2, 30, 40, generator=torch.Generator().manual_seed(0))
    updates = []
    for recipe, scale in ((ours, 1.0), (theirs, multiple)):
        weight = nn.Parameter(start.clone())
        spec: Any = build_part(recipe.training.optimizer)
        made = spec.build([("weight", weight)])
        for step in (1, 2):
            weight.grad = step * scale * size * gradient
            nn.utils.clip_grad_norm_([weight], recipe.training.clip)
            for group in made.param_groups:
                group["lr"] = 0.1
            made.step()
        updates.append(weight.detach() - start)
    assert torch.allclose(*updates, rtol=0.002, atol=1e-5)


def test_modern_decays_weights_by_the_authors_share_at_the_peak() -> None:
    dense = nn.Linear(2, 2, bias=False)
    nn.init.ones_(dense.weight)
    made = optimizer("modern", dense)
    for group in made.param_groups:
        group["lr"] = 8e-4
    dense.weight.grad = torch.zeros_like(dense.weight)
    before = dense.weight.detach().double().clone()
    made.step()
    assert float((before - dense.weight.detach().double()).mean()) == pytest.approx(1e-5, rel=0.02)
