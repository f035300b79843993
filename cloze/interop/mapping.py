"""Tables that translate parameter names and values, read in both directions.

A `MappingLine` pairs one of our parameters with one or more of theirs. `{i}` stands for a layer, `{j}` and `{k}` for
those of further stacks, `.*` for `.weight` and `.bias`, `{base}` for the prefix that transformers puts before the body
of a model with heads (`bert.`). `shape` is our shape in letters: V vocabulary, D width, E width of the embeddings, I
inner, P positions, S segments, C classes, and whatever `Architecture.sizes` adds; a bias has the first letter of its weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from cloze.errors import CheckpointError


@dataclass(frozen=True)
class TableSizes:
    """The numbers that a table needs: sizes by letter, how far `{i}` and `{j}` run, the prefix, and the row of [PAD]."""

    letters: Mapping[str, int]
    counts: Mapping[str, int]
    base: str = ""
    pad: int = 0

    def with_letters(self, **letters: int) -> TableSizes:
        """The same with further letters."""
        return replace(self, letters={**self.letters, **letters})


class Move:
    """Converts a value between the two formats; this class leaves it unchanged. Subclasses are final."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        """Our tensor → theirs."""
        return (ours,)

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        """Their tensors → ours."""
        return tensors[0]


class Stacked(Move):
    """Our one tensor is several tensors of equal size in theirs, stacked along the first axis."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        return tuple(ours.chunk(parts, dim=0))

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return torch.cat(tensors, dim=0)


class Turned(Move):
    """Their `Conv1D` stores its matrix as (in, out), `Linear` as (out, in); a bias is unchanged."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        return (ours.t() if ours.dim() == 2 else ours,)

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return tensors[0].t() if tensors[0].dim() == 2 else tensors[0]


class Shifted(Move):
    """RoBERTa counts positions from `pad + 1`; the rows before that are zero and never read for real tokens."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        return (torch.cat([ours.new_zeros(sizes.pad + 1, ours.shape[1]), ours]),)

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return tensors[0][sizes.pad + 1 :]


SAME, STACKED, TURNED, SHIFTED = Move(), Stacked(), Turned(), Shifted()


@dataclass(frozen=True)
class MappingLine:
    """One line of a table: our name, their name or names, our shape, the conversion, and the first layer that has it."""

    ours: str
    theirs: str | tuple[str, ...]
    shape: str
    move: Move = field(default=SAME)
    first: int = 0


class Entry(NamedTuple):
    """A line for one layer and one of weight and bias."""

    ours: str
    theirs: tuple[str, ...]
    shape: tuple[int, ...]
    move: Move


def entries(lines: Iterable[MappingLine], sizes: TableSizes) -> Iterator[Entry]:
    """Every pair of names that `lines` expand to."""
    for line in lines:
        names = (line.theirs,) if isinstance(line.theirs, str) else line.theirs
        for layer in _layers(line, sizes):
            for ending in ("weight", "bias") if line.ours.endswith("*") else ("",):
                letters = line.shape.split()[:1] if ending == "bias" else line.shape.split()
                yield Entry(
                    _name(line.ours, layer, ending, sizes),
                    tuple(_name(name, layer, ending, sizes) for name in names),
                    tuple(_size(letter, sizes) for letter in letters),
                    line.move,
                )


def to_theirs(lines: Iterable[MappingLine], ours: Mapping[str, Tensor], sizes: TableSizes) -> dict[str, Tensor]:
    """Their tensors for our state; a missing parameter is an error of the caller (KeyError)."""
    result: dict[str, Tensor] = {}
    for entry in entries(lines, sizes):
        tensor = ours[entry.ours]
        if tuple(tensor.shape) != entry.shape:
            raise CheckpointError(
                f"{entry.ours}: the tensor is {_shape(tensor.shape)}, and the network's arguments make it "
                f"{_shape(entry.shape)}.\n  Export the weights together with the arguments they were trained with."
            )
        result.update(zip(entry.theirs, entry.move.there(tensor, sizes, len(entry.theirs)), strict=True))
    return result


def to_ours(
    lines: Iterable[MappingLine], tensors: MutableMapping[str, Tensor], sizes: TableSizes, path: str
) -> dict[str, Tensor]:
    """Our state from their tensors. Used tensors are removed from `tensors`; all missing ones are reported together."""
    expansions = list(entries(lines, sizes))
    missing = [name for entry in expansions for name in entry.theirs if name not in tensors]
    if missing:
        raise CheckpointError(_missing(path, missing))
    result: dict[str, Tensor] = {}
    for entry in expansions:
        tensor = entry.move.back(tuple(tensors.pop(name) for name in entry.theirs), sizes)
        if tuple(tensor.shape) != entry.shape:
            raise CheckpointError(
                f"{path}: {' + '.join(entry.theirs)}: the file gives {_shape(tensor.shape)}, config.json asks for "
                f"{_shape(entry.shape)}.\n  The two files belong to different models: copy both again from one source."
            )
        result[entry.ours] = tensor
    return result


def _missing(path: str, missing: list[str]) -> str:
    names = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
    noun = "tensor is" if len(missing) == 1 else "tensors are"
    return (
        f"{path}: {len(missing)} {noun} missing that config.json asks for: {names}.\n"
        "  The copy is incomplete or config.json belongs to another model: copy the whole folder again."
    )


def _layers(line: MappingLine, sizes: TableSizes) -> Iterable[int]:
    """The layers that a line covers; one without a letter covers itself."""
    letter = next((letter for letter in sizes.counts if "{" + letter + "}" in line.ours), None)
    return (0,) if letter is None else range(line.first, sizes.counts[letter])


def _name(pattern: str, layer: int, ending: str, sizes: TableSizes) -> str:
    name = pattern.replace("{base}", sizes.base)
    for letter in sizes.counts:
        name = name.replace("{" + letter + "}", str(layer))
    return name.removesuffix("*") + ending if ending else name


def _size(letter: str, sizes: TableSizes) -> int:
    """`D` → width, `3D` → three times the width, `1` → 1."""
    digits = letter.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    rest = letter[len(digits) :]
    return (int(digits) if digits else 1) * (sizes.letters[rest] if rest else 1)


def _shape(shape: Iterable[int]) -> str:
    return "(" + ", ".join(str(size) for size in shape) + ")"
