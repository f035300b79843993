"""What a run says of its own learning."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from tiny import Numbers, bert, electra, tiny_run

from cloze.batching import Cursor, MicroBatch
from cloze.training.baselines import Baseline, not_learning, with_measured
from cloze.training.loop import train

KNOWN = {"tokens": Baseline(9.0, 7.07, 5.31), "next": Baseline(0.69, 0.69)}


def test_a_run_above_single_tokens_is_told_why_and_one_below_is_left_alone() -> None:
    def told(loss: float, **now: float) -> str | None:
        settings = {"share": 0.4, "updates": 400, "warmed_up": True, **now}
        return not_learning(KNOWN, {"tokens": loss, "next": 0.1}, **settings)  # type: ignore[arg-type]

    assert told(6.9) is None
    assert "about 500 updates" in str(told(7.1, updates=200))
    assert "warm-up is too long" in str(told(7.1, warmed_up=False))
    assert "Try half and twice training.rate.peak" in str(told(7.03, updates=40_000))
    assert "the learning rate is too high: uniform guesses give 9.00" in str(told(10.1))
    assert "too high" not in str(told(9.9, updates=19))
    large = str(told(10.1, first={"tokens": 33.0}))  # type: ignore[arg-type]
    assert "too high" not in large and "its loss was 33.00 at the first step, and uniform guesses give 9.00" in large
    assert "the learning rate is too low: the loss is still that of uniform guesses (9.00)" in str(told(8.9, updates=20))
    assert "about 48 updates" in str(told(8.9, updates=19)) and "about 500 updates" in str(told(8.7, updates=200))
    assert not_learning({"next": KNOWN["next"]}, {"next": 0.7}, share=0.5, updates=9, warmed_up=True) is None


def test_a_discriminator_that_is_no_better_than_the_constant_answer_is_told_so_once_the_tokens_are_learned() -> None:
    known = {**KNOWN, "replaced": Baseline(0.69, 0.33)}

    def told(tokens: float, replaced: float) -> str | None:
        losses = {"tokens": tokens, "replaced": replaced, "next": 0.7}
        return not_learning(known, losses, share=0.4, updates=4000, warmed_up=True, labels={"replaced"})

    assert told(6.9, 0.31) is None
    assert "predicting the frequencies of the labels gives 0.33" in str(told(6.9, 0.328))
    assert str(told(7.1, 0.31)).startswith("tokens has learned nothing yet")


def test_yes_or_no_answers_that_a_step_makes_are_compared_with_the_answer_that_is_always_given() -> None:
    found = with_measured(KNOWN, {"replaced.positive": 0.1, "tokens.correct": 0.2})
    entropy = -(0.1 * math.log(0.1) + 0.9 * math.log(0.9))
    assert found == {**KNOWN, "replaced": Baseline(math.log(2), pytest.approx(entropy))}


def test_a_run_keeps_its_baselines_in_the_log_and_says_at_the_end_where_it_stands(tmp_path: Path) -> None:
    said: list[str] = []
    run = tiny_run(tmp_path, step=bert(dropout=0.0), data=Numbers(epoch_items=8, static=True), budget="30steps")
    run.baselines, run.say = {"token_prediction": Baseline(3.7, 3.6, 3.0)}, said.append
    train(run)
    start, *rest = map(json.loads, (tmp_path / "cloze" / "log.jsonl").read_text().splitlines())
    assert start["baselines"] == {"token_prediction": {"chance": 3.7, "single": 3.6, "pairs": 3.0}}
    last = [record for record in rest if record["event"] == "held_out"][-1]["objectives"]["token_prediction"]
    assert f"token_prediction {last:.3f}: {Baseline(3.7, 3.6, 3.0).describe(last)}" in said[-1]


def test_a_run_that_learns_nothing_is_told_so_once_after_a_third_of_its_budget(tmp_path: Path) -> None:
    said: list[str] = []
    run = tiny_run(tmp_path, step=electra(), budget="12steps", training={"evaluate_every": 0.25})
    run.baselines, run.say = {"token_prediction": Baseline(3.7, 0.5, 0.4)}, said.append
    train(run)
    told = [line for line in said if "has learned nothing yet" in line]
    assert len(told) == 1 and "after 50% of the budget (6 updates)" in told[0]
    assert "constant prediction" in said[-1]  # the discriminator, whose answers the generator makes


class Killed(BaseException):
    """The end of a process."""


class Dying(Numbers):
    """Rows up to a step, at which the process dies; steps from 0."""

    steps, last = 0, 0

    def next(self, entry: str, cursor: Cursor, share: float = 0.0) -> tuple[Sequence[MicroBatch], Cursor]:
        self.steps += 1
        if self.steps > self.last:
            raise Killed
        return super().next(entry, cursor, share)


@pytest.mark.parametrize("last", [1, 3, 5, 8])
def test_a_run_that_was_killed_and_resumed_warns_of_the_same_as_one_that_was_not(tmp_path: Path, last: int) -> None:
    told: dict[str, list[str]] = {}
    for name, deaths in {"whole": [], "killed": [last]}.items():
        said: list[str] = []
        for end in [*deaths, 99]:
            data = Dying()
            data.last = end
            training = {"evaluate_every": 0.25, "checkpoint_every": 1, "log_every": 1}
            run = tiny_run(tmp_path / name, step=electra(), data=data, budget="12steps", training=training)
            run.baselines, run.say = {"token_prediction": Baseline(1.0, 0.5, 0.4)}, said.append
            with suppress(Killed):
                train(run)
        told[name] = [line for text in said for line in text.splitlines() if "learned nothing" in line or "nats" in line]
        told[name] += [line for text in said for line in text.splitlines() if "Likely cause" in line]
    assert told["killed"] == told["whole"] and len(told["whole"]) == 4
    assert "the network begins with scores that are too large" in told["whole"][-1]
    assert any("token_labelling" in line for line in told["whole"]), "its baseline is that of the first step"
