"""From pictures and captions to a network: features of trained backbones, stores, and what recipes ask of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cloze.cli.main import main
from tests.interop.test_backbones import write_model

image = pytest.importorskip("PIL.Image", reason="reading pictures needs pillow")
pytest.importorskip("transformers")
COUNT = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures with captions as COCO writes them, and stores of the features of a backbone (`cells`, of width 16), of a
    classifier of crops (`crops`) and of an untrained extractor (`pixels`, of width 12)."""
    folder = tmp_path_factory.mktemp("named")
    (folder / "pictures").mkdir()
    draw = np.random.default_rng(0)
    for number in range(COUNT):
        image.fromarray(draw.integers(0, 256, (24, 40, 3), dtype=np.uint8)).save(folder / "pictures" / f"{number}.png")
    images = [{"id": number, "file_name": f"{number}.png"} for number in range(COUNT)]
    texts = [{"image_id": n, "caption": text} for n in range(COUNT) for text in (f"a picture number {n}", "colours and noise")]
    (folder / "captions.json").write_text(json.dumps({"images": images, "annotations": texts}))
    backbone = str(write_model(folder / "vit", "vit"))
    classifier = str(write_model(folder / "resnet", "resnet", classes=("ant", "bee", "cat")))
    ways = {"cells": ["--model", backbone], "crops": ["--model", classifier, "--grid", "2", "--crops"],
            "pixels": ["--grid", "2", "--with", "pixels", "--size", "2"]}  # fmt: skip
    for name, way in ways.items():
        assert main(["features", str(folder / "pictures"), *way, "--out", str(folder / f"{name}.npz")]) == 0
        build = ["corpus", "build", str(folder / "captions.json"), "--size", "60", "--out", str(folder / name)]
        assert main([*build, "--items", f"regions={folder / name}.npz"]) == 0
    return folder


def pretrain(folder: Path, recipe: str, store: str, *more: str) -> int:
    words = ["--size", "tiny", "--budget", "2steps", "--set", "training.batch=4", "--device", "cpu"]
    return main(["pretrain", recipe, "--corpus", str(folder / store), *words, "--out", str(folder / f"{recipe}-{store}"), *more])


def recipe_of(run: Path) -> str:
    text = (run / "cloze" / "recipe.yaml").read_text(encoding="utf-8")
    return text[text.index("\ncorpus:") if "\ncorpus:" in text else text.index("\nsources:") :]


@pytest.mark.parametrize(("recipe", "lacking"), [
    ("uniter", "probabilities"), ("vilbert", "probabilities"), ("lxmert", "label, class, attribute"), ("unicoder-vl", "class"),
])
def test_features_without_classes_train_without_the_questions_about_these(
    recipe: str, lacking: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert pretrain(folder, recipe, "cells") == 0
    said = capsys.readouterr().out
    assert said.count(f"the store has no {lacking}, so the network does not learn to predict this") == 1
    written = recipe_of(folder / f"{recipe}-cells")
    assert "width: 16" in written and "regions: [features, boxes]" in written
    assert not any(f"array: {name}" in written for name in ("probabilities", "class", "attribute"))


@pytest.mark.parametrize("recipe", ["uniter", "vilbert"])
def test_a_classifier_of_crops_answers_the_questions_about_classes(
    recipe: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert pretrain(folder, recipe, "crops") == 0
    assert "the store has no" not in capsys.readouterr().out
    written = recipe_of(folder / f"{recipe}-crops")
    assert "width: 12" in written and "array: probabilities" in written and "numbers: 3" in written


def test_a_recipe_as_published_refuses_what_its_store_lacks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["peek", "uniter", "--corpus", str(folder / "cells"), "--rows", "1"]) == 0
    capsys.readouterr()
    assert pretrain(folder, "uniter", "cells", "--as-published", "--out", str(folder / "as-published")) == 2
    error = capsys.readouterr().err
    assert "its items 'regions' have no 'probabilities', which the recipe reads" in error
    assert "cloze features PICTURES --model MODEL --grid 4 --crops" in error


def test_a_network_goes_on_with_features_of_its_width_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(folder, "visualbert", "cells") == 0
    run = str(folder / "visualbert-cells")
    items = f"regions={folder / 'pixels.npz'}"
    build = ["corpus", "build", str(folder / "captions.json"), "--items", items, "--tokenizer", run]
    assert main([*build, "--out", str(folder / "again")]) == 0
    more = ["--corpus", str(folder / "again"), "--budget", "2steps", "--out", str(folder / "other"), "--device", "cpu"]
    capsys.readouterr()
    assert main(["pretrain", run, "--init", run, *more]) == 2
    error = capsys.readouterr().err
    assert "it reads items of 16 numbers each, and those of the text have 12.\n  Make their features as for its" in error
    assert main(["evaluate", run, str(folder / "again"), "--task", "retrieval"]) == 2
    assert "have 12 numbers each, and the network reads 16.\n  Make features as for its training text" in capsys.readouterr().err
