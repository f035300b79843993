"""Captions of films: a network that reads frames and writes learns to describe them, and describes one that it is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cloze
from cloze.cli.main import main
from cloze.runs.finetuning.finetune import finetune
from cloze.runs.run import pretrain
from tests.samples import films

RECIPE = """\
name: describes
text: {normalise: {lower: true}, tokenizer: {wordpiece: {size: 90}}}
corpus: {records: {answer: none, items: {frames: [features]}, length: 16}}
network:
  joint_modal:
    layers: 1
    width: 32
    heads: 2
    items: {set: frames, width: 12, layers: 1, most: 9, normed: true}
    joint_layers: 1
    decoder_layers: 1
    dropout: 0.0
    initial: {normal: {std: 0.1}}
exercise:
  - answer: {what: whole, frame: "{A} [SEP]", start: "[CLS]", set: decoder}
  - frame: "[CLS] {A} [SEP]"
  - mask: {rate: 0.15}
  - corrupt: {}
  - predict: masked
objectives:
  - token_prediction: {tie: true}
  - token_prediction: {read: decoder_hidden, set: decoder, tie: true, head: writer}
training:
  optimizer: adamw
  rate: {linear: {peak: 1e-3}}
  batch: 8
  packing: false
reading: {single: "[CLS] {A} [SEP]", summary: first}
"""
VALUES = ["training.batch=9", "training.epochs=16", "training.rate.linear.peak=0.01", "training.evaluate_every=0.25",
          "task.patience=0", "corpus.length=16", "exercise[1].max_length=12"]  # fmt: skip

pytestmark = pytest.mark.slow


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that reads films and writes, after one step."""
    folder = tmp_path_factory.mktemp("describes")
    (folder / "describes.yaml").write_text(RECIPE)
    pretrain(folder / "describes.yaml", corpus=films(), device="cpu", budget="1steps", seed=1, out=folder / "run", report=quiet)
    return folder / "run"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What is to be said of 45 clips, and of 15 of other films; nothing is said in them."""
    folder = tmp_path_factory.mktemp("captions")
    lines = [json.loads(line) for line in (films().parent / "films.jsonl").read_text().splitlines()]
    captions = [json.dumps({"image": line["image"], "text": "", "target": line["text"]}) + "\n" for line in lines]
    (folder / "train.jsonl").write_text("".join(captions[:45]))
    (folder / "dev.jsonl").write_text("".join(captions[45:]))
    return folder / "train.jsonl", folder / "dev.jsonl"


@pytest.fixture(scope="module")
def tuned(fresh: Path, rows: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    train, dev = rows
    return finetune(
        fresh, task="text_to_text", train=[str(train)], dev=[str(dev)], items=[str(films().parent / "films.npz")],
        out=tmp_path_factory.mktemp("tuned") / "tuned", overrides=VALUES, report=quiet,
    )


def test_captions_of_films_are_learned_far_above_the_constant_answer(tuned: Any) -> None:
    metrics, always = tuned.task_json["dev"], tuned.task_json["baseline"]
    assert metrics["exact_match"] > always["exact_match"] + 0.5 and metrics["rougeL"] > always["rougeL"] + 0.15


def test_a_film_that_is_shown_is_described_and_another_one_otherwise(
    tuned: Any, rows: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, items = Path(tuned.folder), str(films().parent / "films.npz")
    wanted = {row["image"]: row["target"] for row in map(json.loads, rows[0].read_text().splitlines())}
    keys = list({text: key for key, text in wanted.items()}.values())[:2]
    model = cloze.load(folder)
    written = [model.generate("", items=items, picture=key, temperature=0.0).text for key in keys]
    assert written == [wanted[key] for key in keys] and written[0] != written[1]
    assert main(["generate", str(folder), "--items", items, "--picture", keys[0], "--beams", "2"]) == 0
    assert capsys.readouterr().out.strip() == wanted[keys[0]]
    assert main(["generate", str(folder), "--picture", keys[0]]) == 2
    assert f"--picture {keys[0]}: its items are needed, too" in capsys.readouterr().err
    assert main(["predict", str(folder), str(rows[0]), "--items", items]) == 0
    assert wanted[keys[0]] in capsys.readouterr().out
    assert main(["predict", str(folder), str(rows[0])]) == 2
    assert "each row is about a picture, and the items of these pictures are missing" in capsys.readouterr().err
