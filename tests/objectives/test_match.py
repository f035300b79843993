"""Distillation: losses with named reductions, zero where student and teacher agree, in blocks over a vocabulary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks.clock import Clock
from cloze.objectives import MatchAttention, MatchHidden, MatchScores, token_prediction
from cloze.objectives import product as module
from cloze.objectives.distillation.match import layer_pairs
from cloze.objectives.product import Product

ROWS, CLASSES = 6, 5


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


def of(total: Any, objective: Any, batch: Batch) -> float:
    return float(total.total.detach()) / float(objective.count(batch))


LABELS = Batch({"positions/main": torch.arange(ROWS)})


# ---- scores: the distillation losses of published code -----------------------------------------------------------------


def published(name: str, student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """The loss as the code of that name computes it."""
    found, goal = F.log_softmax(student / temperature, dim=1), F.softmax(teacher / temperature, dim=1)
    if name == "transformers distillation":
        return F.kl_div(found, goal, reduction="batchmean") * temperature**2
    if name == "PKD":
        return F.kl_div(found, goal, reduction="mean") * temperature**2
    if name == "TinyBERT":
        return (-goal * found).mean()
    if name == "TextBrewer":
        return (-goal * found).sum(1).mean()
    return F.mse_loss(student, teacher)  # self-distillation


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("transformers distillation", {}),
        ("PKD", {"over": "mean"}),
        ("TinyBERT", {"loss": "cross_entropy", "rescale": False, "over": "mean"}),
        ("TextBrewer", {"loss": "cross_entropy", "rescale": False}),
        ("self-distillation", {"loss": "squared", "over": "mean"}),
    ],
)
def test_each_published_distillation_loss_is_a_choice_of_arguments(name: str, arguments: Mapping[str, Any]) -> None:
    student, teacher = numbers(ROWS, CLASSES, seed=1).requires_grad_(), numbers(ROWS, CLASSES, seed=2)
    objective = MatchScores(temperature=3.0, **arguments)
    mine = objective({"student": student, "teacher": teacher}, LABELS).total / objective.count(LABELS)
    theirs = published(name, student, teacher, 3.0)
    torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(torch.autograd.grad(mine, student), torch.autograd.grad(theirs, student))


@pytest.mark.parametrize(
    ("arguments", "factor"),
    [
        ({"over": "mean"}, 1 / CLASSES),
        ({"loss": "cross_entropy", "rescale": False, "over": "mean"}, 1 / CLASSES / 9),
        ({"loss": "cross_entropy", "rescale": False}, 1 / 9),
        ({"loss": "cross_entropy"}, 1.0),
    ],
)
def test_gradients_of_the_published_losses_differ_by_known_factors(arguments: Mapping[str, Any], factor: float) -> None:
    student, teacher = numbers(ROWS, CLASSES, seed=1).requires_grad_(), numbers(ROWS, CLASSES, seed=2)
    states = {"student": student, "teacher": teacher}
    totals = [MatchScores(temperature=3.0, **own)(states, LABELS).total for own in ({}, arguments)]
    base, other = (torch.autograd.grad(total, student)[0] for total in totals)
    torch.testing.assert_close(other, base * factor)


def test_at_a_high_temperature_the_divergence_is_the_squared_difference_of_centred_scores() -> None:
    student, teacher = numbers(ROWS, CLASSES, seed=1), numbers(ROWS, CLASSES, seed=2)
    found = of(MatchScores(temperature=1e4)({"student": student, "teacher": teacher}, LABELS), MatchScores(), LABELS)
    apart = (student - student.mean(1, keepdim=True)) - (teacher - teacher.mean(1, keepdim=True))
    assert found == pytest.approx(float(apart.square().sum(1).mean()) / (2 * CLASSES), rel=1e-3)


def test_a_constant_added_to_all_scores_changes_the_squared_difference_alone() -> None:
    student, teacher = numbers(ROWS, CLASSES, seed=1), numbers(ROWS, CLASSES, seed=2)
    totals = {
        loss: [float(MatchScores(loss=loss)({"student": student + c, "teacher": teacher}, LABELS).total) for c in (0.0, 2.0)]
        for loss in ("kl_divergence", "squared")
    }
    assert totals["kl_divergence"][1] == pytest.approx(totals["kl_divergence"][0])
    assert totals["squared"][1] > totals["squared"][0] + 1.0


@pytest.mark.parametrize("loss", ["kl_divergence", "squared", "cross_entropy"])
@pytest.mark.parametrize("vocabulary", [False, True])
def test_a_student_that_agrees_has_no_gradient_and_no_loss_but_the_entropy(loss: Any, vocabulary: bool) -> None:
    scores = numbers(ROWS, CLASSES)
    rows = scores.clone().requires_grad_()
    states: dict[str, Any] = {"student": rows, "teacher": scores}
    if vocabulary:
        table = torch.eye(CLASSES, dtype=torch.double)
        states = {"student": Product(rows, table, None), "teacher": Product(scores, table, None)}
    total = MatchScores(loss=loss, temperature=2.0, rescale=False)(states, LABELS).total
    shares = torch.softmax(scores / 2.0, 1)
    entropy = -(shares * shares.log()).sum()
    assert float(total.detach()) == pytest.approx(float(entropy) if loss == "cross_entropy" else 0.0, abs=1e-12)
    assert torch.autograd.grad(total, rows)[0].abs().max() < 1e-12


def test_no_gradient_reaches_the_teacher() -> None:
    student, teacher = (numbers(ROWS, CLASSES, seed=seed).requires_grad_() for seed in (1, 2))
    MatchScores()({"student": student, "teacher": teacher}, LABELS).total.backward()
    assert student.grad is not None and teacher.grad is None


def test_weights_multiply_the_loss_of_their_row() -> None:
    student, teacher, weights = numbers(2, CLASSES, seed=1), numbers(2, CLASSES, seed=2), torch.tensor([2.0, 0.0]).double()
    batch = Batch({"positions/main": torch.arange(2), "weights/main": weights})
    first = Batch({"positions/main": torch.arange(1)})
    objective = MatchScores()
    weighed = objective({"student": student, "teacher": teacher}, batch).total
    torch.testing.assert_close(weighed, 2 * objective({"student": student[:1], "teacher": teacher[:1]}, first).total)
    assert float(objective.count(batch)) == 2.0


def test_several_teachers_are_the_mean_of_their_probabilities_and_equal_ones_are_one() -> None:
    student, first, second = (numbers(ROWS, CLASSES, seed=seed) for seed in (1, 2, 3))
    three = MatchScores(loss="cross_entropy", temperature=2.0, rescale=False, teachers=3)
    assert three.reads == ("student", "teacher_1", "teacher_2", "teacher_3")
    found = three({"student": student, "teacher_1": first, "teacher_2": second, "teacher_3": second}, LABELS).total
    mean = (F.softmax(first / 2, 1) + 2 * F.softmax(second / 2, 1)) / 3
    torch.testing.assert_close(found, -(mean * F.log_softmax(student / 2, 1)).sum())
    of_scores = -(F.softmax((first + 2 * second) / 6, 1) * F.log_softmax(student / 2, 1)).sum()
    assert abs(float(found - of_scores)) > 0.01  # the mean of scores is another target
    alone = MatchScores(loss="cross_entropy", temperature=2.0, rescale=False)({"student": student, "teacher": first}, LABELS)
    same = three({"student": student, "teacher_1": first, "teacher_2": first, "teacher_3": first}, LABELS)
    torch.testing.assert_close(same.total, alone.total)
    squared = MatchScores(loss="squared", teachers=2)({"student": student, "teacher_1": first, "teacher_2": second}, LABELS)
    torch.testing.assert_close(squared.total, (student - (first + second) / 2).square().sum())


def test_teachers_of_other_classes_than_the_first_are_refused() -> None:
    states = {"student": numbers(6, 5), "teacher_1": numbers(6, 5), "teacher_2": numbers(6, 4)}
    with pytest.raises(RecipeError, match=r"one teacher has \(6, 5\), another \(6, 4\)"):
        MatchScores(teachers=2)(states, LABELS)


# ---- a vocabulary in blocks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["kl_divergence", "squared", "cross_entropy"])
def test_blocks_of_the_vocabulary_give_the_loss_and_the_gradients_of_the_whole(
    loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, table, bias = (numbers(*shape, seed=seed).requires_grad_() for seed, shape in enumerate([(11, 4), (9, 4), (9,)]))
    teacher = Product(numbers(11, 7, seed=5), numbers(9, 7, seed=6), None)
    weights = torch.rand(11, dtype=torch.double)
    batch = Batch({"positions/main": torch.arange(11), "weights/main": weights})
    objective = MatchScores(loss=loss, temperature=2.0)
    whole = objective({"student": F.linear(rows, table, bias), "teacher": F.linear(teacher.rows, teacher.table)}, batch).total
    expected = torch.autograd.grad(whole, (rows, table, bias))
    for held in (1 << 20, 20, 1):
        monkeypatch.setattr(module, "_SCORES_HELD", held)
        total = objective({"student": Product(rows, table, bias), "teacher": teacher}, batch).total
        torch.testing.assert_close(total, whole)
        torch.testing.assert_close(torch.autograd.grad(total * 0.5, (rows, table, bias)), tuple(0.5 * g for g in expected))


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that is computed."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        self.numbers = max([self.numbers, *(t.numel() for t in tree_leaves(made) if isinstance(t, Tensor))])
        return made


def test_scores_of_a_vocabulary_never_exist_for_more_rows_than_a_block_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SCORES_HELD", 400)
    rows, table = numbers(60, 4, seed=1).requires_grad_(), numbers(50, 4, seed=2).requires_grad_()
    batch, teacher = Batch({"positions/main": torch.arange(60)}), Product(numbers(60, 3, seed=3), numbers(50, 3, seed=4), None)
    with Largest() as largest:
        MatchScores()({"student": Product(rows, table, None), "teacher": teacher}, batch).total.backward()
    assert largest.numbers == 400


def test_a_vocabulary_head_gives_its_product_and_other_heads_their_scores() -> None:
    head = token_prediction(transform="gelu", width=4, vocab_size=9)
    batch = Batch({"targets/main": torch.tensor([1, 2]), "positions/main": torch.tensor([0, 2])})
    states = {"hidden": torch.randn(1, 3, 4)}
    rows, table, bias = head.product(states, batch)
    torch.testing.assert_close(F.linear(rows, table, bias), head.scores(states, batch))


def test_no_targets_give_a_zero_that_is_connected() -> None:
    rows, table = torch.zeros(0, 4, requires_grad=True), torch.randn(9, 4, requires_grad=True)
    batch = Batch({"positions/main": torch.zeros(0, dtype=torch.long)})
    total = MatchScores()({"student": Product(rows, table, None), "teacher": Product(rows, table, None)}, batch).total
    total.backward()
    assert total.item() == 0.0 and table.grad is not None and not table.grad.any()


def test_heads_with_other_classes_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"the student has \(6, 5\), the teacher \(6, 4\)"):
        MatchScores()({"student": numbers(6, 5), "teacher": numbers(6, 4)}, LABELS)


# ---- layers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "student", "teacher", "pairs"),
    [
        ("every", 4, 12, [(0, 0), (1, 3), (2, 6), (3, 9), (4, 12)]),  # TinyBERT
        ("skip", 6, 12, [(1, 2), (2, 4), (3, 6), (4, 8), (5, 10)]),  # PKD
        ("last", 6, 12, [(1, 7), (2, 8), (3, 9), (4, 10), (5, 11)]),
        ("top", 6, 12, [(6, 12)]),
        ("same", 3, 3, [(1, 1), (2, 2), (3, 3)]),  # MobileBERT
        ((2, 3), 4, 3, [(1, 2), (2, 3)]),
    ],
)
def test_layers_are_paired_as_published(layers: Any, student: int, teacher: int, pairs: list[tuple[int, int]]) -> None:
    assert layer_pairs(layers, student, teacher, embeddings=True) == pairs
    assert layer_pairs(layers, student, teacher, embeddings=False) == [pair for pair in pairs if pair != (0, 0)]


def test_a_student_of_one_layer_has_none_below_the_top() -> None:
    with pytest.raises(RecipeError, match="layers: skip: the student has one layer, and none below the top") as refused:
        layer_pairs("skip", 1, 2, embeddings=True)
    assert str(refused.value).endswith("for the student's layers 1, 2, …: `layers: [2]`.")
    assert layer_pairs((2,), 1, 2, embeddings=True) == [(1, 2)]


@pytest.mark.parametrize(
    ("layers", "student", "teacher", "most", "example"),
    [("every", 4, 2, 2, (1, 1, 2, 2)), ("every", 4, 6, 3, (2, 3, 5, 6)), ("skip", 4, 3, 3, (1, 2, 3))],
)
def test_both_ways_out_of_layers_that_cannot_be_paired_lead_on(
    layers: Any, student: int, teacher: int, most: int, example: tuple[int, ...]
) -> None:
    with pytest.raises(RecipeError) as refused:
        layer_pairs(layers, student, teacher, embeddings=True)
    assert f"Use a student of {most} (--set networks.student.layers={most}, if it starts at random)" in str(refused.value)
    assert f"`layers: {list(example)}`" in str(refused.value)
    assert layer_pairs(layers, most, teacher, embeddings=True)
    assert layer_pairs(example, student, teacher, embeddings=True)[-1] == (len(example), example[-1])


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("every", "the teacher's 5 layers are not a multiple of the student's 3"),
        ((6,), "the student has 3 layers, the teacher 5"),
        ("same", "the student has 3 layers, the teacher 5.\n  Bind a teacher of 3 layers, or list the teacher's layers"),
    ],
)
def test_layers_that_cannot_be_paired_are_refused(layers: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        layer_pairs(layers, 3, 5, embeddings=True)


# ---- hidden states -----------------------------------------------------------------------------------------------------

TEXTS = Batch({"tokens": torch.zeros(2, 4, dtype=torch.long), "block": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])})
REAL = TEXTS["block"] > 0


def test_cosine_is_averaged_over_all_tokens_that_are_not_padding() -> None:
    student, teacher = numbers(2, 4, 8, seed=1), numbers(2, 4, 8, seed=2)
    objective = MatchHidden(loss="cosine", width=8)
    target = torch.ones(6, dtype=torch.double)
    expected = F.cosine_embedding_loss(student[REAL], teacher[REAL], target)
    assert of(objective({"student": student, "teacher": teacher}, TEXTS), objective, TEXTS) == pytest.approx(float(expected))


@pytest.mark.parametrize("normalised", [False, True])
def test_patience_is_the_mean_over_layers_and_numbers_of_the_first_tokens(normalised: bool) -> None:
    student, teacher = numbers(4, 2, 4, 8, seed=1), numbers(7, 2, 4, 8, seed=2)
    objective = MatchHidden(layers="skip", at="summary", normalise="length" if normalised else "none", width=8)
    here, there = student[1:3, :, 0], teacher[[2, 4], :, 0]
    if normalised:
        here, there = F.normalize(here, dim=-1), F.normalize(there, dim=-1)
    found = of(objective({"student": student, "teacher": teacher}, TEXTS), objective, TEXTS)
    assert found == pytest.approx(float(F.mse_loss(here, there)))


def test_normalised_patience_ignores_lengths_and_is_twice_the_cosine_distance() -> None:
    student, teacher = numbers(2, 4, 8, seed=1), numbers(2, 4, 8, seed=2)
    patience = MatchHidden(at="summary", normalise="length", over="sum", width=8)
    cosine = MatchHidden(loss="cosine", at="summary", width=8)
    found = patience({"student": student * 3, "teacher": teacher * 0.1}, TEXTS).total
    torch.testing.assert_close(found, 2 * cosine({"student": student, "teacher": teacher}, TEXTS).total)


def test_standardised_states_ignore_scale_and_offset() -> None:
    student, teacher = numbers(2, 4, 8, seed=1), numbers(2, 4, 8, seed=2)
    objective = MatchHidden(normalise="standard", width=8)
    plain = objective({"student": student, "teacher": teacher}, TEXTS).total
    torch.testing.assert_close(objective({"student": student * 5 + 2, "teacher": teacher}, TEXTS).total, plain, rtol=1e-4, atol=0)


def test_one_map_takes_embeddings_and_layers_to_the_teachers_width() -> None:
    student, teacher = numbers(3, 2, 4, 8, seed=1), numbers(5, 2, 4, 12, seed=2)
    objective = MatchHidden(project=12, over_layers="sum", width=8).double()
    with torch.no_grad():
        mapped = objective.head(student)
    expected = sum(F.mse_loss(mapped[i][REAL], teacher[2 * i][REAL]) for i in range(3))
    found = of(objective({"student": student, "teacher": teacher}, TEXTS), objective, TEXTS)
    assert found == pytest.approx(float(expected))  # type: ignore[arg-type]
    assert {name: tuple(p.shape) for name, p in objective.named_parameters()} == {"head.weight": (12, 8), "head.bias": (12,)}
    with pytest.raises(RecipeError, match="the student has 8, the teacher 12.\n  With `project: 12`"):
        MatchHidden(width=8)({"student": student, "teacher": teacher}, TEXTS)


def test_padding_changes_no_loss_of_hidden_states() -> None:
    student, teacher = numbers(2, 4, 8, seed=1), numbers(2, 4, 8, seed=2)
    objective = MatchHidden(width=8)
    plain = objective({"student": student, "teacher": teacher}, TEXTS).total
    student[1, 2:] = 100.0
    assert objective({"student": student, "teacher": teacher}, TEXTS).total == plain


def test_means_are_compared_squared_and_variances_absolutely() -> None:
    student, teacher = numbers(2, 4, 8, seed=1), numbers(2, 4, 8, seed=2)
    states = {"student": student, "teacher": teacher}
    apart = student.mean(-1)[REAL] - teacher.mean(-1)[REAL]
    torch.testing.assert_close(MatchHidden(loss="mean", width=8)(states, TEXTS).total, apart.square().sum())
    apart = student.var(-1, correction=0)[REAL] - teacher.var(-1, correction=0)[REAL]
    torch.testing.assert_close(MatchHidden(loss="variance", width=8)(states, TEXTS).total, apart.abs().sum())


def test_progressive_losses_count_one_layer_at_a_time_and_over_the_run_each_as_long() -> None:
    clock = Clock()
    student, teacher = numbers(4, 2, 4, 8, seed=1), numbers(4, 2, 4, 8, seed=2)
    states = {"student": student, "teacher": teacher}
    whole = MatchHidden(layers="same", width=8)(states, TEXTS).total
    objective = MatchHidden(layers="same", progressive=True, width=8, clock=clock)
    found = []
    for share in (0.0, 0.3, 0.34, 0.6, 0.7, 0.99):
        clock.set(share=share)
        found.append(float(objective(states, TEXTS).total))
    assert found[0] == found[1] and found[2] == found[3] and found[4] == found[5]
    assert found[0] + found[2] + found[4] == pytest.approx(float(whole))
    attention = {"student": shares(3, seed=1), "teacher": shares(3, seed=2)}
    clock.set(share=0.5)
    second = MatchAttention(layers="same", progressive=True, over_layers="sum", clock=clock)(attention, TEXTS).total
    alone = {name: state[1:2] for name, state in attention.items()}
    torch.testing.assert_close(second, MatchAttention(layers="same")(alone, TEXTS).total)


# ---- attention ---------------------------------------------------------------------------------------------------------


def shares(layers: int, heads: int = 2, *, seed: int) -> Tensor:
    """Attention of random scores among the tokens of `TEXTS`."""
    scores = numbers(layers, 2, heads, 4, 4, seed=seed)
    seen = TEXTS["block"][:, :, None] == TEXTS["block"][:, None, :]
    return torch.softmax(scores.masked_fill(~seen[None, :, None], -math.inf), dim=-1)


def test_the_divergence_of_attention_is_averaged_over_heads_and_tokens() -> None:
    student, teacher = shares(2, seed=1), shares(4, seed=2)
    objective = MatchAttention(layers="top")
    total = 0.0
    for row, length in enumerate((4, 2)):
        here, there = (one[-1, row, :, :length, :length] for one in (student, teacher))
        total += float((there * (there / here).log()).sum()) / 2
    found = of(objective({"student": student, "teacher": teacher}, TEXTS), objective, TEXTS)
    assert found == pytest.approx(total / 6)


def test_scores_of_attention_are_compared_where_a_token_sees_another() -> None:
    student, teacher = numbers(2, 2, 3, 4, 4, seed=1), numbers(4, 2, 3, 4, 4, seed=2)
    objective = MatchAttention(of="scores", loss="squared", over_layers="sum")
    whole = Batch({"tokens": TEXTS["tokens"]})
    expected = sum(F.mse_loss(student[i], teacher[2 * i + 1]) for i in range(2))
    found = of(objective({"student": student, "teacher": teacher}, whole), objective, whole)
    assert found == pytest.approx(float(expected))  # type: ignore[arg-type]
    padded = objective({"student": student, "teacher": teacher}, TEXTS).total
    student[:, 1, :, :, 2:] = 50.0
    assert objective({"student": student, "teacher": teacher}, TEXTS).total == padded
    causal = MatchAttention(of="scores", loss="squared", order="left_to_right")
    before = causal({"student": student, "teacher": teacher}, whole).total
    student[..., 0, 1:] = -7.0
    assert causal({"student": student, "teacher": teacher}, whole).total == before


def test_relations_of_values_do_not_change_by_a_rotation_within_a_head() -> None:
    student, teacher = numbers(1, 2, 3, 4, 5, seed=1), numbers(1, 2, 3, 4, 8, seed=2)
    turned = student @ torch.linalg.qr(numbers(5, 5, seed=3)).Q
    objective = MatchAttention(of="relations", layers="top")
    plain = objective({"student": student, "teacher": teacher}, TEXTS).total
    torch.testing.assert_close(objective({"student": turned, "teacher": teacher}, TEXTS).total, plain)
    there = teacher[0, 0, 0] @ teacher[0, 0, 0].T / math.sqrt(8)
    relations = objective._compared(teacher[0], torch.ones(4, 4, dtype=torch.bool))
    torch.testing.assert_close(relations[0, 0], torch.softmax(there, -1))


def test_networks_with_other_numbers_of_heads_are_refused() -> None:
    with pytest.raises(RecipeError, match="heads: the student has 2, the teacher 3"):
        MatchAttention()({"student": shares(1, 2, seed=1), "teacher": shares(1, 3, seed=2)}, TEXTS)
    with pytest.raises(RecipeError, match="of: scores has no kl_divergence"):
        MatchAttention(of="scores")


@pytest.mark.parametrize(
    "objective",
    [
        MatchHidden(width=8), MatchHidden(loss="cosine", width=8), MatchHidden(normalise="standard", width=8),
        MatchHidden(layers="skip", at="summary", normalise="length", width=8), MatchAttention(), MatchAttention(loss="squared"),
        MatchAttention(of="scores", loss="squared"), MatchAttention(of="relations"),
    ],
)
def test_states_that_agree_give_no_loss_and_no_gradient(objective: Any) -> None:
    state = numbers(3, 2, 4, 8) if isinstance(objective, MatchHidden) else numbers(3, 2, 2, 4, 4)
    student, teacher = state.clone().requires_grad_(), state
    given = {"student": student, "teacher": teacher}
    if isinstance(objective, MatchAttention) and objective.of == "probabilities":
        given = {name: torch.softmax(scores, -1) for name, scores in given.items()}
    total = objective(given, TEXTS).total
    assert float(total.detach()) == pytest.approx(0.0, abs=1e-12)
    assert torch.autograd.grad(total, student)[0].abs().max() < 1e-9


@pytest.mark.parametrize("whole", ["student", "teacher"])
def test_scores_in_blocks_meet_scores_that_another_part_needed_whole(whole: str) -> None:
    made = {name: Product(numbers(ROWS, 3, seed=seed), numbers(CLASSES, 3, seed=seed + 1), None) for name, seed in
            (("student", 0), ("teacher", 2))}  # fmt: skip
    computed = {name: one.rows @ one.table.T for name, one in made.items()}
    states: dict[str, Any] = {**made, whole: computed[whole]}
    found = MatchScores()(states, LABELS).total
    torch.testing.assert_close(found, MatchScores()(computed, LABELS).total)
