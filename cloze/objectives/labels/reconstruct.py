"""Write the frames of a recording from its vector, as the decoder of an autoencoder does (SpeechBERT)."""

from __future__ import annotations

from torch import Tensor, nn

from cloze.bounds import Count, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.recurrence.gru import GRULayer
from cloze.networks.cost import Operations, SequenceSize
from cloze.objectives.labels.regress import Regress
from cloze.registry import Given, register


class FrameDecoder(nn.Module):
    """A GRU that reads the vector (M, D) at each of K steps, and a linear map of its states to frames, one after another
    (M, K · bands). Parameters: `recurrence.*`, `output.*`."""

    def __init__(self, *, width: int, frames: int, bands: int) -> None:
        super().__init__()
        self.frames, self.bands = frames, bands
        self.recurrence = GRULayer(input_width=width, width=width)
        self.output = nn.Linear(width, bands)

    def forward(self, vectors: Tensor) -> Tensor:
        """The frames of each vector."""
        states, _ = self.recurrence(vectors[:, None].expand(-1, self.frames, -1))
        frames: Tensor = self.output(states.to(self.output.weight.dtype))
        return frames.flatten(1)

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """Both maps at every step of every vector."""
        steps = SequenceSize(size.tokens, size.tokens * self.frames, self.frames)
        counted.add(steps, self.recurrence)
        counted.add(steps, self.output)


@register("objective", "reconstruct")
def reconstruct(*, set: str = "features", numbers: Width = 1200, frames: Count = 30, width: Given[int]) -> Regress:
    """The squared error, averaged over a recording's numbers, of the frames that a recurrent decoder writes from its vector
    (Chuang et al., SpeechBERT, 2020, §3.1; after Audio Word2Vec, Chung et al., 2016).

    A recording has `numbers` numbers, which are `frames` one after another, the targets of the set that `ask_items` made. Read
    the vectors with `read: {hidden: item_hidden}`. Differs: Audio Word2Vec's decoder reads its last frame at each step, this one
    reads the vector, so that no error adds up along the steps.

    Parameters: `head.recurrence.*`, `head.output.*`.
    """
    if numbers % frames:
        raise RecipeError(f"reconstruct.frames: {frames} frames do not divide the {numbers} numbers of a recording.")
    return Regress(FrameDecoder(width=width, frames=frames, bands=numbers // frames), set=set, reading="hidden")
