"""The stochastic answer network: one step is one attention, more are the mean of what each says, some left out in training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.networks.clock import Clock
from cloze.objectives import StochasticAnswer

WIDTH, LENGTH, CLASSES = 6, 9, 3
ENDS = torch.tensor([[1, 3, 5, 7], [1, 1, 3, 8]])  # first and last token of both texts, by row


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
    return {"hidden": hidden}, Batch({"positions/label": positions, "targets/label": torch.tensor([2, 0])})


def texts(hidden: Tensor, row: int) -> tuple[Tensor, Tensor]:
    a, b, c, d = ENDS[row].tolist()
    return hidden[row, a : b + 1], hidden[row, c : d + 1]


def by_hand(made: StochasticAnswer, hidden: Tensor, steps: int) -> Tensor:
    """The mean probabilities, row by row and step by step."""
    head, rows = made.head, []
    for row in range(2):
        first, second = texts(hidden, row)
        state = (head.hypothesis(second)[:, 0].softmax(0)[:, None] * second).sum(0)
        said = []
        for _ in range(steps):
            seen = ((first @ head.attend(state)).softmax(0)[:, None] * first).sum(0)
            said.append(head.output(torch.cat([state, seen, (state - seen).abs(), state * seen])).softmax(-1))
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


def test_tokens_outside_the_texts_do_not_matter() -> None:
    made = build().eval()
    states, batch = given()
    other = states["hidden"].clone()
    for row in range(2):
        a, b, c, d = ENDS[row].tolist()
        outside = [i for i in range(LENGTH) if not (a <= i <= b or c <= i <= d)]
        other[row, outside] = 100.0
    assert torch.equal(made.scores(states, batch), made.scores({"hidden": other}, batch))


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
