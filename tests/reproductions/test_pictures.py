"""reproductions/pictures.py and the scripts for its data: what is asked of captions, and what is drawn and said."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("PIL")
ROOT = Path(__file__).resolve().parents[2] / "reproductions"
Script = Callable[[str], ModuleType]


@pytest.fixture
def made(script: Script, monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.syspath_prepend(str(ROOT / "data"))
    return script


def test_each_colour_word_is_hidden_alone_and_of_a_chinese_one_the_first_character(made: Script) -> None:
    masked = made("pictures").masked
    assert list(masked("a bee on red and a car on blue and a key on red", "en")) == [
        ("a bee on [MASK] and a car on blue and a key on red", "red"),
        ("a bee on red and a car on blue and a key on [MASK]", "red"),
        ("a bee on red and a car on [MASK] and a key on red", "blue"),
    ]  # fmt: skip
    assert list(masked("紫色上的大象和红色上的蜜蜂", "zh")) == [
        ("紫色上的大象和[MASK]色上的蜜蜂", "红"), ("[MASK]色上的大象和红色上的蜜蜂", "紫"),
    ]  # fmt: skip


def test_the_table_has_a_column_for_each_kind_of_cell(made: Script, tmp_path: Path) -> None:
    pictures = made("pictures")
    ledger = pictures.Ledger(tmp_path / "pictures.jsonl")
    chosen = [cell for cell in pictures.cells() if cell["system"] == "uniter" and cell["features"] == "zero"][:2]
    for cell, right in zip(chosen, (0.1, 0.2), strict=True):
        ledger.add(cell, {"colours picture": right, "matching": 0.5})
    head, _, first, *_ = pictures.table(ledger).splitlines()
    column = head.split("|").index(" uniter en zero ")
    assert first.split("|")[column].strip() == "15.0 ± 7.1 (2)"
    assert len({tuple(cell.values()) for cell in pictures.cells()}) == len(list(pictures.cells()))


def test_things_of_a_scene_do_not_overlap_and_captions_name_them_in_every_language(made: Script) -> None:
    scenes = made("data/emoji_scenes")
    draw = np.random.default_rng(0)
    for _ in range(50):
        things = scenes.scene(draw)
        assert 1 <= len(things) <= 3 and len({one.thing for one in things}) == len(things)
        boxes = [one.box for one in things]
        assert all(0 <= low < high <= scenes.SIDE for box in boxes for low, high in (box[::2], box[1::2]))
        pairs = [(a, b) for n, a in enumerate(boxes) for b in boxes[:n]]
        assert all(a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1] for a, b in pairs)
    one = [scenes.Thing("🐘", "🟥", (0, 0, 9, 9)), scenes.Thing("🐝", "🟧", (9, 9, 19, 19))]
    english = {"🐘": "elephant", "🐝": "bee", "🟥": "red square", "🟧": "orange square"}
    assert scenes.caption(one, english, "en", "there is ") == "there is an elephant on red and a bee on orange"
    assert scenes.caption(one, {**english, "🐘": "Elefant"}, "de", "") == "Elefant: red square, bee: orange square"
    assert scenes.caption(one[:1], {"🐘": "大象", "🟥": "红色方块"}, "zh", "") == "红色上的大象"


def test_a_film_moves_its_thing_as_the_narrator_says(made: Script) -> None:
    from PIL import Image

    films = made("data/moving_scenes")
    black = Image.new("RGBA", (128, 128), "black")
    for way, (x, y) in films.WAYS["en"].items():
        shown = films.frames(black, black, (x, y), np.random.default_rng(1)).reshape(films.EACH, films.SMALL, films.SMALL, 3)
        dark = (1 - shown[..., 0].astype(np.float32)) * (shown[..., 0] < 0.5)
        across = (dark.sum(1) * np.arange(films.SMALL)).sum(1) / dark.sum((1, 2))
        down = (dark.sum(2) * np.arange(films.SMALL)).sum(1) / dark.sum((1, 2))
        assert (np.sign(across[-1] - across[0]).round() if x else 0) == x, way
        assert (np.sign(down[-1] - down[0]).round() if y else 0) == y, way


def test_captions_of_a_stamp_are_told_apart_by_language(made: Script) -> None:
    captions = made("data/stamps").captions
    assert captions("A frog.\nde.utf8=Ein Frosch.\nzh_CN.utf8=青蛙。\nfr.utf8=\n") == {
        "en": "A frog.", "de": "Ein Frosch.", "zh_CN": "青蛙。",
    }  # fmt: skip
    assert captions("\nde.utf8=Ein Frosch.\n") == {"de": "Ein Frosch."} and captions("") == {}


def test_objects_of_three_boxes_stand_side_by_side(made: Script) -> None:
    nlvr = made("data/nlvr")
    boxes = [
        [{"x_loc": 80, "y_loc": 20, "size": 20, "type": "triangle", "color": "#0099ff"}], [],
        [{"x_loc": 1, "y_loc": 90, "size": 30, "type": "square", "color": "Black"}],
    ]
    features, edges, kinds = nlvr.objects(boxes)
    assert np.flatnonzero(features[0, :12]).tolist() == [2, 5, 7, 9] and features[0, 12:] == pytest.approx([0.9, 0.3])
    assert np.flatnonzero(features[1, :12]).tolist() == [0, 4, 8, 11] and features[1, 12:] == pytest.approx([0.16, 0.95])
    assert edges == pytest.approx(np.array([[0.8 / 3, 0.2, 1 / 3, 0.4], [2.01 / 3, 0.9, 2.31 / 3, 1.0]]))
    assert [nlvr.NAMES[kind] for kind in kinds] == ["blue triangle", "black square"]


def test_sentences_of_nlvr_are_apart_in_train_and_dev_and_every_picture_has_its_objects(
    made: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(os.environ.get("CLOZE_DATA", "")) / "vl_en_nlvr"
    if not folder.is_dir():
        pytest.skip("set CLOZE_DATA to a folder with vl_en_nlvr")
    made("data/nlvr").write(folder, tmp_path)
    read = {
        part: [json.loads(line) for line in (tmp_path / f"{part}.jsonl").read_text(encoding="utf-8").splitlines()]
        for part in ("train", "dev", "test", "captions")
    }
    assert {part: len(rows) for part, rows in read.items()} == {"train": 891, "dev": 98, "test": 990, "captions": 488}
    assert not {row["text"] for row in read["train"]} & {row["text"] for row in read["dev"]}
    assert {row["label"] for part in ("train", "dev", "test") for row in read[part]} == {"true", "false"}
    with np.load(tmp_path / "objects.npz") as file:
        assert {row["image"] for rows in read.values() for row in rows} == set(file["keys"].tolist())
        boxes, which = file["boxes"], file["features"][:, 9:12].argmax(1)
        assert file["offsets"][-1] == len(boxes) == len(file["class"]) > 10_000
        assert (boxes[:, 0] >= which / 3 - 1e-6).all() and (boxes[:, 2] <= (which + 1) / 3 + 1e-6).all()


def test_one_word_of_a_narration_is_hidden_and_the_tables_have_every_measure(made: Script, tmp_path: Path) -> None:
    more = made("more_pictures")
    assert more.question("the bee on red moves up", more.WAYS) == ("the bee on red moves [MASK]", "up")
    assert more.question("the bee on red moves up", more.COLOURS["en"]) == ("the bee on [MASK] moves up", "red")
    ledger = more.Ledger(tmp_path / "more.jsonl")
    for cell in [cell for cell in more.cells() if cell["data"] == "nlvr"][:3]:
        ledger.add(cell, {"test accuracy": 0.5 + cell["seed"] / 10, "prior": 0.55, "held-out x": 1.0})
    *_, found, _, _ = more.table(ledger).split("\n\n")
    assert found.splitlines()[0] == "| nlvr, uniter | objects | text |"
    assert "| test accuracy | 65.0 ± 7.1 (2) | 60.0 (1) |" in found and "held-out" not in found
    assert len({tuple(cell.values()) for cell in more.cells()}) == len(list(more.cells())) == 30


def test_a_statement_keeps_the_thing_and_is_true_of_its_colour_alone(made: Script) -> None:
    more, draw = made("more_pictures"), np.random.default_rng(1)
    scene = {"image": "7.png", "caption": ["a bee on red and a hot pepper on blue", "…"]}
    found = [more.statement(scene, draw) for _ in range(200)]
    true = {"a bee on red", "a hot pepper on blue"}
    assert {row["text"] for row in found if row["label"] == "true"} == true
    assert len({row["text"] for row in found if row["label"] == "false"} - true) == 12
    assert all((row["text"] in true) == (row["label"] == "true") and row["image"] == "7.png" for row in found)


def test_a_drawing_is_called_by_its_title_and_its_keywords_without_marks_of_the_library(made: Script, tmp_path: Path) -> None:
    art = made("data/clip_art")
    head = '<svg xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:cc="http://web.resource.org/cc/"><cc:Work>'
    words = "".join(f"<cc:li>{word}</cc:li>" for word in ("hash", "Food", "festive_drink", "0x865f", "alcohol"))
    (tmp_path / "a.svg").write_text(f"{head}<dc:title> Wine\n Glass</dc:title>{words}</cc:Work></svg>")
    assert art.said(tmp_path / "a.svg") == ("wine glass", ("alcohol", "festive drink", "food"))
    (tmp_path / "b.svg").write_text(f"{head}<dc:title>someone@example.org</dc:title></cc:Work></svg>")
    assert art.said(tmp_path / "b.svg") == ("", ())
    (tmp_path / "c.svg").write_text("<svg><unclosed></svg>")
    assert art.said(tmp_path / "c.svg") is None
