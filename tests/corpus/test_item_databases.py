"""Items in HDF5 and LMDB as others publish them, pickles of plain values, and the captions of COCO."""

from __future__ import annotations

import base64
import json
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.cli.main import main
from cloze.corpus.items import Picture, read_pictures
from cloze.corpus.readers.objects import fields_of, objects
from cloze.corpus.readers.pictured.plain_pickle import read_plain
from cloze.errors import CorpusError, MissingExtra, TaskError

FEATURES = np.arange(12, dtype=np.float32).reshape(4, 3)
BOXES = np.array([[0, 0, 10, 5], [10, 0, 20, 10], [0, 0, 20, 10], [5, 5, 6, 6]], np.float32)
EXPECTED = {"7": slice(0, 3), "of/9": slice(3, 4)}


def text(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def require_expected(pictures: Any, *, sized: bool = True) -> None:
    read = {picture.key: picture for picture in pictures}
    assert set(read) == set(EXPECTED)
    for key, rows in EXPECTED.items():
        assert np.array_equal(read[key].arrays["features"], FEATURES[rows])
        assert np.array_equal(read[key].arrays["boxes"], BOXES[rows])
        assert read[key].size == ((20, 10) if sized else None)


# --- HDF5 -------------------------------------------------------------------------------------------------------------


def write_groups(file: Any) -> None:
    for key, rows in EXPECTED.items():
        group = file.create_group(key)
        group["features"], group["boxes"], group["obj_id"] = FEATURES[rows], BOXES[rows], np.arange(4)[rows]
        group["img_w"], group["img_h"] = 20, 10


def write_spans(file: Any) -> None:
    file["image_features"], file["image_bb"], file["pos_boxes"] = FEATURES, BOXES, [[0, 3], [3, 4]]
    file["image_ids"], file["image_w"], file["image_h"] = [b"7", b"of/9"], [20, 20], [10, 10]


def write_padded(file: Any) -> None:
    padded = {"features": np.zeros((2, 3, 3), np.float32), "boxes": np.zeros((2, 3, 4), np.float32)}
    for name, array in (("features", FEATURES), ("boxes", BOXES)):
        padded[name][0], padded[name][1, :1] = array[:3], array[3:]
        file[name] = padded[name]
    file["keys"], file["num_boxes"], file["size"] = [b"7", b"of/9"], [3, 1], [[20, 10]] * 2


@pytest.mark.parametrize("write", [write_groups, write_spans, write_padded])
def test_each_layout_of_hdf5_gives_the_pictures(write: Any, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "f.h5", "w") as file:
        write(file)
    require_expected(read_pictures(tmp_path / "f.h5").pictures)


def test_names_at_the_top_of_hdf5_begin_with_the_key(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "f.hdf5", "w") as file:
        file["7_features"], file["7_boxes"], file["7_cls_prob"] = FEATURES[:3], BOXES[:3], np.eye(3)
    (picture,) = read_pictures(tmp_path / "f.hdf5").pictures
    assert picture.key == "7" and np.array_equal(picture.arrays["probabilities"], np.eye(3))


def test_hdf5_files_that_hold_no_items_are_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "f.h5", "w") as file:
        file["image_features"] = FEATURES
    with pytest.raises(CorpusError, match="has no keys, ids, image_ids, image_id or img_id, .* it has image_features"):
        read_pictures(tmp_path / "f.h5")
    with h5py.File(tmp_path / "g.h5", "w") as file:
        file["keys"], file["features"] = [b"a", b"b"], FEATURES[:1]
    with pytest.raises(CorpusError, match="2 keys, 2 rows, and arrays"):
        list(read_pictures(tmp_path / "g.h5").pictures)
    with h5py.File(tmp_path / "l.h5", "w") as file:
        file["a"] = h5py.ExternalLink("other.h5", "/secret")
    with pytest.raises(CorpusError, match="has links to other places"):
        read_pictures(tmp_path / "l.h5")
    (tmp_path / "n.h5").write_bytes(b"nothing")
    with pytest.raises(CorpusError, match="not a whole HDF5 file"):
        read_pictures(tmp_path / "n.h5")


# --- LMDB and pickles -------------------------------------------------------------------------------------------------


def as_vilbert(rows: slice) -> Any:
    count = len(FEATURES[rows])
    return OrderedDict(image_id="7", image_w="20", image_h="10", num_boxes=str(count), boxes=text(BOXES[rows]),
                       features=text(FEATURES[rows]), cls_prob=text(np.ones((count, 2), np.float32)))  # fmt: skip


def as_mmf(rows: slice) -> Any:
    return {"feature_path": "7", "features": FEATURES[rows], "bbox": BOXES[rows], "num_boxes": len(FEATURES[rows]),
            "image_width": np.int64(20), "image_height": 10, "objects": np.arange(4)[rows], "cls_prob": None}  # fmt: skip


@pytest.mark.parametrize("form", [as_vilbert, as_mmf])
def test_entries_of_lmdb_are_pickled_dictionaries(form: Any, tmp_path: Path) -> None:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(tmp_path / "f.lmdb"), map_size=1 << 20) as database, database.begin(write=True) as transaction:
        for key, rows in EXPECTED.items():
            transaction.put(key.encode(), pickle.dumps(form(rows)))
        transaction.put(b"keys", pickle.dumps([b"7", b"of/9"]))
    require_expected(read_pictures(tmp_path / "f.lmdb").pictures)


def test_an_entry_of_lmdb_that_would_run_something_is_refused(tmp_path: Path) -> None:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(tmp_path / "f.lmdb"), map_size=1 << 20) as database, database.begin(write=True) as transaction:
        transaction.put(b"7", pickle.dumps({"features": Path("x")}))
    with pytest.raises(CorpusError, match=r"(?s)picture '7' cannot be read \(it would run pathlib.*Expected a pickled"):
        list(read_pictures(tmp_path / "f.lmdb").pictures)


def test_lmdb_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lmdb", None)
    (tmp_path / "data.mdb").write_bytes(b"")
    with pytest.raises(MissingExtra, match=r"needs the package lmdb, .*\n.*cloze-lm\[lmdb\]"):
        read_pictures(tmp_path)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_pickles_of_every_protocol_are_read(protocol: int) -> None:
    value = {"a": [1, 2.5, "ü", b"\xff", None, True], "f": FEATURES, "n": np.float32(2.5), "i": np.int64(3)}
    value["o"] = OrderedDict(x=1)
    read = read_plain(pickle.dumps(value, protocol=protocol))
    assert read["a"] == value["a"] and read["n"] == 2.5 and read["i"] == 3 and read["o"] == {"x": 1}
    assert np.array_equal(read["f"], FEATURES) and read["f"].dtype == np.float32


class Runs:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit(7)",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_names_anything_else_is_refused_before_it_runs(protocol: int) -> None:
    with pytest.raises(ValueError, match=r"it would run (__builtin__|builtins)\.exec"):
        read_plain(pickle.dumps([Runs()], protocol=protocol))
    for damaged in (b"", b"\x80\x04]", b"not a pickle"):
        with pytest.raises(ValueError):
            read_plain(damaged)


def test_the_table_of_vilberts_authors_has_probabilities(tmp_path: Path) -> None:
    row = as_vilbert(slice(0, 3))
    columns = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features", "cls_prob")
    (tmp_path / "f.tsv").write_text("\t".join(row[name] for name in columns) + "\n")
    (picture,) = read_pictures(tmp_path / "f.tsv").pictures
    assert isinstance(picture, Picture) and picture.key == "7" and picture.size == (20, 10)
    assert picture.arrays["probabilities"].shape == (3, 2) and np.array_equal(picture.arrays["boxes"], BOXES[:3])


# --- captions ---------------------------------------------------------------------------------------------------------

COCO = {
    "info": {"year": 2017},
    "images": [{"id": 9, "file_name": "b.jpg"}, {"id": 7, "file_name": "a.jpg"}, {"id": 8, "file_name": "c.jpg"}],
    "annotations": [
        {"id": 1, "image_id": 7, "caption": "a cat\n"}, {"id": 2, "image_id": 9, "caption": "the dog"},
        {"id": 3, "image_id": 7, "caption": "a black cat"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("indent", [None, 1])
def test_captions_of_coco_are_a_row_for_each_picture(indent: int | None, tmp_path: Path) -> None:
    file = tmp_path / "captions_train.json"
    file.write_text(json.dumps(COCO, indent=indent))
    assert list(objects(file)) == [
        (1, {"image": "b.jpg", "image_id": "9", "caption": ["the dog"]}),
        (2, {"image": "a.jpg", "image_id": "7", "caption": ["a cat", "a black cat"]}),
    ]
    assert fields_of(file) == ("image", "image_id", "caption")


def test_a_store_of_cocos_captions_finds_pictures_by_name_or_by_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "captions_train.json"
    file.write_text(json.dumps(COCO))
    features = np.ones((2, 2, 3), np.float32)
    np.savez(tmp_path / "names.npz", keys=["a.jpg", "b.jpg"], features=features)
    np.savez(tmp_path / "numbers.npz", keys=["7", "9"], features=features)
    build = ["corpus", "build", str(file), "--size", "30"]
    assert main([*build, "--items", f"regions={tmp_path / 'names.npz'}", "--out", str(tmp_path / "s")]) == 0
    words = ["--items", f"regions={tmp_path / 'numbers.npz'}", "--picture", "image_id", "--out", str(tmp_path / "t")]
    assert main([*build, *words]) == 0
    keys = [(tmp_path / store / "items" / "pictures.txt").read_text().split() for store in ("s", "t")]
    assert keys == [["b.jpg", "a.jpg"], ["9", "7"]]
    assert "4 items 'regions' of 2 pictures" in capsys.readouterr().out


def test_objects_of_an_array_on_one_line_have_numbers_of_their_own(tmp_path: Path) -> None:
    """By these numbers a record finds the picture of its row."""
    rows = [{"image": "a.jpg", "text": "a cat"}, {"image": "b.jpg", "text": "a dog"}]
    (tmp_path / "captions.json").write_text(json.dumps(rows))
    assert list(objects(tmp_path / "captions.json")) == [(1, rows[0]), (2, rows[1])]
    (tmp_path / "captions.json").write_text(json.dumps(rows, indent=1))
    assert [number for number, _ in objects(tmp_path / "captions.json")] == [2, 6]


LXMERT = [
    {"img_id": "P1", "sentf": {"mscoco": ["a cat"], "vqa": ["what is it?", "and why?"]},
     "labelf": {"vqa": [{"dog": 0.3, "cat": 1, "lion": 0.6}, {}]}},
    {"img_id": "P2", "sentf": {"mscoco": ["the dog", "a dog"]}, "labelf": {}},
]  # fmt: skip


def test_captions_and_questions_of_lxmert_are_a_row_each_with_the_best_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mscoco_train.json"
    file.write_text(json.dumps(LXMERT))
    assert [(row["image"], row["text"], row["label"]) for _, row in objects(file)] == [
        ("P1", "a cat", ""), ("P1", "what is it?", "cat"), ("P1", "and why?", ""), ("P2", "the dog", ""), ("P2", "a dog", ""),
    ]
    np.savez(tmp_path / "f.npz", keys=["P1", "P2"], features=np.ones((2, 2, 3), np.float32))
    build = ["corpus", "build", str(file), "--size", "30", "--items", f"regions={tmp_path / 'f.npz'}", "--recipe", "lxmert"]
    assert main([*build, "--out", str(tmp_path / "s")]) == 0
    assert "4 items 'regions' of 2 pictures" in capsys.readouterr().out
    wrong = [{**LXMERT[0], "labelf": {"vqa": [{"cat": 1}]}}]
    file.write_text(json.dumps(wrong))
    assert main([*build, "--out", str(tmp_path / "t")]) == 2
    assert "mscoco_train.json:1: 'vqa' of P1: expected a list of sentences in sentf, and as many" in capsys.readouterr().err


@pytest.mark.parametrize(("change", "what"), [
    ({"annotations": [{"image_id": 7, "bbox": []}]}, "entry 1 of annotations has no caption. Is this COCO's file of objects"),
    ({"annotations": [{"image_id": 5, "caption": "x"}]}, "is about the picture 5, which is not in images"),
    ({"images": [{"id": 7}]}, "entry 1 of images has no id and file_name"),
])
def test_other_files_of_coco_are_refused(change: dict[str, Any], what: str, tmp_path: Path) -> None:
    file = tmp_path / "instances.json"
    file.write_text(json.dumps({**COCO, **change}))
    with pytest.raises(TaskError, match=what):
        list(objects(file))
