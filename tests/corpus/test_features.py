"""Pictures and boxes → files of features, by frozen extractors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.cli.main import main
from cloze.corpus.items import read_pictures
from cloze.corpus.items.extractors import OwnFunction, RandomConvolution, SmallPictures, crops
from cloze.corpus.items.features import opened, write_features
from cloze.errors import CorpusError

image = pytest.importorskip("PIL.Image", reason="reading pictures needs pillow")


def pictures(folder: Path) -> Path:
    """Two pictures of 8 x 4 pixels: the left half red, the right half blue; and the other way round."""
    made = np.zeros((4, 8, 3), np.uint8)
    made[:, :4, 0] = made[:, 4:, 2] = 255
    (folder / "of" / "dogs").mkdir(parents=True)
    image.fromarray(made).save(folder / "of" / "a.png")
    image.fromarray(made[:, ::-1]).save(folder / "of" / "dogs" / "b.png")
    return folder / "of"


def box_file(folder: Path, given: Any) -> Path:
    (folder / "boxes.json").write_text(json.dumps(given), encoding="utf-8")
    return folder / "boxes.json"


BOXES = {
    "dogs/b.png": {"boxes": [[0, 0, 4, 4]], "class": ["dog"], "score": [0.5]},
    "a.png": {"boxes": [[0, 0, 4, 4], [4, 0, 8, 4]], "class": ["cat", "dog"], "score": [1, 0.25]},
}


def test_a_pixel_of_a_region_is_the_mean_of_what_it_covers() -> None:
    picture = np.arange(4 * 6, dtype=np.uint8).reshape(4, 6, 1).repeat(3, 2)
    made = crops(picture, np.array([[0, 0, 4, 4], [2, 1, 3, 2]], np.float32), 2)
    assert (made[0, :, :, 0] + 1) * 127.5 == pytest.approx(np.array([[3.5, 5.5], [15.5, 17.5]]))
    assert (made[1] + 1) * 127.5 == pytest.approx(np.full((2, 2, 3), 8.0))


def test_a_file_of_features_has_boxes_as_shares_names_as_numbers_and_says_what_made_it(tmp_path: Path) -> None:
    made = write_features(pictures(tmp_path), tmp_path / "f.npz", SmallPictures(1), boxes=box_file(tmp_path, BOXES))
    read = read_pictures(tmp_path / "f.npz")
    first, second = read.pictures
    assert made == (2, 3, 3, 0) and read.extractor == "pixels side=1" and read.names == {"class": ("cat", "dog")}
    assert (first.key, second.key) == ("a.png", "dogs/b.png")
    assert first.arrays["features"].tolist() == [[1, -1, -1], [-1, -1, 1]] and second.arrays["features"].tolist() == [[-1, -1, 1]]
    assert first.arrays["boxes"].tolist() == [[0, 0, 0.5, 1], [0.5, 0, 1, 1]]
    assert first.arrays["class"].tolist() == [0, 1] and first.arrays["score"].tolist() == [1, 0.25]


def test_a_grid_needs_no_boxes_and_random_convolution_depends_on_its_seed_alone(tmp_path: Path) -> None:
    folder = pictures(tmp_path)
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        write_features(folder, tmp_path / f"{name}.npz", RandomConvolution(5, seed), cells=2)
    one, two, three = (np.load(tmp_path / f"{name}.npz") for name in ("one", "two", "three"))
    assert one["features"].shape == (8, 5) and one["boxes"][1].tolist() == [0.5, 0, 1, 0.5]
    assert (one["features"] == two["features"]).all() and not (one["features"] == three["features"]).all()
    assert str(three["extractor"]) == "random_conv width=5 seed=1"


def test_an_interrupted_run_continues_with_the_picture_that_it_had_begun(tmp_path: Path) -> None:
    folder, boxes = pictures(tmp_path), box_file(tmp_path, BOXES)
    seen: list[int] = []

    def features(picture: Any, boxes: Any) -> Any:
        seen.append(len(boxes))
        if len(seen) == 2:
            raise RuntimeError("stopped")
        return boxes

    own = OwnFunction(features, "my.py", "12")
    with pytest.raises(RuntimeError):
        write_features(folder, tmp_path / "f.npz", own, boxes=boxes)
    with (tmp_path / "f.npz.partial" / "features.bin").open("ab") as stream:
        stream.write(b"half a row")
    write_features(folder, tmp_path / "f.npz", own, boxes=boxes)
    assert seen == [2, 1, 1] and not (tmp_path / "f.npz.partial").exists()
    assert np.load(tmp_path / "f.npz")["features"].tolist() == [[0, 0, 4, 4], [4, 0, 8, 4], [0, 0, 4, 4]]


def test_a_run_that_was_interrupted_over_other_pictures_of_the_same_names_begins_anew(tmp_path: Path) -> None:
    first, second = (pictures(tmp_path / name) for name in ("first", "second"))
    image.fromarray(np.full((4, 8, 3), 200, np.uint8)).save(second / "a.png")
    whole = (first / "dogs" / "b.png").read_bytes()
    (first / "dogs" / "b.png").write_bytes(b"broken")
    with pytest.raises(CorpusError, match="cannot be read as a picture"):
        write_features(first, tmp_path / "f.npz", SmallPictures(2), cells=1)
    write_features(second, tmp_path / "f.npz", SmallPictures(2), cells=1)
    write_features(second, tmp_path / "expected.npz", SmallPictures(2), cells=1)
    assert (np.load(tmp_path / "f.npz")["features"] == np.load(tmp_path / "expected.npz")["features"]).all()

    seen: list[int] = []

    def features(picture: Any, boxes: Any) -> Any:
        seen.append(int(picture[0, 0, 0]))
        return boxes

    with pytest.raises(CorpusError):
        write_features(first, tmp_path / "g.npz", OwnFunction(features, "my.py", "12"), cells=1)
    (first / "dogs" / "b.png").write_bytes(whole)
    write_features(first, tmp_path / "g.npz", OwnFunction(features, "my.py", "12"), cells=1)
    assert seen == [255, 0]  # what was whole is not read again


def test_a_grey_picture_of_16_bits_is_as_bright_as_one_of_8(tmp_path: Path) -> None:
    grey = np.arange(32, dtype=np.uint8).reshape(4, 8) * 8
    image.fromarray(grey).save(tmp_path / "8.png")
    image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "16.png")
    assert (opened(tmp_path / "16.png") == opened(tmp_path / "8.png")).all()


@pytest.mark.parametrize(("given", "what"), [
    ({"c.png": [[0, 0, 1, 1]]}, "has no picture 'c.png'"),
    ({"a.png": [[0, 0, 9, 4]]}, "box 0 is .* outside of its picture"),
    ({"a.png": [[4, 0, 2, 4]]}, "right or lower edge lies before the other"),
    ({"a.png": [[0, 0, 4]]}, r"boxes have the shape \(1, 3\)"),
    ({"a.png": {"boxes": [[0, 0, 4, 4]], "class": ["x", "y"]}}, "1 boxes, but class 2"),
    ({"a.png": [[0, 0, "x", 4]]}, "boxes holds no list of numbers"),
    ([], "expected an object with the boxes of each picture"),
])  # fmt: skip
def test_boxes_that_cannot_be_used_are_refused(tmp_path: Path, given: Any, what: str) -> None:
    with pytest.raises(CorpusError, match=what):
        write_features(pictures(tmp_path), tmp_path / "f.npz", SmallPictures(1), boxes=box_file(tmp_path, given))
    assert not (tmp_path / "f.npz").exists()


@pytest.mark.parametrize(("code", "what"), [
    ("def features(picture, boxes): return boxes[:1]", "gave float32 (1, 4) for 2 boxes"),
    ("def features(picture, boxes): return boxes * 1e6", "a value that float16 cannot hold (8e+06).\n  Add --number float32"),
    ("x = 1", "has no function 'features'"),
])
def test_wrong_extractors_of_users_are_errors_that_name_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, what: str
) -> None:
    (tmp_path / "my.py").write_text(code, encoding="utf-8")
    folder = pictures(tmp_path)
    given = ["--with", str(tmp_path / "my.py"), "--boxes", str(box_file(tmp_path, BOXES))]
    assert main(["features", str(folder), *given, "--out", str(tmp_path / "f.npz")]) == 2
    assert what in (said := capsys.readouterr().err) and "my.py" in said


@pytest.mark.parametrize(("given", "what"), [
    (["--grid", "2", "--with", "resnet"], "--with resnet: no such extractor. Known: pixels, random_conv."),
    ([], "expected either a file with boxes (--boxes FILE.json) or a number of equal cells (--grid 3)"),
    (["--grid", "2", "--number", "int8"], "--number int8: expected float16 or float32"),
])
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], what: str
) -> None:
    assert main(["features", str(pictures(tmp_path)), *given, "--out", str(tmp_path / "f.npz")]) == 2
    assert what in capsys.readouterr().err


def test_a_file_that_is_no_picture_is_named(tmp_path: Path) -> None:
    folder = pictures(tmp_path)
    (folder / "c.png").write_text("none", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"c\.png: cannot be read as a picture"):
        write_features(folder, tmp_path / "f.npz", SmallPictures(1), cells=1)
