"""From a block of examples to the arrays of a batch, in numpy.

Examples are laid into rows, one per row or several packed, and padded. Columns within an example become flat positions, indices
into the flattened batch. `Feed` calls `collate` for every view; `data.py` turns the arrays into tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze import fields
from cloze.errors import RecipeError
from cloze.rows import Rows, columns_before, true_positions

Arrays = dict[str, NDArray[Any]]
Lay = Callable[[NDArray[Any], int], NDArray[Any]]


class BatchLayout(NamedTuple):
    """Where each example of a view starts: flat positions `base` (E,) in a batch of `rows` rows of `width` tokens."""

    base: NDArray[np.int64]
    rows: int
    width: int
    packed: bool


def one_per_row(length: NDArray[Any], width: int | None = None) -> BatchLayout:
    """One example per row; `width` defaults to the longest."""
    width = max(1, int(length.max())) if width is None else width
    return BatchLayout(np.arange(len(length), dtype=np.int64) * width, len(length), width, packed=False)


def several_per_row(length: NDArray[Any], row: NDArray[np.int64], width: int) -> BatchLayout:
    """Examples one after another in the rows `row` (E,), ascending."""
    before = np.cumsum(length, dtype=np.int64) - length
    first = np.searchsorted(row, row, side="left")
    rows = int(row[-1]) + 1 if len(row) else 0
    return BatchLayout(row * width + before - before[first], rows, width, packed=True)


def collate(rows: Rows, layout: BatchLayout, *, takes: frozenset[str], padding: int = 0) -> Arrays:
    """The arrays of one view by field (`cloze/fields.py`), without a view prefix: token-aligned ones (rows, width), targets (M,).

    `takes` are the token-aligned fields that a network or an objective takes; targets are always included. `block` is given
    when rows hold padding or several examples; `position_ids` restart with every packed example; `summaries` is each
    example's first token when rows are packed. Where a row is padding, `tokens` has the id `padding`, every other field 0.
    """
    length = rows["length"] if "length" in rows else np.zeros(rows.count, np.int32)
    is_token = columns_before(length, rows.width if layout.packed else layout.width)
    lay = _packed(layout, is_token) if layout.packed else _padded(is_token)
    items = _most_items(rows, layout)
    out: Arrays = {}
    for name, value in rows.items():
        field = fields.find(name)
        if "." in name or not field.travels:
            continue
        if field.per == "token":
            if name in takes:
                out[name] = lay(value, padding if name == "tokens" else 0)
        elif field.per == "pair":
            if (laid := _square(name, value, is_token, layout)) is not None:
                out[name] = laid
        elif field.per == "column":  # (E, K) columns, -1 for none, to flat positions (M,)
            out[name] = (layout.base[:, None] + value)[value >= 0]
        elif field.per == "link":
            linked = str(fields.split(name).set)
            out[name] = flat_links(value, layout.base, items[linked] if linked in items else rows[f"items/{linked}"].shape[1])
        elif field.per == "item":
            out[name] = value[:, : items.get(items_of(name), value.shape[1])]
        elif field.per == "row":
            out[name] = value
    if layout.packed:
        row = layout.base // layout.width
        # (E,): the number of each example in its row, from 1.
        ordinal = (np.arange(len(row)) - np.searchsorted(row, row) + 1).astype(np.int32)
        out["block"] = lay(np.broadcast_to(ordinal[:, None], is_token.shape), 0)
        if "position_ids" not in out:
            out["position_ids"] = lay(np.broadcast_to(np.arange(is_token.shape[1], dtype=np.int32), is_token.shape), 0)
        out["summaries"] = layout.base
    elif not is_token.all():
        out["block"] = is_token.astype(np.int32)
    if "summary" in rows:
        out["summaries"] = layout.base + rows["summary"]
    out.update(_targets(rows, layout, items))
    return out


def items_of(name: str) -> str:
    """The set of items that a field is about: `regions` of item_vectors/regions and of items/regions/class."""
    return fields.split(name).set.partition("/")[0]


def _most_items(rows: Rows, layout: BatchLayout) -> dict[str, int]:
    """How many items of each set the arrays of the batch have room for: the most that a row has, and at least one."""
    lengths = {items_of(name): value for name, value in rows.items() if name.startswith("item_length/")}
    if lengths and layout.packed:
        raise RecipeError("packing puts several examples into a row, in which their items would be mixed: write packing: false.")
    return {name: max(1, int(length.max(initial=0))) for name, length in lengths.items()}


def _padded(is_token: NDArray[np.bool_]) -> Lay:
    """A function that lays fields into rows as wide as `is_token` (R, W), one example per row, and fills the padding."""
    def lay(value: NDArray[Any], empty: int) -> NDArray[Any]:
        laid = np.full((*is_token.shape, *value.shape[2:]), empty, value.dtype)
        cut = value[:, : is_token.shape[1]]
        real = is_token[:, : cut.shape[1]]
        np.copyto(laid[:, : cut.shape[1]], cut, where=real.reshape(real.shape + (1,) * (value.ndim - 2)))
        return laid

    return lay


def _packed(layout: BatchLayout, is_token: NDArray[np.bool_]) -> Lay:
    """A function that lays fields into packed rows, token by token; `is_token` (E, L) is true for an example's tokens."""
    source, example, column = true_positions(is_token)
    target = layout.base[example] + column

    def lay(value: NDArray[Any], empty: int) -> NDArray[Any]:
        laid = np.full((layout.rows * layout.width, *value.shape[2:]), empty, value.dtype)
        laid[target] = value.reshape((-1, *value.shape[2:]))[source]
        return laid.reshape((layout.rows, layout.width, *value.shape[2:]))

    return lay


def _square(name: str, value: NDArray[Any], is_token: NDArray[np.bool_], layout: BatchLayout) -> NDArray[np.bool_] | None:
    """Pairs of tokens (B, L, L) as wide as the batch; of padding, only each position with itself is true. None if all pairs of
    real tokens are true."""
    if layout.packed:
        raise RecipeError(f"packing puts several examples into a row, in which `{name}` cannot hold: write packing: false.")
    width = min(value.shape[1], layout.width)
    real = is_token[:, :width, None] & is_token[:, None, :width]
    if value[:, :width, :width][real].all():
        return None
    laid = np.zeros((len(value), layout.width, layout.width), np.bool_)
    laid[:, :width, :width] = value[:, :width, :width] & real
    laid[:, np.arange(layout.width), np.arange(layout.width)] = True
    return laid


def flat_links(pairs: NDArray[Any], base: NDArray[np.int64], items: int) -> NDArray[np.int64]:
    """(E, K, 2) columns of tokens and of items in each example, -1 for none, as flat positions (M, 2). `base` (E,) is where each
    example begins; each has room for `items`."""
    example, slot = np.nonzero(pairs[:, :, 0] >= 0)
    token, item = pairs[example, slot, 0], pairs[example, slot, 1]
    return np.stack([base[example] + token, example * items + item], axis=1).astype(np.int64)


def _targets(rows: Rows, layout: BatchLayout, items: Mapping[str, int]) -> Arrays:
    """`targets` or `values`, `positions` and `weights` of every set, flattened to the targets that exist. Targets of items have
    positions in (rows, `items`), all others in (rows, tokens)."""
    out: Arrays = {}
    placed = _placed(rows, layout, items)
    positions: Any
    present: Any  # which targets exist: an index of the targets of a set
    for name, targets in rows.items():
        view, field, chosen = fields.split(name)
        if field not in ("targets", "values") or view != "main":
            continue
        positions, base = placed.get(chosen, (None, layout.base))
        spans = field == "targets" and targets.ndim == 1 and positions is not None and positions.ndim == 2
        if spans:  # (E,) targets of spans (E, 2), to (M,) and (M, 2): both ends of a span must exist
            present = (positions >= 0).all(1) & (targets >= 0)
            out[name] = targets[present]
            out[f"positions/{chosen}"] = (base[:, None] + positions)[present]
        elif targets.ndim == 1 or field == "values" and targets.ndim == 2:
            # (E,) or (E, F), of the whole row; `positions`, if given, is -1 where the row has no target
            present = slice(None) if positions is None else positions >= 0
            out[name] = targets[present]
            out[f"positions/{chosen}"] = np.arange(len(targets), dtype=np.int64)[present]
        else:  # (E, K), of columns, to (M,)
            present = positions >= 0
            out[name] = targets[present]
            out[f"positions/{chosen}"] = (base[:, None] + positions)[present]
        if f"weights/{chosen}" in rows:
            out[f"weights/{chosen}"] = rows[f"weights/{chosen}"][present]
    return out


def _placed(
    rows: Rows, layout: BatchLayout, items: Mapping[str, int]
) -> dict[str, tuple[NDArray[Any], NDArray[np.int64]]]:
    """For each set of targets with positions: these within their rows, -1 for none, and where each row begins (B,)."""
    positions: dict[str, tuple[NDArray[Any], NDArray[np.int64]]] = {}
    for name, value in rows.items():
        view, field, chosen = fields.split(name)
        if view == "main" and field == "positions":
            positions[chosen] = value, layout.base
        elif view == "main" and field == "item_positions":
            set_, _, chosen = chosen.partition("/")
            positions[chosen] = value, np.arange(len(value), dtype=np.int64) * items[set_]
    return positions


def pad_targets(arrays: Mapping[str, NDArray[Any]], multiple: int) -> Arrays:
    """The same arrays with every set of targets padded to a multiple by targets of weight 0 (for compiled graphs)."""
    out = dict(arrays)
    for name, targets in arrays.items():
        _, field, chosen = fields.split(name)
        if field not in ("targets", "values"):
            continue
        missing = -len(targets) % multiple
        weights = arrays.get(f"weights/{chosen}", np.ones(len(targets), np.float32))
        out[name], out[f"positions/{chosen}"] = (
            np.pad(values, [(0, missing), *[(0, 0)] * (values.ndim - 1)]) for values in (targets, arrays[f"positions/{chosen}"])
        )
        out[f"weights/{chosen}"] = np.pad(weights.astype(np.float32), (0, missing))
    return out
