"""Gated recurrent networks that read a sentence into one vector, or write one from it (Skip-thought)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import NonNegative, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.hooks import after_layer, count_hooks
from cloze.networks.blocks.inputs.word_table import WordTable
from cloze.networks.blocks.recurrence.gru import GRULayer
from cloze.networks.blocks.recurrence.recurrent_state import lengths_of
from cloze.networks.blocks.recurrence.stepping import count_directions, read_directions
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.network import Network, StateKind, named_sizes, reading_kinds, require_order
from cloze.registry import Given, register


@register("network", "gru")
class GRU(Network):
    """One layer of GRU over words (Kiros et al., 2015, §2.1). `summary` (B, D) is its last state.

    As an encoder it reads from left to right, or with `both_directions` with two halves of `width` / 2, whose last states stand
    one after the other (bi-skip; the order is then `open`). As a decoder it writes from the vector `condition` (B, D): given to
    the gates and to the candidate at `every_step`, as the paper has it and the published model was trained, or only as the
    `initial` state, as the released code does (skip-thoughts, issue 8). `first: zero` hides the first token of a row, so that
    a decoder begins with a vector of zeros, as in the code (`training/model.py`).

    Gates act as in that code: the reset gate behind the product, h' = u h + (1 - u) n, one bias, which is `torch.nn.GRU` without
    the hidden bias. Differs: the paper prints U (r h) and swaps u and 1 - u.

    Recurrent maps begin orthogonal, gate by gate, all else between ±`bound`, biases zero; `forget_bias` is added to that of the
    update gate. `vectors` names a table of the recipe that the words begin with, see `WordTable`. Parameters:
    `embeddings.tokens.weight`, `layers.0.*`, and with both directions `layers.1.*`; see `GRULayer`.

    >>> network = GRU(width=6, vocab_size=9, clock=Clock())
    >>> tuple(network(want=frozenset({"summary"}), tokens=torch.tensor([[1, 2, 3]]))["summary"].shape)
    (1, 6)
    """

    stack = "recurrent"
    sizes = named_sizes("width", tiny=(128,), mini=(256,), small=(600,), medium=(1200,), base=(2400,), large=(4800,))

    def __init__(
        self, *,
        width: Width, embedding_width: Width | None = None,
        both_directions: bool = False,
        condition: Literal["every_step", "initial"] | None = None,
        first: Literal["read", "zero"] = "read",
        bound: NonNegative = 0.1,
        forget_bias: float = 0.0,
        vectors: str | None = None,
        tune: bool = False,
        vocab_size: Given[int], clock: Given[Clock], tables: Given[Mapping[str, Any] | None] = None,
    ) -> None:
        super().__init__()
        if both_directions and (width % 2 or condition is not None):
            raise RecipeError(
                f"gru: both_directions with width {width} and condition {condition}; expected a width that is even, and no "
                "condition: a decoder writes from left to right."
            )
        self.width, self.both_directions, self.condition, self.first = width, both_directions, condition, first
        self.bound, self.forget_bias = bound, forget_bias
        self.vocab_size = vocab_size
        self.clock = clock
        read = embedding_width or width
        self.embeddings = WordTable(
            vocab_size=vocab_size, width=read, vectors=vectors, tune=tune, tables=tables, network="gru"
        )
        ways = (False, True) if both_directions else (False,)
        self.layers: Sequence[GRULayer] = nn.ModuleList(  # type: ignore[assignment]
            GRULayer(
                input_width=read + (width if condition == "every_step" else 0), width=width // len(ways), biases="one",
                reverse=reverse,
            )
            for reverse in ways
        )
        self.around = nn.ModuleList()  # objects that every pass calls
        names = {"condition"} if condition is not None else set()
        self.needs = frozenset({"tokens", *names})
        self.takes = frozenset({"tokens", "order", "block", *names})
        sees = "order" if both_directions else "left_to_right"
        summary = StateKind("B D", "all" if both_directions else "left_to_right")
        self.gives = {**reading_kinds(sees), "summary": summary}
        self.reset_parameters()

    @property
    def layer_widths(self) -> list[int]:
        """The widths of the layers' outputs, which adapters read."""
        return [self.width]

    @property
    def layer_state_count(self) -> int:
        """Both directions side by side."""
        return 1

    def depth_groups(self) -> list[nn.Module]:
        """The table first, then the directions together."""
        return [self.embeddings, nn.ModuleList(self.layers)]

    def reset_parameters(self) -> None:
        """Redraw every weight from torch's generator."""
        self.embeddings.reset_parameters(lambda weight: nn.init.uniform_(weight, -self.bound, self.bound))
        for layer in self.layers:
            nn.init.uniform_(layer.input.weight, -self.bound, self.bound)
            nn.init.zeros_(layer.input.bias)
            with torch.no_grad():
                for gate in layer.recurrent.weight.chunk(3):
                    nn.init.orthogonal_(gate)
                layer.input.bias[layer.width : 2 * layer.width] += self.forget_bias

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, order: Tensor | str | None = None, block: Tensor | None = None,
        condition: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L): `hidden` (B, L, D), `layers` (1, B, L, D), the same, `summary` (B, D).

        Several texts in a row are a `RecipeError`.
        """
        if order is not None:
            require_order("gru", order, "open" if self.both_directions else "left_to_right")
        if (condition is None) != (self.condition is None):
            supplied = "no vector to write from; write `take: {condition: PASS.summary}`" if condition is None else "a condition"
            raise RecipeError(f"gru: condition is {self.condition}, and the pass gives {supplied}.")
        x, state = self.embeddings(tokens), None
        if self.first == "zero":
            x = F.pad(x[:, 1:], (0, 0, 1, 0))
        if self.condition == "every_step" and condition is not None:
            x = torch.cat([x, condition.to(x.dtype)[:, None].expand(-1, x.shape[1], -1)], dim=2)
        elif condition is not None:
            state = (condition,)
        hidden, (summary,) = read_directions(self.layers, x, state, lengths_of(block, "gru"))
        hidden, summary = (after_layer(self.around, 0, states) for states in (hidden, summary))
        states = {"hidden": hidden, "layers": hidden[None], "summary": summary}
        return {name: state for name, state in states.items() if name in want}

    def count_layers(self, counted: Operations, size: SequenceSize) -> None:
        """The tokens' way through the layers, which all read the embeddings."""
        count_directions(counted, self.layers, size)
        count_hooks(counted, self.around, 0, size)
