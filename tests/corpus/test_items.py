"""Items of records: files of regions → the store → fields of rows."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from cloze.batching.feed import Cursor, Feed
from cloze.cli.text.corpus import app
from cloze.cli.text.items import parse_items
from cloze.corpus import Store
from cloze.corpus.items import read_pictures
from cloze.corpus.items.item_writer import checked
from cloze.corpus.records import Records, RecordStore
from cloze.errors import CorpusError, RecipeError
from cloze.exercises.companions.mismatch import Mismatch
from cloze.exercises.exercise import PlacedEdit
from cloze.exercises.facts import TokenFacts
from cloze.exercises.frame import Frame
from cloze.exercises.items.ask_items import AskItems
from cloze.exercises.items.limit_items import LimitItems
from cloze.exercises.items.mask_items import MaskItems
from cloze.exercises.items.mismatch_items import MismatchItems
from cloze.rng import Draw, row_keys
from cloze.rows import Rows
from cloze.text import TextSpec, Tokenizer, train

KEYS = ["a", "b", "c", "d"]
OFFSETS = np.array([0, 3, 5, 9, 10])
CLASSES = np.array([0, 1, 2, 3, -1, 1, 2, 3, 0, 1])
CAPTIONS = [("b", ["the red cat", "a cat that is red"]), ("a", ["the blue dog"]), ("d", ["two yellow birds"])]


def arrays(**more: Any) -> dict[str, Any]:
    g = np.random.default_rng(0)
    box = np.sort(g.random((10, 2, 2), np.float32), axis=1).reshape(10, 4)
    found = {"features": g.random((10, 6), np.float32), "boxes": box, "class": CLASSES, "score": g.random(10, np.float32)}
    return {"keys": np.array(KEYS), "offsets": OFFSETS, **found, **more}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TextSpec.of({"lower": True}, "wordpiece", {"size": 60}), [text for _, texts in CAPTIONS for text in texts])


def captions(folder: Path) -> Path:
    lines = [json.dumps({"image": key, "text": texts if len(texts) > 1 else texts[0]}) for key, texts in CAPTIONS]
    (folder / "captions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "captions.jsonl"


def source_of(file: Path | str, **more: Any) -> Records:
    given = {"answer": "none", "items": {"regions": ["features", "boxes", "class", "score"]}, "length": 16}
    return Records(**{**given, "item_files": {"regions": str(file)}, **more})


def built(folder: Path, file: Path, tokenizer: Tokenizer, name: str = "store") -> RecordStore:
    said: list[str] = []
    return source_of(file).build_store([captions(folder)], tokenizer, folder / name, base=None, report=said.append)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> RecordStore:
    folder = tmp_path_factory.mktemp("items")
    np.savez(folder / "f.npz", **arrays(class_names=np.array(["w", "x", "y", "z"])))
    return built(folder, folder / "f.npz", tokenizer)


def test_records_of_one_picture_share_its_items_and_other_pictures_are_left_out(store: RecordStore) -> None:
    again = Store.open(store.path, verify=True)
    assert isinstance(again, RecordStore) and again.items is not None
    assert again.items.keys == ("b", "a", "d") and again.items.pictures.tolist() == [0, 0, 1, 2]
    regions = again.items.sets["regions"]
    assert regions.size == 6 and regions.spans.tolist() == [[3, 5], [0, 3], [5, 6]]
    assert regions.names["class"] == ("w", "x", "y", "z") and regions.classes["class"] == 4


def test_a_row_has_the_items_of_its_picture_padded_with_zeros_and_no_class(store: RecordStore) -> None:
    bound = source_of("f").bind(store, seed=1, entry="main")
    plan = bound.plan(0, 14)
    rows, given = bound.read(plan, np.arange(4), frozenset()), arrays()
    assert store.items is not None
    for row, record in enumerate(rows["document"]):
        number = KEYS.index(store.items.keys[store.items.pictures[record]])
        own, count = slice(OFFSETS[number], OFFSETS[number + 1]), OFFSETS[number + 1] - OFFSETS[number]
        assert rows["item_length/regions"][row] == count
        assert (rows["item_vectors/regions"][row, :count] == given["features"][own]).all()
        assert (rows["item_vectors/regions/score"][row, :count, 0] == given["score"][own]).all()
        assert rows["items/regions/class"][row].tolist() == [*CLASSES[own], *[-1] * (3 - count)]
        box = rows["item_vectors/regions/boxes"][row, :count]
        assert (box[:, :4] == given["boxes"][own]).all()
        assert np.allclose(box[:, 4], (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1]))
        assert not rows["item_vectors/regions"][row, count:].any()
        assert not rows["item_vectors/regions/boxes"][row, count:].any()


def test_companions_are_another_caption_of_the_picture_and_another_picture(store: RecordStore) -> None:
    bound = source_of("f").bind(store, seed=1, entry="main")
    want = frozenset({"sibling.tokens", "sibling.length", "distractor.item_length/regions", "distractor.tokens"})
    wrong = set()
    for epoch in range(20):
        plan = bound.plan(epoch, 14)
        rows = bound.read(plan, np.arange(4), want)
        for row, record in enumerate(rows["document"].tolist()):
            other = {0: 1, 1: 0}.get(record, record)
            text = store.tokens[store.sentence_starts[other] : store.sentence_starts[other + 1]]
            assert rows["sibling.tokens"][row, : rows["sibling.length"][row]].tolist() == text.tolist()
            wrong.add((record, int(rows["distractor.item_length/regions"][row])))
    sizes = [2, 2, 3, 1]  # of the pictures of the four records
    assert wrong == {(record, size) for record in range(4) for size in {1, 2, 3} - {sizes[record]}}


def test_an_exercise_on_two_captions_of_a_picture_refuses_pictures_with_one(store: RecordStore, tokenizer: Tokenizer) -> None:
    bound, facts = source_of("f").bind(store, seed=1, entry="main"), TokenFacts.of(tokenizer)
    pair = Frame("[CLS] {A} [SEP] {sibling} [SEP]", tokenizer=facts)
    edits = [PlacedEdit(Mismatch(of="sibling", wrong="distractor")), PlacedEdit(pair)]
    with pytest.raises(CorpusError) as caught:
        Feed(bound, edits, length=16, takes=frozenset(), padding=0)
    assert str(caught.value) == (
        f"{store.path}: 2 of 3 pictures have one caption, such as 'a'; the recipe pairs two different captions of a picture, "
        "since the same caption twice would show every hidden word.\n"
        "  Leave these pictures out of the captions, or take a recipe that reads one caption, such as visualbert-one-caption."
    )
    Feed(bound, [PlacedEdit(Frame("[CLS] {A} [SEP]", tokenizer=facts))], length=16, takes=frozenset(), padding=0)


def test_pictures_and_not_captions_are_held_out(tmp_path: Path, tokenizer: Tokenizer) -> None:
    rows = [json.dumps({"image": f"p{number}", "text": ["a cat", "the dog"]}) for number in range(40)]
    (tmp_path / "captions.jsonl").write_text("\n".join(rows), encoding="utf-8")
    np.savez(tmp_path / "f.npz", keys=[f"p{number}" for number in range(40)], features=np.ones((40, 2, 3), np.float32))
    source = Records(answer="none", items={"regions": ["features"]}, item_files={"regions": str(tmp_path / "f.npz")})
    made = source.build_store([tmp_path / "captions.jsonl"], tokenizer, tmp_path / "s", base=None, report=lambda line: None)
    parts = made.split(0.2)
    assert made.items is not None and len(parts["held_out"]) >= 4
    assert not set(made.items.pictures[parts["train"]]) & set(made.items.pictures[parts["held_out"]])
    assert sorted([*parts["train"], *parts["held_out"]]) == list(range(80))


def feed_of(store: RecordStore, tokenizer: Tokenizer, *edits: Any) -> Feed:
    bound = source_of("f").bind(store, seed=3, entry="main")
    frame = Frame(template="[CLS] {A} [SEP]", tokenizer=TokenFacts.of(tokenizer))
    return Feed(bound, [PlacedEdit(edit) for edit in (frame, *edits)], length=16, takes=frozenset({"tokens"}), padding=0)


def test_regions_beyond_a_limit_are_left_out_of_all_arrays() -> None:
    """Three rows with 5, 3 and 5 regions; the widths of arrays follow."""
    vectors = np.arange(3 * 5 * 2, dtype=np.float32).reshape(3, 5, 2)
    rows = Rows({
        "tokens": np.zeros((3, 8), np.int32), "length": np.array([4, 8, 8], np.int32), "item_vectors/regions": vectors,
        "items/regions/class": np.arange(15, dtype=np.int32).reshape(3, 5), "item_length/regions": np.array([5, 3, 5], np.int32),
        "item_vectors/frames": vectors, "item_length/frames": np.array([5, 5, 5], np.int32),
    })

    def limited(edit: LimitItems) -> Rows:
        return edit(rows, Draw(row_keys(1, "main", 0, items=np.arange(3))))

    assert limited(LimitItems())["item_length/regions"].tolist() == [5, 3, 5]
    assert limited(LimitItems(most=4))["item_length/regions"].tolist() == [4, 3, 4]
    together = limited(LimitItems(together=8, least=2))
    assert together["item_length/regions"].tolist() == [4, 2, 2] and together["item_length/frames"].tolist() == [5, 5, 5]
    assert (together["item_vectors/regions"] == vectors[:, :4]).all() and together["item_vectors/frames"].shape == (3, 5, 2)
    assert together["items/regions/class"].tolist() == [[0, 1, 2, 3], [5, 6, 7, 8], [10, 11, 12, 13]]


def test_regions_are_read_as_far_as_the_detector_is_sure() -> None:
    """`compute_num_bb(confs, conf_th, min_bb, max_bb)` of UNITER's data.py: max(min_bb, (confs > conf_th).sum()), then at most
    max_bb."""
    scores = np.array([[0.9, 0.5, 0.3, 0.2, 0.1], [0.9, 0.1, 0.1, 0.0, 0.0], [0.9, 0.8, 0.7, 0.6, 0.5]], np.float32)
    length = np.array([5, 3, 5], np.int32)
    fields = {
        "tokens": np.zeros((3, 8), np.int32), "length": np.array([4, 8, 8], np.int32), "item_length/regions": length,
        "item_vectors/regions": np.zeros((3, 5, 2), np.float32), "item_vectors/regions/score": scores[:, :, None],
    }

    def read(edit: LimitItems, **more: NDArray[Any]) -> list[int]:
        draw = Draw(row_keys(1, "main", 0, items=np.arange(3)))
        counts: list[int] = edit(Rows({**fields, **more}), draw)["item_length/regions"].tolist()
        return counts

    expected = [min(4, max(2, int((row[:n] > 0.2).sum())), n) for row, n in zip(scores, length, strict=True)]
    edit = LimitItems(most=4, confidence=0.2, least=2)
    assert read(edit) == expected == [3, 2, 4]
    del fields["item_vectors/regions/score"]
    assert read(edit) == [4, 3, 4]  # items without scores are all as good
    with pytest.raises(RecipeError, match="put limit_items before it"):
        read(edit, **{"items/regions/masked": np.zeros((3, 5), np.int32)})


def test_asked_items_have_flat_positions_in_the_states_of_items(store: RecordStore, tokenizer: Tokenizer) -> None:
    edits = MaskItems(rate=0.6, zero=1.0, keep=0.0), AskItems(), AskItems(array="class", set="object", weigh="score")
    feed = feed_of(store, tokenizer, *edits)
    runs, _ = feed.advance(Cursor(), 8)
    plain = feed_of(store, tokenizer).micro_batches(runs, [3, 5])
    for micro, before in zip(feed.micro_batches(runs, [3, 5]), plain, strict=True):
        found, was = micro.arrays, before.arrays
        masked = found["items/regions/masked"].reshape(-1) > 0
        assert masked.any() and found["positions/features"].tolist() == np.flatnonzero(masked).tolist()
        shown, whole = (one["item_vectors/regions"].reshape(-1, 6) for one in (found, was))
        assert (found["values/features"] == whole[masked]).all()
        assert not shown[masked].any() and (shown[~masked] == whole[~masked]).all()
        known = masked & (was["items/regions/class"].reshape(-1) >= 0)  # a region without a class is not asked
        assert found["positions/object"].tolist() == np.flatnonzero(known).tolist()
        assert found["targets/object"].tolist() == was["items/regions/class"].reshape(-1)[known].tolist()
        assert (found["weights/object"] == was["item_vectors/regions/score"].reshape(-1)[known]).all()
        assert found["item_vectors/regions"].shape[1] == found["item_length/regions"].max()


def test_mismatched_items_are_those_of_another_picture(store: RecordStore, tokenizer: Tokenizer) -> None:
    feed = feed_of(store, tokenizer, MismatchItems())
    runs, _ = feed.advance(Cursor(), 400)
    (before,), (after,) = feed_of(store, tokenizer).micro_batches(runs, [400]), feed.micro_batches(runs, [400])
    same = after.arrays["targets/match"] == 1
    assert 160 < same.sum() < 240
    equal = (before.arrays["item_vectors/regions"] == after.arrays["item_vectors/regions"]).all((1, 2))
    assert (equal == same).all() and not any(name.startswith("distractor") for name in after.arrays)
    assert (before.arrays["tokens"] == after.arrays["tokens"]).all()


def cell(values: Any, kind: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode()


def test_the_three_forms_of_files_give_the_same_items(tmp_path: Path) -> None:
    given, size = arrays(), (200, 100)
    np.savez_compressed(tmp_path / "f.npz", **given)
    rows = []
    (tmp_path / "folder").mkdir()
    for number, key in enumerate(KEYS):
        own = slice(OFFSETS[number], OFFSETS[number + 1])
        np.savez(tmp_path / "folder" / f"{key}.npz", x=given["features"][own], norm_bb=given["boxes"][own], **{
            "class": CLASSES[own], "conf": given["score"][own],
        })  # fmt: skip
        count = OFFSETS[number + 1] - OFFSETS[number]
        pixels = given["boxes"][own] * np.array([*size, *size], np.float32)
        rows.append("\t".join([
            key, str(size[1]), str(size[0]), cell(CLASSES[own], np.int64), cell(given["score"][own], np.float32),
            cell(CLASSES[own], np.int64), cell(given["score"][own], np.float32), str(count), cell(pixels, np.float32),
            cell(given["features"][own], np.float32),
        ]))  # fmt: skip
    (tmp_path / "f.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    for file in ("f.npz", "f.tsv", "folder"):
        for number, picture in enumerate(read_pictures(tmp_path / file).pictures):
            own = slice(OFFSETS[number], OFFSETS[number + 1])
            assert picture.key == KEYS[number]
            assert (picture.arrays["features"] == given["features"][own]).all()
            assert (picture.arrays["class"] == CLASSES[own]).all()
            assert (picture.arrays["score"].reshape(-1) == given["score"][own]).all()
            scale = np.array([*size, *size]) if file == "f.tsv" else 1
            assert np.allclose(picture.arrays["boxes"], given["boxes"][own] * scale)


def test_a_folder_of_uniters_files_is_read_as_it_is(tmp_path: Path) -> None:
    """ChenRocks/UNITER, scripts/convert_imgdir.py and data/data.py: norm_bb is x1, y1, x2, y2, width and height."""
    given, sides = arrays(), np.array([[1, 2, 3, 4, 5]]).T / 10
    corners = np.hstack([sides, sides, sides + 0.25, sides + 0.5])
    np.savez(
        tmp_path / "coco_7.npz", features=given["features"][:5], norm_bb=np.hstack([corners, corners[:, 2:] - corners[:, :2]]),
        conf=given["score"][:5], soft_labels=np.eye(5, dtype=np.float16),
    )
    [picture] = read_pictures(tmp_path).pictures
    rows = checked(picture, "coco_7")
    assert picture.key == "coco_7" and set(rows) == {"features", "boxes", "score", "probabilities"}
    assert np.allclose(rows["boxes"], corners) and rows["probabilities"].tolist() == np.eye(5).tolist()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"boxes": np.full((10, 4), 30.0)}, "outside of its picture; expected shares of it from 0 to 1, or pixels and the size"),
        ({"boxes": np.tile([0.5, 0.5, 0.2, 0.2], (10, 1))}, "Are these x, y, width, height?"),
        ({"features": np.full((10, 6), np.nan)}, "features has a value that is not a finite 32-bit number"),
        ({"features": np.full((10, 6), 1e300)}, "features has a value that is not a finite 32-bit number"),
        ({"picture": np.zeros(10, np.int32)}, "has an array 'picture', which cloze makes itself"),
        ({"features": np.asfortranarray(np.ones((10, 6), np.float32))}, "save np.ascontiguousarray of it"),
        (
            {"keys": np.array([], "U1"), "offsets": np.array([0]), "features": np.ones((0, 6), np.float32),
             "boxes": np.ones((0, 4)), "class": np.ones(0, np.int64), "score": np.ones(0)},
            "has no picture in it; expected the items of 3 pictures",
        ),
        ({"class_names": np.array(["cat", "dog"])}, "picture 'a': class is 2; the file has 2 names, from 0"),
        ({"class": CLASSES + 2**40}, "expected 32-bit numbers"),
        ({"keys": np.array(["a", "a", "b", "d"])}, "picture 'a' is there twice"),
        ({"keys": np.array(["a", "c", "x", "d"])}, "has no items of 1 picture of the captions: 'b'"),
        ({"class": CLASSES / 2}, "class is 0.0; expected whole numbers"),
        ({"class": CLASSES - 3}, "class is -"),
        ({"score": np.ones(9)}, "arrays as long as the last"),
    ],
)
def test_items_that_cannot_be_used_are_refused_and_nothing_is_written(
    tmp_path: Path, tokenizer: Tokenizer, change: dict[str, Any], said: str
) -> None:
    np.savez(tmp_path / "f.npz", **arrays(**change))
    with pytest.raises(CorpusError) as caught:
        built(tmp_path, tmp_path / "f.npz", tokenizer)
    assert said in str(caught.value) and not (tmp_path / "store").exists()


def test_boxes_in_pixels_are_divided_by_the_size_of_the_picture(tmp_path: Path, tokenizer: Tokenizer) -> None:
    given = arrays()
    scale = np.array([200, 100, 200, 100], np.float32)
    np.savez(tmp_path / "f.npz", **{**given, "boxes": given["boxes"] * scale, "size": np.tile([200, 100], (4, 1))})
    made = built(tmp_path, tmp_path / "f.npz", tokenizer)
    assert made.items is not None
    assert np.allclose(made.items.sets["regions"].arrays["boxes"][3:5], given["boxes"][3:5])


def test_a_store_without_the_wanted_items_is_refused_with_the_way_out(store: RecordStore, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no items 'frames'. .*\n.*--items frames=FILE"):
        Records(answer="none", items={"frames": ["features"]}).bind(store, seed=1, entry="main")
    with pytest.raises(CorpusError, match="have no 'attribute', which the recipe reads; they have features, boxes, class, score"):
        Records(answer="none", items={"regions": ["attribute"]}).bind(store, seed=1, entry="main")


def test_captions_and_items_become_a_store_on_the_command_line(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", **arrays())
    lines = [json.dumps({"image": key, "caption": texts}) for key, texts in CAPTIONS]
    (tmp_path / "captions.jsonl").write_text("\n".join(lines), encoding="utf-8")
    command = ["build", str(tmp_path / "captions.jsonl"), "--size", "60", "--out", str(tmp_path / "s")]
    done = CliRunner().invoke(app, [*command, "--items", f"regions={tmp_path / 'f.npz'}"])
    assert done.exit_code == 0 and "6 items 'regions' of 3 pictures: features (float32 x 6)" in done.output, done.output
    made = Store.open(tmp_path / "s", verify=True)
    assert isinstance(made, RecordStore) and made.items is not None and made.items.pictures.tolist() == [0, 0, 1, 2]
    rows = "\n".join(f"{key},{texts[0]}" for key, texts in CAPTIONS)
    for column, more in (("caption", []), ("said", ["--text", "said"])):
        (tmp_path / "captions.csv").write_text(f"image,{column}\n{rows}\n")
        command = ["build", str(tmp_path / "captions.csv"), "--size", "60", "--out", str(tmp_path / column), *more]
        done = CliRunner().invoke(app, [*command, "--items", f"regions={tmp_path / 'f.npz'}"])
        assert done.exit_code == 0 and Store.open(tmp_path / column).documents == 3, done.output
    done = CliRunner().invoke(app, [*command[:-3], "t", "--items", f"regions={tmp_path / 'f.npz'}"])
    assert str(done.exception).endswith("no column 'text'; it has: image, said.\n  Choose a column with --text NAME")
    assert parse_items(["regions=a", "frames=b=c"]) == {"regions": "a", "frames": "b=c"}
    with pytest.raises(CorpusError, match="--items regions: expected NAME=FILE"):
        parse_items(["regions"])


def test_a_file_of_items_that_is_missing_is_refused_before_captions_are_read(tmp_path: Path) -> None:
    from cloze.cli.main import main

    asked = ["corpus", "build", str(captions(tmp_path)), "--items", "regions=absent.npz", "--out", str(tmp_path / "s")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cloze.text.train", lambda *_, **__: pytest.fail("captions were read"))
        assert main(asked) == 2
    assert not (tmp_path / "s").exists()


def test_peek_says_which_items_are_hidden_and_what_is_asked_of_them(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    from cloze.cli.main import main

    np.savez(tmp_path / "f.npz", **arrays(class_names=np.array(["cat", "<dog>", "bird", "sun"])))
    built(tmp_path, tmp_path / "f.npz", tokenizer)
    asked = ["peek", "unicoder-vl", "--corpus", str(tmp_path / "store"), "--rows", "3", "--length", "32"]
    for value in ("mask_items.rate=1.0", "mask_items.zero=1.0", "mask_items.keep=0.0", "mismatch_items.rate=0.0"):
        asked += ["--set", f"exercise.{value}"]
    assert main([*asked, "--json"]) == 0
    (first, *_), found = zip(*((one, group) for one in map(json.loads, capsys.readouterr().out.splitlines())
                               for group in one["items"]), strict=True)  # fmt: skip
    items = [item for group in found for item in group["items"]]
    assert first["entry"] == "main" and [group["set"] for group in found] == ["regions"] * 3
    assert {item["shown"] for item in items} == {"hidden"} and all(len(item["box"]) == 4 for item in items)
    assert all(item["asked"] == ({"object": item["class"]} if "class" in item else {}) for item in items)
    assert {item["class"] for item in items if "class" in item} <= {"cat", "<dog>", "bird", "sun"}
    assert main(asked) == 0 and f"{len(found[0]['items'])} items, {len(found[0]['items'])} hidden" in capsys.readouterr().out
    assert main([*asked, "--html", str(tmp_path / "p.html")]) == 0
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert page.count('<rect class="hidden') == len(items) and "<dog>" not in page
    assert page.count('<rect class="hidden asked"') == sum("class" in item for item in items)


def test_captions_without_a_store_are_told_how_to_become_one_and_a_missing_store_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from cloze.cli.main import main

    assert main(["peek", "unicoder-vl", "--corpus", str(captions(tmp_path))]) == 2
    assert "cloze corpus build CAPTIONS.jsonl --items regions=FILE --out STORE" in capsys.readouterr().err
    assert main(["peek", "unicoder-vl", "--corpus", str(tmp_path / "absent")]) == 2
    assert "absent: no such file or folder" in capsys.readouterr().err


def test_labels_are_kept_for_a_recipe_that_reads_some_and_captions_without_labels_have_none(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    from cloze.cli.main import main

    np.savez(tmp_path / "f.npz", **arrays())
    lines = [
        {"image": "a", "caption": ["a cat", "a dog"], "label": ""}, {"image": "b", "caption": "who?", "label": "sun"},
        {"image": "b", "caption": "who is it?", "label": "cat"},
    ]  # fmt: skip
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    asked = ["corpus", "build", str(tmp_path / "c.jsonl"), "--items", f"regions={tmp_path / 'f.npz'}", "--size", "40", "--out"]
    source = Records(answer="class_or_none", items={"regions": ["features"]}, length=16)
    read = {}
    for recipe in ("lxmert", "uniter"):
        assert main([*asked, str(tmp_path / recipe), "--recipe", recipe]) == 0
        bound = source.bind(Store.open(tmp_path / recipe), seed=0, entry="main")
        rows = bound.read(bound.plan(0, 16), np.arange(4), frozenset({"column/label"}))
        read[recipe] = sorted(zip(rows["document"].tolist(), rows["column/label"].tolist(), strict=True))
    assert read["lxmert"] == [(0, -1), (1, -1), (2, 1), (3, 0)]
    assert read["uniter"] == [(number, -1) for number in range(4)]


def test_captions_without_labels_are_refused_by_a_published_recipe_that_reads_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from cloze.cli.main import main

    more = {"attribute": CLASSES, "attribute_score": arrays()["score"]}
    np.savez(tmp_path / "f.npz", **arrays(**more))
    build = ["corpus", "build", str(captions(tmp_path)), "--items", f"regions={tmp_path / 'f.npz'}", "--size", "40"]
    assert main([*build, "--out", str(tmp_path / "store")]) == 0
    capsys.readouterr()
    asked = ["pretrain", "lxmert", "--size", "tiny", "--corpus", str(tmp_path / "store"), "--budget", "1steps"]
    assert main([*asked, "--as-published", "--out", str(tmp_path / "run")]) == 2
    assert "have no 'label', which the recipe reads.\n  Give every row a 'label'" in capsys.readouterr().err
    assert not (tmp_path / "run" / "cloze" / "run.json").exists()


def test_wide_arrays_are_read_in_pieces_and_are_what_the_file_holds(tmp_path: Path, tokenizer: Tokenizer) -> None:
    wide = np.random.default_rng(2).random((10, 256)).astype(np.float16)
    np.savez(tmp_path / "f.npz", **arrays(features=wide))
    made = built(tmp_path, tmp_path / "f.npz", tokenizer)
    assert made.items is not None
    regions = made.items.sets["regions"]
    assert set(regions.pieces) == {"features"}
    pictures = np.array([2, -1, 0, 1, 0])
    found = regions.read(pictures, ["features", "score"])
    assert found["item_length/regions"].tolist() == [1, 0, 2, 3, 2]
    shown = found["item_vectors/regions"]
    assert shown.dtype == np.float16 and shown.shape == (5, 3, 256)
    for row, own in enumerate([wide[9:10], wide[:0], wide[3:5], wide[0:3], wide[3:5]]):
        assert (shown[row, : len(own)] == own).all() and not shown[row, len(own) :].any()
    assert regions.read(np.array([-1]), ["features"])["item_vectors/regions"].shape == (1, 0, 256)
    with (made.path / "items/regions/features.bin").open("r+b") as file:
        file.truncate(512)
    with pytest.raises(CorpusError, match="it was changed while it was read"):
        regions.read(np.array([1]), ["features"])
