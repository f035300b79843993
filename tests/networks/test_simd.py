"""Registers of bfloat16 in compiled code: rounding, the ends of rows, the exponential."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

from cloze.kernel import SIMD_WIDTH, kernel
from cloze.simd import (
    STRICT,
    exponential,
    largest_of,
    load,
    load_half,
    load_one,
    spread,
    store,
    store_half,
    store_one,
    total_of,
)


@kernel(**STRICT)
def copy(source: Any, out: Any, count: Any) -> None:
    for at in range(0, count, SIMD_WIDTH):
        store_half(out, 1, at, count - at, load_half(source, 1, at, count - at, np.float32(0)))


@kernel(**STRICT)
def one(source: Any, out: Any, column: Any) -> None:
    store_one(out, 1, column, load_one(source, 1, column))


@kernel(**STRICT)
def powers(numbers: Any) -> None:
    for at in range(0, numbers.shape[1], SIMD_WIDTH):
        store(numbers, 0, at, exponential(load(numbers, 0, at)))


@kernel(**STRICT)
def summary(source: Any, count: Any, out: Any) -> None:
    x = load_half(source, 0, 0, count, np.float32(-7))
    out[0], out[1] = total_of(x), largest_of(x)


@kernel(**STRICT)
def rounded(number: Any, out: Any) -> None:
    store_half(out, 0, 0, len(out), spread(number))
    store_one(out, 0, out.shape[1] - 1, number)


@given(count=st.integers(0, 3 * SIMD_WIDTH + 1), seed=st.integers(0, 99))
@settings(deadline=None)
def test_a_row_is_read_and_written_to_its_end_and_no_further(count: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    source = draw.integers(-30000, 30000, (3, 60), dtype=np.int16)
    source[source & 0x7F80 == 0x7F80] = 0  # neither infinite nor no number
    out = np.full((3, 60), 77, dtype=np.int16)
    wanted = out.copy()
    wanted[1, :count] = source[1, :count]
    copy(source, out, count)
    assert np.array_equal(out, wanted)


@pytest.mark.parametrize("column", [0, 7, 59])
def test_one_number_is_written_alone(column: int) -> None:
    source, out = np.full((3, 60), 0x3F80, dtype=np.int16), np.zeros((3, 60), dtype=np.int16)
    one(source, out, column)
    assert out[1, column] == 0x3F80 and np.count_nonzero(out) == 1


@given(st.floats(width=32, allow_nan=False))
@settings(deadline=None)
def test_numbers_are_rounded_as_torch_rounds_them(number: float) -> None:
    out = np.zeros((1, 2), dtype=np.int16)
    rounded(np.float32(number), out)
    wanted = torch.tensor([number], dtype=torch.float32).bfloat16().view(torch.int16).item()
    assert out.tolist() == [[wanted, wanted]]


def test_the_exponential_is_right_to_float32_and_zero_far_down() -> None:
    x = np.concatenate([np.linspace(-87.3, 80, 1 << 14), [0.0, -0.0, -1e-30]]).astype(np.float32)
    x = np.resize(x, (1, -(-len(x) // SIMD_WIDTH) * SIMD_WIDTH))
    made = x.copy()
    powers(made)
    assert np.abs(made / np.exp(x.astype(np.float64)) - 1).max() < 1e-5  # of the argument's rounding, at 80 most of it
    near = np.linspace(-2, 0, 4 * SIMD_WIDTH, dtype=np.float32)[None]
    made = near.copy()
    powers(made)
    assert np.abs(made / np.exp(near.astype(np.float64)) - 1).max() < 3e-7
    low = np.resize(np.array([-87.4, -1e4, -np.inf], dtype=np.float32), (1, SIMD_WIDTH))
    powers(low)
    assert (low == 0).all()


def test_sums_and_largest_take_what_stands_behind_the_end() -> None:
    source, out = torch.arange(60.0).bfloat16().view(1, -1).view(torch.int16).numpy(), np.zeros(2)
    summary(source, 5, out)
    assert out.tolist() == [10 - 7 * (SIMD_WIDTH - 5), 4]
