"""DeBERTa, the first version ↔ transformers' `Deberta*`.

Source: DeBERTa (He et al., 2021) and microsoft/DeBERTa. Queries, keys and values are one map without a bias, head by head
(`in_proj`), and queries and values have biases apart; distances have maps of their own in every layer. The enhanced mask decoder
(§3.2 of the paper, `EnhancedMaskDecoder` in the authors' code) is not in transformers: its masked-LM head reads the last layer.

Differs: transformers 5 puts two [SEP] between two texts; the authors' code, transformers 4 and cloze put one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from cloze.interop import encoder
from cloze.interop.architecture import Architecture, add
from cloze.interop.architectures import deberta_v2
from cloze.interop.mapping import STACKED, MappingLine, Move, TableSizes
from cloze.interop.model import PortableModel

_ATTENTION = "{base}encoder.layer.{i}.attention.self."


class HeadByHead(Move):
    """Their rows are the query, key and value of one head after the other; ours are all queries, all keys and all values."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        return (ours.unflatten(0, (3, sizes.letters["H"], -1)).transpose(0, 1).flatten(0, 2),)

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return tensors[0].unflatten(0, (sizes.letters["H"], 3, -1)).transpose(0, 1).flatten(0, 2)


def _body() -> tuple[MappingLine, ...]:
    """v2's lines, with the two forms of the maps in attention."""
    projections = MappingLine("layers.{i}.attention.projections.weight", f"{_ATTENTION}in_proj.weight", "3D D", HeadByHead())
    biases = MappingLine(
        "layers.{i}.attention.query_value_bias", (f"{_ATTENTION}q_bias", f"{_ATTENTION}v_bias"), "2D", STACKED
    )
    rest = deberta_v2.body("query_proj", "key_proj", "value_proj")
    return (*(line for line in rest if ".projections." not in line.ours), projections, biases)


def _further(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    lines, terms = deberta_v2.distances(arguments), arguments.get("positions.terms")
    if terms in ("both", "content_to_position"):
        lines += (MappingLine("layers.{i}.attention.distance_keys.weight", f"{_ATTENTION}pos_proj.weight", "D D"),)
    if terms in ("both", "position_to_content"):
        lines += (MappingLine("layers.{i}.attention.distance_queries.*", f"{_ATTENTION}pos_q_proj.*", "D D"),)
    return lines


def _read(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are not in a single key."""
    positions = deberta_v2.read_positions(config, no_terms=([],))
    if positions["positions"] != "disentangled":
        return positions
    return {**positions, "positions.buckets": None, "positions.maps": "own", "positions.norm": False}


def _beware(arguments: Mapping[str, Any]) -> list[str]:
    return [
        "transformers 5 puts two [SEP] between two texts of DeBERTa v1; the authors' code, transformers 4 and cloze put one."
    ]


def _resemblance(model: PortableModel, kind: str) -> int:
    return 4 if model.flat.get("positions") == "disentangled" else -1


DEBERTA = add(Architecture(
    name="deberta",
    title="DeBERTa",
    settings=deberta_v2.settings(layers=12, width=768, heads=12, inner=3072),
    fixed={**deberta_v2.DEBERTA_V2.fixed, "attention.biases": "not_keys"},
    assumed=deberta_v2.DEBERTA_V2.assumed,
    legal={**deberta_v2.DEBERTA_V2.legal, "talking_head": (False,)},
    base="deberta.",
    body=_body(),
    further=_further,
    sizes=deberta_v2.sizes,
    heads=tuple(head for head in deberta_v2.DEBERTA_V2.heads if head not in (deberta_v2.CHOOSER, deberta_v2.REPLACED)),
    classes=(*deberta_v2.classes("Deberta"), deberta_v2.last("Deberta")),
    tokenizer_class="DebertaTokenizer",
    reading=encoder.READING,
    recipe=lambda model: "deberta-base",
    resemblance=_resemblance,
    from_config=_read,
    to_config=lambda arguments, order: deberta_v2.write_positions(arguments),
    further_objections=deberta_v2.against,
    remarks=_beware,
    ignored=deberta_v2.DEBERTA_V2.ignored,
))  # fmt: skip
