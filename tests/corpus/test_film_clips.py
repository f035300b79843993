"""Films: captions with times become clips, clips of a film share its frames, and an epoch is a pass over films."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.cli.main import main
from cloze.corpus.items import read_pictures
from cloze.corpus.items.film_clips import FilmClips
from cloze.corpus.readers.labelled import read_table
from cloze.corpus.readers.pictured.clips import Caption, Clip, joined
from cloze.corpus.records import Records
from cloze.corpus.stores.store import Store
from cloze.decoding.pictures import Pictures
from cloze.errors import CorpusError, TaskError
from cloze.rng import Draw, row_keys

CAPTIONS = {"start": [0.0, 2.5, 4.0, 12.0, 13.5, 30.0], "end": [2.0, 4.2, 11.0, 13.0, 16.0, 31.0], "text": list("abcdef")}
SECONDS = {"tea": 40, "rice": 9}
WIDTH = 3


def frames(film: str) -> np.ndarray:
    """Whose first number is the second."""
    return np.arange(SECONDS[film])[:, None] + np.array([0, 0.25, 100 * (film == "rice")], np.float32)


@pytest.fixture
def kitchen(tmp_path: Path) -> Path:
    """Captions of three films, and the frames of two of them, in every form."""
    films = {
        "tea": CAPTIONS, "rice": {"start": [3.0], "end": [20.0], "text": ["g"]},
        "lost": {"start": [0], "end": [1], "text": ["h"]},
    }
    (tmp_path / "caption.json").write_text(json.dumps(films))
    arrays = {film: {name: np.array(values, object) for name, values in lists.items()} for film, lists in films.items()}
    (tmp_path / "caption.pickle").write_bytes(pickle.dumps(arrays))
    rows = [{"image": film, **dict(zip(lists, cells, strict=True))} for film, lists in films.items()
            for cells in zip(*lists.values(), strict=True)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "frames").mkdir()
    for film in SECONDS:
        np.save(tmp_path / "frames" / f"{film}.npy", frames(film))
    (tmp_path / "films.csv").write_text("video_id,feature_file\ntea,frames/tea.npy\nrice,frames/rice.npy\n")
    (tmp_path / "frames.pickle").write_bytes(pickle.dumps({film: frames(film) for film in SECONDS}))
    return tmp_path


def build(kitchen: Path, captions: str, out: Path, *options: str, films: str = "frames") -> int:
    files = f"frames={kitchen / films}"
    return main(["corpus", "build", str(kitchen / captions), "--items", files, "--size", "60", "--out", str(out), *options])


def test_captions_are_joined_with_the_nearer_neighbour_until_they_last_five_seconds() -> None:
    """microsoft/UniVL at 8db88f39, dataloader_howto100m.py: `_get_single_transcript` with min_time 5 and `_expand_video_slice`
    for 40 frames."""
    captions = [Caption(text, Clip("tea", start, end)) for start, end, text in zip(*CAPTIONS.values(), strict=True)]
    clips = [(caption.row, caption.clip.start, caption.clip.end, *caption.clip.frames(40))
             for caption in joined(iter(captions), 5.0, " ".join)]
    assert clips == [
        ("a b c", 0.0, 11.0, 0, 12), ("a b c", 0.0, 11.0, 0, 12), ("c", 4.0, 11.0, 4, 12), ("c d e", 4.0, 16.0, 4, 17),
        ("c d e", 4.0, 16.0, 4, 17), ("e f", 13.5, 31.0, 13, 32),
    ]  # fmt: skip


def test_captions_of_other_films_are_no_neighbours_and_what_is_short_for_good_stays() -> None:
    captions = [Caption("a", Clip("x", 0, 1)), Caption("b", Clip("y", 0, 1)), Caption("c", Clip("y", 2, 3))]
    assert [caption.row for caption in joined(iter(captions), 5.0, "".join)] == ["a", "bc", "bc"]


@pytest.mark.parametrize(("clip", "expected"), [
    (Clip("f", 0, 0.5), (0, 1)), (Clip("f", 3.9, 5), (3, 6)), (Clip("f", 8.2, 99), (8, 10)), (Clip("f", 50, 60), (9, 10)),
    (Clip("f", 5, 3), (3, 6)),
])  # fmt: skip
def test_a_clip_has_the_frames_of_every_second_that_it_touches(clip: Clip, expected: tuple[int, int]) -> None:
    assert clip.frames(10) == expected


def test_keys_of_clips_are_read_as_they_are_written() -> None:
    assert Clip.of_key("a/b#t=12.5,20") == Clip("a/b", 12.5, 20) and Clip("x", 12345.678, 12346).key == "x#t=12345.678,12346"
    assert Clip.of_key("a/b.png") is None and Clip.of_key("x#t=1") is None


@pytest.mark.parametrize(
    ("captions", "films"), [("caption.json", "frames"), ("caption.pickle", "films.csv"), ("rows.jsonl", "frames.pickle")]
)
def test_a_store_of_films_is_the_same_from_every_form(
    captions: str, films: str, kitchen: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = kitchen / "store"
    assert build(kitchen, captions, out, films=films) == 0
    assert "no frames of 1 film with captions, which are left out" in capsys.readouterr().out
    store: Any = Store.open(out)
    items = store.items
    assert items.keys == ("tea#t=0,11", "tea#t=4,11", "tea#t=4,16", "tea#t=13.5,31", "rice#t=3,20")
    assert items.pictures.tolist() == [0, 0, 1, 2, 2, 3, 4] and items.groups.tolist() == [0, 0, 0, 0, 1]
    read = items.sets["frames"].read(np.array([2, 4]), ["features"], 8)
    assert read["item_length/frames"].tolist() == [8, 6], "of 13 frames the first 8, and to the end of the film"
    assert read["item_vectors/frames"][0, :, 0].tolist() == list(range(4, 12))
    assert read["item_vectors/frames"][1, :6, 2].tolist() == [100.0 + second for second in range(3, 9)]
    assert items.sets["frames"].size == sum(SECONDS.values()), "frames that clips share are stored once"


def test_clips_stay_as_they_are_if_none_is_to_be_joined(kitchen: Path) -> None:
    out = kitchen / "store"
    assert build(kitchen, "caption.json", out, "--seconds", "0") == 0
    store: Any = Store.open(out)
    assert store.items.keys[:3] == ("tea#t=0,2", "tea#t=2.5,4.2", "tea#t=4,11")


def test_the_key_of_a_clip_shows_its_frames_wherever_items_are_read(kitchen: Path) -> None:
    pictures = Pictures.of_files({"frames": str(kitchen / "frames")}, ["tea#t=2,3.5", "rice", "tea#t=39,41"])
    lengths = np.diff(pictures.sets["frames"].spans, axis=1).ravel()
    assert lengths.tolist() == [2, 9, 1]
    assert pictures.sets["frames"].arrays["features"][:, 0].tolist() == [2, 3, *range(9), 39]


def test_rows_of_films_have_their_key_and_every_list(kitchen: Path) -> None:
    path = kitchen / "youcook.pickle"
    lists = {"start": [1.0], "end": [2.5], "text": ["fry"], "transcript": ["now we fry"]}
    path.write_bytes(pickle.dumps({"v": {name: np.array(values, object) for name, values in lists.items()}}))
    table = read_table(path)
    assert dict(zip(table.columns, table.rows[0], strict=True)) == {
        "start": "1", "end": "2.5", "text": "fry", "transcript": "now we fry", "image": "v", "clip": "v#t=1,2.5",
    }


def test_files_that_cannot_be_used_say_so(kitchen: Path) -> None:
    (kitchen / "bad.json").write_text(json.dumps({"v": {"start": [1, 2], "end": [2], "text": ["a"]}}))
    with pytest.raises(TaskError, match=r"film 'v': its lists have different lengths: \{'start': 2"):
        read_table(kitchen / "bad.json")
    (kitchen / "bad.json").write_text(json.dumps({"v": {"start": ["soon"], "end": [2], "text": ["a"]}}))
    with pytest.raises(TaskError, match="start and end of a caption are 'soon' and 2, expected seconds"):
        read_table(kitchen / "bad.json")
    (kitchen / "bad.pickle").write_bytes(pickle.dumps(Path("x")))
    with pytest.raises(TaskError, match="bad.pickle: cannot be read: it would run pathlib"):
        read_table(kitchen / "bad.pickle")
    with pytest.raises(CorpusError, match="bad.pickle: cannot be read: it would run pathlib"):
        next(read_pictures(kitchen / "bad.pickle").pictures)
    (kitchen / "bad.csv").write_text("id,file\na,b\n")
    with pytest.raises(CorpusError, match="has the columns id, file; expected video_id and feature_file"):
        next(read_pictures(kitchen / "bad.csv").pictures)


@pytest.mark.parametrize(("change", "message"), [
    ({"start": 5, "end": 3}, "own.jsonl:1: start and end are '5' and '3'; expected seconds, the first not after the last"),
    ({"image": "soup"}, "no frames of any film with captions (1 film, such as 'soup')"),
])  # fmt: skip
def test_captions_that_fit_no_film_or_no_time_are_refused(
    change: dict[str, Any], message: str, kitchen: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kitchen / "own.jsonl").write_text(json.dumps({"image": "tea", "start": 1, "end": 2, "text": "a", **change}))
    assert build(kitchen, "own.jsonl", kitchen / "store") == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("clips", "stretches"), [
    (7, [[0, 1, 2], [3, 4, 5], [6, 0, 1]]), (3, [[0, 1, 2]]), (2, [[0, 1, 0]]), (1, [[0, 0, 0]]), (4, [[0, 1, 2], [3, 0, 1]]),
])  # fmt: skip
def test_a_film_gives_one_of_its_stretches_of_three_clips(clips: int, stretches: list[list[int]]) -> None:
    """microsoft/UniVL at 8db88f39, dataloader_howto100m.py: `iter2video_pairslist_dict` for n_pair 3."""
    films = FilmClips(np.repeat([5, 2], [2, clips]), 3)
    drawn = [films.drawn(np.array([0]), Draw(row_keys(seed, items=np.array([0])))) for seed in range(40)]
    assert sorted({tuple((one.record - 2).tolist()) for one in drawn}) == sorted(map(tuple, stretches))
    assert {tuple(one.repeat.tolist()) for one in drawn} == {tuple(range(3)) if clips == 1 else (0, 0, int(clips == 2))}


def test_an_epoch_is_a_pass_over_films_whose_clips_stand_together(kitchen: Path) -> None:
    out = kitchen / "store"
    assert build(kitchen, "caption.json", out) == 0
    source = Records(answer="none", items={"frames": ["features"]}, clips=3, length=48)
    records = source.bind(Store.open(out), seed=1, entry="main")
    epochs = [records.read(plan := records.plan(epoch, 40), np.arange(len(plan)), frozenset()) for epoch in range(8)]
    assert {len(rows["film"]) for rows in epochs} == {6}
    for rows in epochs:
        assert sorted(rows["film"][::3, 0].tolist()) == [0, 1] and (rows["film"][:, 0].reshape(2, 3).std(1) == 0).all()
        assert rows["film"][:, 1].tolist() == [-1, 0, 1] * 2
    tea = {tuple(rows["document"][rows["film"][:, 0] == 0].tolist()) for rows in epochs}
    assert tea == {(0, 1, 2), (3, 4, 5)}
    plan = records.plan(0, 40)
    rice = np.flatnonzero(epochs[0]["film"][:, 0] == 1)
    assert len(set(records.address(plan, rice).tolist())) == 3, "copies of a clip draw random numbers of their own"
