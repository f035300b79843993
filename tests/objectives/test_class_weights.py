"""Weights of classes: the loss and gradients of torch's, the weights of scikit-learn's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cloze.batch import Batch
from cloze.batching.collate import pad_targets
from cloze.errors import RecipeError, TaskError
from cloze.networks.clock import Clock
from cloze.objectives.classify import classify
from cloze.objectives.labels.classify_span import ClassifySpan
from cloze.objectives.labels.head_from_checkpoint import HeadFacts, TextClassification, WordLabelling
from cloze.objectives.labels.relation_prediction import relation_prediction
from cloze.objectives.labels.sequence_labelling import sequence_labelling
from cloze.objectives.objective import balanced
from cloze.objectives.pooled import pooled_classification
from cloze.objectives.static.linear_classification import LinearClassification
from cloze.recipe.load import load_recipe
from cloze.runs.data_facts import _complete_objective
from cloze.training.distribution import Ranks
from cloze.training.meter import Meter, StepTotals

WIDTH, ROWS, LENGTH = 6, 5, 4
WEIGHTS = [0.5, 2.0, 4.0]
LABELS = torch.tensor([0, 1, 2, 0, 1])
GIVEN: dict[str, Any] = {"classes": 3, "class_weights": WEIGHTS, "width": WIDTH, "clock": Clock()}
OBJECTIVES = {
    "relation_prediction": lambda: relation_prediction(set="label", pool=False, **GIVEN),
    "classify": lambda: classify(set="label", reading="mean", **GIVEN),
    "pooled_classification": lambda: pooled_classification(pool="mean", **GIVEN),
    "sequence_labelling": lambda: sequence_labelling(vocab_size=9, **GIVEN),
    "classify_span": lambda: ClassifySpan(**GIVEN),
}


def batch(name: str) -> Batch:
    rows = torch.arange(ROWS)
    places = {"sequence_labelling": rows * LENGTH, "classify_span": torch.stack([rows * LENGTH, rows * LENGTH + 1], 1)}
    block = torch.ones(ROWS, LENGTH, dtype=torch.long)
    return Batch({"targets/label": LABELS, "positions/label": places.get(name, rows), "block": block})


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_weighted_loss_and_its_gradient_are_those_of_torch(name: str) -> None:
    torch.manual_seed(1)
    objective = OBJECTIVES[name]()
    scores = torch.randn(ROWS, 3, requires_grad=True)
    found = objective.loss(scores, batch(name))
    (found.total / objective.count(batch(name))).backward()
    mine, scores.grad = scores.grad, None
    loss = nn.CrossEntropyLoss(weight=torch.tensor(WEIGHTS))(scores, LABELS)
    loss.backward()
    assert objective.count(batch(name)) == 9.0  # the sum of the weights
    torch.testing.assert_close(found.total.detach() / 9.0, loss.detach())
    torch.testing.assert_close(mine, scores.grad)


ALONE = Ranks(0, 1, torch.device("cpu"))


class Two(Ranks):
    """Two processes that have the same."""

    def add(self, numbers: Sequence[float]) -> list[float]:
        return [2 * number for number in numbers]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_accuracy_of_a_run_counts_targets_and_not_the_weights_of_their_classes(name: str) -> None:
    objective = OBJECTIVES[name]()
    scores = torch.nn.functional.one_hot(torch.tensor([0, 0, 2, 1, 1]), 3).float()  # three of five are right
    meter = Meter(single=True)
    for _ in range(2):
        meter.add_losses({"label": objective.loss(scores, batch(name))})
        meter.add_step(1, None, StepTotals({"label": 9.0}), {"label": 1.0})
    assert meter.means(ALONE)["metrics"] == {"label.correct": pytest.approx(3 / 5)}
    two = Two(0, 2, torch.device("cpu"))
    meter.add_ranks(two)
    means = meter.means(two)
    assert means["metrics"] == {"label.correct": pytest.approx(3 / 5)}
    assert means["loss"] == pytest.approx(objective.loss(scores, batch(name)).total.item() / 9)
    ignored = Batch({**batch(name), "weights/label": torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0])})
    loss = objective.loss(scores, ignored)
    assert (float(loss.metrics["correct"]), float(loss.counts["correct"])) == (1.0, 2.0)


def test_with_two_classes_and_one_output_the_accuracy_counts_targets_too() -> None:
    objective = classify(set="label", classes=2, width=WIDTH, clock=Clock(), class_weights=[1.0, 3.0])
    texts = Batch({"targets/label": torch.tensor([0, 1, 1, 0]), "positions/label": torch.arange(4)})
    loss = objective.loss(torch.tensor([-1.0, 1.0, -1.0, 1.0]), texts)
    assert (float(loss.metrics["correct"]), float(loss.counts["correct"])) == (2.0, 4.0)
    assert float(loss.metrics["positive"]) / float(objective.count(texts)) == 6 / 8, "the constant prediction has weights"


def test_the_classifier_of_fasttext_weighs_the_step_of_every_text() -> None:
    objective = LinearClassification(classes=3, class_weights=WEIGHTS, width=WIDTH)
    scores = torch.randn(ROWS, 3)
    right = Batch({"targets/label": LABELS, "positions/label": torch.arange(ROWS)})
    each = nn.CrossEntropyLoss(weight=torch.tensor(WEIGHTS), reduction="sum")(scores, LABELS)
    torch.testing.assert_close(objective.loss(scores, right).total, each)
    with pytest.raises(RecipeError, match="class_weights are for texts of one class each"):
        LinearClassification(classes=3, class_weights="balanced", several=True, width=WIDTH)


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    compute_class_weight = pytest.importorskip("sklearn.utils.class_weight").compute_class_weight
    labels = np.repeat([0, 1, 2], [7, 2, 1])
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert balanced(np.bincount(labels).tolist()) == pytest.approx(expected.tolist())
    assert balanced([6, 2]) == [8 / 12, 2.0]


def test_balanced_weights_have_no_effect_until_the_labels_are_known() -> None:
    objective = relation_prediction(set="label", pool=False, **{**GIVEN, "class_weights": "balanced"})
    assert objective.count(batch("relation_prediction")) == 5.0


def test_the_weights_of_a_run_are_those_of_its_labels() -> None:
    recipe = load_recipe("fasttext-supervised", overrides=["objectives[0].class_weights=balanced"])
    (_, spec), known = next(iter(recipe.entries["main"].objectives())), {"label_counts": [6, 2], "classes": 2}
    assert _complete_objective(spec, known).part.arguments["class_weights"] == [8 / 12, 2.0]
    assert "class_weights" not in load_recipe("fasttext-supervised").canonical()["passes"][0]["objectives"][0]
    path = "objectives[0].linear_classification.class_weights"
    with pytest.raises(TaskError) as caught:
        _complete_objective(spec, {})
    assert str(caught.value) == f"{path}: the labelled text has no classes. Leave it out."
    three = load_recipe("fasttext-supervised", overrides=["objectives[0].class_weights=[1.0, 2.0, 3.0]"])
    with pytest.raises(TaskError) as caught:
        _complete_objective(next(iter(three.entries["main"].objectives()))[1], known)
    assert str(caught.value) == f"{path}: 3 numbers for 2 classes. Give one for each, or `balanced`."


def test_weights_reach_the_objective_that_the_checkpoint_asks_for() -> None:
    starts = [HeadFacts("open", 2), HeadFacts("left_to_right", 2), HeadFacts("open", 2, pooled=True)]
    made = [TextClassification(class_weights="balanced").resolve(start) for start in starts]
    assert [name for name, _ in made] == ["relation_prediction", "classify", "pooled_classification"]
    assert all(arguments["class_weights"] == "balanced" for _, arguments in made)
    assert WordLabelling(class_weights=[1.0]).resolve(starts[0])[1]["class_weights"] == [1.0]
    with pytest.raises(RecipeError, match="class_weights are for labels, `soft` is for probabilities"):
        TextClassification(class_weights="balanced", soft="kl_divergence")


@pytest.mark.parametrize("several", [False, True])
def test_targets_that_fill_a_batch_up_are_no_texts(several: bool) -> None:
    torch.manual_seed(0)
    objective = LinearClassification(classes=3, width=4, several=several)
    torch.nn.init.normal_(objective.head.weight)
    values = {"values/label": np.eye(3, dtype=np.float32)[[1, 2, 2]]} if several else {"targets/label": np.array([1, 2, 2])}
    arrays, states = {**values, "positions/label": np.arange(3)}, {"summary": torch.randn(3, 4)}
    exact, padded = (
        Batch({name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in filled.items()})
        for filled in (arrays, pad_targets(arrays, 8))
    )
    assert float(objective.count(padded)) == float(objective.count(exact)) == 3
    losses = [objective(states, batch) for batch in (exact, padded)]
    torch.testing.assert_close(losses[1].total, losses[0].total)
    torch.testing.assert_close(losses[1].metrics["correct"], losses[0].metrics["correct"])
