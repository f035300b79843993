"""How sharply the loss bends in the weights of each layer: the Hessian's eigenvalue of largest magnitude, by power iteration.

Shen et al., "Q-BERT: Hessian Based Ultra Low Precision Quantization of BERT" (2020), §3: a layer is more sensitive, and gets more
bits, the larger |mean| + deviation of its eigenvalue over parts of the data is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from cloze.errors import UserError
from cloze.networks.fast.switch import switched
from cloze.probes.losses import LossExamples

SLICES = 10
MOST = 100  # iterations
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Curvature:
    """The `eigenvalues` (S, N) of the Hessian of the loss in the weights of each of N layers on S parts of the data.

    An eigenvalue has the largest magnitude in its layer, and its own sign: a negative one shows that the layer is at no minimum.
    """

    eigenvalues: NDArray[np.float64]
    remarks: Sequence[str] = ()

    @property
    def sensitivity(self) -> NDArray[np.float64]:
        """Q-BERT's criterion for each layer (N): |mean| + standard deviation over the slices."""
        sensitivity: NDArray[np.float64] = np.abs(self.eigenvalues.mean(0)) + self.eigenvalues.std(0)
        return sensitivity


def top_eigenvalue(
    gradients: Sequence[Tensor | None], weights: Sequence[Tensor], *, generator: torch.Generator, most: int = MOST,
    tolerance: float = TOLERANCE,
) -> tuple[float, list[Tensor]]:
    """The eigenvalue of largest magnitude of the Hessian in `weights`, with its sign, and its unit vector, one part per weight.

    `gradients` are those of the loss by the weights, made with `create_graph`; None where there is none. Power iteration, from a
    random vector, ends when the Rayleigh quotient changes by less than `tolerance` of itself, or after `most` iterations.

    >>> w = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> loss = w[0] ** 2 - 3 * w[1] ** 2  # the Hessian is diagonal: 2 and -6
    >>> gradients = torch.autograd.grad(loss, [w], create_graph=True)
    >>> round(top_eigenvalue(gradients, [w], generator=torch.Generator().manual_seed(0))[0], 3)
    -6.0
    """
    vector = [torch.randn(w.shape, generator=generator).to(w) for w in weights]
    size = _length(vector)
    vector = [part / size for part in vector]
    bent = [(g, v) for g, v in zip(gradients, vector, strict=True) if g is not None and g.requires_grad]
    if not bent:
        return 0.0, vector
    value = 0.0
    for _ in range(most):
        outputs = [v for g, v in zip(gradients, vector, strict=True) if g is not None and g.requires_grad]
        products = torch.autograd.grad([g for g, _ in bent], weights, grad_outputs=outputs, retain_graph=True, allow_unused=True)
        product = [torch.zeros_like(w) if part is None else part for part, w in zip(products, weights, strict=True)]
        before, value = value, float(sum((v * p).sum() for v, p in zip(vector, product, strict=True)))
        size = _length(product)
        if size == 0.0:
            return 0.0, vector
        vector = [part / size for part in product]
        if abs(value - before) <= tolerance * abs(value):
            break
    return value, vector


def curvature(
    examples: LossExamples, *, slices: int = SLICES, most: int | None = None, seed: int = 0, size: int = 32
) -> Curvature:
    """The top eigenvalue of every layer, each on `slices` parts of the examples; fewer if there are fewer examples.

    The parts are drawn at random and have no example in common; with `most`, they have so many examples together. The loss of a
    part is the mean over its examples, without dropout. Weights are those of the linear maps of a layer.

    Raises:
        UserError: The network has no second derivatives, or its layers share their weights.
    """
    layers = layer_weights(examples.network)
    every = [weight for layer in layers for weight in layer]
    trained = [weight.requires_grad for weight in every]
    order = np.random.default_rng(seed).permutation(len(examples.lengths))[:most]
    generator = torch.Generator().manual_seed(seed)
    eigenvalues = []
    try:
        for weight in every:
            weight.requires_grad_(True)
        for part in np.array_split(order, min(slices, len(order))):
            by_length = sorted(part.tolist(), key=lambda n: examples.lengths[n])
            batches = [by_length[at : at + size] for at in range(0, len(part), size)]
            with switched(False), sdpa_kernel(SDPBackend.MATH):  # fast functions and kernels have no second derivative
                loss = torch.stack([examples.losses(batch).sum() for batch in batches]).sum() / len(part)
                gradients = iter(torch.autograd.grad(loss, every, create_graph=True, allow_unused=True))
                eigenvalues.append([
                    top_eigenvalue([next(gradients) for _ in weights], weights, generator=generator)[0] for weights in layers
                ])  # fmt: skip
    finally:
        for weight, flag in zip(every, trained, strict=True):
            weight.requires_grad_(flag)
    return Curvature(np.array(eigenvalues), examples.remarks)


def layer_weights(network: Any) -> list[list[nn.Parameter]]:
    """The weights of the linear maps of each layer; a `UserError` where layers share them or a loss has no second derivative."""
    name = type(network).__name__
    if network.stack != "attention":
        raise UserError(
            f"{name} is not built of Transformer layers: its loss has no second derivative here.\n"
            "  Other probes measure it (geometry, layers, edges, distance); cloze compress --bits 8 rounds all layers alike."
        )
    layers: list[list[Any]] = [
        [module._parameters["weight"] for module in group.modules() if isinstance(module, nn.Linear)]
        for group in network.depth_groups()[1:]
    ]
    if not all(layers):
        raise UserError(
            f"the layers of {name} share their weights: there is nothing to tell apart.\n"
            "  Round them alike: cloze compress --bits 8."
        )
    return layers


def _length(parts: Sequence[Tensor]) -> float:
    return float(torch.stack([part.detach().double().square().sum() for part in parts]).sum().sqrt())
