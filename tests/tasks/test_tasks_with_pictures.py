"""Tasks whose rows are about pictures: `--items` from the file of a detector to a fine-tuned folder and what it predicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cloze
from cloze.assembly.build import load_checkpoint
from cloze.assembly.showing import with_pictures
from cloze.cli.main import main
from cloze.tasks.result import load_tuned, task_of

COUNT, CLASSES = 24, ("ant", "bee", "cat")
#: What decides: the largest number of the second region, so that only a network that sees it can know the label.
KIND = np.arange(COUNT) % 3


def write(path: Path, lines: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that reads pictures, `run`, their items, and rows that all ask the same."""
    made = tmp_path_factory.mktemp("pictures")
    g = np.random.default_rng(0)
    features = g.normal(scale=0.1, size=(COUNT, 2, 6)).astype(np.float32)
    features[np.arange(COUNT), 1, KIND] += 2.0
    corners = np.tile(np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]], np.float32), (COUNT, 1, 1))
    np.savez(made / "f.npz", keys=np.arange(COUNT).astype(str), features=features, boxes=corners, score=np.ones((COUNT, 2)))
    captions = write(made / "c.jsonl", [{"image": str(n), "caption": ["what is it", "it is here"]} for n in range(COUNT)])
    items = ["--items", f"regions={made / 'f.npz'}"]
    assert main(["corpus", "build", captions, *items, "--size", "40", "--out", str(made / "store")]) == 0
    recipe = Path(__file__).parents[2] / "cloze" / "recipes" / "visualbert.yaml"
    text = recipe.read_text(encoding="utf-8").replace("with_tables: {set: regions", "appended: {set: regions, boxes: 5")
    (made / "mine.yaml").write_text(text.replace("regions: [features]", "regions: [features, boxes]"), encoding="utf-8")
    train = ["pretrain", str(made / "mine.yaml"), "--size", "tiny", "--corpus", str(made / "store"), "--budget", "1steps"]
    values = ["--set", "training.batch=4", "--set", "training.held_out=0.0", "--set", "network.layers=1", "--device", "cpu"]
    assert main([*train, *values, "--out", str(made / "run")]) == 0
    rows = [{"text": "what is it", "image": str(n), "label": CLASSES[KIND[n]]} for n in range(COUNT)]
    write(made / "train.jsonl", rows)
    write(made / "dev.jsonl", rows[-9:])
    return made


def tuned(folder: Path, name: str, *more: str) -> Path:
    files = ["--train", str(folder / "train.jsonl"), "--dev", str(folder / "dev.jsonl"), "--out", str(folder / name)]
    values = ["training.epochs=8", "training.batch=8", "training.rate.linear.peak=5e-3", "task.patience=9"]
    given = [word for value in values for word in ("--set", value)]
    assert main(["finetune", str(folder / "run"), *files, *given, "--device", "cpu", *more]) == 0
    return folder / name


@pytest.fixture(scope="module")
def seeing(folder: Path) -> Path:
    return tuned(folder, "seeing", "--items", str(folder / "f.npz"), "--test", str(folder / "train.jsonl"))


def test_a_task_that_only_pictures_can_answer_is_learnt_with_them_and_not_without(folder: Path, seeing: Path) -> None:
    found = json.loads((seeing / "cloze/task.json").read_text(encoding="utf-8"))
    assert found["dev"]["accuracy"] == found["test"]["accuracy"] == 1.0
    assert found["columns"] == {"text": "text", "text_b": None, "label": "label", "picture": "image"}
    blind = json.loads((tuned(folder, "blind") / "cloze/task.json").read_text(encoding="utf-8"))
    assert blind["dev"]["accuracy"] == pytest.approx(1 / 3) and "picture" not in blind["columns"]


def test_dev_rows_are_measured_as_the_folder_predicts_them(
    folder: Path, seeing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = ["--items", f"regions={folder / 'f.npz'}"]
    capsys.readouterr()
    assert main(["evaluate", str(seeing), str(folder / "dev.jsonl"), *items, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    recorded = json.loads((seeing / "cloze/task.json").read_text(encoding="utf-8"))
    assert found["metrics"] == pytest.approx({name: recorded["dev"][name] for name in found["metrics"]})
    assert main(["predict", str(seeing), "what is it\t4", "what is it\t5", *items]) == 0
    labels = [json.loads(line)["label"] for line in capsys.readouterr().out.splitlines()]
    assert labels == [CLASSES[KIND[4]], CLASSES[KIND[5]]]


def test_python_takes_rows_with_pictures_and_does_what_the_command_does(folder: Path, seeing: Path) -> None:
    rows = [("what is it", str(n), CLASSES[KIND[n]]) for n in range(COUNT)]
    values = {"training.epochs": 8, "training.batch": 8, "training.rate.linear.peak": 5e-3, "task.patience": 9}
    model = cloze.finetune(
        folder / "run", train=rows, dev=rows[-9:], items=folder / "f.npz", overrides=values, device="cpu", report=None
    )
    assert model.metrics["accuracy"] == 1.0
    found = model.predict([("what is it", "4"), ("what is it", "5")], items={"regions": folder / "f.npz"})
    assert [one.label for one in found] == [CLASSES[KIND[4]], CLASSES[KIND[5]]]
    assert cloze.load(seeing).evaluate(folder / "train.jsonl", items=folder / "f.npz").metrics["accuracy"] == 1.0


@torch.no_grad()
def test_scores_are_those_of_the_network_for_each_row_with_its_picture_alone(folder: Path, seeing: Path) -> None:
    task = task_of(seeing)
    examples = task.read(folder / "dev.jsonl")
    learner: Any = load_tuned(with_pictures(load_checkpoint(seeing), [str(folder / "f.npz")], [examples]), task)[0]
    found = learner.all_scores(learner.encode(examples), size=4)
    tokenizer, network = learner.reader.tokenizer, learner.network
    ids = [tokenizer.roles["[CLS]"], *tokenizer.encode("what is it").ids, tokenizer.roles["[SEP]"]]
    tokens = torch.tensor([ids])
    with np.load(folder / "f.npz") as file:
        for row, key in enumerate(examples.pictures):
            corners = np.concatenate([file["boxes"][int(key)], [[0.5], [0.5]]], 1).astype(np.float32)
            vectors = {"regions": torch.tensor(file["features"][int(key)])[None], "regions/boxes": torch.tensor(corners)[None]}
            states = network(
                want=frozenset(learner.head.reads), tokens=tokens, segments=torch.zeros_like(tokens), item_vectors=vectors
            )
            expected = learner.head.scores({name: states[name] for name in learner.head.reads}, {})[0].numpy()
            assert found[row] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "SEEING", "DEV"], "each row is about a picture, and the items of these pictures are missing. Give"),
        (["predict", "SEEING", "what is it\t99", "--items", "ITEMS"], "has no items of 1 picture that rows name: '99'"),
        (
            ["finetune", "RUN", "--train", "TRAIN", "--dev", "DEV", "--out", "NEW", "--items", "ITEMS", "--task=token_labelling"],
            "token_labelling reads no pictures; these tasks do: multi_label, pair_classification, regression, sentence_class",
        ),
        (["predict", "SEEING", "what is it", "--items", "ITEMS"], "0 tabs, expected 1: a line has text and image"),
        (["finetune", "RUN", "--train", "TRAIN", "--dev", "DEV", "--out", "NEW", "--items", "NARROW"], "have 2 numbers each"),
        (["finetune", "RUN", "--train", "TRAIN", "--dev", "DEV", "--out", "NEW", "--items", "NONE"], "no such file"),
        (["finetune", "RUN", "--train", "TRAIN", "--dev", "DEV", "--out", "NEW", "--picture", "key"], "--picture key: the items"),
        (
            ["finetune", "RUN", "--train", "TRAIN", "--dev", "DEV", "--out", "NEW", "--items", "ITEMS", "--picture", "key"],
            "no column 'key'; it has: text, image, label",
        ),
        (
            ["finetune", "BERT", "--train", "TRAIN", "--dev", "DEV", "--out", "NEW", "--items", "ITEMS"],
            "this network reads texts without items",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    folder: Path, seeing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    np.savez(tmp_path / "narrow.npz", keys=np.arange(COUNT).astype(str), features=np.ones((COUNT, 2, 2), np.float32))
    given = {
        "SEEING": seeing, "RUN": folder / "run", "DEV": folder / "dev.jsonl", "TRAIN": folder / "train.jsonl",
        "ITEMS": folder / "f.npz", "NARROW": tmp_path / "narrow.npz", "NEW": tmp_path / "new", "NONE": tmp_path / "none.npz",
    }  # fmt: skip
    if "BERT" in words:
        small = ["--size", "tiny", "--set", "network.layers=1", "--set", "length=16", "--set", "training.batch=2"]
        train = ["pretrain", "bert", *small, "--corpus", str(Path(__file__).parents[2] / "cloze/samples/english.txt")]
        assert main([*train, "--budget", "1steps", "--out", str(tmp_path / "bert"), "--quiet"]) == 0
        given["BERT"] = tmp_path / "bert"
    assert main([str(given.get(word, word)) for word in words]) == 2
    assert message in " ".join(capsys.readouterr().err.split()) and not (tmp_path / "new" / "cloze").exists()
