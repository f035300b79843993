"""RoFormer ↔ transformers' `RoFormer*`: BERT with rotary positions, which may rotate values, too (`rotary_value`).

Source: RoFormer (Su et al., 2021) and ZhuiyiTechnology/roformer. Their rotation turns neighbouring columns of a head, ours column
k with column k + W/2: the rows of the maps to queries and keys are put in another order when read, and back when written; with
`rotary_value` also those of values, and the columns of the map behind them. The table of angles follows from the sizes.

Of the classes, `RoFormerForMultipleChoice` is not read: it sums a row up by its last column, which may be padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cloze.interop import encoder
from cloze.interop.architecture import Architecture, ModelClass, Setting, add
from cloze.interop.architectures.bert import MASKED_LM
from cloze.interop.architectures.electra import PROJECT
from cloze.interop.classification import AUTO, PIPELINE, dense_classifier
from cloze.interop.mapping import MappingLine, Move, TableSizes
from cloze.interop.question_answering import ANSWER, answers_questions
from cloze.interop.tagging import TAGGER, tagger_class
from cloze.networks.blocks.positions.rotary import frequencies

_LAYER = "{base}encoder.layer.{i}."
_NAMES = ("query", "key", "value")


def _separate(rows: Tensor, heads: int) -> Tensor:
    """Rows (H·W, …) whose neighbours belong together → the first of each pair of a head, then the second."""
    return rows.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def _interleave(rows: Tensor, heads: int) -> Tensor:
    """The reverse of `_separate`."""
    return rows.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


@dataclass(frozen=True)
class Rotated(Move):
    """Queries, keys and values stacked; the first `rotated` of them have their columns in another order."""

    rotated: int

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        heads = sizes.letters["H"]
        return tuple(_interleave(x, heads) if number < self.rotated else x for number, x in enumerate(ours.chunk(parts)))

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        heads = sizes.letters["H"]
        return torch.cat([_separate(x, heads) if number < self.rotated else x for number, x in enumerate(tensors)])


class RotatedInputs(Move):
    """The map of rotated values: its columns are in another order."""

    def there(self, ours: Tensor, sizes: TableSizes, parts: int) -> tuple[Tensor, ...]:
        return (_interleave(ours.t(), sizes.letters["H"]).t(),)

    def back(self, tensors: tuple[Tensor, ...], sizes: TableSizes) -> Tensor:
        return _separate(tensors[0].t(), sizes.letters["H"]).t()


def _further(arguments: Mapping[str, Any]) -> tuple[MappingLine, ...]:
    values, out = bool(arguments.get("positions.values")), "layers.{i}.attention.out."
    upstream = tuple(f"{_LAYER}attention.self.{name}.*" for name in _NAMES)
    return (
        MappingLine("layers.{i}.attention.projections.*", upstream, "3D D", Rotated(3 if values else 2)),
        MappingLine(out + "weight", _LAYER + "attention.output.dense.weight", "D D", RotatedInputs() if values else Move()),
        MappingLine(out + "bias", _LAYER + "attention.output.dense.bias", "D"),
    )


def _angles(arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """Sines, then cosines of every position, (P, W)."""
    width = arguments["width"] // arguments["heads"]
    angle = torch.arange(arguments["positions.max_length"]).double()[:, None] * frequencies(width, 10000.0).double()
    return {"encoder.embed_positions.weight": torch.cat([angle.sin(), angle.cos()], dim=1).float()}


def _settings() -> tuple[Setting, ...]:
    """ELECTRA's with other numbers; a single segment stays one, since there is no table of positions that could take it up."""
    shared = encoder.settings(layers=12, width=768, heads=12, inner=3072, longest=1536)
    return (
        *(setting for setting in shared if setting.ours != "segments"),
        Setting("segments", "type_vocab_size", 2, lambda rows: max(1, rows)),
        Setting("embedding.width", "embedding_size", None),
        Setting("positions.values", "rotary_value", False),
    )


def _body() -> tuple[MappingLine, ...]:
    apart = ("embeddings.positions.weight", "layers.{i}.attention.projections.*", "layers.{i}.attention.out.*")
    return tuple(line for line in encoder.body() if line.ours not in apart)


_HEAD = replace(
    MASKED_LM,
    lines=(
        MappingLine("head.dense.*", "cls.predictions.transform.dense.*", "E D"),
        MappingLine("head.norm.*", "cls.predictions.transform.LayerNorm.*", "E"),
    ),
)


ROFORMER = add(Architecture(
    name="roformer",
    title="RoFormer",
    settings=_settings(),
    fixed={**encoder.FIXED, "positions": "rotary", "positions.base": 10000.0, "positions.local_base": 10000.0},
    assumed=encoder.ASSUMED,
    legal=encoder.LEGAL,
    base="roformer.",
    body=_body(),
    further=_further,
    sizes=lambda arguments: {"H": arguments["heads"]},
    buffers=_angles,
    segments=encoder.SEGMENTS,
    project=PROJECT,
    heads=(_HEAD, dense_classifier("gelu"), TAGGER, ANSWER),
    classes=(
        ModelClass("RoFormerForMaskedLM", frozenset({"masked_lm"}), "AutoModelForMaskedLM", "fill-mask"),
        ModelClass("RoFormerForSequenceClassification", frozenset({"classifier"}), AUTO, PIPELINE),
        tagger_class("RoFormer"),
        answers_questions("RoFormerForQuestionAnswering"),
        ModelClass("RoFormerModel", frozenset(), "AutoModel", "feature-extraction"),
    ),
    tokenizer_class="RoFormerTokenizer",
    reading=encoder.READING,
    recipe=lambda model: "bert",
    resemblance=lambda model, kind: 1,
    ignored=encoder.IGNORED,
))
