"""What a finding looks like: the sentence, the table, the page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from cloze.comparison.figures import SeedScores, spreads
from cloze.comparison.page import render, write_page
from cloze.comparison.sentence import as_csv, as_data, sentence, table
from cloze.reports.figures import duration, plain
from tests.pages import Outline, needs_browser, title_in_browser

from .made import finding


def test_the_page_begins_with_the_answer_and_refers_to_nothing_outside() -> None:
    answer = finding()
    html = render(answer, command="cloze compare …")
    page = Outline(html)
    assert page.headings == [
        sentence(answer), "Scores", "By task", "Which differences are significant", "Cost", "Held-out loss", "Failed"
    ]  # fmt: skip
    assert page.addresses == [] and not re.search(r"https?://|@import|url\(", html)
    assert html.index("</h1>") < html.index('<svg class="spreads"') < html.index("<h2>")
    assert "names-xlnet-base-20Mtokens-seed2" in html and "not finite at step 120" in html


def test_the_sentence_says_which_is_best_by_how_much_or_that_they_are_not_told_apart() -> None:
    assert re.fullmatch(
        r"electra-base is best: \d\d\.\d \(mean score over 2 tasks, 3 seeds, 20M tokens each\), \d+\.\d points above bert "
        r"\(95 % interval \d+\.\d to \d+\.\d; corrected p (= 0\.0\d\d|< 0\.001)\)\.",
        sentence(finding(qualities={"electra-base": 0.85, "bert": 0.6})),
    )
    assert re.match(
        r"a scores highest, \d\d\.\d \(.*\), but not significantly higher than b; it is better than c\.",
        sentence(finding(qualities={"a": 0.8, "b": 0.799, "c": 0.4})),
    )
    assert re.match(
        r"No significant difference: a and b score \d\d\.\d to \d\d\.\d \(.*\)\. With this many seeds and examples, differences "
        r"below about \d+\.\d points cannot be detected\.",
        sentence(finding(qualities={"a": 0.7, "b": 0.699})),
    )


def test_with_one_seed_the_headline_has_the_uncertainty_and_a_note_the_advice() -> None:
    answer = finding(qualities={"a": 0.8, "b": 0.4}, seeds=1, failed=False)
    assert re.fullmatch(
        r"No significant difference: a and b score \d\d\.\d to \d\d\.\d \(mean score over 2 tasks, 1 seed, 20M tokens each\)\. "
        r"With one seed, the spread over seeds is unknown\.",
        sentence(answer),
    )
    assert table(answer).splitlines()[-1] == "note: significant differences need 3 or more seeds; finished runs are kept"


def test_a_linear_model_on_n_grams_has_a_row_and_a_sentence() -> None:
    found = finding(qualities={"a": 0.8, "b": 0.4}, failed=False)
    answer = replace(found, ngrams={"sentiment": {"test": 0.9}, "names": {"test": 0.1}})
    assert re.match(r"a is best of the networks: .*\. A linear model on n-grams is better on 1 of 2 tasks\.$", sentence(answer))
    assert next(line for line in table(answer).splitlines() if line.startswith("n-grams")).split() == [
        "n-grams", "50.0", "90.0", "10.0"
    ]  # fmt: skip
    assert answer.data()["tasks"][0]["ngrams"] == {"test": 0.9} and "n-grams" in render(answer)
    below = sentence(replace(found, ngrams={"sentiment": {"test": 0.1}, "names": {"test": 0.1}}))
    assert below.startswith("a is best: ") and below.endswith("A linear model on n-grams is better on none of 2 tasks.")
    assert sentence(replace(found, ngrams={"names": {"test": 0.1}})).endswith("A linear model on n-grams is not better: 10.0.")


def test_the_table_counts_constant_runs_and_shows_the_usual_answer() -> None:
    lines = table(finding()).splitlines()
    assert lines[0].split("  ")[-1].strip() == "time" and "constant" in lines[0]
    assert re.search(r"2 of 6 ", next(line for line in lines if line.startswith("gpt2")))
    assert next(line for line in lines if line.startswith("constant answer")).split()[2:] == ["35.0", "50.0", "20.0"]
    constant = "note: 2 of 30 runs give one answer to every example: they have learned nothing"
    assert lines[-6:-4] == [constant, "note: 1 cell failed"]
    assert [line.split(":")[0].strip() for line in lines[-2:]] == ["log", "again"]


def test_several_budgets_show_what_each_system_spends_on_the_quality_that_all_reach() -> None:
    answer = finding()
    assert answer.reach is not None
    lines = table(answer).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("cost of a mean score of "))
    assert lines[first + 1 : first + 6] == [
        f"  {name}: {plain(cost.tokens)} tokens, {plain(cost.flops)} FLOPs, {duration(cost.seconds)}"
        for name in answer.reach.points if (cost := answer.reach.cost(name)) is not None
    ]  # fmt: skip
    assert as_data(answer)["reach"]["cost"].keys() == answer.reach.points.keys()


def test_csv_has_a_row_for_every_run_of_every_budget() -> None:
    rows = as_csv(finding()).splitlines()
    assert rows[0] == "system,budget,task,metric,seed,score,tokens,flops,seconds"
    assert len(rows) == 1 + 5 * 2 * 2 * 3


def test_the_finding_is_plain_json() -> None:
    data = json.loads(json.dumps(as_data(finding()), allow_nan=False))
    assert len(data["systems"]) == 10 and len(data["pairs"]) == 10 * 3 and data["failed"][0]["kind"] == "finetune"
    assert data["reach"]["cost"]["gpt2"]["tokens"] == pytest.approx(2e7)
    assert data["reach"]["cost"]["electra-base"]["tokens"] < 2e7


def test_names_cannot_become_markup() -> None:
    html = render(finding(qualities={"<script>alert(1)</script>": 0.7, "b": 0.6}))
    assert "<script>alert" not in html
    assert "<b>" not in spreads([SeedScores("<b>", [0.1, 0.2], 0)], title="<b>")


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_answer_and_figure_on_the_first_screen(width: int, tmp_path: Path) -> None:
    """Nothing is wider than the window, and the figure begins above the fold."""
    page = write_page(finding(), tmp_path)
    script = (
        "const box = document.querySelector('svg.spreads').getBoundingClientRect();"
        "document.title = [document.documentElement.scrollWidth, innerWidth, box.top, innerHeight].join()"
    )
    content, window, top, height = map(float, title_in_browser(page, script, width=width).split(","))
    assert content <= window and top < height
