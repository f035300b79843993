"""Huffman codes: word2vec's on the counts that were worked out by hand, and what makes any code a right one."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.objectives.static.huffman import Codes, huffman


def written(codes: Codes) -> list[str]:
    return ["".join(map(str, bits[:length])) for bits, length in zip(codes.bits, codes.lengths, strict=True)]


def weighted(codes: Codes, counts: list[int]) -> int:
    return int((codes.lengths * np.array(counts)).sum())


def heap_merges(counts: list[int]) -> int:
    """The weighted length of every optimal code: the sum of all merges."""
    heap, total = list(counts), 0
    heapq.heapify(heap)
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        total += joined
        heapq.heappush(heap, joined)
    return total


def test_the_codes_and_points_of_word2vec() -> None:
    codes = huffman(np.array([15, 8, 6, 5, 3, 1]))
    assert written(codes) == ["0", "111", "110", "101", "1001", "1000"]
    points = [row[:length].tolist() for row, length in zip(codes.points, codes.lengths, strict=True)]
    assert points == [[4], [4, 3, 2], [4, 3, 2], [4, 3, 1], [4, 3, 1, 0], [4, 3, 1, 0]]
    assert weighted(codes, [15, 8, 6, 5, 3, 1]) == 88


def test_at_a_tie_the_inner_node_is_taken() -> None:
    codes = huffman(np.array([5, 4, 3, 2, 1]))
    assert written(codes) == ["11", "10", "01", "001", "000"]
    assert weighted(codes, [5, 4, 3, 2, 1]) == 33


def test_ids_that_never_occur_have_no_code() -> None:
    codes = huffman(np.array([0, 3, 0, 15, 1]))
    assert codes.lengths.tolist() == [0, 2, 0, 1, 2]
    assert (codes.bits[0] == -1).all() and (codes.points[2] == -1).all()
    assert codes.points[1].tolist() == [1, 0]  # three words: the root is node 1


@pytest.mark.parametrize("counts", [[], [0], [7], [0, 7]])
def test_a_single_word_needs_no_turn(counts: list[int]) -> None:
    codes = huffman(np.array(counts, np.int64))
    assert codes.lengths.tolist() == [0] * len(counts) and codes.points.shape == (len(counts), 0)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=40))
@settings(max_examples=150, deadline=None)
def test_every_code_is_prefix_free_complete_and_optimal(counts: list[int]) -> None:
    codes = huffman(np.array(counts, np.int64))
    words = [text for text, count in zip(written(codes), counts, strict=True) if count]
    if len(words) < 2:
        return
    assert sum(0.5 ** len(text) for text in words) == 1
    assert not any(a != b and b.startswith(a) for a in words for b in words) and len(set(words)) == len(words)
    assert weighted(codes, counts) == heap_merges([count for count in counts if count])
