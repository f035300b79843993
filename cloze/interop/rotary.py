"""Rotary positions in config.json: `rope_parameters` of transformers 5, `rope_theta` and `rope_scaling` of earlier versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LLAMA3 = {
    "factor": "factor", "low": "low_freq_factor", "high": "high_freq_factor", "length": "original_max_position_embeddings"
}


def read_rotary(config: Mapping[str, Any], base: float = 10000.0) -> dict[str, Any]:
    """The arguments of rotary positions; `base` is transformers' for a config that gives none.

    A kind of scaling that cloze's network lacks is a `ValueError` with a message for users.
    """
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(rope, Mapping) or any(isinstance(value, Mapping) for value in rope.values()):
        raise ValueError(f"rope_parameters is {rope!r}; cloze's transformer needs one base and one scaling for these layers.")
    kind, part = rope.get("rope_type", rope.get("type", "default")), rope.get("partial_rotary_factor")
    part = config.get("partial_rotary_factor") if part is None else part
    if part not in (None, 1, 1.0):
        raise ValueError(f"partial_rotary_factor is {part!r}; cloze's transformer rotates whole heads.")
    theta = _positive(rope, "rope_theta", config.get("rope_theta", base))
    arguments: dict[str, Any] = {"positions.base": theta, "positions.local_base": theta}
    if kind == "default":
        return {**arguments, "positions.scaling": None}
    if kind == "linear":
        return {**arguments, "positions.scaling": "linear", "positions.scaling.factor": _positive(rope, "factor", None)}
    if kind != "llama3":
        raise ValueError(f"rope_type is {kind!r}; cloze's transformer has 'default', 'linear' and 'llama3'.")
    longest = config.get("original_max_position_embeddings")
    lengths = {"original_max_position_embeddings": config.get("max_position_embeddings"), **rope}
    lengths = lengths if longest is None else {**lengths, "original_max_position_embeddings": longest}
    numbers = {name: _positive(lengths, key, None) for name, key in _LLAMA3.items()}
    if numbers["low"] >= numbers["high"]:
        raise ValueError(f"low_freq_factor is {numbers['low']:g}; expected less than high_freq_factor, {numbers['high']:g}.")
    scaling = {f"positions.scaling.{name}": number for name, number in {**numbers, "length": int(numbers["length"])}.items()}
    return {**arguments, "positions.scaling": "llama3", **scaling}


def write_rotary(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that `read_rotary` reads, for transformers 5 and 4."""
    kind, theta = arguments.get("positions.scaling"), arguments.get("positions.base", 10000.0)
    names = {"llama3": _LLAMA3, "linear": {"factor": "factor"}}.get(kind or "", {})
    scaling = {"rope_type": kind or "default", **{key: arguments[f"positions.scaling.{name}"] for name, key in names.items()}}
    old = {"rope_theta": theta} if kind is None else {"rope_theta": theta, "rope_scaling": scaling}
    return {**old, "rope_parameters": {**scaling, "rope_theta": theta}}


def _positive(rope: Mapping[str, Any], key: str, default: Any) -> float:
    value = rope.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{key} is {value!r}; expected a positive number.")
    return float(value)
