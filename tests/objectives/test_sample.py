"""ELECTRA's rewriter: samples by address, labels only where they differ, padding of answers, no gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.networks import Clock
from cloze.objectives import Sample

MASK = 1


def batch(rows: int = 4, length: int = 8, asked: int = 6) -> Batch:
    generator = torch.Generator().manual_seed(0)
    original = torch.randint(5, 30, (rows, length), generator=generator)
    positions = torch.randperm(rows * length, generator=generator)[:asked].sort().values
    tokens = original.flatten().clone()
    tokens[positions] = MASK
    return Batch(
        {"tokens": tokens.view(rows, length), "targets/main": original.flatten()[positions], "positions/main": positions}
    )


def peaked(answers: Tensor, size: int = 40) -> Tensor:
    return torch.nn.functional.one_hot(answers, size).float() * 200


def test_a_perfect_generator_gives_the_text_back_and_no_label() -> None:
    given = batch()
    made = Sample(clock=Clock())({"scores": peaked(given["targets/main"])}, given)
    assert made["targets/replaced"].sum() == 0
    assert torch.equal(made["tokens"].flatten()[given["positions/main"]], given["targets/main"])


def test_labels_are_one_exactly_where_the_sample_differs() -> None:
    given = batch()
    wrong = given["targets/main"].clone()
    wrong[::2] += 1
    made = Sample(clock=Clock())({"scores": peaked(wrong)}, given)
    assert torch.equal(made["targets/replaced"].nonzero().view(-1), given["positions/main"][::2])
    untouched = torch.ones(32, dtype=torch.bool)
    untouched[given["positions/main"]] = False
    assert torch.equal(made["tokens"].flatten()[untouched], given["tokens"].flatten()[untouched])
    assert made["tokens"].dtype == given["tokens"].dtype


def test_answers_of_weight_zero_change_nothing() -> None:
    given = batch()
    padded = Batch(
        {
            "tokens": given["tokens"],
            "targets/main": torch.cat([given["targets/main"], torch.tensor([0, 0])]),
            "positions/main": torch.cat([given["positions/main"], torch.tensor([0, 0])]),
            "weights/main": torch.tensor([1.0] * 6 + [0.0] * 2),
        }
    )
    scores = peaked(given["targets/main"] + 1)
    first = Sample(clock=Clock())({"scores": scores}, given)
    second = Sample(clock=Clock())({"scores": torch.cat([scores, scores[:2]])}, padded)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_samples_follow_the_distribution() -> None:
    count = 40_000
    scores = torch.log(torch.tensor([0.1, 0.2, 0.3, 0.4])).expand(count, 4)
    given = Batch(
        {
            "tokens": torch.zeros(200, 200, dtype=torch.long), "positions/main": torch.arange(count),
            "targets/main": torch.zeros(count, dtype=torch.long),
        }
    )
    made = Sample(clock=Clock(9))({"scores": scores}, given)
    shares = made["tokens"].flatten().bincount(minlength=4) / count
    assert (shares - torch.tensor([0.1, 0.2, 0.3, 0.4])).abs().max() < 4 * (0.25 / count) ** 0.5


def test_scores_are_divided_by_the_temperature() -> None:
    count, odds = 40_000, torch.tensor([0.1, 0.2, 0.3, 0.4])
    drawn = Sample(temperature=0.5, clock=Clock(9)).draw(odds.log().expand(count, 4), torch.arange(count), 200)
    expected = odds**2 / (odds**2).sum()
    assert (drawn.bincount(minlength=4) / count - expected).abs().max() < 4 * (0.25 / count) ** 0.5


def test_a_class_of_probability_zero_is_never_drawn() -> None:
    scores = torch.full((40_000, 3), 0.0)
    scores[:, 0] = scores[:, 2] = float("-inf")
    positions = torch.arange(40_000)
    assert Sample(clock=Clock()).draw(scores, positions, 200).unique().tolist() == [1]


def test_the_same_row_draws_the_same_samples_in_any_micro_batch() -> None:
    whole, scores = batch(), torch.zeros(32, 40)
    clock = Clock(3)
    everything = Sample(clock=clock).draw(scores, torch.arange(32), 8)
    clock.set(first_row=2)
    later = Sample(clock=clock).draw(scores[:16], torch.arange(16), 8)
    assert torch.equal(later, everything[16:])
    clock.set(first_row=0, step=1)
    assert not torch.equal(Sample(clock=clock).draw(scores, torch.arange(32), 8), everything)
    assert whole["tokens"].shape == (4, 8)


def test_no_gradient_reaches_the_generator() -> None:
    given = batch()
    made = Sample(clock=Clock())({"scores": torch.zeros(6, 40, requires_grad=True)}, given)
    assert not any(value.requires_grad for value in made.values())
