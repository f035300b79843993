"""Retrieval with pictures: ranks against a table, chance against all orders, and scores against the networks themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cloze
from cloze.checkpoint.build import load_checkpoint
from cloze.cli.main import main
from cloze.corpus.stores.store import Store
from cloze.decoding.filling import fill
from cloze.decoding.pictures import Pictures, shown_picture
from cloze.decoding.reader_and_head import to_fill
from cloze.errors import UserError
from cloze.probes.look import look
from cloze.tasks.intrinsic.picture_retrieval import (
    ByHead,
    ByPairs,
    ByVectors,
    ByWords,
    Captions,
    PictureRanks,
    WrittenRows,
    chance,
    evaluate_pictures,
    figures,
    matcher_of,
)
from tests import samples

SETS = {
    "unicoder-vl": (ByHead, "network.layers=1"), "visualbert": (ByWords, "network.layers=1"),
    "univilm": (ByVectors, "stages.all.training.batch=4"), "cbt": (ByPairs, "network.layers=1"),
    "videobert": (ByHead, "network.layers=1"),
}


class Table:
    """A matcher whose scores stand in a table (texts, pictures)."""

    default_candidates, zero, how = None, True, "a table"

    def __init__(self, scores: Any) -> None:
        self.table, self.asked = np.asarray(scores, float), 0

    def scores(self, texts: Any, pictures: Any, report: Any = None) -> Any:
        self.asked += len(texts)
        return self.table[texts, pictures]


def captions(pairs: list[tuple[int, int]], texts: int, pictures: int) -> Captions:
    return Captions([np.zeros(1, np.int32)] * texts, Pictures([str(n) for n in range(pictures)], {}), np.array(pairs, np.int64))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a system after one update."""
    made: dict[str, Path] = {}

    def train(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "run"
            store = samples.scenes("none") if name in ("unicoder-vl", "visualbert", "bert") else samples.films()
            code = main([
                "pretrain", name, "--size", "tiny", "--seed", "1", "--device", "cpu", "--corpus", str(store),
                "--budget", "2steps", "--set", SETS[name][1], "--set",
                "training.batch=4" if name != "univilm" else "stages.joint.training.batch=4",
                "--out", str(made[name]),
            ])  # fmt: skip
            assert code == 0
        return made[name]

    return train


def test_ranks_are_those_of_a_table_in_which_ties_count_against_and_right_answers_do_not() -> None:
    table = Table([[3, 1, 2], [2, 2, 0], [1, 5, 4]])
    found = PictureRanks(
        table, captions([(0, 0), (1, 1), (2, 0), (2, 2)], 3, 3), candidates=None, seed=0, report=lambda done: None
    )
    assert found.ranks[0].tolist() == [1, 2, 2]  # text 1: a tie; text 2: its better picture stands behind 1
    assert found.ranks[1].tolist() == [1, 2, 1]
    assert [side.tolist() for side in found.right] == [[1, 1, 2], [2, 1, 1]]
    assert [side.tolist() for side in found.wrong] == [[2, 2, 1], [1, 2, 2]]
    assert found.matching == pytest.approx((1 + 0) / 2), "every right pair is above 0, no wrong one is below"


def test_of_wrong_answers_as_many_are_drawn_as_asked_for_and_the_seed_decides_which() -> None:
    g = np.random.default_rng(1)
    table, given = Table(g.normal(size=(9, 9))), captions([(n, n) for n in range(9)], 9, 9)
    drawn = [PictureRanks(table, given, candidates=3, seed=seed, report=lambda done: None) for seed in (0, 0, 1)]
    assert table.asked == 3 * (9 + 2 * 9 * 3) and {int(n) for side in drawn[0].wrong for n in side} == {3}
    assert drawn[0].ranks[0].tolist() == drawn[1].ranks[0].tolist() != drawn[2].ranks[0].tolist()
    every = PictureRanks(table, given, candidates=None, seed=0, report=lambda done: None)
    assert (drawn[0].ranks[0] <= every.ranks[0]).all() and (drawn[0].ranks[1] <= every.ranks[1]).all()


@pytest.mark.parametrize(("right", "wrong"), [(1, 3), (2, 3), (3, 1)])
def test_chance_is_the_mean_over_all_orders(right: int, wrong: int) -> None:
    ranks = np.array([1 + min(places[:right]) for places in permutations(range(right + wrong))])
    assert chance(np.array([right]), np.array([wrong])) == pytest.approx(figures(ranks))


def test_a_random_order_is_the_baseline_of_both_directions() -> None:
    g = np.random.default_rng(2)
    made = evaluate_pictures(Table(g.normal(size=(40, 40))), captions([(n, n) for n in range(40)], 40, 40))  # type: ignore[arg-type]
    assert made.baseline is not None and made.baseline["recall@10"] == pytest.approx(0.25) and made.baseline["matching"] == 0.5
    assert [row["direction"] for row in made.by_class] == ["text to picture", "picture to text"]
    assert made.metrics["recall@10"] == pytest.approx(np.mean([row["recall@10"] for row in made.by_class]))
    assert abs(made.metrics["recall@10"] - 0.25) < 0.15


@pytest.mark.parametrize("name", SETS)
def test_scores_are_those_of_the_network_for_each_pair_alone(run: Callable[[str], Path], name: str) -> None:
    loaded = load_checkpoint(run(name))
    store: Any = Store.open(samples.scenes("none") if name in ("unicoder-vl", "visualbert") else samples.films())
    given = Captions.of_store(store)
    matcher = matcher_of(loaded, given, whose="S", size=5)
    assert type(matcher) is SETS[name][0] and isinstance(matcher.rows, WrittenRows) == (name == "videobert")
    texts, pictures = np.array([0, 1, 2, 3, 3, 0]), np.array([1, 0, 2, 3, 0, 4])
    found = matcher.scores(texts, pictures)
    alone = [_alone(loaded, store, given, name, int(text), int(picture)) for text, picture in zip(texts, pictures, strict=True)]
    assert found == pytest.approx(alone, abs=2e-4)
    assert len(set(found.round(5))) == len(found)


def test_of_a_film_with_more_frames_than_training_reads_the_first_are_read(run: Callable[[str], Path]) -> None:
    loaded = load_checkpoint(run("univilm"))
    store: Any = Store.open(samples.films())
    captions_of_films = Captions.of_store(store)
    fewer = json.loads(json.dumps(loaded.recipe).replace('"most_items": 64', '"most_items": 3'))
    matcher = matcher_of(replace(loaded, recipe=fewer), captions_of_films, whose="S", size=5)
    assert isinstance(matcher, ByVectors)
    (items,) = store.items.sets.values()
    cut = replace(items, spans=np.stack([items.spans[:, 0], items.spans[:, 0] + 3], 1))
    shown = replace(captions_of_films, pictures=Pictures(store.items.keys, {items.name: cut}))
    expected = matcher_of(loaded, shown, whose="S", size=5)
    assert isinstance(expected, ByVectors)
    np.testing.assert_array_equal(matcher.item_vectors, expected.item_vectors)
    every = matcher_of(loaded, captions_of_films, whose="S", size=5)
    assert isinstance(every, ByVectors) and np.abs(every.item_vectors - expected.item_vectors).max() > 1e-3


@torch.no_grad()
def _alone(loaded: Any, store: Any, given: Captions, name: str, text: int, picture: int) -> float:
    """The score of one pair, straight from network and head."""
    roles, words = loaded.tokenizer.roles, given.texts[text]
    ids = [roles["[CLS]"], *words, roles["[SEP]"]]
    (items,) = store.items.sets.values()
    low, high = items.spans[picture]
    if name == "videobert":
        film = [loaded.tokenizer.id(f"[frames/{number}]") for number in items.arrays["word"][low:high]]
        ids = [*ids[:-1], loaded.tokenizer.id("[>]"), *film, roles["[SEP]"]]
    tokens = torch.tensor([ids])
    fields: dict[str, Any] = {"tokens": tokens, "segments": torch.zeros_like(tokens), "order": "open"}
    if name == "videobert":
        read = fields
    else:
        vectors = {items.name: torch.tensor(items.arrays["features"][low:high].astype(np.float32))[None]}
        if "boxes" in items.arrays:
            box = torch.tensor(items.arrays["boxes"][low:high])[None]
            area = (box[..., 2:] - box[..., :2]).prod(-1, keepdim=True)
            vectors[f"{items.name}/boxes"] = torch.cat([box, area], -1)
        read = {**fields, "item_vectors": vectors}
    network, heads = loaded.network, loaded.heads
    if name in ("unicoder-vl", "videobert"):
        states = network(want=frozenset({"summary"}), **read)
        scores = heads["match"].scores(states, {})[0]
        return float(scores[1] - scores[0])
    if name == "cbt":
        return float(heads["pairs"].head(network(want=frozenset({"pooled"}), **read)["pooled"]))
    if name == "univilm":
        states = network(want=frozenset({"text_mean", "item_mean"}), **read)
        return float((states["text_mean"] * states["item_mean"]).sum())
    head, total = heads["token_prediction"], 0.0
    for sign, shown in ((1, read), (-1, fields)):
        for place in range(1, len(ids) - 1):
            hidden = tokens.clone()
            hidden[0, place] = roles["[MASK]"]
            states = network(want=frozenset({"hidden"}), **{**shown, "tokens": hidden})
            scores = head.predict(states, {"positions/main": torch.tensor([place])})[0, : loaded.tokenizer.size]
            total += sign * float(scores.log_softmax(-1)[ids[place]])
    return total


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint of b2t2 after one update, and the store of linked captions that it has read."""
    folder = tmp_path_factory.mktemp("linked")
    g = np.random.default_rng(0)
    keys = [str(number) for number in range(12)]
    np.savez(
        folder / "f.npz", keys=keys, offsets=np.arange(13) * 2, features=g.random((24, 8), np.float32),
        boxes=np.tile(np.array([[0.0, 0.0, 0.5, 0.9], [0.5, 0.1, 1.0, 1.0]]), (12, 1)),
    )
    lines = [{"image": key, "caption": "a cat, a dog" if number % 2 else "a dog, a cat", "links": [[2, 5, 0], [9, 12, 1]]}
             for number, key in enumerate(keys)]
    lines[0]["links"] = [[2, 5, 1]]
    (folder / "c.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    items = ["--items", f"regions={folder / 'f.npz'}", "--size", "40", "--out", str(folder / "store")]
    assert main(["corpus", "build", str(folder / "c.jsonl"), *items]) == 0
    small = [word for value in ("training.batch=4", "training.held_out=0.0", "network.layers=1") for word in ("--set", value)]
    train = ["pretrain", "b2t2", "--size", "tiny", "--device", "cpu", "--corpus", str(folder / "store"), "--budget", "1steps"]
    assert main([*train, *small, "--out", str(folder / "run")]) == 0
    return folder / "run", folder / "store"


def test_a_pair_is_scored_with_its_links_and_a_wrong_one_with_those_of_the_text(linked: tuple[Path, Path]) -> None:
    loaded, store = load_checkpoint(linked[0]), Store.open(linked[1])
    given = Captions.of_store(store)  # type: ignore[arg-type]
    assert len(given.texts) == 2 and len(given.linked) == 12
    matcher = matcher_of(loaded, given, whose="S", size=3)
    assert isinstance(matcher, ByHead)
    texts, pictures = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 0])
    links = [[(2, 1)], [(2, 1)], [(2, 0), (5, 1)], [(2, 0), (5, 1)]]  # [CLS] a dog , a cat [SEP]
    begin, end = (loaded.tokenizer.roles[name] for name in ("[CLS]", "[SEP]"))
    tokens = torch.tensor([[begin, *given.texts[text], end] for text in texts])
    found, expected = matcher.scores(texts, pictures), []
    (items,) = store.items.sets.values()  # type: ignore[attr-defined]
    for row, (picture, own) in enumerate(zip(pictures.tolist(), links, strict=True)):
        low, high = items.spans[picture]
        vectors = {"regions": torch.tensor(items.arrays["features"][low:high])[None],
                   "regions/boxes": torch.tensor(items.arrays["boxes"][low:high])[None]}
        with torch.no_grad():
            states = loaded.network(
                want=frozenset({"summary"}), tokens=tokens[row : row + 1], segments=torch.zeros_like(tokens[:1]),
                item_vectors=vectors, links={"regions": torch.tensor(own)},
            )
            scores = loaded.heads["match"].scores(states, {})[0]
        expected.append(float(scores[1] - scores[0]))
    assert found == pytest.approx(expected, abs=2e-4) and len(set(found.round(6))) == 4


def test_evaluate_prints_both_directions_of_a_store(run: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["evaluate", str(run("unicoder-vl")), str(samples.scenes("none")), "--task", "retrieval", "--candidates", "3"]
    capsys.readouterr()
    assert main([*asked, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    assert found["report"][0]["questions"] == len(Captions.of_store(Store.open(samples.scenes("none"))).texts)  # type: ignore[arg-type]
    assert 0.25 <= found["baseline"]["recall@1"] < 0.5 and found["metrics"]["recall@5"] == 1.0
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert "picture to text" in shown and "always 'a random order'" in shown and "note: ranked among 3 random wrong ones" in shown


def test_a_text_is_filled_with_the_picture_that_is_named(run: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    loaded, file = load_checkpoint(run("unicoder-vl")), str(samples.SAMPLES / "scenes.npz")
    ready = to_fill(loaded)
    with np.load(file) as read:
        keys, offsets, features, boxes = read["keys"], read["offsets"], read["features"], read["boxes"]
    with pytest.raises(UserError, match=f"has several pictures. Name one of them: --picture {keys[0]}"):
        shown_picture(loaded, [file], None)
    reader = replace(ready.reader, pictures=shown_picture(loaded, [f"regions={file}"], str(keys[2])))
    own = slice(offsets[2], offsets[3])
    batch = reader.batch([reader.lay_out([np.array([7, 8], np.int32)])] * 3)
    for row in range(3):
        assert batch["item_vectors/regions"][row].numpy() == pytest.approx(features[own].astype(np.float32))
        assert batch["item_vectors/regions/boxes"][row, :, :4].numpy() == pytest.approx(boxes[own], abs=1e-3)
    assert batch["item_length/regions"].tolist() == [own.stop - own.start] * 3
    capsys.readouterr()
    assert main(["fill", str(loaded.folder), "a [MASK] cat", "--items", file, "--picture", str(keys[2]), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["masks"][0][0]
    expected, without = (fill(one, ready.head, ["a [MASK] cat"])[0].masks[0][0] for one in (reader, ready.reader))
    assert shown["probability"] == pytest.approx(expected.probability) != pytest.approx(without.probability)


def test_look_shows_attention_from_words_to_the_regions_of_the_picture(
    run: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded, file = load_checkpoint(run("unicoder-vl")), str(samples.SAMPLES / "scenes.npz")
    with np.load(file) as read:
        key, count = str(read["keys"][2]), int(read["offsets"][3] - read["offsets"][2])
    seen = look(replace(loaded, pictures=shown_picture(loaded, [file], key)), "a boat")
    (tokens,), (attention,) = seen.sequences.values(), seen.attention
    length = len(tokens) - count
    assert tokens.pieces[length:] == tuple(f"regions {n + 1}" for n in range(count)) and set(tokens.parts[length:]) == {1}
    assert attention.shares.shape[2:] == (len(tokens), len(tokens)) and seen.near[0].tokens.shape[1] == length
    np.testing.assert_allclose(attention.shares.sum(-1), 1.0, atol=1e-5)
    assert (attention.shares[:, :, :length, length:] > 0).all()
    page = tmp_path / "look.html"
    assert main(["look", str(loaded.folder), "a boat", "--items", file, "--picture", key, "--out", str(page)]) == 0
    assert f"{len(tokens)} tokens" in capsys.readouterr().out and f"regions {count}" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("words", "message"), [
    (["look", "RUN", "a boat", "--picture", "1", "--out", "PAGE.html"], "--picture 1: its items are needed, too"),
    (["fill", "RUN", "a [MASK]", "--items", "FILE", "--picture", "none.png"], "has no picture 'none.png'"),
    (["fill", "RUN", "a [MASK]", "--picture", "1"], "--picture 1: its items are needed, too"),
    (["fill", "RUN", "a [MASK]", "--items", "frames=FILE"], "--items frames=FILE: expected NAME=FILE, once for each of regions"),
    (["fill", "RUN", "a [MASK]", "--items", "NARROW"], "have 2 numbers each, and the network reads"),
    (["evaluate", "RUN", "FILMS", "--task", "retrieval"], "built with another tokenizer"),
    (["evaluate", "RUN", "nowhere-at-all", "--task", "retrieval"], "nowhere-at-all: no such file"),
    (["evaluate", "RUN", "STORE", "NARROW", "--task", "retrieval"], "narrow.npz: no store of texts with pictures. Build one"),
    (["evaluate", "RUN", "STORE", "--task", "retrieval", "--candidates", "few"], "--candidates few: expected all, or the number"),
    (["evaluate", "RUN", "STORE", "--task", "retrieval", "--candidates", "all", "--seed", "1"], "nothing is drawn at random"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(
    run: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    np.savez(tmp_path / "narrow.npz", keys=np.array(["1"]), offsets=np.array([0, 1]), features=np.ones((1, 2), np.float32))
    given = {
        "RUN": run("unicoder-vl"), "FILE": samples.SAMPLES / "scenes.npz", "FILMS": samples.films(),
        "STORE": samples.scenes("none"), "NARROW": tmp_path / "narrow.npz",
    }  # fmt: skip
    assert main([str(given.get(word, word)) for word in words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def filled(capsys: pytest.CaptureFixture[str], words: list[str]) -> list[dict[str, float]]:
    """The probabilities of the first mask of each text, by word."""
    capsys.readouterr()
    assert main(["fill", *words, "--top", "60", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [{one["piece"]: one["probability"] for one in line["masks"][0]} for line in lines]


def test_fill_reads_links_of_words_and_of_masks_with_items(
    linked: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, text, loaded = str(linked[0]), "a [MASK], a dog", load_checkpoint(linked[0])
    items = ["--items", str(linked[0].parent / "f.npz"), "--picture", "3"]
    (found,) = filled(capsys, [run, text, *items, "--links", "[[2, 8, 1], [12, 15, 0]]"])
    with np.load(linked[0].parent / "f.npz") as file:
        vectors = {"regions": torch.tensor(file["features"][6:8])[None]}
        boxes = torch.tensor(file["boxes"][6:8], dtype=torch.float32)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(-1, keepdim=True)
    vectors["regions/boxes"] = torch.cat([boxes, area], -1)[None]
    begin, end, mask = (loaded.tokenizer.roles[name] for name in ("[CLS]", "[SEP]", "[MASK]"))
    ids = list(loaded.tokenizer.encode("a cat, a dog").ids)
    ids[1:2] = [mask]
    head = loaded.heads["token_prediction"]
    with torch.no_grad():
        tokens = torch.tensor([[begin, *ids, end]])  # [CLS] a [MASK] , a dog [SEP]
        states = loaded.network(
            want=frozenset(head.reads), tokens=tokens, segments=torch.zeros_like(tokens), item_vectors=vectors,
            links={"regions": torch.tensor([[2, 1], [5, 0]])},
        )
        shares = head.predict(states, {"positions/main": torch.tensor([2])})[0, : loaded.tokenizer.size].softmax(-1)
    unknown = loaded.tokenizer.roles["[UNK]"]  # which is no answer
    assert len(found) == min(60, loaded.tokenizer.size) - 1
    assert found == {
        loaded.tokenizer.piece(n): pytest.approx(float(p), abs=1e-6) for n, p in enumerate(shares) if n != unknown
    }
    (plain,), (one,) = filled(capsys, [run, text, *items]), filled(capsys, [run, text, *items, "--links", "[[2, 8, 1]]"])
    assert max(abs(plain[word] - found[word]) for word in found) > 1e-4 < max(abs(one[word] - found[word]) for word in found)
    given: Any = {"top": 60, "items": linked[0].parent / "f.npz", "picture": "3"}
    told = cloze.load(run).fill(text, **given, links=[(2, 8, 1), (12, 15, 0)])
    assert {word.piece: word.probability for word in told.masks[0]} == {w: pytest.approx(p, abs=1e-6) for w, p in found.items()}
    lines = [{"text": text, "links": [[2, 8, 1], [12, 15, 0]]}, {"text": text}]
    (tmp_path / "l.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert filled(capsys, [run, str(tmp_path / "l.jsonl"), *items]) == [
        {word: pytest.approx(p, abs=1e-6) for word, p in own.items()} for own in (found, plain)
    ]
    assert filled(capsys, [run, text, text, *items, "--links", "[[[2, 8, 1]], []]"]) == [
        {word: pytest.approx(p, abs=1e-6) for word, p in own.items()} for own in (one, plain)
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--links", "[[2, 8, 0]]"], "links name items of a picture, and none is shown. Add its file: --items features.npz"),
        (["ITEMS", "--links", "[[2, 8, 2]]"], "--links: item 2, but the picture has 2 items 'regions', which count from 0."),
        (["ITEMS", "--links", "[2, 8]"], "--links: links [2, 8]; expected [[first character, the one after the last, number"),
        (["ITEMS", "--links", "2-8"], "--links 2-8: no JSON; expected [[first character"),
        (["ITEMS", "--links", "[[2, 80, 0]]"], "--links: "),
        (["again", "ITEMS", "--links", "[[[2, 8, 0]]]"], "expected a list of links for each of 2 texts."),
    ],
)
def test_links_that_cannot_be_used_are_refused(
    linked: tuple[Path, Path], capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    items = ["--items", str(linked[0].parent / "f.npz"), "--picture", "3"]
    given = [word for one in words for word in (items if one == "ITEMS" else [one])]
    assert main(["fill", str(linked[0]), "a [MASK], a dog", *given]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
