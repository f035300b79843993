"""`cloze list`, `show`, `diff`, `check`: what they print, as text and as JSON, and their exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cloze.cli.main import main
from cloze.document import read_yaml
from cloze.recipe.load import load_recipe, pretraining_recipe_names
from tests.small_recipe import Write


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command line prints when all is well."""
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def test_list_has_one_row_for_every_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    rows = output(capsys, "list").splitlines()
    assert [row.split()[0] for row in rows[1 : 1 + len(pretraining_recipe_names())]] == pretraining_recipe_names()
    assert [row["name"] for row in json.loads(output(capsys, "list", "--json"))] == pretraining_recipe_names()


def test_what_show_prints_is_a_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, "show", "electra-small", "--size", "tiny", "--set", "training.batch=4")
    recipe = load_recipe("electra-small", size="tiny", overrides=["training.batch=4"])
    assert read_yaml(shown, "shown").plain() == recipe.canonical()
    assert shown.endswith(f"# {recipe.hash}\n")
    data = json.loads(output(capsys, "show", "bert", "--json"))
    assert data["recipe"]["training"]["batch"] == 256 and data["hash"] == load_recipe("bert").hash


def test_diff_prints_one_line_for_each_value(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "diff", "roberta", "bert").splitlines()
    assert lines[0].split() == ["roberta", "bert"]
    assert any(line.split() == ["training.batch", "8192", "256"] for line in lines)
    changes = {row["path"]: row for row in json.loads(output(capsys, "diff", "roberta", "bert", "--json"))}
    assert changes["exercise.pair"] == {"path": "exercise.pair", "right": {"pair": {}}}
    assert output(capsys, "diff", "bert", "bert") == "bert and bert are equivalent.\n"


def test_check_prints_fields_and_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    shown = output(capsys, "check", "bert")
    assert shown.startswith("bert is valid.") and "108,891,648 parameters" in shown and "share 0.9: length = 128" in shown
    data = json.loads(output(capsys, "check", "bert", "--size", "tiny", "--json"))
    assert data["edits"]["main"][2]["gives"] == ["masked"] and "targets/next" in data["fields"]["main"]


def test_a_wrong_recipe_is_exit_code_2_and_lines_on_stderr(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(("rate: 0.15", "ratio: 0.15"), ("batch: 32", "bach: 32"))
    for verb in ("check", "show"):
        assert main([verb, str(path)]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and "mine.yaml:7:" in captured.err and "mine.yaml:15:" in captured.err
        assert "Traceback" not in captured.err


@pytest.mark.parametrize(("name", "sees"), [
    ("elmo", "every token sees itself and the tokens to its left, in rows read from their end to its right"),
    ("word2vec-skipgram", "a word sees nothing but itself: it has one vector, whatever stands around it"),
    ("word2vec-cbow", "the words around it in its window, not itself"),
    ("context2vec", "every token sees the tokens to its left and to its right, not itself"),
    ("bart-base", "every token of the encoder sees every other\n"
                  "every token of the decoder sees the encoder's, itself and the tokens to its left"),
    ("roberta", "every token sees every token"),
    ("gpt2", "every token sees itself and the tokens to its left"),
])  # fmt: skip
def test_peek_says_what_a_token_sees_in_such_a_network(
    name: str, sees: str, little_text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = output(capsys, "peek", name, "--corpus", str(little_text), "--rows", "1", "--length", "32", "--json")
    assert [json.loads(line)["sees"] for line in shown.splitlines()] == sees.splitlines()


def test_peek_writes_a_page_or_prints_json(little_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["peek", "bert", "--corpus", str(little_text), "--html", str(page), "--json"]) == 2
    assert "--html writes a page instead of what --json prints" in capsys.readouterr().err and not page.exists()


def test_peek_shows_all_targets_of_a_word_of_a_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("alpha beta gamma\n", encoding="utf-8")
    few = ("--corpus", str(tmp_path / "text.txt"), "--rows", "1", "--set", "text.tokenizer.words.min_count=1")
    windows = ("--set", "exercise.subsample.threshold=100", "--set", "exercise.windows.shrink=none", "--json")
    (example,) = map(json.loads, output(capsys, "peek", "word2vec-skipgram", *few, *windows).splitlines())
    assert {token["shown"]: token["target"] for token in example["tokens"]} == {
        "alpha": "beta gamma", "beta": "alpha gamma", "gamma": "alpha beta"
    }  # fmt: skip
    assert example["targets"] == "6 for 3 of 3 tokens"
    shown = output(capsys, "peek", "word2vec-skipgram", *few, "--set", "exercise.subsample.threshold=1e-9")
    assert "none of 0 tokens: nothing is predicted in this example" in shown
    (example,) = map(json.loads, output(capsys, "peek", "glove", *few, "--json").splitlines())
    assert re.fullmatch(r"a co-occurrence count, [\d.]+", example["targets"])


@pytest.mark.parametrize(("subject", "hidden"), [("alpha", True), ("gamma beta", False)])
def test_peek_says_whether_tokens_are_hidden_from_others(
    subject: str, hidden: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "facts.tsv").write_text(f"{subject}\tis\tbeta\n", encoding="utf-8")
    (tmp_path / "text.txt").write_text("alpha beta gamma .\nalpha delta gamma .\n\n" * 8, encoding="utf-8")
    shown = output(
        capsys, "peek", "k-bert", "--corpus", str(tmp_path / "text.txt"), "--bind", f"facts={tmp_path / 'facts.tsv'}",
        "--rows", "1", "--length", "32", "--set", "text.tokenizer.size=60", "--set", "exercise.mask.rate=0.01", "--json",
    )
    expected = "every token sees every token" + ", except those that are hidden from it (field visible)" * hidden
    assert json.loads(shown.splitlines()[0])["sees"] == expected
