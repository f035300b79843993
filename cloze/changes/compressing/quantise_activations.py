"""`change: [quantise_activations: 8]`: what linear maps read, and what some of them give, has few values (Q8BERT)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cloze.bounds import BelowOne, Count
from cloze.changes.change import Change
from cloze.changes.compressing.quantise import pass_gradient
from cloze.changes.maps import rows_of, whole_maps
from cloze.errors import CheckpointError
from cloze.networks.blocks.computed import surround
from cloze.networks.blocks.observer import Observer
from cloze.registry import register


class ActivationRounding(Observer):
    """Rounds activations to 2^bits - 1 values, symmetric around 0; larger ones become the largest.

    The largest value, `range` (), is an exponential average over steps of the largest magnitude of each step: the first step sets
    it, later ones keep the part `average` of it. While it is 0, nothing is rounded. Gradients pass unchanged, where values are
    clamped, too.
    """

    range: Tensor

    def __init__(self, *, bits: int, average: float) -> None:
        super().__init__()
        self.bits, self.average = bits, average
        self.register_buffer("range", torch.zeros(()))
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same shape."""
        if x.is_meta or not x.numel():
            return x
        if self.training:
            self.seen.copy_(torch.maximum(self.seen, x.detach().abs().amax().to(self.seen.dtype)))
        return pass_gradient(x, self.rounded(x.detach()))

    def rounded(self, x: Tensor) -> Tensor:
        """The rounded values, in the dtype of x."""
        most = 2 ** (self.bits - 1) - 1
        step = self.range / most
        quantised = (x / step).round().clamp(-most, most) * step
        return torch.where(self.range > 0, quantised, x).to(x.dtype)

    def learn(self, largest: float) -> None:
        """Move the range towards the largest magnitude of a step."""
        if float(self.range) == 0.0:
            self.range.fill_(largest)
        else:
            self.range.sub_((1.0 - self.average) * (self.range - largest))


class RoundedMap(nn.Module):
    """Rounds what a map reads, and those rows of its output that are in `rows`, by name."""

    def __init__(self, rows: Mapping[str, slice], *, bits: int, average: float) -> None:
        super().__init__()
        self.rows = dict(rows)
        self.input = ActivationRounding(bits=bits, average=average)
        self.output = nn.ModuleDict({name: ActivationRounding(bits=bits, average=average) for name in rows})

    def read(self, x: Tensor) -> Tensor:
        """The rounded input."""
        rounded: Tensor = self.input(x)
        return rounded

    def give(self, outputs: Tensor, first: int) -> Tensor:
        """The outputs from the row `first` of the map on, (…, rows), some of them rounded."""
        for name, rows in self.rows.items():
            start, stop = (max((edge or 0) - first, 0) for edge in (rows.start, rows.stop))
            stop = outputs.shape[-1] if rows.stop is None else stop
            if outputs[..., start:stop].numel():
                rounded = self.output[name](outputs[..., start:stop])
                outputs = torch.cat([outputs[..., :start], rounded, outputs[..., stop:]], dim=-1)
        return outputs


@register("change", "quantise_activations")
@dataclass(frozen=True)
class QuantiseActivations(Change):
    """Inputs of linear maps above the embeddings have 2^`bits` - 1 values, whose range training learns (Zafrir et al., 2019, §3).

    The range of each map is an exponential average of the largest magnitudes, of which `average` is kept at each step. `outputs`
    names maps whose outputs are rounded, too, each with a range of its own: the authors round queries and keys, which are
    multiplied with each other. `on` names maps as in `lora`. Together with `quantise` this is Q8BERT; softmax, norms and
    activation functions stay exact. The ranges are part of the checkpoint. The plain form has no place for them: other software
    gets the network with exact activations.

    Differs: a step rounds by the ranges of the steps before it, so that the first one rounds nothing, and its result does not
    depend on its micro-batches; the authors' code (IntelLabs/nlp-architect, `quantization.py`) updates a range first. Heads are
    not rounded; their code rounds that of the task, after 200 steps.
    """

    bits: Count = 8
    average: BelowOne = 0.9999
    outputs: tuple[str, ...] = ("query", "key")
    on: tuple[str, ...] | None = None

    lasts: ClassVar[bool] = True

    @property
    def needs_checkpoint(self) -> bool:
        """A network may learn from the start with few bits."""
        return False

    def apply(self, network: Any) -> None:
        """Surround every chosen map."""
        if not 2 <= self.bits <= 16:
            raise CheckpointError(f"quantise_activations: {self.bits} bits; expected 2 to 16.")
        maps = whole_maps(network, self.on, of="quantise_activations")
        if network.stack != "attention":
            raise CheckpointError(
                f"quantise_activations: {type(network).__name__} is not built of Transformer layers. Use quantise, for weights."
            )
        missing = set(self.outputs)
        for path, linear in maps:
            rows = {name: rows_of(path, linear.out_features, name) for name in self.outputs}
            outputs = {name: part for name, part in rows.items() if part is not None}
            missing -= set(outputs)
            surround(linear, "quantise_activations", RoundedMap(outputs, bits=self.bits, average=self.average))
        if missing:
            raise CheckpointError(f"quantise_activations: outputs: no chosen map is called {', '.join(sorted(missing))}.")
