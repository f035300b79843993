"""reproductions/inside.py and distilling.py: what they read and train, and the tables of their ledgers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from cloze.recipe.load import load_recipe
from cloze.recipe.recipe import Recipe

SENTENCE = (
    '<instance id="line-n.1"><answer instance="line-n.1" senseid="cord"/>\n<context>\n'
    ' <wf pos="NN">he</wf> <wf pos="VBD">came</wf>\n'
    ' <wf pos="CC">&amp;</wf> <wf pos="VBD">cut</wf> <head> <wf pos="NNS">lines</wf></head> <wf pos=".">.</wf>\n'
    "</context></instance>"
)


def test_a_marked_word_stands_in_its_own_sentence_with_its_sense(script: Callable[[str], ModuleType]) -> None:
    (row,) = script("inside").marked(SENTENCE, "line")
    assert json.loads(row) == {"text": ["&", "cut", "lines", "."], "spans": [[2, 3]], "label": "line-cord"}


def test_a_table_of_probes_has_a_row_for_each_measure_and_network(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    inside = script("inside")
    ledger = inside.Ledger(tmp_path / "inside.jsonl")

    def add(network: str, probe: str, found: dict[str, Any], loss: dict[str, float]) -> None:
        tokens = None if network == "minilm" else "4Mtokens"
        ledger.add({"network": network, "tokens": tokens, "probe": probe, "most": 1}, {"loss": loss, "found": {network: found}})

    def measures(adjusted: list[float], shares: float) -> dict[str, Any]:
        explained = [f"{name}{end}" for name in ("uncentred", "centred", "truncated") for end in ("", " baseline")]
        return {"measures": {"adjusted": adjusted, **{name: [shares, number / 10] for number, name in enumerate(explained)}}}

    add("bert", "geometry", measures([0.9, 0.5], 0.75), {"token_prediction": 5.25})
    add("minilm", "geometry", measures([0.8, 0.25], 0.625), {})
    heads = {"measure": "loss", "shares": [0.0, 0.5], "curve": [5.0, 5.5], "random": [5.0, 6.0], "deviation": [0.0, 0.25]}
    add("bert", "heads", heads, {"token_prediction": 5.25})
    assert [line for line in inside.tables(ledger, "4Mtokens") if "bert" in line or "minilm" in line] == [
        "| bert | token_prediction 5.25 |",
        "| self-similarity minus baseline | bert | 0.900, 0.500 |",
        "| self-similarity minus baseline | minilm | 0.800, 0.250 |",
        "| variance explained, uncentred | bert | 0.750, 0.000 |",
        "| variance explained, uncentred | minilm | 0.625, 0.000 |",
        "| variance explained, uncentred baseline | bert | 0.750, 0.100 |",
        "| variance explained, uncentred baseline | minilm | 0.625, 0.100 |",
        "| variance explained, centred | bert | 0.750, 0.200 |",
        "| variance explained, centred | minilm | 0.625, 0.200 |",
        "| variance explained, centred baseline | bert | 0.750, 0.300 |",
        "| variance explained, centred baseline | minilm | 0.625, 0.300 |",
        "| variance explained, truncated | bert | 0.750, 0.400 |",
        "| variance explained, truncated | minilm | 0.625, 0.400 |",
        "| variance explained, truncated baseline | bert | 0.750, 0.500 |",
        "| variance explained, truncated baseline | minilm | 0.625, 0.500 |",
        "| bert, loss | 0% | 5.000 | 5.000 ± 0.000 |",
        "| bert, loss | 50% | 5.500 | 6.000 ± 0.250 |",
    ]


def written(distilling: ModuleType, variant: str, folder: Path) -> Recipe:
    file = folder / "student.yaml"
    file.write_text(distilling.recipe(variant), encoding="utf-8")
    return load_recipe(file)


def test_students_differ_in_what_the_teacher_shows_them_alone(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    distilling = script("distilling")
    found = {variant: written(distilling, variant, tmp_path) for variant in distilling.VARIANTS}
    objectives = {
        variant: [(run.network, one.part.name) for run in recipe.entries["main"].passes for one in run.objectives]
        for variant, recipe in found.items()
    }
    alone, shown = [("student", "token_prediction")], [("teacher", "token_prediction")]
    scores, attention = [("student", "match_scores")], [("student", "match_attention")]
    assert objectives == {
        "alone": alone,
        "scores": shown + alone + scores,
        "all scores": shown + alone + alone + scores,
        "alone, cut": alone,
        "scores, cut": shown + alone + scores,
        "attention": alone + attention + attention,
    }
    assert {recipe.training.batch for recipe in found.values()} == {12}
    assert {recipe.networks["student"].part is None for name, recipe in found.items() if "cut" in name} == {True}


def test_a_table_of_students_has_means_over_seeds(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    distilling = script("distilling")
    ledger = distilling.Ledger(tmp_path / "distilling.jsonl")
    for seed, loss in enumerate((5.0, 5.5, 6.0), 1):
        found = {"loss": loss, "correct": 0.25, "single": 7.0, "tokens": 2_000_000, "updates": 1000 * seed, "curve": []}
        ledger.add({"variant": "alone", "budget": "2m", "seed": seed}, found)
    assert list(distilling.table(ledger, "2m"))[2:] == ["| alone | 5.500 ± 0.500 | 1.50 | 25.0 ± 0.0 | 2.00 ± 0.00 | 2,000 |"]
