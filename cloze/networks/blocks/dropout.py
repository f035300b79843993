"""Dropout by address: which numbers are dropped is a pure function of (seed, step, module, row, place in the row).

No generator state exists, so accumulation, ranks, resumption and recomputation all drop the same numbers. `F.dropout`
on a CPU draws on one thread and takes half of a training step; here a 64-bit word decides four numbers at once and every
pass is a vectorised integer operation.

The word of place j in row r is `finish((table[j] ^ first[r]) * FACTOR, second[r])`: the table and both row keys are
fully mixed beforehand, so no two seeds, steps, modules or rows are shifted copies of each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cloze import kernels, rng
from cloze.networks.clock import Clock
from cloze.networks.fast.switch import takes_device

FIELDS = 4  # 16-bit fields in a 64-bit word
LEVELS = 1 << 15  # a field decides with 15 bits: rates are multiples of 1/32768
_KEYS_ACROSS = 1 << 14  # room for one row of attention scores in the address of a place
_SMALL_TABLE = 1 << 22  # words; larger tables are computed on each use, not cached


class Positions(NamedTuple):
    """Where rows of a gathered state come from: the row of the batch and the column in it, (M,) both."""

    row: Tensor
    column: Tensor


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= 1 << 63 else x


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MIX1 = _signed(0xBF58476D1CE4E5B9)
_MIX2 = _signed(0x94D049BB133111EB)
_FACTOR = _signed(0xD6E8FEB86659FD93)
_TOPS, _EACH = _signed(0x8000800080008000), 0x0001000100010001  # of the four fields of a word
_GOLDEN32, _MIX32 = 0x9E3779B1 - (1 << 32), 0x846CA68B - (1 << 32)


def _mix(x: Tensor) -> Tensor:
    """The splitmix64 finaliser on int64."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _MIX1
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _MIX2
    return x ^ ((x >> 31) & ((1 << 33) - 1))


@lru_cache(maxsize=16)
def _cached_table(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        *rows, numbers = (torch.arange(size, dtype=torch.int64, device=device) for size in (*sizes[:-1], -(-sizes[-1] // FIELDS)))
        if len(rows) == 1:
            places = rows[0][:, None] * len(numbers) + numbers
        else:
            heads, queries = rows
            places = (queries[:, None] * len(heads) + heads[:, None, None]) * _KEYS_ACROSS + numbers
        return _mix((places ^ _MIX2) * _GOLDEN)  # XOR first: compilers fold products of plain counters, and overflow


def _table(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """A word for every place in a row: hidden states (L, D), or scores of attention (H, Lq, Lk)."""
    if torch.compiler.is_compiling() or prod(sizes) > _SMALL_TABLE * FIELDS:
        return _cached_table.__wrapped__(sizes, device)
    return _cached_table(sizes, device)


class Dropout(nn.Module):
    """Zeroes a share `rate` of the numbers and scales the rest by 1 / (1 - rate). Identity in eval mode.

    The rate is rounded to a multiple of 1/32768. `key` identifies the module to the random numbers; `name_dropouts` sets it.
    """

    def __init__(self, rate: float, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.key = 0
        self.set_rate(rate)

    def set_rate(self, rate: float) -> None:
        """Drop another share from now on. A compiled module that holds this one is compiled again for it, once."""
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"dropout rate {rate} is not in [0, 1)")
        self.rate = rate
        self.threshold = round(rate * LEVELS)
        self.scale = LEVELS / (LEVELS - self.threshold)

    @property
    def active(self) -> bool:
        """Whether a call drops anything now."""
        return self.training and self.threshold > 0

    def forward(self, x: Tensor, positions: Positions | None = None) -> Tensor:
        """Drop in (B, L, D), in (B, D), or in rows (M, D) that were gathered from `positions`."""
        if not self.active:
            return x
        return drop(x, self.keep_hidden(x.shape, x.device, positions), self.scale)

    def keep_hidden(self, shape: tuple[int, ...], device: torch.device, positions: Positions | None = None) -> Tensor:
        """Which numbers stay, of shape (B, L, D), (B, D) or (M, D) at positions: int16, -1 stays, 0 does not; bool off a CPU."""
        width = shape[-1]
        if device.type != "cpu":
            return self._by_element(shape, device, positions)
        if positions is None:
            length = shape[1] if len(shape) == 3 else 1
            table = _table((length, width), device)
            first, second = (key.view(-1, 1, 1) for key in self._row_keys(torch.arange(shape[0], device=device)))
            return self._fields(table, first, second, width).view(shape)
        if len(positions.row) == 0:
            return torch.empty(shape, dtype=torch.int16, device=device)
        table = _table((int(positions.column.max()) + 1, width), device)
        first, second = (key[:, None] for key in self._row_keys(positions.row))
        return self._fields(table, first, second, width, positions.column)

    def keep_scores(
        self, batch: int, heads: int, queries: int, keys: int, device: torch.device, columns: Tensor | None = None
    ) -> Tensor:
        """int16 (B, H, Lq, Lk): -1 where an attention weight stays, 0 where not; (B, H, K, Lk) at `columns` (B, K)."""
        table = _table((heads, queries, keys), device)
        if columns is not None:
            table = table.transpose(0, 1)[columns].transpose(1, 2).contiguous()
        first, second = (key.view(-1, 1, 1, 1) for key in self._row_keys(torch.arange(batch, device=device)))
        return self._fields(table, first, second, keys)

    def for_kernel(self, value: Tensor) -> tuple[Tensor, float]:
        """Values (B, H, Lk, W) and the rate for a kernel that drops attention probabilities by itself."""
        return value, self.rate if self.active else 0.0

    def _by_element(self, shape: tuple[int, ...], device: torch.device, positions: Positions | None = None) -> Tensor:
        """One 32-bit hash per number, true where it stays: simple arithmetic that a compiler fuses into its neighbours."""
        if positions is None:
            row = torch.arange(shape[0], device=device)
            x = torch.arange(prod(shape[1:]), dtype=torch.int32, device=device).view(1, *shape[1:])
        else:
            row = positions.row
            x = positions.column.to(torch.int32)[:, None] * shape[-1] + torch.arange(shape[-1], dtype=torch.int32, device=device)
        first, second = (key.view(-1, *[1] * (len(shape) - 1)) for key in self._row_keys(row))
        x = (x ^ first.to(torch.int32)) * _GOLDEN32
        x = (x ^ (x >> 16)) * 0x7FEB352D
        x = x ^ second.to(torch.int32)
        x = (x ^ (x >> 15)) * _MIX32
        return ((x ^ (x >> 16)) & (LEVELS - 1)) >= self.threshold

    def _row_keys(self, row: Tensor) -> tuple[Tensor, Tensor]:
        """The keys of rows of the micro-batch (N,), by their number in it."""
        base = self._base(row.device)
        row = row.long() + self._first_row()
        first = _mix(base ^ (row * _GOLDEN + 2))
        return first, _mix(first + _GOLDEN) | 1

    def _base(self, device: torch.device) -> Tensor | int:
        """The number of this module in this step; plain integers take a tenth of the time of 0-dim tensors on a CPU."""
        seed, step = self.clock.seed, self.clock.step
        if device.type != "cpu" or torch.compiler.is_compiling():
            return _mix(_mix(seed * _GOLDEN + self.key) ^ (step * _GOLDEN + 1))
        return _signed(rng.mix64(rng.mix64(int(seed) * _GOLDEN + self.key) ^ (int(step) * _GOLDEN + 1)))

    def _first_row(self) -> Tensor:
        """The number of the micro-batch's first row in the step."""
        return self.clock.first_row

    def _fields(
        self, table: Tensor, first: Tensor, second: Tensor, numbers: int, picked: Tensor | None = None
    ) -> Tensor:
        """-1 where a number stays, by the words of a table and the keys of rows.

        The table is that of every row, has a row for each, or has those that are `picked` for each.
        """
        row_size = prod(table.shape if first.dim() > table.dim() else table.shape[1:])
        kernel = kernels.find("dropout", size=len(first) * row_size * FIELDS) if takes_device(first) else None
        if kernel is not None:
            return self._compiled(kernel.decide, table, first, second, numbers, picked)
        return self._decide((table if picked is None else table[picked]) ^ first, second, numbers)

    def _compiled(
        self, decide: Any, table: Tensor, first: Tensor, second: Tensor, numbers: int, picked: Tensor | None
    ) -> Tensor:
        """The same numbers as `_decide`, in one pass on one core."""
        rows, shared = len(first), first.dim() > table.dim()
        words = torch.empty((rows, *(table.shape if shared else table.shape[1:])), dtype=torch.int64)
        if picked is None:
            picked = torch.zeros(rows, dtype=torch.int64) if shared else torch.arange(rows)
        table = table.reshape(1 if shared else len(table), -1)
        arrays = (x.reshape(-1).numpy() for x in (picked, first, second))
        decide(table.numpy(), *arrays, _FACTOR, _TOPS, self.threshold * _EACH, words.view(rows, -1).numpy())
        fields = words.view(torch.int16)
        return fields if fields.shape[-1] == numbers else fields[..., :numbers].contiguous()

    def _decide(self, words: Tensor, second: Tensor, numbers: int) -> Tensor:
        words.mul_(_FACTOR)
        words ^= words >> 32
        words *= second
        words ^= words >> 32
        words |= _TOPS  # a field keeps its top bit where it is not below the threshold, and borrows from no other
        words -= self.threshold * _EACH
        fields = words.view(torch.int16)
        return torch.bitwise_right_shift(fields if fields.shape[-1] == numbers else fields[..., :numbers], 15)

    def extra_repr(self) -> str:
        """The rate, for `print(network)`."""
        return f"rate={self.rate}"


class _DropBits(torch.autograd.Function):
    """bfloat16: AND the bit pattern with the mask instead of converting the mask to a number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(keep)
        ctx.scale = scale
        return _and_bits(x, keep).mul_(scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return _and_bits(gradient, keep).mul_(ctx.scale), None, None


def _and_bits(x: Tensor, keep: Tensor) -> Tensor:
    return (x.contiguous().view(torch.int16) & keep).view(torch.bfloat16)


def keep_(x: Tensor, keep: Tensor) -> Tensor:
    """Zero `x` in place where `keep` is 0; contiguous, not scaled."""
    if x.dtype == torch.bfloat16:
        x.view(torch.int16).bitwise_and_(keep)
        return x
    return x.mul_(keep.neg())


def kept(x: Tensor, keep: Tensor, into: Tensor | None = None) -> Tensor:
    """`x`, contiguous, with zeros where `keep` is 0, not scaled; in `into` where it is given."""
    into = torch.empty_like(x) if into is None else into
    if x.dtype == torch.bfloat16:
        torch.bitwise_and(x.view(torch.int16), keep, out=into.view(torch.int16))
        return into
    return torch.mul(x, keep.neg(), out=into)


def drop(x: Tensor, keep: Tensor, scale: float) -> Tensor:
    """`x` where `keep` is -1 (or true), scaled; zero elsewhere."""
    if keep.dtype == torch.bool:
        return torch.where(keep, x * scale, 0.0)
    if x.dtype == torch.bfloat16 and not torch.compiler.is_compiling():
        return _DropBits.apply(x, keep, scale)
    return x * keep.to(x.dtype).mul_(-scale)


def name_dropouts(root: nn.Module, known_as: Mapping[str, str] = MappingProxyType({})) -> None:
    """Give every `Dropout` below `root` the key of its qualified name, so that no two of them draw the same numbers.

    `known_as` gives the end of a name that a dropout once had, so that it draws what it drew.
    """
    for name, module in root.named_modules():
        if isinstance(module, Dropout):
            end = next((end for end in known_as if name.endswith(f".{end}")), None)
            module.key = _signed(rng.name_key(name if end is None else name.removesuffix(end) + known_as[end]))


def dropouts(root: nn.Module) -> dict[str, float]:
    """The rate of every `Dropout` below `root`, by its qualified name."""
    return {name: module.rate for name, module in root.named_modules() if isinstance(module, Dropout)}


def set_dropouts(root: nn.Module, rates: Mapping[str, float]) -> None:
    """Change those dropouts below `root` that `rates` names."""
    for name, rate in rates.items():
        module = root.get_submodule(name)
        assert isinstance(module, Dropout)  # the names are those of `dropouts`
        module.set_rate(rate)


def uniform_by_row(clock: Clock, name: str, row: Tensor, position: Tensor) -> Tensor:
    """Numbers in [0, 1) with 24 random bits, one per (row, position), addressed like dropout: float32 (M,)."""
    base = _mix(_mix(clock.seed * _GOLDEN + _signed(rng.name_key(name))) ^ (clock.step * _GOLDEN + 1))
    first = _mix(base ^ ((row.long() + clock.first_row) * _GOLDEN + 2))
    word = _mix(first ^ (position.long() * _GOLDEN + 3))
    return ((word >> 40) & ((1 << 24) - 1)).float() * 2.0**-24
