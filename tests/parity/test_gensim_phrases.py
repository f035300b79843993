"""Phrases against gensim's: every score, and the joined text of two passes."""

from __future__ import annotations

from typing import Any

import pytest

from cloze.text import Normalise, Phrases, TextSpec, train
from tests.samples import SAMPLES

gensim = pytest.importorskip("gensim")


def _of_words(
    worda_count: int, wordb_count: int, bigram_count: int, len_vocab: int, min_count: int, corpus_word_count: int
) -> float:
    """word2phrase's score, for gensim, whose own multiplies by `len_vocab`."""
    return (bigram_count - min_count) / worda_count / wordb_count * corpus_word_count


@pytest.mark.parametrize(("score", "thresholds"), [("word2phrase", (8.0, 6.0)), ("npmi", (0.4, 0.3))])
def test_scores_and_joined_text_are_gensims(score: Any, thresholds: tuple[float, float]) -> None:
    text = (SAMPLES / "english.txt").read_text(encoding="utf-8").lower()
    lines = ["".join(c if c.isalnum() else " " for c in line).split() for line in text.splitlines() * 2]
    least = 2
    spec = TextSpec(Normalise(), Phrases(min_count=1, split="whitespace", thresholds=thresholds, score=score, min_pairs=least))
    ours = train(spec, [" ".join(line) for line in lines])
    assert ours.joins is not None
    scoring = _of_words if score == "word2phrase" else "npmi"
    here, found = lines, 0
    for number, threshold in enumerate(thresholds, 1):
        theirs = gensim.models.Phrases(here, min_count=least, threshold=threshold, scoring=scoring)
        mine = {(join.first, join.second): join.score for join in ours.joins.pairs if join.number == number}
        pairs = {(a, b) for line in here for a, b in zip(line, line[1:], strict=False)}
        known = {(a, b): theirs.score_candidate(a, b, [])[1] for a, b in pairs}
        assert mine == pytest.approx({pair: value for pair, value in known.items() if value is not None}, rel=1e-13)
        found += len(mine)
        here = [theirs[line] for line in here]
    assert found > 100
    assert [[ours.piece(i) for i in one.ids] for one in ours.encode_batch([" ".join(line) for line in lines])] == here
    if score == "word2phrase":  # gensim's own score is the same up to a factor
        plain = gensim.models.Phrases(lines, min_count=least, threshold=1e-9)
        first = [join for join in ours.joins.pairs if join.number == 1]
        factor = len(plain.vocab) / plain.corpus_word_count
        assert [join.score * factor for join in first] == pytest.approx(
            [plain.score_candidate(join.first, join.second, [])[1] for join in first], rel=1e-13
        )
