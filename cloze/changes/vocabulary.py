"""`change: [vocabulary]`: the network gets rows for another vocabulary; words in both keep theirs, new ones start at the mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cloze.changes.change import Change, Tensors, Transition
from cloze.networks.network import Network
from cloze.registry import register

New = Literal["mean", "random", "pieces"]
#: Where the rows of new words start, in words.
STARTS: Mapping[New, str] = MappingProxyType({
    "mean": "as the mean of all rows", "random": "at random around the mean of all rows",
    "pieces": "as the mean of the rows of their old pieces",
})  # fmt: skip


class OtherIds(Change, ABC):
    """The network reads other ids: tensors with a row for every id, its own and those of its heads, get the rows of these."""

    changes_vocabulary: ClassVar[bool] = True

    @property
    @abstractmethod
    def start(self) -> str:
        """Where the rows of new ids start, in words."""

    def weights(self, state: Tensors, transition: Transition) -> Tensors:
        """The network's tensors."""
        return self._with_rows(state, transition.new_network, transition)

    def head_state(self, state: Tensors, head: nn.Module, transition: Transition) -> Tensors:
        """The tensors of a head."""
        return self._with_rows(state, head, transition)

    @abstractmethod
    def ids(self, transition: Transition) -> int:
        """How many ids the changed network reads."""

    @abstractmethod
    def rows(self, table: Tensor, transition: Transition) -> Tensor:
        """The table (V, D) or the bias (V,) of the checkpoint with a row for each of these ids."""

    def _with_rows(self, state: Tensors, module: nn.Module, transition: Transition) -> Tensors:
        new_state, before, after = module.state_dict(keep_vars=True), transition.old_tokenizer.size, self.ids(transition)
        layers = module.depth_groups()[1:] if isinstance(module, Network) else ()
        inside = {id(tensor) for layer in layers for tensor in layer.state_dict(keep_vars=True).values()}

        def has_ids(name: str, tensor: Tensor) -> bool:
            """Whether a tensor has a row for each id. If both vocabularies have one size, which may be that of positions or of a
            feed-forward, too, its shape alone does not tell."""
            fits = name in new_state and new_state[name].shape == (after, *tensor.shape[1:])
            of_words = name.endswith("tokens.weight") or id(new_state.get(name)) not in inside and ".positions." not in name
            return fits and of_words and tensor.dim() in (1, 2) and len(tensor) == before

        return {name: self.rows(tensor, transition) if has_ids(name, tensor) else tensor for name, tensor in state.items()}


@register("change", "vocabulary")
@dataclass(frozen=True)
class Vocabulary(OtherIds):
    """Replace the vocabulary. Words that both vocabularies have keep their rows; `new` says where the other rows start.

    At the `mean` of all rows, at a `random` one, or at the mean of the rows of their `pieces` in the old vocabulary; see
    `transfer_rows`.
    """

    new: New = "mean"

    @property
    def start(self) -> str:
        """Where the rows of new words start."""
        return STARTS[self.new]

    def ids(self, transition: Transition) -> int:
        """Those of the new vocabulary."""
        return transition.new_tokenizer.size

    def rows(self, table: Tensor, transition: Transition) -> Tensor:
        """The rows of the new ids."""
        old, new = transition.old_tokenizer, transition.new_tokenizer
        return table if old.hash == new.hash else transfer_rows(old, new, table, self.new)


def matched_rows(old: Any, new: Any) -> NDArray[np.int64]:
    """For each id of the `new` tokenizer the row of that word under the `old` one, -1 for a new word: (V',).

    Words are compared by spelling; roles such as [UNK] are compared by name, however they are spelled.
    """
    rows = np.full(new.size, -1, np.int64)
    roles = set(old.roles.values())
    numbers = {piece: number for number, piece in enumerate(old.spellings) if piece and number not in roles}
    for number, piece in enumerate(new.spellings):
        rows[number] = numbers.get(piece, -1)
    for name, number in new.roles.items():
        rows[number] = old.roles.get(name, -1)
    return rows


def transfer_rows(
    old_tokenizer: Any, new_tokenizer: Any, old_table: Tensor, new: New = "mean", *, seed: int = 0
) -> Tensor:
    """A table (V', D) or a bias (V',) for the new vocabulary, from one for the old vocabulary, (V, …).

    New words get the mean of all old rows (Howard and Ruder's code, `finetune_lm.py`), or with `random` a row drawn around the
    mean with each column's standard deviation, by `seed`, or with `pieces` the mean of the rows of the tokens that the old
    tokenizer reads the word as; a word with an unknown character gets the mean of all rows. The result is a new tensor of the
    same dtype, on the same device.
    """
    rows = torch.from_numpy(matched_rows(old_tokenizer, new_tokenizer)).to(old_table.device)
    mean = old_table.float().mean(0, keepdim=True)
    table = old_table[rows.clamp(min=0)].detach().clone()
    fresh = mean.expand(table.shape)
    if new == "random":
        noise = torch.from_numpy(np.random.default_rng(seed).standard_normal(tuple(table.shape)).astype(np.float32))
        fresh = mean + noise.to(old_table.device) * old_table.float().std(0, keepdim=True, unbiased=False)
    absent = rows < 0
    if new == "pieces":
        fresh = fresh.clone()
        for number in torch.nonzero(absent).flatten().tolist():
            read = _pieces(old_tokenizer, new_tokenizer, number)
            if read:
                fresh[number] = old_table[read].float().mean(0)
    table[absent] = fresh[absent].to(table.dtype)
    return table


def _pieces(old: Any, new: Any, number: int) -> list[int]:
    """The ids of the old vocabulary that a word of the new one is read as; none for a special token, or if one is unknown."""
    if number in new.roles.values():
        return []
    if old.kind == "byte_bpe":  # pieces of bytes: of one alone, the text may be no whole character
        return [int(token.id) for token in old.bare_model().tokenize(new.piece(number))]
    text = new.decode([number], skip_special=False).strip().removeprefix("##")
    read: list[int] = old.encode(text).ids.tolist()
    return [] if old.roles.get("[UNK]", -1) in read else read
