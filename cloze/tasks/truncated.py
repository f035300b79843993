"""Read long texts piece by piece, the state carried on without gradient: BPT3C (Howard and Ruder, 2018, §3.3)."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from cloze.batch import Batch
from cloze.decoding.reader import Reader
from cloze.errors import TaskError


def require_carry(reader: Reader) -> None:
    """A `TaskError` for a network that has no state to carry from piece to piece."""
    if not getattr(reader.network, "carries", False):
        raise TaskError(
            f"--truncate is for networks that carry a state from piece to piece, such as lstm; this one "
            f"({type(reader.network).__name__}) reads a text at once. Leave it out, or cut texts with --length."
        )


def states_in_pieces(reader: Reader, batch: Batch, *, every: int, keep: int) -> tuple[Tensor, Tensor]:
    """`hidden` (B, L, D) of all tokens, and which count (B, L): those of pieces that begin in a text's last `keep` tokens.

    A piece has `every` tokens, and what one leaves behind is given to the next without gradient. Pieces that count for no text
    are read without gradient. All of it is the same as reading at once in eval mode, but for what counts.
    Differs: pieces are counted from the beginning of a text, which is padded behind; the authors' code pads before it.
    """
    tokens = batch["tokens"]
    length = tokens.shape[1]
    real = batch["block"] > 0 if "block" in batch else torch.ones_like(tokens, dtype=torch.bool)
    begins = torch.arange(length, device=tokens.device) // every * every
    counts = real & (begins >= real.sum(1, keepdim=True) - keep)
    read, carry = [], None
    for start in range(0, length, every):
        piece = slice(start, start + every)
        part = Batch({name: t[:, piece] for name, t in batch.items() if t.shape[:2] == tokens.shape}, checked=True)
        with nullcontext() if bool(counts[:, piece].any()) else torch.no_grad():
            states = reader.states(part, ("hidden", "carry"), carry=carry)
        carry = states["carry"]
        read.append(states["hidden"])
    return torch.cat(read, dim=1), counts
