"""Tasks whose rows are about pictures: `--items` from the file of a detector to a fine-tuned folder and what it predicts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cloze
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus import Store
from cloze.decoding.pictures import shown_picture
from cloze.exercises.companions.spread import Spread
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.runs.finetuning.leakage import shared_row_note
from cloze.tasks.intrinsic.picture_retrieval import Captions, matcher_of
from cloze.tasks.pictures import show_pictures
from cloze.tasks.tuned_folder import load_tuned, task_in_folder
from tests.tasks.pictured import pretrain, write_items

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
    with pytest.warns(UserWarning, match=r"^24 of 24 rows of .*train\.jsonl \(100%\) have texts that the model is trained on"):
        evaluation = cloze.load(seeing).evaluate(folder / "train.jsonl", items=folder / "f.npz")
    assert evaluation.metrics["accuracy"] == 1.0


def test_a_question_of_the_training_rows_about_another_picture_is_not_one_of_them(folder: Path, seeing: Path) -> None:
    file = write(folder / "asked.jsonl", [{"text": "what is it", "image": key, "label": "bee"} for key in ("4", "new")])
    assert shared_row_note(seeing, file).startswith(f"note: 1 of 2 rows of {file} (50%) has a text")


WORDS = ("what", "is", "here")  # which a row asks for, by the kind of its picture
START = {word: "what is here".index(word) for word in WORDS}


def row_of(kind: str, number: int) -> dict[str, Any]:
    word = WORDS[KIND[number]]
    return {"image": str(number)} | {
        "multiple_choice": {"text": "it", "choices": list(WORDS), "label": int(KIND[number])},
        "token_labelling": {"text": ["what", "is", "it"], "label": ["x", "x", word]},
        "span_classification": {"text": "what is it", "spans": [[8, 10]], "label": word},
        "question_answering": {
            "question": "it", "context": "what is here", "answers": [{"text": word, "answer_start": START[word]}],
        },
    }[kind]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "metric", "epochs"),
    [
        ("multiple_choice", None, 8), ("token_labelling", "accuracy", 16), ("span_classification", "accuracy", 16),
        ("question_answering", "exact_match", 20),
    ],
)  # fmt: skip
def test_tasks_on_choices_words_and_spans_read_the_picture_of_each_row(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, metric: str | None, epochs: int
) -> None:
    """`metric` is what training makes perfect; one layer does not learn within seconds which choice goes with which picture."""
    rows, items = [row_of(kind, n) for n in range(COUNT)], ["--items", str(folder / "f.npz")]
    last = rows[:-10:-1]  # not in the order of their pictures
    train, dev = write(tmp_path / "train.jsonl", rows), write(tmp_path / "dev.jsonl", last)
    values = [f"training.epochs={epochs}", "training.batch=8", "training.rate.linear.peak=1e-3", f"task.patience={epochs}"]
    given = ["--train", train, "--dev", dev, "--task", kind, *(word for one in values for word in ("--set", one))]
    out = tmp_path / "tuned"
    assert main(["finetune", str(folder / "run"), *given, *items, "--device", "cpu", "--out", str(out)]) == 0
    described = json.loads((out / "cloze/task.json").read_text(encoding="utf-8"))
    assert described["columns"]["picture"] == "image"
    found = answers(out, dev, items, capsys)
    alone = [next_to(out, dev, folder / "f.npz", place) for place in range(9)]
    assert [leaves(one)[0] for one in found] == [leaves(one)[0] for one in alone]
    assert [leaves(one)[1] for one in found] == [pytest.approx(leaves(one)[1], abs=5e-5) for one in alone]
    swapped = write(tmp_path / "swapped.jsonl", [{**row, "image": str(int(row["image"]) - 1)} for row in last])
    other = answers(out, swapped, items, capsys)
    assert sum(one != another for one, another in zip(found, other, strict=False)) >= 6
    assert main(["evaluate", str(out), dev, swapped, *items, "--json"]) == 0
    right, wrong = (one["metrics"] for one in json.loads(capsys.readouterr().out).values())
    assert right == pytest.approx({name: described["dev"][name] for name in right})
    assert metric is None or (right[metric] == 1.0 and wrong[metric] < 0.8)
    assert main(["predict", str(out), dev]) == 2
    assert "each row is about a picture, and the items of these pictures are missing" in capsys.readouterr().err


def test_the_choices_of_a_record_are_all_shown_its_picture() -> None:
    draw = Draw(np.zeros(2, np.uint64))
    rows = {
        "tokens": np.array([[5, 6, 7, 0], [5, 6, 7, 8]], np.int32), "length": np.array([3, 4], np.int32),
        "parts": np.array([[[0, 1], [1, 2], [2, 3], [3, 3]], [[0, 1], [1, 2], [2, 3], [3, 4]]]),
        "choices": np.array([2, 3]), "column/label": np.array([1, 0]), "item_length/regions": np.array([1, 2], np.int32),
        "item_vectors/regions": np.array([[[1.0], [0.0]], [[2.0], [3.0]]]),
    }  # fmt: skip
    made = Spread()(Rows(rows), draw)
    assert made["owner"].tolist() == [0, 0, 1, 1, 1] and made["item_length/regions"].tolist() == [1, 1, 2, 2, 2]
    assert made["item_vectors/regions"][:, :, 0].tolist() == [[1, 0]] * 2 + [[2, 3]] * 3
    assert made["column/label"].tolist() == [0, 1, 1, 0, 0]


def answers(tuned: Path, rows: str, items: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["predict", str(tuned), rows, *items]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def leaves(value: Any) -> tuple[list[Any], list[float]]:
    """The values in a JSON object: whole numbers and texts, and shares."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if inside is None:
        return ([], [value]) if isinstance(value, float) else ([value], [])
    found = [leaves(one) for one in inside]
    return [one for others, _ in found for one in others], [one for _, shares in found for one in shares]


def next_to(tuned: Path, rows: str, file: Path, place: int) -> Any:
    """What is predicted for a row if its picture is the only one, next to a text that names none, as `fill` has it."""
    loaded, task = load_checkpoint(tuned), task_in_folder(tuned)
    examples = task.read(rows)
    shown = shown_picture(loaded, [str(file)], examples.pictures[place])
    learner: Any = load_tuned(replace(loaded, pictures=shown), task)[0]
    one = learner.predict(replace(examples, pictures=None), size=4, report=lambda done: None)[place]
    return json.loads(json.dumps(one.record()))


@torch.no_grad()
def test_scores_are_those_of_the_network_for_each_row_with_its_picture_alone(folder: Path, seeing: Path) -> None:
    task = task_in_folder(seeing)
    examples = task.read(folder / "dev.jsonl")
    learner: Any = load_tuned(show_pictures(load_checkpoint(seeing), [str(folder / "f.npz")], [examples]), task)[0]
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
            ["finetune", "RUN", "--train", "TRAIN", "--dev", "DEV", "--out", "NEW", "--items", "ITEMS", "--task=retrieval"],
            "retrieval reads no pictures; these tasks do: multi_label, multiple_choice, pair_classification, picture_pair",
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
            [
                "finetune", "RUN", "--task=token_labelling", "--train", "WORDS", "--dev", "WORDS", "--out", "NEW",
                "--items", "ITEMS",
            ],
            "words.conll: with --items, every row names its picture, and in this format it cannot. Write rows with pictures as "
            "JSON lines (.jsonl) that have the key 'image', too.",
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
        "WORDS": tmp_path / "words.conll",
    }  # fmt: skip
    (tmp_path / "words.conll").write_text("what\tO\nis\tO\nit\tX\n\nit\tX\n", encoding="utf-8")
    if "BERT" in words:
        small = ["--size", "tiny", "--set", "network.layers=1", "--set", "length=16", "--set", "training.batch=2"]
        train = ["pretrain", "bert", *small, "--corpus", str(Path(__file__).parents[2] / "cloze/samples/english.txt")]
        assert main([*train, "--budget", "1steps", "--out", str(tmp_path / "bert"), "--quiet"]) == 0
        given["BERT"] = tmp_path / "bert"
    assert main([str(given.get(word, word)) for word in words]) == 2
    assert message in " ".join(capsys.readouterr().err.split()) and not (tmp_path / "new" / "cloze").exists()


def test_a_checkpoint_reads_as_many_regions_as_its_training_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """UNITER's filter of regions, in its own training, in that of a task, and in what the folder answers."""
    write_items(tmp_path / "f.npz", KIND)
    with np.load(tmp_path / "f.npz") as file:
        arrays = dict(file)
    sure = np.tile(np.array([[0.9, 0.1]], np.float32), (COUNT, 1))
    np.savez(tmp_path / "f.npz", **arrays, conf=sure)
    captions = [{"image": str(n), "text": ["what is it", "it is here"]} for n in range(COUNT)]
    least = [f"mixture.{entry}.exercise.limit_items.least=1" for entry in ("matching", "words", "features")]
    pretrain("uniter", tmp_path, captions, *least)
    described = json.loads((tmp_path / "uniter/cloze/network.json").read_text(encoding="utf-8"))
    (edit,) = described["input_edits"]
    assert edit["limit_items"]["confidence"] == 0.2 and edit["limit_items"]["least"] == 1
    captions_of_store = Captions.of_store(Store.open(tmp_path / "uniter-store"))  # retrieval reads as many, too
    pairs = matcher_of(load_checkpoint(tmp_path / "uniter"), captions_of_store, whose="S").rows
    assert pairs.batch([pairs.row(0, 0)] * 2, np.array([0, 1]))["item_length/regions"].tolist() == [1, 1]
    rows = [{"text": "what is it", "image": str(n), "label": CLASSES[KIND[n]]} for n in range(COUNT)]
    train = write(tmp_path / "train.jsonl", rows)
    items, out = ["--items", str(tmp_path / "f.npz")], tmp_path / "out"
    given = ["--train", train, "--dev", train, *items, "--set", "training.epochs=1", "--device", "cpu", "--out", str(out)]
    assert main(["finetune", str(tmp_path / "uniter"), *given]) == 0
    assert "limit_items" in (out / "cloze/recipe.yaml").read_text(encoding="utf-8")
    examples = task_in_folder(out).read(train)
    learner: Any = load_tuned(show_pictures(load_checkpoint(out), [str(tmp_path / "f.npz")], [examples]))[0]
    batch = learner.reader.batch(learner.encode(examples)[:3])
    assert batch["item_length/regions"].tolist() == [1, 1, 1] and batch["item_vectors/regions"].shape == (3, 1, 6)
    assert "item_vectors/regions/score" not in batch
    assert main(["finetune", str(tmp_path / "uniter"), *given[:4], *given[6:-1], str(tmp_path / "texts")]) == 0
