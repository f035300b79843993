"""Two language models in one, from the left and from the right: ELMo's network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from cloze.batch import on_host, send
from cloze.bounds import BelowOne, Depth, Natural, Positive, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.hooks import after_layer, count_hooks
from cloze.networks.blocks.inputs.characters import Characters, CharacterTable
from cloze.networks.blocks.recurrence.locked import WordDropout
from cloze.networks.blocks.recurrence.lstm import LSTMLayer
from cloze.networks.blocks.recurrence.recurrent_state import ends_before, lengths_of, recall_states, remember_states
from cloze.networks.blocks.recurrence.stepping import State, columns_backwards, reorder
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.network import Network, StateKind, named_sizes, reading_kinds, reading_states
from cloze.networks.recurrent.lstm_language_model import WordInputs
from cloze.registry import Given, PartMark, register


class Directions(NamedTuple):
    """The rows (N,) that either direction reads, ascending."""

    forwards: Tensor
    backwards: Tensor

    @classmethod
    def of(cls, backwards: Tensor) -> Directions:
        """Of which rows (B,) belong to the backward direction. Found once for all layers."""
        rows = on_host(backwards)
        order, count = send(rows.to(torch.uint8).argsort(stable=True), backwards.device), int((~rows).sum())
        return cls(order[:count], order[count:])


class BothWays(nn.Module):
    """One layer of either direction, each with weights of its own."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.forwards, self.backwards = LSTMLayer(**arguments), LSTMLayer(**arguments)

    def forward(
        self, x: Tensor, state: State | None, lengths: Tensor | None, ends: Tensor | None, backwards: Directions | bool
    ) -> tuple[Tensor, State]:
        """(B, L, D) to (B, L, D) and the states at the ends, in the order of the rows as they are; `backwards` says which rows
        belong to the backward direction, or whether all do.
        """
        if isinstance(backwards, bool):
            layer = self.backwards if backwards else self.forwards
            outputs: tuple[Tensor, State] = layer(x, state, lengths, ends)
            return outputs
        parts, positions = [], []
        for layer, rows in ((self.forwards, backwards.forwards), (self.backwards, backwards.backwards)):
            read = rows if len(rows) else rows.new_zeros(1)  # for nothing, so that all ranks have all gradients
            limits = [None if limit is None else limit[read] for limit in (lengths, ends)]
            out, last = layer(x[read], None if state is None else tuple(part[read] for part in state), *limits)
            parts.append([part[: len(rows)] for part in (out, *last)])
            positions.append(rows)
        back = torch.cat(positions).argsort()
        out, h, c = (torch.cat(both)[back] for both in zip(*parts, strict=True))
        return out, (h, c)


@register("network", "bilstm")
class BiLSTM(Network):
    """A forward and a backward LSTM over one input, `layers` deep, that do not see each other (Peters et al., 2018, §3).

    Words are read by their characters (`embedding`), so that none is unknown, or from a table. Each direction has cells of
    `inner` numbers projected to `direction_width`, half of `width`; cells and projections are bound by `cell_clip` and
    `projection_clip`. With `skip` a layer's input is added to its output, but for the first layer. `dropout` falls on every
    layer's input and on the last output; it stands outside the skip, whose path carries the dropped input, as in the authors'
    code (allenai/bilm-tf, `bilm/training.py`).

    `forward_hidden` has read a row up to a token, `backward_hidden` from its end down to it: each predicts what comes next in its
    own direction. `hidden` is both side by side; `layers` all of them, layer 0 the words themselves, twice.

    **Streams.** The state goes on from row to row of a lane, in the direction of reading. Rows that are `reversed` (the source
    `streams` with `both_directions`) were read from their end: what reads them in their order is the backward LSTM, so that
    `forward_hidden` of such rows is its state, and `predict: next` trains either direction on rows of its own, as the authors
    do.
    `reuse`: how many tokens at the end of a row the next one brings again. Without such rows the backward LSTM starts from zeros
    in every row. A text that is read at use begins with zeros: the same text gets the same vectors every time (the authors' state
    goes on from text to text).

    Parameters: `embeddings.tokens.weight` or `embeddings.characters.*`, `layers.n.forwards.*`, `layers.n.backwards.*` (see
    `LSTMLayer`). LSTMs begin between ±1/√cells, with `forget_bias` added to that of the forget gate.

    >>> network = BiLSTM(layers=2, width=8, inner=6, vocab_size=10, clock=Clock()).eval()
    >>> states = network(want=frozenset({"hidden", "forward_hidden"}), tokens=torch.zeros(2, 5, dtype=torch.long))
    >>> tuple(states["hidden"].shape), tuple(states["forward_hidden"].shape)
    ((2, 5, 8), (2, 5, 4))
    """

    stack = "recurrent"
    carries = True
    pooled: ClassVar[bool] = True
    sees: ClassVar[Mapping[str, str]] = MappingProxyType({
        "hidden": "every token sees itself, the tokens to its left and, separately, the tokens to its right",
        "forward_hidden": "every token sees itself and the tokens to its left, in rows read from their end to its right",
    })  # fmt: skip
    sizes = named_sizes(
        "layers width inner", tiny=(2, 128, 128), mini=(2, 256, 512), small=(2, 256, 1024), medium=(2, 512, 2048),
        base=(2, 1024, 4096),
    )

    def __init__(
        self, *,
        layers: Depth, width: Width, inner: Width | None = None,
        skip: bool = True,
        cell_clip: Positive | None = 3.0,
        projection_clip: Positive | None = 3.0,
        forget_bias: float = 1.0,
        dropout: BelowOne = 0.1,
        reuse: Natural = 0,
        embedding: Annotated[Characters | None, PartMark("embedding")] = None,
        vocab_size: Given[int], clock: Given[Clock],
    ) -> None:
        super().__init__()
        if width % 2 or layers < 1 or reuse < 0:
            raise RecipeError(
                f"bilstm: layers is {layers}, width is {width} and reuse is {reuse}; expected at least one layer, a width of two "
                "equal halves, and 0 tokens or more."
            )
        self.width, self.direction_width, self.inner = width, width // 2, inner or width // 2
        self.widths = {"forward_hidden": self.direction_width, "backward_hidden": self.direction_width}
        self.skip, self.reuse, self.vocab_size, self.clock = skip, reuse, vocab_size, clock
        spelled = None if embedding is None else CharacterTable(embedding, self.direction_width)
        self.embeddings = WordInputs(vocab_size, self.direction_width, spelled, WordDropout(0.0, clock))
        projection = None if self.inner == self.direction_width else self.direction_width
        self.layers: Sequence[BothWays] = nn.ModuleList(  # type: ignore[assignment]
            BothWays(
                input_width=self.direction_width, cell=self.inner, projection=projection, cell_clip=cell_clip,
                projection_clip=projection_clip, forget_bias=forget_bias, clock=clock,
            )
            for _ in range(layers)
        )
        self.around = nn.ModuleList()  # objects that every pass calls, in either direction
        self.dropouts = nn.ModuleDict({
            name: nn.ModuleList(Dropout(dropout, clock) for _ in range(layers + 1)) for name in ("along", "against")
        })
        self.takes = self.embeddings.takes | {"block", "restarts", "reversed", "summaries"}
        ways = {"forward_hidden": "left_to_right", "backward_hidden": "right_to_left"}
        self.gives = {**reading_kinds("order"), **{name: StateKind("B L D", sees) for name, sees in ways.items()}}
        self.reset_parameters()
        name_dropouts(self)

    @property
    def layer_widths(self) -> list[int]:
        """The widths of the layers' outputs, which adapters read."""
        return [self.direction_width] * len(self.layers)

    def reset_parameters(self) -> None:
        """Redraw every weight from torch's generator; a table of tokens between ±0.1."""
        self.embeddings.reset_parameters()
        for layer in self.layers:
            layer.forwards.reset_parameters()
            layer.backwards.reset_parameters()

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, block: Tensor | None = None, restarts: Tensor | None = None,
        reversed: Tensor | None = None, summaries: Tensor | None = None, characters: Tensor | None = None,
        carry: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Any]:
        """The wanted states of tokens (B, L): `hidden` (B, L, D), its halves `forward_hidden` and `backward_hidden`
        (B, L, D / 2), `layers` (N + 1, B, L, D), `summary` (E, D), and `carry`, for the rows that follow in the lanes. Rows of
        several examples are a `RecipeError`.
        """
        lengths = lengths_of(block, "bilstm")
        x = self.embeddings(tokens, characters)
        other: Tensor | bool = False if reversed is None else reversed
        states: dict[str, Any] = {}
        before = recall_states(carry, restarts, len(self.layers))
        ends = ends_before(self.reuse, x, lengths) if "carry" in want else None
        directions = Directions.of(other) if isinstance(other, Tensor) else other
        along, after = self._stack("along", x, directions, lengths, ends, before)
        if "carry" in want:
            states["carry"] = remember_states(after)
        if "forward_hidden" in want:
            states["forward_hidden"] = along[-1]
        if want <= {"forward_hidden", "carry"}:
            return states
        against = self._against(x, directions, lengths)
        if "backward_hidden" in want:
            states["backward_hidden"] = against[-1]
        both = [_side_by_side(x, x, False), *(_side_by_side(a, b, other) for a, b in zip(along, against, strict=True))]
        return {**states, **reading_states(want, both[-1], both, summaries)}

    def _against(self, x: Tensor, backwards: Directions | bool, lengths: Tensor | None) -> list[Tensor]:
        """What comes out of every layer that reads the rows from their last tokens, which begins with zeros."""
        positions = columns_backwards(x.shape[1], lengths, x.device)
        other = not backwards if isinstance(backwards, bool) else Directions(backwards.backwards, backwards.forwards)
        passed, _ = self._stack("against", reorder(x, positions), other, lengths, None, None)
        return [reorder(states, positions) for states in passed]

    def _stack(
        self, way: str, x: Tensor, backwards: Directions | bool, lengths: Tensor | None, ends: Tensor | None,
        before: list[State] | None,
    ) -> tuple[list[Tensor], list[State]]:
        """What comes out of every layer in the order of the rows, the last with its dropout, and the states to go on with."""
        drop = self.dropouts[way]
        passed, after = [], []
        for number, layer in enumerate(self.layers):
            dropped = drop[number](x)  # type: ignore[index]
            out, state = layer(dropped, None if before is None else before[number], lengths, ends, backwards)
            x = after_layer(self.around, number, out + dropped if self.skip and number else out)
            passed.append(x)
            after.append(state)
        return [*passed[:-1], drop[len(self.layers)](x)], after  # type: ignore[index]

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The tokens' ways through the layers; through those of one direction where no other is wanted."""
        counted.add(size, self.embeddings)
        ways = {read: counted.branch() for read in ("forwards", "backwards")}
        for read, way in ways.items():
            for number, layer in enumerate(self.layers):
                way.add(size, layer.get_submodule(read))
                count_hooks(way, self.around, number, size)
        counted.add_branches(*ways.values(), share=0.5 if counted.want <= {"forward_hidden", "carry"} else 1.0)


def _side_by_side(along: Tensor, against: Tensor, backwards: Tensor | bool) -> Tensor:
    """[forward; backward], whichever direction it was that read a row in its order."""
    straight = torch.cat([along, against], dim=-1)
    if isinstance(backwards, bool):
        return straight
    return torch.where(backwards[:, None, None], torch.cat([against, along], dim=-1), straight)
