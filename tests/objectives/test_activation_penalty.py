"""AR and TAR: the worked example, what counts, and that they act while training alone."""

from __future__ import annotations

import pytest
import torch

from cloze.batch import Batch
from cloze.objectives import ActivationPenalty

STATE = torch.tensor([[[1.0, 2.0], [3.0, 0.0], [1.0, 1.0]]], dtype=torch.double)
TOKENS = torch.zeros(1, 3, dtype=torch.long)


@pytest.mark.parametrize(("of", "weight", "expected"), [("size", 2.0, 5.333333), ("change", 1.0, 3.25)])
def test_the_worked_example(of: str, weight: float, expected: float) -> None:
    penalty, batch = ActivationPenalty(of=of), Batch({"tokens": TOKENS})  # type: ignore[arg-type]
    loss = penalty({penalty.reads[0]: STATE}, batch).total
    assert weight * float(loss) / float(penalty.count(batch)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("of", ["size", "change"])
def test_padding_and_the_borders_of_texts_do_not_count(of: str) -> None:
    penalty = ActivationPenalty(of=of)  # type: ignore[arg-type]
    one = {penalty.reads[0]: torch.cat([STATE, 7 * STATE, 9 * STATE], 1)}
    block = torch.tensor([[1, 1, 1, 2, 2, 2, 0, 0, 0]])
    batch = Batch({"tokens": TOKENS.repeat(1, 3), "block": block})
    apart = [penalty({penalty.reads[0]: k * STATE}, Batch({"tokens": TOKENS})).total for k in (1, 7)]
    torch.testing.assert_close(penalty(one, batch).total, apart[0] + apart[1])
    assert float(penalty.count(batch)) == (6 if of == "size" else 4)


@pytest.mark.parametrize("of", ["size", "change"])
def test_it_acts_while_training_alone(of: str) -> None:
    penalty = ActivationPenalty(of=of).eval()  # type: ignore[arg-type]
    state = STATE.clone().requires_grad_()
    loss = penalty({penalty.reads[0]: state}, Batch({"tokens": TOKENS})).total
    loss.backward()
    assert float(loss.detach()) == 0 and state.grad is not None and not state.grad.any()


@pytest.mark.parametrize("of", ["size", "change"])
def test_gradients_agree_with_finite_differences(of: str) -> None:
    penalty, batch = ActivationPenalty(of=of), Batch({"tokens": TOKENS})  # type: ignore[arg-type]
    assert torch.autograd.gradcheck(
        lambda state: penalty({penalty.reads[0]: state}, batch).total, (STATE.clone().requires_grad_(),)
    )


def test_tokens_are_counted_in_a_view_that_has_vectors_alone() -> None:
    batch = Batch({"vectors": torch.zeros(2, 3, 4)})
    assert float(ActivationPenalty(of="size").count(batch)) == 6 and float(ActivationPenalty(of="change").count(batch)) == 4
