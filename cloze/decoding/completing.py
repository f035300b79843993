"""Words for a hole by a head that learnt to tell words from noise: context2vec, CBOW."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from cloze.batch import Batch
from cloze.objectives import NegativeSampling

#: What a state must not have seen, so that a word may be predicted from it.
BLIND = "all_but_itself"


class Completing:
    """A head `negative_sampling` as one that predicts tokens.

    Trained to the end h · u_w is log P(w | h) - log P_n(w) - log k, with k negatives drawn by P_n (Levy and Goldberg, 2014, §3.1;
    for contexts Melamud et al., 2016, §2.4). So h · u_w + log P_n(w), through a softmax, is the probability of w. Ids that were
    never drawn, such as [PAD], have none.
    """

    def __init__(self, head: Any) -> None:
        self.bound = head
        self.objective: NegativeSampling = getattr(head, "objective", head)
        self.head = self.objective.head
        self.set = self.objective.set
        self.at = tuple(self.objective.at)
        self.reads = tuple(head.reads)

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """(M, V): logarithms of probabilities but for a constant."""
        rows = states[self.reads[0]].flatten(0, -2).index_select(0, batch[self.objective.target_positions].long())
        noise = self.objective.noise.log().to(rows.device, rows.dtype)
        return rows @ self.head.weight.to(rows.dtype).T + noise


def completes(head: Any, network: Any) -> bool:
    """Whether this is a head that tells words from noise, by a state that does not see the word."""
    objective = getattr(head, "objective", head)
    kinds = [network.gives[state].sees for state in head.reads if state in network.gives]
    return isinstance(objective, NegativeSampling) and kinds == [BLIND]
