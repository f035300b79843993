"""The polarity of words from the senses that their sentence suggests."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from cloze.errors import RecipeError
from cloze.text.annotation.sentiment import WordSenses, polarity

SENSES = """# POS\tID\tPosScore\tNegScore\tSynsetTerms\tGloss
a\t1\t0.5\t0\tfine#1 all_right#2\tbeing satisfactory; "an all-right movie"
n\t2\t0\t0.5\tfine#1\tmoney extracted as a penalty
n\t3\t0\t0\ttable#1\ta piece of furniture
n\t4\t0.25\t0\tgem#1\ta precious stone
"""


def test_two_senses_with_ranks_1_and_2_and_cosines_1_and_0_give_half_a_hyperbolic_tangent() -> None:
    assert polarity([1, 2], [1.0, 0.0], [0.5, -0.5]) == pytest.approx(0.5 * math.tanh(0.375), abs=1e-7)


def test_the_sentence_decides_between_senses_of_different_polarity(tmp_path: Path) -> None:
    (tmp_path / "senses.tsv").write_text(SENSES)
    annotator = WordSenses(file=str(tmp_path / "senses.tsv"))
    assert annotator.labels == ("negative", "positive")
    assert annotator.annotate("The penalty was money, a Fine!") == [(25, 29, 0)]
    assert annotator.annotate("A satisfactory fine gem on the table") == [(15, 19, 1), (20, 23, 1)]
    assert annotator.annotate("Fine") == []  # its senses cancel out


def test_a_line_in_another_layout_is_refused_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "senses.tsv").write_text(SENSES + "good\tpositive\n")
    with pytest.raises(RecipeError, match=r"senses.tsv:6: 'good\\tpositive'; expected part of speech, id, positive score"):
        WordSenses(file=str(tmp_path / "senses.tsv"))
