"""Which of several classes a text has: an independent yes or no for each."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import BelowOne, Count
from cloze.networks.clock import Clock
from cloze.objectives.objective import Loss, at_least_float32
from cloze.objectives.summary import Read, SummaryValues, summary_head
from cloze.objectives.transforms import Transform
from cloze.registry import Given, register

#: Where the biases of the output start.
BiasStart = Literal["shares", "zero"]


class Several(SummaryValues):
    """Sum of the mean binary cross-entropies of `values/<set>` (M, C), which are 0 or 1, or between; with `summed` of their sums.

    Metrics, with a threshold of one half: `exact`, the texts with every class right, and `correct`, the mean fraction of right
    classes.
    """

    independent = True

    def __init__(self, head: nn.Module, *, set: str, reading: Read = "summary", summed: bool = False) -> None:
        super().__init__(head, set=set, reading=reading)
        self.summed = summed

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss in fp32; zero targets give a zero connected to the parameters."""
        logits = at_least_float32(scores)
        values = self.target_values(batch).to(logits.dtype)
        losses = F.binary_cross_entropy_with_logits(logits, values, reduction="none")
        losses = losses.sum(-1) if self.summed else losses.mean(-1)
        right = (logits.detach() > 0) == (values > 0.5)
        exact, correct = right.all(-1).to(logits.dtype), right.to(logits.dtype).mean(-1)
        return Loss(
            self.weighed(losses, batch), {"exact": self.weighed(exact, batch), "correct": self.weighed(correct, batch)}
        )


@register("objective", "several")
def several(
    *,
    set: str = "label",
    classes: Count = 2,
    summed: bool = False,
    shares: list[float] | None = None,
    bias_start: BiasStart = "shares",
    reading: Read = "summary",
    pool: bool = False,
    transform: Transform = None,
    output_bias: bool = True,
    dropout: BelowOne = 0.0,
    width: Given[int],
    clock: Given[Clock],
) -> Several:
    """The classes of a text, of which it may have any number: a binary cross-entropy for each, from one linear map.

    The head and its parameters are those of `regress`, with an output for each of `classes`. The biases of the output start at
    the log-odds of `shares`, the fraction of labelled texts that have each class, or with `bias_start: zero` at 0, as in
    transformers. With `summed` the loss of a text is the sum over the classes and not their mean, as for answers in the code of
    UNITER, LXMERT, ViLBERT and VL-BERT.
    """
    head = summary_head(
        classes=classes, width=width, clock=clock, dropout=dropout, pool=pool, transform=transform,
        output_bias=output_bias, reading=reading,
    )
    if output_bias and bias_start == "shares" and shares is not None:
        with torch.no_grad():
            head.output.bias.copy_(torch.logit(torch.tensor(shares)))
    return Several(head, set=set, reading=reading, summed=summed)
