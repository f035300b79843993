"""Factorised counts: weights by hand, singular values against dense ones, the engine from recipe parts to vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cloze.batch import Batch
from cloze.batching import Cursor, Data, Feed
from cloze.corpus import Cooccurrences, Store, TermDocuments
from cloze.corpus.stores.writer import StoreWriter
from cloze.engines.singular import CompressedSparseRows, Sparse, Subspace, truncated_svd
from cloze.engines.svd import FactoriseEngine
from cloze.errors import RecipeError
from cloze.networks import Clock
from cloze.networks.static.word_vectors import WordVectors
from cloze.objectives.static.factorisation import Factorisation
from cloze.training.loop import train
from cloze.training.optimizers.static_optimizers import Sgd
from cloze.training.passes import Pass, PassObjective
from cloze.training.run import Run, RunIdentity, Training
from cloze.training.schedule.budget import Budget
from cloze.training.schedule.rates import Constant
from cloze.training.step import StepModule

VOCABULARY, WIDTH = 24, 6
COUNTS = torch.tensor([[0.0, 4, 1], [4, 0, 1], [1, 1, 0]])
TERMS = torch.tensor([[1.0, 1, 0], [0, 1, 1], [1, 0, 1], [0, 0, 1]])
MakeRun = Callable[..., Run]


def sparse(dense: Tensor) -> Sparse:
    rows, columns = dense.nonzero().unbind(1)
    return Sparse(rows, columns, dense[rows, columns], (dense.shape[0], dense.shape[1]))


def weighed(dense: Tensor, **arguments: Any) -> Tensor:
    """The matrix of weighted counts, dense."""
    objective = Factorisation(width=2, vocab_size=len(dense), **arguments)
    rows, columns = dense.nonzero().unbind(1)
    counts = dense[rows, columns].double()
    if objective.of == "cells":
        objective.learn_sums(dense.sum(1), dense.sum(0))
    else:
        objective.learn_entropy(rows, counts, dense.shape[1])
    made = torch.zeros(dense.shape, dtype=torch.double)
    made[rows, columns] = objective.values(counts, rows, columns)
    return made


# ---- weights ---------------------------------------------------------------------------------------------------------


def test_ppmi_by_hand() -> None:
    plain = weighed(COUNTS, smoothing=1.0)
    assert plain[0, 1] == plain[1, 0] == pytest.approx(math.log(4 * 12 / 25), abs=1e-6) == pytest.approx(0.652325, abs=1e-6)
    assert plain[0, 2] == plain[2, 1] == pytest.approx(0.182322, abs=1e-6)
    shifted = weighed(COUNTS, smoothing=1.0, shift=1.2)
    assert shifted[0, 1] == pytest.approx(0.470004, abs=1e-6) and shifted[0, 2] == pytest.approx(0, abs=1e-6)


def test_a_smoothed_context_has_the_share_of_its_power() -> None:
    found = weighed(COUNTS, smoothing=0.75)
    powers = torch.tensor([5.0, 5, 2], dtype=torch.double) ** 0.75
    for i in range(3):
        for j in range(3):
            share = powers[j] / powers.sum()
            expected = max(math.log(float(COUNTS[i, j]) / (float(COUNTS[i].sum()) * share)), 0) if COUNTS[i, j] else 0
            assert float(found[i, j]) == pytest.approx(expected, abs=1e-6)


def test_log_entropy_by_hand() -> None:
    counts = torch.tensor([[2.0, 2, 0, 0], [3, 0, 0, 0], [1, 1, 1, 1]])
    found = weighed(counts, weighting="log_entropy")
    assert found[0].tolist() == pytest.approx([math.log(3) * (1 - math.log(2) / math.log(4))] * 2 + [0, 0], abs=1e-6)
    assert found[1].tolist() == pytest.approx([math.log(4), 0, 0, 0], abs=1e-6)  # in one document: worth all of it
    assert found[2].tolist() == pytest.approx([0] * 4, abs=1e-6)                # in all alike: worth nothing
    assert weighed(counts, weighting="log", of="documents")[0, 0] == pytest.approx(math.log(3))
    assert (weighed(counts, weighting="count", of="documents") == counts).all()


@pytest.mark.parametrize("wrong, names", [
    ({"shift": 0.0}, "shift"), ({"smoothing": 0.0}, "smoothing"), ({"power": 2.0}, "power"),
    ({"weighting": "ppmi", "of": "documents"}, "ppmi is of cells"), ({"weighting": "log_entropy", "of": "cells"}, "of documents"),
])
def test_wrong_arguments_are_named(wrong: dict[str, Any], names: str) -> None:
    with pytest.raises(RecipeError, match=names):
        Factorisation(width=2, vocab_size=5, **wrong)


# ---- singular values -------------------------------------------------------------------------------------------------


def test_singular_values_by_hand() -> None:
    found = truncated_svd(sparse(TERMS.double()), 3)
    assert found.values.tolist() == pytest.approx([2.101003, 1.259280, 1.0], abs=1e-6)
    assert float(found.values.square().sum()) == pytest.approx(7) == sparse(TERMS).squares
    two = truncated_svd(sparse(TERMS.double()), 2)
    rest = TERMS.double() - (two.left * two.values) @ two.right.T
    assert float(rest.square().sum()) == pytest.approx(1)


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 40), columns=st.integers(1, 40), rank=st.integers(1, 12), seed=st.integers(0, 99),
       full=st.floats(0.05, 0.9))
def test_it_finds_what_a_dense_solver_finds(rows: int, columns: int, rank: int, seed: int, full: float) -> None:
    generator = np.random.default_rng(seed)
    dense = torch.from_numpy(generator.random((rows, columns)) * (generator.random((rows, columns)) < full))
    found = truncated_svd(sparse(dense), rank, passes=40, oversample=12)
    size = min(rank, rows, columns)
    u, values, v = torch.linalg.svd(dense, full_matrices=False)
    assert found.values.shape == (size,) and found.left.shape == (rows, size) and found.right.shape == (columns, size)
    torch.testing.assert_close(found.values, values[:size], atol=1e-4, rtol=1e-4)
    best = float(values[size:].square().sum())
    lost = float((dense - (found.left * found.values) @ found.right.T).square().sum())
    assert lost == pytest.approx(best, abs=1e-3)
    eye = torch.eye(size, dtype=torch.double)
    torch.testing.assert_close(found.left.T @ found.left, eye, atol=1e-8, rtol=0)
    torch.testing.assert_close(found.right.T @ found.right, eye, atol=1e-8, rtol=0)


def test_products_are_those_of_the_dense_matrix() -> None:
    dense = torch.from_numpy(np.random.default_rng(1).poisson(0.3, (9, 7))).float()
    dense[4] = 0
    matrix = sparse(dense)
    other = torch.randn(7, 3)
    torch.testing.assert_close(matrix.across.times(other), dense @ other)
    torch.testing.assert_close(matrix.down.times(dense @ other), dense.T @ (dense @ other))
    none = CompressedSparseRows.of(*(torch.zeros(0, dtype=torch.long),) * 2, torch.zeros(0), 4)
    assert none.times(torch.ones(3, 2)).tolist() == [[0, 0]] * 4


def test_more_passes_lose_less_and_a_start_is_kept() -> None:
    dense = torch.from_numpy(np.random.default_rng(2).random((60, 60)))
    space = Subspace(sparse(dense), 5, oversample=2)
    energy = [float(space.improve().values.square().sum()) for _ in range(6)]
    assert energy == sorted(energy)
    again = Subspace(sparse(dense), 5, oversample=2, begin=space.improve().right)
    assert float(again.improve().values.square().sum()) >= energy[-1]


# ---- the objective in the loop ---------------------------------------------------------------------------------------


def test_the_loss_of_documents_is_what_their_projection_loses() -> None:
    torch.manual_seed(1)
    table = nn.Embedding(7, 3).double()
    objective = Factorisation(weighting="log_entropy", power=1.0, width=3, vocab_size=7, table=table).double().eval()
    objective.get_buffer("spectrum").copy_(torch.tensor([2.0, 0.5, 0.0]))
    tokens = torch.tensor([[4, 5, 6], [2, 0, 0]])
    batch = Batch({"tokens": tokens, "targets/main": torch.tensor([4, 5, 6, 2]), "positions/main": torch.tensor([0, 1, 2, 3]),
                   "weights/main": torch.tensor([2.0, 1, 3, 4])})
    readings = {"hidden": table(tokens)}
    found = objective(readings, batch)
    dense = torch.zeros(2, 7, dtype=torch.double)
    dense[0, [4, 5, 6]], dense[1, 2] = torch.tensor([2.0, 1, 3]).double().log1p(), math.log(5)
    basis = table.weight.detach() * torch.tensor([0.5, 2.0, 0.0])
    torch.testing.assert_close(objective.basis().detach(), basis)
    expected = (dense - dense @ basis @ basis.T).square().sum()
    assert float(found.total.detach()) == pytest.approx(float(expected))
    assert float(objective.count(batch)) == 2
    assert float(found.metrics["explained"]) == pytest.approx(float(dense.square().sum() - expected))
    assert [name for name, _ in objective.named_parameters()] == []  # the table is the network's


def test_the_loss_of_cells_has_the_gradient_of_squares() -> None:
    objective = Factorisation(width=2, vocab_size=3, smoothing=1.0).double().eval()
    objective.learn_sums(COUNTS.sum(1), COUNTS.sum(0))
    batch = Batch({"cell": torch.tensor([[0, 1], [2, 0]]), "cell_count": torch.tensor([4.0, 1.0])})
    scores = torch.tensor([0.5, 1.0], dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: objective({"association": s}, batch).total, (scores,))
    expected = (0.5 - math.log(4 * 12 / 25)) ** 2 + (1 - math.log(12 / 10)) ** 2
    assert float(objective({"association": scores}, batch).total.detach()) == pytest.approx(expected, abs=1e-6)


def test_the_loop_cannot_know_the_weights() -> None:
    objective = Factorisation(width=2, vocab_size=3).train()
    batch = Batch({"cell": torch.tensor([[0, 1]]), "cell_count": torch.tensor([4.0])})
    with pytest.raises(RecipeError, match="engine: auto"):
        objective({"association": torch.zeros(1)}, batch)


# ---- the engine ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Thirty documents about one of three things each."""
    generator = np.random.default_rng(5)
    folder = tmp_path_factory.mktemp("corpus") / "store"
    sizes = generator.integers(10, 40, 30)
    topic = np.repeat(np.arange(30) % 3, sizes)
    ids = 4 + np.where(generator.random(len(topic)) < 0.3, generator.integers(0, 20, len(topic)),
                       topic * 6 + generator.integers(0, 6, len(topic)))
    roles = {"[PAD]": 0, "[UNK]": 1, "[BOS]": 2, "[EOS]": 3}
    with StoreWriter(folder, vocab_size=VOCABULARY, roles=roles, tokenizer_hash="0" * 64) as writer:
        writer.append(ids, np.ones(len(ids), np.bool_), sizes, np.ones(30, np.int64))
        return writer.finish({"odd": {}}, lambda inner: inner.mkdir())


@pytest.fixture
def make_run(store: Store, tmp_path: Path) -> MakeRun:
    def make(name: str, source: Any = None, *, budget: str = "30steps", width: int = WIDTH, seed: int = 7, engine: Any = "auto",
             **arguments: Any) -> Run:
        source = source or Cooccurrences(radius=3, weight="flat")
        cells = isinstance(source, Cooccurrences)
        clock = Clock(0)
        network = WordVectors(width=width, both_sides=cells, vocab_size=VOCABULARY, clock=clock)
        objective = Factorisation(width=width, vocab_size=VOCABULARY, table=network.embeddings, **arguments)
        step = StepModule(networks={"main": network}, objectives={"svd": objective}, clock=clock,
                    entries={"main": [Pass("main", "main", objectives=(PassObjective("svd", "svd"),))]})
        feed = Feed(source.bind(store, seed=seed, entry="main"), [], length=64, takes=network.takes, padding=0)
        return Run(
            folder=tmp_path / name, step=step, data=Data({"main": feed}, batch=8), optimizer=Sgd(), rate=Constant(0.0),
            export=lambda folder, state, at: None, budget=Budget.parse(budget), identity=RunIdentity({}, "0"), seed=seed,
            device="cpu",
            training=Training(clip=None, precision="fp32", engine=engine), say=lambda text: None,
        )

    return make


def parts(run: Run) -> tuple[Any, Any, Any]:
    data: Any = run.data
    return run.step.networks["main"], run.step.objectives["svd"], data.feeds["main"].source


def dense_ppmi(source: Any) -> np.ndarray:
    counts = np.zeros((VOCABULARY, VOCABULARY))
    counts[source.cells.rows, source.cells.columns] = source.cells.counts
    smooth = counts.sum(0) ** 0.75
    with np.errstate(divide="ignore", invalid="ignore"):
        pmi = np.log(counts / counts.sum(1, keepdims=True) / (smooth / smooth.sum()))
    return np.where(counts > 0, np.maximum(pmi, 0), 0.0)


def test_word_vectors_are_the_best_of_their_rank(make_run: MakeRun) -> None:
    run = make_run("ppmi")
    assert train(run, [FactoriseEngine()]).step == 30
    network, objective, source = parts(run)
    expected = dense_ppmi(source)
    u, values, v = np.linalg.svd(expected)
    made = (network.embeddings.weight @ network.contexts.weight.T).detach().numpy()
    np.testing.assert_allclose(made, (u[:, :WIDTH] * values[:WIDTH]) @ v[:WIDTH], atol=2e-3)
    np.testing.assert_allclose(objective.spectrum.numpy(), values[:WIDTH], rtol=1e-4)
    gram = (network.embeddings.weight @ network.embeddings.weight.T).detach().numpy()
    np.testing.assert_allclose(gram, (u[:, :WIDTH] * values[:WIDTH]) @ u[:, :WIDTH].T, atol=2e-3)
    assert not network.embeddings.weight[:4].any()  # roles have no cells
    lines = [line for line in (run.folder / "cloze" / "log.jsonl").read_text().splitlines() if '"train"' in line]
    lost = float(lines[-1].split('"loss": ')[1].split(",")[0])
    assert lost == pytest.approx((values[WIDTH:] ** 2).sum() / (expected > 0).sum(), rel=1e-3)


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_words_and_contexts_have_the_power_of_the_singular_values(make_run: MakeRun, power: float) -> None:
    """`np.power(s, eig) * ut.T` for both sides, as hyperwords' `SVDEmbedding`; their sum is `EnsembleEmbedding`."""
    run = make_run(f"power{power}", power=power)
    train(run, [FactoriseEngine()])
    network, objective, _ = parts(run)
    for weight in (network.embeddings.weight, network.contexts.weight):
        torch.testing.assert_close(weight.detach().norm(dim=0), objective.spectrum ** power, atol=1e-4, rtol=1e-4)
    with pytest.raises(RecipeError, match="only with 0.5"):
        objective({"association": torch.zeros(1)}, Batch({}))
    torch.testing.assert_close(objective.basis().norm(dim=0).detach(), torch.ones(WIDTH), atol=1e-4, rtol=0)


def test_documents_are_folded_in_where_they_stood(make_run: MakeRun) -> None:
    run = make_run("lsa", TermDocuments(), weighting="log_entropy", power=1.0)
    train(run, [FactoriseEngine()])
    network, objective, source = parts(run)
    found = source.counts()
    counts = np.zeros((VOCABULARY, 30))
    counts[found.terms, found.documents] = found.counts
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    entropy = np.where(share > 0, share * np.log(np.where(share > 0, share, 1)), 0).sum(1)
    expected = np.log1p(counts) * (1 + entropy / np.log(30))[:, None]
    u, values, v = np.linalg.svd(expected, full_matrices=False)
    gram = (network.embeddings.weight @ network.embeddings.weight.T).detach().numpy()
    np.testing.assert_allclose(gram, (u[:, :WIDTH] * values[:WIDTH] ** 2) @ u[:, :WIDTH].T, atol=5e-3)
    folded = np.stack([
        objective.fold_in(torch.from_numpy(found.counts[inside]), torch.from_numpy(found.terms[inside]).long()).detach().numpy()
        for document in range(30) for inside in [found.documents == document]
    ])
    np.testing.assert_allclose(folded @ folded.T, v[:WIDTH].T @ v[:WIDTH], atol=5e-3)
    data: Any = run.data
    run.step.eval()
    (micro,), _ = data.next("main", Cursor())
    losses = run.step("main", micro.batch)
    rest = expected - (u[:, :WIDTH] * values[:WIDTH]) @ v[:WIDTH]
    chosen = source.plan(0, 64).order[:8]
    assert float(losses["svd"].total.detach()) == pytest.approx((rest[:, chosen] ** 2).sum(), rel=1e-3)


def test_a_width_beyond_the_rank_is_zero(make_run: MakeRun) -> None:
    run = make_run("wide", width=40)
    train(run, [FactoriseEngine()])
    network, objective, source = parts(run)
    rank = np.linalg.matrix_rank(dense_ppmi(source))
    assert int((objective.spectrum > 0).sum()) == rank <= 20
    assert not network.embeddings.weight[:, rank:].any()
    made = (network.embeddings.weight @ network.contexts.weight.T).detach().numpy()
    np.testing.assert_allclose(made, dense_ppmi(source), atol=1e-4)


def test_a_run_that_was_stopped_goes_on_and_a_budget_of_time_ends_early(make_run: MakeRun) -> None:
    first = make_run("parts", budget="3steps")
    train(first, [FactoriseEngine()])
    again = make_run("parts", budget="30steps")
    again.extend = True
    assert train(again, [FactoriseEngine()]).step == 30
    whole = make_run("whole")
    train(whole, [FactoriseEngine()])
    torch.testing.assert_close(parts(again)[1].spectrum, parts(whole)[1].spectrum, atol=1e-4, rtol=1e-4)
    quick = make_run("quick", budget="2h")
    outcome = train(quick, [FactoriseEngine()])
    assert outcome.finished and outcome.step < 300
    torch.testing.assert_close(parts(quick)[1].spectrum, parts(whole)[1].spectrum, atol=1e-3, rtol=1e-3)


def test_a_run_that_it_does_not_fit_says_why(make_run: MakeRun) -> None:
    engine = FactoriseEngine()
    assert engine.fits(make_run("cells")) == ""
    assert engine.fits(make_run("documents", TermDocuments(), weighting="log_entropy")) == ""
    mixed = make_run("mixed", weighting="count", of="documents")
    assert engine.fits(mixed) == "the objective factorises documents, which the source does not count"
    with pytest.raises(RecipeError, match="engine: auto"):
        train(make_run("loop", engine="loop"), [FactoriseEngine()])
