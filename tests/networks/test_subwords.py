"""fastText's n-grams and hashes, with numbers worked out from its code."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from cloze.hashed import (
    Hashing,
    count_roles,
    fasttext_hash,
    hashes_of_words,
    ngram_rows,
    ngrams_of,
    rows_of_words,
    run_buckets,
)

WHERE = {"<wh": 1048167652, "whe": 888420941, "her": 4105473420, "ere": 2073529033, "re>": 2062867498}


def test_the_n_grams_of_where_hash_as_in_fasttext() -> None:
    assert {gram: fasttext_hash(gram) for gram in ngrams_of("where", (3, 3))} == WHERE
    assert ngram_rows("where", (3, 3), 2_000_000, 0) == [167652, 420941, 1473420, 1529033, 867498]


def test_bytes_above_127_are_extended_with_their_sign() -> None:
    assert fasttext_hash("é") == 1023043777
    assert fasttext_hash("é") != 513665217  # standard FNV-1a


@pytest.mark.parametrize(("letters", "number"), [(1, 1), (2, 3), (3, 6), (5, 14), (8, 26)])
def test_a_word_has_as_many_n_grams_as_its_letters_allow(letters: int, number: int) -> None:
    assert len(ngrams_of("é" * letters, (3, 6))) == number  # letters, not bytes


def test_lengths_beyond_that_of_a_word_cost_nothing() -> None:
    def give_up(signal: int, frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(5)
    try:
        assert ngrams_of("ab", (1, 1 << 30)) == ["<a", "<ab", "<ab>", "a", "ab", "ab>", "b", "b>"]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_bound_alone_is_no_n_gram_but_a_letter_is() -> None:
    assert ngrams_of("ab", (1, 2)) == ["<a", "a", "ab", "b", "b>"]


def test_a_short_word_is_its_own_row_and_a_hashed_n_gram() -> None:
    starts, rows = rows_of_words(["[UNK]", "of"], (3, 6), 100)
    assert starts.tolist() == [0, 1, 1 + 1 + 3]
    assert rows[0] == 0 and rows[1] == 1  # a role has its own row alone
    assert 2 + fasttext_hash("<of>") % 100 in rows[2:]


def test_roles_stand_before_the_words() -> None:
    assert count_roles(["[PAD]", "[UNK]", "<s>", "</s>", "the", "[x]"]) == 4
    assert count_roles(["the", "[UNK]"]) == 0
    assert count_roles(["[PAD]"]) == 1


def test_runs_of_words_hash_in_64_bits() -> None:
    """h = h · 116049371 + next, begun with a signed hash of 32 bits, in integers without a bound."""
    hashes = hashes_of_words(["good", "film", "indeed"])
    assert hashes.tolist() == [(h + 2**31) % 2**32 - 2**31 for h in map(fasttext_hash, ("good", "film", "indeed"))]
    expected = []
    for size in (2, 3):
        for start in range(4 - size):
            value = int(hashes[start]) % 2**64
            for following in hashes[start + 1 : start + size].tolist():
                value = (value * 116049371 + following) % 2**64
            expected.append(value % 1000)
    text = np.zeros(3, np.int64)
    assert [bucket for buckets, _ in run_buckets(hashes, text, Hashing(3, buckets=1000)) for bucket in buckets] == expected
    assert list(run_buckets(hashes[:1], text[:1], Hashing(3, buckets=1000))) == []
    assert list(run_buckets(hashes, text, Hashing(1, buckets=1000))) == []
