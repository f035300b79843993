"""The common parts of transformers' encoder-decoders: one token table for both stacks, heads on the decoder's states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloze.interop.mapping import STACKED, MappingLine
from cloze.interop.model import PortableHead


def counts(arguments: Mapping[str, Any]) -> dict[str, int]:
    """`{i}` runs over the encoder's layers, `{j}` over the decoder's."""
    return {"i": arguments["layers"], "j": arguments["decoder_layers"]}


def sizes(arguments: Mapping[str, Any]) -> dict[str, int]:
    """H heads, W the width of all of them, R buckets."""
    heads = arguments["heads"]
    return {"H": heads, "W": heads * arguments["head_width"], "R": arguments.get("positions.buckets", 0)}


def attention(ours: str, prefix: str, names: tuple[str, str, str, str], ending: str) -> tuple[MappingLine, MappingLine]:
    """Attention of a stack to itself; `names` are theirs for query, key, value and output, `ending` is `*` or `weight`."""
    query, key, value, out = (f"{prefix}{name}.{ending}" for name in names)
    return (
        MappingLine(f"{ours}.projections.{ending}", (query, key, value), "3W D", STACKED),
        MappingLine(f"{ours}.out.{ending}", out, "D W"),
    )


def crossing(
    ours: str, prefix: str, names: tuple[str, str, str, str], ending: str
) -> tuple[MappingLine, MappingLine, MappingLine]:
    """Attention of the decoder to the encoder."""
    query, key, value, out = (f"{prefix}{name}.{ending}" for name in names)
    return (
        MappingLine(f"{ours}.query.{ending}", query, "W D"),
        MappingLine(f"{ours}.memory.{ending}", (key, value), "2W D", STACKED),
        MappingLine(f"{ours}.out.{ending}", out, "D W"),
    )


def prediction_objections(head: PortableHead, title: str, *, scaled: bool) -> list[str]:
    """The reasons why a head is not the bare vocabulary, with rows scaled by width^-1/2 or not."""
    wrong = []
    if head.argument("transform"):
        wrong.append(f"it has a transform, transformers' {title} projects straight onto the vocabulary")
    if "head.bias" in head.state:
        wrong.append(f"it has a bias, transformers' {title} has none")
    if bool(head.argument("scale")) != scaled:
        wrong.append(f"scale is {bool(head.argument('scale'))}, transformers' {title} has {scaled} here")
    return wrong
