"""Heads that depend on the checkpoint: the recipe names the task, the network it starts from decides how the head is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

from cloze.bounds import BelowOne, OptionalWidth
from cloze.errors import RecipeError
from cloze.objectives.labels.multi_label import BiasStart
from cloze.objectives.labels.soft_classification import SoftLoss
from cloze.objectives.objective import ClassWeights
from cloze.objectives.transforms import Nonlinearity
from cloze.registry import register

Pool = Literal["auto", "summary", "mean"]


class Predicts(NamedTuple):
    """A head that predicts tokens: its name, the registered objective that it is, with its arguments, and the state it reads
    if that is not the objective's first."""

    name: str
    part: str
    arguments: Mapping[str, Any]
    read: str | None = None


class HeadFacts(NamedTuple):
    """The facts about a checkpoint that decide how a new head is built.

    `layers` above the embeddings. `heads`: what transformers' classes of its architecture have between the summary and the
    outputs, by role (`classifier`, `chooser`), as arguments. `plain`: the transform and the norm's epsilon of a head of its own
    whose dense map has no bias. `sums_up`: one of its heads was trained on the summary token. `pooled`: the state of one token
    is a poor summary. `given`: how many layers can be read, embeddings included; 0: only the top one. `predicts`: its head that
    predicts tokens. `embedding`: the arguments of its head that gives vectors of texts.
    """

    order: str
    layers: int
    heads: Mapping[str, Mapping[str, Any]] = {}
    plain: tuple[Nonlinearity, float] | None = None
    sums_up: bool = False
    pooled: bool = False
    given: int = 0
    predicts: Predicts | None = None
    embedding: Mapping[str, Any] | None = None


class HeadFromCheckpoint(ABC):
    """An objective of a recipe that is replaced by another one once the checkpoint is known. Its attributes have the meaning of
    `Objective`'s: checks read them before."""

    of_records: ClassVar[bool] = False
    likelihood: ClassVar[bool] = True
    of_tokens: ClassVar[bool] = False
    fittable: ClassVar[bool] = False
    vectors_from: ClassVar[None] = None
    width_arguments: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def resolve(self, facts: HeadFacts) -> tuple[str, dict[str, Any]]:
        """The registered objective that replaces it, and its arguments."""


def head_arguments(facts: HeadFacts, pool: Pool, role: str = "classifier") -> dict[str, Any]:
    """The arguments of the head for a text that transformers' `…ForSequenceClassification`, or its class of another `role`, has
    for such a network; see `TextClassification`. `pool: true` is dense and tanh on the summary, as BERT's pooler."""
    left_to_right = facts.order == "left_to_right"
    best = "mean" if facts.plain is not None and not facts.sums_up and not left_to_right else "summary"
    read = {"reading": best if pool == "auto" else pool}
    if facts.pooled:
        return {"reading": "mean" if pool == "mean" else "concat"}
    if left_to_right:
        return {**read, **plain_map(facts), "output_bias": False}
    if not facts.layers:
        return read
    if facts.plain is not None:
        return {**read, **plain_map(facts)}
    arguments = facts.heads.get(role, {"pool": True})
    if "pool" not in arguments:
        return {**read, **arguments}
    return {**read, "transform": "tanh"} if pool == "mean" else {"pool": True}


def plain_map(facts: HeadFacts) -> dict[str, Any]:
    """The arguments of a dense map and a norm without biases if the checkpoint has a head with these; else none."""
    if facts.plain is None:
        return {}
    transform, epsilon = facts.plain
    return {"transform": {transform: {"norm_epsilon": epsilon, "biases": False}}}


@register("objective", "text_classification")
class TextClassification(HeadFromCheckpoint):
    """The class of a text from its summary, by the head that transformers' `…ForSequenceClassification` has for such a network.

    - Left to right: one linear map on the last token, without a bias (GPT-2). If the checkpoint has a head with a dense map and a
      norm without biases, these two come first (ModernBERT's decoder).
    - A checkpoint with a head of a dense map and a norm without biases: these two and a linear map (ModernBERT).
    - Other encoders, as in the class of the architecture: dense, GELU, linear (ELECTRA); one linear map (XLM, FlauBERT); dense,
      tanh, linear (BERT, RoBERTa, ALBERT, and networks without such a class).
    - Vectors without layers above them: one linear map (fastText).
    - Recurrent networks and windows: one linear map on the last token's state, the maximum and the mean (concat pooling).

    `pool` is what is classified: the summary token (`summary`) or the `mean` of all tokens. With `auto` it is the mean if
    transformers' class uses one (ModernBERT's `classifier_pooling`) and no head was trained on the summary; for other networks
    transformers has no class for the mean.

    With `soft` the targets are probabilities of the classes, and the loss is that of `soft_classification`. `class_weights` are
    as in `relation_prediction`.
    """

    fittable = True

    def __init__(
        self, *, set: str = "label", dropout: BelowOne = 0.1, pool: Pool = "auto", soft: SoftLoss | None = None,
        class_weights: ClassWeights = None,
    ) -> None:
        if soft is not None and class_weights is not None:
            raise RecipeError("text_classification: class_weights are for labels, `soft` is for probabilities. Leave one out.")
        self.set, self.dropout, self.pool, self.soft, self.class_weights = set, dropout, pool, soft, class_weights

    def resolve(self, facts: HeadFacts) -> tuple[str, dict[str, Any]]:
        """`soft_classification` for probabilities; else `relation_prediction` for a network with a pooler,
        `pooled_classification` for a recurrent one, and `classify` for others."""
        if self.soft is not None:
            arguments = {"set": self.set, "dropout": self.dropout, "loss": self.soft}
            return "soft_classification", {**arguments, **head_arguments(facts, self.pool)}
        if facts.pooled:
            pool = "mean" if self.pool == "mean" else "concat"
            arguments = {"set": self.set, "dropout": self.dropout, "pool": pool}
            return "pooled_classification", {**arguments, "class_weights": self.class_weights}
        arguments, head = {"set": self.set, "dropout": self.dropout}, head_arguments(facts, self.pool)
        arguments |= {"class_weights": self.class_weights}
        return ("relation_prediction" if "pool" in head else "classify"), {**arguments, **head}


@register("objective", "text_regression")
class TextRegression(HeadFromCheckpoint):
    """A number for a text, by the head of `text_classification` with one output."""

    fittable = True

    def __init__(self, *, set: str = "label", dropout: BelowOne = 0.1, pool: Pool = "auto") -> None:
        self.set, self.dropout, self.pool = set, dropout, pool

    def resolve(self, facts: HeadFacts) -> tuple[str, dict[str, Any]]:
        """`regress` with the head of such a network."""
        return "regress", {"set": self.set, "dropout": self.dropout, **head_arguments(facts, self.pool)}


@register("objective", "text_several")
class TextSeveral(HeadFromCheckpoint):
    """Any number of classes for a text, by the head of `text_classification`; `summed` and `bias_start` are as in `several`."""

    fittable = True

    def __init__(
        self, *, set: str = "label", dropout: BelowOne = 0.1, pool: Pool = "auto", summed: bool = False,
        bias_start: BiasStart = "shares",
    ) -> None:
        self.set, self.dropout, self.pool, self.summed, self.bias_start = set, dropout, pool, summed, bias_start

    def resolve(self, facts: HeadFacts) -> tuple[str, dict[str, Any]]:
        """`several` with the head of such a network."""
        options: dict[str, Any] = {"summed": True} if self.summed else {}
        options |= {} if self.bias_start == "shares" else {"bias_start": self.bias_start}
        return "several", {"set": self.set, "dropout": self.dropout, **options, **head_arguments(facts, self.pool)}


@register("objective", "text_choice")
class TextChoice(HeadFromCheckpoint):
    """The right one of the rows of a record (see the edit `spread`), by the head of one output that transformers'
    `…ForMultipleChoice` has for such a network."""

    fittable = True

    def __init__(self, *, set: str = "label", dropout: BelowOne = 0.1, pool: Pool = "auto") -> None:
        self.set, self.dropout, self.pool = set, dropout, pool

    def resolve(self, facts: HeadFacts) -> tuple[str, dict[str, Any]]:
        """`choose` with the head of such a network."""
        return "choose", {"set": self.set, "dropout": self.dropout, **head_arguments(facts, self.pool, "chooser")}


@register("objective", "word_labelling")
class WordLabelling(HeadFromCheckpoint):
    """The label of each word, by the head that transformers' `…ForTokenClassification` has for such a network.

    One linear map; if the checkpoint has a head with a dense map and a norm without biases, these two come before it
    (ModernBERT). `encoder` is the width of an LSTM in each direction above the network; transformers has no class for that.
    `class_weights` are as in `relation_prediction`.
    """

    fittable = True

    def __init__(
        self, *, set: str = "label", encoder: OptionalWidth = 0, dropout: BelowOne = 0.1, class_weights: ClassWeights = None
    ) -> None:
        self.set, self.encoder, self.dropout, self.class_weights = set, encoder, dropout, class_weights

    def resolve(self, facts: HeadFacts) -> tuple[str, dict[str, Any]]:
        """`sequence_labelling`."""
        arguments: dict[str, Any] = {"set": self.set, "encoder": self.encoder, "dropout": self.dropout}
        arguments |= {"class_weights": self.class_weights}
        return "sequence_labelling", arguments | ({} if self.encoder else plain_map(facts))


@register("objective", "text_embedding")
class TextEmbedding(HeadFromCheckpoint):
    """The vector of a text, by the checkpoint's own head for vectors; without one, the mean of its tokens, of length 1, as texts
    are compared that no head was trained for."""

    of_records = True

    def resolve(self, facts: HeadFacts) -> tuple[str, dict[str, Any]]:
        """`embedding`."""
        return "embedding", {"reading": "mean", "normalise": True} if facts.embedding is None else dict(facts.embedding)


@register("objective", "answer_extraction")
class AnswerExtraction(HeadFromCheckpoint):
    """The start and the end of the answer to a question, predicted by the head of transformers' `…ForQuestionAnswering`.

    One linear map to two scores; if the checkpoint has a head with a dense map and a norm without biases, these two come before
    it (ModernBERT).
    """

    fittable = True

    def __init__(self, *, set: str = "answer", dropout: BelowOne = 0.0) -> None:
        self.set, self.dropout = set, dropout

    def resolve(self, facts: HeadFacts) -> tuple[str, dict[str, Any]]:
        """`span_extraction`."""
        return "span_extraction", {"set": self.set, "dropout": self.dropout, **plain_map(facts)}
