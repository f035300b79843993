"""Word vectors fitted to a text and a budget: the laws, and runs that end where more passes teach nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloze.budget.facts import BudgetFacts
from cloze.budget.fit import fit, fit_vocabulary
from cloze.budget.fit_words import learns_words
from cloze.recipe.load import load_recipe
from cloze.runs.planning import fitted_recipe, plan
from cloze.runs.run import pretrain
from cloze.training.forecasting.pace import Pace, pace
from cloze.training.schedule.budget import Budget, Spent

SMALL = ["network.width=8", "text.tokenizer.min_count=1", "training.batch=4"]
FAST = Pace({"seconds": 1e-3, "epochs": 1.0, "tokens": 1000.0, "steps": 10.0})  # 60 seconds are 60,000 passes


def values(name: str, facts: BudgetFacts) -> dict[str, object]:
    return {change.path: change.fitted for change in fit(load_recipe(name), facts)}


def test_a_small_text_is_read_fifty_times_at_most_and_more_of_its_frequent_words_are_left_out() -> None:
    often, once, large = BudgetFacts(1e9, 5_000_000), BudgetFacts(5e6, 5_000_000), BudgetFacts(1e9, 500_000_000)
    assert values("word2vec-skipgram", often) == {"training.epochs": 50, "exercise[0].threshold": 1e-4}
    assert values("word2vec-cbow", once) == {"exercise[0].threshold": 1e-4}
    assert values("word2vec-cbow", large) == {}
    assert values("glove", often) == {"training.epochs": 20}


def test_rows_that_n_grams_share_go_by_the_text() -> None:
    assert values("fasttext", BudgetFacts(5e6, 5_000_000)) == {"networks.main.buckets": 1_000_000}
    assert values("fasttext", BudgetFacts(5e4, 1000)) == {"networks.main.buckets": 10_000}
    assert values("fasttext", BudgetFacts(5e8, 500_000_000)) == {}


def test_words_of_a_small_text_have_a_vector_from_the_second_time_on_but_for_those_of_counted_cells() -> None:
    def least(name: str, bytes_: int) -> dict[str, object]:
        return {change.path: change.fitted for change in fit_vocabulary(load_recipe(name), bytes_)}

    assert least("word2vec-skipgram", 25_000_000) == {"texts.main.tokenizer.min_count": 2}
    assert least("word2vec-skipgram", 100_000_000) == least("glove", 25_000_000) == {}


def test_factorisations_and_networks_are_no_word_vectors_by_passes() -> None:
    assert [name for name in ("lsa", "ppmi-svd", "bert", "nnlm") if learns_words(load_recipe(name))] == []


def test_a_budget_ends_with_its_passes_or_when_it_is_spent_whichever_is_first() -> None:
    budget = Budget("seconds", 60.0, max_epochs=50.0)
    assert budget.share(Spent(seconds=30.0, epochs=10.0)) == 0.5 and budget.share(Spent(seconds=3.0, epochs=50.0)) == 1.0
    assert budget.end(Spent(seconds=61.0, epochs=10.0)) == "the budget is spent" and str(budget) == "60seconds"


def test_the_pace_of_an_engine_tells_what_a_budget_buys(little_text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloze.runs import planning

    pytest.importorskip("numba")
    monkeypatch.setattr(planning, "pace", lambda run, engines: pace(run, engines, seconds=0.02))
    (found,) = plan("word2vec-skipgram", corpus=little_text, budget="3epochs", overrides=SMALL)
    told = found.forecast
    assert told is not None and told.updates is None and told.epochs == 3.0 and 0 < told.seconds < 3  # type: ignore[operator]
    assert told.tokens == pytest.approx(3 * found.text_tokens, rel=0.1) and "3 epochs" in str(told)
    assert "  quality of the vectors: not predicted; " in str(found)


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch) -> None:
    from cloze.budget import fitted

    pytest.importorskip("numba")
    monkeypatch.setattr(fitted, "pace", lambda run, engines: FAST)


def test_a_run_in_time_ends_after_the_passes_of_its_fit_and_says_so_and_resumes_with_them(
    little_text: Path, tmp_path: Path, paced: None
) -> None:
    said: list[str] = []
    given = {"corpus": little_text, "out": tmp_path / "run", "budget": "60s", "overrides": SMALL, "report": said.append}
    assert pretrain("word2vec-skipgram", **given).finished  # type: ignore[arg-type]
    assert any("training.epochs" in line and "5 → 50" in line and "60,000 passes" in line for line in said)
    assert any(line.startswith("forecast: ") and " 50 epochs, 0 s" in line for line in said)
    assert any("all 50 passes over the text are done (budget 1m) at step " in line for line in said)
    record = json.loads((tmp_path / "run/cloze/run.json").read_text())
    assert "training.epochs=50" in record["fitted"] and record["budget"] == "60seconds"
    steps = pretrain("word2vec-skipgram", **given).step  # type: ignore[arg-type]
    assert steps == json.loads((tmp_path / "run/cloze/log.jsonl").read_text().splitlines()[-1])["step"]
    end = "all 50 passes over the text are done (budget 1m). To continue, give --budget 100epochs and --extend."
    assert said[-1].endswith(end)
    more = pretrain("word2vec-skipgram", **{**given, "budget": "52epochs", "extend": True})  # type: ignore[arg-type]
    assert more.finished and steps < more.step < 1.1 * steps


def test_passes_that_a_user_sets_are_the_end_of_a_time_and_passes_as_a_budget_are_obeyed(
    little_text: Path, tmp_path: Path, paced: None
) -> None:
    given = {"corpus": little_text, "overrides": [*SMALL, "training.epochs=3"]}
    pretrain("word2vec-skipgram", out=tmp_path / "three", budget="60s", **given)  # type: ignore[arg-type]
    pretrain("word2vec-skipgram", out=tmp_path / "sixty", budget="60epochs", **given)  # type: ignore[arg-type]
    ends = [json.loads((tmp_path / name / "cloze/log.jsonl").read_text().splitlines()[-1]) for name in ("three", "sixty")]
    assert [round(end["epochs"]) for end in ends] == [3, 60]


def test_show_says_from_which_text_on_a_time_reads_it_fifty_times(monkeypatch: pytest.MonkeyPatch) -> None:
    from cloze.runs import planning

    monkeypatch.setattr(planning, "pace", lambda run, engines: FAST)
    _, by = fitted_recipe("word2vec-skipgram", "60s", overrides=["network.width=8"])
    assert by.startswith("for a text that is read once, timed on random text; on a text of fewer than ")
    assert by.endswith(" tokens the run ends after 50 passes")
