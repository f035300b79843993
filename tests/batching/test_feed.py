"""Rows laid into batches: padding, packing, flat positions, dealing to ranks, cursors over epochs, data workers."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cloze.batch import Batch
from cloze.batching import Cursor, Data, Feed, collate
from cloze.batching.collate import one_per_row, pad_targets, several_per_row
from cloze.batching.packing import pack
from cloze.corpus.sources.plan import RowPlan
from cloze.errors import RecipeError
from cloze.exercises import TokenFacts
from cloze.exercises.exercise import PlacedEdit
from cloze.exercises.frame import Frame
from cloze.exercises.noise.corrupt import Corrupt
from cloze.exercises.noise.mask import Mask
from cloze.exercises.targets.predict import Predict
from cloze.rng import Draw, permutation, row_keys
from cloze.rows import Rows

FACTS = TokenFacts(1000, {"[CLS]": 2, "[SEP]": 3, "[MASK]": 4}, np.arange(5, 1000, dtype=np.int32), lambda text: [])


@dataclass
class Numbers:
    """A source whose passage k has 3 + k % 9 tokens, all with id 10 + k."""

    count: int = 23
    seed: int = 0

    def plan(self, epoch: int, max_tokens: int) -> Any:
        length = np.minimum(3 + np.arange(self.count) % 9, max_tokens)
        order = permutation(self.count, self.seed, "main", "order", epoch)
        return RowPlan(epoch, max_tokens, order, SimpleNamespace(length=length))

    def read(self, plan: Any, items: np.ndarray, want: frozenset[str]) -> Rows:
        k = plan.order[items]
        length = plan.passages.length[k].astype(np.int32)
        return Rows({"tokens": np.repeat(10 + k[:, None], int(length.max()), axis=1).astype(np.int32), "length": length})

    def draw(self, plan: Any, items: np.ndarray) -> Draw:
        return Draw(row_keys(self.seed, "main", plan.epoch, items=plan.order[items]))


def feed(count: int = 23, **options: Any) -> Feed:
    edits = [Frame("[CLS] {A} [SEP]", tokenizer=FACTS), Mask(rate=0.3), Corrupt(tokenizer=FACTS), Predict()]
    options = {"length": 14, "takes": frozenset({"tokens", "segments"}), "padding": 0, **options}
    return Feed(Numbers(count), [PlacedEdit(e) for e in edits], **options)


def test_collate_pads_and_names_the_padding_block_zero():
    rows = Rows({
        "tokens": np.array([[5, 6, 7], [8, 9, 99]], np.int32), "length": np.array([3, 2], np.int32),
        "targets/main": np.array([[1], [2]]), "positions/main": np.array([[2], [1]]),
    })
    laid = collate(rows, one_per_row(rows["length"]), takes=frozenset({"tokens"}), padding=77)
    assert laid["tokens"].tolist() == [[5, 6, 7], [8, 9, 77]]
    assert laid["block"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert laid["positions/main"].tolist() == [2, 4] and laid["targets/main"].tolist() == [1, 2]


def test_collate_leaves_out_the_block_of_full_rows():
    rows = Rows({"tokens": np.array([[5, 6], [8, 9]], np.int32), "length": np.array([2, 2], np.int32)})
    assert set(collate(rows, one_per_row(rows["length"]), takes=frozenset({"tokens"}))) == {"tokens"}


def test_packed_examples_keep_their_answers_and_restart_positions():
    rows = Rows({
        "tokens": np.array([[5, 6, 0], [7, 8, 9], [3, 0, 0]], np.int32), "length": np.array([2, 3, 1], np.int32),
        "targets/main": np.array([[50], [70], [30]]), "positions/main": np.array([[1], [2], [-1]]),
        "targets/next": np.array([0, 1, 0]),
    })
    layout = several_per_row(rows["length"], np.array([0, 0, 1]), 6)
    laid = collate(rows, layout, takes=frozenset({"tokens"}))
    assert laid["tokens"].tolist() == [[5, 6, 7, 8, 9, 0], [3, 0, 0, 0, 0, 0]]
    assert laid["block"].tolist() == [[1, 1, 2, 2, 2, 0], [1, 0, 0, 0, 0, 0]]
    assert laid["position_ids"].tolist() == [[0, 1, 0, 1, 2, 0], [0] * 6]
    assert laid["summaries"].tolist() == [0, 2, 6]
    assert laid["positions/main"].tolist() == [1, 4] and laid["targets/main"].tolist() == [50, 70]
    assert laid["positions/next"].tolist() == [0, 1, 2] and laid["targets/next"].tolist() == [0, 1, 0]


def test_answers_padded_to_a_multiple_weigh_nothing():
    padded = pad_targets({"targets/main": np.array([4, 5, 6]), "positions/main": np.array([1, 2, 3])}, 4)
    assert padded["targets/main"].tolist() == [4, 5, 6, 0]
    assert padded["weights/main"].tolist() == [1, 1, 1, 0]


def rows_of(length: list[int], width: int) -> list[list[int]]:
    packed = pack(np.array(length), width)
    return [packed.members_of(np.array([row]))[0].tolist() for row in range(len(packed))]


def looked_for_in_turn(length: list[int], width: int, lookahead: int = 64) -> list[list[int]]:
    """The rows of `pack`, made by looking at every open row for every example."""
    opened: list[list[int]] = []
    closed: list[list[int]] = []

    def space(row: list[int]) -> int:
        return width - sum(length[example] for example in row)

    for example, size in enumerate(length):
        fits = [row for row in opened if space(row) >= size]
        row = min(fits, key=space) if fits else []
        if not fits:
            opened.append(row)
        row.append(example)
        if space(row) < 4:
            place = next(place for place, one in enumerate(opened) if one is row)
            closed.append(opened.pop(place))
        elif len(opened) > lookahead:
            closed.append(opened.pop(0))
    return closed + opened


@pytest.mark.parametrize("width", [16, 64, 200])
def test_examples_are_packed_as_if_every_open_row_was_looked_at(width):
    length = np.random.default_rng(width).integers(3, 62, 700).clip(max=width).tolist()
    made = rows_of(length, width)
    assert made == looked_for_in_turn(length, width)
    assert sorted(sum(made, [])) == list(range(700)) and max(sum(length[k] for k in row) for row in made) <= width


def test_an_example_is_packed_where_it_fits_best_and_may_fill_a_row_to_the_last_token():
    assert rows_of([10, 6, 5, 6], 16) == [[0, 1], [2, 3]]
    assert rows_of([8, 10, 6], 16) == [[1, 2], [0]]
    assert rows_of([], 16) == []


def test_tokens_of_a_micro_batch_are_the_real_ones_of_both_sequences():
    rows = Rows({
        "tokens": np.array([[5, 6, 7], [5, 6, 0]], np.int32), "length": np.array([3, 2], np.int32),
        "decoder.tokens": np.array([[1, 8], [1, 0]], np.int32), "decoder.length": np.array([2, 1], np.int32),
    })
    (part,) = feed(takes=frozenset({"tokens"})).laid_out(rows, None, [2])
    assert (part.tokens, part.examples) == (3 + 2 + 2 + 1, 2)


@pytest.mark.parametrize("packing", [False, True])
def test_an_epoch_visits_every_passage_once(packing):
    source = feed(packing=packing)
    rows = source.row_count(0)
    block, _ = source.examples(0, np.arange(rows))
    original = np.where(block["tokens"][:, 1] == 4, 0, block["tokens"][:, 1])
    assert block.count == 23
    assert len(set(original[original > 5].tolist())) == (original > 5).sum()


START = Cursor()


def batches(data: Data, steps: int, cursor: Cursor = START) -> list[dict[str, list]]:
    out = []
    for _ in range(steps):
        parts, cursor = data.next("main", cursor)
        out.append([{k: v.tolist() for k, v in part.batch.items()} for part in parts])
    return out


@pytest.mark.parametrize("packing", [False, True])
def test_resuming_at_a_cursor_gives_the_same_batches_over_the_end_of_an_epoch(packing):
    def data() -> Data:
        return Data({"main": feed(packing=packing)}, batch=4)

    straight = batches(data(), 12)
    cursor, resumed = Cursor(), []
    for _ in range(12):  # a fresh object every step: nothing but the cursor is carried
        fresh = data()
        parts, cursor = fresh.next("main", cursor)
        resumed.append([{k: v.tolist() for k, v in part.batch.items()} for part in parts])
    assert straight == resumed
    assert cursor.epoch >= 1


def test_ranks_and_micro_batches_share_out_the_rows_of_one_process():
    whole = Data({"main": feed(fixed=True)}, batch=8).next("main", Cursor())[0]
    tokens = whole[0].batch["tokens"].tolist()
    dealt, first_rows = [], []
    for rank in range(2):
        for part in Data({"main": feed(fixed=True)}, batch=8, micro_batch=2, rank=rank, ranks=2).next("main", Cursor())[0]:
            dealt += part.batch["tokens"].tolist()
            first_rows.append(part.first_row)
    assert dealt == tokens
    assert first_rows == [0, 2, 4, 6]


def test_data_workers_make_the_same_batches():
    alone = Data({"main": feed()}, batch=4)
    helped = Data({"main": feed()}, batch=4, workers=2)
    try:
        assert batches(helped, 9) == batches(alone, 9)
    finally:
        helped.close()


def shown(data: Data, share: float, cursor: Cursor = START) -> list[dict[str, list]]:
    return [{k: v.tolist() for k, v in part.batch.items()} for part in data.next("main", cursor, share)[0]]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_rate_that_changes_is_that_of_the_share_spent_before_the_step(workers):
    def data(rate: Any, **options: Any) -> Data:
        return Data({"main": masking(rate)}, batch=4, held_out={"main": masking(rate)}, **options)

    falling = data(lambda share: 0.9 - 0.6 * share, workers=workers)
    assert shown(falling, 0.0) == shown(data(0.9), 0.0)
    second = falling.next("main", START, 0.0)[1]
    assert shown(falling, 0.5, second) == shown(data(0.6), 0.5, second)  # though it may have been made ahead
    assert shown(falling, 1.0, second) == shown(data(0.3), 1.0, second) != shown(data(0.9), 1.0, second)
    held_out = [[part.batch["tokens"].tolist() for part in made.held_out("main")] for made in (falling, data(0.3))]
    assert held_out[0] == held_out[1]


def masking(rate: Any) -> Feed:
    mask = PlacedEdit(Mask(rate=rate)) if isinstance(rate, float) else PlacedEdit(Mask(), schedules={"rate": rate}).when(0.0)
    frame = PlacedEdit(Frame("[CLS] {A} [SEP]", tokenizer=FACTS))
    edits = [frame, mask, PlacedEdit(Corrupt(tokenizer=FACTS)), PlacedEdit(Predict())]
    return Feed(Numbers(), edits, length=14, takes=frozenset({"tokens"}), padding=0)


def test_a_rate_that_changes_must_stay_a_share():
    with pytest.raises(RecipeError, match=r"mask: rate must be above 0 and at most 1, got 1\.5"):
        PlacedEdit(Mask(), schedules={"rate": lambda share: 1.5 - share})


def test_a_batch_that_ranks_cannot_share_evenly_is_refused():
    with pytest.raises(RecipeError, match="expected a multiple of 2"):
        Data({"main": feed()}, batch=5, ranks=2)


def test_a_phase_changes_length_and_batch():
    data = Data({"main": feed()}, batch=4)
    assert data.change({"batch": 6}) is False
    assert data.change({"length": 8}) is True
    parts, _ = data.next("main", Cursor())
    assert parts[0].batch["tokens"].shape == (6, 8)


def test_held_out_rows_are_the_same_every_time():
    data = Data({"main": feed()}, batch=4, held_out={"main": feed(9)})
    first, second = ([m.batch["tokens"].tolist() for m in data.held_out("main")] for _ in range(2))
    assert first == second and sum(map(len, first)) == 9


def test_held_out_rows_are_no_more_than_asked_for_and_shared_by_the_ranks():
    def rows(rank: int, ranks: int) -> list[list[int]]:
        data = Data({"main": feed()}, batch=4, held_out={"main": feed(9)}, held_out_rows=6, rank=rank, ranks=ranks)
        return [row for micro in data.held_out("main") for row in micro.batch["tokens"].tolist()]

    def words(rank: int, ranks: int) -> list[set[int]]:
        return [{token for token in row if token >= 10} for row in rows(rank, ranks)]

    assert len(words(0, 1)) == 6
    assert [len(words(rank, 2)) for rank in (0, 1)] == [3, 3] and words(0, 2) + words(1, 2) == words(0, 1)


def test_the_data_of_a_rank_as_one_process_has_them_have_the_rows_of_all_ranks():
    def tokens(data: Data) -> tuple[list[int], list[int]]:
        trained = [token for micro in data.next("main", Cursor())[0] for token in micro.batch["tokens"].ravel().tolist()]
        return trained, [token for micro in data.held_out("main") for token in micro.batch["tokens"].ravel().tolist()]

    options = {"batch": 4, "held_out": {"main": feed(8)}}
    alone = tokens(Data({"main": feed(fixed=True)}, **options))
    for rank in (0, 1):
        shared = Data({"main": feed(fixed=True)}, rank=rank, ranks=2, **options)
        assert tokens(shared) != alone and tokens(shared.whole()) == alone


def test_a_view_without_tokens_is_laid_out_by_its_vectors():
    vectors = np.arange(12, dtype=np.float32).reshape(2, 3, 2) + 1
    block = Rows({
        "tokens": np.array([[5, 6], [7, 8]], np.int32), "length": np.array([2, 2], np.int32),
        "picture.vectors": vectors, "picture.length": np.array([3, 1], np.int32),
        "picture.targets/region": np.array([[4, 9], [6, -1]]), "picture.positions/region": np.array([[0, 2], [0, -1]]),
    })
    (part,) = feed(takes=frozenset({"tokens", "vectors"})).laid_out(block, None, [2])
    assert part.arrays["picture.block"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert (part.arrays["picture.vectors"][0] == vectors[0]).all()
    assert part.arrays["picture.vectors"][1].tolist() == [[7, 8], [0, 0], [0, 0]]
    assert part.arrays["picture.positions/region"].tolist() == [0, 2, 3]
    assert part.tokens == 2 + 2 + 3 + 1
    batch = Batch({name: torch.from_numpy(array) for name, array in part.arrays.items()})
    assert sorted(batch.shapes()) == [(2, 2), (2, 3)]


def test_a_view_without_tokens_or_vectors_is_laid_out_with_its_items_and_targets():
    block = Rows({
        "tokens": np.array([[5, 6, 7], [8, 0, 0]], np.int32), "length": np.array([3, 1], np.int32),
        "picture.items/region": np.array([[1, 2], [3, 4]], np.int32), "picture.targets/kind": np.array([0, 1], np.int32),
    })  # fmt: skip
    (part,) = feed(takes=frozenset({"tokens", "block"})).laid_out(block, None, [2])
    assert part.tokens == 4 and part.examples == 2
    assert part.arrays["picture.items/region"].tolist() == [[1, 2], [3, 4]]
    assert part.arrays["picture.positions/kind"].tolist() == [0, 1] and "picture.block" not in part.arrays
    batch = Batch({name: torch.from_numpy(value.astype(np.int64)) for name, value in part.arrays.items()})
    assert batch.view("picture")["items/region"].shape == (2, 2) and batch.shapes() == [(2, 3)]


def test_rows_of_vectors_alone_are_moved_and_united_like_rows_of_tokens():
    rows = Rows({"vectors": np.arange(12.0).reshape(2, 3, 2), "length": np.array([3, 3]), "positions/a": np.array([[2], [0]])})
    moved = rows.splice(np.array([[1, 2], [0, 2]]), np.array([2, 2]))
    assert moved["vectors"][:, :, 0].tolist() == [[2, 4], [6, 10]] and moved["positions/a"].tolist() == [[1], [0]]
    other = Rows({"vectors": np.ones((1, 3, 2)), "segments": np.ones((1, 3), np.int32), "length": np.array([3])})
    assert Rows.concatenate_mixed([rows.without("positions/a"), other])["segments"].tolist() == [[0, 0, 0], [0, 0, 0], [1, 1, 1]]
