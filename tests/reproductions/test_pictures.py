"""reproductions/pictures.py and the scripts for its data: what is asked of captions, and what is drawn and said."""

from __future__ import annotations

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
