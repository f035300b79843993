"""Segments by separators, and the summary at a [MASK]: rows as the code of VL-BERT and UNITER builds them."""

from __future__ import annotations

import numpy as np
import pytest

from cloze.errors import RecipeError
from cloze.exercises.number_segments import NumberSegments
from cloze.exercises.targets.summarise import Summarise
from cloze.rng import Draw
from cloze.rows import Rows
from tests.contracts.test_edits import FACTS

CLS, SEP, MASK = 2, 3, 4
DRAW = Draw(np.zeros(3, np.uint64))


def rows_of(*texts: list[int]) -> Rows:
    """Rows of these tokens, the shorter ones padded with separators, which are no tokens of theirs."""
    width = max(map(len, texts))
    tokens = np.array([text + [SEP] * (width - len(text)) for text in texts], np.int32)
    return Rows({"tokens": tokens, "length": np.array([len(text) for text in texts], np.int32)})


def test_a_mask_behind_the_question_has_the_second_segment_and_is_read_as_in_vl_bert() -> None:
    """`prepare_text_from_qa` of vqa/modules/resnet_vlbert_for_vqa.py: q_end = 1 + |q|, a_end = q_end + 2, the ids of types are 1
    for q_end < j <= a_end, and the answer is read at a_end - 1."""
    questions = [[10, 11, 12], [10], [11, 12]]
    rows = rows_of(*([CLS, *question, SEP, MASK, SEP] for question in questions))
    segments = NumberSegments((0, 1), tokenizer=FACTS)(rows, DRAW)["segments"]
    summary = Summarise("mask", tokenizer=FACTS)(rows, DRAW)["summary"]
    for number, question in enumerate(questions):
        q_end = 1 + len(question)
        a_end = q_end + 2
        column = np.arange(a_end + 1)
        assert segments[number, : a_end + 1].tolist() == ((column > q_end) & (column <= a_end)).astype(int).tolist()
        assert summary[number] == a_end - 1


def test_questions_answers_and_rationales_have_the_types_of_uniter() -> None:
    """`VcrEvalDataset._get_input_ids` of data/vcr.py: [0] + [0] * |q| + [2] * (|a| + 2), or with a rationale [2] * (|a| + 1) and
    [3] * (|r| + 2)."""
    q, a, r = [10, 11], [12, 13, 14], [15, 16]
    answer, rationale = [CLS, *q, SEP, *a, SEP], [CLS, *q, SEP, *a, SEP, *r, SEP]
    segments = NumberSegments((0, 2, 3), opens=True, tokenizer=FACTS)(rows_of(answer, rationale), DRAW)["segments"]
    assert segments[0, : len(answer)].tolist() == [0] + [0] * len(q) + [2] * (len(a) + 2)
    assert segments[1].tolist() == [0] + [0] * len(q) + [2] * (len(a) + 1) + [3] * (len(r) + 2)


def test_parts_beyond_the_numbers_have_the_last_one() -> None:
    rows = rows_of([CLS, 10, SEP, 11, SEP, 12, SEP])
    assert NumberSegments((5,), tokenizer=FACTS)(rows, DRAW)["segments"].tolist() == [[5] * 7]
    assert NumberSegments((0, 1), tokenizer=FACTS)(rows, DRAW)["segments"].tolist() == [[0, 0, 0, 1, 1, 1, 1]]


def test_of_several_masks_the_last_one_of_the_row_is_read() -> None:
    rows = rows_of([CLS, MASK, 10, MASK, SEP], [CLS, MASK, SEP])
    assert Summarise("mask", tokenizer=FACTS)(rows, DRAW)["summary"].tolist() == [3, 1]
    with pytest.raises(RecipeError, match=r"the state of the last \[MASK\] of a row, and a row has none"):
        Summarise("mask", tokenizer=FACTS)(rows_of([CLS, 10, SEP]), DRAW)
    with pytest.raises(RecipeError, match="segments is empty; expected a number for each part"):
        NumberSegments(())
