"""From scores of tokens to answers, against enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloze.corpus.records.windows import windows
from cloze.tasks.kinds.extraction import best_positions, best_span, best_threshold
from cloze.tasks.measures.answers import answer_scores, scoring_of

scores = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=8)


@settings(deadline=None)
@given(scores, st.integers(1, 10), st.randoms(use_true_random=False), st.booleans())
def test_the_best_span_is_the_best_of_all(first: list[float], max_length: int, chance: object, limited: bool) -> None:
    generator = np.random.default_rng(chance.randrange(1 << 30))  # type: ignore[attr-defined]
    last = generator.integers(-3, 4, len(first)).astype(np.float32)
    begins = generator.random(len(first)) < 0.5 if limited else None
    spans = [
        (first[i] + float(last[j]), -i, -j) for i in range(len(first)) for j in range(i, min(i + max_length, len(first)))
        if begins is None or begins[i]
    ]  # fmt: skip
    found = best_span(np.array(first, np.float32), last, max_length, begins)
    if not spans:
        assert found is None
        return
    score, start, stop = max(spans)
    assert found is not None and (found.score, found.first, found.last) == (score, -start, -stop)


def test_no_token_has_no_span() -> None:
    assert best_span(np.zeros(0, np.float32), np.zeros(0, np.float32), 5) is None


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(3, 20), st.integers(1, 19))
def test_every_token_may_begin_an_answer_in_one_window_that_shows_most_around_it(
    tokens: int, max_tokens: int, stride: int
) -> None:
    stride = min(stride, max_tokens - 1)
    _, shown = windows(np.array([[0, tokens]]), max_tokens, stride)
    begin, count = shown.first[:, 1], shown.kept[:, 1]
    places = best_positions(begin, count, tokens)
    owners = [[number for number, (a, own) in enumerate(zip(begin, places, strict=True)) if 0 <= t - a < len(own) and own[t - a]]
              for t in range(tokens)]  # fmt: skip
    for token, own in enumerate(owners):
        windows_ = list(zip(begin, count, strict=True))
        context = [min(token - a, a + n - 1 - token) + 0.01 * n if a <= token < a + n else -1.0 for a, n in windows_]
        assert own == [context.index(max(context))]


margin_and_scores = st.tuples(st.integers(-4, 4), st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 0.5, 1.0]))


@settings(deadline=None)
@given(st.lists(margin_and_scores, min_size=1, max_size=9))
def test_the_best_threshold_is_the_best_of_all(rows: list[tuple[int, float, float]]) -> None:
    margins, silent, answered = (list(column) for column in zip(*rows, strict=True))

    def total(threshold: float) -> float:
        return sum(s if m > threshold else a for m, s, a in rows)

    found = best_threshold(margins, silent, answered)
    assert total(found) == pytest.approx(max(total(t / 2) for t in range(-20, 21)))
    assert total(found - 1e-3) == total(found + 1e-3) == total(found)  # no question is at the edge


def test_whose_definition_of_the_scores_is_told_by_the_answers() -> None:
    assert scoring_of(["1998年", "北京"]) == "cmrc" and scoring_of(["Beijing 北京", "in 1998"]) == scoring_of([]) == "squad"
    assert answer_scores(["北京市"], [["北京"]], scoring="cmrc")["f1"] == pytest.approx(0.8)
