"""The page of `cloze look`: one HTML file that shows attention, predictions and neighbours by layer."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.atomic import whole_file
from cloze.probes.look import AttentionMap, Lens, Near, Seen
from cloze.reports.page import fill_page

CELLS = 3_000_000  # of attention that the page holds at most, as bytes; longer texts keep the largest of every row
FULL = 255  # the sum of every row
NEURONS = 2_000_000  # numbers of queries and keys that the page holds at most, as bytes


def render(seen: Seen, *, name: str, about: str = "", command: str = "", timestamp: datetime | None = None) -> str:
    """The page, as HTML text that refers to nothing outside itself: the checkpoint is `name`, its network `about`."""
    title = " / ".join(seen.texts)
    return fill_page(
        "look.html", timestamp, name=name, about=about, title=title if len(title) <= 160 else title[:159] + "…", seen=seen,
        layers=_layers(seen), command=command, data=embedded(page_data(seen)),
    )


def write_page(seen: Seen, out: Path, *, name: str, about: str = "", command: str = "") -> Path:
    """Write the page, whole or not at all."""
    with whole_file(out) as fresh:
        fresh.write_text(render(seen, name=name, about=about, command=command), encoding="utf-8")
    return out


def embedded(data: Any) -> str:
    """JSON that cannot end the script element that holds it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\u2028", "\\u2028")


def page_data(seen: Seen, *, cells: int = CELLS) -> dict[str, Any]:
    """What the page's script reads."""
    total = sum(attention.shares.size for attention in seen.attention)
    return {
        "layers": _layers(seen),
        "sequences": {
            name: {"pieces": sequence.pieces, "parts": sequence.parts, "ids": sequence.ids}
            for name, sequence in seen.sequences.items()
        },
        "attention": [
            {**packed(attention, cells=round(cells * attention.shares.size / total)), "neurons": neurons(attention, NEURONS)}
            for attention in seen.attention
        ],
        "lens": None if seen.lens is None else _lens(seen.lens),
        "near": [_near(neighbours) for neighbours in seen.near],
        "attributions": [
            {"what": attribution.what, "place": attribution.place, "shares": _rounded(attribution.shares, 4),
             "score": round(attribution.score, 4), "base": round(attribution.base, 4)}
            for attribution in seen.attributions
        ],
        "vocabulary": {str(number): piece for number, piece in seen.vocabulary.items()},
    }


def packed(attention: AttentionMap, *, cells: int = CELLS) -> dict[str, Any]:
    """Attention as bytes in base64: every row, or its largest entries if there are more than `cells` numbers.

    The entries of a row sum to 255, whatever is left out. With `columns`, the entries' places as 16-bit integers.
    """
    layers, heads, rows, columns = attention.shares.shape
    fields = {"name": attention.name, "rows": attention.rows, "columns": attention.columns, "shape": attention.shares.shape}
    count = columns if attention.shares.size <= cells else max(1, min(columns, cells // (3 * layers * heads * rows)))
    if count == columns:
        return {**fields, "kept": None, "shares": _base64(in_bytes(attention.shares))}
    places = np.sort(np.argpartition(attention.shares, -count, axis=-1)[..., -count:], axis=-1)
    shares = np.rint(FULL * np.take_along_axis(attention.shares, places, -1)).astype(np.uint8)
    return {**fields, "kept": count, "shares": _base64(shares), "places": _base64(places.astype("<u2"))}


def neurons(attention: AttentionMap, most: int) -> dict[str, Any] | None:
    """Queries and keys as signed bytes in base64, 127 the largest magnitude of a head; None if there are more than `most`."""
    if attention.neurons is None or sum(array.size for array in attention.neurons) > most:
        return None
    scales = [np.maximum(np.abs(array).max((-2, -1)), 1e-9) / 127 for array in attention.neurons]  # (N, H)
    queries, keys = (
        _base64(np.rint(array / scale[..., None, None]).astype(np.int8))
        for array, scale in zip(attention.neurons, scales, strict=True)
    )
    return {
        "width": attention.neurons[0].shape[-1], "queries": queries, "keys": keys,
        "scales": [scale.ravel().astype(np.float64).round(6).tolist() for scale in scales],
    }


def in_bytes(shares: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Rows that sum to one as bytes that sum to 255: rounded down, and one more for the largest remainders."""
    scaled = FULL * shares.astype(np.float64) / np.maximum(shares.sum(-1, keepdims=True, dtype=np.float64), 1e-30)
    floors = np.floor(scaled + 1e-9)
    missing = np.rint(scaled.sum(-1, keepdims=True) - floors.sum(-1, keepdims=True))
    rank = np.argsort(np.argsort(-(scaled - floors), axis=-1, kind="stable"), axis=-1)
    rounded: NDArray[np.uint8] = (floors + (rank < missing)).astype(np.uint8)
    return rounded


def _lens(lens: Lens) -> dict[str, Any]:
    return {
        "rows": lens.rows, "predicts": lens.predicts, "ids": lens.ids.tolist(), "shares": _rounded(lens.shares, 4),
        "final": _rounded(lens.final, 4),
        "actual": [[None if np.isnan(x) else round(float(x), 4) for x in row] for row in lens.actual],
    }


def _near(near: Near) -> dict[str, Any]:
    words, cosines = near.words, near.word_cosines
    return {
        "rows": near.rows, "tokens": near.tokens.tolist(), "cosines": _rounded(near.cosines, 3),
        "words": None if words is None else words.tolist(),
        "word_cosines": None if cosines is None else _rounded(cosines, 3),
    }


def _rounded(array: NDArray[np.floating], digits: int) -> Any:
    return np.round(array.astype(np.float64), digits).tolist()


def _base64(array: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def _layers(seen: Seen) -> int:
    """The number of layers above the embeddings: of the deepest stack."""
    return max([near.tokens.shape[0] - 1 for near in seen.near] + [attention.shares.shape[0] for attention in seen.attention])

