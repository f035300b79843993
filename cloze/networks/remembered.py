"""`RememberedRows`: the states of rows that a network has read, for as long as its parameters stay the same.

At its end, fine-tuning reads its dev rows for a metric and for a held-out loss; they reach the network in other batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from cloze.batch import on_host

_BYTES = 2**28  # of states that a network remembers at most
_STATES = frozenset({"summary", "hidden"})  # of which each row has its own, whatever the other rows of the batch are


class RememberedRows:
    """Around a network in eval mode: a batch whose rows have all been read is answered without running the network.

    A row is known by all that the network reads of it, padding apart. Batches with gradients, with memories or with other
    states than `hidden` and `summary` pass unremembered. Everything is forgotten when a parameter changes.
    """

    def __init__(self) -> None:
        self._states: dict[Any, dict[str, Tensor]] = {}
        self._versions: tuple[int, ...] = ()
        self._left = _BYTES

    def call(self, network: Any, forward: Callable[..., Any], *, want: frozenset[str], **inputs: Any) -> Any:
        """The wanted states, remembered or from `forward`."""
        keys = None if network.training or torch.is_grad_enabled() else _keys(want, inputs)
        if keys is None:
            return forward(want=want, **inputs)
        versions = tuple(parameter._version for parameter in network.parameters())
        if versions != self._versions:
            self._states, self._versions = {}, versions
        if all(key in self._states for key in keys):
            return _joined([self._states[key] for key in keys], inputs["tokens"].shape[1])
        states = forward(want=want, **inputs)
        shapes = {"summary": (len(keys),), "hidden": tuple(inputs["tokens"].shape)}
        if self._left > 0 and all(state.shape[:-1] == shapes.get(name) for name, state in states.items()):
            self._add(keys, states)
        return states

    def _add(self, keys: list[Any], states: Mapping[str, Tensor]) -> None:
        """Remember the states of the rows of a batch: a vector (D,) each, or one (T, D) for each token."""
        for row, key in enumerate(keys):
            length = key[1]
            cut = {name: (state[row] if name == "summary" else state[row, :length]).clone() for name, state in states.items()}
            self._states[key] = cut
            self._left -= sum(state.numel() * state.element_size() for state in cut.values())


def _keys(want: frozenset[str], inputs: Mapping[str, Any]) -> list[Any] | None:
    """What identifies every row of a batch; None if rows cannot be told apart or do not stand for themselves."""
    tokens, positions, order = inputs.get("tokens"), inputs.get("positions"), inputs.get("order", "")
    if not want <= _STATES or tokens is None or not isinstance(order, str):
        return None
    if positions is not None and (len(positions) or "hidden" in want):
        return None
    rows, length = tokens.shape
    summaries = inputs.get("summaries")
    columns = torch.zeros(rows, dtype=torch.int64)
    if summaries is not None:
        if len(summaries) != rows:
            return None
        columns = on_host(summaries) - length * torch.arange(rows)
        if bool(((columns < 0) | (columns >= length)).any()):
            return None
    fields = {name: value for name, value in inputs.items() if name not in ("positions", "order", "summaries", "block")}
    if not all(isinstance(value, Tensor) and value.shape[:2] == tokens.shape for value in fields.values()):
        return None
    block = inputs.get("block")
    blocks = torch.ones(rows, length, dtype=torch.int64) if block is None else on_host(block)
    if blocks.shape != tokens.shape:
        return None
    lengths = ((blocks > 0) * torch.arange(1, length + 1)).amax(1).tolist()
    kind = tokens.device.type
    cast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    arrays = [(name, on_host(value).numpy()) for name, value in sorted([*fields.items(), ("block", blocks)])]
    return [
        ((frozenset(want), order, cast), end, column, tuple((name, array[row, :end].tobytes()) for name, array in arrays))
        for row, (end, column) in enumerate(zip(lengths, columns.tolist(), strict=True))
    ]


def _joined(rows: list[dict[str, Tensor]], length: int) -> dict[str, Tensor]:
    """The states of a batch of rows that are padded to a length; those of padding are zero."""
    states = {}
    for name, first in rows[0].items():
        if first.dim() == 1:
            states[name] = torch.stack([row[name] for row in rows])
            continue
        states[name] = first.new_zeros(len(rows), length, first.shape[1])
        for number, row in enumerate(rows):
            states[name][number, : len(row[name])] = row[name]
    return states


@contextmanager
def remembering(networks: Iterable[Any]) -> Iterator[None]:
    """A context in which networks remember the rows that they read."""
    remembered = list(networks)
    for network in remembered:
        network.remembered = RememberedRows()
    try:
        yield
    finally:
        for network in remembered:
            network.remembered = None
