"""Distillation: a student's scores, hidden states or attention are brought close to a teacher's.

The teacher is a network of the recipe, usually `from:` a checkpoint with `train: none`, in an earlier pass with `grad: false`.
Each objective reads the states `student` and `teacher`: `read: {student: hidden, teacher: teacher.hidden}`.

Published code computes "the" distillation loss with different reductions, so each of them is an argument here. Losses are sums
over rows (targets, tokens or texts), which the loop divides by their number. No objective has a loss if student and teacher
agree, except the cross-entropy, whose minimum is the teacher's entropy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.batch import Batch, sequence
from cloze.bounds import Count, Depth, Positive, Width
from cloze.errors import RecipeError
from cloze.networks.blocks.visibility import visibility
from cloze.networks.clock import Clock
from cloze.networks.cost import size_of
from cloze.objectives.heads import dense
from cloze.objectives.objective import SEQUENCES, Loss, Objective, at_least_float32
from cloze.objectives.product import Product, distance_in_blocks
from cloze.registry import Given, register

Over = Literal["mean", "sum"]
ScoreLoss = Literal["kl_divergence", "cross_entropy", "squared"]
HiddenLoss = Literal["squared", "cosine", "mean", "variance"]
#: Which layer of the teacher a layer of the student is compared with; see `layer_pairs`.
LayerMap = Literal["every", "same", "skip", "last", "top"] | tuple[Depth, ...]

_LEAST = 1e-30  # a probability of 0 has no logarithm


def layer_pairs(layers: LayerMap, student: int, teacher: int, *, embeddings: bool) -> list[tuple[int, int]]:
    """Pairs of layers of a student with M layers and a teacher with N, counted from 1; 0 stands for the `embeddings`.

    - `every`: layer i with layer iN/M, and the embeddings, if the state has them (TinyBERT; Jiao et al., 2020, §3);
    - `same`: layer i with layer i, without the embeddings (MobileBERT; Sun et al., 2020, §3.5);
    - `skip`: as `every`, without the embeddings and the top layer (PKD-Skip; Sun et al., 2019, §3.2);
    - `last`: the student's layers below the top with the teacher's highest ones below the top (PKD-Last);
    - `top`: the top layers alone (MiniLM; Wang et al., 2020, §3);
    - a list: the teacher's layers for the student's layers 1, 2, …

    >>> layer_pairs("skip", 3, 12, embeddings=True), layer_pairs("last", 3, 12, embeddings=True)
    ([(1, 4), (2, 8)], [(1, 10), (2, 11)])
    """
    if layers == "top":
        return [(student, teacher)]
    if layers == "same":
        reason = f"the student has {student} layers, the teacher {teacher}"
        _require(student == teacher, reason, layers, first=f"Bind a teacher of {student} layers, or list")
        return [(layer, layer) for layer in range(1, student + 1)]
    if layers in ("skip", "last"):
        _require(student > 1, "the student has one layer, and none below the top", layers, example=[teacher])
    evenly = [-(-layer * teacher // student) for layer in range(1, student + 1)]
    if layers == "last":
        _require(student <= teacher, f"the student has {student} layers, the teacher {teacher}", layers, example=evenly[:-1])
        return [(layer, teacher - student + layer) for layer in range(1, student)]
    if isinstance(layers, str):
        most = max(layer for layer in range(1, min(student, teacher) + 1) if teacher % layer == 0)
        _require(
            teacher % student == 0, f"the teacher's {teacher} layers are not a multiple of the student's {student}", layers,
            first=f"Use a student of {most} (--set networks.student.layers={most}, if it starts at random), or list",
            example=evenly[:-1] if layers == "skip" else evenly,
        )
        counted = range(1, student) if layers == "skip" else range(0 if embeddings else 1, student + 1)
        return [(layer, layer * (teacher // student)) for layer in counted]
    exist = all(1 <= layer <= teacher for layer in layers)
    _require(exist and 0 < len(layers) <= student, f"the student has {student} layers, the teacher {teacher}", list(layers))
    return list(enumerate(layers, start=1))


def _require(fits: bool, reason: str, layers: Any, *, first: str = "List", example: Sequence[int] = (2, 4, 6)) -> None:
    if not fits:
        raise RecipeError(
            f"layers: {layers}: {reason}.\n  {first} the teacher's layers for the student's layers 1, 2, …: "
            f"`layers: {list(example)}`."
        )


def ensemble_scores(teachers: Sequence[Tensor], *, loss: ScoreLoss, temperature: float) -> Tensor:
    """The common scores (…, C) of several teachers: for a squared difference the mean of their scores, otherwise scores whose
    softmax at the `temperature` is the mean of their probabilities."""
    logits = torch.stack([at_least_float32(scores) for scores in teachers])
    if loss == "squared" or len(logits) == 1:
        return logits.mean(0)
    shares = torch.log_softmax(logits / temperature, dim=-1)
    return temperature * (torch.logsumexp(shares, dim=0) - math.log(len(logits)))


def score_distance(
    student: Tensor, teacher: Tensor, *, loss: ScoreLoss, temperature: float, rescale: bool, over: Over
) -> Tensor:
    """The distance of scores (…, C) per row, as `match_scores` defines it."""
    student, teacher = at_least_float32(student), at_least_float32(teacher)
    if loss == "squared":
        apart = (student - teacher).square()
    else:
        goal = F.log_softmax(teacher / temperature, dim=-1)
        log_probabilities = F.log_softmax(student / temperature, dim=-1)
        apart = goal.exp() * (goal - log_probabilities if loss == "kl_divergence" else -log_probabilities)
        apart = apart * temperature**2 if rescale else apart
    return apart.mean(-1) if over == "mean" else apart.sum(-1)


class DistillationMatch(Objective):
    """What the three have in common: two states, the teacher's without gradient."""

    likelihood = False
    training_only = True
    reads: tuple[str, ...] = ("student", "teacher")

    def teacher(self, states: Mapping[str, Any]) -> Any:
        """What the teacher gives."""
        state = states["teacher"]
        return state.constant() if isinstance(state, Product) else state.detach()


def over_pairs(
    pairs: Sequence[tuple[int, int]], distance: Callable[[int, int], Tensor], *, over: Over, clock: Clock | None
) -> Tensor:
    """The `distance` of every pair of layers, summed or averaged over them. With a `clock`, each pair has an equal part of the
    budget, during which the distances of the others are not counted."""
    count = len(pairs)
    if clock is not None:
        now = min(int(float(clock.share) * count), count - 1)
        pairs = pairs[now : now + 1]
    total = torch.stack([distance(here, teacher_layer) for here, teacher_layer in pairs]).sum()
    return total / count if over == "mean" else total


def _alike(student: Any, teacher: Any, what: str, advice: str) -> None:
    if student != teacher:
        raise RecipeError(f"{what}: the student has {student}, the teacher {teacher}.\n  {advice}")


@register("objective", "match_scores")
class MatchScores(DistillationMatch):
    """Bring the scores of a head close to those of the teacher's head (Hinton et al., 2015).

    `read: {student: token_prediction, teacher: teacher.token_prediction}` names the heads; both must predict the same `set`. With
    `weight: 0` a head has no loss of its own. The loss per row at temperature T, with p = softmax(scores / T), is one of:

    - `kl_divergence`: Σ p_teacher (log p_teacher - log p_student);
    - `cross_entropy`: -Σ p_teacher log p_student, which has the same gradient, and the teacher's entropy as minimum;
    - `squared`: the squared difference of the scores themselves.

    `rescale` multiplies the first two by T², so that their gradients are as large as at T = 1. `over: mean` divides by the number
    of classes. A vocabulary is visited in blocks, so the scores of all tokens never exist at once.

    With `teachers: 3` the states are `student`, `teacher_1`, `teacher_2` and `teacher_3`. The student learns the mean of their
    probabilities, or with `squared` the mean of their scores. A vocabulary cannot have several teachers.
    """

    def __init__(
        self, *, loss: ScoreLoss = "kl_divergence", temperature: Positive = 1.0, rescale: bool = True, over: Over = "sum",
        teachers: Count = 1, set: str = "main",
    ) -> None:
        super().__init__()
        if teachers > 1:
            self.reads = ("student", *(f"teacher_{number}" for number in range(1, teachers + 1)))
        self.kind_of_loss, self.temperature, self.rescale, self.over, self.set = loss, temperature, rescale, over, set
        self.positions_field, self.weights_field = f"positions/{set}", f"weights/{set}"
        self.takes, self.optional = frozenset({self.positions_field}), frozenset({self.weights_field})
        self.factored = frozenset(self.reads if teachers == 1 else ())

    def teacher(self, states: Mapping[str, Any]) -> Any:
        """What the teacher gives, or several together."""
        if "teacher" in self.reads:
            return super().teacher(states)
        logits = [states[name].detach() for name in self.reads[1:]]
        if shapes := {tuple(tensor.shape) for tensor in logits[1:]} - {tuple(logits[0].shape)}:
            raise RecipeError(
                f"match_scores: (targets, classes): one teacher has {tuple(logits[0].shape)}, another {shapes.pop()}.\n  {_SAME}"
            )
        return ensemble_scores(logits, loss=self.kind_of_loss, temperature=self.temperature)

    def count(self, batch: Batch) -> Tensor:
        """The sum of weights; without weights, the number of targets."""
        if self.weights_field in batch:
            return batch[self.weights_field].sum(dtype=torch.float32)
        return torch.tensor(float(batch[self.positions_field].shape[0]))

    def distance(self, student: Tensor, teacher: Tensor) -> Tensor:
        """The loss of each row of scores (M, C)."""
        return score_distance(
            student, teacher, loss=self.kind_of_loss, temperature=self.temperature, rescale=self.rescale, over=self.over
        )

    def scores(self, states: Mapping[str, Any], batch: Batch) -> Tensor:
        """The loss, a number."""
        student, teacher = states["student"], self.teacher(states)
        weights = batch.get(self.weights_field)
        _alike(tuple(student.shape), tuple(teacher.shape), "match_scores: (targets, classes)", _SAME)
        if isinstance(student, Product) and isinstance(teacher, Product):
            return distance_in_blocks(student, teacher, weights, self.distance)
        distances = self.distance(*(side.scores() if isinstance(side, Product) else side for side in (student, teacher)))
        return (distances if weights is None else distances * weights).sum()

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss."""
        return Loss(scores, {})


_SAME = (
    "Both heads must have the same classes in the same order, and the same `set`. A teacher with another vocabulary can teach\n"
    "  through a file: cloze predict TEACHER FILE --scores --out soft.jsonl."
)


@register("objective", "match_hidden")
class MatchHidden(DistillationMatch):
    """Bring hidden states close to the teacher's: `hidden` (B, L, D), or `layers` (N+1, B, L, D) paired by `layers`.

    `at: tokens` compares the states of all tokens, `at: summary` those of the token that summarises a text. `normalise: length`
    first divides every vector by its length (PKD), `standard` subtracts its mean and divides by its standard deviation
    (MobileBERT). `project` maps the student's states to this width by one affine map for all layers and embeddings, as TinyBERT's
    code does; `teacher` means the teacher's width. `loss: cosine` is 1 - cos (DistilBERT), `squared` the squared difference;
    `over` says whether it is summed over the numbers of a vector or averaged, `over_layers` the same for layers. `mean` compares
    only the means of the vectors, by their squared difference, and `variance` their variances, by the absolute one (MobileBERT).
    `progressive` learns the layers one after another, each for an equal part of the budget. Parameters: `head.*` with `project`.
    """

    width_arguments = ("project",)

    def __init__(
        self, *, loss: HiddenLoss = "squared", layers: LayerMap = "every",
        at: Literal["tokens", "summary"] = "tokens", normalise: Literal["none", "length", "standard"] = "none",
        project: Width | Literal["teacher"] | None = None, over: Over = "mean", over_layers: Over = "mean",
        progressive: bool = False,
        width: Given[int], clock: Given[Clock | None] = None,
    ) -> None:
        super().__init__()
        self.kind_of_loss, self.layer_map, self.at_summary, self.normalise = loss, layers, at == "summary", normalise
        self.clock = clock if progressive else None
        self.over, self.over_layers = over, over_layers
        self.takes, self.optional = frozenset(), SEQUENCES | {"block", "summaries"}
        outputs = width if project == "teacher" else project  # a teacher that is not bound yet counts as equally wide
        self.head: nn.Module = nn.Identity() if outputs is None else dense(width, outputs)

    def count(self, batch: Batch) -> Tensor:
        """The number of tokens that are not padding; at summaries, that of texts."""
        if self.at_summary:
            return torch.tensor(float(len(batch["summaries"]) if "summaries" in batch else len(sequence(batch))))
        return torch.tensor(float(size_of(batch).tokens))

    def head_rows(self, batch: Batch) -> float:
        """The tokens or texts of one layer."""
        return float(self.count(batch))

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The loss, a number."""
        student, teacher = states["student"], self.teacher(states)
        if student.dim() != teacher.dim():
            _alike(f"a state of {student.dim()} axes", f"one of {teacher.dim()}", "match_hidden", "Read the same state of both.")
        if student.dim() == 4:
            pairs = layer_pairs(self.layer_map, len(student) - 1, len(teacher) - 1, embeddings=True)
            return over_pairs(
                pairs, lambda layer, teacher_layer: self._distance(student[layer], teacher[teacher_layer], batch),
                over=self.over_layers, clock=self.clock,
            )
        return self._distance(student, teacher, batch)

    def _distance(self, student: Tensor, teacher: Tensor, batch: Batch) -> Tensor:
        """The sum over the vectors (M, D) that are compared."""
        here, target = (at_least_float32(self._chosen(states, batch)) for states in (student, teacher))
        here = at_least_float32(self.head(here))
        advice = f"With `project: {target.shape[-1]}`, the student's states are mapped to the teacher's width."
        _alike(here.shape[-1], target.shape[-1], "match_hidden: width", advice)
        if self.kind_of_loss == "cosine":
            return (1.0 - F.cosine_similarity(here, target, dim=-1)).sum()
        if self.kind_of_loss == "mean":
            return (here.mean(-1) - target.mean(-1)).square().sum()
        if self.kind_of_loss == "variance":
            return (here.var(-1, unbiased=False) - target.var(-1, unbiased=False)).abs().sum()
        apart = (self._normalised(here) - self._normalised(target)).square()
        return apart.sum() / (apart.shape[-1] if self.over == "mean" else 1)

    def _normalised(self, vectors: Tensor) -> Tensor:
        if self.normalise == "length":
            return F.normalize(vectors, dim=-1)
        return F.layer_norm(vectors, vectors.shape[-1:]) if self.normalise == "standard" else vectors

    def _chosen(self, states: Tensor, batch: Batch) -> Tensor:
        if self.at_summary:
            return states.flatten(0, 1)[batch["summaries"]] if "summaries" in batch else states[:, 0]
        return states[batch["block"] > 0] if "block" in batch else states.flatten(0, 1)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss."""
        return Loss(scores, {})


@register("objective", "match_attention")
class MatchAttention(DistillationMatch):
    """Bring attention close to the teacher's, head by head; both networks have equally many heads. Layers are paired by `layers`.

    What is compared, `of`, and the state to read:

    - `probabilities` (`attention`): the distribution of each query (MiniLM, MobileBERT);
    - `scores` (`scores`): before the softmax, over the keys that a query sees (TinyBERT); always `loss: squared`;
    - `relations` (`values`, `queries` or `keys`): softmax(V Vᵀ / √W) over the tokens that a token sees (MiniLM, §3.2). The
      vectors may have different widths.

    `loss` compares distributions by their divergence, the cross-entropy or the squared difference. The loss of a token is the
    mean over heads; a squared difference is averaged over the keys that it sees, too. A band is not taken into account: scores
    and relations include tokens outside of it. `progressive` learns the layers one after another, as in `match_hidden`. `order`
    is the recipe's.
    """

    def __init__(
        self, *, of: Literal["probabilities", "scores", "relations"] = "probabilities", loss: ScoreLoss = "kl_divergence",
        layers: LayerMap = "every", over_layers: Over = "mean", progressive: bool = False, order: Given[str] = "open",
        clock: Given[Clock | None] = None,
    ) -> None:
        super().__init__()
        self.clock = clock if progressive else None
        if of == "scores" and loss != "squared":
            raise RecipeError(
                f"match_attention: of: scores has no {loss}, because scores are not a distribution. Write loss: squared."
            )
        self.of, self.kind_of_loss, self.layer_map, self.over_layers, self.order = of, loss, layers, over_layers, order
        self.takes, self.optional = frozenset(), SEQUENCES | {"block", "order"}

    def count(self, batch: Batch) -> Tensor:
        """The number of tokens that are not padding."""
        return torch.tensor(float(size_of(batch).tokens))

    def scores(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The loss, a number."""
        student, teacher = states["student"], self.teacher(states)
        advice = (
            "Use a student with as many heads as the teacher. One that starts at random gets them with --set "
            f"networks.student.heads={teacher.shape[2]}."
        )
        _alike(student.shape[2], teacher.shape[2], "match_attention: heads", advice)
        pairs = layer_pairs(self.layer_map, len(student), len(teacher), embeddings=False)
        sees = self._sees(batch)
        return over_pairs(
            pairs, lambda layer, teacher_layer: self._distance(student[layer - 1], teacher[teacher_layer - 1], sees, batch),
            over=self.over_layers, clock=self.clock,
        )

    def _sees(self, batch: Batch) -> Tensor:
        """Who sees whom, (L, L) or (B, 1, L, L)."""
        tokens = sequence(batch)
        length, order = tokens.shape[1], batch.get("order", self.order)
        pattern = visibility(order, batch.get("block"), length=length, past=0, device=tokens.device)
        every = torch.ones(length, length, dtype=torch.bool, device=tokens.device)
        mask = pattern.mask_of(every)
        return every if mask is None else mask

    def _distance(self, student: Tensor, teacher: Tensor, sees: Tensor, batch: Batch) -> Tensor:
        """The sum over the tokens of one pair of layers."""
        here, target = (self._compared(states, sees) for states in (student, teacher))
        if self.kind_of_loss == "squared":
            seen = sees.to(here.dtype).expand(len(here), 1, *here.shape[-2:])
            apart = ((here - target) * seen).square().sum(-1) / seen.sum(-1).clamp(min=1.0)
        else:
            log_attention, goal = here.clamp(min=_LEAST).log(), target.clamp(min=_LEAST).log()
            apart = (target * (goal - log_attention if self.kind_of_loss == "kl_divergence" else -log_attention)).sum(-1)
        of_tokens = apart.mean(1)  # over heads: (B, L)
        return of_tokens[batch["block"] > 0].sum() if "block" in batch else of_tokens.sum()

    def _compared(self, states: Tensor, sees: Tensor) -> Tensor:
        states = at_least_float32(states)
        if self.of != "relations":
            return states
        products = states @ states.transpose(-1, -2) / math.sqrt(states.shape[-1])
        return torch.softmax(products.masked_fill(~sees, float("-inf")), dim=-1)

    def loss(self, scores: Tensor, batch: Batch) -> Loss:
        """The summed loss."""
        return Loss(scores, {})
