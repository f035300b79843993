"""Links of captions: from `links` in the file to what a network adds to the tokens of a mention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloze.batching.feed import Cursor, Feed
from cloze.cli.main import main
from cloze.corpus import Store
from cloze.corpus.records import Records
from cloze.exercises.exercise import PlacedEdit
from cloze.exercises.facts import TokenFacts
from cloze.exercises.frame import Frame
from cloze.exercises.items.link_items import LinkItems
from cloze.exercises.items.mismatch_items import MismatchItems
from cloze.rng import Draw
from cloze.rows import Rows
from cloze.text import TextSpec, Tokenizer, train

FEATURES = np.random.default_rng(0).random((9, 4), np.float32)
LINES: list[dict[str, Any]] = [
    {"image": "a", "caption": ["the red cat sat", "a dog"], "links": [[[4, 11, 2], [12, 15, 0]], []]},
    {"image": "b", "caption": "a cat, a dog", "links": [[2, 5, 1]]},
    {"image": "c", "caption": "a bird"},
    {"image": "a", "caption": ["the red cat", "the red dog"], "links": [[[0, 3, 1]], [[8, 11, 0]]]},
]
#: Of each record in the order of the file, the word that is linked and its item.
EXPECTED = [{"red": 2, "cat": 2, "sat": 0}, {}, {"cat": 1}, {}, {"the": 1}, {"dog": 0}]


def written(folder: Path, lines: list[dict[str, Any]] = LINES) -> list[str]:
    """The command that builds a store of these captions at `folder/store`."""
    boxes = np.tile([0.1, 0.2, 0.5, 0.9], (9, 1))
    np.savez(folder / "f.npz", keys=["a", "b", "c"], offsets=[0, 3, 5, 9], features=FEATURES, boxes=boxes)
    (folder / "c.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    texts = ["the red cat sat dog a bird ,"] * 5
    tokenizer = train(TextSpec.of({"lower": True}, "wordpiece", {"size": 80}), texts)
    tokenizer.save(folder / "t", length=16, frame_single="", frame_pair="")
    command = ["corpus", "build", str(folder / "c.jsonl"), "--items", f"regions={folder / 'f.npz'}"]
    return [*command, "--tokenizer", str(folder / "t"), "--out", str(folder / "store")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("links")
    assert main(written(folder)) == 0
    return Store.open(folder / "store", verify=True)


def test_the_tokens_of_a_mention_have_the_number_of_their_item_in_the_order_of_the_file(store: Any) -> None:
    tokenizer: Tokenizer = store.tokenizer()
    for record, expected in enumerate(EXPECTED):
        own = slice(*store.sentence_starts[record : record + 2])
        words = [tokenizer.decode([number]) for number in store.tokens[own]]
        linked = {word: int(label) - 1 for word, label in zip(words, store.labels["linked"][own], strict=True) if label}
        assert linked == expected
    assert store.layers["linked"][:4].tolist() == [0, 1, 2, 1] and store.label_names("linked") == ("0", "1", "2")


def read(store: Any, *edits: Any, seed: int = 3, rows: int = 6) -> dict[str, Any]:
    """The arrays of a batch of all records in the order of the plan."""
    source = Records(answer="none", items={"regions": ["features"]}, length=16)
    frame = Frame(template="[CLS] {A} [SEP]", tokenizer=TokenFacts.of(store.tokenizer()))
    bound = source.bind(store, seed=seed, entry="main")
    placed = [PlacedEdit(edit) for edit in (frame, *edits, LinkItems())]
    feed = Feed(bound, placed, length=16, takes=frozenset({"tokens"}), padding=0)
    runs, _ = feed.advance(Cursor(), rows)
    (micro,) = feed.micro_batches(runs, [rows])
    return micro.arrays


def test_a_batch_holds_flat_positions_of_linked_tokens_and_of_their_items(store: Any) -> None:
    found, tokenizer = read(store), store.tokenizer()
    width, items = found["tokens"].shape[1], found["item_vectors/regions"].shape[1]
    seen = sorted(
        (tokenizer.decode([found["tokens"].reshape(-1)[token]]), found["item_vectors/regions"].reshape(-1, 4)[item].tolist())
        for token, item in found["links/regions"].tolist() if token // width == item // items
    )
    begins = [0, 0, 3, 5, 0, 0]
    wanted = [(word, FEATURES[begins[n] + item].tolist()) for n, one in enumerate(EXPECTED) for word, item in one.items()]
    assert seen == sorted(wanted) and len(found["links/regions"]) == len(seen) == 6


def test_a_wrong_picture_is_linked_as_often_as_a_right_one(store: Any) -> None:
    right, wrong = read(store, rows=60), read(store, MismatchItems(rate=1.0), rows=60)
    assert not wrong["targets/match"].any()
    assert wrong["links/regions"][:, 0].tolist() == right["links/regions"][:, 0].tolist()
    items = wrong["item_vectors/regions"].shape[1]
    rows, item = np.divmod(wrong["links/regions"][:, 1], items)
    assert (item < wrong["item_length/regions"][rows]).all() and len(set(item.tolist())) > 1


def test_numbers_begin_again_where_a_picture_has_fewer_items_and_one_without_items_has_no_links() -> None:
    labels = np.array([[0, 4, 4, 5, 9], [0, 4, 4, 5, 9], [3, 0, 0, 0, 0]])
    rows = Rows({
        "tokens": labels, "length": np.array([4, 4, 5]), "labels/linked": labels, "layers/linked": np.where(labels > 0, 2, 0),
        "item_length/regions": np.array([9, 2, 0]),
    })  # fmt: skip
    every = LinkItems()(rows, Draw(np.zeros(3, np.uint64)))["links/regions"]
    assert every.tolist() == [[[1, 3], [2, 3], [3, 4]], [[1, 1], [2, 1], [3, 0]], [[-1, -1]] * 3]
    first = LinkItems(tokens="first")(rows, Draw(np.zeros(3, np.uint64)))["links/regions"]
    assert first.tolist() == [[[1, 3], [3, 4]], [[1, 1], [3, 0]], [[-1, -1]] * 2]


def test_captions_without_links_are_read_by_the_same_recipe(tmp_path: Path) -> None:
    command = written(tmp_path, [{"image": line["image"], "caption": line["caption"]} for line in LINES])
    assert main(command) == 0
    made = Store.open(tmp_path / "store")
    assert not made.labels and not len(read(made)["links/regions"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"links": [[2, 5, 2]]}, "c.jsonl:2: a link names item 2 of the picture 'b', which has 2 items 'regions'"),
        ({"links": [[2, 5, -1]]}, "c.jsonl:2: the mention 2–5 names item -1; items count from 0"),
        ({"links": [[2, 99, 0]]}, "c.jsonl:2: the mention 2–99 of item 0 is outside the text, which has 12 characters"),
        ({"links": [[2, 4, 0]]}, "c.jsonl:2: the mention 2–4, 'ca', cuts a word of 'cat'"),
        ({"links": [[5, 5, 0]]}, "c.jsonl:2: the mention 5–5 of item 0 is outside the text, which has 12 characters, or empty"),
        ({"links": [[6, 7, 0]]}, "c.jsonl:2: the mention 6–7 of item 0 is white space"),
        ({"links": [[0, 5, 0], [2, 5, 1]]}, "c.jsonl:2: the mention 2–5 overlaps 0–5; expected one item for each word"),
        ({"links": [[2, 5]]}, "c.jsonl:2: links [[2, 5]]; expected [[first character, the one after the last, number of"),
        ({"links": [[2, 5, "0"]]}, "c.jsonl:2: links [[2, 5, '0']]; expected [[first character"),
        ({"caption": ["a cat", "a dog"], "links": [[2, 5, 1]]}, "c.jsonl:2: 2 texts in 'caption' and links [[2, 5, 1]]"),
    ],
)
def test_links_that_cannot_be_used_are_refused_with_their_line_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: dict[str, Any], said: str
) -> None:
    assert main(written(tmp_path, [LINES[0], {**LINES[1], **line}])) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "store").exists()
