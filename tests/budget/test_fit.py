"""A recipe fitted to a budget: the laws, what they leave alone, and runs that keep their fit."""

from __future__ import annotations

import json
from importlib import resources
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from cloze.batching import Data
from cloze.budget.facts import BudgetFacts
from cloze.budget.fit import HELD_OUT_ROWS, can_be_fitted, fit, fit_vocabulary
from cloze.budget.fit_words import learns_words
from cloze.checkpoint.build import build_part
from cloze.checkpoint.feeds import first_length
from cloze.recipe.canonical import to_yaml
from cloze.recipe.load import load_recipe, recipe_names
from cloze.runs.options import PretrainOptions
from cloze.runs.request import to_be_fitted
from cloze.runs.run import pretrain

SMALL = BudgetFacts(budget_tokens=8e6, text_tokens=6_000_000)
OFTEN = BudgetFacts(budget_tokens=6e8, text_tokens=6_000_000)  # a hundred passes over the text
COMPARING = ("two-tower", "two-tower-links", "orqa", "cbt")  # their objectives compare the rows of an update with each other


def values(name: str, facts: BudgetFacts = SMALL, *overrides: str) -> dict[str, object]:
    return {change.path: change.fitted for change in fit(load_recipe(name, size="mini", overrides=list(overrides)), facts)}


def test_bert_in_ten_minutes_takes_small_batches_short_rows_and_a_higher_rate_without_dropout() -> None:
    assert values("bert") == {
        "schedule[1].set.length": 128, "training.batch": 20, "training.rate.linear.peak": 5e-4,
        "training.rate.linear.warmup_steps": 0, "training.rate.linear.warmup": 0.1, "training.rate.linear.decay": "after_warmup",
        "training.optimizer.adamw.betas": [0.9, 0.98], "networks.main.dropout": 0.0, "networks.main.initial.std": 0.035,
        "networks.main.initial.offsets": [-1, 1, -2, 2],
    }


def test_reasons_count_updates_and_readings_in_the_budget() -> None:
    why = {change.path: change.why for change in fit(load_recipe("roberta", size="mini"), BudgetFacts(4e5, 10**6))}
    assert why["training.batch"] == "781 updates instead of less than one"  # of 4 and 8,192 rows of 128 tokens
    steps = {
        change.path: change.why
        for change in fit(load_recipe("roberta", size="mini"), BudgetFacts(61_440, 10**6, updates=60))
    }
    assert steps["training.batch"] == "60 updates; the batch is that for 61,440 tokens"
    assert why["networks.main.dropout"] == "the budget is 0.4 times the text: too few passes to overfit"


def test_the_batch_grows_with_the_budget_up_to_the_published_one() -> None:
    batches = [values("bert", BudgetFacts(tokens, 10**12))["training.batch"] for tokens in (1e6, 1e7, 1e8)]
    assert batches == [8, 24, 64]
    assert "training.batch" not in values("bert", BudgetFacts(1e12, 10**12))


def test_rows_that_are_only_compared_with_each_other_are_sixty_four_at_least() -> None:
    batches = {
        name: values(name, BudgetFacts(1e6, 10**12))["training.batch"]
        for name in ("two-tower", "two-tower-links", "infoword")
    }
    assert batches == {"two-tower": 64, "two-tower-links": 64, "infoword": 8}  # infoword predicts masked tokens, too
    assert "training.batch" not in values("cbt", BudgetFacts(1e6, 10**12))  # of 64 rows


def test_a_text_that_is_read_often_keeps_its_dropout() -> None:
    assert "networks.main.dropout" not in values("bert", BudgetFacts(8e6, 100_000))


def test_dropout_that_tells_two_readings_of_a_text_apart_is_kept(tmp_path: Path) -> None:
    text = (resources.files("cloze") / "recipes" / "sentences" / "simcse.yaml").read_text(encoding="utf-8")
    own = "text: {tokenizer: {wordpiece: {size: 1000}}}\norder: open\nreading: {single: '[CLS] {A} [SEP]', summary: first}\n"
    network = "network: {transformer: {layers: 2, width: 64, heads: 2, dropout: 0.1}}"
    started = "network: {from: start, change: [arguments: {to: {dropout: 0.1}}]}"
    assert started in text
    (tmp_path / "twins.yaml").write_text(own + text.replace(started, network), encoding="utf-8")
    assert "networks.main.dropout" not in values(str(tmp_path / "twins.yaml"), BudgetFacts(1e5, 10**6))
    changed = text.replace("  - frame: {in: twin", "  - delete: {in: twin, rate: 0.5}\n  - frame: {in: twin")
    (tmp_path / "changed.yaml").write_text(own + changed.replace(started, network), encoding="utf-8")
    assert values(str(tmp_path / "changed.yaml"), BudgetFacts(1e5, 10**6))["networks.main.dropout"] == 0.0


def test_networks_with_norms_before_their_layers_take_a_higher_rate_and_two_networks_that_of_the_wider_one() -> None:
    post, pre = values("bert")["training.rate.linear.peak"], values("gpt2")["training.rate.cosine.peak"]
    both = values("electra-base", BudgetFacts(6e5, 10**7))["training.rate.linear.peak"]
    assert (post, pre, both) == (5e-4, 2.1e-3, 5e-4)


def test_the_peak_of_electra_falls_with_the_budget_to_a_quarter() -> None:
    budgets = [BudgetFacts(tokens, 10**12) for tokens in (3e5, 6e5, 3e6, 2e7, 1e8)]
    peaks = [values("electra-base", facts)["training.rate.linear.peak"] for facts in budgets]
    assert peaks == [5e-4, 5e-4, 1.9e-4, 1.3e-4, 1.3e-4]  # of width 256
    assert values("electra-small", BudgetFacts(1e7, 10**12))["training.rate.linear.peak"] == 2.2e-4  # 5e-4 at 128 rows, here 24


def test_post_norm_networks_that_read_in_one_direction_take_twice_the_peak() -> None:
    """But not with a memory of earlier rows, as Transformer-XL, which may then learn nothing for a long time."""
    peaks = [values(name)["training.rate.cosine.peak"] for name in ("gpt", "transformer-xl")]
    assert (values("unilm")["training.rate.linear.peak"], peaks) == (6e-4, [1.2e-3, 6e-4])  # all of width 256
    why = {change.path: change.why for change in fit(load_recipe("gpt", size="mini"), SMALL)}
    assert why["training.rate.cosine.peak"] == "width 256, post-norm layers, read in one direction, gpt_adam"


def test_rows_with_a_second_text_and_updates_of_lamb_come_in_half_the_batch_and_those_of_sgd_in_a_quarter() -> None:
    names, budgets = ("modern", "mass", "nezha", "lstm"), [BudgetFacts(tokens, 10**12) for tokens in (1e5, 8e5, 1e7)]
    batches = {name: [values(name, facts).get("training.batch") for facts in budgets] for name in names}
    assert batches == {"modern": [4, 8, 24], "mass": [2, 4, 12], "nezha": [2, 4, 12], "lstm": [2, 6, None]}  # published: 20


def test_gpt_2_gets_eight_rows_at_least_and_rotary_or_masked_or_post_norm_networks_do_not() -> None:
    names, budgets = ("gpt2", "gpt3", "quick-gpt", "gpt", "bert"), [BudgetFacts(tokens, 10**12) for tokens in (1e5, 6e5, 2e6)]
    batches = {name: [values(name, facts)["training.batch"] for facts in budgets] for name in names}
    assert batches["gpt2"] == batches["gpt3"] == [8, 8, 12]
    assert batches["quick-gpt"] == batches["gpt"] == batches["bert"] == [4, 8, 12]


def test_held_out_losses_take_a_twentieth_of_a_small_budget() -> None:
    """Of 256 rows of 128 tokens, read forward: 65,536 of them cost as much as 21,845 tokens of training."""
    every = [values("bert", BudgetFacts(tokens, 6_000_000)).get("training.evaluate_every") for tokens in (4e4, 1e6, 2e6, 3e6)]
    assert every == [0.3333, 0.25, 0.1111, None]  # published: 0.1
    assert signature(Data).parameters["held_out_rows"].default == HELD_OUT_ROWS


def test_what_a_network_remembers_and_a_row_repeats_shrinks_with_the_row() -> None:
    """253 tokens and the three of the frame are the 256 that the network reuses: 61 and three are 64."""
    made = values("xlnet-base")
    assert (made["sources.main.length"], made["sources.main.reuse"]) == (128, 61)
    assert (made["networks.main.memory.reuse"], made["networks.main.memory.size"]) == (64, 96)
    assert not any("reuse" in path or "memory" in path for path in values("awd-lstm"))


def test_recurrent_networks_bear_a_high_rate_of_adam() -> None:
    peaks = [values(name)["training.rate.constant.peak"] for name in ("siatl", "context2vec", "skip-thought")]
    assert peaks == [3.5e-3, 5e-3, 3.5e-3]  # of 256, 128 and 256 numbers


def test_lamb_takes_one_peak_at_every_width_of_post_norm_layers_and_its_published_one_before_norms() -> None:
    assert [values(name)["training.rate.linear.peak"] for name in ("albert-base", "nezha")] == [6e-3, 6e-3]
    assert "training.rate.cosine.peak" not in values("gpt-bert")


def test_descent_keeps_its_published_peaks_on_recurrent_networks_and_looks_at_held_out_text_twenty_times() -> None:
    made = values("awd-lstm")
    assert made["training.evaluate_every"] == 0.05 and not any("rate" in path and "peak" in path for path in made)
    assert {path for path in made if "dropout" in path} == {
        f"networks.main.dropout.{name}" for name in ("output", "hidden", "input", "weight", "word")
    }
    assert "training.rate.plateau.warmup" not in values("cove")


def test_values_that_a_user_keeps_stay_and_the_others_go_by_them() -> None:
    free = {change.path: change.fitted for change in fit(load_recipe("bert", size="mini"), SMALL)}
    kept = {change.path: change.fitted for change in fit(load_recipe("bert", size="mini"), SMALL, fixed_paths=["training.batch"])}
    assert free["training.rate.linear.warmup"] == 0.1 and "training.batch" not in kept
    assert kept["training.rate.linear.warmup"] == pytest.approx(0.3)  # 244 updates of 256 rows, of which 100 warm up


@pytest.mark.parametrize("name", recipe_names())
def test_every_fit_is_legal_and_fits_no_further(name: str) -> None:
    recipe = load_recipe(name, size="tiny")
    facts = OFTEN if learns_words(recipe) else SMALL
    changes = [*fit_vocabulary(recipe, 25_000_000), *fit(recipe, facts)]
    if not can_be_fitted(recipe):
        assert fit(recipe, facts) == []
        return
    sets = [f"stages.{recipe.stages[-1].name}.{c.override}" if recipe.stages else c.override for c in changes]
    made = load_recipe(name, size="tiny", overrides=sets)
    for part in [*made.sources.values(), made.training.rate, made.training.optimizer]:
        build_part(part)
    assert fit(made, facts) == [] and fit_vocabulary(made, 25_000_000) == []
    assert learns_words(recipe) or made.hash != recipe.hash
    most = 20 * 128 + 2 * first_length(made) if name not in COMPARING else 64 * 128
    assert learns_words(recipe) or made.training.batch * first_length(made) <= most


def test_a_network_without_layers_beside_the_exported_one_does_not_keep_a_recipe_from_being_fitted() -> None:
    assert can_be_fitted(load_recipe("unicoder")) and values("unicoder")["training.batch"] == 20  # 256 tokens a row are 128 here
    assert not can_be_fitted(load_recipe("lsa")) and not can_be_fitted(load_recipe("transe"))


def test_what_is_published_and_what_a_user_wrote_is_left_alone(tmp_path: Path) -> None:
    recipe = load_recipe("bert")

    def asked(name: str = "bert", budget: str | None = None, size: str | None = None) -> bool:
        return to_be_fitted(PretrainOptions(name, (), budget=budget, size=size), recipe)

    assert not asked() and not asked(budget="1000000steps")
    assert asked(budget="10m") and asked(size="mini")
    assert not asked(str(tmp_path / "mine.yaml"), budget="10m", size="mini")
    assert to_be_fitted(PretrainOptions("mine.yaml", (), fit=True), recipe)
    assert not to_be_fitted(PretrainOptions("bert", (), budget="10m", fit=False), recipe)


def test_a_recipe_of_ones_own_is_fitted_on_demand_and_resumes_fitted(little_text: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(to_yaml(load_recipe("bert", overrides=["text.tokenizer.size=60", "exercise.mask.rate=0.4"]).canonical()))
    said: list[str] = []
    sets = ["training.held_out=0.1", "length=32"]
    run = {"corpus": little_text, "size": "tiny", "overrides": sets, "device": "cpu", "report": said.append}

    def pretrained(out: str, **more: Any) -> Any:
        assert pretrain(mine, out=tmp_path / out, **run, **more).finished  # type: ignore[arg-type]
        return json.loads((tmp_path / out / "cloze/run.json").read_text())

    fitted = pretrained("fitted", budget="1000tokens", fit=True)
    assert fitted["recipe"]["training"]["batch"] == 4 and fitted["recipe"]["exercise"][2]["mask"]["rate"] == 0.4
    assert any(line.startswith("bert fitted to 1000tokens") for line in said) and not any("hint: " in line for line in said)
    assert pretrained("fitted", budget="2000tokens", extend=True)["fitted"] == fitted["fitted"] != []
    written = pretrained("written", budget="1steps")
    assert written["fitted"] == [] and written["recipe"]["training"]["batch"] == 256
    assert said[-1].startswith("hint: ") and said[-1].endswith("--fit fits the recipe to its budget.")


def test_fit_says_so_where_it_changes_nothing(little_text: Path, tmp_path: Path) -> None:
    said: list[str] = []
    pretrain("lsa", corpus=little_text, out=tmp_path / "run", fit=True, device="cpu", report=said.append)
    assert "lsa: --fit changes nothing: this kind of network is not fitted. It is trained as written." in said


def test_a_fitted_run_says_what_it_changed_resumes_with_it_and_set_wins(little_text: Path, tmp_path: Path) -> None:
    said: list[str] = []
    sets = ["text.tokenizer.size=60", "training.rate.linear.peak=3e-3", "training.held_out=0.1", "length=32"]
    run = {"corpus": little_text, "size": "tiny", "overrides": sets, "device": "cpu", "report": said.append}
    assert pretrain("bert", out=tmp_path / "run", budget="1000tokens", **run).finished  # type: ignore[arg-type]
    record = json.loads((tmp_path / "run/cloze/run.json").read_text())
    assert "training.batch=4" in record["fitted"] and not any("peak" in value for value in record["fitted"])
    assert record["recipe"]["training"]["rate"]["linear"]["peak"] == 3e-3 and record["recipe"]["training"]["batch"] == 4
    assert any("training.batch" in line and "256 → 4" in line and "--set training.batch=4" in line for line in said)
    more = pretrain("bert", out=tmp_path / "run", budget="2000tokens", extend=True, **run)  # type: ignore[arg-type]
    assert more.finished and json.loads((tmp_path / "run/cloze/run.json").read_text())["fitted"] == record["fitted"]
    published = pretrain("bert", out=tmp_path / "as", budget="1steps", fit=False, **run)  # type: ignore[arg-type]
    kept = json.loads((published.folder / "cloze/run.json").read_text())
    assert kept["fitted"] == [] and kept["recipe"]["training"]["batch"] == 256
