"""Heads on all layers of a checkpoint, and the checkpoint's own head that predicts tokens."""

from __future__ import annotations

from typing import Any

from cloze.bounds import BelowOne, OptionalWidth
from cloze.errors import CheckpointError, RecipeError
from cloze.networks.blocks.mix import chosen_layers
from cloze.objectives.labels.head_from_checkpoint import HeadFacts, HeadFromCheckpoint
from cloze.objectives.labels.mixed import Mixing
from cloze.objectives.pooled import Pool
from cloze.registry import as_data, register


class MixedObjective(HeadFromCheckpoint):
    """What both objectives on mixed layers share; see `Mixing`."""

    def __init__(
        self, *, set: str = "label", mixed: Mixing = Mixing(), encoder: OptionalWidth = 256, dropout: BelowOne = 0.5,
    ) -> None:
        self.mixing = mixed
        self.own: dict[str, Any] = {"set": set, "encoder": encoder, "dropout": dropout}

    def mixed(self, facts: HeadFacts) -> dict[str, Any]:
        """The arguments, with the number of layers in `mixed`."""
        if not facts.given:
            raise RecipeError(
                "frozen layers are mixed, but this checkpoint gives only its top layer.\n"
                "  Use --task sentence_classification or token_labelling, which train the network."
            )
        chosen_layers(self.mixing.use, facts.given)
        return {**self.own, "mixed": {**as_data(self.mixing), "layers": facts.given}}


@register("objective", "layer_classification")
class LayerClassification(MixedObjective):
    """The class of a text from the layers of the checkpoint: `mixed_classification` over those that it gives."""

    def __init__(
        self, *, set: str = "label", mixed: Mixing = Mixing(), encoder: OptionalWidth = 256, pool: Pool = "max",
        dropout: BelowOne = 0.5,
    ) -> None:
        super().__init__(set=set, mixed=mixed, encoder=encoder, dropout=dropout)
        self.pool = pool

    def resolve(self, facts: HeadFacts) -> tuple[str, dict[str, Any]]:
        """`mixed_classification`."""
        return "mixed_classification", {**self.mixed(facts), "pool": self.pool}


@register("objective", "layer_labelling")
class LayerLabelling(MixedObjective):
    """The label of each word from the layers of the checkpoint: `sequence_labelling` over those that it gives."""

    def resolve(self, facts: HeadFacts) -> tuple[str, dict[str, Any]]:
        """`sequence_labelling`."""
        return "sequence_labelling", self.mixed(facts)


@register("objective", "language_model")
class LanguageModel(HeadFromCheckpoint):
    """Continue to train the checkpoint's own head that predicts the next token (SiATL: Chronopoulou et al., 2019)."""

    def __init__(self, *, set: str = "main") -> None:
        self.set = set

    def resolve(self, facts: HeadFacts) -> tuple[str, dict[str, Any]]:
        """The head's objective with its arguments; a checkpoint that was not trained from left to right is a `RecipeError`."""
        if facts.predicts is None or facts.order != "left_to_right":
            raise RecipeError(
                f"language_model: needs a head that predicts the next token; this checkpoint reads {facts.order} and has "
                f"{'none' if facts.predicts is None else facts.predicts.name}.\n"
                "  Use a checkpoint that was trained from left to right with token_prediction, or leave the objective out."
            )
        head = facts.predicts
        return head.part, {**head.arguments, "set": self.set, "head": head.name}


@register("objective", "masked_language_model")
class MaskedLanguageModel(HeadFromCheckpoint):
    """Continue to train the checkpoint's own head that predicts masked tokens, along with a task."""

    def __init__(self, *, set: str = "main") -> None:
        self.set = set

    def resolve(self, facts: HeadFacts) -> tuple[str, dict[str, Any]]:
        """The head's objective with its arguments; a `RecipeError` for a head that reads one direction, a decoder or a query."""
        head = facts.predicts
        if head is None or head.read not in (None, "hidden") or facts.order == "left_to_right":
            lacks = "none" if head is None else head.name if head.read is None else f"{head.name}, which reads {head.read}"
            raise RecipeError(
                f"masked_language_model: needs a head that predicts masked tokens; this checkpoint reads {facts.order} and has "
                f"{lacks}.\n  Use a checkpoint that was trained with `predict: masked`, or leave the objective out."
            )
        return head.part, {**head.arguments, "set": self.set, "head": head.name}


@register("objective", "text_prediction")
class TextPrediction(HeadFromCheckpoint):
    """Predict the tokens of a text by the checkpoint's own head, starting from its weights.

    `smoothing` is label smoothing over all ids (0.1 is usual in translation; Vaswani et al., 2017, §5.4).
    """

    def __init__(self, *, set: str = "main", smoothing: BelowOne = 0.0) -> None:
        self.set, self.smoothing = set, smoothing

    def resolve(self, facts: HeadFacts) -> tuple[str, dict[str, Any]]:
        """The checkpoint's own objective, by the name of its head; without one a `CheckpointError`."""
        if facts.predicts is None:
            raise CheckpointError(
                "writing a text needs a head that predicts tokens, which this checkpoint does not have.\n"
                "  Use a checkpoint that was trained with token_prediction."
            )
        head = facts.predicts
        read = {} if head.read is None else {"read": head.read}
        return head.part, {**head.arguments, "set": self.set, "smoothing": self.smoothing, "head": head.name, **read}
