"""Choose the architecture of transformers for a trained model by its shape, and the heads that it can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cloze.errors import CheckpointError, propose
from cloze.interop.architecture import ARCHITECTURES, Architecture, HeadTable, ModelClass
from cloze.interop.model import PortableHead, PortableModel
from cloze.reading import SummaryToken

#: States that are not those of a text alone.
_OF_ITEMS = frozenset({"item_hidden", "item_transformed", "pooled"})


@dataclass(frozen=True)
class ArchitectureChoice:
    """An architecture, its class, the heads that it can hold (head name → table), and by name the reasons why it cannot hold
    those that are `left_out`."""

    architecture: Architecture
    cls: ModelClass
    placed: Mapping[str, HeadTable]
    left_out: Mapping[str, str]


def choose(
    model: PortableModel, *, tokenizer_kind: str, pad: int | None, hint: str | None = None, summary: SummaryToken = "first"
) -> ArchitectureChoice | list[str]:
    """The architecture that expresses most of `model`, whose texts are read with this summary; the reasons if none expresses its
    network.

    Among equals the usual one wins: `hint` if given, else the one with the highest `resemblance` for this model.
    """
    ranked = _ranked(model, tokenizer_kind, hint)
    if not ranked:
        return [f"the network is {model.part!r}, and transformers has no class of that kind that cloze can write"]
    fitting = [a for a in ranked if not a.objections(model.flat, model.order, pad)]
    if not fitting:
        return ranked[0].objections(model.flat, model.order, pad)
    choices = [place_heads(architecture, model, summary) for architecture in fitting]
    return min(choices, key=lambda choice: len(choice.left_out))  # the first of the smallest


def likely_architecture(model: PortableModel, *, tokenizer_kind: str, pad: int | None) -> str | None:
    """The architecture that usually has such a network and vocabulary, regardless of heads; None if several are as likely."""
    kin = [a for a in _ranked(model, tokenizer_kind, None) if not a.objections(model.flat, model.order, pad)]
    return kin[0].name if kin and kin[0].resemblance(model, tokenizer_kind) > 1 else None


def against_hint(model: PortableModel, choice: ArchitectureChoice, *, pad: int | None, hint: str | None) -> list[str]:
    """A remark if the chosen architecture is not the requested one."""
    if hint is None or hint == choice.architecture.name:
        return []
    architecture = ARCHITECTURES[hint]
    if architecture.part != model.part:
        reasons = [f"transformers' {architecture.title} is no {model.part}"]
    else:
        left_out = place_heads(architecture, model).left_out
        reasons = architecture.objections(model.flat, model.order, pad) or [f"{name}: {why}" for name, why in left_out.items()]
    return [f"the folder is of the type {choice.architecture.name}, not {hint}: {'; '.join(reasons)}."]


def _ranked(model: PortableModel, tokenizer_kind: str, hint: str | None) -> list[Architecture]:
    """The architectures for the model's network, the most likely first: those with its order, then by `resemblance`."""
    if hint is not None and hint not in ARCHITECTURES:
        raise CheckpointError(f"architecture {hint!r} is not one that cloze writes. {propose(hint, ARCHITECTURES)}")
    kin = [a for a in ARCHITECTURES.values() if a.part == model.part]
    return sorted(kin, key=lambda a: (a.name != hint, model.order not in a.orders, -a.resemblance(model, tokenizer_kind)))


def place_heads(architecture: Architecture, model: PortableModel, summary: SummaryToken = "first") -> ArchitectureChoice:
    """The class of `architecture` that holds most of the model's heads."""
    fitting: dict[str, list[HeadTable]] = {}
    left_out: dict[str, str] = {}
    for name, head in model.heads.items():
        tables = [table for table in architecture.heads if table.part == head.part and _readable(head, table)]
        at_token = [table for table in tables if not head.sums_up or table.at_mask == (summary == "mask")]
        fitting[name] = [table for table in at_token if not table.objections(head, model.flat)]
        if not tables:
            left_out[name] = f"transformers' {architecture.title} has no such head"
        elif not at_token:
            token = "[MASK]" if summary == "mask" else "the token that sums up the text"
            left_out[name] = f"it reads the state of {token}, transformers' {architecture.title} reads that of another one there"
        elif not fitting[name]:
            left_out[name] = "; ".join(at_token[0].objections(head, model.flat))
    best: tuple[ModelClass, dict[str, HeadTable]] = (architecture.classes[-1], {})
    for cls in architecture.classes:
        placed = _fill(cls, fitting, model.heads)
        if placed is not None and len(placed) > len(best[1]):
            best = (cls, placed)
    for name in model.heads:
        if name not in best[1] and name not in left_out:
            combination = f"both {' and '.join(best[1])} and such a head" if best[1] else "such a head"
            left_out[name] = f"transformers' {architecture.title} has no class with {combination}"
    return ArchitectureChoice(architecture, best[0], best[1], left_out)


def _readable(head: PortableHead, table: HeadTable) -> bool:
    """Whether a head reads a state of the text, or the one that the head in transformers reads."""
    return not _OF_ITEMS & set(head.read.values()) - set(table.read.values())


def _fill(
    cls: ModelClass, fitting: Mapping[str, list[HeadTable]], heads: Mapping[str, PortableHead]
) -> dict[str, HeadTable] | None:
    """One head for each role of `cls`, or None when a role stays empty."""
    placed: dict[str, HeadTable] = {}
    for role in sorted(cls.roles):
        for name, tables in fitting.items():
            table = next((table for table in tables if table.role == role), None)
            if table is not None and name not in placed and _is_next(role, heads[name]):
                placed[name] = table
                break
        else:
            return None
    return placed


def _is_next(role: str, head: PortableHead) -> bool:
    """Whether a head predicts the next sentence; a classifier of pairs or texts has the same tensors but another role."""
    target_set = head.argument("set")
    return {"next_sentence": target_set == "next", "classifier": target_set != "next"}.get(role, True)
