"""The Hessian's top eigenvalue by power iteration, and the bits that layers get by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.compression.measures import bits_by_layer
from cloze.errors import UserError
from cloze.networks.fast.switch import switched
from cloze.probes.curvature import Curvature, curvature, layer_weights, top_eigenvalue
from cloze.probes.finding import Subject, as_text
from cloze.probes.kinds.loss_curvature import CurvatureProbe
from cloze.probes.losses import text_examples
from tests.making import network_of

TEXTS = ["The cat sleeps on the mat.", "A dog barks", "Rain fell on the garden", "Nobody saw the mice.", "the river rose", "mice"]


def top(loss: torch.Tensor, weights: list[torch.Tensor], **given: Any) -> tuple[float, list[torch.Tensor]]:
    gradients = torch.autograd.grad(loss, weights, create_graph=True, allow_unused=True)
    return top_eigenvalue(gradients, weights, generator=torch.Generator().manual_seed(0), **given)


@pytest.mark.parametrize(("diagonal", "expected"), [
    ([1.0, 4.0, 2.0], 4.0), ([1.0, -9.0, 2.0], -9.0), ([0.0, 0.0, 0.0], 0.0), ([0.0, 0.0, 1e-8], 1e-8),
])  # fmt: skip
def test_the_top_eigenvalue_of_a_quadratic_is_its_largest_entry_with_its_sign(diagonal: list[float], expected: float) -> None:
    d = torch.tensor(diagonal, dtype=torch.double)
    w = torch.randn(3, dtype=torch.double, generator=torch.Generator().manual_seed(1)).requires_grad_()
    value, (vector,) = top(0.5 * (d * w**2).sum(), [w], tolerance=1e-9)
    assert value == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert float(vector.norm()) == pytest.approx(1.0)
    if expected:
        assert abs(float(vector[diagonal.index(expected)])) == pytest.approx(1.0, abs=1e-3)


def test_the_top_eigenvalue_of_a_softmax_layer_is_that_of_its_dense_hessian() -> None:
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(20, 4, generator=generator).double(), torch.randint(3, (20,), generator=generator)

    def loss(w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(x @ w.view(3, 4).T, y)

    w = torch.randn(12, generator=generator).double().requires_grad_()
    dense = torch.autograd.functional.hessian(loss, w.detach())
    assert top(loss(w), [w], tolerance=1e-10)[0] == pytest.approx(float(torch.linalg.eigvalsh(dense)[-1]), rel=1e-6)
    one, other = w.detach()[:5].requires_grad_(), w.detach()[5:].requires_grad_()  # several weights are one vector
    assert top(loss(torch.cat([one, other])), [one, other], tolerance=1e-10)[0] == pytest.approx(top(loss(w), [w])[0], rel=1e-2)
    own = top(loss(torch.cat([one, other])), [one], tolerance=1e-10)[0]  # of a part of the weights: a block of the Hessian
    assert own == pytest.approx(float(torch.linalg.eigvalsh(dense[:5, :5])[-1]), rel=1e-6)


def test_the_eigenvalue_of_a_layer_is_the_slope_of_its_gradient(checkpoint: Callable[..., Any]) -> None:
    examples = text_examples(checkpoint("bert"), TEXTS)
    examples.network.double()
    examples.head.double()  # type: ignore[attr-defined]
    weights: list[torch.Tensor] = list(layer_weights(examples.network)[1])

    def gradient() -> list[torch.Tensor]:
        with switched(False):
            loss = examples.losses(range(len(TEXTS))).mean()
            return list(torch.autograd.grad(loss, weights, create_graph=True))

    value, vector = top_eigenvalue(gradient(), weights, generator=torch.Generator().manual_seed(0), tolerance=1e-8, most=300)
    ends = []
    for step in (1e-5, -2e-5):
        with torch.no_grad():
            for weight, part in zip(weights, vector, strict=True):
                weight.add_(step * part)
        ends.append(sum(float((g.detach() * v).sum()) for g, v in zip(gradient(), vector, strict=True)))
    assert value == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-3) and abs(value) > 1e-4


def test_sensitivity_is_the_mean_and_the_deviation_over_parts_of_the_data_and_the_batch_does_not_matter(
    checkpoint: Callable[..., Any]
) -> None:
    examples = text_examples(checkpoint("bert"), TEXTS)
    found = curvature(examples, slices=2, size=1)
    assert found.eigenvalues.shape == (2, len(examples.network.layers))
    np.testing.assert_allclose(curvature(examples, slices=2, size=7).eigenvalues, found.eigenvalues, rtol=5e-3)
    assert not any(parameter.grad is not None for parameter in examples.network.parameters())
    given = Curvature(np.array([[1.0, -4.0], [3.0, -4.0]]))
    assert given.sensitivity.tolist() == [2.0 + 1.0, 4.0]
    said = as_text(CurvatureProbe().finding([Subject("one", Path())], {"one": given}))
    assert "not at a minimum" in said and "sensitive" in said


def test_the_most_sensitive_layers_get_the_most_bits() -> None:
    assert bits_by_layer(np.array([3.0, 1.0, 9.0, 2.0]), [4, 2]) == [4, 2, 4, 2]
    assert bits_by_layer(np.array([3.0, 1.0, 9.0]), [2, 8, 3]) == [3, 2, 8]


@pytest.mark.parametrize(("part", "arguments", "said"), [
    ("lstm", {"layers": 1, "width": 8, "inner": 8}, "LSTM is not built of Transformer layers"),
    ("transformer", {"layers": 2, "width": 8, "heads": 2, "positions.max_length": 8, "share.weights": "all"}, "share their"),
])  # fmt: skip
def test_networks_without_layers_to_tell_apart_are_refused(part: str, arguments: dict[str, Any], said: str) -> None:
    from cloze.networks import Clock

    with pytest.raises(UserError, match=said):
        layer_weights(network_of(part, **arguments, vocab_size=20, clock=Clock()))
