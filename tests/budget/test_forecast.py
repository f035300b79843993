"""What a run says before its first step, and how many rows it reads at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.budget import micro_batch
from cloze.errors import RecipeError
from cloze.runs import preparing, run
from cloze.runs.run import pretrain
from cloze.training.forecasting import memory
from cloze.training.forecasting import trial as trials
from cloze.training.forecasting.forecast import SHARE, Forecast, forecast
from cloze.training.forecasting.trial import LinearCost, RowCosts, tried, update_of
from cloze.training.optimizers.optimizers import AdamW
from cloze.training.run import Run
from cloze.training.schedule.budget import Budget
from tests.small_recipe import SMALL

Pretrain = Callable[..., list[str]]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def store(little_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    (folder / "mine.yaml").write_text(SMALL, encoding="utf-8")
    recipe, quiet = folder / "mine.yaml", {"device": "cpu", "report": lambda text: None}
    pretrain(recipe, corpus=little_text, out=folder / "run", budget="1steps", **quiet)  # type: ignore[arg-type]
    return folder / "run" / "cloze" / "corpus" / "main" / "store"


@pytest.fixture
def train(store: Path, tmp_path: Path) -> Pretrain:
    """`train(name, …)`: three steps of the small recipe on a CPU into a folder of that name; returns what was said."""

    def trained(name: str, **changes: Any) -> list[str]:
        said: list[str] = []
        given = {"corpus": store, "budget": "3steps", "device": "cpu", "report": said.append, **changes}
        pretrain(store.parents[4] / "mine.yaml", out=tmp_path / name, **given)
        return said

    return trained


@pytest.fixture
def prepared(train: Pretrain, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run as it is handed to the loop."""
    kept: list[Run] = []

    class Done(Exception):
        pass

    def stop(made: Run, engines: object) -> None:
        kept.append(made)
        raise Done

    monkeypatch.setattr(run, "train", stop)
    with pytest.raises(Done):
        train("prepared")
    return kept[0]


def leave_memory_for(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let memory be just enough for so many rows at once."""
    real = micro_batch.forecast

    def short(made: Run, **given: Any) -> Forecast:
        told = real(made, **given)
        return replace(told, available=int(told.peak(rows) / SHARE) + 2)

    monkeypatch.setattr(micro_batch, "forecast", short)


def log(folder: Path, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "cloze" / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


def parameters(folder: Path) -> bytes:
    return max((folder / "cloze" / "checkpoints").glob("step-*")).joinpath("state", "parameters.safetensors").read_bytes()


def test_a_forecast_says_what_the_run_then_takes(train: Pretrain, tmp_path: Path) -> None:
    (told,) = [line for line in train("run", budget="20steps") if line.startswith("forecast: ")]
    stop = log(tmp_path / "run", "stop")[0]
    for said in ("20 updates of 4 rows", " tokens, ", f"{stop['epochs']:.3g} epochs", "GB of memory"):
        assert said in told, told
    tokens = float(told.partition(" rows, ")[2].partition(" tokens")[0].replace(",", ""))
    assert tokens == pytest.approx(stop["tokens"], rel=0.1)


def test_a_forecast_leaves_no_trace_in_the_run(train: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train("with")
    monkeypatch.setattr(preparing, "choose_micro_batch", lambda *_, **__: None)
    train("without")
    assert parameters(tmp_path / "with") == parameters(tmp_path / "without")


def test_a_trial_leaves_modes_clock_gradients_and_random_numbers_as_they_were(prepared: Run) -> None:
    step, data = prepared.step.eval(), prepared.data
    step.clock.set(seed=5, step=7, first_row=3, share=0.25)
    before, random = {name: value.clone() for name, value in step.state_dict().items()}, torch.get_rng_state()
    tried(step, "main", lambda rows: data.sample("main", rows), limit=4, precision="fp32", device=CPU, free_bytes=1 << 30)  # type: ignore[attr-defined]
    assert step.clock.numbers == (5, 7, 3) and float(step.clock.share) == 0.25 and not step.training
    assert all(parameter.grad is None for parameter in step.parameters())
    assert torch.equal(torch.get_rng_state(), random)
    for name, value in step.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_rows_at_once_are_halved_until_they_fit_and_the_sums_stay(
    train: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train("whole", overrides=["training.log_every=1"])
    with monkeypatch.context() as less:
        leave_memory_for(3, less)
        (told,) = [line for line in train("split", overrides=["training.log_every=1"]) if line.startswith("forecast: ")]
        assert "3 updates of 4 rows, 2 at once" in told
    for one, two in zip(log(tmp_path / "whole", "train"), log(tmp_path / "split", "train"), strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-5)
    for name, micro in (("whole", 4), ("split", 2)):
        assert json.loads((tmp_path / name / "cloze" / "run.json").read_text())["micro_batch"] == micro
    # With all the memory back a run still reads as many rows at once as it began with.
    train("split", budget="6steps", extend=True, overrides=["training.log_every=1"])
    assert json.loads((tmp_path / "split" / "cloze" / "run.json").read_text())["micro_batch"] == 2


def test_a_run_that_resumes_where_memory_is_shorter_reads_fewer_rows_and_says_so(
    train: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train("run")
    leave_memory_for(1, monkeypatch)
    said = train("run", budget="4steps", extend=True)
    assert any("to save memory, reads 1 rows at once instead of 4" in line for line in said)


def test_rows_that_cannot_fit_are_refused_with_what_would(
    train: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_memory_for(2, monkeypatch)
    with pytest.raises(RecipeError, match=r"4 rows at once take about .* GB.*\n  What fits: --set training.micro_batch=2"):
        train("run", overrides=["training.micro_batch=4"])
    leave_memory_for(-1000, monkeypatch)
    with pytest.raises(RecipeError, match=r"Not even one row fits \(about .* GB\)\. Take a smaller --size"):
        train("run")
    assert not (tmp_path / "run").exists()


def test_a_network_that_cannot_fit_is_refused_before_it_is_built(train: Pretrain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device: 50_000)
    with pytest.raises(RecipeError, match=r"gradients and adamw take .* GB .*\n  About 0 million parameters fit here"):
        train("run")


def test_an_objective_that_needs_the_whole_batch_is_never_split(prepared: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloze.recipe.load import load_recipe

    told = Forecast(
        None, None, None, None, 1, 8, 8, base=0, trials=(RowCosts(LinearCost(0, 0.1), LinearCost(0, 100), 1, 1),),
        available=650
    )
    head: Any = next(iter(prepared.step.objectives.values()))
    assert micro_batch._smaller(prepared, load_recipe("bert"), told) == 4
    monkeypatch.setattr(type(head), "scope", "batch", raising=False)
    with pytest.raises(RecipeError, match="needs all rows of a batch at once. What fits: --set training.batch=4"):
        micro_batch._smaller(prepared, load_recipe("bert"), told)


def test_the_memory_of_more_rows_follows_from_that_of_few(prepared: Run) -> None:
    from cloze.training.forecasting.trial import run as once

    step, data = prepared.step, prepared.data

    def sample(rows: int) -> Any:
        return data.sample("main", rows)  # type: ignore[attr-defined]

    made = tried(step, "main", sample, limit=4, precision="fp32", device=CPU, free_bytes=1 << 30)
    _, most = memory.peaks(lambda mark: once(step, "main", sample(64), "fp32", CPU, mark), CPU)
    assert 0.9 * most < made.bytes.of(64) < 1.6 * most


@pytest.mark.parametrize(("fixed", "per_row", "limit", "timed"), [
    (0.05, 0.01, 64, [1, 2, 4, 4, 8, 8]),  # a recurrent network: time hardly depends on the rows until there are many
    (0.0, 0.02, 64, [1, 6]),
    (0.05, 0.01, 6, [1, 2, 4, 4, 6, 6]),
    (0.0, 0.7, 64, [1]),  # slow enough that one row is measurement enough
])  # fmt: skip
def test_the_time_of_a_micro_batch_is_a_line_over_its_rows(
    prepared: Run, monkeypatch: pytest.MonkeyPatch, fixed: float, per_row: float, limit: int, timed: list[int]
) -> None:
    step, data, rows = prepared.step, prepared.data, []

    def assumed(step: object, entry: str, micro: Any, *rest: object) -> float:
        rows.append(int(micro.batch["tokens"].shape[0]))
        return fixed + per_row * rows[-1]

    monkeypatch.setattr(trials, "_timed", assumed)
    sample: Any = lambda n: data.sample("main", n)  # type: ignore[attr-defined]  # noqa: E731
    made = tried(step, "main", sample, limit=limit, precision="fp32", device=CPU, free_bytes=1 << 40)
    assert rows == timed
    assert made.seconds == pytest.approx((fixed, per_row))


@pytest.mark.parametrize(("rows_in_run", "passes"), [(100.0, [1, 1, 6]), (100_000.0, [1, 1, 6, 6])])
def test_a_brief_run_is_forecast_from_three_passes(
    prepared: Run, monkeypatch: pytest.MonkeyPatch, rows_in_run: float, passes: list[int]
) -> None:
    step, data, clock, rows = prepared.step, prepared.data, [0.0], []

    def pass_over(step: object, entry: str, micro: Any, *rest: object) -> None:
        rows.append(int(micro.batch["tokens"].shape[0]))
        clock[0] += 0.02 * rows[-1]

    monkeypatch.setattr(trials, "run", pass_over)
    monkeypatch.setattr(trials.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(trials, "peaks", lambda run, device: (run(lambda: None), (1, 1))[1])
    sample: Any = lambda n: data.sample("main", n)  # type: ignore[attr-defined]  # noqa: E731
    made = tried(
        step, "main", sample, limit=64, precision="fp32", device=CPU, free_bytes=1 << 40, rows_in_run=rows_in_run,
        elsewhere=lambda n: [],
    )
    assert rows == passes
    assert made.seconds == pytest.approx((0.0, 0.02))


def test_a_smaller_batch_pays_the_fixed_time_of_a_pass_more_often(prepared: Run) -> None:
    costs = RowCosts(LinearCost(1.0, 0.25), LinearCost(0, 0), tokens=8, flops=1)
    trial = {("main", prepared.data.feeds["main"].length): costs}  # type: ignore[attr-defined]
    run = replace(prepared, budget=Budget("steps", 10))
    seconds = {rows: forecast(run, batch=rows, trials=dict(trial)).seconds for rows in (2, 4, 6)}
    assert prepared.data.micro_batch == 4  # type: ignore[attr-defined]
    # An update is one pass of 2 rows, one of 4, and two passes of 3 rows each.
    assert seconds == pytest.approx({2: 15.0, 4: 20.0, 6: 35.0}, abs=0.5)


def test_tensors_are_counted_as_long_as_they_live() -> None:
    def work(mark: Callable[[], None]) -> None:
        held = torch.zeros(1000)
        view = held[:10]
        torch.ones(3000)  # gone at once
        mark()
        rest = [torch.zeros(500) for _ in range(8)]
        del view, rest

    assert memory.peaks(work, CPU) == (16_000, 20_000)


def test_the_state_of_an_optimizer_is_measured() -> None:
    assert update_of(AdamW(), CPU).state == pytest.approx(2.0, abs=0.01)


def test_the_limit_of_a_container_is_what_is_left_of_it(tmp_path: Path) -> None:
    inner = tmp_path / "job" / "step"
    inner.mkdir(parents=True)
    for folder, most, used, idle in ((inner, "max", 50, 0), (inner.parent, "1000", 700, 200)):
        (folder / "memory.max").write_text(f"{most}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 1\ninactive_file {idle}\n")
    assert memory._left(tmp_path, "/job/step", "memory.max", "memory.current", "inactive_file") == [500]
    found = memory.available(CPU)
    assert found is None or 1 << 20 < found < 1 << 50


def test_a_forecast_is_read_by_people() -> None:
    told = Forecast(
        1e6, 3.2768e10, 40.3, 2.5e8, 108_891_648, 256, 32, base=2 * 10**9,
        trials=(RowCosts(LinearCost(0, 1), LinearCost(10**9, 10**8), 1, 1),),
        available=16 * 10**9,
    )
    assert str(told) == (
        "forecast: 108,891,648 parameters, 1 million updates of 256 rows, 32 at once, 32.8 billion tokens, 40.3 epochs, "
        "8 years, 7.2 of 16.0 GB of memory"
    )
    assert (told.largest, told.fits(64), told.fits(128)) == (64, True, False)
    short = replace(told, updates=0.016, tokens=5e5, epochs=0.1, seconds=600.0)
    assert "0.016 updates of 256 rows, 32 at once (one takes 10 h 25 min), 500,000 tokens" in str(short)



def test_rows_of_other_lengths_elsewhere_are_measured_too_and_give_a_range(
    prepared: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, data = prepared.step, prepared.data
    first = data.sample("main", 2)  # type: ignore[attr-defined]
    larger = [replace_tokens(first, times) for times in (1, 3)]
    clock = iter([0.1, 0.2, 0.2, 0.2, 0.8] + [0.1] * 20)  # one row; two rows, and again; then the others
    monkeypatch.setattr(trials, "_timed", lambda *_: next(clock))
    plain = {"limit": 2, "precision": "fp32", "device": CPU, "free_bytes": 1 << 30}
    alone = tried(step, "main", lambda rows: first, **plain)  # type: ignore[arg-type]
    assert alone.spread == (1.0, 1.0) and alone.seconds.of(2) == pytest.approx(0.2)
    clock = iter([0.1, 0.2, 0.2, 0.8])
    monkeypatch.setattr(trials, "_timed", lambda *_: next(clock))
    made = tried(step, "main", lambda rows: first, elsewhere=lambda rows: larger, **plain)  # type: ignore[arg-type]
    assert made.seconds.of(2) == pytest.approx((0.2 + 0.2 + 0.8) / 3)
    assert made.tokens == pytest.approx(alone.tokens * 5 / 3) and made.bytes.per_row == pytest.approx(3 * alone.bytes.per_row)
    mean = 1.2 / 5
    assert made.spread == pytest.approx((0.2 / mean, 0.8 / 3 / mean))
    told = Forecast(10.0, 100.0, 9.0, 60.0, 1000, 4, 4, 0, trials=(made,), earliest=1 / 3)
    said = "forecast: 1,000 parameters, 10 updates of 4 rows, 100 tokens, 9 epochs, 50 s to 1 min 07 s (17 s if"
    assert str(told).startswith(said)


def replace_tokens(micro: Any, times: int) -> Any:
    """A micro-batch that says that it has so many times the tokens."""
    return micro._replace(tokens=times * micro.tokens)


def test_a_sample_may_begin_anywhere_in_an_epoch(prepared: Run) -> None:
    data: Any = prepared.data
    start, half = (data.sample("main", 1, at=at).batch["tokens"] for at in (0.0, 0.5))
    assert start.shape != half.shape or not torch.equal(start, half)
