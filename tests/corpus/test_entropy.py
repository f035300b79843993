"""What tables of single tokens and of pairs know of a text."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cloze.corpus.stores.entropy import entropy


def test_independent_tokens_have_the_entropy_of_their_shares_and_pairs_know_no_more() -> None:
    shares = np.array([0.5, 0.25, 0.125, 0.125])
    tokens = np.random.default_rng(0).choice(4, size=200_000, p=shares)
    found = entropy(tokens, vocab_size=4)
    exact = float(-(shares * np.log(shares)).sum())
    assert found.uniform == math.log(4) and found.tokens == 200_000
    assert found.single == pytest.approx(exact, abs=0.01) and found.pairs == pytest.approx(exact, abs=0.01)


def test_a_chain_of_tokens_is_known_by_its_pairs() -> None:
    """From a to a + 1 or a + 2 with equal shares: ln 2 for pairs, ln 50 for single tokens."""
    steps = np.random.default_rng(1).integers(1, 3, size=300_000)
    found = entropy(np.cumsum(steps) % 50, vocab_size=50)
    assert found.single == pytest.approx(math.log(50), abs=0.01)
    assert found.pairs == pytest.approx(math.log(2), abs=0.01)


def test_a_text_that_never_repeats_is_not_flattered_by_what_was_counted() -> None:
    found = entropy(np.random.default_rng(2).permutation(40_000), vocab_size=40_000)
    assert found.single > math.log(40_000) and found.pairs > math.log(40_000)


def test_all_of_a_small_text_is_measured_and_not_two_places_that_may_be_unlike_the_rest() -> None:
    """Two of forty blocks of a text of four words are in another language."""
    tokens = np.random.default_rng(3).integers(0, 4, size=40_000)
    for place in (10, 30):
        tokens[place * 1000 : (place + 1) * 1000] = 4 + np.random.default_rng(place).integers(0, 400, size=1000)
    found = entropy(tokens, vocab_size=404)
    foreign = 2 * math.log(38_404)  # both are measured together, so of 38,000 words and one of each id none is theirs
    assert found.single == pytest.approx((38 * math.log(4 * 38_404 / 36_004) + foreign) / 40, abs=0.005)
    assert found.pairs == pytest.approx((38 * math.log(4) + foreign) / 40, abs=0.005)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 19, 20, 21, 50])
def test_a_text_of_few_tokens_has_finite_entropies(length: int) -> None:
    found = entropy(np.arange(length) % 7, vocab_size=7)
    assert all(math.isfinite(value) for value in (found.uniform, found.single, found.pairs))
