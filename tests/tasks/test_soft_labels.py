"""Probabilities as labels: the loss, how cells are read, and the way from a teacher's predictions to a student."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from cloze.batch import Batch
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.records import Records
from cloze.corpus.records.scores import scores_of
from cloze.errors import TaskError
from cloze.networks import Clock
from cloze.objectives import soft_classification
from cloze.runs.finetuning.finetune import finetune
from cloze.tasks.evaluation import evaluate
from cloze.tasks.tuned_folder import load_tuned


@pytest.mark.parametrize(("loss", "temperature"), [("kl_divergence", 1.0), ("kl_divergence", 3.0), ("squared", 1.0)])
def test_the_loss_of_a_student_that_is_its_teacher_is_zero_and_so_are_its_gradients(loss: str, temperature: float) -> None:
    torch.manual_seed(0)
    objective = soft_classification(
        classes=3, loss=loss, temperature=temperature, pool=True, width=4, clock=Clock()
    ).double()
    summary = torch.randn(2, 4, dtype=torch.double, requires_grad=True)
    rows = torch.arange(2)
    own = objective.head(summary).detach().softmax(-1)
    same = objective({"summary": summary}, Batch({"values/label": own, "positions/label": rows}))
    assert same.total.item() == pytest.approx(0, abs=1e-12) and same.metrics["correct"].item() == 2
    (gradient,) = torch.autograd.grad(same.total, summary)
    assert gradient.abs().max() < 1e-9
    other = Batch({"values/label": torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]], dtype=torch.double), "positions/label": rows})
    assert objective({"summary": summary}, other).total.item() > 0.01
    assert torch.autograd.gradcheck(lambda x: objective({"summary": x}, other).total, (summary,))


def test_the_divergence_is_the_cross_entropy_less_the_entropy_of_the_answers() -> None:
    torch.manual_seed(0)
    objective = soft_classification(classes=3, width=4, clock=Clock()).double()
    summary = torch.randn(2, 4, dtype=torch.double)
    shares = torch.tensor([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0]], dtype=torch.double)
    batch = Batch({"values/label": shares, "positions/label": torch.arange(2)})
    logits = objective.head(summary).detach()
    entropy = torch.special.entr(shares).sum()
    expected = torch.nn.functional.cross_entropy(logits, shares, reduction="sum") - entropy
    assert objective({"summary": summary}, batch).total.item() == pytest.approx(expected.item())


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ('{"a": 0.5', "expected a JSON object such as"),
        ('{"a": 0.5, "b": 0.7}', "its probabilities are 1.2 in all, expected 1"),
        ('{"a": 1.5, "b": -0.5}', "expected a probability for each of two classes or more"),
        ('{"a": 1}', "expected a probability for each of two classes or more"),
        ('{"a": NaN, "b": 1}', "expected a probability for each of two classes or more"),
        ('{"a": 1' + "0" * 400 + ', "b": 0}', "expected a probability for each of two classes or more"),
        ('{"a": ' + "[" * 100_000, "expected a JSON object such as"),
        ("", "empty; expected the probability of each class"),
    ],
)
def test_a_cell_that_holds_no_probabilities_is_refused(cell: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        scores_of(cell)


def test_the_first_row_names_the_classes(folder: Callable[[str], Path], tmp_path: Path) -> None:
    tokenizer = load_checkpoint(folder("bert")).tokenizer
    path = tmp_path / "x.tsv"

    def built(*cells: str) -> np.ndarray:
        path.write_text("text\tlabel\n" + "".join(f"the cat\t{cell}\n" for cell in cells))
        source = Records(answer="scores")
        place = tmp_path / f"s{len(list(tmp_path.iterdir()))}"
        store = source.build_store([path], tokenizer, place, base=None, report=lambda line: None)
        assert store.classes == ("a", "b")
        return store.answers(np.arange(len(cells)))["label"]

    assert built('{"b": 0.25, "a": 0.75}', "b").tolist() == [[0.75, 0.25], [0, 1]]
    with pytest.raises(TaskError, match=r"x\.tsv:2: the label 'b'; expected the first row to hold a probability"):
        built("b", '{"b": 0.25, "a": 0.75}')
    with pytest.raises(TaskError, match=r"x\.tsv:3: probabilities of c, a; expected those of a, b"):
        built('{"b": 0.25, "a": 0.75}', '{"c": 0.25, "a": 0.75}')
    with pytest.raises(TaskError, match=r"x\.tsv:3: the label 'c' is none of the classes"):
        built('{"b": 0.25, "a": 0.75}', "c")


STUDENT = """
name: student
corpus: {records: {length: 24, answer: scores}}
network: {from: start}
exercise: [{frame: reading}, {value: {set: label}}]
objectives: [text_classification: {head: classification, soft: squared, dropout: 0}]
training: {optimizer: adamw, rate: {linear: {peak: 1e-2}}, batch: 8, epochs: 8, held_out: 0.0, evaluate_every: epoch}
task: {type: sentence_classification, patience: 0}
"""


def test_a_student_learns_from_the_scores_that_its_teacher_wrote(
    folder: Callable[[str], Path], tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = [
        "training.batch=8", "training.epochs=8", "training.rate.peak=1e-2", "corpus.length=24", "network.dropout=0",
        "objectives[0].dropout=0",
    ]  # fmt: skip
    train, dev = tables / "train.tsv", tables / "dev.tsv"
    teacher, soft = tmp_path / "teacher", tmp_path / "soft.jsonl"
    finetune(folder("bert"), train=[str(train)], dev=[str(dev)], out=teacher, overrides=values, report=lambda line: None)
    assert main(["predict", str(teacher), str(train), "--scores", "--out", str(soft)]) == 0
    rows = [json.loads(line) for line in soft.read_text().splitlines()]
    assert len(rows) == 64 and rows[0]["label"].keys() == {"animal", "weather"}
    assert sum(rows[0]["label"].values()) == pytest.approx(1)
    recipe, out = tmp_path / "student.yaml", tmp_path / "student"
    recipe.write_text(STUDENT)
    made = finetune(
        folder("bert"), recipe=recipe, train=[str(soft)], dev=[str(dev)], out=out, report=lambda line: None,
        overrides=["network.dropout=0"],
    )
    standing = made.outcomes[1].standing
    assert standing is not None and standing.metrics["accuracy"] > 0.8
    learner, told = load_tuned(load_checkpoint(out))
    evaluation = evaluate(learner, learner.task.read(dev), constant_answer=told["constant_answer"])
    assert evaluation.metrics == pytest.approx(standing.metrics)
    config = json.loads((out / "config.json").read_text())
    assert config["id2label"] == {"0": "animal", "1": "weather"} and "problem_type" not in config
    capsys.readouterr()
