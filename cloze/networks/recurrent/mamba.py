"""Mamba: layers of selective state spaces, from left to right or in both directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import BelowOne, Depth, NonNegative, Positive, Width
from cloze.networks.blocks.dropout import Dropout, name_dropouts
from cloze.networks.blocks.hooks import after_layer
from cloze.networks.blocks.inputs.embeddings import Embeddings
from cloze.networks.blocks.norm import make_norm
from cloze.networks.blocks.recurrence.recurrent_state import StateCache
from cloze.networks.blocks.recurrence.selective_scan import selective_scan
from cloze.networks.clock import Clock
from cloze.networks.cost import Operations, SequenceSize
from cloze.networks.network import Network, last_positions, named_sizes, reading_kinds, reading_states, require_order
from cloze.registry import Given, register


@dataclass(frozen=True, kw_only=True)
class TimeSteps:
    """The steps Δ of Mamba: the `rank` of the map that gives them, by default a sixteenth of the width, and how they begin.

    For an input of zero they are drawn between `min` and `max`, log-uniformly, and are at least `floor`. The weights of the map
    begin within ±`scale` / √rank (`random`), or all at that bound (`constant`).
    """

    rank: Width | None = None
    min: Positive = 0.001
    max: Positive = 0.1
    floor: Positive = 1e-4
    scale: NonNegative = 1.0
    init: Literal["random", "constant"] = "random"

    @torch.no_grad()
    def start(self, projection: nn.Linear) -> None:
        """Fill the map from `rank` numbers to steps; its bias is the inverse of softplus of a drawn length."""
        bound = self.scale / math.sqrt(projection.in_features)
        if self.init == "random":
            nn.init.uniform_(projection.weight, -bound, bound)
        else:
            nn.init.constant_(projection.weight, bound)
        nn.init.uniform_(projection.bias, math.log(self.min), math.log(self.max))
        lengths = projection.bias.exp().clamp_(min=self.floor)
        projection.bias.copy_(lengths + torch.log(-torch.expm1(-lengths)))


class Direction(nn.Module):
    """One direction of a layer: a causal convolution of each channel, then the selective scan (Gu and Dao, 2023, §3.4, figure 3).

    Parameters: `conv1d.*`; `x_proj.weight` (T + 2N, E), which makes the step of rank T, B and C of a token; `dt_proj.*`, from
    rank T to channels; `A_log` (N·E,), the logarithms of the decay rates (N, E), in one dimension because weight decay spares
    vectors, as in the authors' code; `D` (E,).
    """

    def __init__(self, *, inner: int, state: int, kernel: int, dt_rank: int, conv_bias: bool) -> None:
        super().__init__()
        self.state, self.kernel, self.dt_rank = state, kernel, dt_rank
        self.conv1d = nn.Conv1d(inner, inner, kernel, groups=inner, bias=conv_bias)
        self.x_proj = nn.Linear(inner, dt_rank + 2 * state, bias=False)
        self.dt_proj = nn.Linear(dt_rank, inner)
        self.A_log = nn.Parameter(torch.empty(state * inner))
        self.D = nn.Parameter(torch.empty(inner))

    def reset_parameters(self, steps: TimeSteps) -> None:
        """As in the authors' code: rates 1 … N in every channel, and steps of the lengths that `steps` says."""
        self.conv1d.reset_parameters()
        self.x_proj.reset_parameters()
        steps.start(self.dt_proj)
        with torch.no_grad():
            rates = torch.arange(1.0, self.state + 1, device=self.D.device)
            self.A_log.copy_(rates.log().repeat_interleave(len(self.D)))
            self.D.fill_(1.0)

    def forward(
        self, x: Tensor, ids: Tensor | None, memory: Sequence[Tensor] | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """(B, L, E) to (B, L, E), and what the next tokens need: the last inputs (B, K - 1, E) and the state (B, N, E).

        `ids` (B, L) number the texts of packed rows, which do not see each other; None if each row is one text. `memory` is
        what an earlier call gave.
        """
        window = x.new_zeros(len(x), self.kernel - 1, x.shape[2]) if memory is None else memory[0].to(x.dtype)
        padded = torch.cat([window, x], 1)
        x = F.silu(self._convolve(padded, ids))
        dt, write, read = self.x_proj(x).split([self.dt_rank, self.state, self.state], 2)
        precise = torch.promote_types(x.dtype, torch.float32)
        steps = F.softplus(F.linear(dt, self.dt_proj.weight).to(precise) + self.dt_proj.bias.to(precise))
        rates = -self.A_log.to(precise).exp().view(self.state, -1)
        y, last = selective_scan(
            x, steps, rates, write, read, restarts=None if ids is None else _begins(ids),
            start=None if memory is None else memory[1],
        )
        return y + x * self.D, [padded[:, padded.shape[1] - self.kernel + 1 :], last]

    def _convolve(self, padded: Tensor, ids: Tensor | None) -> Tensor:
        """Of (B, K - 1 + L, E) the sums (B, L, E) over K tokens of the same text each."""
        length = padded.shape[1] - self.kernel + 1
        weight, total = self.conv1d.weight[:, 0], self.conv1d.bias
        for tap in range(self.kernel):
            inputs = padded[:, tap : tap + length]
            back = self.kernel - 1 - tap
            if ids is not None and back:
                same = F.pad(ids[:, back:] == ids[:, : length - back], (length - max(0, length - back), 0))
                inputs = inputs * same[:, :, None]
            product = inputs * weight[:, tap]
            total = product if total is None else total + product
        assert total is not None  # a kernel has at least one tap
        return total


def _begins(ids: Tensor) -> Tensor:
    """Where a text begins in rows of several, (B, L)."""
    return F.pad(ids[:, 1:] != ids[:, :-1], (1, 0), value=True)


class MambaLayer(nn.Module):
    """x + out_proj(scan(in_proj(norm(x)))), gated by half of what `in_proj` gives; with two directions their outputs are summed.

    Parameters: `norm.weight`, `in_proj.*` (2E, D), channels above gates, `forwards.*`, `backwards.*`, `out_proj.*` (D, E).
    """

    def __init__(
        self, *, width: int, inner: int, both: bool, bias: bool, epsilon: float, dropout: Dropout, **direction: Any
    ) -> None:
        super().__init__()
        self.norm = make_norm("rms", width, epsilon)
        self.in_proj = nn.Linear(width, 2 * inner, bias=bias)
        self.forwards = Direction(inner=inner, **direction)
        self.backwards = Direction(inner=inner, **direction) if both else None
        self.out_proj = nn.Linear(inner, width, bias=bias)
        self.dropout = dropout

    def reset_parameters(self, steps: TimeSteps, depth: int) -> None:
        """Maps as torch draws them, biases zero, and `out_proj` divided by the root of the number of layers."""
        for projection in (self.in_proj, self.out_proj):
            projection.reset_parameters()
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)
        with torch.no_grad():
            self.out_proj.weight.div_(math.sqrt(depth))
        self.forwards.reset_parameters(steps)
        if self.backwards is not None:
            self.backwards.reset_parameters(steps)

    def forward(
        self, x: Tensor, block: Tensor | None, memory: Sequence[Tensor] | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """(B, L, D) to (B, L, D), and what the forward direction needs for the tokens that follow."""
        channels, gate = self.in_proj(self.norm(x)).chunk(2, 2)
        y, last = self.forwards(channels, block, memory)
        if self.backwards is not None:
            y = y + self.backwards(channels.flip(1), None if block is None else block.flip(1))[0].flip(1)
        return x + self.dropout(self.out_proj(y * F.silu(gate))), last

    def count_operations(self, counted: Operations, size: SequenceSize) -> None:
        """The products with weights, and the sums over the state; convolutions and states are computed number by number."""
        counted.add(size, self.norm, self.in_proj)
        sides = [side for side in (self.forwards, self.backwards) if side is not None]
        branches = [counted.branch() for _ in sides]
        for side, branch in zip(sides, branches, strict=True):
            branch.pass_through(side.conv1d)
            branch.add(size, side, without=[side.conv1d])
            branch.add_row_products(size.tokens * side.A_log.numel())
        counted.add_branches(*branches)
        counted.add(size, self.out_proj)


@register("network", "mamba")
class Mamba(Network):
    """`layers` layers of selective state spaces (Gu and Dao, 2023, §3): linear in the length of a text, and with a state of fixed
    size, so that generation takes constant time for each token.

    `expand` times the `width` are the channels, each with a state of `state` numbers; `kernel` is the width of the causal
    convolution, and `dt` says how steps are made and begin. Defaults are those of the authors' code (state-spaces/mamba,
    `modules/mamba_simple.py`), and so are initial weights (`models/mixer_seq_simple.py`). The residual stream is float32 under
    autocast, too. The authors have no dropout; here it falls on what a layer adds.

    `directions: both` reads rows from the right, too: a second convolution and scan with weights of their own, whose inputs and
    outputs go through the same projections (BiMamba; Schiff et al., 2024, §3.1; kuleshov-group/caduceus,
    `modeling_caduceus.py`, with `bidirectional_weight_tie`). Differs: there the bias of `out_proj`, if there is one, is added for
    each direction, here once; there rows begin to be read at their padding, here at their last token.

    Rows may hold several texts: convolution and state restart with each (§3.5.2). Parameters:
    `embeddings.tokens.weight`, `layers.n.*` (see `MambaLayer`), `norm.weight`.

    >>> network = Mamba(layers=1, width=8, vocab_size=10, clock=Clock()).eval()
    >>> tuple(network(want=frozenset({"hidden"}), tokens=torch.zeros(2, 5, dtype=torch.long))["hidden"].shape)
    (2, 5, 8)
    """

    stack = "recurrent"
    summary_of = "last"
    pooled: ClassVar[bool] = True
    sizes = named_sizes(
        "layers width", tiny=(4, 128), mini=(8, 256), small=(8, 512), medium=(16, 512), base=(24, 768), large=(48, 1024)
    )

    def __init__(
        self, *,
        layers: Depth, width: Width,
        state: Width = 16, expand: Width = 2, kernel: Width = 4,
        dt: TimeSteps = TimeSteps(),
        bias: bool = False,
        conv_bias: bool = True,
        norm_epsilon: Positive = 1e-5,
        directions: Literal["left_to_right", "both"] = "left_to_right",
        dropout: BelowOne = 0.0,
        init_std: NonNegative = 0.02,
        vocab_size: Given[int], clock: Given[Clock],
    ) -> None:
        super().__init__()
        both = directions == "both"
        self.width, self.vocab_size, self.init_std = width, vocab_size, init_std
        self.order = "open" if both else "left_to_right"
        self.steps = dt
        self.embeddings = Embeddings(vocab_size=vocab_size, width=width)
        self.layers: Sequence[MambaLayer] = nn.ModuleList(  # type: ignore[assignment]
            MambaLayer(
                width=width, inner=expand * width, both=both, bias=bias, epsilon=norm_epsilon, dropout=Dropout(dropout, clock),
                state=state, kernel=kernel, dt_rank=dt.rank or math.ceil(width / 16), conv_bias=conv_bias,
            )
            for _ in range(layers)
        )
        self.around = nn.ModuleList()  # objects that every pass calls
        self.norm = make_norm("rms", width, norm_epsilon)
        self.takes = frozenset({"tokens", "order", "block", "summaries", "vectors"})
        self.gives = reading_kinds("order" if both else "left_to_right")
        self.reset_parameters()
        name_dropouts(self)

    @property
    def layer_widths(self) -> list[int]:
        """The widths of the layers' outputs, which adapters read."""
        return [self.width] * len(self.layers)

    def reset_parameters(self) -> None:
        """Redraw every weight from torch's generator; gains are one."""
        nn.init.normal_(self.token_tables["tokens"].weight, std=self.init_std)
        for layer in self.layers:
            layer.reset_parameters(self.steps, len(self.layers))

    def cache(self) -> StateCache:
        return StateCache()

    def finish(self, x: Tensor) -> Tensor:
        """The final norm of x (…, D)."""
        normed: Tensor = self.norm(x)
        return normed

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, order: Tensor | str | None = None, block: Tensor | None = None,
        summaries: Tensor | None = None, vectors: Tensor | None = None, cache: StateCache | None = None,
    ) -> dict[str, Any]:
        """The wanted states of tokens (B, L): `hidden` (B, L, D), `layers` (N+1, B, L, D), and `summary` (E, D), the last token
        of each row unless `summaries` says otherwise. `vectors` (B, L, D) replace those of the table. `cache` remembers the
        tokens read with it, from left to right.
        """
        require_order("mamba", self.order if order is None else order, self.order)
        x = self.embeddings(tokens, vectors=vectors)
        passed, memories = [x], []
        for number, layer in enumerate(self.layers):
            x, memory = layer(x, block, cache.layers[number] if cache is not None and cache.layers else None)
            x = after_layer(self.around, number, x)
            passed.append(x)
            memories.append(memory)
        if cache is not None:
            cache.length += tokens.shape[1]
            cache.layers = memories
        if "summary" in want and summaries is None:
            summaries = last_positions(tokens, block)
        states: dict[str, Any] = reading_states(want, self.finish(x), passed, summaries)
        return states
