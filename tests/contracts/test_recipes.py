"""The contract of every recipe: it starts at chance, asks nothing of nothing, and trains every parameter it has."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

from cloze import fields
from cloze.batch import Batch
from cloze.networks import Visual
from cloze.networks.blocks.inputs.items import ElementItems
from cloze.objectives import Loss
from cloze.objectives.distances.contrast import fingerprints
from cloze.objectives.distances.contrast_pairs import ContrastPairs
from cloze.objectives.distances.linking import LinkChoice, OfCandidates
from cloze.objectives.static.output_words import OutputWords
from cloze.recipe.recipe import ObjectiveSpec, PassSpec, Recipe
from cloze.training.step import StepModule
from tests.systems_at_tiny import distinct


class Begun(NamedTuple):
    """A system, its untrained step and the first batch of every entry."""

    system: Any
    step: StepModule
    batches: dict[str, Batch]


@pytest.fixture(scope="module", params=distinct())
def opened(request: pytest.FixtureRequest, system: Callable[..., Any]) -> Begun:
    """A recipe, opened once for all tests of this module."""
    own = system(request.param)
    step = own.step()
    return Begun(own, step, own.batches(step))


@pytest.fixture
def begun(opened: Begun) -> Begun:
    """The same without gradients and with a step of its own weights."""
    return opened._replace(step=copy.deepcopy(opened.step))


def wide(recipe: Recipe, run: PassSpec, objective: ObjectiveSpec) -> bool:
    """Whether untrained scores of ids that the text does not show have deviation 1 rather than a small one.

    The states of a last norm have the length √D. With an output tied to the table, XLM's (deviation 1/√D) gives scores of
    deviation √D · 1/√D = 1, and T5's (deviation 1, scores divided by √D) as well; so do rows of their own of deviation 1/√D.
    """
    part = recipe.networks[run.network].part
    assert part is not None
    if objective.part.arguments.get("tie"):
        initial = part.arguments.get("initial")
        return initial is not None and initial.name in ("uniform", "t5")
    return objective.part.arguments.get("initial") == "fan_in"


def chance(objective: ObjectiveSpec, vocabulary: int, rows: int) -> float:
    """The loss of a guess: nothing is preferred."""
    choices = {
        "token_prediction": vocabulary, "sampled_prediction": vocabulary, "span_boundary": vocabulary, "contrast": rows,
        "outside": 2,
        "token_labelling": objective.part.arguments.get("classes", 2),
        "relation_prediction": objective.part.arguments.get("classes", 2),
        "relation_classification": len(objective.part.arguments.get("relations") or "ab"),
        "classify": objective.part.arguments.get("classes", 2),
    }
    return math.log(choices[objective.part.name])


def test_an_untrained_system_starts_at_chance(begun: Begun) -> None:
    opened, step, batches = begun
    for entry, batch in batches.items():
        counts = step.count(entry, batch)
        with torch.no_grad():
            losses = step(entry, batch)
        for run, objective in opened.recipe.step_entries[entry].objectives():
            if objective.weight == 0:  # it is only read by others
                assert objective.name not in losses
                continue
            unscaled = objective.part.name == "mil_nce"  # products of any size
            if unscaled or objective.part.name == "transport" or not counts[objective.name]:  # a cost of states; nothing is asked
                continue
            loss = float(losses[objective.name].total) / counts[objective.name]
            if objective.part.name == "classify" and counts[objective.name] < 10:
                loss = mean_over_classes(step, entry, batch, objective)
            if objective.part.name in OWN_START:
                own = step.objectives[objective.name]
                start = OWN_START[objective.part.name](own, batch, counts[objective.name])
                assert loss == pytest.approx(start, rel=LOOSE.get(objective.part.name, 0.02))
                continue
            guess = chance(objective, opened.tokenizer.size, len(batch["tokens"]))
            if wide(opened.recipe, run, objective):
                hold = assert_wide if objective.part.arguments.get("tie") else assert_wide_of_its_own
                hold(step, entry, batch, f"{run.name}.{objective.name}", loss, opened.tokenizer.size)
            else:
                tokens = objective.part.name in ("token_prediction", "sampled_prediction")
                near = FEW_TARGETS.get((opened.recipe.name, objective.name), 0.1 if tokens else 0.15)
                assert loss == pytest.approx(guess, abs=near)


def mean_over_classes(step: StepModule, entry: str, batch: Batch, objective: ObjectiveSpec) -> float:
    """The loss if every target had each of the classes once, so that it does not depend on which ones a few targets have."""
    key, classes = f"targets/{objective.part.arguments['set']}", objective.part.arguments["classes"]
    totals = []
    for shift in range(classes):
        shifted = Batch({**batch, key: (batch[key] + shift) % classes})
        with torch.no_grad():
            totals.append(float(step(entry, shifted)[objective.name].total) / step.count(entry, shifted)[objective.name])
    return sum(totals) / classes


def negatives_at_start(objective: Any, batch: Batch, answers: float) -> float:
    """ln 2 for the target and for every negative that was not left out; outputs are zero at first."""
    targets, positions = batch["targets/main"], batch["positions/main"]
    drawn = objective.draw(targets, positions, batch["tokens"].shape[1])
    return math.log(2) * (1 + float((drawn >= 0).sum()) / answers)


def turns_at_start(objective: Any, batch: Batch, answers: float) -> float:
    """ln 2 for every turn on the targets' paths."""
    return math.log(2) * float(objective.codes.lengths[batch["targets/main"].numpy()].sum()) / answers


def cells_at_start(objective: Any, batch: Batch, cells: float) -> float:
    """Associations are next to nothing at first."""
    counts = batch["cell_count"]
    return float((0.5 * objective.weigh(counts) * counts.log() ** 2).sum()) / cells


def squares_at_start(objective: Any, batch: Batch, answers: float) -> float:
    """The product is next to nothing at first, so that all squares are lost."""
    asked = ("cell_count", "cell") if objective.of == "cells" else ("weights/main", "targets/main")
    counts, ids = (batch[name] for name in asked)
    return float(objective.values(counts, *(ids.unbind(1) if ids.dim() > 1 else [ids])).square().sum()) / answers


def triples_at_start(objective: Any) -> float:
    """All triples are as long as their relation: next to nothing, or the length √D of a normed summary."""
    off = abs((objective.width**0.5 if objective.describe else 0.0) - objective.margin)
    return float(0.5 * off + math.log1p(math.exp(-off)))


def senses_at_start(objective: Any, batch: Batch, answers: float) -> float:
    """All senses are equally likely: ln S - ln |A| that one of the allowed is right, and ln S for their mean."""
    allowed = objective.allowed[batch["targets/sense"].long()].sum(1).double()
    return 2 * math.log(objective.allowed.shape[1]) - float(allowed.log().sum()) / answers


def candidates_at_start(objective: Any, batch: Batch, answers: float) -> float:
    """All candidates of a name are equally likely."""
    pairs = objective.candidates(batch[objective.items])
    asked = batch[objective.right].flatten()[pairs.item] == pairs.entity
    return float(torch.bincount(pairs.item)[pairs.item[asked]].double().log().mean())


def others_at_start(batch: Batch) -> float:
    """The rows whose text a row could be taken for: those with other tokens, and itself."""
    known = fingerprints(batch["tokens"], batch.get("block"), len(batch.get("summaries", batch["tokens"])))
    return float((1 + (known[:, None] != known).sum(1)).double().log().mean())


def numbers_at_start(objective: Any, batch: Batch, answers: float) -> float:
    """Scores are next to nothing at first."""
    return float(objective.loss(torch.zeros_like(batch[objective.values_field]).float(), batch).total) / answers


#: The loss at the beginning of objectives that do not choose among a number of things.
OWN_START: dict[str, Callable[[Any, Batch, float], float]] = {
    "negative_sampling": negatives_at_start, "hierarchical_softmax": turns_at_start, "cooccurrence_regression": cells_at_start,
    "factorisation": squares_at_start, "regress": numbers_at_start, "activation_penalty": lambda objective, batch, answers: 0.0,
    "entity_prediction": lambda objective, batch, answers: math.log(len(objective.candidates(batch))),  # vectors have any length
    "margin": lambda objective, batch, answers: objective.by,
    "linking": lambda objective, batch, answers: objective.by,  # every candidate scores next to nothing
    "link_choice": candidates_at_start, "sense_prediction": senses_at_start,
    "contrast_items": lambda objective, batch, answers: math.log(answers),
    "contrast_pairs": lambda objective, batch, answers: others_at_start(batch),
    "label_prediction": lambda objective, batch, answers: math.log(len(objective.head.weight)),
    # Untrained summaries lie near each other: distances are next to nothing, and log σ(margin) counts ½ either way.
    "triple_contrast": lambda objective, batch, answers: triples_at_start(objective),
}

#: Objectives with so few targets in the sample that their mean differs by more than 0.1 from chance; and one whose output is tied
#: to a table of deviation 1 / √576, so that scores of states of length √128 have a deviation of about a half.
FEW_TARGETS = {
    ("visualbert", "token_prediction"): 0.2, ("visualbert-one-caption", "token_prediction"): 0.2,
    ("smollm2-135m", "token_prediction"): 0.2,
    ("deberta-base", "token_prediction"): 0.15,  # runs of one word
    ("speechbert", "token_prediction"): 0.2,  # 4.03 to 4.22 with other initial weights
}  # fmt: skip

#: Random facts are as far as wrong triples on the average only.
LOOSE = {"margin": 0.1, "contrast_items": 0.5, "contrast_pairs": 0.3,
         "regress": 0.2, "entity_prediction": 0.5, "triple_contrast": 0.5, "sense_prediction": 0.1,  # few words have senses
         "label_prediction": 0.3}  # a hidden token shows `none`, whose vector is an output row as well


def assert_wide(step: StepModule, entry: str, batch: Batch, scored: str, loss: float, vocabulary: int) -> None:
    """Scores of ids that the batch does not show are as a guess with deviation 1; an id that it shows may score up to √D.

    ln Σ exp of V normal scores of deviation s is ln V + s²/2. What a position has just read stays in its state and scores up to
    its own length times that of its embedding, 1 · √D, so that the loss has an upper bound and no more.
    """
    scores = step.states_of(entry, batch, frozenset({scored}))[scored]
    shown = {int(i) for n, ids in batch.items() if n.endswith("tokens") for i in ids.flatten()}
    shown |= {int(i) for n, ids in batch.items() if fields.split(n).field == "targets" for i in ids.flatten()}
    absent = torch.tensor([i for i in range(vocabulary) if i not in shown])
    assert len(absent) > 100
    unseen = scores[:, absent]
    assert unseen.std() == pytest.approx(1.0, abs=0.1)
    assert float(torch.logsumexp(unseen, 1).mean()) == pytest.approx(math.log(len(absent)) + 0.5, abs=0.1)
    width = next(n.width for n in step.networks.values() if hasattr(n, "layers") or hasattr(n, "encoder"))
    highest = math.log(vocabulary * math.exp(0.5) + len(shown) * math.exp(1.3 * math.sqrt(width)))
    assert math.log(vocabulary) - 0.5 < loss < highest


def assert_wide_of_its_own(step: StepModule, entry: str, batch: Batch, scored: str, loss: float, vocabulary: int) -> None:
    """No id's score depends on what was read, so that all are normal with deviation 1: the loss is ln V + 1/2 less the answers'.

    An id that is the share w of the answers adds w · score to their mean, so that the mean's deviation is √Σw² at most (where
    all states are alike).
    """
    scores = step.states_of(entry, batch, frozenset({scored}))[scored]
    assert scores.shape[1] == vocabulary and scores.std() == pytest.approx(1.0, abs=0.05)
    expected = math.log(vocabulary) + 0.5
    assert float(torch.logsumexp(scores, 1).mean()) == pytest.approx(expected, abs=0.1)
    (targets,) = (ids for n, ids in batch.items() if fields.split(n).field == "targets")
    share = torch.bincount(targets) / len(targets)
    assert loss == pytest.approx(expected, abs=0.1 + 3 * float(share.square().sum()) ** 0.5)


def test_without_answers_the_loss_is_a_zero_that_is_connected(begun: Begun) -> None:
    opened, step, batches = begun
    for entry, batch in batches.items():
        answers = ("targets", "values", "positions", "weights", "cell", "cell_count")
        facts = "owner" in batch and "triple" not in batch
        answers += ("tokens", "owner") if facts else ()  # the rows of a fact ask about each other
        none = Batch({n: value[:0] if fields.split(n).field in answers else value for n, value in batch.items()})
        asked = [one for one in step.objectives.values() if isinstance(one, OfCandidates)]
        right = {one.right for one in asked}  # of each item, 0 if it is not asked
        none = Batch({n: torch.zeros_like(value) if n in right else value for n, value in none.items()})
        losses, counts = step(entry, none), step.count(entry, none)
        empty = {n: loss for n, loss in losses.items() if not counts[n]}
        for left in losses.keys() - empty.keys():
            print(f"{entry}: {left} asks every row or token, whatever the exercise asks")
            assert {o.name: o.part.name for _, o in opened.recipe.step_entries[entry].objectives()}[left] in ALWAYS_ASK
        if not empty:  # all of them ask every row
            continue
        for loss in empty.values():
            assert loss.total.item() == 0.0 and all(value.item() == 0.0 for value in loss.metrics.values())
        backward(list(empty.values()))
        reached = [p for p in step.parameters() if p.grad is not None]
        assert reached and not any(p.grad.any() for p in reached if p.grad is not None)


def test_gpt_bert_weighs_the_means_of_both_kinds_of_rows_by_their_number(system: Callable[..., Any]) -> None:
    opened = system("gpt-bert")
    step = opened.step()
    (entry, batch), *_ = opened.batches(step).items()
    entries = opened.recipe.entries
    masked = entries["masked"].odds / (entries["masked"].odds + entries["causal"].odds)
    assert step.weights(entry, 0.0) == {"token_prediction": masked, "token_prediction/next": 1 - masked}
    counts = step.count(entry, batch)
    rows, width = batch["tokens"].shape
    assert counts["token_prediction/next"] == (rows - rows * masked) * (width - 1)  # no row of these is padded
    assert 0.25 < counts["token_prediction"] / (rows * masked * width) < 0.35  # at the beginning three tokens in ten


#: Contrast has an answer for every row, the discriminator labels every token, a penalty is on every state, and every fact is told
#: from wrong ones: no edit asks.
ALWAYS_ASK = {"contrast_pairs", "activation_penalty", "contrast", "mil_nce", "token_labelling", "triple_contrast"}


def backward(losses: list[Loss]) -> None:
    torch.stack([loss.total for loss in losses]).sum().backward()


def test_every_parameter_that_trains_gets_a_gradient(begun: Begun) -> None:
    _, step, batches = begun
    for objective in step.objectives.values():
        if isinstance(objective, ContrastPairs):  # pairs are much alike at first
            torch.nn.init.normal_(objective.head.weight)
        if isinstance(objective, OutputWords):  # a table of zeros, which lets no gradient through to what it is asked of
            torch.nn.init.normal_(objective.head.weight, std=0.1)
    for network in step.networks.values():
        if isinstance(network, Visual) and isinstance(network.items, ElementItems):  # its norms begin with gain 0
            for norm in (network.items.text_norm, network.items.item_norm):
                torch.nn.init.ones_(norm.weight)
    for entry, batch in batches.items():
        backward(list(step(entry, batch).values()))
    sizes = {name: size_of_gradient(p) for name, p in step.named_parameters() if p.requires_grad}
    usual = sorted(sizes.values())[len(sizes) // 2]
    for objective in step.objectives.values():
        if isinstance(objective, LinkChoice):  # the bias moves all candidates alike
            linker = objective.items.removeprefix("items/")
            assert sizes.pop(f"networks.main.linkers.{linker}.score_outer.bias") < SMALLEST * usual
    assert {name: size / usual for name, size in sizes.items() if not size > SMALLEST * usual} == {}


#: The smallest gradient of a parameter that trains, as a share of the median over the parameters of a system. XLNet's segments
#: have 6e-5 before training, because their products with small queries are small; what rounding leaves is below 1e-7.
SMALLEST = 1e-5


def size_of_gradient(parameter: torch.nn.Parameter) -> float:
    """The root mean square of the gradient where there is one: most rows of a table are not in the batch."""
    gradient = parameter.grad
    return 0.0 if gradient is None or not gradient.any() else float(gradient[gradient != 0].square().mean().sqrt())
