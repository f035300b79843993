"""Muon against the decomposition that it approximates, and against the AdamW that it leaves the rest to."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from cloze.training.muon import Muon, orthogonal
from cloze.training.optimizers import AdamW


@pytest.mark.parametrize("shape", [(6, 6), (4, 12), (12, 4)])
def test_the_iteration_keeps_the_directions_of_a_matrix_and_levels_its_sizes(shape: tuple[int, int]) -> None:
    matrices = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    made = left.mT @ orthogonal(matrices, steps=5) @ right.mT
    values = made.diagonal(dim1=1, dim2=2)
    assert torch.allclose(made, torch.diag_embed(values), atol=1e-9)
    assert float(values.min()) > 0.6 and float(values.max()) < 1.25


def test_bfloat16_is_enough_for_the_iteration() -> None:
    matrices = torch.randn(2, 32, 64, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(orthogonal(matrices), orthogonal(matrices.double()).float(), atol=0.03)


def test_a_step_is_momentum_ahead_made_orthogonal_and_sized_as_adams_with_decay_of_the_matrix() -> None:
    torch.manual_seed(2)
    weight = nn.Parameter(torch.randn(4, 8, dtype=torch.float64))
    before, gradients = weight.detach().clone(), [torch.randn(4, 8, dtype=torch.float64) for _ in range(2)]
    optimizer = Muon(weight_decay=0.1).build([("networks.main.layers.0.attention.output.weight", weight)])
    optimizer.param_groups[0]["lr"] = 0.01
    momentum = torch.zeros_like(before)
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()
        momentum = 0.95 * momentum + gradient
        made = orthogonal((gradient + 0.95 * momentum).float()[None])[0].double()
        before = before * (1 - 0.01 * 0.1) - 0.01 * 0.2 * math.sqrt(8) * made
    assert torch.allclose(weight, before, atol=1e-8)


def test_stacked_queries_keys_and_values_are_matrices_of_their_own() -> None:
    torch.manual_seed(3)
    start, gradient = torch.randn(12, 4), torch.randn(12, 4)
    together, apart = nn.Parameter(start.clone()), [nn.Parameter(part.clone()) for part in start.chunk(3)]
    one = Muon().build([("networks.main.layers.0.attention.projections.weight", together)])
    three = Muon().build([(f"networks.main.layers.{n}.attention.output.weight", part) for n, part in enumerate(apart)])
    together.grad = gradient.clone()
    for part, its in zip(apart, gradient.chunk(3), strict=True):
        part.grad = its.clone()
    for optimizer in (one, three):
        for group in optimizer.param_groups:
            group["lr"] = 0.02
        optimizer.step()
    assert torch.allclose(together, torch.cat(apart), atol=1e-6)


def test_tables_heads_and_vectors_are_adamws() -> None:
    torch.manual_seed(4)
    names = ["networks.main.embeddings.tokens.weight", "objectives.head.bias", "networks.main.layers.0.norm.weight"]
    starts = [torch.randn(6, 4), torch.randn(5), torch.randn(4)]
    found = []
    for spec in (Muon(betas=(0.9, 0.95), weight_decay=0.1), AdamW(betas=(0.9, 0.95), epsilon=1e-8, weight_decay=0.1)):
        parameters = [nn.Parameter(start.clone()) for start in starts]
        optimizer = spec.build(list(zip(names, parameters, strict=True)))
        for number in range(3):
            for group in optimizer.param_groups:
                group["lr"] = 0.01
            for parameter, start in zip(parameters, starts, strict=True):
                parameter.grad = start.roll(number)
            optimizer.step()
        found.append(parameters)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
