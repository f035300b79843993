"""Passes, rewriters and ties inside one module."""

from __future__ import annotations

import pytest
import torch
from tiny import VOCABULARY, Numbers, bert, electra

from cloze.batch import Batch
from cloze.batching import Cursor
from cloze.errors import RecipeError
from cloze.networks import Network
from cloze.networks.clock import Clock
from cloze.networks.network import StateKind
from cloze.networks.transformer import Transformer
from cloze.objectives import MatchScores, relation_prediction, token_labelling, token_prediction
from cloze.training.checkpoints.state import gather_parameters, load_parameters, part_state, with_shared_names
from cloze.training.passes import Pass, PassObjective, Rewrite
from cloze.training.step import StepModule
from cloze.training.tie import tie
from tests.making import network_of


def first(**shape: int):
    return Numbers(**shape).next("main", Cursor())[0][0]


def test_counts_are_known_before_the_forward_pass() -> None:
    batch = first().batch
    assert bert().count("main", batch) == {
        "token_prediction": len(batch["targets/main"]),
        "relation_prediction": 8.0,
    }
    assert electra().count("main", batch)["token_labelling"] == float(batch["block"].sum())


def test_electra_shares_the_embeddings_module_and_both_losses_move_it() -> None:
    step = electra()
    table = step.networks["generator"].embeddings.tokens.weight
    assert step.networks["discriminator"].embeddings.tokens.weight is table
    losses = step("main", first().batch)
    gradients = [torch.autograd.grad(loss.total, table, retain_graph=True)[0].norm() for loss in losses.values()]
    assert len(gradients) == 2 and all(norm > 0 for norm in gradients)


def test_only_the_head_teaches_the_generator() -> None:
    step = electra()
    inner = step.networks["generator"].layers[0].inner.weight
    losses = step("main", first().batch)
    assert torch.autograd.grad(losses["token_labelling"].total, inner, allow_unused=True)[0] is None


def test_the_head_reads_scores_once(monkeypatch: pytest.MonkeyPatch) -> None:
    step = electra()
    head, calls = step.objectives["token_prediction"], []
    scores = head.scores
    monkeypatch.setattr(head, "scores", lambda *given: calls.append(1) or scores(*given))
    step("main", first().batch)
    assert len(calls) == 1


def test_losses_start_near_the_logarithm_of_the_classes() -> None:
    losses = bert(dropout=0.0)("main", first(batch=64).batch)
    counts = bert().count("main", first(batch=64).batch)
    assert losses["token_prediction"].total.item() / counts["token_prediction"] == pytest.approx(3.69, rel=0.05)
    assert losses["relation_prediction"].total.item() / counts["relation_prediction"] == pytest.approx(0.693, rel=0.05)


def test_run_gives_states_and_scores_without_losses() -> None:
    step, batch = electra().eval(), first().batch
    made = step.states_of("main", batch, frozenset({"generator.token_prediction", "discriminator.hidden"}))
    assert made["generator.token_prediction"].shape == (len(batch["targets/main"]), VOCABULARY)
    assert made["discriminator.hidden"].shape == (8, 12, 16)


def test_a_teacher_runs_without_gradient_and_without_dropout() -> None:
    clock = Clock()
    shape = {"layers": 1, "width": 16, "heads": 2, "vocab_size": VOCABULARY, "clock": clock, "dropout": 0.5}
    teacher, student = network_of("transformer", **shape), network_of("transformer", **shape)
    head = token_prediction(width=16, vocab_size=VOCABULARY)
    passes = [
        Pass("teacher", "teacher", grad=False),
        Pass("student", "student", take={"vectors": "teacher.hidden"}, objectives=(PassObjective("lm", "lm"),)),
    ]
    step = StepModule(
        networks={"teacher": teacher, "student": student},
        objectives={"lm": head},
        entries={"main": passes},
        clock=clock,
    )
    step("main", first().batch)["lm"].total.backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert student.layers[0].inner.weight.grad is not None and teacher.training


class Noting(torch.nn.Module):
    """A rewriter that gives the tokens it was given, and notes whether it was training."""

    takes, optional, reads, gives = frozenset({"tokens"}), frozenset(), (), frozenset({"tokens"})
    keeps = None

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bool] = []

    def forward(self, readings, batch):
        self.seen.append(self.training)
        return {"tokens": batch["tokens"]}


def test_heads_and_rewriters_of_a_pass_without_gradient_are_in_eval_mode_too() -> None:
    clock, noting = Clock(), Noting()
    teacher = Transformer(layers=1, width=16, heads=2, vocab_size=VOCABULARY, clock=clock)
    head = relation_prediction(width=16, clock=clock, dropout=0.5)
    passes = [Pass("teacher", "teacher", take={"note": Rewrite("note")}, objectives=(PassObjective("next", "next"),), grad=False)]
    step = StepModule(
        networks={"teacher": teacher}, objectives={"next": head}, rewriters={"note": noting}, entries={"main": passes},
        clock=clock,
    ).train()
    batch, made = first().batch, []
    for number in (0, 1):
        clock.set(seed=0, step=number, first_row=0, share=0.0)
        made.append(step.states_of("main", batch, frozenset({"teacher.next"}))["teacher.next"])
    assert torch.equal(*made)
    assert noting.seen == [False, False]
    assert all(module.training for module in step.modules())


def test_what_only_passes_without_gradient_run_needs_none_so_that_no_process_waits_for_it() -> None:
    clock = Clock()
    shape = {"layers": 1, "width": 16, "heads": 2, "vocab_size": VOCABULARY, "clock": clock}
    networks = {"teacher": network_of("transformer", **shape), "student": network_of("transformer", **shape)}
    tie(networks, [["teacher.embeddings.tokens", "student.embeddings.tokens"]])
    heads = {name: token_prediction(width=16, vocab_size=VOCABULARY) for name in networks}
    passes = [Pass(name, name, objectives=(PassObjective(name, name),), grad=name == "student") for name in networks]
    step = StepModule(networks=networks, objectives=heads, entries={"main": passes}, clock=clock)
    still = {name for name, parameter in step.named_parameters() if not parameter.requires_grad}
    assert still == {
        name for name, _ in step.named_parameters()
        if name.startswith(("networks.teacher.", "objectives.teacher.")) and name != "networks.teacher.embeddings.tokens.weight"
    }


class Patches(Network):
    """A network whose rows are vectors: it reads no token."""

    takes, tables, seen = frozenset({"vectors", "block"}), {}, ()
    gives = {"hidden": StateKind("B L D", "all")}

    def __init__(self) -> None:
        super().__init__()
        self.map = torch.nn.Linear(4, 4)

    def forward(self, *, want, vectors, block=None, positions=None):
        self.seen = positions
        return {"hidden": self.map(vectors)}


def test_a_network_may_read_a_view_without_tokens() -> None:
    network, head = Patches(), token_labelling(set="region", classes=3, width=4, clock=Clock())
    step = StepModule(
        networks={"eye": network}, objectives={"regions": head},
        entries={"main": [Pass("eye", "eye", view="picture", objectives=(PassObjective("regions", "regions"),))]}, clock=Clock(),
    )
    batch = Batch({
        "tokens": torch.zeros(2, 5, dtype=torch.long), "picture.vectors": torch.randn(2, 3, 4),
        "picture.block": torch.tensor([[1, 1, 1], [1, 0, 0]]), "picture.targets/region": torch.tensor([2, 0, 1]),
        "picture.positions/region": torch.tensor([0, 2, 3]),
    })
    loss = step("main", batch)["regions"].total
    loss.backward()
    assert network.map.weight.grad.abs().sum() > 0 and network.seen.tolist() == [0, 2, 3]
    assert step.flops("main", batch) == 4 * (2 + 2) * 4 * 4 + 3 * 6 * (4 * 4 + 4 * 3)  # the vectors need no gradient


def test_reading_a_state_that_the_network_does_not_give_is_refused() -> None:
    clock = Clock()
    network = Transformer(layers=1, width=16, heads=2, vocab_size=VOCABULARY, clock=clock)
    head = token_prediction(width=16, vocab_size=VOCABULARY)
    passes = [Pass("main", "main", objectives=(PassObjective("lm", "lm", read={"hidden": "query"}),))]
    with pytest.raises(RecipeError, match="query is read, but network 'main'.*gives: .*hidden"):
        StepModule(networks={"main": network}, objectives={"lm": head}, entries={"main": passes}, clock=clock)


def test_a_pass_reads_earlier_passes_only() -> None:
    clock = Clock()
    networks = {name: Transformer(layers=1, width=16, heads=2, vocab_size=VOCABULARY, clock=clock) for name in "ab"}
    passes = [Pass("a", "a", take={"vectors": "b.hidden"}), Pass("b", "b")]
    with pytest.raises(RecipeError, match=r"'b.hidden'.*does not come before"):
        StepModule(networks=networks, objectives={}, entries={"main": passes}, clock=clock)


def test_ties_of_unequal_shape_name_both() -> None:
    networks = {
        name: Transformer(layers=1, width=width, heads=2, vocab_size=VOCABULARY, clock=Clock())
        for name, width in (("a", 8), ("b", 16))
    }
    with pytest.raises(RecipeError, match=r"a\.embeddings and b\.embeddings: tokens\.weight.*\(40, 8\).*\(40, 16\)"):
        tie(networks, [["a.embeddings", "b.embeddings"]])
    with pytest.raises(RecipeError, match="embedings.*embeddings"):
        tie(networks, [["a.embedings", "b.embeddings"]])


def test_state_has_ties_once_and_comes_back_under_all_names() -> None:
    step, other = electra(seed=1), electra(seed=2)
    state = gather_parameters(step)
    assert "networks.generator.embeddings.tokens.weight" in state
    assert "networks.discriminator.embeddings.tokens.weight" not in state
    everything = with_shared_names(step, state)
    assert "embeddings.tokens.weight" in part_state(everything, "networks.discriminator")
    load_parameters(other, state, where="here")
    for name, parameter in step.named_parameters():
        assert torch.equal(parameter, dict(other.named_parameters())[name])


def test_a_live_weight_follows_the_share() -> None:
    weighted = PassObjective("lm", "lm", weight=lambda share: 1 - share)
    assert weighted.weight_at(0.25) == 0.75


def taught() -> StepModule:
    """A student that learns from a teacher's scores of a vocabulary, where its own loss asks for other positions."""
    clock = Clock()
    networks = {name: network_of("transformer", layers=layers, width=16, heads=2, dropout=0.0, vocab_size=VOCABULARY, clock=clock)
        for name, layers in (("teacher", 2), ("student", 1))}
    heads = {
        name: token_prediction(tie=True, transform="gelu", width=16, vocab_size=VOCABULARY, table=networks[of].embeddings.tokens)
        for name, of in (("teaching", "teacher"), ("learning", "student"))
    }
    match = MatchScores(temperature=2.0)
    passes = (
        Pass("teacher", "teacher", objectives=(PassObjective("teaching", "teaching", 0.0),), grad=False),
        Pass("student", "student", objectives=(
            PassObjective("learning", "learning"),
            PassObjective("match", "match", read={"student": "student.learning", "teacher": "teacher.teaching"}),
        )),
    )  # fmt: skip
    return StepModule(networks=networks, objectives={**heads, "match": match}, entries={"main": passes}, clock=clock)


def test_scores_that_are_only_compared_are_not_computed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    step, batch = taught(), first().batch
    whole = {name: step.states_of("main", batch, frozenset({name}))[name] for name in ("teacher.teaching", "student.learning")}
    for name in ("teaching", "learning"):
        monkeypatch.setattr(step.objectives[name], "scores", None)
    losses = step("main", batch)
    student, teacher = whole["student.learning"], whole["teacher.teaching"]
    expected = MatchScores(temperature=2.0)({"student": student, "teacher": teacher}, batch).total
    torch.testing.assert_close(losses["match"].total, expected)
    (losses["match"].total + losses["learning"].total).backward()
    assert all(p.grad is None for p in step.networks["teacher"].parameters())
    assert step.networks["student"].embeddings.tokens.weight.grad is not None
