"""Constant tables that are read on two devices: batches are counted on the CPU before they move to a GPU, where the table is."""

from __future__ import annotations

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

_COPIES = WeakTensorKeyDictionary()


def on_device_of(x: Tensor, table: Tensor) -> Tensor:
    """A table that never changes, on the device of x. Its copy for another device is made once."""
    if table.device == x.device:
        return table
    if table not in _COPIES or _COPIES[table].device != x.device:
        _COPIES[table] = table.to(x.device)
    copy: Tensor = _COPIES[table]
    return copy
