"""Predict one or several numbers of a text from its summary."""

from __future__ import annotations

from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import BelowOne, Count
from cloze.networks.clock import Clock
from cloze.objectives.objective import Loss, wide
from cloze.objectives.summary import Read, SummaryValues, summary_head
from cloze.objectives.transforms import Transform
from cloze.registry import Given, register


class Regress(SummaryValues):
    """Sum of squared errors of `values/<set>` (M, C), averaged over the numbers of a text. Metric `distance`: the absolute
    error."""

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in fp32; zero targets give a zero connected to the parameters."""
        error = wide(scores) - self.target_values(batch).to(wide(scores).dtype)
        distance = error.detach().abs().mean(-1)
        return Loss(self.weighed(error.square().mean(-1), batch), {"distance": self.weighed(distance, batch)})


@register("objective", "regress")
def regress(
    *,
    set: str = "label",
    numbers: Count = 1,
    mean: float = 0.0,
    reading: Read = "summary",
    pool: bool = False,
    transform: Transform = None,
    output_bias: bool = True,
    dropout: BelowOne = 0.0,
    width: Given[int],
    clock: Given[Clock],
) -> Regress:
    """The squared error of one or several `numbers` of a text, predicted from its summary by a linear map.

    `reading: mean` reads the mean of a text's tokens, `concat` the last token, the maximum and the mean. Before the linear map
    come a pooler as in `relation_prediction` (`pool`) or a `transform` as in `classify`.
    The bias of the output starts at `mean`, the mean of the labels.

    Parameters: `head.output.*`; with `pool` `head.pool.*`; with a transform `head.dense.*`, with a norm `head.norm.*`.
    """
    head = summary_head(
        classes=numbers, width=width, clock=clock, dropout=dropout, pool=pool, transform=transform,
        output_bias=output_bias, reading=reading,
    )
    if output_bias:
        nn.init.constant_(head.output.bias, mean)
    return Regress(head, set=set, reading=reading)
