"""A small legal recipe, and a way to write variations of it into files. Imports no torch, which the process that hands out tests
does not need."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloze.errors import RecipeError

MINE = """\
name: mine
text: {normalise: {lower: true}, tokenizer: {wordpiece: {size: 8000}}}
corpus: {passages: {length: 128}}
network: {transformer: {layers: 2, width: 64, heads: 2}}
exercise:
  - frame: "[CLS] {A} [SEP]"
  - mask: {rate: 0.15}
  - corrupt: {}
  - predict: masked
objectives:
  - token_prediction: {transform: gelu, tie: true}
training:
  optimizer: adamw
  rate: {linear: {peak: 1e-3, warmup: 0.1}}
  batch: 32
reading: {single: "[CLS] {A} [SEP]"}
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """`write((old, new), …)`: the small recipe with these replacements, as mine.yaml in the current folder."""
    monkeypatch.chdir(tmp_path)

    def writer(*changes: tuple[str, str], text: str = MINE) -> Path:
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new)
        path = Path("mine.yaml")
        path.write_text(text, encoding="utf-8")
        return path

    return writer


def trainer(folder: Path, corpus: Path, budget: str) -> Callable[..., list[str]]:
    """`train(out, text, …)`: pre-trains the recipe in `text` on a corpus, and gives the lines that the run reports."""

    def train(out: Path, text: str, **changes: Any) -> list[str]:
        from cloze.runs.run import pretrain

        said: list[str] = []
        recipe = folder / f"{abs(hash(text))}.yaml"
        recipe.write_text(text, encoding="utf-8")
        given: dict[str, Any] = {"corpus": corpus, "device": "cpu", "budget": budget, "report": said.append, **changes}
        pretrain(recipe, out=out, **given)
        return said

    return train


def message_of(function: Callable[[], object]) -> str:
    """The text of the `RecipeError` that a call raises."""
    with pytest.raises(RecipeError) as caught:
        function()
    return str(caught.value)


@pytest.fixture(scope="session")
def little_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty documents of a few made-up sentences."""
    words = ["rain", "falls", "on", "the", "old", "roof", "and", "a", "cat", "sleeps", "under", "warm", "stones"]
    documents = [
        "\n".join(" ".join(words[(d * s + i) % 13] for i in range(5 + (d + s) % 6)) + "." for s in range(1, 7))
        for d in range(1, 41)
    ]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


SMALL = (
    MINE.replace("size: 8000", "size: 200")
    .replace("layers: 2, width: 64", "layers: 1, width: 16")
    .replace("length: 128", "length: 16")
    .replace("batch: 32", "batch: 4")
)
Train = Callable[..., Any]


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "mine.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def begun(recipe: Path, little_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and a finished run on it; tests copy it."""
    from cloze.runs.run import pretrain

    folder = tmp_path_factory.mktemp("begun")
    shutil.copy(little_text, folder / "text.txt")
    pretrain(recipe, corpus=folder / "text.txt", out=folder / "run", budget="2steps", device="cpu", report=lambda text: None)
    return folder


@pytest.fixture
def place(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(begun, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


@pytest.fixture
def train(recipe: Path) -> Train:
    """`train(out, …)`: the small recipe on `text.txt` of the current folder, unless told otherwise."""

    def trained(out: Path, **changes: Any) -> list[str]:
        from cloze.runs.run import pretrain

        said: list[str] = []
        given: dict[str, Any] = {"corpus": "text.txt", "device": "cpu", "report": said.append, **changes}
        pretrain(given.pop("recipe", recipe), out=out, **given)
        return said

    return trained
