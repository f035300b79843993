"""The stochastic answer network: one step is one attention, more are the mean of what each says, some left out in training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.networks.clock import Clock
from cloze.objectives import StochasticAnswer

WIDTH, LENGTH, CLASSES = 6, 9, 3
ENDS = torch.tensor([[1, 3, 5, 7], [1, 1, 3, 6]])  # first and last token of both texts, by row
SIZES = [9, 8]  # tokens of each row, the special ones with them


def build(**changed: float) -> StochasticAnswer:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        made = StochasticAnswer(classes=CLASSES, width=WIDTH, clock=Clock(), **changed)  # type: ignore[arg-type]
        for parameter in made.parameters():
            torch.nn.init.normal_(parameter)
    return made


def given() -> tuple[dict[str, Tensor], Batch]:
    hidden = torch.randn(2, LENGTH, WIDTH, generator=torch.Generator().manual_seed(0))
    positions = ENDS + torch.tensor([[0], [LENGTH]])
    block = torch.tensor([[int(column < size) for column in range(LENGTH)] for size in SIZES])
    return {"hidden": hidden}, Batch({"positions/label": positions, "targets/label": torch.tensor([2, 0]), "block": block})


def texts(hidden: Tensor, row: int) -> tuple[Tensor, Tensor]:
    """Both texts with the special tokens around them."""
    border = int(ENDS[row, 2])
    return hidden[row, :border], hidden[row, border:SIZES[row]]


def by_hand(made: StochasticAnswer, hidden: Tensor, steps: int) -> Tensor:
    """The mean probabilities, row by row and step by step."""
    head, rows = made.head, []
    for row in range(2):
        first, second = texts(hidden, row)
        state = (head.hypothesis(second)[:, 0].softmax(0)[:, None] * second).sum(0)
        said = []
        for _ in range(steps):
            seen = ((first @ head.attend(state)).softmax(0)[:, None] * first).sum(0)
            said.append(head.output(torch.cat([seen, state, (seen - state).abs(), seen * state])).softmax(-1))
            state = head.cell(seen[None], state[None])[0]
        rows.append(torch.stack(said).mean(0))
    return torch.stack(rows)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_answer_is_the_mean_of_the_steps_and_one_step_is_one_attention(steps: int) -> None:
    made = build(steps=steps).eval()
    states, batch = given()
    scores = made.scores(states, batch)
    torch.testing.assert_close(scores.exp(), by_hand(made, states["hidden"], steps), atol=1e-6, rtol=1e-5)
    loss = made(states, batch)
    torch.testing.assert_close(loss.total, -scores[[0, 1], [2, 0]].sum())
    assert loss.metrics["correct"] == (scores.argmax(1) == torch.tensor([2, 0])).sum()


def test_padding_does_not_matter() -> None:
    made = build().eval()
    states, batch = given()
    other = states["hidden"].clone()
    other[1, SIZES[1] :] = 100.0
    assert torch.equal(made.scores(states, batch), made.scores({"hidden": other}, batch))


def test_the_answer_is_that_of_the_authors_module() -> None:
    """namisan/mt-dnn v0.1, `module/san.py`, SANClassifier executed with these weights, states and masks; five turns."""
    made = build().double().eval()
    head = made.head
    order = (head.hypothesis.weight, head.attend.weight, head.attend.bias, head.cell.weight_ih, head.cell.weight_hh,
             head.cell.bias_ih, head.cell.bias_hh, head.output.weight, head.output.bias)  # fmt: skip
    for phase, parameter in enumerate(order):
        parameter.data = (torch.arange(parameter.numel(), dtype=torch.float64) + phase).sin().view_as(parameter)
    hidden = (torch.arange(2 * LENGTH * WIDTH, dtype=torch.float64) * 0.7).cos().view(2, LENGTH, WIDTH)
    _, batch = given()
    expected = torch.tensor([[0.6330578907, 0.3527422467, 0.0141998626], [0.6384443317, 0.3485728140, 0.0129828543]])
    torch.testing.assert_close(made.scores({"hidden": hidden}, batch).exp(), expected, atol=1e-6, rtol=0, check_dtype=False)


def test_dropout_drops_the_same_numbers_of_every_token_and_others_at_every_place() -> None:
    made = build(dropout=0.5, step_dropout=0.0, steps=1).train()
    made.dropout.clock.set(seed=1, step=3, first_row=0, share=0.0)
    states, batch = given()
    drop = made._factors(states["hidden"])
    assert drop.shape == (2, 8, WIDTH) and set(drop.abs().unique().tolist()) == {0.0, 2.0}
    head, rows = made.head, []
    for row in range(2):
        first, second = texts(states["hidden"], row)
        second = second * drop[row, 0]
        state = (head.hypothesis(second)[:, 0].softmax(0)[:, None] * second).sum(0)
        weights = ((first * drop[row, 2]) @ head.attend(state * drop[row, 1])).softmax(0)
        seen = (weights[:, None] * first).sum(0)
        compared = torch.cat([seen, state, (seen - state).abs(), seen * state])
        rows.append(head.output(compared * drop[row, 3:7].flatten()).softmax(-1))
    torch.testing.assert_close(made.scores(states, batch).exp(), torch.stack(rows), atol=1e-6, rtol=1e-5)
    assert len({tuple(place) for place in drop.flatten(0, 1).tolist()}) > 10  # of 64 that there are


def test_steps_are_left_out_in_training_only_and_probabilities_add_up() -> None:
    made = build(step_dropout=0.5, dropout=0.0)
    states, batch = given()
    torch.testing.assert_close(made.eval().scores(states, batch).exp().sum(1), torch.ones(2))
    whole = made.eval().scores(states, batch)
    seen = []
    for step in range(40):
        made.train().left_out.clock.set(seed=1, step=step, first_row=0, share=0.0)
        seen.append(made.scores(states, batch))
        torch.testing.assert_close(seen[-1].exp().sum(1), torch.ones(2))
    assert len({tuple(one[0].tolist()) for one in seen}) > 10
    torch.testing.assert_close(torch.stack(seen).exp().mean(0), whole.exp(), atol=0.12, rtol=0)
