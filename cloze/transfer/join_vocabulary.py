"""`change: [join_vocabulary]`: the network also reads the ids of another tokenizer, that of the text (mixed vocabularies)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from cloze.registry import register
from cloze.transfer.change import Change, Tensors, Transition
from cloze.transfer.vocabulary import New, transfer_rows


@register("change", "join_vocabulary")
@dataclass(frozen=True)
class JoinVocabulary(Change):
    """The vocabulary of the text in front of the network's own (Zhao et al., "Extremely small BERT models from mixed-vocabulary
    training", 2019).

    The first rows of its tables are those of the text's ids, in their order; its own follow, unchanged. A word in both
    vocabularies has a row in each; the first one starts as the second. `new` says where other words start, as in `vocabulary`.
    The edit `mix_vocabularies` makes texts of both kinds of ids. The change acts in training alone: no folder holds the network.
    """

    new: New = "pieces"

    changes_vocabulary: ClassVar[bool] = True
    joins_vocabulary: ClassVar[bool] = True

    def weights(self, state: Tensors, transition: Transition) -> Tensors:
        """The network's tensors, those with a row for every id with the rows of the text's ids before them."""
        return self._with_rows(state, transition.here, transition)

    def head_state(self, state: Tensors, head: nn.Module, transition: Transition) -> Tensors:
        """The same for a head."""
        return self._with_rows(state, head, transition)

    def _with_rows(self, state: Tensors, module: nn.Module, transition: Transition) -> Tensors:
        old, new = transition.old, transition.new
        wanted = module.state_dict()

        def grows(name: str, tensor: Tensor) -> bool:
            known = wanted.get(name)
            return known is not None and tensor.dim() in (1, 2) and len(tensor) == old.size and len(known) == new.size + old.size

        return {
            name: torch.cat([transfer_rows(old, new, tensor, self.new), tensor]) if grows(name, tensor) else tensor
            for name, tensor in state.items()
        }
