"""How many tokens of a row a task reads: fitted to its rows, written into the folder, and changed with `--length`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cloze
from cloze.budget.fit_length import SAMPLED, EvenSample, Lengths
from cloze.budget.row_counts import RowCounts, count_rows
from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.several import LabelledFiles
from cloze.cli.main import main
from cloze.corpus.records.answer import Record
from cloze.errors import TaskError
from cloze.recipe.load import load_recipe
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.finetuning.task_recipe import recipe_onto

Folder = Callable[..., Path]
LONG = {"positions.max_length": 300}


def made(loaded: Any, recipe: str, lengths: Lengths, told: list[str] | None = None, **given: Any) -> Any:
    report = (lambda line: None) if told is None else told.append
    return recipe_onto(recipe, loaded, row_counts={"main": RowCounts(500, 2, lengths)}, report=report, **given)


def test_rows_get_the_shortest_length_that_holds_nearly_all_of_them(folder: Folder) -> None:
    loaded, told = load_checkpoint(folder("bert", **LONG)), []
    short = made(loaded, "sentence_classification", Lengths((126,) * 100, (126,) * 100))
    unknown = recipe_onto("sentence_classification", loaded, row_counts={"main": RowCounts(500, 2)})
    assert short.length == 128 and short.hash == unknown.hash  # with [CLS] and [SEP] they fit: trained to the same numbers
    rows = (50,) * 98 + (200,) + (290,)
    longer = made(loaded, "sentence_classification", Lengths(rows, rows), told)
    assert longer.length == 224 and "128 → 224" in told[0] and "the shortest that holds 99% of the rows whole" in told[0]
    assert "--set sources.main.length=224" in told[0]
    assert made(loaded, "sentence_classification", Lengths(rows, rows), overrides=["length=64"]).length == 64
    far = (50,) * 80 + (2000,) * 20
    assert made(loaded, "sentence_classification", Lengths(far, far), told).length == 300
    assert "20% of the rows are longer, but the network reads no more" in told[-1]
    wide = load_checkpoint(folder("bert", **{"positions.max_length": 1000}))
    assert made(wide, "sentence_classification", Lengths(far, far), told).length == 512
    assert "20% of the rows are longer, but longer ones cost too much time" in told[-1]


def test_texts_that_are_read_apart_are_measured_one_by_one_and_windows_stay_as_they_are(folder: Folder) -> None:
    loaded = load_checkpoint(folder("bert", **LONG))
    both = Lengths((240,) * 100, (120,) * 100)
    assert made(loaded, "pair_classification", both).length == 256  # 240 and [CLS], [SEP], [SEP]
    assert made(loaded, "token_labelling", both).length == 256
    assert made(loaded, "multiple_choice", both).length == 256
    assert made(loaded, "retrieval", both).length == 128
    assert made(loaded, "question_answering", both, overrides=["length=200", "corpus.stride=64"]).length == 200


def test_texts_to_generate_are_fitted_too(folder: Folder) -> None:
    told: list[str] = []
    lengths = Lengths((20,) * 100, (20,) * 100, (100,) * 100)
    one_row = made(load_checkpoint(folder("gpt2", **LONG)), "text_to_text", lengths, told)
    assert "exercise[1].max_length" in told[0] and "64 → 128" in told[0] and "99% of the targets" in told[0]
    assert one_row.length == 224  # a text and its target, of at most half the row, share it
    limit = "exercise[1].max_length=64"
    loaded = load_checkpoint(folder("gpt2", **LONG))
    assert made(loaded, "text_to_text", lengths, overrides=[limit]).length == 160  # half of a row of 127 is less than 64


def test_the_tokens_of_a_sample_of_rows_are_counted(folder: Folder, tmp_path: Path) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "".join(f"{'cat ' * words}\ta\n" for words in (3, 1, 2)))
    files = {"main": LabelledFiles("", (str(rows),), ())}
    tokenizer = load_checkpoint(folder("bert")).tokenizer
    one = len(tokenizer.encode_flat(["cat"])[0])
    (found,) = count_rows(load_recipe("sentence_classification"), files, tokenizer).values()
    assert found == RowCounts(3, 1, Lengths((one, 2 * one, 3 * one), (one, 2 * one, 3 * one)))
    sample = EvenSample()
    for line in range(5 * SAMPLED):
        sample.add(Record(line, ("a",), None))
    kept = [record.line for record in sample.records]
    assert SAMPLED <= len(kept) <= 2 * SAMPLED and kept == list(range(0, 5 * SAMPLED, kept[1]))


@pytest.fixture(scope="module")
def tuned(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of rows of more than 128 tokens, of which the last ones decide."""
    place = tmp_path_factory.mktemp("long")
    words = {"animal": "cat", "weather": "rain"}
    rows = [f"{'the old house ' * 20}{words[label]}\t{label}" for label in words for _ in range(8)]
    (place / "rows.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    file = str(place / "rows.tsv")
    finetune(
        folder("bert", **LONG), train=[file], dev=[file], out=place / "tuned", overrides=["training.epochs=1"], device="cpu"
    )
    return place / "tuned"


def test_other_programs_find_the_length_of_a_classifier_in_its_tokenizer(tuned: Path, tmp_path: Path) -> None:
    length = json.loads((tuned / "cloze" / "task.json").read_text())["length"]
    assert length > 128
    config = "tokenizer_config.json"
    assert json.loads((tuned / config).read_text())["model_max_length"] == length
    assert main(["export", str(tuned), str(tmp_path / "again"), "--to", "huggingface", "--language", "en"]) == 0
    assert json.loads((tmp_path / "again" / config).read_text())["model_max_length"] == length
    from transformers import pipeline

    text = "the old house " * 100 + "cat"
    theirs = pipeline("text-classification", str(tuned), truncation=True, top_k=None)([text])[0]
    with pytest.warns(UserWarning, match=rf"longer than {length} tokens"):
        ours = cloze.load(tuned).predict(text).probabilities
    assert {one["label"]: one["score"] for one in theirs} == pytest.approx(ours, abs=1e-5)


def test_another_length_is_read_when_it_is_asked_for(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "the old house " * 40 + "cat"
    model = cloze.load(tuned)
    with pytest.warns(UserWarning, match="longer than 16 tokens"):
        cut = model.predict(text, length=16)
    assert cut.cut == len(model.tokenizer.encode_flat([text])[0]) - 14
    assert main(["predict", str(tuned), text, "--length", "16"]) == 0
    assert "--length N reads more" in capsys.readouterr().err
    assert main(["evaluate", str(tuned), str(tuned.parent / "rows.tsv"), "--length", "16"]) == 0
    assert "16 of 16 texts are longer than 16 tokens" in capsys.readouterr().out
    with pytest.raises(TaskError, match="length 301: .* reads at most 300 tokens of a row. Give a length up to 300"):
        model.predict(text, length=301)
    assert main(["predict", str(tuned), text, "--length", "3"]) == 2
    assert "leaves no room for text, because the template takes 3 tokens" in capsys.readouterr().err
    prompt = ["--template", "{text} {answer}", "--verbalise", "a=cat,b=rain"]
    assert main(["predict", str(tuned), text, *prompt, "--length", "9"]) == 2
    assert "--length is for a fine-tuned folder" in capsys.readouterr().err


def test_a_plan_says_what_a_run_reads_and_costs_and_writes_nothing(
    tuned: Path, folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, out = str(tuned.parent / "rows.tsv"), tmp_path / "out"
    line = ["finetune", str(folder("bert", **LONG)), "--train", rows, "--dev", rows, "--out", str(out), "--plan"]
    assert main([*line, "--set", "training.epochs=9", "--seeds", "1,2"]) == 0
    said = capsys.readouterr().out
    length = json.loads((tuned / "cloze" / "task.json").read_text())["length"]
    assert "sentence_classification fitted to 16 rows and this checkpoint" in said and f"128 → {length}" in said
    assert "nothing is trained or written" in said and f"rows: 16 to train on ({rows}), 2 classes" in said
    assert f"  {length} tokens  100% of the rows whole  chosen" in said
    assert "  128 tokens    0% of the rows whole  0." in said and "times the tokens" in said
    assert "forecast: " in said and " updates of 4 rows" in said and " 9 epochs, " in said and "GB of memory" in said
    assert "if no later epoch is better than the first)" in said
    assert "for each of 2 seeds" in said and "constant prediction 0.69" in said
    assert not out.exists()
    assert main([*line, "--as-published"]) == 0
    said = capsys.readouterr().out
    assert "as published: the recipe is trained as written; nothing is fitted." in said and "fitted to" not in said
    assert "  128 tokens    0% of the rows whole  chosen" in said and " updates of 32 rows" in said and " 4 epochs, " in said
