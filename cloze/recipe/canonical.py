"""Plain data as YAML and JSON: the text of a recipe in its canonical form, and what its hash is taken of."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cloze.document import read_yaml

WIDTH = 120


def to_json(data: Any) -> str:
    """Compact JSON for hashing: a whole number and the same float are equal; the order of keys counts.

    The order is that of the signatures everywhere but where it means something (ids of special tokens, networks as they
    are initialised, entries as they are dealt). A mapping with whole numbers as keys becomes a list of pairs.
    """
    return json.dumps(_pairs(data), separators=(",", ":"), ensure_ascii=False)


def _pairs(data: Any) -> Any:
    if isinstance(data, dict):
        if any(not isinstance(key, str) for key in data):
            return {"pairs": [[key, _pairs(value)] for key, value in data.items()]}
        return {key: _pairs(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_pairs(value) for value in data]
    return float(data) if isinstance(data, int) and not isinstance(data, bool) else data


def to_yaml(data: Mapping[str, Any]) -> str:
    """Plain data as YAML that reads back equal: one line where it fits, blocks where it does not."""
    return "\n".join(line for key, value in data.items() for line in _block(key, value, "")) + "\n"


def _block(key: Any, value: Any, indent: str) -> list[str]:
    head = f"{indent}{_scalar(key)}:"
    if isinstance(value, str) and _is_block(value):
        lines = [f"{indent}  {line}".rstrip() for line in value.splitlines()]
        return [f"{head} |" if value.endswith("\n") else f"{head} |-", *lines]
    line = f"{head} {flow(value)}"
    if len(line) <= WIDTH and not _deep(value, bool(indent)):
        return [line]
    if isinstance(value, dict) and value:
        return [head, *(line for k, v in value.items() for line in _block(k, v, indent + "  "))]
    if isinstance(value, list) and value:
        return [head, *(line for item in value for line in _item(item, indent + "  "))]
    return [line]


def _is_block(text: str) -> bool:
    """Whether a text of several lines can stand as a literal block and read back the same."""
    lines = text.removesuffix("\n").split("\n")
    sound = all(line.isprintable() and line == line.rstrip() for line in lines)
    return len(lines) > 1 and sound and bool(lines[0]) and not lines[0].startswith(" ") and bool(lines[-1])


def _item(item: Any, indent: str) -> list[str]:
    if isinstance(item, dict) and item and len(f"{indent}- {flow(item)}") > WIDTH:
        lines = [line for k, v in item.items() for line in _block(k, v, indent + "  ")]
        return [f"{indent}- {lines[0].lstrip()}", *lines[1:]]
    if isinstance(item, dict) and len(item) == 1:
        key, value = next(iter(item.items()))
        return [f"{indent}- {_scalar(key)}: {flow(value)}"]
    return [f"{indent}- {flow(item)}"]


def _deep(value: Any, nested: bool) -> bool:
    """Whether a value reads better as a block although it would fit: a section of sections, or a list of parts."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not nested and any(isinstance(v, dict) and v for v in inner)


def flow(value: Any) -> str:
    """Plain data as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(k)}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(v) for v in value) + "]"
    return _scalar(value)


_bare = re.compile(r"[A-Za-z_][\w./-]*( [\w./-]+)*")


@lru_cache(maxsize=8192)
def _stays_itself(text: str) -> bool:
    """Whether a text reads back as itself without quotes; the same few hundred texts are asked for again and again."""
    return bool(_bare.fullmatch(text)) and read_yaml(f"x: {text}", "").plain() == {"x": text}


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float)):
        text = json.dumps(value)
        return {"Infinity": ".inf", "-Infinity": "-.inf", "NaN": ".nan"}.get(text, text)
    if _stays_itself(value):
        return str(value)
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
