"""Kernels compute what the plain code does that they replace, to within the tolerance that the registry states."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("numba")

from cloze import kernels
from cloze.corpus.counting.cooccurrences import Cooccurrences, count_cells
from cloze.corpus.stores.build import build_store
from cloze.kernels import KERNELS
from cloze.kernels.compiling import STRICT, kernel
from cloze.kernels.floats import exponential, from_order, narrow, order
from cloze.networks.blocks.dropout import Dropout, Positions
from cloze.networks.clock import Clock
from cloze.networks.fast.activation import activate, activate_backward
from cloze.objectives.cross_entropy import cross_entropy_sum
from cloze.text import Normalise, TextSpec, Words, train
from cloze.text.encoding.word_encoder import encoder_for

TEXT = ["the cat sat on the mat , the dog saw it", "a dog and a cat saw the longestofallthewords of 2026"] * 9

Arrays = list[NDArray[Any]]


def dropout(folder: Path) -> Arrays:
    part, cpu = Dropout(0.3, Clock(5)).train(), torch.device("cpu")
    positions = Positions(torch.arange(6).repeat_interleave(3), torch.tensor([0, 4, 7]).repeat(6))
    columns = torch.tensor([[0, 3], [1, 5], [2, 2]])
    masks = [
        part.keep_hidden((5, 8, 18), cpu), part.keep_hidden((18, 10), cpu, positions), part.keep_scores(3, 2, 7, 9, cpu),
        part.keep_scores(3, 2, 7, 8, cpu, columns),
    ]
    return [mask.numpy() for mask in masks]


def gelu(folder: Path) -> Arrays:
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    x = x[x.abs() < 1e4]  # torch makes zero times infinity of larger ones
    return [part.float().numpy() for part in (activate(x, "gelu_tanh"), activate_backward(torch.ones_like(x), x, "gelu_tanh"))]


def cross_entropy(folder: Path) -> Arrays:
    torch.manual_seed(0)
    scores, targets = (3 * torch.randn(13, 101)).bfloat16().requires_grad_(), torch.randint(0, 101, (13,))
    total, right = cross_entropy_sum(scores, targets, torch.rand(13), smoothing=0.1, z_loss=0.01)
    (gradient,) = torch.autograd.grad(total, scores)
    return [total.detach().numpy(), right.numpy(), gradient.float().numpy()]


def chunks(folder: Path) -> Arrays:
    tokenizer = train(TextSpec(Normalise(lower=True), Words(min_count=1)), TEXT[:1])
    encoded = encoder_for(tokenizer, memory_mb=1, compiled=True).encode_lines(TEXT)
    return [np.asarray(array) for array in encoded]


def pairs(folder: Path) -> Arrays:
    tokenizer = train(TextSpec(Normalise(), Words(min_count=1)), TEXT)
    (folder / "text.txt").write_text("\n".join(TEXT))
    store = build_store([folder / "text.txt"], tokenizer, folder / "store")
    (folder / "cells").mkdir()
    cells = count_cells(Cooccurrences(radius=3), store, np.arange(store.documents), folder / "cells")
    return [np.array(array) for array in (cells.rows, cells.columns, cells.counts)]


COMPARED: dict[str, Callable[[Path], Arrays]] = {
    "dropout": dropout, "gelu": gelu, "cross_entropy": cross_entropy, "chunks": chunks, "pairs": pairs,
}
#: These train; the tests compare them with the loop or with numpy, to within the tolerance of the registry.
IN_OTHER_FILES = {
    "skipgram": "engines/test_kernels.py::test_a_kernel_moves_along_the_gradient_of_the_loop",
    "windows": "engines/test_kernels.py::test_a_kernel_moves_along_the_gradient_of_the_loop",
    "glove": "engines/test_glove.py::test_with_one_cell_in_a_step_it_is_the_loop",
    "texts": "engines/test_texts.py::test_the_kernel_steps_as_fasttext_does_text_by_text",
    "translation": "engines/test_translation.py::test_with_one_fact_in_a_step_it_is_the_loop",
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_computes_what_its_plain_code_does(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in IN_OTHER_FILES:
        path, _, test = IN_OTHER_FILES[name].partition("::")
        source = (Path(__file__).parents[1] / path).read_text(encoding="utf-8")
        assert f"def {test}(" in source and re.search(rf'KERNELS\[.*"{name}"', source)
        return
    monkeypatch.setitem(KERNELS, name, KERNELS[name]._replace(least=0, threads=1 << 20))
    find, used = kernels.find, set[str]()

    def record(asked: str, **call: Any) -> Any:
        used.add(asked)
        return find(asked, **call)

    monkeypatch.setattr(kernels, "find", record)
    compiled = COMPARED[name](tmp_path)
    assert name in used
    monkeypatch.setattr(kernels, "find", lambda asked, **call: None)
    (tmp_path / "plain").mkdir()
    tolerance = KERNELS[name].tolerance
    for made, plain in zip(compiled, COMPARED[name](tmp_path / "plain"), strict=True):
        np.testing.assert_allclose(made, plain, rtol=tolerance, atol=2e-6 if tolerance else 0)


def test_small_calls_and_many_threads_get_plain_code() -> None:
    assert kernels.find("gelu", size=(1 << 16) - 1) is None and kernels.find("gelu", size=1 << 16, threads=3) is None
    assert kernels.find("gelu", size=1 << 16, threads=2) is not None


# --- floats ---------------------------------------------------------------------------------------------------------------


@kernel(**STRICT)
def powers(numbers: Any) -> None:
    for i in range(len(numbers)):
        numbers[i] = exponential(numbers[i])


@kernel(**STRICT)
def rounded(numbers: Any, out: Any) -> None:
    for i in range(len(numbers)):
        out[i] = narrow(numbers[i])


@kernel(**STRICT)
def largest(numbers: Any) -> Any:
    highest = order(numbers[0])
    for i in range(len(numbers)):
        highest = max(highest, order(numbers[i]))
    return from_order(highest)


@example([1.00390625, 1.01171875])  # as far from the bfloat16 below as from that above
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40))
@settings(deadline=None)
def test_numbers_are_rounded_as_torch_rounds_them_and_keep_their_order(numbers: list[float]) -> None:
    array, out = np.array(numbers, np.float32), np.zeros(len(numbers), np.int16)
    rounded(array, out)
    assert np.array_equal(out, torch.from_numpy(array).bfloat16().view(torch.int16).numpy())
    assert largest(array) == array.max()


def test_the_exponential_is_right_to_float32_and_zero_far_down() -> None:
    x = np.concatenate([np.linspace(-87.3, 80, 1 << 14), [0.0, -0.0, -1e-30]]).astype(np.float32)
    made = x.copy()
    powers(made)
    assert np.abs(made / np.exp(x.astype(np.float64)) - 1).max() < 1e-5  # of the argument's rounding, at 80 most of it
    near = np.linspace(-2, 0, 64, dtype=np.float32)
    made = near.copy()
    powers(made)
    assert np.abs(made / np.exp(near.astype(np.float64)) - 1).max() < 3e-7
    low = np.array([-87.4, -1e4, -np.inf, np.nan], dtype=np.float32)
    powers(low)
    assert (low[:3] == 0).all() and np.isnan(low[3])
