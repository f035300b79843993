"""The compiled kernels of word vectors: their draws, one step by hand, the loop's own gradient, and the engine that runs them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cloze import rng
from cloze.batch import Batch
from cloze.errors import RecipeError
from cloze.networks import WordVectors
from cloze.objectives.static.hierarchical_softmax import HierarchicalSoftmax
from cloze.objectives.static.negative_sampling import NegativeSampling

pytest.importorskip("numba")

from cloze.kernels import KERNELS
from cloze.kernels.vectors import arguments as parts
from cloze.kernels.vectors import draws, exact, lines, rows, shared, tables

EXACT = parts.Sigmoid.exact()


def job(tokens: Any, lengths: Any, *, rate: float, key: int = 1) -> parts.TrainingLines:
    """Lines that follow one another."""
    sizes = np.asarray(lengths, np.int64)
    keys = rng.row_keys(key, items=np.arange(len(sizes)))
    return parts.TrainingLines(
        np.asarray(tokens, np.uint16), np.cumsum(sizes) - sizes, sizes, np.full(len(sizes), rate, np.float32), keys
    )


def padded(values: Any) -> NDArray[np.float32]:
    """Rows with columns of zeros up to 16."""
    wide = np.zeros((len(values), 16), np.float32)
    wide[:, : np.shape(values)[1]] = values
    return wide


# --- draws ----------------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30).filter(lambda w: sum(w) > 1e-3))
def test_an_alias_table_holds_the_distribution_and_never_gives_an_id_of_weight_zero(weights: list[float]) -> None:
    table = tables.alias_table(np.array(weights)).astype(np.float64)
    chance = table[:, 0] / 2**32
    found = chance.copy()
    np.add.at(found, table[:, 1].astype(int), 1 - chance)
    assert np.allclose(found / len(weights), np.array(weights) / np.sum(weights), atol=1e-8)
    assert not found[np.array(weights) == 0].any()


def test_kept_words_come_as_often_as_they_should_and_in_order() -> None:
    keep = np.array([0.0, 0.25, 1.0])
    tokens = np.tile(np.array([0, 1, 2], np.uint16), 20_000)
    kept = np.empty(len(tokens), np.int64)
    count, _ = lines.keep_words(tokens, 0, len(tokens), tables.thresholds(keep), kept, np.uint64(7))
    found = np.bincount(kept[:count], minlength=3)
    assert found[0] == 0 and found[2] == 20_000
    assert abs(found[1] - 5000) < 5 * np.sqrt(20_000 * 0.25 * 0.75)


def test_a_shrinking_window_counts_near_words_more_often() -> None:
    kept, words = np.arange(21), np.zeros(11, np.int64)
    seen = np.zeros(6)
    generator = np.random.default_rng(0)
    for bits in generator.integers(0, 2**64, 5000, dtype=np.uint64):
        number = lines.words_around(kept, 21, 10, bits, 5, True, words)
        seen += np.bincount(abs(words[:number] - 10), minlength=6)
    assert np.allclose(seen[1:] / 10_000, [1, 0.8, 0.6, 0.4, 0.2], atol=0.03)
    assert lines.words_around(kept, 21, 1, np.uint64(0), 5, False, words) == 6
    assert words[:6].tolist() == [0, 2, 3, 4, 5, 6]


def test_the_coarse_table_is_that_of_the_original_program() -> None:
    coarse = parts.Sigmoid.coarse()
    assert draws.squash(np.float32(0), coarse.table, coarse.scale) == pytest.approx(0.4940, abs=5e-5)
    assert draws.squash(np.float32(1), coarse.table, coarse.scale) == pytest.approx(0.7255, abs=5e-5)


@pytest.mark.parametrize("skip", [True, False])
def test_the_fast_sigmoid_is_near_the_function_and_one_or_nought_beyond_six(skip: bool) -> None:
    points = np.array([-7.0, -6.01, *np.linspace(-5.99, 5.99, 200), 6.01, 7.0], dtype=np.float32)
    products, labels = parts.aligned(len(points), 16), np.ones(6, np.float32)
    products[:, :6] = points[:, None]
    rows.products_to_steps(
        products, len(points), np.arange(6), 5, labels, parts.Sigmoid.fine(skip=skip), np.float32(1), parts.aligned(2, 16)
    )
    assert np.allclose(products[2:-2, :5], 1 - 1 / (1 + np.exp(-points[2:-2, None])), atol=2e-5)
    assert np.array_equal(products[[0, 1, -2, -1], 0], [0, 0, 0, 0] if skip else [1, 1, 0, 0])
    assert not products[:, 5].any()


# --- one step -------------------------------------------------------------------------------------------------------------


def learn(
    inputs: NDArray[np.float32], words: list[int], outputs: NDArray[np.float32], ids: list[int], rate: float
) -> NDArray[np.float64]:
    """One window with given negatives; returns the totals."""
    windows = parts.WindowSampling.of(np.ones(1), radius=len(words))
    answers = parts.Targets.sampled(np.ones(2), negatives=len(ids) - 1)
    work, totals = parts.ThreadBuffers.of(windows, answers, inputs.shape[1]), np.zeros(4)
    work.rows[0] = ids[0]
    work.rows[0, : len(ids)] = ids
    work.labels[0, 0] = 1.0
    rows.learn(
        outputs, work.rows[0], len(ids), work.labels[0], inputs, np.array(words), len(words), work, EXACT, np.float32(rate),
        totals, True,
    )
    return totals


def test_one_step_by_hand() -> None:
    inputs, outputs = padded([[0.1, -0.2]]), padded([[0.3, 0.4], [-0.5, 0.2]])
    totals = learn(inputs, [0], outputs, [0, 1], 0.1)
    assert totals[2:].tolist() == [pytest.approx(1.367619, abs=1e-6), 1]
    assert np.allclose(inputs[0, :2], [0.13925068, -0.18905041], atol=1e-7)
    assert np.allclose(outputs[:, :2], [[0.30512497, 0.38975005], [-0.50477515, 0.20955030]], atol=1e-7)
    assert not inputs[:, 2:].any() and not outputs[:, 2:].any()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 11), st.sampled_from([16, 48, 112]), st.integers(0, 2**32 - 1))
def test_a_window_moves_all_rows_by_what_they_were(count: int, negatives: int, width: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    inputs, outputs = (generator.normal(size=(12, width)).astype(np.float32) * 0.3 for _ in range(2))
    words = generator.permutation(12)[:count]
    # An id that comes twice in one group of rows is added up; in two groups the second sees the change of the first.
    ids = generator.integers(0, 12, negatives + 1) if negatives < parts.GROUP else generator.permutation(12)[: negatives + 1]
    before, there = inputs.astype(np.float64), outputs.astype(np.float64)
    label = np.zeros(negatives + 1)
    label[0] = 1
    live = np.append(True, ids[1:] != ids[0])
    steps = (label - 1 / (1 + np.exp(-before[words] @ there[ids].T))) * live * 0.1
    wanted_inputs, wanted_outputs = before.copy(), there.copy()
    wanted_inputs[words] += steps @ there[ids]
    np.add.at(wanted_outputs, ids, steps.T @ before[words])

    learn(inputs, words.tolist(), outputs, ids.tolist(), 0.1)
    assert np.allclose(inputs, wanted_inputs, atol=2e-6) and np.allclose(outputs, wanted_outputs, atol=2e-6)


def test_a_fresh_model_loses_one_bit_for_every_output_row() -> None:
    inputs = padded(np.random.default_rng(0).normal(size=(5, 10)))
    windows, answers = parts.WindowSampling.of(np.ones(5), shares=True), parts.Targets.sampled(np.arange(5) > 3, negatives=5)
    totals = np.zeros(4)
    shared.train_shared(
        job([0, 1, 2, 3], [4], rate=0.0), windows, answers, inputs, np.zeros_like(inputs),
        parts.ThreadBuffers.of(windows, answers, 16),
        EXACT, totals,
    )
    assert totals[0] == 4 and totals[2] / totals[3] == pytest.approx(6 * np.log(2))


# --- the loop and the kernels ---------------------------------------------------------------------------------------------

LINES = [[1, 2, 3, 2, 4], [5, 1, 2], [3, 4, 5, 6, 1, 2]]
RADIUS, VOCABULARY = 2, 8


def pairs_of(line: list[int]) -> Iterator[tuple[int, int]]:
    """Positions (centre, context), centre by centre."""
    for centre in range(len(line)):
        for place in range(max(0, centre - RADIUS), min(len(line), centre + RADIUS + 1)):
            if place != centre:
                yield centre, place


def gradients(network: WordVectors, objective: Any, ask: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The gradient of the summed loss of all lines, by the code that the loop runs."""
    for line in LINES:
        found = list(pairs_of(line))
        tokens = torch.tensor([line])
        centres, contexts = (torch.tensor(side) for side in zip(*found, strict=True))
        if ask == "together":
            states = network(want=frozenset({"context"}), tokens=tokens, centers=centres, contexts=contexts)
            positions, targets, state = torch.arange(len(line)), tokens[0], states["context"]
        else:
            positions, asked = (contexts, centres) if ask == "centre" else (centres, contexts)
            targets, state = tokens[0][asked], network(want=frozenset({"hidden"}), tokens=tokens)["hidden"]
        batch = Batch({"targets/main": targets, "positions/main": positions})
        objective.loss(objective.scores({objective.reads[0]: state}, batch), batch).total.backward()
    return network.embeddings.weight.grad.numpy(), objective.head.weight.grad.numpy()


@pytest.mark.parametrize("gradient", ["full", "divided"])
@pytest.mark.parametrize(("ask", "tree", "subwords"), [
    *product(["centre", "context", "together"], [False, True], [None, (3, 4)]),
    ("shared", False, None),  # the fast kernel has neither a tree nor n-grams
])  # fmt: skip
def test_a_kernel_moves_along_the_gradient_of_the_loop(ask: str, tree: bool, subwords: Any, gradient: Any) -> None:
    torch.manual_seed(1)
    spellings = ["[UNK]", "low", "lower", "newest", "widest", "a", "er", "x"]
    counts = np.array([0, 5, 6, 4, 3, 2, 1, 9])
    network = WordVectors(width=16, vocab_size=8, subwords=subwords, buckets=40, gradient=gradient, spellings=spellings, spread=4)
    given: dict[str, Any] = {"width": 16, "vocab_size": 8, "counts": counts, "spellings": spellings}
    # One word takes all the noise, so that the draws of the loop and of the kernel are the same.
    only = {**given, "counts": np.array([0, 0, 0, 0, 0, 0, 0, 10**9]), "power": 4.0, "negatives": 2, "clock": network.clock}
    objective: Any = HierarchicalSoftmax(**given) if tree else NegativeSampling(**only)
    with torch.no_grad():
        objective.head.weight.normal_(0, 0.5)
    start = network.embeddings.weight.detach().numpy().copy(), objective.head.weight.detach().numpy().copy()
    wanted = gradients(network, objective, ask if ask != "shared" else "centre")

    asks = {"centre": parts.PREDICT_CENTRE, "context": parts.PREDICT_CONTEXT, "together": parts.PREDICT_FROM_MEAN}
    windows = parts.WindowSampling.of(
        np.ones(8), radius=RADIUS, shrinks=False, predicts=asks.get(ask, parts.PREDICT_CENTRE), full=gradient == "full",
        shares=ask == "shared",
    )
    answers = parts.Targets.coded(*objective.codes) if tree else parts.Targets.sampled(objective.noise.numpy(), negatives=2)
    table = parts.SubwordRows(*(rows.numpy() for rows in network.table_rows())) if subwords else parts.SubwordRows.none()
    inputs, outputs = (part.copy() for part in start)
    rate = 1e-4
    work = parts.ThreadBuffers.of(windows, answers, 16, table)
    task = job(sum(LINES, []), [len(line) for line in LINES], rate=rate)
    if ask == "shared":
        shared.train_shared(task, windows, answers, inputs, outputs, work, EXACT, np.zeros(4))
    else:
        exact.train_exact(task, windows, answers, table, inputs, outputs, work, EXACT, np.zeros(4))
    for moved, began, slope in zip((inputs, outputs), start, wanted, strict=True):
        tolerance = KERNELS["skipgram" if ask == "shared" else "windows"].tolerance
        assert np.allclose((moved - began) / -rate, slope, atol=tolerance * abs(slope).max())
        still = (slope == 0).all(axis=1)
        assert np.array_equal(moved[still], began[still])


@pytest.mark.parametrize("fast", [True, False])
def test_the_optimum_is_shifted_pointwise_mutual_information(fast: bool) -> None:
    """Levy and Goldberg, 2014; a negative that is the answer is skipped, which changes log k P(c) #(w) a little."""
    counts = np.array([[2, 4, 1], [4, 2, 1], [1, 1, 2]], float)
    noise = counts.sum(0) / counts.sum()
    wanted = np.log(counts / (2 * noise * (counts.sum(1)[:, None] - counts)))
    generator = np.random.default_rng(0)
    lines_ = np.array([(0, 0), (1, 1), (2, 2), *[(0, 1)] * 4, (0, 2), (1, 2)])
    inputs, outputs = padded(generator.normal(size=(3, 8)) * 0.3), padded(np.zeros((3, 8)))
    windows = parts.WindowSampling.of(np.ones(3), radius=1, shrinks=False, shares=fast)
    answers, totals = parts.Targets.sampled(noise, negatives=2), np.zeros(4)
    work = parts.ThreadBuffers.of(windows, answers, 16)
    for number in range(40):
        order = lines_[generator.integers(0, len(lines_), 20_000)]
        task = job(order.ravel(), np.full(len(order), 2), rate=0.1 * (1 - number / 40) ** 2 + 1e-4, key=number)
        if fast:
            shared.train_shared(task, windows, answers, inputs, outputs, work, EXACT, totals)
        else:
            exact.train_exact(task, windows, answers, parts.SubwordRows.none(), inputs, outputs, work, EXACT, totals)
    assert np.allclose(inputs @ outputs.T, wanted, atol=0.1)


# --- the engine -----------------------------------------------------------------------------------------------------------

TEXT = "the cat sat on the mat . the dog saw the cat and sat down . a dog and a cat saw a mat on the floor .\n\n" * 40
QUICK = ["training.batch=4", "network.width=20", "text.tokenizer.min_count=1", "exercise.0.threshold=null"]


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., dict[str, torch.Tensor]]:
    """Train a recipe on TEXT in a folder; its last parameters."""
    from cloze.runs.run import pretrain
    from cloze.training.checkpoints.checkpoint import Checkpoints

    text = tmp_path / "text.txt"
    text.write_text(TEXT)

    def run(recipe: str, name: str, *values: str, budget: str = "40steps") -> dict[str, torch.Tensor]:
        pretrain(recipe, corpus=text, out=tmp_path / name, budget=budget, overrides=[*QUICK, *values], device="cpu")
        return Checkpoints(tmp_path / name).load()[1]

    return run


@pytest.mark.parametrize("recipe", ["word2vec-skipgram", "word2vec-cbow", "word2vec-skipgram-hs", "word2vec-cbow-hs", "fasttext"])
def test_the_recipes_of_word_vectors_train_in_compiled_code(recipe: str, train: Any, tmp_path: Path, one_thread: None) -> None:
    values = ["training.engine=compiled", *(["network.buckets=500"] if recipe == "fasttext" else [])]
    first = train(recipe, "first", *values)
    begun = train(recipe, "begun", *values, budget="1steps")
    assert any(not torch.equal(first[name], begun[name]) for name in first)
    again = train(recipe, "again", *values)
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_a_resumed_run_ends_as_one_that_was_not_stopped(train: Any, tmp_path: Path, one_thread: None) -> None:
    values = ["training.engine=compiled", "training.checkpoint_every=10", "training.keep=9", "objectives.0.share=true"]
    whole = train("word2vec-skipgram", "run", *values)
    for step in (30, 40):
        shutil.rmtree(tmp_path / "run" / "cloze" / "checkpoints" / f"step-{step:08d}")
    again = train("word2vec-skipgram", "run", *values)
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_two_threads_read_every_word_and_lower_the_loss(train: Any, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        values = ["training.engine=compiled", "training.log_every=20", "training.rate.peak=0.1"]
        train("word2vec-cbow", "run", *values, budget="6epochs")
    finally:
        torch.set_num_threads(before)
    events = [json.loads(line) for line in (tmp_path / "run" / "cloze" / "log.jsonl").read_text().splitlines()]
    losses = [event["loss"] for event in events if event["event"] == "train"]
    assert losses[-1] < losses[0] <= 6 * np.log(2) + 1e-4
    rows = events[-1]["examples"]
    assert abs(events[-1]["tokens"] / rows - len(TEXT.split()) / 40) < 2.0


def test_a_thread_hands_its_exception_to_the_run(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloze.engines.lock_free import LockFreeTrainer

    learn_job = LockFreeTrainer._train

    def fail(self: LockFreeTrainer, task: parts.TrainingLines, number: int, totals: Any) -> None:
        if len(task.starts):
            raise MemoryError("no more")
        learn_job(self, task, number, totals)

    monkeypatch.setattr(LockFreeTrainer, "_train", fail)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(MemoryError, match="no more"):
            train("word2vec-skipgram", "run", "training.engine=compiled")
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("training.clip=1.0", "training.clip"),
        ("training.divide=targets", "training.divide"),
        ("training.optimizer.momentum=0.9", "the optimizer is not sgd"),
    ],
)
def test_a_recipe_that_does_not_fit_says_why(value: str, reason: str, train: Any) -> None:
    with pytest.raises(RecipeError, match=reason):
        train("word2vec-skipgram", "run", "training.engine=compiled", value)


def test_an_id_beyond_the_vocabulary_is_refused_before_compiled_code_sees_it(tmp_path: Path) -> None:
    from cloze.engines.threads import check_ids
    from cloze.errors import CorpusError

    check_ids(np.array([0, 7], np.uint16), 8, tmp_path)
    with pytest.raises(CorpusError, match="tokens.bin: holds the id 8, but the vocabulary has 8 words"):
        check_ids(np.array([0, 8, 1], np.uint16), 8, tmp_path)


@pytest.fixture
def jobs(train: Any, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> list[parts.TrainingLines]:
    """The jobs of a run of skip-gram over three epochs."""
    from cloze.engines.lock_free import LockFreeTrainer

    done: list[parts.TrainingLines] = []
    learn_job = LockFreeTrainer._train

    def keep(self: LockFreeTrainer, task: parts.TrainingLines, number: int, totals: Any) -> None:
        if len(task.starts):
            done.append(task)
        learn_job(self, task, number, totals)

    monkeypatch.setattr(LockFreeTrainer, "_train", keep)
    train("word2vec-skipgram", "run", "training.engine=compiled", "objectives.0.share=true", budget="3epochs")
    return done


def test_a_line_draws_other_words_and_negatives_in_every_epoch(jobs: list[parts.TrainingLines]) -> None:
    lines_, keys = (np.concatenate([getattr(task, name) for task in jobs]) for name in ("starts", "keys"))
    most = np.bincount(lines_).max()
    assert most >= 3  # every line was read in every epoch
    assert len(np.unique(keys)) == len(keys)


def test_the_rate_falls_from_step_to_step_within_a_job(jobs: list[parts.TrainingLines]) -> None:
    rates = np.concatenate([task.rates for task in jobs])
    assert max(len(task.rates) for task in jobs) > 4  # a job is several steps of four lines
    by_step = rates.reshape(-1, 4)
    assert (by_step == by_step[:, :1]).all() and (np.diff(by_step[:, 0]) < 0).all()
    assert rates[0] == np.float32(0.025)
