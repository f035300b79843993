"""A mixture of a fine-tuned network with the linear model on n-grams next to it: one share, chosen on dev rows.

A network that was trained on little and a linear model err on different rows, so that a mixture is often better than both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.tasks.linear.linear_task import LinearTask, Outputs
from cloze.tasks.linear.model import SETTINGS, TENSORS, LinearModel
from cloze.tasks.linear.shares import choose_shares

ENTRY = "mixture"  # of task.json


@dataclass(frozen=True)
class Mixture:
    """A linear model, its share in the mixture, and the sharpness of the mixed probabilities.

    Logarithms of probabilities are mixed, so that the mixture of two sure answers is sure; numbers are mixed as they are. The
    sharpness makes up for models that are too sure, or not sure enough.
    """

    linear: LinearModel
    share: float
    sharpness: float

    def outputs(self, examples: Any, network: Outputs) -> Outputs:
        """The mixed outputs of examples; `network` are those of the network, in the form of `LinearModel.outputs`."""
        return pooled(self.linear.task, network, self.linear.outputs(examples), self.share, self.sharpness)

    def word_scores(self, scores: Tensor, shares: Sequence[NDArray[Any]]) -> Tensor:
        """Scores (M, C) of the words of some texts, with those of the linear model, whose `shares` (words, C) are those of each
        text. The scale is that of the network, so that the moves of a random field weigh as much as before."""
        log_shares = torch.from_numpy(np.log(np.maximum(np.concatenate(shares), _LEAST)).astype(np.float32)).to(scores)
        network = min(1.0 - self.share, 1.0) or _LEAST
        return torch.log_softmax(scores, -1) + self.share / network * log_shares

    @classmethod
    def read(cls, record: Mapping[str, Any], linear: LinearModel | None, folder: Path) -> Mixture:
        """The mixture of a fine-tuned folder, from its entry of task.json and the linear model in the folder."""
        if linear is None:
            raise CheckpointError(
                f"{folder}: its answers are mixed with those of a linear model, and cloze/{SETTINGS} is missing.\n"
                f"  Copy cloze/{SETTINGS} and cloze/{TENSORS} too. For the network alone, delete {ENTRY!r} from cloze/task.json."
            )
        return cls(linear, float(record["share"]), float(record["sharpness"]))

    def remark(self) -> str:
        """A sentence that says what answers."""
        return (
            f"the answers are those of a mixture: {1 - self.share:.0%} the network and {self.share:.0%} the linear model; "
            "transformers reads the network alone"
        )

    def record(self) -> dict[str, float]:
        """What task.json keeps."""
        return {"share": self.share, "sharpness": self.sharpness}


def choose_mixture(linear: LinearModel, examples: Any, network: Outputs) -> Mixture:
    """The mixture that is best on examples with answers, which neither model was trained on (`choose_shares`)."""
    task, outputs = linear.task, linear.outputs(examples)
    return Mixture(linear, *choose_shares(
        lambda share, sharp: task.loss(examples, pooled(task, network, outputs, share, sharp)), len(task.targets(examples)),
        sharpens=task.estimator.sharpens,
    ))


def pooled(task: LinearTask, network: Outputs, linear: Outputs, share: float, sharpness: float) -> Outputs:
    """Two outputs of the same examples, pooled; lists are pooled example by example."""
    pool = task.estimator.pooled
    if isinstance(network, list):
        return [pool(np.atleast_2d(network_part), np.atleast_2d(linear_part), share, sharpness).reshape(network_part.shape)
                for network_part, linear_part in zip(network, linear, strict=True)]  # fmt: skip
    return pool(network, linear, share, sharpness)


_LEAST = 1e-6  # probability of an answer that a model considers impossible
