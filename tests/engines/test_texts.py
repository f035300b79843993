"""fastText's classifier: the compiled engine against numpy, against the loop, and its losses against their definitions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cloze.batch import Batch
from cloze.checkpoint.build import load_checkpoint
from cloze.errors import RecipeError, TaskError
from cloze.hashed import Bag, Hashing, KeptBuckets, fasttext_hash
from cloze.kernels import KERNELS, has_numba
from cloze.kernels.vectors.arguments import RecordClasses, Terms, TextJob, TextWork, aligned
from cloze.objectives.static.huffman import huffman
from cloze.objectives.static.linear_classification import LinearClassification
from cloze.runs.finetuning.finetune import finetune
from cloze.tasks.tuned_folder import load_tuned

NAMES = ["[PAD]", "[UNK]", "[BOS]", "</s>", *(f"w{number}" for number in range(40))]
COMPILED = pytest.mark.skipif(not has_numba(), reason="numba is not installed")


def bag(words: int = 2, characters: tuple[int, int] | None = None, **given: Any) -> Bag:
    return Bag(NAMES, KeptBuckets(Hashing(words, characters, 50, **given), np.arange(0, 50, 2)))


def test_a_text_is_its_words_its_end_and_its_runs_and_absent_buckets_count_as_zeros() -> None:
    w1, w2, end = (fasttext_hash(one) - ((fasttext_hash(one) >> 31) << 32) for one in ("w1", "w2", "</s>"))  # as signed numbers
    pairs = [(first * 116049371 + second) % 2**64 % 50 for first, second in ((w1, w2), (w2, end))]
    rows, owner, total = bag().of_texts(np.array([5, 6, 3]), np.zeros(3, np.int64), {})
    assert sorted(rows.tolist()) == sorted([5, 6, 3, *(44 + bucket // 2 for bucket in pairs if bucket % 2 == 0)])
    assert total.tolist() == [5] and set(owner.tolist()) == {0}
    rows, _, total = bag(skips=True).of_texts(np.array([5, 6, 3]), np.zeros(3, np.int64), {})
    assert total.tolist() == [len(rows)]


def test_an_unseen_word_counts_by_its_letters_and_in_runs_alone() -> None:
    rows, _, total = bag(1, (3, 3)).of_texts(np.array([1]), np.zeros(1, np.int64), {0: "whe"})
    kept = [fasttext_hash(gram) % 50 for gram in ("<wh", "whe", "he>")]
    assert rows.tolist() == [44 + bucket // 2 for bucket in kept if bucket % 2 == 0] and total.tolist() == [3]
    same = bag().of_texts(np.array([5, 1]), np.zeros(2, np.int64), {1: "w2"})[0]
    assert set(same.tolist()) == set(bag().of_texts(np.array([5, 6]), np.zeros(2, np.int64), {})[0].tolist()) - {6}


@COMPILED
@pytest.mark.parametrize("formula", ["softmax", "one_versus_all", "hierarchical"])
def test_the_kernel_steps_as_fasttext_does_text_by_text(formula: str) -> None:
    from cloze.kernels.vectors.texts import train_texts

    draw = np.random.default_rng(0)
    known, classes, count = bag(), 21, 60
    lengths = draw.integers(1, 6, count)
    starts, tokens = np.cumsum(lengths) - lengths, draw.integers(4, 44, int(lengths.sum())).astype(np.uint16)
    labels = draw.integers(0, classes, count)
    codes = huffman(np.bincount(labels, minlength=classes) + 1)
    kind = ["softmax", "one_versus_all", "hierarchical"].index(formula)
    inputs, outputs = aligned(44 + 25, 8), aligned(5, 32) if kind < 2 else aligned(classes - 1, 8)
    inputs[:, :5] = draw.uniform(-0.2, 0.2, (69, 5))
    own, out = inputs[:, :5].astype(np.float64), np.zeros((classes if kind < 2 else classes - 1, 5))
    terms, totals = Terms.of(known, 3), np.zeros(4)
    job = TextJob(tokens, starts, lengths, np.arange(count), np.full(count, 0.5, np.float32), np.arange(count).astype(np.uint64))
    work = TextWork.of(terms.most(6), 8, outputs.shape[1])
    train_texts(job, terms, RecordClasses(np.arange(count + 1), labels, kind, classes, *codes), inputs, outputs, work, totals)
    for text in range(count):
        ids = np.append(tokens[starts[text] : starts[text] + lengths[text]].astype(np.int64), 3)
        rows, _, total = known.of_texts(ids, np.zeros(len(ids), np.int64), {})
        mean = own[rows].sum(0) / total[0]
        product = out @ mean
        if formula == "softmax":
            step = np.eye(classes)[labels[text]] - np.exp(product) / np.exp(product).sum()
        elif formula == "one_versus_all":
            step = np.eye(classes)[labels[text]] - 1 / (1 + np.exp(-product))
        else:
            step, depth = np.zeros(classes - 1), codes.lengths[labels[text]]
            points, bits = codes.points[labels[text], :depth], codes.bits[labels[text], :depth]
            step[points] = bits - 1 / (1 + np.exp(-product[points]))
        gained = 0.5 * step @ out
        out += 0.5 * np.outer(step, mean)
        np.add.at(own, rows, gained / total[0])
    tolerance = KERNELS["texts"].tolerance
    np.testing.assert_allclose(inputs[:, :5], own, rtol=0, atol=tolerance * np.abs(own).max())
    moved = outputs[:, :classes].T if kind < 2 else outputs[:, :5]
    np.testing.assert_allclose(moved, out, rtol=0, atol=tolerance * np.abs(out).max())
    assert np.abs(out).max() > 0.1 and totals[0] == lengths.sum() and totals[3] == -(-count // 8)


def test_the_losses_are_those_of_their_definitions() -> None:
    states = torch.tensor([[0.5, -1.0], [2.0, 0.3]])
    batch = Batch({"targets/label": torch.tensor([2, 0]), "positions/label": torch.tensor([0, 1])})
    counts = [1, 5, 3]
    for formula in ("softmax", "one_versus_all", "hierarchical"):
        made: Any = LinearClassification(classes=3, loss=formula, label_counts=counts, width=2)
        torch.manual_seed(1)
        made.head.weight.data.normal_()
        scores = made.scores({"summary": states}, batch)
        share = made.predict({"summary": states}, batch).softmax(-1)
        torch.testing.assert_close(share.sum(-1), torch.ones(2))
        nodes = states @ made.head.weight.T
        if formula == "softmax":
            expected = -nodes.log_softmax(-1)[[0, 1], [2, 0]].sum()
        elif formula == "one_versus_all":
            wanted = torch.tensor([[0.0, 0, 1], [1, 0, 0]])
            expected = -(wanted * nodes.sigmoid().log() + (1 - wanted) * (1 - nodes.sigmoid()).log()).sum()
        else:  # class 1 is the root's bit 1, classes 0 and 2 share the node below: 0 is bit 0, 2 is bit 1
            torch.testing.assert_close(scores.exp().sum(-1), torch.ones(2))
            top, low = nodes.sigmoid()[:, 1], nodes.sigmoid()[:, 0]
            expected = -((1 - top[0]) * low[0]).log() - ((1 - top[1]) * (1 - low[1])).log()
        torch.testing.assert_close(made.loss(scores, batch).total, expected)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(4)
    kinds = {
        "food": ["bread", "soup", "rice", "cake"], "sport": ["ball", "race", "goal", "team"],
        "sky": ["star", "moon", "sun", "cloud"],
    }
    rows = [
        (" ".join(draw.permutation([*draw.choice(words, 2), *draw.choice(["the", "a", "of"], 2)])), label)
        for label, words in kinds.items() for _ in range(12)
    ]
    path = tmp_path_factory.mktemp("rows") / "rows.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    return path


def tuned(table: Path, out: Path, *values: str, **given: Any) -> Path:
    """A classifier of width 8, trained in steps of one text."""
    small = ["network.width=8", "tables.ngrams.buckets=97", "training.batch=1", "training.rate.peak=0.5"]
    finetune("fasttext-supervised", train=[str(table)], dev=[str(table)], out=out, overrides=[*small, *values], **given)
    return out


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    return {**load_file(folder / "cloze" / "network.safetensors"), **load_file(folder / "cloze" / "heads.safetensors")}


@COMPILED
@pytest.mark.parametrize(
    ("loss", "weights"),
    [("softmax", "null"), ("softmax", "[0.5, 1.0, 2.0]"), ("one_versus_all", "null"), ("hierarchical", "null")],
)
def test_engine_and_loop_learn_the_same_text_by_text(table: Path, tmp_path: Path, loss: str, weights: str) -> None:
    torch.set_num_threads(1)
    of_classes = f"objectives[0].class_weights={weights}"
    values = [f"objectives[0].loss={loss}", of_classes, "training.epochs=2", "training.optimizer.row_clip=null"]
    one, other = (
        parameters(tuned(table, tmp_path / engine, *values, f"training.engine={engine}")) for engine in ("loop", "compiled")
    )
    assert one.keys() == other.keys() and len(one) == 2
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=1e-5, rtol=0)
    assert one["classification/head.weight"].abs().max() > 0.05


@COMPILED
def test_a_named_recipe_learns_without_a_checkpoint_and_its_folder_predicts(table: Path, tmp_path: Path) -> None:
    folder = tuned(table, tmp_path / "out", "training.epochs=12")
    learner, _ = load_tuned(load_checkpoint(folder))
    assert learner.measure(learner.encode_labelled(learner.task.read(table)))["accuracy"] == 1.0
    loaded: Any = load_checkpoint(folder)
    kept = loaded.tables["ngrams"].size
    assert 40 < kept < 97 and loaded.network.embeddings.weight.shape[0] == kept + 4 + 15


@COMPILED
def test_a_text_may_have_several_labels(tmp_path: Path) -> None:
    rows = [("bread ball", "food,sport"), ("bread", "food"), ("ball", "sport"), ("moon", "")] * 8
    path = tmp_path / "several.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    folder = tuned(path, tmp_path / "out", "training.epochs=20", task="multi_label")
    learner: Any = load_tuned(load_checkpoint(folder))[0]
    found = learner.predict(learner.task.read(path))
    assert [one.labels for one in found[:4]] == [["food", "sport"], ["food"], ["sport"], []]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"task": "regression"}, "has no recipe for --task regression"),
        ({"auxiliary": "0.5"}, "starts without a checkpoint, so --auxiliary does not apply"),
    ],
)
def test_what_needs_a_checkpoint_is_refused(table: Path, tmp_path: Path, given: dict[str, Any], told: str) -> None:
    with pytest.raises(TaskError, match=told):
        tuned(table, tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("values", "told"),
    [(["tables.ngrams.characters=[4, 3]"], "fewest and the most"), (["tables.ngrams.buckets=0"], "at least one")],
)
def test_n_grams_that_make_no_sense_are_refused(table: Path, tmp_path: Path, values: Sequence[str], told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        tuned(table, tmp_path / "out", *values)
