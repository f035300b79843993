"""Alignments: CTM, TextGrids in both forms, pauses, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloze.corpus.items.alignments import AlignedWord, Alignments, read_text_grid, same_word
from cloze.errors import CorpusError

#: As Praat's manual shows the forms, with a tier of phones, a tier of points, a pause and a quotation mark.
LONG = """File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = 2.3
tiers? <exists>
size = 3
item []:
    item [1]:
        class = "IntervalTier"
        name = "words"
        xmin = 0
        xmax = 2.3
        intervals: size = 3
        intervals [1]:
            xmin = 0
            xmax = 0.7
            text = "two"
        intervals [2]:
            xmin = 0.7
            xmax = 1.0
            text = ""
        intervals [3]:
            xmin = 1.0
            xmax = 2.3
            text = "so ""called"" "
    item [2]:
        class = "TextTier"
        name = "bell"
        xmin = 0
        xmax = 2.3
        points: size = 1
        points [1]:
            number = 1.5
            mark = "ding"
    item [3]:
        class = "IntervalTier"
        name = "phones"
        xmin = 0
        xmax = 2.3
        intervals: size = 1
        intervals [1]:
            xmin = 0
            xmax = 2.3
            text = "T"
"""
SHORT = """File type = "ooTextFile"
"TextGrid"

0
2.3
<exists>
3
"IntervalTier"
"words"
0
2.3
3
0
0.7
"two"
0.7
1.0
""
1.0
2.3
"so ""called"" "
"TextTier"
"bell"
0
2.3
1
1.5
"ding"
"IntervalTier"
"phones"
0
2.3
1
0
2.3
"T"
"""
WORDS = [AlignedWord("two", 0.0, 0.7), AlignedWord('so "called"', 1.0, 2.3)]


@pytest.mark.parametrize("form", [LONG, SHORT])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_both_forms_of_a_text_grid_are_read_and_pauses_are_left_out(form: str, encoding: str, tmp_path: Path) -> None:
    (tmp_path / "84-1-0000.TextGrid").write_bytes(form.encode(encoding))
    assert Alignments(tmp_path).words("84-1-0000") == WORDS
    assert Alignments(tmp_path / "84-1-0000.TextGrid").words("84-1-0001") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SHORT[:-20], "no TextGrid that can be read"), (SHORT.replace('"TextGrid"', '"Pitch"'), "no TextGrid that can be read"),
        (SHORT.replace('"words"', '"text"'), "has the tiers 'text', 'bell', 'phones'; expected one that is called 'words'"),
    ],
)
def test_a_grid_that_is_damaged_or_has_no_words_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a.TextGrid").write_text(text, encoding="utf-8")
    with pytest.raises(CorpusError, match=f"a.TextGrid: {said}"):
        read_text_grid(tmp_path / "a.TextGrid")


def test_the_lines_of_a_ctm_are_words_in_the_order_of_time_without_silence_and_noise(tmp_path: Path) -> None:
    words = ("b 1 0.50 0.25 there 0.9", "a 1 0.1 0.2 <eps>", "b 1 0.10 0.4 hi", "b 1 0.8 0.1 [noise]", "b A 0.9 0.1 <unk>")
    (tmp_path / "x.ctm").write_text("\n".join((";; made by Kaldi", *words)), encoding="utf-8")
    alignments = Alignments(tmp_path / "x.ctm")
    assert alignments.words("b") == [
        AlignedWord("hi", 0.1, 0.5), AlignedWord("there", 0.5, 0.75), AlignedWord("<unk>", 0.9, pytest.approx(1.0)),
    ]
    assert alignments.words("a") == [] and alignments.words("c") is None


def test_a_line_that_is_no_word_and_a_folder_without_alignments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="holds no alignments; expected a .ctm, a .TextGrid, or a folder of these"):
        Alignments(tmp_path)
    with pytest.raises(CorpusError, match="none: no such file or folder"):
        Alignments(tmp_path / "none")
    (tmp_path / "x.ctm").write_text("b 1 0.5 there\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"x\.ctm:1: 'b 1 0\.5 there' is not a line of a CTM file; expected NAME CHANNEL START"):
        Alignments(tmp_path)


def test_words_are_compared_without_case_and_punctuation_and_an_unknown_word_may_be_any() -> None:
    assert same_word("Don't,", "DON'T") and same_word("dont", "don't") and same_word("zyx", "<UNK>")
    assert not same_word("their", "there")
