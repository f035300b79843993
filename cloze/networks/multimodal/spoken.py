"""A Transformer that reads recordings of words in place of their tokens (SpeechBERT)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cloze.bounds import Depth, Width
from cloze.errors import RecipeError
from cloze.networks import item_config as choices
from cloze.networks.bert import Bert, BertInputs
from cloze.networks.blocks.dropout import name_dropouts
from cloze.networks.blocks.recurrence.gru import GRULayer
from cloze.networks.blocks.recurrence.stepping import count_directions, read_directions
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.network import StateKind
from cloze.registry import register


@register("network", "spoken")
class Spoken(Bert):
    """BERT whose tokens may be recordings (SpeechBERT; Chuang et al., 2020, §3).

    An item is the recording of a word: `width` numbers, which are `frames` one after another. A recurrent
    encoder, GRUs of `items.layers` layers in both directions, makes a vector of the frames, which stands for the vector of the
    token that `links/<set>` links with the item.

    **States.** Those of `transformer`, `item_hidden` (B, R, D), the vectors of the recordings, and `word_vectors` (B, R, D), the
    mean of the vectors of the tokens that are linked with each, for objectives that bring both together.

    Without links this is `transformer`, number for number. The depth groups are those of `transformer` and, last, the encoder of
    recordings: `train: [-1]` trains that one alone.

    Parameters: those of `transformer`, and `sounds.*`; see `SoundEncoder`.
    """

    may_be_missing: tuple[str, ...] = (*Bert.may_be_missing, "sounds")

    def __init__(
        self, *,
        layers: Depth, width: Width, heads: Width,
        items: choices.Sounds = choices.Sounds(),
        **bert: Any,
    ) -> None:
        super().__init__(layers=layers, width=width, heads=heads, **bert)
        if items.width % items.frames:
            raise RecipeError(f"items.frames: {items.frames} frames do not divide the {items.width} numbers of a recording.")
        self.set, self.item_sets = items.set, {items.set: items.width}
        self.sounds = SoundEncoder(bands=items.width // items.frames, width=width, layers=items.layers)
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
            encoded = self.sounds(rows.features.to(self.sounds.vector.weight.dtype)).masked_fill(~rows.real[..., None], 0.0)
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
    """GRUs over the frames of each recording in both directions; the vector is a linear map of their last states.

    Parameters: `layers.*`, a `GRULayer` for each direction, both directions of a layer next to each other; `vector.*` (2 D to D).
    """

    def __init__(self, *, bands: int, width: int, layers: int) -> None:
        super().__init__()
        self.bands, self.width = bands, width
        inputs = [bands, *[2 * width] * (layers - 1)]
        self.layers: Sequence[GRULayer] = nn.ModuleList(  # type: ignore[assignment]
            GRULayer(input_width=size, width=width, reverse=reverse) for size in inputs for reverse in (False, True)
        )
        self.vector = nn.Linear(2 * width, width)

    def reset_parameters(self) -> None:
        """Uniform, as torch draws the weights of a GRU and of a linear map."""
        if not self.vector.weight.is_meta:
            for layer in self.layers:
                layer.reset_parameters()
            self.vector.reset_parameters()

    def forward(self, features: Tensor) -> Tensor:
        """(B, R, K · bands) to (B, R, D)."""
        hidden = features.flatten(0, 1).unflatten(-1, (-1, self.bands))
        for pair in self._pairs():
            hidden, (last,) = read_directions(pair, hidden, None, None)
        encoded: Tensor = self.vector(last.to(self.vector.weight.dtype))
        return encoded.unflatten(0, features.shape[:2])

    def _pairs(self) -> Iterator[Sequence[GRULayer]]:
        """Both directions of each layer, from the frames up."""
        return (self.layers[index : index + 2] for index in range(0, len(self.layers), 2))

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """Every layer, for every frame of the recordings (`tokens`, of `length` frames each), and the map of each recording."""
        for pair in self._pairs():
            count_directions(counted, pair, SequenceSize(size.tokens, size.tokens * size.length, size.length))
        counted.add(size.tokens, self.vector)
