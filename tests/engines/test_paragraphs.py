"""Paragraph vectors in compiled code: along the gradient of the loop, and for new texts while everything else stays."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cloze import rng
from cloze.batch import Batch
from cloze.cli.main import main
from cloze.engines.paragraphs import Inferred
from cloze.exercises.targets.predict import Predict
from cloze.exercises.targets.windows import WindowPairs
from cloze.networks import ParagraphVectors
from cloze.objectives.static.negative_sampling import NegativeSampling

pytest.importorskip("numba")

from cloze import kernels
from cloze.kernels.vectors import arguments as parts
from cloze.kernels.vectors import exact

LINES = [[1, 2, 3, 2, 4], [5, 1, 2], [3, 4, 5, 6, 1, 2]]
RADIUS = 2


def system(words: bool, gradient: Any = "full") -> tuple[ParagraphVectors, NegativeSampling]:
    """Three paragraphs; one word takes all the noise, so that the draws of the loop and of the kernel are the same."""
    torch.manual_seed(1)
    network = ParagraphVectors(width=16, vocab_size=8, documents=3, words=words, gradient=gradient, spread=4)
    counts = np.array([0, 0, 0, 0, 0, 0, 0, 10**9])
    objective = NegativeSampling(width=16, vocab_size=8, counts=counts, power=4.0, negatives=2, clock=network.clock)
    with torch.no_grad():
        objective.head.weight.normal_(0, 0.5)
    return network, objective


def loss_of(network: ParagraphVectors, objective: NegativeSampling, number: int, own: torch.Tensor | None = None) -> torch.Tensor:
    """The loss of a line by the code that the loop runs, for its own paragraph or for a vector `own` (D,)."""
    line = LINES[number]
    tokens = torch.tensor([line])
    state, pairs = "hidden", {}
    if network.words:
        near = [(c, p) for c in range(len(line)) for p in range(len(line)) if p != c and abs(p - c) <= RADIUS]
        state, pairs = "context", dict(zip(("centers", "contexts"), map(torch.tensor, zip(*near, strict=True)), strict=True))
    if own is None:
        made = network(want=frozenset({state}), tokens=tokens, paragraph=torch.tensor([number]), **pairs)
    else:
        made = network.states(own[None], frozenset({state}), tokens=tokens, **pairs)
    batch = Batch({"targets/main": tokens[0], "positions/main": torch.arange(len(line))})
    return objective.loss(objective.scores({objective.reads[0]: made[state]}, batch), batch).total


@pytest.mark.parametrize(("words", "gradient"), [(False, "full"), (True, "full"), (True, "divided")])
def test_a_kernel_moves_along_the_gradient_of_the_loop(words: bool, gradient: str) -> None:
    network, objective = system(words, gradient)
    start = network.embeddings.weight.detach().numpy().copy(), objective.head.weight.detach().numpy().copy()
    sum(loss_of(network, objective, number) for number in range(3)).backward()  # type: ignore[union-attr]
    wanted = [module.weight.grad.numpy() for module in (network.embeddings, objective.head)]  # type: ignore[union-attr]

    predicts = parts.PREDICT_FROM_MEAN if words else parts.PREDICT_FROM_OWNER
    windows = parts.WindowSampling.of(np.ones(8), radius=RADIUS, shrinks=False, predicts=predicts, full=gradient == "full")
    answers = parts.Targets.sampled(objective.noise.numpy(), negatives=2)
    inputs, outputs = (part.copy() for part in start)
    sizes, rate = np.array([len(line) for line in LINES]), 1e-4
    job = parts.TrainingLines(
        np.array(sum(LINES, []), np.uint16), np.cumsum(sizes) - sizes, sizes, np.full(3, rate, np.float32),
        rng.row_keys(1, items=np.arange(3)), network.first + np.arange(3),
    )
    work = parts.ThreadBuffers.of(windows, answers, 16)
    exact.train_exact(job, windows, answers, parts.SubwordRows.none(), inputs, outputs, work, parts.Sigmoid.exact(), np.zeros(4))
    for moved, began, slope in zip((inputs, outputs), start, wanted, strict=True):
        assert np.allclose((moved - began) / -rate, slope, atol=0.02 * abs(slope).max())
        still = (slope == 0).all(axis=1)
        assert np.array_equal(moved[still], began[still])


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("words", [False, True])
def test_a_new_text_moves_its_own_vector_along_the_gradient_and_nothing_else(
    words: bool, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if plain:
        monkeypatch.setattr(kernels, "find", lambda name: None)
    network, objective = system(words)
    network.spread = 0.0  # the vector starts at zero
    asked = WindowPairs(radius=RADIUS, shrink="none", together=True) if words else Predict("all")
    before = network.embeddings.weight.detach().clone(), objective.head.weight.detach().clone()
    tokens, block = torch.tensor([LINES[1] + [0] * 3, LINES[2]]), torch.tensor([[1, 1, 1, 0, 0, 0], [1] * 6])
    rate = 1e-3
    found = Inferred(network, objective, edit=asked, keep=None, rates=[rate])(tokens, block)
    for row, number in enumerate((1, 2)):
        own = torch.zeros(16, requires_grad=True)
        loss_of(network, objective, number, own).backward()
        assert own.grad is not None
        torch.testing.assert_close(found[row] / -rate, own.grad, rtol=0, atol=0.02 * float(own.grad.abs().max()))
    assert torch.equal(network.embeddings.weight, before[0]) and torch.equal(objective.head.weight, before[1])


@pytest.mark.parametrize("plain", [False, True])
def test_a_text_has_one_vector_in_any_batch_and_its_words_decide_it(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if plain:
        monkeypatch.setattr(kernels, "find", lambda name: None)
    network, objective = system(False)
    infer = Inferred(network, objective, edit=Predict("all"), keep=None, rates=[0.1, 0.05])
    both = infer(torch.tensor([LINES[1] + [0] * 3, LINES[2]]), torch.tensor([[1, 1, 1, 0, 0, 0], [1] * 6]))
    assert torch.equal(both[:1], infer(torch.tensor([LINES[1]]), None))
    assert torch.equal(both[1:], infer(torch.tensor([LINES[2]]), None))
    assert not torch.equal(both[0], infer(torch.tensor([LINES[0]]), None)[0])


@pytest.mark.parametrize("negatives", [2, 9])  # 9 negatives are two groups of output rows
def test_all_passes_of_all_texts_in_one_call_are_those_of_one_text_after_another(negatives: int) -> None:
    network, _ = system(False)
    objective = NegativeSampling(width=16, vocab_size=8, counts=np.arange(1, 9), negatives=negatives, clock=network.clock)
    torch.nn.init.normal_(objective.head.weight, 0, 0.5)
    rates, lengths = [0.3, 0.2, 0.1], [len(line) for line in LINES]
    tokens = torch.tensor([line + [0] * (6 - len(line)) for line in LINES])
    found = Inferred(network, objective, edit=Predict("all"), keep=None, rates=rates)(tokens, (tokens > 0).long())
    windows = parts.WindowSampling.of(np.ones(8), radius=1, predicts=parts.PREDICT_FROM_OWNER, frozen=True)
    answers, outputs = parts.Targets.sampled(objective.noise.numpy(), negatives=negatives), objective.head.weight.detach().numpy()
    for number, line in enumerate(LINES):
        keys = rng.row_keys("paragraph", items=np.array([zlib.crc32(np.array(line, np.int64).tobytes())]))
        own = ((2.0 * rng.Draw(keys).uniform("start", 16) - 1.0) * network.spread / 16).astype(np.float32)
        for turn, rate in enumerate(rates):
            job = parts.TrainingLines(
                np.array(line, np.uint16), np.array([0]), np.array([lengths[number]]), np.array([rate], np.float32),
                rng.mix_keys(keys, rng.fold("pass", turn)), np.array([0]),
            )
            exact.train_exact(
                job, windows, answers, parts.SubwordRows.none(), own, outputs, parts.ThreadBuffers.of(windows, answers, 16),
                parts.Sigmoid.fine(skip=True), np.zeros(4),
            )
        assert np.array_equal(found[number].numpy(), own[0])


def test_texts_do_not_change_the_tables_and_a_larger_batch_gets_room() -> None:
    network, objective = system(True)
    asked = WindowPairs(radius=RADIUS, shrink="none", together=True)
    infer = Inferred(network, objective, edit=asked, keep=None, rates=[0.1])
    few = infer(torch.tensor([LINES[1]]), None)
    many = infer(torch.tensor([LINES[1]] * 100), None)
    assert torch.equal(few, many[:1]) and torch.equal(few.expand(100, 16), many)
    assert torch.equal(few, infer(torch.tensor([LINES[1]]), None))


TEXT = "".join(f"{line}\n" for line in ["the cat sat on the mat", "a dog saw the cat", "stocks fell in the market"] * 12)


@pytest.mark.parametrize("recipe", ["pv-dbow", "pv-dm"])
def test_a_recipe_trains_in_compiled_code_and_its_checkpoint_embeds_new_texts(recipe: str, tmp_path: Path) -> None:
    from cloze.checkpoint.build import load_checkpoint
    from cloze.decoding.reader import Reader
    from cloze.decoding.vectors.embedding import embed
    from cloze.runs.run import pretrain

    (tmp_path / "text.txt").write_text(TEXT)
    values = [
        "training.batch=4", "network.width=20", "text.tokenizer.min_count=1", "exercise.1.threshold=null",
        "training.engine=compiled", "training.rate.peak=0.2",
    ]
    out = tmp_path / "run"
    pretrain(
        recipe, corpus=tmp_path / "text.txt", out=out, budget="60epochs", overrides=values, device="cpu", text_format="line",
        fit=False,
    )
    loaded = load_checkpoint(out)
    made = embed(Reader.of(loaded), ["the cat sat on the mat", "stocks fell in the market"], normalise=True)
    network: Any = loaded.network
    assert made.shape == (2, 20) and not np.allclose(made[0], made[1], atol=0.1)
    if recipe == "pv-dm":  # so few words say all there is to say, and leave little to the paragraphs
        return
    near = made @ torch.nn.functional.normalize(network.paragraphs).numpy().T
    assert near[0, 0::3].mean() - near[0, 2::3].mean() > 0.1 < near[1, 2::3].mean() - near[1, 0::3].mean()


def test_vectors_of_documents_are_neither_tuned_nor_continued_on_other_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "other.txt").write_text(TEXT + TEXT)
    (tmp_path / "rows.tsv").write_text("text\tlabel\nthe cat\ta\nthe dog\tb\n")
    run, out = tmp_path / "run", tmp_path / "out"

    def pretrain(text: str, *more: str) -> list[str]:
        values = ["--set", "text.tokenizer.min_count=1", "--set", "network.width=8", "--format", "line", "--quiet"]
        return ["pretrain", "pv-dbow", "--corpus", str(tmp_path / text), "--budget", "1epochs", *values, *more]

    assert not main(pretrain("text.txt", "--out", str(run)))
    rows = str(tmp_path / "rows.tsv")
    assert main(["finetune", str(run), "--train", rows, "--dev", rows, "--out", str(out)]) == 2
    told = capsys.readouterr().err
    assert "holds vectors of documents" in told and f"cloze embed {run} --file TEXTS --out VECTORS.npy" in told
    assert main(pretrain("other.txt", "--init", str(run), "--out", str(out))) == 2
    told = capsys.readouterr().err
    assert "embeddings.weight is (36, 8) in the checkpoint and (72, 8)" in told and "cloze pretrain" not in told.split("\n", 1)[1]
    assert f"cloze embed {run} --file TEXTS" in told and "leave --init out" in told
