"""Rows for another vocabulary: those of words that both know are kept, new words begin in the middle."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

New = Literal["mean", "random"]


def matched_rows(old: Any, new: Any) -> NDArray[np.int64]:
    """For each id of the `new` tokenizer its row under the `old` one, -1 where that has no such word: (V',).

    Words are compared by spelling, roles such as [UNK] by their names, whatever they are spelled like.
    """
    found = np.full(new.size, -1, np.int64)
    roles = set(old.roles.values())
    known = {piece: number for number, piece in enumerate(old.spellings) if piece and number not in roles}
    for number, piece in enumerate(new.spellings):
        found[number] = known.get(piece, -1)
    for name, number in new.roles.items():
        found[number] = old.roles.get(name, -1)
    return found


def transfer_rows(
    old_tokenizer: Any, new_tokenizer: Any, old_table: Tensor, new: New = "mean", *, seed: int = 0
) -> Tensor:
    """A table (V', D) or an offset (V',) for the new vocabulary from one for the old, (V, …).

    New words get the mean of all old rows (Howard and Ruder's code, `finetune_lm.py`), or with `random` a row drawn around it
    with the deviation of each column, a function of `seed`. The result is a tensor of its own, of the old one's type and place.
    """
    rows = torch.from_numpy(matched_rows(old_tokenizer, new_tokenizer)).to(old_table.device)
    mean = old_table.float().mean(0, keepdim=True)
    made = old_table[rows.clamp(min=0)].detach().clone()
    fresh = mean.expand(made.shape)
    if new == "random":
        noise = torch.from_numpy(np.random.default_rng(seed).standard_normal(tuple(made.shape)).astype(np.float32))
        fresh = mean + noise.to(old_table.device) * old_table.float().std(0, keepdim=True, unbiased=False)
    absent = rows < 0
    made[absent] = fresh[absent].to(made.dtype)
    return made
