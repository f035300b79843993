"""The laws of the expected loss are those of the runs: `benchmarks/laws.py`."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cloze.budget.expected import LAWS, Law, RunKind

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    pytest.importorskip("scipy")
    spec = importlib.util.spec_from_file_location("laws", FOLDER / "laws.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["laws"] = module  # for its named tuples
    spec.loader.exec_module(module)
    return module


def run(loss: float, *values: str, tokens: int = 1_000_000, seed: int = 0) -> dict[str, Any]:
    """A line of a ledger."""
    known = {"token_prediction": {"chance": math.log(8000), "single": 7.1, "pairs": 5.3}}
    curve = [[10, tokens // 2, {"token_prediction": loss - 1.0}], [20, tokens, {"token_prediction": loss}]]
    named = {"recipe": "bert", "size": "tiny", "text": "wiki", "tokens": tokens, "set": list(values), "seed": seed}
    return {**named, "baselines": known, "curve": curve}


def test_the_best_end_of_the_runs_of_a_recipe_on_a_text_counts(script: ModuleType) -> None:
    tuned = [run(6.9), run(6.7, "rows*2", "rate*0.5"), run(6.8, seed=1), run(6.0, "network.positions=rotary")]
    found = list(script.points([*tuned, run(6.5, "text.tokenizer.size=4000"), run(6.4, tokens=2_000_000)]))
    assert [kind for kind, _ in found] == [RunKind("masked", "post")] * 3
    assert [(point.tokens, point.loss) for _, point in found] == [(1e6, 6.7), (1e6, 6.5), (2e6, 6.4)]


def test_the_constant_answer_of_replaced_tokens_is_the_entropy_of_their_share(script: ModuleType) -> None:
    found = script.replaced({"token_labelling.positive": 0.1}, "token_labelling")
    assert found == {"single": pytest.approx(-(0.1 * math.log(0.1) + 0.9 * math.log(0.9)))}
    assert script.replaced({}, "token_labelling") is None


def test_the_law_of_many_runs_is_found_again(script: ModuleType) -> None:
    true = Law(8e5, 0.3, 1.5, 0.2, 0.35, 0.0, 0, 0, 0, "")
    sizes, budgets, draw = (0.4e6, 3e6, 12e6), np.logspace(5, 8, 10), np.random.default_rng(0)

    def end(n: float, d: float) -> Any:
        loss = true.loss(parameters=n, tokens=d, single=7.1, pairs=5.3) + draw.normal(0, 0.02)
        return script.Point("bert", "tiny", n, d, 7.1, 5.3, loss)

    made = [end(n, d) for n in sizes for d in budgets]
    law = script.fitted("masked", made, ledger="made")
    assert np.abs(script.misses(law, made)).max() < 0.08 and law.runs == 30 and (law.least, law.most) == (1e5, 1e8)
    assert law.loss(parameters=6e6, tokens=3e7, single=7.1, pairs=5.3) == pytest.approx(
        true.loss(parameters=6e6, tokens=3e7, single=7.1, pairs=5.3), abs=0.05
    )
    assert law.scatter == pytest.approx(0.5 / math.sqrt(30))


def test_a_run_on_repeated_text_counts_as_new_text_and_a_start_from_vectors_as_twice_its_tokens(script: ModuleType) -> None:
    lines = [{**run(6.0), "epochs": 4.0, "text": "a"}, {**run(6.0), "start": "vectors", "text": "b"}]
    expected = [250_000 * (1 + 15.4 * (1 - math.exp(-3 / 15.4))), 2e6]
    assert [point.tokens for _, point in script.points(lines)] == pytest.approx(expected)


def test_how_easy_a_text_is_counts_only_where_runs_have_texts_that_are_far_apart(script: ModuleType) -> None:
    true = Law(8e5, 0.0, 1.5, 0.2, 0.35, 0.0, 0, 0, 0, "", 1.5)

    def ease(*pairs: float) -> float:
        ends = [(p, d, true.loss(parameters=1e6, tokens=d, single=7.1, pairs=p)) for p in pairs for d in np.logspace(5, 8, 10)]
        return script.fitted(
            "masked", [script.Point("bert", "tiny", 1e6, d, 7.1, p, loss) for p, d, loss in ends], ledger=""
        ).ease

    assert ease(5.3, 3.3) == pytest.approx(1.5, abs=0.2) and ease(5.3, 4.8) == 0.0


def test_the_rows_in_use_are_those_of_the_ledgers_that_they_name(script: ModuleType) -> None:
    (pattern,) = {law.ledger for law in LAWS.values()}
    found: dict[Any, list[Any]] = {}
    for kind, point in script.points(line for path in sorted((FOLDER / "results").glob(pattern)) for line in script.lines(path)):
        found.setdefault(kind, []).append(point)
    for kind, law in LAWS.items():
        again = script.fitted(kind.exercise, found[kind], ledger=law.ledger)
        assert again[5:9] == pytest.approx(law[5:9], rel=0.02) and again.ledger == law.ledger, kind
        assert script.misses(again, found[kind]) == pytest.approx(script.misses(law, found[kind]), abs=0.02), kind
