"""What a budget buys, told before it is spent: `cloze pretrain --plan`, the lines of a run, and `cloze show --budget`."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cloze
from cloze.budget import expected as laws
from cloze.budget.expected import Law, RunKind
from cloze.cli.main import main
from cloze.corpus import Store
from cloze.corpus.stores.build import build_store, train_tokenizer_from
from cloze.errors import BudgetError, CheckpointError, UserError
from cloze.recipe.canonical import to_yaml
from cloze.recipe.load import load_recipe
from cloze.runs import planning
from cloze.runs.corpora import trainable
from cloze.runs.options import PretrainOptions
from cloze.runs.plan import Plan, Plans, ways_out
from cloze.runs.planning import fitted_recipe, plan
from cloze.runs.run import pretrain
from cloze.training.forecasting.forecast import SHARE, Forecast
from cloze.training.run import Run
from cloze.training.schedule.budget import Budget

SLOW = Law(1e9, 0.2, 2.0, 0.2, 0.3, scatter=0.1, least=1e3, most=1e9, runs=3, ledger="none")
TINY = {"size": "tiny", "device": "cpu"}


@pytest.fixture(scope="module")
def store(little_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small text under a WordPiece of its own."""
    spec = trainable(load_recipe("bert", overrides=["text.tokenizer.size=60"]).texts["main"])
    folder = tmp_path_factory.mktemp("plan") / "store"
    build_store([little_text], train_tokenizer_from([little_text], spec), folder, workers=1)
    return folder


@pytest.fixture(scope="module")
def planned(store: Path) -> Plan:
    (found,) = plan("bert", corpus=store, budget="40000tokens", overrides=["training.held_out=0.1"], **TINY)  # type: ignore[arg-type]
    return found


def test_a_plan_tells_the_fit_the_forecast_and_the_losses_to_expect(planned: Plan, store: Path) -> None:
    told = str(planned).splitlines()
    assert told[0] == "plan of bert for 40000tokens: nothing is trained or written."
    assert told[1].startswith("bert fitted to 40000tokens, about 40 k tokens (recipe → fitted")
    assert any(line.split()[:2] == ["training.batch", "256"] and "→ 4" in line for line in told)
    assert any("--set training.batch=4 " in line for line in told)
    assert any(line.startswith("forecast: ") and " updates of 4 rows" in line and "GB of memory" in line for line in told)
    tokens = len(Store.open(store).tokens)
    assert any(line.startswith("text: ") and line.endswith(f"read {planned.forecast.epochs:.3g} times") for line in told)  # type: ignore[union-attr]
    assert planned.text_tokens == tokens
    masked = planned.prospects[0]
    assert masked.name == "token_prediction" and masked.kind == RunKind("masked", "offsets") and masked.expected is not None
    assert any(line.startswith("  token_prediction: single tokens ") and "expected held-out loss " in line for line in told)
    assert any(line.startswith("  relation_prediction: constant prediction ") for line in told)


def test_a_notebook_shows_a_plan_with_the_losses_as_a_table(planned: Plan) -> None:
    html, repeated = Plans([planned])._repr_html_(), repr(Plans([planned, planned]))
    assert repeated == f"{planned}\n\n{planned}"
    assert html.startswith("<pre") and ">plan of bert for 40000tokens" in html
    assert html.count("<tr>") == 1 + len(planned.prospects) == 3
    assert f"<td>token_prediction</td><td>{planned.prospects[0].expected}</td>" in html
    assert html.count("token_prediction") == 1, "the text leaves out what the table has"


def test_a_plan_reads_as_many_rows_at_once_as_fit_into_memory(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = planning.forecast

    def short(run: Run, **given: Any) -> Forecast:
        told = real(run, **given)
        return replace(told, available=int(told.peak(2) / SHARE) + 2)

    monkeypatch.setattr(planning, "forecast", short)
    (found,) = plan("bert", corpus=store, budget="2steps", **TINY)  # type: ignore[arg-type]
    assert found.forecast is not None and found.forecast.micro_batch == 2 and "rows, 2 at once, " in str(found)


def test_a_text_that_is_read_very_often_teaches_what_sixteen_of_it_would_and_the_plan_says_so(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"corpus": store, "budget": "2Mtokens", **TINY}
    (found,) = plan("quick", **asked)  # type: ignore[arg-type]
    told = found.forecast
    assert told is not None and found.often == told.epochs and told.epochs > 40
    assert f"  The text is read {told.epochs:,.0f} times. After 16 passes" in str(found) and "More text would help." in str(found)
    once = told.tokens / told.epochs  # type: ignore[operator]
    (masked,) = found.prospects
    assert masked.expected == masked.after(once * (1 + 15.4 * (1 - math.exp((1 - told.epochs) / 15.4)))).expected
    (little,) = plan("quick", **{**asked, "budget": "4epochs"})  # type: ignore[arg-type]
    assert little.often is None and "More text" not in str(little)


def test_a_plan_says_that_no_held_out_loss_is_measured_where_the_text_has_too_few_documents(
    planned: Plan, tmp_path: Path
) -> None:
    text = tmp_path / "one.txt"
    text.write_text("the cat saw a dog .\n" * 200, encoding="utf-8")
    given = {"corpus": text, "text_format": "sentence", "budget": "2steps", "overrides": ["text.tokenizer.size=40"], **TINY}
    told = "Nothing is held out of so few documents, so no held-out loss is measured. Give text with --held-out."
    (alone,) = plan("quick", **given)  # type: ignore[arg-type]
    (given_apart,) = plan("quick", held_out=[str(text)], **given)  # type: ignore[arg-type]
    assert [told in str(found) for found in (alone, given_apart, planned)] == [True, False, False]


def test_planning_writes_nothing(little_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "text.txt"
    text.write_bytes(little_text.read_bytes())
    (found,) = cloze.plan("bert", corpus=text, budget="2steps", overrides=["text.tokenizer.size=60"], **TINY)
    assert found.forecast is not None and found.forecast.updates == 2
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_texts_in_memory_are_planned_and_no_command_names_a_file_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "LAWS", {RunKind("masked", "offsets"): SLOW})
    monkeypatch.setattr(laws, "REPEATED", 1e12)  # each pass teaches as much as the first
    texts = [f"the cat saw {number} dogs ." for number in range(40)]
    values = {"text.tokenizer.size": 60, "length": 256, "training.batch": 4}
    (in_memory,) = cloze.plan("bert", corpus=texts, budget="5Mtokens", overrides=values, **TINY)
    assert in_memory.forecast is not None and in_memory.ways
    assert all(" --corpus TEXT " in way and "cloze-plan" not in way for way in in_memory.ways)
    with pytest.raises(TypeError, match=r"^plan\(\) got an unexpected keyword argument 'sise'. Did you mean 'size'\?$"):
        cloze.plan("bert", corpus=texts, sise="tiny")


def test_where_a_budget_buys_nothing_the_plan_names_what_would_help_with_the_command(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laws, "LAWS", {RunKind("masked", "offsets"): SLOW})
    monkeypatch.setattr(laws, "REPEATED", 1e12)  # each pass teaches as much as the first
    given = {"overrides": ["length=256", "training.batch=4"], **TINY}
    (found,) = plan("bert", corpus=store, out="my run", budget="5Mtokens", **given)  # type: ignore[arg-type]
    assert found.nothing and "This budget teaches next to nothing" in str(found)
    shorter, longer = found.ways
    start, sets = f"cloze pretrain bert --size tiny --corpus {store}", "--set length=256 --set training.batch=4"
    assert shorter.startswith("shorter rows (128 instead of 256 tokens)")
    assert shorter.endswith(f"{start} --budget 5Mtokens {sets} --set length=128 --device cpu --out 'my run'")
    assert longer.endswith(f"{start} --budget 5000Mtokens {sets} --device cpu --out 'my run'")
    better = found.prospects[0].after(1e12)
    assert (better.gap or 0) > 0.3 and not replace(found, prospects=(better,)).nothing


def test_a_published_batch_is_judged_by_its_updates_and_a_smaller_one_helps(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laws, "LAWS", {RunKind("masked", "offsets"): SLOW._replace(tokens=1e4)})
    given = {"budget": "400000tokens", "fit": False, "overrides": ["length=128"], **TINY}
    (found,) = plan("bert", corpus=store, **given)  # type: ignore[arg-type]
    told = found.forecast
    assert told is not None and found.worth is not None and found.worth < 0.1 * told.tokens and found.nothing  # type: ignore[operator]
    fitted, smaller = found.ways[:2]
    said = re.match(r"smaller batches \((\d+) rows instead of 256\) and therefore more updates:", smaller)
    assert said is not None and 4 <= int(said[1]) <= 32  # tokens per row are those of the rows that there was time to try
    assert f" --set length=128 --set training.batch={said[1]} --as-published --device cpu --out RUN" in smaller
    assert fitted.startswith("values fitted to this budget instead of those of the recipe, expected token_prediction ")
    assert fitted.endswith("--budget 400000tokens --set length=128 --device cpu --out RUN")
    mine = PretrainOptions("mine.yaml", ["text"], budget="400000tokens", size="tiny")
    assert ways_out(found, mine, vocab_size=8000, text_bytes=None)[0].endswith(f"{mine.command(fit=True)}")
    assert mine.command(fit=True).endswith("--budget 400000tokens --fit --out RUN")


def test_a_smaller_network_that_reads_more_in_the_same_time_is_a_way_out(
    planned: Plan, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laws, "LAWS", {RunKind("masked", "offsets"): SLOW._replace(tokens=3e8, size=0.0)})
    large = load_recipe("bert")
    now = replace(planned.prospects[0], parameters=85_000_000).after(1e7)
    forecast = replace(planned.forecast, tokens=1e7, updates=4000.0, epochs=1.0)  # type: ignore[type-var]
    slow = replace(planned, recipe=large, budget=Budget("seconds", 600.0), fitted=None, forecast=forecast, prospects=(now,))
    smaller = ways_out(slow, PretrainOptions("bert", ["text"], budget="10m"), vocab_size=8000, text_bytes=None)[0]
    assert smaller.startswith("a smaller network: about ") and "cloze pretrain bert --size tiny --corpus text" in smaller
    (pieces,) = [
        way for way in ways_out(slow, PretrainOptions("bert", ["text"]), vocab_size=30522, text_bytes=1e6) if "vocabulary" in way
    ]
    assert "(2,000 instead of 30,522 ids)" in pieces and "--set text.tokenizer.size=2000 --out RUN" in pieces
    encoded = PretrainOptions("bert", [str(store)], seed=1)
    (again,) = [way for way in ways_out(slow, encoded, vocab_size=30522, text_bytes=1e6) if "vocabulary" in way]
    assert again.endswith("cloze corpus build TEXT --recipe bert --size 2000 --out STORE")
    given = replace(encoded, tokenizer=Path("folder"))
    assert not any("vocabulary" in way for way in ways_out(slow, given, vocab_size=30522, text_bytes=1e6))


def test_values_of_the_user_win_and_the_others_go_by_them(store: Path) -> None:
    made, _ = fitted_recipe("bert", "2Mtokens", corpus=store, overrides=["training.batch=64", "length=64"], **TINY)  # type: ignore[arg-type]
    assert made.recipe.training.batch == 64 and not any("batch" in value or "length" in value for value in made.overrides)
    warmup = next(change for change in made.changed_values if change.path.endswith(".warmup"))
    assert warmup.fitted == 0.2 and warmup.why == "98 updates"  # of 2,000,000 / (64 · 64), at least a hundred


def test_a_run_says_what_to_expect_before_its_first_step(store: Path, tmp_path: Path) -> None:
    said: list[str] = []
    given = {"corpus": store, "out": tmp_path / "run", "budget": "2steps", "report": said.append, **TINY}
    pretrain("bert", **given)  # type: ignore[arg-type]
    (told,) = [text for text in said if text.startswith("reference losses, before the first step:")]
    assert "token_prediction: single tokens " in told and "expected held-out loss " in told
    with pytest.raises(CheckpointError, match="already holds a run"):
        plan("bert", corpus=store, out=tmp_path / "run", budget="2steps")


def test_factorisations_and_several_processes_are_not_forecast_and_the_plan_says_so(
    little_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = plan("lsa", corpus=little_text, budget="1epochs", overrides=["text.tokenizer.min_count=1"])
    assert found.forecast is None and "no forecast of time and memory, because the speed of the compiled engine" in str(found)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="leave torchrun out"):
        plan("bert", corpus=little_text)


def test_every_stage_has_a_plan_of_its_own(little_text: Path) -> None:
    plans = plan("ulmfit", corpus=little_text, binds=[f"domain={little_text}"], budget="8000tokens", **TINY)  # type: ignore[arg-type]
    assert [found.budget.amount for found in plans] == [6000, 2000]
    assert all(found.fitted is not None and found.fitted.changed_values for found in plans)
    assert "--set stages.general.networks.main.dropout=0.0" not in str(plans[1])
    assert "--set stages.domain." in str(plans[1])


def test_no_loss_of_a_new_network_is_expected_where_a_stage_goes_on_with_the_weights_of_another(store: Path) -> None:
    first, second = plan("scibert", corpus=store, budget="8000tokens", **TINY)  # type: ignore[arg-type]
    assert (first.prospects[0].expected is None, second.prospects[0].expected is None) == (False, True)
    assert "expected" not in str(second) and "single tokens" in str(second) and not second.nothing


def test_a_plan_names_what_it_does_not_predict(store: Path, little_text: Path) -> None:
    (replaced,) = plan("electra-small", corpus=store, budget="2steps", **TINY)  # type: ignore[arg-type]
    assert "  token_labelling: not predicted; the run itself makes its right answers" in str(replaced).splitlines()
    words = {"corpus": little_text, "budget": "2steps", "overrides": ["text.tokenizer.min_count=1"], **TINY}
    (sampled,) = plan("context2vec", **words)  # type: ignore[arg-type]
    assert str(sampled).endswith("\n  loss: not predicted; it cannot be compared with that of token or label frequencies")


def test_the_command_prints_a_plan_and_a_run_needs_a_folder(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pretrain", "bert", "--size", "tiny", "--corpus", str(store), "--budget", "2steps", "--device", "cpu"]
    assert main([*words, "--plan"]) == 0
    assert capsys.readouterr().out.startswith("plan of bert for 2steps: nothing is trained or written.\n")
    assert main(words) == 2
    assert "--out is missing" in capsys.readouterr().err


def test_show_prints_the_fitted_recipe_which_is_a_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "gpt2", "--budget", "8Mtokens", "--size", "mini"]) == 0
    shown = capsys.readouterr().out
    assert "\n# gpt2 fitted to 8Mtokens, about 8 M tokens" in shown and "# for a text that is read once.\n" in shown
    (tmp_path / "mine.yaml").write_text(shown, encoding="utf-8")
    made, _ = fitted_recipe("gpt2", "8Mtokens", size="mini")
    assert load_recipe(tmp_path / "mine.yaml").hash == made.recipe.hash != load_recipe("gpt2", size="mini").hash
    assert made.recipe.training.batch == 20


def test_a_budget_in_seconds_is_timed_on_random_text_and_one_in_epochs_needs_a_text() -> None:
    made, by = fitted_recipe("bert", "60s", **TINY)  # type: ignore[arg-type]
    assert by == "for a text that is read once, timed on random text"
    assert made.tokens is not None and 1e3 < made.tokens < 1e8 and made.recipe.training.batch < 256
    with pytest.raises(BudgetError, match="Give the text with --corpus"):
        fitted_recipe("bert", "3epochs")


def test_a_recipe_that_reads_more_than_a_text_is_fitted_to_tokens_or_planned_on_its_data(little_text: Path) -> None:
    way_out = "Give a budget in tokens, or plan a run on your data: cloze pretrain unicoder --corpus … --budget … --plan"
    for corpus in (None, little_text):
        with pytest.raises(BudgetError) as caught:
            fitted_recipe("unicoder", "10m", corpus=corpus, **TINY)  # type: ignore[arg-type]
        assert str(caught.value).endswith(way_out)
    with pytest.raises(BudgetError, match=r"kg-bert: cannot be timed on random text \(\d+ cells, expected 3 "):
        fitted_recipe("kg-bert", "10m", **TINY)  # type: ignore[arg-type]
    assert fitted_recipe("unicoder", "2Mtokens", **TINY)[0].changed_values  # type: ignore[arg-type]


def test_what_is_not_fitted_is_shown_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(to_yaml(load_recipe("bert").canonical()), encoding="utf-8")
    made, by = fitted_recipe(tmp_path / "mine.yaml", "10m")
    assert not made.changed_values and by == "bert is a recipe of your own, fitted only with --fit: a run trains it as written"
    assert fitted_recipe(tmp_path / "mine.yaml", "8Mtokens", fit=True)[0].recipe == fitted_recipe("bert", "8Mtokens")[0].recipe
    for given, why in (({"budget": "8Mtokens", "fit": False}, "is kept as published"),
                       ({"budget": "1000000steps"}, "was published with this budget")):
        made, by = fitted_recipe("bert", **given)  # type: ignore[arg-type]
        assert not made.changed_values and by == f"bert {why}: a run trains it as written"
    made, by = fitted_recipe("lsa", "10m")
    assert not made.changed_values and by == "lsa has a kind of network that is not fitted: a run trains it as written"


def test_a_command_is_written_as_a_shell_reads_it() -> None:
    asked = PretrainOptions("bert", ["a b.txt", "c.txt"], "RUN", "10m", None, ("optimizer.betas=[0.9, 0.98]",))
    assert asked.command(size="tiny") == (
        "cloze pretrain bert --size tiny --corpus 'a b.txt' --corpus c.txt --budget 10m "
        "--set 'optimizer.betas=[0.9, 0.98]' --out RUN"
    )
    assert asked.command(budget="2h").count("--size") == 0


def test_a_plan_without_a_law_says_so(planned: Plan) -> None:
    masked = replace(planned.prospects[0], expected=None)
    assert str(masked).endswith("expected held-out loss unknown: no such exercise has been measured")
    assert not replace(planned, prospects=(masked,)).nothing
