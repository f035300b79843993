"""Plain descent, Adam, AdaGrad and GloVe's AdaGrad against updates worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import WordVectors
from cloze.objectives import CooccurrenceRegression
from cloze.recipe.parts import builder_of


def one(value: float, *, matrix: bool = True) -> nn.Parameter:
    return nn.Parameter(torch.full((1, 1) if matrix else (1,), value, dtype=torch.double))


def steps(name: str, parameter: nn.Parameter, gradients: list[float], rate: float, **options: object) -> list[float]:
    optimizer = builder_of("optimizer", name)(**options).build([("weight", parameter)])
    found = []
    for gradient in gradients:
        parameter.grad = torch.full_like(parameter, gradient)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        found.append(parameter.item())
    return found


def test_plain_descent_steps_along_the_gradient_and_decays_matrices_alone() -> None:
    assert steps("sgd", one(1.0), [2.0, -1.0], 0.1) == pytest.approx([0.8, 0.9])
    assert steps("sgd", one(1.0), [0.0], 0.1, weight_decay=0.5) == pytest.approx([0.95])
    assert steps("sgd", one(1.0, matrix=False), [0.0], 0.1, weight_decay=0.5) == [1.0]


def test_momentum_keeps_what_it_had() -> None:
    assert steps("sgd", one(0.0), [1.0, 1.0, 0.0], 0.1, momentum=0.9) == pytest.approx([-0.1, -0.29, -0.461])
    assert steps("sgd", one(0.0), [1.0], 0.1, momentum=0.9, nesterov=True) == pytest.approx([-0.19])
    with pytest.raises(RecipeError, match="momentum"):
        builder_of("optimizer", "sgd")(nesterov=True).build([("weight", one(0.0))])


def test_rows_whose_gradient_is_too_long_are_cut_and_no_others() -> None:
    parameter = nn.Parameter(torch.zeros(2, 2))
    optimizer = builder_of("optimizer", "sgd")(row_clip=10.0).build([("weight", parameter)])
    parameter.grad = torch.tensor([[30.0, 40.0], [0.3, 0.4]])
    optimizer.param_groups[0]["lr"] = 1.0
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), -torch.tensor([[6.0, 8.0], [0.3, 0.4]]))
    with pytest.raises(RecipeError, match="row_clip"):
        builder_of("optimizer", "sgd")(row_clip=0.0).build([("weight", parameter)])


def test_adagrad_divides_by_the_root_of_all_squares() -> None:
    found = steps("adagrad", one(0.0), [3.0, 4.0], 0.1, accumulator=1.0)
    assert found == pytest.approx([-0.3 / math.sqrt(10), -0.3 / math.sqrt(10) - 0.4 / math.sqrt(26)])


def test_adam_takes_a_first_step_of_the_rate() -> None:
    assert steps("adam", one(0.0), [123.0], 0.1) == pytest.approx([-0.1])
    assert steps("adam", one(1.0), [0.0], 0.1, weight_decay=0.5) == pytest.approx([0.9])  # decay is part of the gradient


def test_one_cell_moves_vectors_and_biases_as_in_gloves_code() -> None:
    """W = (.1, -.2), C = (.3, .4), b = .05, b~ = -.05, X = 20, limit 100, rate .05."""
    network = WordVectors(width=2, both_sides=True, biases=True, vocab_size=2).double()
    assert network.contexts is not None and network.bias is not None and network.context_bias is not None
    with torch.no_grad():
        network.embeddings.weight[0] = torch.tensor([0.1, -0.2], dtype=torch.double)
        network.contexts.weight[1] = torch.tensor([0.3, 0.4], dtype=torch.double)
        network.bias[0], network.context_bias[1] = 0.05, -0.05
    optimizer = builder_of("optimizer", "glove_adagrad")().build(network.named_parameters())
    cell = torch.tensor([[0, 1]])
    states = network(want=frozenset({"association"}), tokens=cell, cell=cell)
    CooccurrenceRegression()(states, Batch({"cell": cell, "cell_count": torch.tensor([20.0])})).total.backward()
    untouched = network.embeddings.weight[1].clone()
    for group in optimizer.param_groups:
        group["lr"] = 0.05
    optimizer.step()
    assert network.embeddings.weight[0].tolist() == pytest.approx([0.1136633, -0.18178227], abs=1e-8)
    assert network.contexts.weight[1].tolist() == pytest.approx([0.30455443, 0.39089114], abs=1e-8)
    assert [network.bias[0].item(), network.context_bias[1].item()] == pytest.approx([0.96088641, 0.86088641], abs=1e-8)
    squares = {name: optimizer.state[p]["sum"] for name, p in network.named_parameters()}
    assert squares["embeddings.weight"][0].tolist() == pytest.approx([1.00018669, 1.00033189], abs=1e-8)
    assert squares["bias"][0].item() == pytest.approx(1.82971405, abs=1e-8)
    assert torch.equal(network.embeddings.weight[1], untouched) and squares["embeddings.weight"][1].eq(1).all()


def test_gloves_gradients_are_clipped_number_by_number() -> None:
    assert steps("glove_adagrad", one(0.0), [1e6], 0.05) == pytest.approx([-5.0])
    assert steps("glove_adagrad", one(0.0, matrix=False), [1e6], 0.05) == pytest.approx([-1e6])
    assert steps("glove_adagrad", one(0.0), [1e6], 0.05, sum_clip=2.0) == pytest.approx([-0.1])
    assert steps("glove_adagrad", one(0.0, matrix=False), [1e6], 0.05, sum_clip=2.0) == pytest.approx([-2.0])


def test_glove_fits_a_small_matrix_of_counts() -> None:
    """With as many numbers as words and every cell there, w · c + b + b~ becomes ln X."""
    torch.manual_seed(0)
    counts = torch.tensor([[4.0, 9, 2], [9, 1, 5], [2, 5, 7]], dtype=torch.double)
    network = WordVectors(width=4, both_sides=True, biases=True, vocab_size=3).double()
    cell = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    batch = Batch({"cell": cell, "cell_count": counts.flatten()})
    optimizer = builder_of("optimizer", "glove_adagrad")().build(network.named_parameters())
    losses = []
    for _ in range(1500):
        optimizer.zero_grad()
        states = network(want=frozenset({"association"}), tokens=cell, cell=cell)
        loss = CooccurrenceRegression(limit=10)(states, batch).total
        loss.backward()
        losses.append(loss.item())
        for group in optimizer.param_groups:
            group["lr"] = 0.5
        optimizer.step()
    assert losses[-1] < 1e-4
    torch.testing.assert_close(states["association"].detach(), counts.log().flatten(), atol=0.05, rtol=0)


def test_a_state_that_is_saved_goes_on_where_it_stopped() -> None:
    straight = steps("glove_adagrad", one(0.5), [1.0, 2.0], 0.05)
    parameter = one(0.5)
    build = builder_of("optimizer", "glove_adagrad")().build
    first, second = build([("weight", parameter)]), build([("weight", parameter)])
    for optimizer, gradient in ((first, 1.0), (second, 2.0)):
        if optimizer is second:
            second.load_state_dict(first.state_dict())
        parameter.grad = torch.full_like(parameter, gradient)
        optimizer.param_groups[0]["lr"] = 0.05
        optimizer.step()
    assert parameter.item() == straight[-1]
