"""Label every token: replaced or original (ELECTRA), or one of several classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.bounds import BelowOne, Count, Positive
from cloze.networks.blocks.dropout import Dropout
from cloze.networks.blocks.initial import Law
from cloze.networks.clock import Clock
from cloze.objectives.classify import Classify
from cloze.objectives.heads import ClassHead
from cloze.objectives.objective import Kind
from cloze.objectives.transforms import Nonlinearity, plain_transform
from cloze.registry import Given, register


class ClassifyTokens(Classify):
    """`Classify` that decides for every token whether it belongs there."""

    kind: Kind | None = "token_labelling"


class ClassifyInContext(ClassifyTokens):
    """`ClassifyTokens` that reads norm(h + c) in place of each token's state h, where c is that of the first token of its text,
    the text's summary (microsoft/DeBERTa, `LMMaskPredictionHead`). Further parameters: `context_norm.*`."""

    def __init__(self, head: nn.Module, *, set: str, width: int, norm_epsilon: float) -> None:
        super().__init__(head, set=set, everywhere=True)
        self.reads = ("hidden", "summary")
        self.optional = self.optional | {"summaries"}
        self.context_norm = nn.LayerNorm(width, eps=norm_epsilon)

    def rows(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The vectors that are classified, (M, D)."""
        hidden, summary = (states[name] for name in self.reads)
        context = summary.index_select(0, self._texts(hidden, batch).flatten()).view_as(hidden)
        return super().rows({self.reads[0]: self.context_norm(hidden + context)}, batch)

    @staticmethod
    def _texts(hidden: Tensor, batch: Batch) -> Tensor:
        """The number of the text of each token, (B, L); 0 at padding."""
        rows, length = hidden.shape[:2]
        columns = torch.arange(length, device=hidden.device)
        first = torch.zeros(rows, length, dtype=torch.long, device=hidden.device)
        if "block" in batch:
            begins = batch["block"] != F.pad(batch["block"], (1, 0), value=-1)[:, :-1]
            first = torch.where(begins, columns, 0).cummax(1).values
        first = first + torch.arange(rows, device=hidden.device)[:, None] * length
        if "summaries" not in batch:
            return first // length
        numbers = torch.zeros(rows * length, dtype=torch.long, device=hidden.device)
        numbers[batch["summaries"]] = torch.arange(len(batch["summaries"]), device=hidden.device)
        return numbers[first]


@register("objective", "token_labelling")
def token_labelling(
    *,
    set: str = "replaced",
    classes: Count = 2,
    transform: Nonlinearity | None = "gelu",
    dropout: BelowOne = 0.0,
    initial: Law | Literal["glorot"] = "truncated",
    context: bool = False,
    norm_epsilon: Positive = 1e-12,
    width: Given[int],
    clock: Given[Clock],
) -> ClassifyTokens:
    """A label per token: with two classes one output and binary cross-entropy, as in ELECTRA (Clark et al., 2020, §2).

    Without `positions/<set>` every position that is not padding has a target, special tokens included, and `targets/<set>` is
    (B*L,). Weights start with standard deviation 0.02, truncated at two, or not with `initial: normal` (DeBERTaV3's code).
    With `initial: glorot` `output` is uniform in ±√(6 / (inputs + outputs)), as in ELECTRA (`run_pretraining.py` leaves it to
    TensorFlow). Parameters: `head.dense.*` (with a transform), `head.output.*`.

    With `context`, the state of the first token of a text is added to those of all its tokens, and a layer norm with
    `norm_epsilon` follows, before the transform (DeBERTaV3's code); parameters `context_norm.*`.
    """
    head = ClassHead(
        width=width, classes=1 if classes == 2 else classes, transform=plain_transform(transform),
        dropout=Dropout(dropout, clock), initial="normal" if initial == "normal" else "truncated",
    )
    if initial == "glorot":
        nn.init.xavier_uniform_(head.output.weight)
    objective = ClassifyTokens(head, set=set, everywhere=True)
    if context:
        objective = ClassifyInContext(head, set=set, width=width, norm_epsilon=norm_epsilon)
    objective.kind = "token_labelling" if classes == 2 else None
    return objective
