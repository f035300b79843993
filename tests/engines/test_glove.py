"""GloVe in compiled code: one update as the authors' code does it, the loop's equal, a cost that falls, runs that go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze.batching import Data, Feed
from cloze.corpus import Cooccurrences, Store
from cloze.corpus.counting.cells import shuffled
from cloze.corpus.stores.writer import StoreWriter
from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.networks.static.word_vectors import WordVectors
from cloze.objectives.static.cooccurrence_regression import CooccurrenceRegression
from cloze.training.loop import train
from cloze.training.optimizers.optimizers import AdamW
from cloze.training.optimizers.static_optimizers import GloveAdagrad
from cloze.training.passes import Pass, PassObjective
from cloze.training.run import Run, RunIdentity, Training
from cloze.training.schedule.budget import Budget
from cloze.training.schedule.rates import Constant
from cloze.training.step import StepModule

pytest.importorskip("numba")
from cloze.engines.glove import GloveEngine
from cloze.kernels import KERNELS
from cloze.kernels.vectors.glove import glove, shuffle

MakeRun = Callable[..., Run]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Forty documents of words that come in turns, some more often than others."""
    rng = np.random.default_rng(5)
    folder = tmp_path_factory.mktemp("corpus") / "store"
    sizes = rng.integers(8, 30, 40)
    ids = 4 + np.minimum(rng.geometric(0.2, int(sizes.sum())), 16)
    roles = {"[PAD]": 0, "[UNK]": 1, "[BOS]": 2, "[EOS]": 3}
    with StoreWriter(folder, vocab_size=21, roles=roles, tokenizer_hash="0" * 64) as writer:
        writer.append(ids, np.ones(len(ids), np.bool_), sizes, np.ones(40, np.int64))
        return writer.finish({"odd": {}}, lambda inner: inner.mkdir())


@pytest.fixture
def make_run(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeRun:
    """A GloVe run over the store; one thread."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)

    def make(
        name: str, *, budget: str = "2epochs", batch: int = 16, engine: Any = "auto", width: int = 5, limit: float = 10.0,
        optimizer: Any = None, **training: Any,
    ) -> Run:
        torch.manual_seed(3)
        clock = Clock(0)
        network = WordVectors(width=width, both_sides=True, biases=True, vocab_size=21, clock=clock)
        passes = [Pass("main", "main", objectives=(PassObjective("cells", "cells"),))]
        step = StepModule(
            networks={"main": network}, objectives={"cells": CooccurrenceRegression(limit=limit)}, entries={"main": passes},
            clock=clock,
        )
        source = Cooccurrences(radius=4).bind(store, seed=7, entry="main")
        feed = Feed(source, [], length=2, takes=network.takes, padding=0)
        made = Training(divide="nothing", clip=None, precision="fp32", engine=engine, evaluate_every=0.5)
        return Run(
            folder=tmp_path / name, step=step, data=Data({"main": feed}, batch=batch),
            optimizer=optimizer or GloveAdagrad(), rate=Constant(0.05),
            export=lambda folder, state, at: None, budget=Budget.parse(budget), identity=RunIdentity({}, "0"),
            seed=7, device="cpu", training=replace(made, **training), say=lambda text: None,
        )

    return make


def parameters(run: Run) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in run.step.named_parameters()}


def cost(run: Run) -> float:
    """The mean loss over all cells."""
    data: Any = run.data
    source = data.feeds["main"].source
    plan = source.plan(0, 2)
    rows = source.read(plan, np.arange(len(plan)), frozenset())
    network: Any = run.step.networks["main"]
    objective: Any = run.step.objectives["cells"]
    cell, counts = torch.from_numpy(rows["cell"]).long(), torch.from_numpy(rows["cell_count"])
    with torch.no_grad():
        made = network(want=frozenset({"association"}), tokens=cell, cell=cell)
        return float(objective(made, {"cell": cell, "cell_count": counts}).total) / len(plan)


def test_one_update_is_that_of_the_published_code() -> None:
    w, c = (np.array([[0.0, 0.0], values], np.float32) for values in ([0.1, -0.2], [0.3, 0.4]))
    b, d = np.array([0, 0.05], np.float32), np.array([0, -0.05], np.float32)
    sums = [np.ones((2, 2), np.float32), np.ones(2, np.float32), np.ones((2, 2), np.float32), np.ones(2, np.float32)]
    cells = (np.ones(1, np.int32), np.ones(1, np.int32), np.array([20], np.float32))
    totals = np.zeros(2)
    glove(2)(
        cells, np.array([[0, 1, 0, 1]]), np.zeros(1, np.uint64), (w, b, sums[0], sums[1]), (c, d, sums[2], sums[3]),
        np.array([100, 0.75, 0.05, 100]), totals,
    )
    assert totals[0] == pytest.approx(1.38715807, abs=1e-6) and totals[1] == pytest.approx(3.04573227**2, abs=1e-5)
    np.testing.assert_allclose(w[1], [0.1136633, -0.18178227], atol=1e-7)
    np.testing.assert_allclose(c[1], [0.30455443, 0.39089114], atol=1e-7)
    np.testing.assert_allclose(sums[0][1], [1.00018669, 1.00033189], atol=1e-7)
    assert b[1] == pytest.approx(0.96088641, abs=1e-6) and d[1] == pytest.approx(0.86088641, abs=1e-6)
    assert sums[1][1] == sums[3][1] == pytest.approx(1.82971405, abs=1e-6)
    assert not w[0].any() and not c[0].any() and b[0] == d[0] == 0


@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 1000])
def test_the_kernel_visits_cells_in_the_order_of_the_plan(size: int) -> None:
    import numba

    @numba.njit
    def every(size, key):  # type: ignore[no-untyped-def]  # compiled
        return [shuffle(i, np.uint64(size), key) for i in range(size)]

    key = np.uint64(0xDEADBEEFCAFE1234)
    expected = shuffled(np.arange(size), np.full(size, size), np.full(size, key, np.uint64))
    assert every(size, key) == expected.tolist()


def test_with_one_cell_in_a_step_it_is_the_loop(make_run: MakeRun) -> None:
    runs = [make_run(engine, budget="300steps", batch=1, engine=engine) for engine in ("loop", "compiled")]
    outcomes = [train(run, [GloveEngine()]) for run in runs]
    assert [outcome.step for outcome in outcomes] == [300, 300]
    one, other = (parameters(run) for run in runs)
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=2e-6, rtol=KERNELS["glove"].tolerance)
    data: Any = runs[0].data
    before = make_run("before")
    assert not torch.equal(parameters(before)["networks.main.bias"], one["networks.main.bias"])
    assert len(data.feeds["main"].source.cells) > 200


def test_the_cost_falls_whatever_the_batch(make_run: MakeRun) -> None:
    cells = len(data_of(make_run("any")).feeds["main"].source.cells)
    whole = make_run("whole", budget="12epochs", batch=cells, width=21, log_every=1)
    train(whole, [GloveEngine()])
    events = map(json.loads, (whole.folder / "cloze" / "log.jsonl").read_text().splitlines())
    costs = [event["loss"] for event in events if event["event"] == "train"]  # the mean over a pass each
    # Not at every single pass: biases step without a rate, and on so few cells that is noise.
    assert len(costs) == 12 and costs[0] > costs[1] > costs[5] > costs[11], costs
    small = make_run("small", budget="12epochs", batch=7, width=21)
    train(small, [GloveEngine()])
    assert cost(small) == pytest.approx(cost(whole), rel=0.05)  # the last step wraps into the next pass


def data_of(run: Run) -> Any:
    return run.data


def test_with_as_many_dimensions_as_words_every_count_is_met(make_run: MakeRun) -> None:
    run = make_run("full", budget="1500epochs", width=21, batch=100_000, limit=1.0, evaluate_every=0)
    train(run, [GloveEngine()])
    assert cost(run) < 2e-3
    network: Any = run.step.networks["main"]
    cells = data_of(run).feeds["main"].source.cells
    with torch.no_grad():
        w, c = network.embeddings.weight, network.contexts.weight
        made = (w @ c.T + network.bias[:, None] + network.context_bias).numpy()[cells.rows, cells.columns]
    assert np.abs(made - np.log(cells.counts)).mean() < 0.05


def test_a_run_that_was_stopped_goes_on_bit_for_bit(make_run: MakeRun) -> None:
    whole, parts = make_run("whole", budget="40steps"), make_run("parts", budget="13steps")
    train(whole, [GloveEngine()])
    train(parts, [GloveEngine()])
    again = make_run("parts", budget="40steps")
    again.extend = True
    assert train(again, [GloveEngine()]).step == 40
    for name, value in parameters(whole).items():
        assert torch.equal(value, parameters(again)[name]), name


def test_two_threads_learn_as_well(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = make_run("alone", budget="10epochs", batch=200)
    train(alone, [GloveEngine()])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    both = make_run("both", budget="10epochs", batch=200)
    train(both, [GloveEngine()])
    assert cost(both) == pytest.approx(cost(alone), rel=0.1)


def test_a_run_that_it_does_not_fit_says_why(make_run: MakeRun) -> None:
    engine = GloveEngine()
    assert engine.fits(make_run("fits")) == ""
    assert engine.fits(make_run("adamw", optimizer=AdamW())) == "the optimizer is not glove_adagrad"
    assert "divide" in engine.fits(make_run("mean", divide="targets"))
    with pytest.raises(RecipeError, match=r"glove: the optimizer is not glove_adagrad[\s\S]*Write `engine: auto`"):
        train(make_run("wrong", optimizer=AdamW(), engine="compiled"), [GloveEngine()])


def test_what_is_not_finite_stops_the_run(make_run: MakeRun) -> None:
    run = make_run("nan", budget="5steps")
    network: Any = run.step.networks["main"]
    with torch.no_grad():
        network.embeddings.weight.fill_(float("nan"))
    with pytest.raises(Exception, match="not finite"):
        train(run, [GloveEngine()])
