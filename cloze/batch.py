"""Tensors by field name. The constructor checks names, kinds and numbers of dimensions; later operations check nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from cloze import fields

#: The tensors on the CPU from which tensors on a GPU were copied, as long as the latter exist.
_SENT = WeakTensorKeyDictionary()


class Batch(Mapping[str, Tensor]):
    """An immutable mapping from full field names to tensors."""

    def __init__(self, tensors: Mapping[str, Tensor], *, checked: bool = False) -> None:
        self._tensors = dict(tensors)
        if not checked:
            for name, tensor in self._tensors.items():
                _check(name, tensor)

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """The same batch on another device. `on_host` knows the tensors that a GPU got."""
        moved = {name: send(tensor, device, non_blocking=non_blocking) for name, tensor in self._tensors.items()}
        return Batch(moved, checked=True)

    def view(self, name: str) -> Batch:
        """The fields of one view, without its prefix."""
        if name == "main":
            return Batch({k: v for k, v in self._tensors.items() if "." not in k}, checked=True)
        start = name + "."
        return Batch({k[len(start):]: v for k, v in self._tensors.items() if k.startswith(start)}, checked=True)

    def shapes(self) -> list[tuple[int, int]]:
        """Rows and positions of every view's sequence: its tokens, or its vectors where it has no tokens."""
        shapes: dict[str, tuple[int, int]] = {}
        for sequence in fields.SEQUENCES:
            for name, tensor in self._tensors.items():
                view, field, _ = fields.split(name)
                if field == sequence:
                    shapes.setdefault(view, (tensor.shape[0], tensor.shape[1]))
        return list(shapes.values())

    def __repr__(self) -> str:
        return "Batch(" + ", ".join(f"{k} {tuple(v.shape)}" for k, v in self._tensors.items()) + ")"


def sequence(batch: Mapping[str, Tensor]) -> Tensor:
    """What the rows of a view consist of, (B, L, …): its tokens, or its vectors where it has no tokens."""
    return batch[fields.sequence(batch) or "tokens"]


def block_starts(block: Tensor) -> Tensor:
    """The flat position where each run of one number begins in `block` (B, L), then B*L one or more times (int32)."""
    first = torch.ones_like(block, dtype=torch.bool)
    first[:, 1:] = block[:, 1:] != block[:, :-1]
    starts = first.flatten().nonzero().view(-1)
    spare = 1 + (-len(starts) - 1) % 64  # empty runs at the end, so that a compiled graph sees fewer lengths
    return torch.cat([starts, starts.new_full((spare,), block.numel())]).to(torch.int32)


def was_sent(tensor: Tensor) -> bool:
    """Whether `send` has copied this tensor to a GPU, so that `on_host` waits for nothing."""
    return tensor in _SENT


def on_host(tensor: Tensor) -> Tensor:
    """The same numbers on the CPU, where sizes that depend on them cost no wait for a GPU.

    It is the tensor that `send` has copied to the GPU, else a copy, for which the host waits. A tensor that is not on a GPU is
    returned as it is.
    """
    if tensor.device.type != "cuda":
        return tensor
    sent: Tensor | None = _SENT.get(tensor)
    return tensor.cpu() if sent is None else sent


def send(tensor: Tensor, device: torch.device | str, *, non_blocking: bool = True) -> Tensor:
    """The tensor on a device. A GPU copies it from pinned memory: another copy would wait until the GPU has finished its work."""
    if torch.device(device).type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device, non_blocking=non_blocking)
    copy = (tensor.pin_memory() if non_blocking else tensor).to(device, non_blocking=non_blocking)
    _SENT[copy] = tensor
    return copy


def _check(name: str, tensor: Tensor) -> None:
    field = fields.find(name)
    if not field.travels:
        raise ValueError(f"field {name!r} is for edits only and must not reach a batch")
    kind = "float" if tensor.is_floating_point() else "boolean" if tensor.dtype == torch.bool else "integer"
    expected = len(field.shape.split())
    spans = field.name == "positions" and tensor.dim() == 2  # of spans: M K
    if kind != field.kind or (tensor.dim() != expected and not spans):
        raise ValueError(
            f"field {name!r} must be {field.kind} of shape ({field.shape}), got {tensor.dtype} {tuple(tensor.shape)}"
        )
