"""One vector per token out of several layers: ELMo's weighted sum, the plain sum, and all of them side by side."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from cloze.errors import RecipeError

Combine = Literal["mix", "sum", "concatenate"]


def combination(kind: Combine, layers: int, *, penalty: float, norm: bool) -> ScalarMix | LayerSum | LayerConcatenation:
    """The module that makes one vector per token of so many layers; `penalty` and `norm` belong to the mix."""
    if kind == "mix":
        return ScalarMix(layers, penalty=penalty, norm=norm)
    return LayerSum(layers) if kind == "sum" else LayerConcatenation(layers)


def chosen_layers(use: tuple[int, ...] | None, layers: int, *, of: str = "mixed layers") -> tuple[int, ...] | None:
    """The numbers of the layers from 0; a `RecipeError` for one that is not there, and for none."""
    if use is None:
        return None
    if not use or not all(-layers <= number < layers for number in use):
        raise RecipeError(
            f"{of}: use: {list(use)}. Expected numbers from 0, the embeddings, to {layers - 1}, the top layer, or "
            f"from -1, the top layer, down to {-layers}."
        )
    return tuple(number % layers for number in use)


class LayerSum(nn.Module):
    """Σ_j h_j, (N, B, L, D) to (B, L, D)."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = layers

    def width(self, width: int) -> int:
        """The width of the vectors, of layers of this width."""
        return width

    def forward(self, layers: Tensor, real: Tensor | None = None) -> Tensor:
        """Layers (N, B, L, D) to (B, L, D)."""
        return layers.sum(0)


class LayerConcatenation(LayerSum):
    """[h_1; …; h_N], (N, B, L, D) to (B, L, N · D): BERT's features are its last four layers (Devlin et al., 2019, §5.3)."""

    def width(self, width: int) -> int:
        """N times as wide."""
        return self.layers * width

    def forward(self, layers: Tensor, real: Tensor | None = None) -> Tensor:
        """Layers (N, B, L, D) to (B, L, N · D)."""
        return torch.cat(layers.unbind(0), dim=-1)


class ScalarMix(nn.Module):
    """γ Σ_j s_j h_j with s = softmax(w), (N, B, L, D) to (B, L, D) (Peters et al., 2018, §3.2).

    w begins at zero, so that the mix begins as the mean, and γ at one. `penalty` λ adds λ ‖w‖² to the loss once a step: a large
    one holds the mix at the mean, a small one lets layers differ. `norm` first brings each layer to mean 0 and variance 1 over
    all real tokens of the batch and all features at once (the authors' and allennlp's option; not a norm per token): vectors
    then depend on the batch. Parameters: `weights` (N,), `gamma` ().
    """

    def __init__(self, layers: int, *, penalty: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        self.penalty, self.norm = penalty, norm
        self.weights = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    @property
    def shares(self) -> Tensor:
        """s, the share of each layer (N,)."""
        return torch.softmax(self.weights, 0)

    def width(self, width: int) -> int:
        """The width of the vectors, of layers of this width."""
        return width

    def cost(self) -> Tensor:
        """λ ‖w‖²."""
        return self.penalty * self.weights.square().sum()

    def forward(self, layers: Tensor, real: Tensor | None = None) -> Tensor:
        """Layers (N, B, L, D) to (B, L, D); `real` (B, L) is true at tokens that are not padding."""
        if self.norm:
            layers = _normed(layers, real)
        return self.gamma * torch.einsum("n,nbld->bld", self.shares.to(layers.dtype), layers)


def _normed(layers: Tensor, real: Tensor | None, epsilon: float = 1e-12) -> Tensor:
    """Every layer less its one mean, divided by its one deviation."""
    if real is None:
        chosen = torch.ones(layers.shape[1:3], dtype=layers.dtype, device=layers.device)
    else:
        chosen = real.to(layers.dtype)
    mask = chosen[None, :, :, None]
    count = chosen.sum() * layers.shape[-1]
    mean = (layers * mask).sum((1, 2, 3), keepdim=True) / count
    variance = ((layers - mean) * mask).square().sum((1, 2, 3), keepdim=True) / count
    return (layers - mean) / torch.sqrt(variance + epsilon)
