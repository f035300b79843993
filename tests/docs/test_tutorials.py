"""docs/tutorials: each is run from top to bottom in a folder of its own; only budgets and data are made smaller."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from cloze.checkpoint.build import load_checkpoint
from cloze.recipe.load import load_recipe, pretraining_recipe_names, read_builtin
from cloze.recipe.recipe import Recipe

from . import test_tour
from .test_tour import blocks, run_commands, run_session

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "tutorials"


def run_page(page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, smaller: dict[str, str]) -> None:
    """Run a page's blocks; `smaller` replaces texts of its code, each of which must be there."""
    monkeypatch.setattr(test_tour, "TOUR", page)
    monkeypatch.setattr(test_tour, "STEPS", "2steps")
    names: dict[str, Any] = {"__name__": "page"}
    text = page.read_text(encoding="utf-8")
    for before, after in smaller.items():
        assert before in text, f"{page.name} no longer says {before!r}"
        text = text.replace(before, after)
    for block in blocks(text):
        if block.language == "sh":
            run_commands(block, capsys)
        elif block.language == "pycon":
            run_session(block, names)
        elif block.language != "text":  # what a command prints
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), names)


def test_the_tutorial_on_chinese_names_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jieba")
    monkeypatch.chdir(tmp_path)
    run_page(FOLDER / "chinese-names.md", capsys, monkeypatch, {"--set training.epochs=3": "--set training.epochs=1"})
    described = json.loads(Path("my-names/cloze/task.json").read_text(encoding="utf-8"))
    assert described["task"] == "token_labelling" and {"B-PER", "I-PER", "B-LOC", "B-ORG", "O"} <= set(described["labels"])


def test_the_tutorial_on_a_domain_and_pairs_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    smaller = {"some[:-12]": "some[:6]", "some[-12:]": "some[-3:]", "--set training.epochs=2": "--set training.epochs=1"}
    run_page(FOLDER / "domain-pairs.md", capsys, monkeypatch, smaller)
    lines = [Path(f"{name}.jsonl").read_text(encoding="utf-8").splitlines() for name in ("train", "dev")]
    train, dev = ({json.loads(line)["text"] for line in own} for own in lines)
    assert train and dev and not train & dev, "no paragraph is in both"
    assert json.loads(Path("my-pairs/cloze/task.json").read_text())["labels"] == ["other", "same"]


def test_the_tutorial_on_knowledge_graphs_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    smaller = {
        "k=1200": "k=60", "k=600": "k=60", "range(3)": "range(1)", "names[:640], names[640:]": "names[:60], names[60:80]",
        'old[:520]), ("dev.tsv", old[520:])': 'old[:40]), ("dev.tsv", old[40:])',
        "--test test.tsv --out": "--set training.epochs=1 --out",
    }  # fmt: skip
    run_page(FOLDER / "knowledge-graph.md", capsys, monkeypatch, smaller)
    assert (Path("industries") / "cloze" / "tables" / "facts.safetensors").exists()
    assert json.loads(Path("trades/cloze/task.json").read_text())["labels"] == sorted(["银行", "船厂", "面包店", "啤酒厂"])
    begun, plain = load_checkpoint("my-ernie/cloze/checkpoints/step-00000000"), load_checkpoint("my-bert")
    mine = begun.network.state_dict()
    assert all(torch.equal(mine[name], tensor) for name, tensor in plain.network.state_dict().items())


def test_the_tutorial_on_pictures_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("PIL")
    monkeypatch.chdir(tmp_path)
    run_page(FOLDER / "pictures.md", capsys, monkeypatch, {"range(800)": "range(12)", "number < 700": "number < 9"})
    assert Path("page.html").stat().st_size


def item_arrays(recipe: Recipe) -> dict[str, list[str]]:
    """The sets of items that a recipe reads with the rows of a picture, and the arrays that it needs of each."""
    sources = [part.arguments for part in recipe.sources.values() if part.name == "records"]
    return {name: arrays for arguments in sources for name, arrays in (arguments["items"] or {}).items()}


def test_the_tutorial_on_pictures_says_what_each_recipe_needs_from_a_detector() -> None:
    page = (FOLDER / "pictures.md").read_text(encoding="utf-8")
    table: dict[str, tuple[dict[str, list[str]], str]] = {}
    for line in re.findall(r"^\| (`.*) \|$", page[page.index("needs what from a detector") :], re.MULTILINE):
        recipes, items, arrays, further = (cell.strip() for cell in line.split("|"))
        for name in re.findall(r"`(.+?)`", recipes):
            table[name] = ({items.strip("`"): re.findall(r"`(.+?)`", arrays)}, further)
    loaded = {name: load_recipe(name) for name in pretraining_recipe_names() if "items: {" in read_builtin(name)}
    read = {name: item_arrays(recipe) for name, recipe in loaded.items()}
    sounds = {"speechbert"}  # reads recordings
    assert {name: cells[0] for name, cells in table.items()} == {
        name: sets for name, sets in read.items() if sets and name not in sounds
    }
    for name, (_, further) in table.items():
        answers = {str(part.arguments["answer"].name) for part in loaded[name].sources.values() if part.name == "records"}
        assert ("`label`" in further) == (answers != {"none"}), name
        others = [source for source, part in loaded[name].sources.items() if part.name != "records"]
        assert [f"--bind {source}=" in further for source in others] == [True] * len(others), name


def test_every_tutorial_is_run() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert {page.name for page in FOLDER.glob("*.md")} == set(re.findall(r'FOLDER / "([\w-]+\.md)"', source))
