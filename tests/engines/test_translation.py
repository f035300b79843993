"""TransE in compiled code: the wrong triples and the updates of the loop, runs that resume, and what it does not train."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.batching import Data, Feed
from cloze.corpus import TripleStore
from cloze.knowledge import Triples
from cloze.knowledge.negatives import Negatives
from cloze.networks import Clock, GraphVectors
from cloze.objectives import Margin
from cloze.training.loop import train
from cloze.training.optimizers.static_optimizers import Sgd
from cloze.training.passes import Pass, PassObjective
from cloze.training.run import Run, RunIdentity, Training
from cloze.training.schedule.budget import Budget
from cloze.training.schedule.rates import Constant
from cloze.training.step import StepModule

pytest.importorskip("numba")
from cloze.engines.translation import TranslationEngine, facts_of
from cloze.kernels import KERNELS
from cloze.kernels.vectors.arguments import TranslationBuffers
from cloze.kernels.vectors.translation import negatives

MakeRun = Callable[..., Run]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TripleStore:
    """Forty people in a circle, who know the next one and like some others."""
    folder = tmp_path_factory.mktemp("graph")
    draw = np.random.default_rng(2)
    lines = [f"p{i}\tknows\tp{(i + 1) % 40}" for i in range(40)]
    lines += [f"p{a}\tlikes\tp{b}" for a, b in draw.integers(0, 40, (60, 2)).tolist()]
    (folder / "facts.tsv").write_text("".join(f"{line}\n" for line in lines))
    return Triples().build_store([folder / "facts.tsv"], None, folder / "store", base=None, report=lambda line: None)


@pytest.fixture
def make_run(store: TripleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeRun:
    """A run of TransE over the store; one thread."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)

    def make(
        name: str, *, budget: str = "1epochs", batch: int = 1, engine: Any = "auto", drawn: Negatives | None = None,
        norm: Any = 1, unit: Any = "updated", optimizer: Any = None, rate: float = 0.02, **training: Any,
    ) -> Run:
        torch.manual_seed(3)
        clock = Clock(0)
        network = GraphVectors(
            width=5, norm=norm, unit=unit, vocab_size=store.vocab_size, entity_count=store.entities, clock=clock
        )
        passes = [Pass("main", "main", objectives=(PassObjective("margin", "margin"),))]
        objectives = {"margin": Margin(by=0.8)}
        step = StepModule(networks={"main": network}, objectives=objectives, entries={"main": passes}, clock=clock)
        source = Triples(negatives=drawn or Negatives(either=1, side="bernoulli")).bind(store, seed=7, entry="main")
        feed = Feed(source, [], length=3, takes=network.takes, padding=0)
        made = Training(divide="targets", clip=None, precision="fp32", engine=engine, evaluate_every=0.5)
        return Run(
            folder=tmp_path / name, step=step, data=Data({"main": feed}, batch=batch), optimizer=optimizer or Sgd(),
            rate=Constant(rate), export=lambda folder, state, at: None, budget=Budget.parse(budget),
            identity=RunIdentity({}, "0"), seed=7, device="cpu", training=replace(made, **training), say=lambda text: None,
        )

    return make


def vectors(run: Run) -> torch.Tensor:
    network: Any = run.step.networks["main"]
    return torch.as_tensor(network.eval().vectors()).clone()


@pytest.mark.parametrize("drawn", [
    Negatives(either=5, side="bernoulli"), Negatives(head=1, tail=2, one_side=3),
    Negatives(either=2, one_side=1, known="include"), Negatives(one_side=4, side="bernoulli"),
])  # fmt: skip
def test_wrong_triples_are_those_of_the_source(store: TripleStore, drawn: Negatives) -> None:
    import numba

    source = Triples(negatives=drawn).bind(store, seed=5, entry="main")
    plan = source.plan(3, 3)
    items = np.arange(len(plan))
    rows = source.read(plan, items, frozenset())["tokens"].reshape(len(items), -1, 3)
    work, facts, keys = TranslationBuffers.of(drawn.count, 8), facts_of(source), source.draw(plan, items).keys

    @numba.njit
    def one(fact, key, facts, work):  # type: ignore[no-untyped-def]  # compiled
        negatives(fact, key, facts, work.entity, work.on_head)

    for place, fact in enumerate(plan.order[items]):
        one(fact, keys[place], facts, work)
        made = np.repeat(rows[place, :1], drawn.count, axis=0)
        made[:, 0][work.on_head] = work.entity[work.on_head]
        made[:, 2][~work.on_head] = work.entity[~work.on_head]
        assert made.tolist() == rows[place, 1:].tolist()


@pytest.mark.parametrize(("norm", "unit", "divide"), [(1, "updated", "targets"), (2, "updated", "rows"), (1, "free", "nothing")])
def test_with_one_fact_in_a_step_it_is_the_loop(make_run: MakeRun, norm: int, unit: str, divide: str) -> None:
    runs = [
        make_run(engine, engine=engine, norm=norm, unit=unit, divide=divide, budget="1epochs") for engine in ("loop", "compiled")
    ]
    before = vectors(runs[0])
    outcomes = [train(run, [TranslationEngine()]) for run in runs]
    assert [outcome.step for outcome in outcomes] == [98, 98] and [o.compiled for o in outcomes] == [False, True]
    torch.testing.assert_close(vectors(runs[0]), vectors(runs[1]), atol=2e-6, rtol=KERNELS["translation"].tolerance)
    assert (vectors(runs[0]) - before).abs().max() > 0.1


def test_steps_of_many_facts_come_near_to_the_loop(make_run: MakeRun) -> None:
    drawn = Negatives(either=4)
    runs = [make_run(e, engine=e, batch=50, drawn=drawn, rate=0.5, budget="40steps") for e in ("loop", "compiled")]
    for run in runs:
        train(run, [TranslationEngine()])
    assert (vectors(runs[0]) - vectors(runs[1])).abs().mean() < 0.02


def test_a_stopped_run_goes_on_bit_for_bit(make_run: MakeRun) -> None:
    whole = make_run("whole", batch=7, budget="30steps")
    train(whole, [TranslationEngine()])
    for budget, extend in (("12steps", False), ("30steps", True)):
        part = replace(make_run("parts", batch=7, budget=budget), extend=extend)
        train(part, [TranslationEngine()])
    assert torch.equal(vectors(whole), vectors(part))


def test_two_threads_train_every_fact(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run("two", batch=20, budget="4epochs", drawn=Negatives(either=3), rate=0.5)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    outcome = train(run, [TranslationEngine()])
    assert outcome.step == 20 == 4 * 98 // 20 + 1 and bool(torch.isfinite(vectors(run)).all())
    entities = vectors(run)[1:41]
    torch.testing.assert_close(entities.norm(dim=1), torch.ones(40))


@pytest.mark.parametrize(("changes", "said"), [
    ({"unit": "read"}, "the network is not graph_vectors with unit updated or free"),
    ({"optimizer": Sgd(momentum=0.9)}, "sgd without momentum"),
    ({"clip": 1.0}, "training.clip is set"),
])  # fmt: skip
def test_what_it_does_not_train_is_said(make_run: MakeRun, changes: Any, said: str) -> None:
    assert said in TranslationEngine().fits(make_run("other", **changes))
    assert TranslationEngine().meant_for(make_run("other"))
