"""word2vec against gensim: hierarchical softmax update by update, and the distribution that negatives are drawn from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cloze.objectives.static.huffman import huffman

pytest.importorskip("numba")
gensim = pytest.importorskip("gensim")

from cloze.kernels.vectors import arguments as parts  # noqa: E402
from cloze.kernels.vectors import exact  # noqa: E402

pytestmark = pytest.mark.parity
WIDTH = 32


@pytest.fixture(scope="module")
def sentences() -> list[list[str]]:
    generator = np.random.default_rng(3)
    odds = 1 / np.arange(1, 61)
    return [[f"w{i}" for i in generator.choice(60, 15, p=odds / odds.sum())] for _ in range(10)]


def model_of(*, skip_gram: bool) -> Any:
    return gensim.models.Word2Vec(
        hs=1, negative=0, sample=0, shrink_windows=False, workers=1, alpha=0.05, min_alpha=0.05, min_count=1,
        vector_size=WIDTH, window=3, sg=int(skip_gram), epochs=1, seed=1,
    )


@pytest.mark.parametrize("skip_gram", [True, False])
def test_hierarchical_softmax_is_gensims(skip_gram: bool, sentences: list[list[str]]) -> None:
    """To a millionth with gensim's table of σ, which is up to .006 off; the engine's function is σ itself."""
    model = model_of(skip_gram=skip_gram)
    model.build_vocab(sentences)
    # 0 is a border of two cells of the table: from larger values, and in few updates, the order of a sum decides no cell.
    generator = np.random.default_rng(5)
    model.wv.vectors[:] = inputs = generator.normal(size=model.wv.vectors.shape).astype(np.float32) * 0.1
    model.syn1[:] = outputs = generator.normal(size=model.syn1.shape).astype(np.float32) * 0.3
    keys = model.wv.index_to_key
    depth = max(len(model.wv.get_vecattr(word, "code")) for word in keys)
    points, bits = np.zeros((len(keys), depth), np.int32), np.zeros((len(keys), depth), np.int8)
    depths = np.array([len(model.wv.get_vecattr(word, "code")) for word in keys], np.int32)
    for number, word in enumerate(keys):
        points[number, : depths[number]] = model.wv.get_vecattr(word, "point")
        bits[number, : depths[number]] = model.wv.get_vecattr(word, "code")
    model.train(sentences, total_examples=len(sentences), epochs=1)

    ids = np.array([model.wv.key_to_index[word] for sentence in sentences for word in sentence], np.uint16)
    lengths = np.array([len(sentence) for sentence in sentences])
    ask = parts.PREDICT_CENTRE if skip_gram else parts.PREDICT_FROM_MEAN
    windows = parts.WindowSampling.of(np.ones(len(keys)), radius=3, shrinks=False, predicts=ask)
    answers = parts.Targets.coded(points, bits, depths)
    rates, keys = np.full(len(lengths), 0.05, np.float32), np.arange(len(lengths)).astype(np.uint64)
    job = parts.TrainingLines(ids, np.cumsum(lengths) - lengths, lengths, rates, keys)
    sigma = parts.Sigmoid.exact()._replace(skip=True)
    curves = {"gensim": parts.Sigmoid.coarse(), "engine": parts.Sigmoid.fine(skip=True), "sigma": sigma}
    made = {name: (inputs.copy(), outputs.copy()) for name in curves}
    for name, curve in curves.items():
        totals = np.zeros(4)
        work = parts.ThreadBuffers.of(windows, answers, WIDTH)
        exact.train_exact(job, windows, answers, parts.SubwordRows.none(), *made[name], work, curve, totals)
        assert totals[0] == len(ids)
    for gensims, before, table, engine, right in zip(
        (model.wv.vectors, model.syn1), (inputs, outputs), made["gensim"], made["engine"], made["sigma"], strict=True
    ):
        assert abs(table - gensims).max() < 1e-6 and abs(table - before).max() > 0.04
        assert abs(engine - right).max() < 5e-5
        ours, theirs = engine - before, gensims - before
        cosine = (ours * theirs).sum() / np.linalg.norm(ours) / np.linalg.norm(theirs)
        assert cosine > 0.99


def test_huffman_trees_are_as_short_as_gensims(sentences: list[list[str]]) -> None:
    model = model_of(skip_gram=True)
    model.build_vocab(sentences)
    counts = np.array([model.wv.get_vecattr(word, "count") for word in model.wv.index_to_key])
    lengths = [len(model.wv.get_vecattr(word, "code")) for word in model.wv.index_to_key]
    assert (huffman(counts).lengths * counts).sum() == (lengths * counts).sum()


def test_negatives_have_gensims_chances(sentences: list[list[str]]) -> None:
    model = gensim.models.Word2Vec(sentences, negative=5, min_count=1, vector_size=WIDTH, workers=1, epochs=1, seed=1)
    table = np.diff(model.cum_table.astype(np.float64), prepend=0)
    counts = np.array([model.wv.get_vecattr(word, "count") for word in model.wv.index_to_key], np.float64)
    alias = parts.Targets.sampled(counts**0.75).alias.astype(np.float64)
    ours = alias[:, 0] / 2**32
    np.add.at(ours, alias[:, 1].astype(int), 1 - alias[:, 0] / 2**32)
    assert np.allclose(ours / len(ours), table / table.sum(), atol=1e-8)
