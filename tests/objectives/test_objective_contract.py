"""The contract of objectives: zero targets, ln V, sums over rows, finite differences, padding of targets."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.objectives import (
    Classify,
    HeadFromCheckpoint,
    Loss,
    classify,
    joined_prediction,
    label_prediction,
    relation_classification,
    relation_prediction,
    sampled_prediction,
    token_labelling,
    token_prediction,
)
from cloze.objectives import cross_entropy as module
from cloze.objectives.cross_entropy import cross_entropy_sum, vocabulary_loss
from cloze.objectives.tokens.token_prediction import TokenPrediction
from cloze.objectives.transforms import Gelu
from cloze.recipe import parts

WIDTH, VOCABULARY = 8, 23


def vocabulary(**changed: Any) -> Classify:
    table = nn.Embedding(VOCABULARY, WIDTH).double()
    nn.init.normal_(table.weight, std=0.02)
    arguments = {"transform": "gelu", "tie": True, "width": WIDTH, "vocab_size": VOCABULARY, "table": table, **changed}
    return token_prediction(**arguments).double()


MAKERS: dict[str, Callable[[], Classify]] = {
    "token_prediction": vocabulary,
    "smoothed": lambda: vocabulary(smoothing=0.1),
    "with z-loss": lambda: vocabulary(z_loss=0.5),
    "scaled": lambda: vocabulary(transform=None, bias=False, scale=True),
    "widened": lambda: vocabulary(tie="widened", table=nn.Embedding(VOCABULARY, 5)),
    "untied": lambda: vocabulary(transform=None, tie=False, bias=False),
    "joined_prediction": lambda: joined_prediction(
        transform="gelu", width=WIDTH, vocab_size=1, table=nn.Embedding(VOCABULARY, WIDTH).double()
    ).double(),
    "relation_prediction": lambda: relation_prediction(classes=3, width=WIDTH, clock=Clock()).double(),
    "token_labelling": lambda: token_labelling(width=WIDTH, clock=Clock()).double(),
    "token_labelling of three": lambda: token_labelling(classes=3, set="main", width=WIDTH, clock=Clock()).double(),
    "classify": lambda: classify(classes=4, transform=Gelu(), width=WIDTH, clock=Clock()).double(),
    "normed": lambda: classify(
        classes=4, transform=Gelu(norm_epsilon=1e-5, biases=False), width=WIDTH, clock=Clock()
    ).double(),
    "label_prediction": lambda: label_prediction(
        table="polarity", set="main", width=WIDTH, vector_tables={"polarity": nn.Embedding(4, WIDTH).double()}
    ).double(),
    "relation_classification": lambda: relation_classification(
        relations=["of", "in", "by"], dropout=0.0, width=WIDTH, clock=Clock()
    ).double(),
    "sampled_prediction": lambda: sampled_prediction(
        frequent=VOCABULARY, width=WIDTH, vocab_size=VOCABULARY, clock=Clock()
    ).double(),
}
#: All other objectives, with the file that tests what they compute.
IN_OTHER_FILES = {
    "activation_penalty": "objectives/test_activation_penalty.py", "adaptive_prediction": "objectives/test_adaptive.py",
    "candidate_prediction": "objectives/test_candidate_prediction.py",
    "arcs": "objectives/test_arcs.py", "choose": "tasks/test_multiple_choice.py",
    "classify_span": "tasks/test_span_classification.py", "contrast": "objectives/test_contrast.py",
    "contrast_items": "objectives/test_items.py", "contrast_pairs": "objectives/test_contrast_pairs.py",
    "cooccurrence_regression": "objectives/test_output_words.py", "coreference": "tasks/test_coreference.py",
    "crf_labelling": "objectives/test_chain.py",
    "embedding": "tasks/test_retrieval.py", "entity_prediction": "objectives/test_entity_prediction.py",
    "factorisation": "engines/test_svd.py",
    "hierarchical_softmax": "objectives/test_output_words.py", "linear_classification": "objectives/test_class_weights.py",
    "latent_answer": "objectives/test_evidence.py",
    "joint_classification": "tasks/test_picture_pairs.py", "paired_attention": "tasks/test_picture_pairs.py",
    "judge": "tasks/test_visual_choices.py",
    "link_choice": "objectives/test_linking.py", "linking": "objectives/test_linking.py", "listwise": "tasks/test_reranking.py",
    "margin": "objectives/test_margin.py",
    "match_attention": "objectives/test_match.py", "match_hidden": "objectives/test_match.py",
    "match_parameters": "objectives/test_match_parameters.py", "match_scores": "objectives/test_match.py",
    "mil_nce": "objectives/test_mil_nce.py",
    "mixed_classification": "objectives/test_mixed.py", "negative_sampling": "objectives/test_output_words.py",
    "outside": "exercises/test_replace_mentions.py", "pooled_classification": "objectives/test_pooled.py",
    "pull": "objectives/test_pull.py", "reconstruct": "objectives/test_reconstruct.py",
    "regress": "tasks/test_regression.py", "sense_prediction": "recipes/test_sensebert.py",
    "sequence_labelling": "objectives/test_sequence_labelling.py", "several": "tasks/test_multi_label.py",
    "soft_classification": "tasks/test_soft_labels.py", "span_boundary": "objectives/test_span_boundary.py",
    "span_extraction": "tasks/test_question_answering.py", "stochastic_answer": "objectives/test_stochastic_answer.py",
    "transport": "objectives/test_items.py", "triple_contrast": "objectives/test_triple_contrast.py",
}


def example(objective: Classify, rows: int, answers: int, seed: int = 0) -> tuple[dict[str, Tensor], Batch]:
    """States and a batch whose targets stand at random positions."""
    generator = torch.Generator().manual_seed(seed)
    reading = objective.reads[0]
    shape = (rows, WIDTH) if reading == "summary" else (rows, 5, WIDTH)
    state = torch.randn(shape, dtype=torch.double, generator=generator)
    positions = torch.randint(0, state[..., 0].numel(), (answers,), generator=generator)
    targets = torch.randint(0, 2, (answers,), generator=generator)
    return {reading: state}, Batch({objective.targets_field: targets, objective.positions_field: positions})


class Halved(TokenPrediction):
    """A subclass whose own loss is half that of its base."""

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        loss = super().loss(scores, batch)
        return loss._replace(total=loss.total / 2)


class Cooled(TokenPrediction):
    """A subclass whose own scores are half those of its base."""

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return super().scores(states, batch) / 2


def test_a_subclass_with_a_vocabulary_computes_the_loss_that_it_overrides() -> None:
    whole = vocabulary()
    states, batch = example(whole, rows=2, answers=4)
    halved, cooled = Halved(whole.head, set="main"), Cooled(whole.head, set="main")
    torch.testing.assert_close(halved(states, batch).total, whole(states, batch).total / 2)
    expected = whole.loss(whole.scores(states, batch) / 2, batch)
    torch.testing.assert_close(cooled(states, batch).total, expected.total)


def test_every_registered_objective_is_tested_here_or_in_a_file_that_is_named_here() -> None:
    classes = {name: parts.class_of("objective", name) for name in parts.names("objective")}
    registered = {name for name, kind in classes.items() if not issubclass(kind, HeadFromCheckpoint)}
    missing = sorted(registered - MAKERS.keys() - IN_OTHER_FILES.keys())
    assert missing == [], "Add a line to MAKERS for each of these objectives, or its file of tests to IN_OTHER_FILES."
    for name, file in IN_OTHER_FILES.items():
        tests = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
        assert f"{name}(" in tests or f"{classes[name].__name__}(" in tests or re.search(rf"\b{name}\b", tests), name


@pytest.mark.parametrize("name", MAKERS)
def test_zero_answers_give_a_zero_connected_to_every_parameter(name: str) -> None:
    objective = MAKERS[name]()
    states, batch = example(objective, rows=2, answers=0)
    states = {key: value.requires_grad_() for key, value in states.items()}
    loss = objective(states, batch)
    assert loss.total.item() == 0 and float(objective.count(batch)) == 0
    loss.total.backward()
    for parameter in objective.parameters():
        assert parameter.grad is not None and parameter.grad.eq(0).all()
    assert states[objective.reads[0]].grad is not None


@pytest.mark.parametrize("name", MAKERS)
def test_the_loss_of_two_batches_is_the_sum_of_their_losses(name: str) -> None:
    objective = MAKERS[name]()
    (first, one), (second, two) = (example(objective, rows=3, answers=4, seed=seed) for seed in (1, 2))
    key = objective.reads[0]
    shift = first[key][..., 0].numel()
    joined = Batch(
        {
            objective.targets_field: torch.cat([one[objective.targets_field], two[objective.targets_field]]),
            objective.positions_field: torch.cat([one[objective.positions_field], two[objective.positions_field] + shift]),
        }
    )
    both = objective({key: torch.cat([first[key], second[key]])}, joined)
    parts = [objective(first, one), objective(second, two)]
    torch.testing.assert_close(both.total, parts[0].total + parts[1].total)
    assert both.metrics["correct"] == parts[0].metrics["correct"] + parts[1].metrics["correct"]


@pytest.mark.parametrize("name", MAKERS)
def test_answers_of_weight_zero_do_not_count(name: str) -> None:
    objective = MAKERS[name]()
    states, batch = example(objective, rows=3, answers=6)
    weights = torch.tensor([1.0, 1, 1, 1, 0, 0])
    weighed = Batch({**batch, objective.weights_field: weights})
    fewer = Batch({field: value[:4] for field, value in batch.items()})
    assert float(objective.count(weighed)) == 4
    torch.testing.assert_close(objective(states, weighed).total, objective(states, fewer).total)
    assert objective(states, weighed).metrics["correct"] == objective(states, fewer).metrics["correct"]


@pytest.mark.parametrize("name", MAKERS)
def test_gradients_agree_with_finite_differences(name: str) -> None:
    objective = MAKERS[name]()
    states, batch = example(objective, rows=2, answers=3)
    key = objective.reads[0]
    names = [n for n, _ in objective.named_parameters()]

    def run(state: Tensor, *values: Tensor) -> Tensor:
        loss: Loss = torch.func.functional_call(objective, dict(zip(names, values, strict=True)), ({key: state}, batch))
        return loss.total

    values = [p.detach().clone().requires_grad_() for p in objective.parameters()]
    assert torch.autograd.gradcheck(run, (states[key].requires_grad_(), *values))


@pytest.mark.parametrize("name", MAKERS)
def test_the_loss_is_that_of_its_scores(name: str) -> None:
    objective = MAKERS[name]()
    states, batch = example(objective, rows=3, answers=5)
    direct, by_scores = objective(states, batch), objective.loss(objective.scores(states, batch), batch)
    torch.testing.assert_close(direct.total, by_scores.total)
    assert direct.metrics["correct"] == by_scores.metrics["correct"]


def test_of_two_labels_the_one_whose_score_has_its_sign_is_right() -> None:
    objective = MAKERS["token_labelling"]()
    batch = Batch({objective.targets_field: torch.tensor([1, 1, 0, 0, 0]), objective.positions_field: torch.arange(5)})
    loss = objective.loss(torch.tensor([2.0, -1.0, -3.0, 0.5, -0.5], dtype=torch.double), batch)
    assert loss.metrics["correct"] == 3


@pytest.mark.parametrize("size", [1000, 8000])
def test_token_prediction_starts_near_ln_v(size: int) -> None:
    torch.manual_seed(0)
    table = nn.Embedding(size, 64)
    nn.init.trunc_normal_(table.weight, std=0.02, a=-0.04, b=0.04)
    objective = token_prediction(transform="gelu", tie=True, width=64, vocab_size=size, table=table)
    batch = Batch({"targets/main": torch.randint(0, size, (200,)), "positions/main": torch.arange(200)})
    total = objective({"hidden": torch.randn(1, 200, 64)}, batch).total
    assert float(total.detach()) / 200 == pytest.approx(math.log(size), rel=0.03)


def test_rows_that_begin_by_what_they_read_give_scores_of_deviation_1() -> None:
    """The output of t5x begins by `variance_scaling(1, "fan_in", "truncated_normal")`: 1/√D after the cut at two deviations."""
    torch.manual_seed(0)
    weight = token_prediction(width=64, vocab_size=4000, initial="fan_in").head.weight.detach()
    assert float(weight.std()) == pytest.approx(64**-0.5, rel=0.01)
    assert float(weight.abs().max()) == pytest.approx(2 * 64**-0.5 / 0.8796, rel=0.001)
    with pytest.raises(RecipeError, match=r"initial: fan_in is for output rows of its own; with tie: true leave it out"):
        token_prediction(width=64, vocab_size=9, initial="fan_in", tie=True, table=nn.Embedding(9, 64))


def test_a_tied_table_gets_the_gradient_and_is_not_stored_twice() -> None:
    table = nn.Embedding(VOCABULARY, WIDTH)
    objective = token_prediction(transform="gelu", tie=True, width=WIDTH, vocab_size=VOCABULARY, table=table)
    assert set(objective.state_dict()) == {
        "head.dense.weight", "head.dense.bias", "head.norm.weight", "head.norm.bias", "head.bias"
    }
    batch = Batch({"targets/main": torch.tensor([1]), "positions/main": torch.tensor([2])})
    objective({"hidden": torch.randn(1, 3, WIDTH)}, batch).total.backward()
    assert table.weight.grad is not None and table.weight.grad.abs().sum() > 0


def test_a_narrow_table_is_reached_through_the_transform() -> None:
    table = nn.Embedding(VOCABULARY, 4)
    objective = token_prediction(transform="gelu", tie=True, width=WIDTH, vocab_size=VOCABULARY, table=table)
    assert objective.head.dense.weight.shape == (4, WIDTH)
    with pytest.raises(ValueError, match="without a transform"):
        token_prediction(tie=True, width=WIDTH, vocab_size=VOCABULARY, table=table)


def test_a_narrow_table_is_widened_by_numbers_of_the_head() -> None:
    table = nn.Embedding(VOCABULARY, 5)
    objective = token_prediction(tie="widened", bias=False, width=WIDTH, vocab_size=VOCABULARY, table=table)
    assert set(objective.state_dict()) == {"head.extra"} and objective.head.extra.shape == (VOCABULARY, WIDTH - 5)
    assert 0 < objective.head.extra.abs().max() <= 0.04
    x = torch.randn(3, WIDTH)
    torch.testing.assert_close(objective.head(x), x[:, :5] @ table.weight.T + x[:, 5:] @ objective.head.extra.T)
    as_wide = token_prediction(tie="widened", width=5, vocab_size=VOCABULARY, table=table)
    assert as_wide.head.extra is None and as_wide.head.weight is table.weight


def test_heads_have_the_names_that_interop_relies_on() -> None:
    assert set(vocabulary(transform=None, tie=False, bias=False).state_dict()) == {"head.output.weight"}
    relation = relation_prediction(width=WIDTH, clock=Clock())
    assert set(relation.state_dict()) == {f"head.{n}.{k}" for n in ("pool", "output") for k in ("weight", "bias")}
    labels = token_labelling(width=WIDTH, clock=Clock())
    assert labels.head.output.weight.shape == (1, WIDTH) and labels.head.dense.weight.shape == (WIDTH, WIDTH)


def test_labelling_without_places_asks_every_position_that_is_not_padding() -> None:
    objective = token_labelling(width=WIDTH, clock=Clock()).double()
    state = torch.randn(2, 4, WIDTH, dtype=torch.double)
    tokens, block = torch.zeros(2, 4, dtype=torch.long), torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    batch = Batch({"tokens": tokens, "block": block, "targets/replaced": torch.tensor([0, 1, 0, 1, 1, 0, 1, 1])})
    asked = torch.tensor([0, 1, 2, 4, 5])
    alone = Batch({"targets/replaced": batch["targets/replaced"][asked], "positions/replaced": asked})
    assert float(objective.count(Batch({"tokens": tokens, "block": block}))) == 5  # known before the answers are made
    torch.testing.assert_close(objective({"hidden": state}, batch).total, objective({"hidden": state}, alone).total)
    whole = Batch({"tokens": tokens, "targets/replaced": batch["targets/replaced"]})
    assert float(objective.count(whole)) == 8


def test_blocks_of_scores_give_the_same_loss_and_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    rows = torch.randn(11, 5, dtype=torch.double, requires_grad=True)
    table = torch.randn(9, 5, dtype=torch.double, requires_grad=True)
    bias = torch.randn(9, dtype=torch.double, requires_grad=True)
    targets, weights = torch.randint(0, 9, (11,)), torch.rand(11, dtype=torch.double)
    plain = (torch.nn.functional.cross_entropy(rows @ table.t() + bias, targets, reduction="none") * weights).sum()
    expected = torch.autograd.grad(plain, (rows, table, bias))
    for held, wide in ((1 << 20, 1 << 20), (40, 20), (1, 1)):
        monkeypatch.setattr(module, "_SCORES_HELD", held)
        monkeypatch.setattr(module, "_SCORES_WIDE", wide)
        total, _ = vocabulary_loss(rows, table, bias, targets, weights)
        torch.testing.assert_close(total, plain)
        torch.testing.assert_close(torch.autograd.grad(total * 0.5, (rows, table, bias)), tuple(g * 0.5 for g in expected))


def test_rows_that_even_the_number_of_rows_out_count_for_nothing() -> None:
    torch.manual_seed(0)
    for count in (511, 512, 513):
        rows = torch.randn(count, 5, dtype=torch.double, requires_grad=True)
        table = torch.randn(9, 5, dtype=torch.double, requires_grad=True)
        bias, targets = torch.randn(9, dtype=torch.double, requires_grad=True), torch.randint(0, 9, (count,))
        plain = torch.nn.functional.cross_entropy(rows @ table.t() + bias, targets, reduction="sum")
        total, right = vocabulary_loss(rows, table, bias, targets, None)
        torch.testing.assert_close(total, plain)
        assert right == ((rows @ table.t() + bias).argmax(1) == targets).sum()
        given = (rows, table, bias)
        torch.testing.assert_close(torch.autograd.grad(total, given), torch.autograd.grad(plain, given))


@pytest.mark.parametrize("smoothing", [0.1, 0.5])
def test_smoothing_gives_its_share_of_an_answer_to_all_classes_alike(smoothing: float) -> None:
    torch.manual_seed(0)
    rows = torch.randn(7, 5, dtype=torch.double, requires_grad=True)
    table = torch.randn(9, 5, dtype=torch.double, requires_grad=True)
    targets, weights = torch.randint(0, 9, (7,)), torch.rand(7, dtype=torch.double)
    losses = torch.nn.functional.cross_entropy(rows @ table.t(), targets, reduction="none", label_smoothing=smoothing)
    expected = torch.autograd.grad((losses * weights).sum(), (rows, table))
    total, _ = vocabulary_loss(rows, table, None, targets, weights, smoothing)
    torch.testing.assert_close(total, (losses * weights).sum())
    torch.testing.assert_close(torch.autograd.grad(total, (rows, table)), expected)
    with pytest.raises(RecipeError, match="smoothing"):
        vocabulary(smoothing=1.0)


def test_z_loss_weighs_the_squared_log_sum_in_training_and_not_in_held_out_losses() -> None:
    penalised, plain = (vocabulary(z_loss=weight) for weight in (0.5, 0.0))
    plain.load_state_dict(penalised.state_dict())
    plain.head._tied = penalised.head._tied
    states, batch = example(plain, rows=2, answers=4)
    with torch.no_grad():
        log_sum = plain.scores(states, batch).logsumexp(1)
        expected = plain(states, batch).total + 0.5 * log_sum.square().sum()
        torch.testing.assert_close(penalised(states, batch).total, expected)
        assert penalised.eval()(states, batch).total == plain.eval()(states, batch).total
    with pytest.raises(RecipeError, match="z_loss: -1.0 is negative"):
        vocabulary(z_loss=-1.0)


def test_scaled_rows_meet_the_table_divided_by_the_root_of_its_width() -> None:
    plain, scaled = (vocabulary(transform=None, bias=False, scale=scale) for scale in (False, True))
    states, batch = example(plain, rows=2, answers=4)
    torch.testing.assert_close(
        scaled.head(scaled.rows(states, batch)),
        states["hidden"].flatten(0, 1)[batch["positions/main"]] @ scaled.head.weight.t() * WIDTH**-0.5,
    )


def test_a_tie_of_scores_is_not_a_right_answer() -> None:
    scores = torch.tensor([[1.0, 1.0, 0.0], [2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    _, right = cross_entropy_sum(scores, torch.tensor([0, 0, 0]), None)
    assert right == 1


def test_bfloat16_scores_are_summed_in_float32() -> None:
    torch.manual_seed(0)
    scores = torch.randn(64, 500).bfloat16()
    targets = torch.randint(0, 500, (64,))
    total, _ = cross_entropy_sum(scores, targets, None)
    exact = torch.nn.functional.cross_entropy(scores.double(), targets, reduction="sum")
    assert total.dtype == torch.float32 and float(total) == pytest.approx(float(exact), rel=1e-6)
