"""Muon against torch's own, and its split between matrices of layers and the rest."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cloze.training.optimizers.muon import Muon, orthogonal
from cloze.training.optimizers.optimizers import AdamW

MATRIX = "networks.main.layers.0.outer.weight"


def stepped(optimizer, parameters, rate=0.02, steps=4):
    """The parameters after some updates with gradients of a fixed seed."""
    generator = torch.Generator().manual_seed(3)
    for group in optimizer.param_groups:
        group["lr"] = rate
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    return [parameter.detach().clone() for parameter in parameters]


def drawn(*shapes):
    """Parameters of a fixed seed."""
    generator = torch.Generator().manual_seed(2)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (8, 8)])
def test_a_matrix_of_a_layer_moves_as_under_torchs_muon(shape):
    (ours,), (theirs,) = drawn(shape), drawn(shape)
    (found,) = stepped(Muon(weight_decay=0.1).build([(MATRIX, ours)]), [ours])
    peer = torch.optim.Muon([theirs], weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    (expected,) = stepped(peer, [theirs])
    moved = (expected - drawn(shape)[0]).norm()
    assert (found - expected).norm() < 0.02 * moved  # torch iterates in bfloat16


def test_everything_outside_of_layers_and_every_vector_moves_as_under_adamw():
    names = ["networks.main.embeddings.tokens.weight", "networks.main.layers.0.norm.weight", "objectives.a.head.dense.weight"]
    shapes, options = [(9, 4), (4,), (4, 4)], {"betas": (0.9, 0.98), "epsilon": 1e-6, "weight_decay": 0.1}
    ours, theirs = drawn(*shapes), drawn(*shapes)
    found = stepped(Muon(**options).build(zip(names, ours, strict=True)), ours)
    expected = stepped(AdamW(**options).build(zip(names, theirs, strict=True)), theirs)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_stacked_projections_are_made_orthogonal_one_by_one():
    (whole,) = drawn((12, 6))
    parts = [nn.Parameter(part.clone()) for part in whole.detach().split(4)]
    optimizer = Muon().build([("networks.main.layers.0.attention.projections.weight", whole)])
    apart = Muon().build([(f"networks.main.layers.{k}.outer.weight", part) for k, part in enumerate(parts)])
    for group in (*optimizer.param_groups, *apart.param_groups):
        group["lr"] = 0.1
    whole.grad = torch.randn(12, 6, generator=torch.Generator().manual_seed(5))
    for part, gradient in zip(parts, whole.grad.split(4), strict=True):
        part.grad = gradient
    optimizer.step(), apart.step()
    assert torch.allclose(whole.detach(), torch.cat([part.detach() for part in parts]), atol=1e-6)


def test_singular_values_come_close_to_one_and_singular_vectors_stay():
    (matrix,) = drawn((10, 30))
    (found,) = orthogonal(matrix.detach()[None]).float()
    left, values, right = torch.linalg.svd(matrix.detach(), full_matrices=False)
    assert torch.linalg.svdvals(found).sub(1).abs().max() < 0.35
    inside = left.T @ found @ right.T
    assert torch.allclose(inside, torch.diag(inside.diagonal()), atol=2e-2) and values.max() / values.min() > 2


def test_a_state_that_was_saved_continues_exactly():
    first, second = drawn((6, 8), (8,)), drawn((6, 8), (8,))
    names = [MATRIX, "networks.main.norm.weight"]
    one, other = (Muon().build(zip(names, some, strict=True)) for some in (first, second))
    stepped(one, first), stepped(other, second)
    fresh = Muon().build(zip(names, second, strict=True))
    fresh.load_state_dict(other.state_dict())
    expected, found = stepped(one, first), stepped(fresh, second)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
