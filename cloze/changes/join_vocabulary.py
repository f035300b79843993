"""`change: [join_vocabulary]`: the network also reads the ids of another tokenizer, that of the text (mixed vocabularies)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cloze.changes.change import Transition
from cloze.changes.vocabulary import STARTS, New, OtherIds, transfer_rows
from cloze.registry import register


@register("change", "join_vocabulary")
@dataclass(frozen=True)
class JoinVocabulary(OtherIds):
    """Put the vocabulary of the text before the network's own (Zhao et al., "Extremely small BERT models from mixed-vocabulary
    training", 2019).

    The first rows of its tables are those of the text's ids, in their order; its own follow, unchanged. A word in both
    vocabularies has a row in each; the first one starts as the second. `new` says where other words start, as in `vocabulary`.
    The edit `mix_vocabularies` makes texts of both kinds of ids. The change acts in training alone: no folder holds the network.
    """

    new: New = "pieces"

    joins_vocabulary: ClassVar[bool] = True

    @property
    def start(self) -> str:
        """Where the rows of new words start."""
        return STARTS[self.new]

    def ids(self, transition: Transition) -> int:
        """Those of the text, then those of the network."""
        return transition.new_tokenizer.size + transition.old_tokenizer.size

    def rows(self, table: Tensor, transition: Transition) -> Tensor:
        """The rows of the text's ids, then the table's own."""
        return torch.cat([transfer_rows(transition.old_tokenizer, transition.new_tokenizer, table, self.new), table])
