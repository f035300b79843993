"""A network that averages another: its arithmetic, its state, and what a recipe may say of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from cloze.checkpoint.build import build_step
from cloze.errors import RecipeError
from cloze.recipe.load import load_recipe
from cloze.training.average_network import Average
from cloze.training.checkpoints.state import gather_parameters, load_parameters

RECIPE = """\
name: own-past
text: {tokenizer: {wordpiece: {size: 200}}}
corpus: {passages: {length: 16}}
networks:
  teacher: {average: {of: student, last: 2}}
  student: {transformer: {layers: 1, width: 16, heads: 2}}
exercise: [{frame: "[CLS] {A} [SEP]"}, {mask: {}}, {corrupt: {}}, {predict: masked}]
passes:
  - {network: teacher, grad: false, objectives: [token_prediction: {tie: true, transform: gelu, weight: 0}]}
  - network: student
    objectives:
      - token_prediction: {tie: true, transform: gelu}
      - match_scores: {read: {student: token_prediction, teacher: teacher.token_prediction}, loss: squared, over: mean}
training: {optimizer: adamw, rate: {linear: {peak: 1e-2}}, batch: 4}
reading: {single: "[CLS] {A} [SEP]"}
export: student
"""


def updated(average: Average, trained: nn.Linear, values: list[float]) -> list[float]:
    """The averaged weight after each update to one of these values."""
    found = []
    for value in values:
        with torch.no_grad():
            trained.weight.fill_(value)
        average.follow()
        found.append(average.pairs[0][0].state_dict()["weight"].item())
    return found


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"decay": 0.5, "last": None}, [0.5, 1.25, 2.125, 3.0625]),
        ({"decay": None, "last": 3}, [1.0, 1.5, 2.0, 3.0]),
        ({"decay": None, "last": 1}, [1.0, 2.0, 3.0, 4.0]),
    ],
)
def test_an_average_follows_the_weights_after_each_update(how: dict[str, float | None], expected: list[float]) -> None:
    own, theirs = nn.Linear(1, 1), nn.Linear(1, 1)
    with torch.no_grad():
        own.weight.zero_()
    average = Average([(theirs, own)], **how)  # type: ignore[arg-type]
    average.begin()
    assert theirs.weight.item() == 0.0 and torch.equal(theirs.bias, own.bias)
    assert updated(average, own, [1.0, 2.0, 3.0, 4.0]) == expected


def test_an_average_resumes_from_its_state(tmp_path: Path) -> None:
    def made() -> nn.ModuleDict:
        own, theirs = nn.Linear(1, 1), nn.Linear(1, 1)
        average = Average([(theirs, own)], decay=None, last=3)
        average.begin()
        return nn.ModuleDict({"own": own, "theirs": theirs, "average": average})

    whole, first, second = made(), made(), made()
    expected = updated(whole["average"], whole["own"], [1.0, 2.0, 3.0, 4.0, 5.0])  # type: ignore[arg-type]
    updated(first["average"], first["own"], [1.0, 2.0])  # type: ignore[arg-type]
    load_parameters(second, {name: tensor.clone() for name, tensor in gather_parameters(first).items()}, where="here")
    assert updated(second["average"], second["own"], [3.0, 4.0, 5.0]) == expected[2:]  # type: ignore[arg-type]


def of(tmp_path: Path, old: str = "", new: str = "") -> str:
    assert old in RECIPE
    path = tmp_path / "own.yaml"
    path.write_text(RECIPE.replace(old, new))
    return str(path)


def test_a_teacher_that_averages_its_student_begins_equal_with_its_heads_and_is_never_trained(tmp_path: Path) -> None:
    recipe = load_recipe(of(tmp_path))
    assert load_recipe(recipe.canonical()).hash == recipe.hash
    assert load_recipe(of(tmp_path), size="tiny").networks["teacher"].part == load_recipe(of(tmp_path), size="tiny").exported.part
    step = build_step(recipe, vocab_size=200)
    teacher, student = step.networks["teacher"], step.networks["student"]
    heads = [step.objectives[f"{name}:token_prediction"] for name in ("teacher", "student")]
    step.begin_averages()
    with torch.no_grad():
        for parameter in [*student.parameters(), *heads[1].parameters()]:
            parameter.add_(torch.randn_like(parameter))
    step.update_averages()
    for theirs, own in ((teacher, student), heads):
        assert all(torch.equal(tensor, own.state_dict()[name]) for name, tensor in theirs.state_dict().items())
    assert not any(parameter.requires_grad for part in (teacher, heads[0]) for parameter in part.parameters())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("last: 2", "last: 2, decay: 0.9", "needs either a decay or the number of the last updates"),
        ("of: student", "of: pupil", "there is no network that is trained 'pupil'"),
        ("grad: false", "grad: true", "a pass of teacher has a gradient, but an average is never trained"),
        ("last: 2}}", "last: 2}, train: all}", "an average has the shape of the network that it averages"),
        ("export: student", "export: teacher", "teacher is an average"),
    ],
)
def test_an_average_that_cannot_be_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load_recipe(of(tmp_path, old, new))


def test_a_head_without_one_to_average_is_refused(tmp_path: Path) -> None:
    other = "objectives: [token_prediction: {tie: true, transform: gelu, set: all, weight: 0}]"
    path = of(tmp_path, "objectives: [token_prediction: {tie: true, transform: gelu, weight: 0}]", other)
    with pytest.raises(RecipeError, match="its head 'token_prediction' averages that of student, which has no token_prediction"):
        build_step(load_recipe(path), vocab_size=200)
