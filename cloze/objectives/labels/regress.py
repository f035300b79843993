"""Predict one or several numbers of a text from its summary, or of what stands at a position, such as a hidden region."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import BelowOne, Count
from cloze.errors import RecipeError
from cloze.networks.blocks.initial import Law
from cloze.networks.clock import Clock
from cloze.objectives.heads import TurnedHead
from cloze.objectives.objective import Loss, at_least_float32
from cloze.objectives.summary import Read, SummaryValues, summary_head
from cloze.objectives.transforms import Transform
from cloze.registry import Given, register

Deviation = Literal["squared", "smooth_l1", "kl", "kl_mean"]


def _divergence(scores: Tensor, values: Tensor) -> Tensor:
    """KL(values ‖ softmax(scores)), (M,); the values of a row are divided by their sum, and zeros add nothing."""
    shares = values.clamp(min=0)
    shares = shares / shares.sum(-1, keepdim=True).clamp(min=torch.finfo(shares.dtype).tiny)
    return (torch.special.xlogy(shares, shares) - shares * F.log_softmax(scores, -1)).sum(-1)


#: The loss of each row (M,) from scores and values (M, C).
_LOSSES: Mapping[Deviation, Callable[[Tensor, Tensor], Tensor]] = MappingProxyType({
    "squared": lambda scores, values: (scores - values).square().mean(-1),
    "smooth_l1": lambda scores, values: F.smooth_l1_loss(scores, values, reduction="none").mean(-1),
    "kl": _divergence,
    "kl_mean": lambda scores, values: _divergence(scores, values) / scores.shape[-1],
})


class Regress(SummaryValues):
    """Sum of the deviations of scores from `values/<set>` (M, C): squared or smooth absolute errors, averaged over the numbers of
    a row, or the Kullback-Leibler divergence of the softmax of the scores from the values as shares of their sum, with `kl_mean`
    divided by the count of the numbers.

    Metric `distance`: the absolute error, of shares with both divergences."""

    def __init__(self, head: nn.Module, *, set: str, reading: Read = "summary", deviation: Deviation = "squared") -> None:
        super().__init__(head, set=set, reading=reading)
        self.deviation = deviation

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in fp32; zero targets give a zero connected to the parameters."""
        scores = at_least_float32(scores)
        values = self.target_values(batch).to(scores.dtype)
        predictions = scores.detach()
        if self.deviation.startswith("kl"):
            predictions = predictions.softmax(-1)
        distance = (predictions - values).abs().mean(-1)
        return Loss(
            self.weighed(_LOSSES[self.deviation](scores, values), batch), {"distance": self.weighed(distance, batch)}
        )


@register("objective", "regress")
def regress(
    *,
    set: str = "label",
    numbers: Count = 1,
    mean: float = 0.0,
    reading: Read = "summary",
    deviation: Deviation = "squared",
    tied_map: str | None = None,
    pool: bool = False,
    transform: Transform = None,
    output_bias: bool = True,
    dropout: BelowOne = 0.0,
    initial: Law = "truncated",
    width: Given[int],
    clock: Given[Clock],
    maps: Given[Mapping[str, Any] | None] = None,
) -> Regress:
    """One or several `numbers`, predicted by a linear map: of a text from its summary, or with `reading: hidden` of what is
    at each position of the set, such as the features of hidden regions (`read: item_hidden`).

    `deviation` is the loss: squared errors, `smooth_l1` (LXMERT), or `kl`, where the softmax of the scores is compared with the
    numbers as shares of their sum, such as a detector's classes (ViLBERT); `kl_mean` is the mean over these numbers (UNITER).
    `reading: mean` reads the mean of a text's tokens, `concat` the last token, the maximum and the mean. Before the linear map
    come a pooler as in `relation_prediction` (`pool`) or a `transform` as in `classify`.
    The bias of the output starts at `mean`, the mean of the labels. `tied_map` names a map of the network that reads such
    numbers: the output is then that map transposed, with a bias of its own (UNITER). Weights start as in `relation_prediction`
    (`initial`).

    Parameters: `head.output.*`, with `tied_map` `head.bias`; with `pool` `head.pool.*`; with a transform `head.dense.*`, with a
    norm `head.norm.*`.
    """
    if tied_map is None:
        head: Any = summary_head(
            classes=numbers, width=width, clock=clock, dropout=dropout, pool=pool, transform=transform,
            output_bias=output_bias, reading=reading, initial=initial,
        )
        if output_bias:
            nn.init.constant_(head.output.bias, mean)
        return Regress(head, set=set, reading=reading, deviation=deviation)
    linear_maps = {} if maps is None else maps
    if tied_map not in linear_maps:
        has = ", ".join(linear_maps) or "none"
        raise RecipeError(f"regress.tied_map: the network has no map {tied_map!r}; it has {has}. Leave tied_map out.")
    source = linear_maps[tied_map]
    if (source.in_features, source.out_features) != (numbers, width):
        raise RecipeError(
            f"regress.tied_map: the map {tied_map!r} goes from {source.in_features} numbers to width {source.out_features}; the "
            f"head goes from width {width} to {numbers} numbers. Leave tied_map out."
        )
    return Regress(TurnedHead(source, transform, initial), set=set, reading=reading, deviation=deviation)
