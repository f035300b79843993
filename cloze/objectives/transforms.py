"""The part `transform` of a head: a dense map with a non-linearity, and what may follow it, before the outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from cloze.bounds import Count, Positive
from cloze.registry import PartMark, register

#: The non-linearities after a head's dense map.
Nonlinearity = Literal["gelu", "gelu_tanh", "tanh", "relu"]


def transformed(x: Tensor, kind: Nonlinearity) -> Tensor:
    """The non-linearity after a head's dense map."""
    if kind == "tanh":
        return torch.tanh(x)
    if kind == "relu":
        return F.relu(x)
    return F.gelu(x, approximate="tanh" if kind == "gelu_tanh" else "none")


@dataclass(frozen=True, kw_only=True)
class _DenseMap:
    """A layer norm follows the non-linearity if `norm_epsilon` is given; with `biases: false` neither has a bias. The map makes
    its input `times` as wide (2 in LXMERT's answers)."""

    kind: ClassVar[Nonlinearity]

    norm_epsilon: Positive | None = None
    biases: bool = True
    times: Count = 1


@register("transform", "gelu")
@dataclass(frozen=True, kw_only=True)
class Gelu(_DenseMap):
    """A dense map and GELU. With `norm_epsilon` a layer norm follows; with `biases: false` neither has a bias (ModernBERT)."""

    kind = "gelu"


@register("transform", "gelu_tanh")
@dataclass(frozen=True, kw_only=True)
class GeluTanh(_DenseMap):
    """As `gelu`, in the approximation by tanh."""

    kind = "gelu_tanh"


@register("transform", "tanh")
@dataclass(frozen=True, kw_only=True)
class Tanh(_DenseMap):
    """As `gelu`, with tanh."""

    kind = "tanh"


@register("transform", "relu")
@dataclass(frozen=True, kw_only=True)
class Relu(_DenseMap):
    """As `gelu`, with ReLU."""

    kind = "relu"


#: A parameter that takes one of these parts, or null for no dense map.
Transform = Annotated[Gelu | GeluTanh | Tanh | Relu | None, PartMark("transform")]
_BY_KIND: dict[Nonlinearity, type[Gelu | GeluTanh | Tanh | Relu]] = {cls.kind: cls for cls in (Gelu, GeluTanh, Tanh, Relu)}


def plain_transform(kind: Nonlinearity | None) -> Transform:
    """A dense map with biases and this non-linearity, without a norm; None stays None."""
    return None if kind is None else _BY_KIND[kind]()
