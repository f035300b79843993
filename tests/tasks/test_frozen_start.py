"""`training.new_heads: fitted`: new heads start as linear models of the frozen network's states, which training must beat."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.batch import Batch
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.train.finetune_output import print_result
from cloze.errors import RecipeError
from cloze.networks import Transformer
from cloze.networks.clock import Clock
from cloze.objectives.classify import classify
from cloze.objectives.labels.choice import choose
from cloze.objectives.labels.crf_labelling import crf_labelling
from cloze.objectives.labels.multi_label import several
from cloze.objectives.labels.regress import regress
from cloze.objectives.labels.relation_prediction import relation_prediction
from cloze.objectives.transforms import plain_transform, transformed
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.frozen_start import CENTRES, PENALTIES, Losses, ObjectiveReading, choose_penalty, fit_output, start_straight
from cloze.training.checkpoints.checkpoint import Checkpoints
from cloze.training.saving import Saver

Folder = Callable[..., Path]
STILL = ["corpus.length=24", "training.epochs=1", "training.rate.peak=1e-9", "training.batch=8"]


def tune(folder: Path, tables: Path, out: Path, *values: str, **how: Any) -> Any:
    return finetune(
        folder, train=[str(tables / "train.tsv")], dev=[str(tables / "dev.tsv")], out=out,
        overrides=["training.new_heads=fitted", *values], keep_checkpoints=True, **{"report": lambda line: None, **how},
    )


def pieces_of(states: torch.Tensor, fields: dict[str, torch.Tensor], size: int = 16) -> list[ObjectiveReading]:
    """Rows of summaries in pieces, with their targets or values."""
    pieces = []
    for start in range(0, len(states), size):
        part = states[start : start + size]
        batch = {name: field[start : start + size] for name, field in fields.items()}
        batch["positions/label"] = torch.arange(len(part))
        pieces.append(ObjectiveReading(Batch(batch, checked=True), {"summary": part.shape}, (part.double(),)))
    return pieces


@pytest.fixture(scope="module")
def blobs() -> tuple[torch.Tensor, torch.Tensor]:
    """Overlapping clouds of three classes, 240 rows in a random order."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(240) % 3
    centres = torch.randn(3, 6, generator=draw)
    return (centres[labels] + torch.randn(240, 6, generator=draw)).float(), labels


def test_dev_rows_are_read_once_for_the_head_and_its_score_and_once_for_the_metric_and_the_loss(
    folder: Folder, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_fits: None
) -> None:
    rows = {True: 0, False: 0}  # that were read without gradients, by whether dropout was on
    forward = Transformer.forward

    def counting(self: Transformer, **inputs: Any) -> Any:
        if not torch.is_grad_enabled() and len(inputs["tokens"]) > 1:  # a single text shows what the network attends to
            rows[self.training] += len(inputs["tokens"])
        return forward(self, **inputs)

    monkeypatch.setattr(Transformer, "forward", counting)
    tuned = tune(folder("bert"), tables, tmp_path / "out", *STILL)
    examples = tuned.task_json["examples"]
    assert rows == {True: 0, False: examples["train"] + 2 * examples["dev"]}


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5]])
def test_the_output_of_a_classifier_is_the_logistic_regression_of_scikit_learn(
    blobs: tuple[torch.Tensor, torch.Tensor], weights: list[float] | None
) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    states, labels = blobs
    objective = relation_prediction(classes=3, set="label", pool=False, class_weights=weights, width=6, clock=Clock())
    train, dev = (pieces_of(states[part], {"targets/label": labels[part]}) for part in (slice(0, 160), slice(160, 240)))
    penalty = fit_output(objective, train, dev)
    own = float(states[:160].double().var(0, correction=0).mean()) * penalty
    model = linear_model.LogisticRegression(
        C=1 / own, tol=1e-8, max_iter=2000, class_weight=None if weights is None else dict(enumerate(weights))
    ).fit(states[:160].double().numpy(), labels[:160].numpy())
    scores = objective.head.output(states).detach().double()
    np.testing.assert_allclose(scores.softmax(-1).numpy(), model.predict_proba(states.double().numpy()), atol=1e-4)


def test_the_output_of_a_regression_is_ridge_regression(blobs: tuple[torch.Tensor, torch.Tensor]) -> None:
    states, labels = blobs
    values = (states @ torch.arange(6.0) + labels)[:, None]
    objective = regress(width=6, clock=Clock())
    train, dev = (pieces_of(states[part], {"values/label": values[part]}) for part in (slice(0, 240), slice(0, 60)))
    penalty = fit_output(objective, train, dev)
    centred, targets = (states - states.mean(0)).double(), (values - values.mean()).double()
    own = 0.5 * penalty * centred.square().mean(0).mean()  # the loss has no factor of one half
    weight = torch.linalg.solve(centred.T @ centred + own * torch.eye(6), centred.T @ targets)
    torch.testing.assert_close(objective.head.output.weight.double(), weight.T, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(objective.head.output(states).mean(), values.mean(), rtol=1e-4, atol=1e-4)


def test_several_classes_choices_and_chains_are_fitted_by_their_own_losses(
    blobs: tuple[torch.Tensor, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloze.runs.frozen_start.PENALTIES", (30.0, 3.0))
    monkeypatch.setattr("cloze.runs.frozen_start.LAST_STEPS", 60)
    states, labels = blobs
    clock = Clock()
    yes = torch.nn.functional.one_hot(labels, 3).float()
    many = several(classes=3, width=6, clock=clock)
    fit_output(many, pieces_of(states, {"values/label": yes}), [])
    assert ((many.head.output(states) > 0) == (yes > 0)).float().mean() > 0.8

    right = (labels == 1).long()
    picked = choose(width=6, clock=clock)
    pieces = [
        piece._replace(batch=Batch({**piece.batch, "owner": torch.arange(15) // 3}, checked=True))
        for piece in pieces_of(states, {"targets/label": right}, size=15)
    ]
    fit_output(picked, pieces, [])
    best = picked.head.output(states).view(-1, 3).argmax(1)
    assert (best == right.view(-1, 3).argmax(1)).float().mean() > 0.75

    chain: Any = crf_labelling(classes=3, set="label", width=6, clock=clock)
    rows = Batch({"targets/label": labels, "positions/label": torch.arange(240), "tokens": torch.ones(20, 12)}, checked=True)
    fit_output(chain, [ObjectiveReading(rows, {"hidden": torch.Size((20, 12, 6))}, (states.view(20, 12, 6).double(),))] * 2, [])
    assert (chain.head.output(states).argmax(1) == labels).float().mean() > 0.8 and not chain.moves.any()


def test_the_penalty_has_the_lowest_loss_of_other_rows_while_the_training_rows_leave_something_to_learn() -> None:
    def chosen(*paths: list[tuple[float, float]]) -> int:
        return PENALTIES.index(choose_penalty([[Losses(*pair) for pair in path] for path in paths]))

    assert chosen([(0.8, 0.9), (0.6, 0.7), (0.5, 0.6), (0.4, 0.7), (0.35, 0.8)]) == 2
    assert chosen([(0.8, 0.9), (0.6, 0.7), (0.2, 0.6), (0.1, 0.5), (0.0, 0.4)]) == 1
    assert chosen([(0.2, 0.9), (0.1, 0.8), (0.0, 0.7)]) == 0
    assert chosen([(0.8, 0.9), (0.6, 0.7), (0.5, 0.8)], [(0.8, 0.8), (0.7, 0.7), (0.6, 0.5)]) == 2


@pytest.mark.parametrize("kind", sorted(CENTRES))
def test_the_first_map_starts_nearly_straight(kind: Any) -> None:
    states = 5.0 + 2.0 * torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
    head: Any = classify(width=8, transform=plain_transform(kind), clock=Clock()).head
    start_straight(head, [ObjectiveReading(Batch({}), {}, (states,))])
    read = head.first(states)
    assert read.std(correction=0).item() == pytest.approx(0.5, rel=0.05)
    assert torch.corrcoef(torch.stack([transformed(read, kind).flatten(), states.flatten()]))[0, 1] > 0.97
    torch.testing.assert_close(head.first.weight, head.first.weight[0, 0] * torch.eye(8))


@pytest.mark.parametrize("system", ["bert", "modern"])
def test_a_fitted_head_is_the_same_for_every_seed_and_kept_if_training_does_not_beat_it(
    folder: Folder, tables: Path, tmp_path: Path, system: str, capsys: pytest.CaptureFixture[str], short_fits: None
) -> None:
    lines: list[str] = []
    heads = []
    for seed in (1, 2):
        tuned = tune(folder(system), tables, tmp_path / str(seed), *STILL, seeds=(seed,), report=lines.append)
        standing = tuned.outcomes[seed].standing
        assert (standing.evaluation, standing.step, standing.evaluations) == (0, 0, 1)
        heads.append(load_checkpoint(tmp_path / str(seed)).heads["classification"].head)
    for name, tensor in heads[0].state_dict().items():
        assert torch.equal(heads[1].state_dict()[name], tensor)
    before = tuned.task_json["frozen_start"]
    assert tuned.task_json["evaluation"] == 0 and before == tuned.task_json["dev"] | before
    assert any(line.startswith("frozen start, network untouched  dev: accuracy ") for line in lines)
    assert any("classification: fitted to the frozen network (64 targets, penalty " in line for line in lines)
    print_result(tuned.task_json, tmp_path / "2", as_json=False)
    printed = capsys.readouterr().out
    assert "\nfrozen start: accuracy " in printed
    assert printed.endswith(": seed 2, frozen start: training for 1 epoch was not better\n")


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_from_the_same_head_again(
    folder: Folder, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_fits: None
) -> None:
    values = [*STILL, "training.rate.peak=1e-3"]
    tune(folder("electra"), tables, tmp_path / "whole", *values)
    with monkeypatch.context() as patch:
        patch.setattr(Saver, "save", lambda *given, **more: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tune(folder("electra"), tables, tmp_path / "killed", *values)
    assert not Checkpoints(tmp_path / "killed").steps()
    tune(folder("electra"), tables, tmp_path / "killed", *values)
    whole, killed = (load_checkpoint(tmp_path / name).heads["classification"].state_dict() for name in ("whole", "killed"))
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
    log = [json.loads(line) for line in (tmp_path / "killed" / "cloze" / "log.jsonl").read_text().splitlines()]
    assert [event["step"] for event in log if event["event"] == "dev"][-2:] == [0, 8]


def test_a_head_that_is_no_linear_model_is_refused_with_the_way_out(folder: Folder, tables: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"(?s)the head .* is not linear in the states.*--set training.new_heads=scaled"):
        finetune(
            folder("bert"), recipe="frozen_features", train=[str(tables / "train.tsv")], dev=[str(tables / "dev.tsv")],
            out=tmp_path / "out", overrides=["training.new_heads=fitted", "corpus.length=24"], report=lambda line: None,
        )
    assert not (tmp_path / "out" / "cloze" / "run.json").exists()
