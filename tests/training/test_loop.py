"""The loop: budgets, accumulation, phases, mixtures, resumption in one process, and what stops it."""

from __future__ import annotations

import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny import Numbers, bert, electra, tiny_run, weights

from cloze.batching import Cursor
from cloze.comparison.spending import spent
from cloze.errors import BudgetError, CheckpointError, RunError
from cloze.networks.blocks.dropout import dropouts, name_dropouts
from cloze.objectives import Loss
from cloze.reports.about_run import about_runs
from cloze.training.checkpoints.checkpoint import Checkpoints
from cloze.training.distribution import Ranks
from cloze.training.engine import ProgressUnit
from cloze.training.loop import train
from cloze.training.meter import Meter, StepTotals
from cloze.training.optimizers.optimizers import AdamW, BertAdam, Lamb
from cloze.training.optimizers.stable_adamw import StableAdamW
from cloze.training.passes import PassObjective
from cloze.training.run import Run, RunIdentity
from cloze.training.run_progress import RunProgress
from cloze.training.schedule.phases import SchedulePhase
from cloze.training.schedule.rates import Linear
from cloze.training.schedule.untrained import require_trained
from cloze.training.step import StepModule


def events(folder: Path, kind: str = "train") -> list[dict[str, Any]]:
    lines = (folder / "cloze" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == kind]


def timeless(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k not in ("seconds", "tokens_per_second", "mfu")} for r in records]


def test_a_run_learns_and_says_how_it_ended(tmp_path: Path) -> None:
    done = train(tiny_run(tmp_path, budget="40steps", step=bert(dropout=0.0), data=Numbers(epoch_items=8, static=True)))
    records = events(tmp_path)
    assert done.finished and done.step == 40 and done.held_out == events(tmp_path, "held_out")[-1]["loss"]
    assert records[-1]["loss"] < records[0]["loss"] - 1.0
    assert (tmp_path / "README.md").read_text() == "step 40\n"


def one_objective(weight: Any = 1.0) -> StepModule:
    """Token prediction alone."""
    made = bert(dropout=0.0)
    (pass_,) = made.entries["main"]
    asked = (PassObjective("token_prediction", "token_prediction", weight=weight),)
    heads = {"token_prediction": made.objectives["token_prediction"]}
    networks = dict(made.networks)
    return StepModule(networks=networks, objectives=heads, entries={"main": [replace(pass_, objectives=asked)]}, clock=made.clock)


def test_the_weight_of_the_only_objective_scales_gradients_and_not_the_loss_that_is_told(tmp_path: Path) -> None:
    found = []
    for weight in (1.0, 20.0):
        out = tmp_path / str(weight)
        done = train(tiny_run(out, budget="1steps", step=one_objective(weight), training={"clip": None}))
        (record,) = events(out)
        assert record["loss"] == record["objectives"]["token_prediction"]
        found.append((record["loss"], 20.0 * record["grad_norm"] / weight))
        assert done.held_out == events(out, "held_out")[-1]["objectives"]["token_prediction"]
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_a_live_weight_is_that_of_the_share_spent_before_the_step(tmp_path: Path) -> None:
    """With a rate of 0 nothing moves, and every step reads the same rows: gradients differ by the weight alone."""
    step = one_objective(lambda share: 1.0 - 0.9 * share)
    data = Numbers(epoch_items=8, static=True)
    train(tiny_run(tmp_path, budget="4steps", step=step, data=data, rate=Linear(0.0), training={"clip": None, "log_every": 1}))
    norms = [record["grad_norm"] for record in events(tmp_path)]
    assert [norm / norms[0] for norm in norms] == pytest.approx([1.0, 0.775, 0.55, 0.325], rel=1e-5)


def test_a_step_divides_its_loss_by_its_targets_or_its_rows_or_by_nothing(tmp_path: Path) -> None:
    norms = {}
    for divide in ("targets", "rows", "nothing"):
        out = tmp_path / divide
        train(tiny_run(out, budget="1steps", step=one_objective(), training={"clip": None, "divide": divide}))
        norms[divide] = events(out)[0]["grad_norm"]
    (micro,), _ = Numbers().next("main", Cursor())
    targets, rows = micro.batch["targets/main"].numel(), 8
    assert targets > rows
    assert norms["nothing"] == pytest.approx(targets * norms["targets"], rel=1e-4)
    assert norms["nothing"] == pytest.approx(rows * norms["rows"], rel=1e-4)


def test_the_log_has_the_promised_fields(tmp_path: Path) -> None:
    train(tiny_run(tmp_path, budget="4steps"))
    promised = {
        "step",
        "tokens",
        "seconds",
        "loss",
        "objectives",
        "learning_rate",
        "grad_norm",
        "tokens_per_second",
        "mfu",
    }
    records = events(tmp_path)
    assert [record["step"] for record in records] == [1, 2, 4]
    assert promised <= records[0].keys() and set(records[0]["objectives"]) == {
        "token_prediction",
        "relation_prediction",
    }
    assert records[0]["loss"] == pytest.approx(sum(records[0]["objectives"].values()))
    assert 0 < records[0]["filled"] <= 1 and 0 < records[0]["mfu"] < 1


@pytest.mark.parametrize("build", [bert, electra])
def test_accumulation_gives_the_same_losses(tmp_path: Path, build: Any) -> None:
    for name, micro in (("whole", None), ("parts", 2)):
        train(
            tiny_run(
                tmp_path / name, step=build(), data=Numbers(micro=micro), budget="6steps", training={"log_every": 1}
            )
        )
    for whole, parts in zip(events(tmp_path / "whole"), events(tmp_path / "parts"), strict=True):
        assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-5)
        assert parts["grad_norm"] == pytest.approx(whole["grad_norm"], rel=1e-4)


def by_hand(step: StepModule, data: Numbers, *, steps: int, clip: float, peak: float, entries: tuple[str, ...]) -> dict[str, Any]:
    """What the loop promises, written out with torch alone: its update rule, clock, clipping, means and held-out losses."""
    own = [p for p in step.parameters() if p.requires_grad]
    groups = [{"params": [p for p in own if p.dim() > 1], "weight_decay": 0.01},
              {"params": [p for p in own if p.dim() <= 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-8)
    cursors = dict.fromkeys(entries, Cursor())
    found: dict[str, Any] = {"losses": [], "norms": []}

    def lossed(entry: str, micro: Any, number: int, at: int, share: float) -> dict[str, Any]:
        step.clock.set(seed=0, step=at, first_row=micro.first_row + (number << 32), share=share)
        return {f"{entry}/{name}": made for name, made in step(entry, micro.batch, None).items()}

    def count(entry: str, micros: Any) -> dict[str, float]:
        each = [step.count(entry, micro.batch) for micro in micros]
        return {f"{entry}/{name}": sum(float(one[name]) for one in each) for name in each[0]}

    step.train()
    for number in range(steps):
        share, total = number / steps, torch.zeros(())
        for place, entry in enumerate(entries):
            micros, cursors[entry] = data.next(entry, cursors[entry])
            counts = count(entry, micros)
            for micro in micros:
                for name, made in lossed(entry, micro, place, number, share).items():
                    total = total + made.total / counts[name]
        shown = float(total.detach())
        total.backward()
        norm = torch.sqrt(sum((p.grad.double() ** 2).sum() for p in own))
        for p in own:
            p.grad *= min(1.0, clip / float(norm))
        for group in optimizer.param_groups:
            group["lr"] = peak * (1 - share)
        optimizer.step()
        optimizer.zero_grad()
        found["losses"].append(shown)
        found["norms"].append(float(norm))
    step.eval()
    with torch.no_grad():
        kept = []
        for entry in entries:
            micros = list(data.held_out(entry))
            counts = count(entry, micros)
            made = [lossed(entry, micro, 0, 0, 1.0) for micro in micros]
            kept.append(sum(float(one[name].total) / counts[name] for one in made for name in one))
    return found | {"held_out": kept, "weights": [p.detach().clone() for p in own]}


def test_the_loop_is_the_plain_loop_with_dropout_clipping_accumulation_and_entries_in_one_update(tmp_path: Path) -> None:
    made, twin, clip = mixture(dropout=0.2), mixture(dropout=0.2), 0.4
    run = tiny_run(
        tmp_path, step=made, data=Numbers(micro=4), mixing="all", budget="5steps", rate=Linear(1e-2),
        optimizer=AdamW(betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0.01), training={"log_every": 1, "clip": clip},
    )
    train(run)
    plain = by_hand(twin, Numbers(micro=4), steps=5, clip=clip, peak=1e-2, entries=("both", "alone"))
    assert min(plain["norms"]) > 2 * clip  # or clipping would not be tested
    records = events(tmp_path)
    assert [record["loss"] for record in records] == pytest.approx(plain["losses"], rel=1e-5)
    assert [record["grad_norm"] for record in records] == pytest.approx(plain["norms"], rel=1e-4)
    assert [record["loss"] for record in events(tmp_path, "held_out")][-2:] == pytest.approx(plain["held_out"], rel=1e-4)
    for ours, theirs in zip((p for p in made.parameters() if p.requires_grad), plain["weights"], strict=True):
        assert torch.allclose(ours, theirs, atol=2e-5)


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    train(tiny_run(tmp_path / "whole", step=electra()))

    def stopping(step: int) -> dict[str, Any]:
        if step == 6:
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        train(tiny_run(tmp_path / "parts", step=electra(), samples=stopping))
    assert train(tiny_run(tmp_path / "parts", step=electra(seed=0))).finished
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")
    assert timeless(events(tmp_path / "parts")) == timeless(events(tmp_path / "whole"))
    assert timeless(events(tmp_path / "parts", "held_out")) == timeless(events(tmp_path / "whole", "held_out"))


@pytest.mark.parametrize("optimizer", [BertAdam(), Lamb(), Lamb(bias_correction=True, largest_ratio=10.0), StableAdamW()])
def test_every_optimizer_resumes_bit_for_bit(tmp_path: Path, optimizer: Any) -> None:
    train(tiny_run(tmp_path / "whole", optimizer=optimizer, budget="8steps"))
    data = Breaking(at=6)
    with pytest.raises(Broken):
        train(tiny_run(tmp_path / "parts", optimizer=optimizer, budget="8steps", data=data))
    train(tiny_run(tmp_path / "parts", optimizer=optimizer, budget="8steps"))
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


class Broken(Exception):
    """Raised by the data of a test."""


class Breaking(Numbers):
    """Data that does something at one step."""

    def __init__(self, at: int, act: Any = None, **shape: Any) -> None:
        super().__init__(**shape)
        self.left, self.act = at, act

    def next(self, entry: str, cursor: Any, share: float = 0.0) -> Any:
        self.left -= 1
        if self.left == 0:
            if self.act is None:
                raise Broken
            self.act()
        return super().next(entry, cursor)


@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")])
def test_a_signal_is_answered_at_once_and_writes_a_checkpoint(
    tmp_path: Path, number: signal.Signals, name: str
) -> None:
    train(tiny_run(tmp_path / "whole"))
    said: list[str] = []
    at_once: list[str] = []

    def interrupt() -> None:
        os.kill(os.getpid(), number)
        at_once.append(said[-1])

    data = Breaking(at=7, act=interrupt)
    done = train(replace(tiny_run(tmp_path / "parts", data=data), say=said.append))
    assert at_once == [
        f"{name} received: the run finishes this step, writes a checkpoint and stops. "
        "A second one ends it at once and loses what it learned since its last checkpoint."
    ]
    assert (done.finished, done.step, done.reason) == (False, 6, number.name)
    assert (tmp_path / "parts" / "cloze" / "checkpoints" / "step-00000006").is_dir()
    assert train(tiny_run(tmp_path / "parts")).finished
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


@pytest.mark.parametrize(
    ("budget", "steps"), [("5steps", 5), ("200tokens", 3), ("2epochs", 5), ("1e7flops", 4), ("1000bytes", 4)]
)
def test_budgets_end_the_run_when_they_are_spent(tmp_path: Path, budget: str, steps: int) -> None:
    assert train(tiny_run(tmp_path, budget=budget, bytes_per_token=4.0)).step == steps


class Clock:
    """A clock that only tests move."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("cloze.training.run_progress.time", made)
    return made


class Timed(Numbers):
    """Data whose first step takes `opening` seconds to fetch, and every other one 1/8 second."""

    def __init__(self, clock: Clock, opening: float = 0.0) -> None:
        super().__init__()
        self.clock, self.seconds = clock, opening

    def next(self, entry: str, cursor: Any, share: float = 0.0) -> Any:
        self.clock.now += self.seconds
        self.seconds = 0.125
        return super().next(entry, cursor)


def test_a_budget_in_seconds_ends_decayed_and_goes_on_from_its_share(tmp_path: Path, clock: Clock) -> None:
    done = train(tiny_run(tmp_path, budget="1s", data=Timed(clock), training={"log_every": 1}))
    records = events(tmp_path)
    assert done.finished and (done.step, records[-1]["seconds"]) == (8, 0.875)
    assert records[-1]["learning_rate"] < max(record["learning_rate"] for record in records) / 5
    more = train(tiny_run(tmp_path, budget="2s", data=Timed(clock), extend=True))
    assert more.step > done.step and events(tmp_path, "resume")[0]["share"] >= 0.5


def test_phases_follow_the_share_and_a_new_length_begins_an_epoch(tmp_path: Path) -> None:
    phases = (SchedulePhase(0.5, {"length": 8}), SchedulePhase(1.0, {"length": 12, "batch": 4}))
    data = Numbers(length=8)
    train(tiny_run(tmp_path / "whole", data=data, phases=phases, budget="8steps"))
    assert data.changes == [{"length": 8}, {"length": 12, "batch": 4}]
    state = json.loads((tmp_path / "whole/cloze/checkpoints/step-00000008/state/state.json").read_text())
    assert state["cursors"]["main"] == [2, 16] and state["phase"] == 1  # 4 x 8 rows, then epoch 2: 4 x 4 rows
    with pytest.raises(Broken):
        train(
            tiny_run(
                tmp_path / "parts",
                data=Breaking(at=7, length=8),
                phases=phases,
                budget="8steps",
                training={"checkpoint_every": 3},
            )
        )
    train(tiny_run(tmp_path / "parts", data=Numbers(length=8), phases=phases, budget="8steps"))
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


def test_a_phase_may_change_dropouts_and_a_resumed_run_has_them_bit_for_bit(tmp_path: Path) -> None:
    usual = dropouts(bert())
    phases = (SchedulePhase(0.5, {}, usual), SchedulePhase(1.0, {}, dict.fromkeys(usual, 0.0)))
    settings: dict[str, Any] = {"phases": phases, "budget": "8steps"}
    for name, at in (("late", 7), ("early", 3)):  # broken in the second phase and in the first
        with pytest.raises(Broken):
            train(tiny_run(tmp_path / name, data=Breaking(at=at), training={"checkpoint_every": 2}, **settings))
    whole = tiny_run(tmp_path / "whole", training={"log_every": 1, "checkpoint_every": 4, "keep_steps": (4,)}, **settings)
    train(whole)
    assert set(dropouts(whole.step).values()) == {0.0}
    for name in ("late", "early"):
        train(tiny_run(tmp_path / name, **settings))
        assert weights(tmp_path / name) == weights(tmp_path / "whole")
    train(tiny_run(tmp_path / "always", budget="8steps", training={"log_every": 1}))
    first, second = (
        [r["loss"] == s["loss"] for r, s in zip(events(tmp_path / "whole"), events(tmp_path / "always"), strict=True)][part]
        for part in (slice(0, 4), slice(4, 8))
    )
    assert all(first) and not any(second)


def mixture(dropout: float = 0.1) -> StepModule:
    """Two entries over one network: both objectives, and relation prediction alone."""
    step = bert(dropout=dropout)
    (whole,) = step.entries["main"]
    alone = type(whole)("main", "main", objectives=whole.objectives[1:])
    made = StepModule(
        networks=dict(step.networks),
        objectives=dict(step.objectives),
        clock=step.clock,
        entries={"both": [whole], "alone": [alone]},
    )
    name_dropouts(made)
    return made


def test_a_mixture_deals_entries_by_their_odds(tmp_path: Path) -> None:
    train(
        tiny_run(tmp_path, step=mixture(), odds={"both": 1, "alone": 2}, budget="12steps", training={"log_every": 12})
    )
    state = json.loads((tmp_path / "cloze/checkpoints/step-00000012/state/state.json").read_text())
    assert state["cursors"] == {"both": [1, 12], "alone": [3, 4]}  # 4 and 8 steps of 8 rows, 20 rows an epoch
    assert events(tmp_path)[-1]["epochs"] == pytest.approx(1 / 3 * 32 / 20 + 2 / 3 * 64 / 20)  # the mean, weighted by the odds
    assert set(events(tmp_path)[-1]["objectives"]) <= {
        "both/token_prediction",
        "both/relation_prediction",
        "alone/relation_prediction",
    }
    assert {record["entry"] for record in events(tmp_path, "held_out")} == {"both", "alone"}


@pytest.mark.parametrize(("mixing", "weights"), [("step", {"both": 1 / 3, "alone": 2 / 3}), ("all", {"both": 1, "alone": 1})])
def test_the_held_out_loss_of_a_mixture_is_what_a_step_is_expected_to_have(
    tmp_path: Path, mixing: str, weights: dict[str, float]
) -> None:
    run = tmp_path / "run"
    outcome = train(tiny_run(run, step=mixture(), odds={"both": 1, "alone": 2}, mixing=mixing, budget="2steps"))
    last = {record["entry"]: record["loss"] for record in events(run, "held_out")}
    assert last["both"] > last["alone"] and outcome.held_out is not None
    assert outcome.held_out == pytest.approx(sum(weights[entry] * loss for entry, loss in last.items()))
    assert spent(run)["held_out"] == pytest.approx(outcome.held_out)  # in comparisons and sweeps
    runs: Any = about_runs(tmp_path, pytest.fail)
    assert runs.parts[0].summary.endswith(f", held-out loss {outcome.held_out:.4f}")


def test_mixing_all_adds_the_losses_of_every_entry_in_one_update(tmp_path: Path) -> None:
    train(tiny_run(tmp_path, step=mixture(), mixing="all", budget="2steps", training={"log_every": 1}))
    record = events(tmp_path)[0]
    assert set(record["objectives"]) == {
        "both/token_prediction",
        "both/relation_prediction",
        "alone/relation_prediction",
    }
    assert record["loss"] == pytest.approx(sum(record["objectives"].values()))


def test_bf16_keeps_fp32_weights(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, budget="3steps", training={"precision": "bf16"})
    train(run)
    assert {parameter.dtype for parameter in run.step.parameters()} == {torch.float32}


def test_a_loss_that_is_not_finite_names_the_step_and_is_not_saved(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, budget="20steps")
    table = run.step.networks["main"].embeddings.tokens.weight

    def poison() -> None:
        table.data[:] = float("nan")

    run.data = Breaking(at=6, act=poison)
    with pytest.raises(RunError, match=r"step 6: the loss or its gradient is not finite.*\n.*training\.rate") as caught:
        train(run)
    assert caught.value.exit_code == 1
    assert sorted(path.name for path in (tmp_path / "cloze" / "checkpoints").iterdir()) == [
        "step-00000000",
        "step-00000004",
    ]


def test_a_loss_that_is_not_finite_changes_no_weight_and_no_step_follows_it(tmp_path: Path) -> None:
    run = tiny_run(tmp_path, budget="20steps", training={"log_every": 20, "clip": None})
    names = [name for name, _ in run.step.named_parameters()]

    def poison() -> None:
        run.step.get_parameter(names[-1]).data[:] = float("nan")

    data = run.data = Breaking(at=6, act=poison)
    with pytest.raises(RunError, match="step 6: the loss or its gradient is not finite"):
        train(run)
    assert data.left == 0  # nothing more was read
    assert all(run.step.get_parameter(name).isfinite().all() for name in names[:-1])


def test_the_first_step_whose_gradient_is_not_finite_is_named() -> None:
    for bad in (math.inf, math.nan):
        meter = Meter(True)
        for step, norm in enumerate((1.0, bad, math.nan), 1):
            meter.add_step(step, torch.tensor(norm), StepTotals({}), {})
        with pytest.raises(RunError, match="step 2: the loss or its gradient is not finite"):
            meter.check()


def test_an_objective_without_a_target_has_no_loss() -> None:
    meter = Meter()
    one = Loss(torch.tensor(6.0), {"correct": torch.tensor(1.0)})
    meter.add_losses({"words": one, "order": Loss(torch.tensor(0.0), {"correct": torch.tensor(0.0)})})
    meter.add_step(1, None, StepTotals({"words": 2.0, "order": 0.0}), {"words": 1.0, "order": 1.0})
    means = meter.means(Ranks(0, 1, torch.device("cpu")))
    assert means == {"loss": 3.0, "objectives": {"words": 3.0}, "metrics": {"words.correct": 0.5}}


def test_totals_of_a_step_are_summed_field_by_field() -> None:
    totals = StepTotals(
        {"words": 2.0, "order": 1.0}, tokens=9.0, cells=12.0, examples=4.0, flops=5.0, seconds=0.5, stops=1.0
    )
    assert totals.to_vector() == [2.0, 1.0, 9.0, 12.0, 4.0, 5.0, 0.5, 1.0]
    doubled = totals.from_vector(2 * number for number in totals.to_vector())
    assert doubled == StepTotals({"words": 4.0, "order": 2.0}, 18.0, 24.0, 8.0, 10.0, 1.0, 2.0)
    assert totals.divisors("targets") == {"words": 2.0, "order": 1.0}
    assert totals.divisors("rows") == {"words": 4.0, "order": 4.0}
    assert totals.divisors("nothing") == {"words": 1.0, "order": 1.0}


def test_a_finished_run_does_nothing_more(tmp_path: Path) -> None:
    train(tiny_run(tmp_path))
    before = weights(tmp_path)
    again = train(tiny_run(tmp_path))
    assert again.finished and again.step == 12 and weights(tmp_path) == before


def test_another_budget_needs_extend(tmp_path: Path) -> None:
    train(tiny_run(tmp_path, budget="4steps"))
    with pytest.raises(BudgetError, match=r"(?s)--budget 4steps, not 8steps.*omit --budget.*--extend"):
        train(tiny_run(tmp_path, budget="8steps"))
    assert train(tiny_run(tmp_path, budget="8steps", extend=True)).step == 8
    assert train(tiny_run(tmp_path, budget="8steps")).step == 8


def test_a_folder_of_another_recipe_is_refused_with_the_difference(tmp_path: Path) -> None:
    train(tiny_run(tmp_path, budget="1steps", identity=RunIdentity({"network": {"layers": 2}}, "one")))
    with pytest.raises(CheckpointError, match=r"a different recipe \(network\.layers: then 2, now 4\)"):
        train(tiny_run(tmp_path, budget="1steps", identity=RunIdentity({"network": {"layers": 4}}, "two")))
    with pytest.raises(CheckpointError, match="the seed 0, not 1"):
        train(tiny_run(tmp_path, budget="1steps", seed=1, identity=RunIdentity({"network": {"layers": 2}}, "one")))


def test_a_budget_in_bytes_needs_a_corpus_that_knows_them(tmp_path: Path) -> None:
    with pytest.raises(BudgetError, match="bytes per token"):
        train(tiny_run(tmp_path, budget="1Mbytes"))
    assert not (tmp_path / "cloze").exists()


def test_checkpoints_come_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunProgress, "seconds_now", lambda run_progress: 10.0 * run_progress.step)
    timed = {"checkpoint_every": None, "checkpoint_seconds": 25.0, "keep": 9}
    train(tiny_run(tmp_path, budget="9steps", training=timed))  # before step 4, thirty seconds have passed
    assert Checkpoints(tmp_path).steps() == [0, 4, 7, 9]


def test_samples_are_logged_at_every_evaluation(tmp_path: Path) -> None:
    train(tiny_run(tmp_path, samples=lambda step: {"text": f"at {step}"}))
    assert [record["text"] for record in events(tmp_path, "samples")] == ["at 6", "at 12"]


def test_of_a_budget_in_seconds_the_log_tells_the_share_of_that_moment(tmp_path: Path) -> None:
    train(tiny_run(tmp_path, budget="1s", training={"log_every": 1}))
    assert events(tmp_path)
    assert all(record["share"] == pytest.approx(record["seconds"], abs=1e-3) for record in events(tmp_path))


def test_opening_the_data_takes_nothing_of_a_budget_in_seconds(tmp_path: Path, clock: Clock) -> None:
    assert train(tiny_run(tmp_path, budget="0.25s", data=Timed(clock, opening=100.0))).step == 2


@pytest.mark.parametrize(("compiling", "step", "steps"), [(100.0, 0.4, 3), (100.0, 7.0, 1)])
def test_compiling_an_engine_takes_nothing_of_a_budget_in_seconds(
    tmp_path: Path, clock: Clock, compiling: float, step: float, steps: int
) -> None:
    class Slow:
        """An engine that is slow to begin; it trains one step after another, and nothing of it."""

        name, cpu_only, unit = "slow", True, ProgressUnit()

        def meant_for(self, run: Run) -> bool:
            return True

        def fits(self, run: Run) -> str:
            return ""

        def require(self, run: Run) -> str:
            return ""

        def begin(self, steps: Any) -> Any:
            clock.now += compiling
            self.steps = steps
            return self

        def train(self) -> None:
            while self.steps.ready():
                clock.now += step
                self.steps.count(Cursor(0, 8 * (self.steps.done + 1)), tokens=8.0, examples=8.0, flops=1.0)

        def sync_parameters(self) -> None:
            pass

    alone = bert()
    (both,) = alone.entries["main"]
    alone.entries["main"] = [replace(both, objectives=both.objectives[:1])]
    done = train(tiny_run(tmp_path, budget="1s", step=alone), [Slow()])
    assert (done.step, done.finished, done.compiled) == (steps, True, True)


def test_a_run_that_ended_before_its_first_step_is_not_a_model(tmp_path: Path) -> None:
    data = Breaking(at=1, act=lambda: os.kill(os.getpid(), signal.SIGTERM))
    stopped = train(tiny_run(tmp_path, data=data))
    assert (stopped.step, stopped.exit_code) == (0, 143)
    random = f"{tmp_path}: the run ended before its first step, so its weights are random. Run its command again to train it."
    with pytest.raises(CheckpointError) as caught:
        require_trained(tmp_path)
    assert str(caught.value) == random
    train(tiny_run(tmp_path))
    require_trained(tmp_path)


def test_a_loss_whose_name_has_a_dot_is_part_of_the_loss() -> None:
    meter, one = Meter(), SimpleNamespace(add=list)
    second = Loss(torch.tensor(30.0), {"correct": torch.tensor(5.0)})
    meter.add_losses({"match_hidden": Loss(torch.tensor(20.0), {}), "student.match_hidden": second})
    both = dict.fromkeys(("match_hidden", "student.match_hidden"), 10.0)
    meter.add_step(1, None, StepTotals(both), dict.fromkeys(both, 1.0))
    means = meter.means(one)  # type: ignore[arg-type]
    assert means["loss"] == 5.0 and means["objectives"] == {"match_hidden": 2.0, "student.match_hidden": 3.0}
    assert means["metrics"] == {"student.match_hidden.correct": 0.5}
