"""A Transformer that reads recordings of words in place of their tokens (SpeechBERT)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cloze.bounds import Depth, Width
from cloze.errors import RecipeError
from cloze.networks import item_config as choices
from cloze.networks.bert import Bert, BertInputs
from cloze.networks.blocks.dropout import name_dropouts
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.network import StateKind
from cloze.registry import register


@register("network", "spoken")
class Spoken(Bert):
    """BERT whose tokens may be recordings (SpeechBERT; Chuang et al., 2020, §3).

    An item is the recording of a word: `width` numbers, which are frames of `bands` numbers one after another. A recurrent
    encoder, a GRU, makes a vector of the frames, which stands for the vector of the token that `links/<set>` links with the item.

    **States.** Those of `transformer`, `item_hidden` (B, R, D), the vectors of the recordings, and `word_vectors` (B, R, D), the
    mean of the vectors of the tokens that are linked with each, for objectives that bring both together.

    Without links this is `transformer`, number for number. The depth groups are those of `transformer` and, last, the encoder of
    recordings: `train: [-1]` trains that one alone.

    Parameters: those of `transformer`, and `sounds.read.*` (frames to 3 D), `sounds.carry.*` (D to 3 D).
    """

    may_be_missing: tuple[str, ...] = (*Bert.may_be_missing, "sounds")

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        items: choices.Sounds = choices.Sounds(),
        **bert: Any,
    ) -> None:
        super().__init__(layers=layers, width=width, heads=heads, **bert)
        if items.width % items.bands:
            raise RecipeError(f"items.bands: {items.bands} bands do not divide the {items.width} numbers of a recording.")
        self.set, self.item_width = items.set, items.width
        self.sounds = SoundEncoder(items.bands, width)
        self.takes = self.takes | {f"{field}/{items.set}" for field in ("item_vectors", "item_length", "links")}
        self.gives = {**self.gives, "item_hidden": StateKind("B R D", "all"), "word_vectors": StateKind("B R D", "all")}
        self.reset_parameters()
        self.sounds.reset_parameters()
        name_dropouts(self)

    def depth_groups(self) -> list[nn.Module]:
        """The embeddings, the layers, and the encoder of recordings."""
        return [*super().depth_groups(), self.sounds]

    def read(self, inputs: BertInputs) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L) and of recordings (B, R)."""
        want, tokens, rows = inputs.want, inputs.tokens, inputs.item_rows(self.set)
        states: dict[str, Tensor] = {}
        if rows is None:
            encoded = self.embeddings.tokens.weight.new_zeros(len(tokens), 0, self.width)
        else:  # zeros in padding
            encoded = self.sounds(rows.features.to(self.sounds.read.weight.dtype)).masked_fill(~rows.real[..., None], 0.0)
        if rows is not None and rows.links is not None:
            words = self.embeddings.tokens(tokens) if inputs.vectors is None else inputs.vectors
            token, item = rows.links.unbind(1)
            if "word_vectors" in want:
                states["word_vectors"] = _means(words.flatten(0, 1)[token], item, encoded)
            vectors = words.flatten(0, 1).index_copy(0, token, encoded.flatten(0, 1)[item].to(words.dtype)).view_as(words)
            inputs = inputs._replace(vectors=vectors)
        elif "word_vectors" in want:
            states["word_vectors"] = torch.zeros_like(encoded)
        if "item_hidden" in want:
            states["item_hidden"] = encoded
        below = want - {"item_hidden", "word_vectors"}
        return {**super().read(inputs._replace(want=below)), **states} if below else states

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The encoder of recordings, then the way of the tokens."""
        features = counted.fields.get(f"item_vectors/{self.set}")
        if features is not None:
            rows, count, width = features.shape
            counted.add(SequenceSize(rows, rows * count, width // self.sounds.bands), self.sounds)
        if counted.want - {"item_hidden", "word_vectors"}:
            super().count_operations(counted, size)


def _means(vectors: Tensor, item: Tensor, like: Tensor) -> Tensor:
    """The mean of the vectors (E, D) of each item (E,), as (B, R, D); zeros for an item without any."""
    sums = vectors.new_zeros(like.shape[0] * like.shape[1], like.shape[2]).index_add(0, item, vectors)
    return (sums / torch.bincount(item, minlength=len(sums)).clamp(min=1)[:, None]).view_as(like)


class SoundEncoder(nn.Module):
    """A GRU over the frames of each recording; its last state is the vector. Parameters: `read.*`, `carry.*`, in the order of
    torch's: reset, update, new."""

    def __init__(self, bands: int, width: int) -> None:
        super().__init__()
        self.bands, self.width = bands, width
        self.read, self.carry = nn.Linear(bands, 3 * width), nn.Linear(width, 3 * width)

    def reset_parameters(self) -> None:
        """Uniform up to 1/√D, as torch draws the weights of a GRU."""
        if not self.read.weight.is_meta:
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -(self.width**-0.5), self.width**-0.5)

    def forward(self, features: Tensor) -> Tensor:
        """(B, R, K · bands) to (B, R, D)."""
        read = self.read(features.unflatten(-1, (-1, self.bands)))
        state = read.new_zeros(*features.shape[:-1], self.width)
        for frame in read.unbind(-2):
            carried = self.carry(state)
            reset, update, _ = (frame + carried).chunk(3, -1)
            new = torch.tanh(frame[..., 2 * self.width :] + torch.sigmoid(reset) * carried[..., 2 * self.width :])
            state = torch.lerp(new, state, torch.sigmoid(update))
        return state

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """Both maps, for every frame of the recordings (`tokens`, of `length` frames each)."""
        read, first = counted.branch(needs_grad=False), counted.branch(needs_grad=False)
        first.add(size.tokens, self.carry)  # of the state before the first frame, a constant
        read.add(size.tokens * size.length, self.read)
        read.add_branches(first)
        read.add(size.tokens * (size.length - 1), self.carry)
        counted.add_branches(read)
