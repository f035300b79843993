"""Networks that read characters get those of unknown words wherever a text is laid out around an answer, a mask or a window."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cloze.corpus.readers.questions import QuestionRecord, Questions
from cloze.decoding.generating.generation import generate
from cloze.decoding.generating.search import Beams
from cloze.decoding.layout import Framed
from cloze.decoding.prompting import InGaps
from cloze.decoding.prompts import FilledPrompt
from cloze.decoding.reader import Reader
from cloze.networks import Clock
from cloze.networks.blocks.inputs.characters import CharCNN
from cloze.networks.spelling import spell
from cloze.objectives import token_prediction
from cloze.reading import Reading
from cloze.tasks.augmentation import Augmenter
from cloze.tasks.intrinsic.facts import FactPrompt, _Gap, _gap
from cloze.tasks.intrinsic.senses import Occurrence, _judged, _placed
from cloze.tasks.kinds.question_answering import Extractor
from cloze.text.normalise import Normalise
from cloze.text.words import Words
from tests.making import network_of

SPECIAL = {"[PAD]": "[PAD]", "[UNK]": "[UNK]", "[MASK]": "[MASK]", "[EOS]": "[EOS]"}
PER_WORD = 10


@pytest.fixture(scope="module")
def reader() -> Reader:
    tokenizer = Words(min_count=1, special=SPECIAL).train(["the cat saw a dog in rain"], Normalise(lower=True))
    torch.manual_seed(0)
    part = CharCNN(filters=[(1, 4)], per_word=PER_WORD, vocab_size=tokenizer.size, spellings=tokenizer.spellings, mask=True)
    network = network_of("bilstm", layers=1, width=8, inner=6, embedding=part, vocab_size=tokenizer.size, clock=Clock()).eval()
    reading = Reading(single="[EOS] {A} [EOS]", pair="[EOS] {A} [EOS] {B} [EOS]", summary="last")
    return Reader(network, tokenizer, reading)


def words_of(reader: Reader, row: Framed) -> dict[int, str]:
    """The spelled words of a row, by column."""
    if row.characters is None:
        return {}
    known = {tuple(spell([word], PER_WORD)[0].tolist()): word for word in ("zebra", "yak", "gnu")}
    return {int(n): known[tuple(row.characters[n].tolist())] for n in np.flatnonzero(row.characters.any(1))}


def test_facts_spell_the_words_around_their_gap(reader: Reader) -> None:
    gap = _gap(reader, FactPrompt("the Zebra saw [MASK] yak", ("a",)), None)
    assert isinstance(gap, _Gap) and gap.column == 4
    assert words_of(reader, gap.row) == {2: "zebra", 5: "yak"}


def test_senses_are_asked_with_the_words_around_spelled_with_and_without_the_word(reader: Reader) -> None:
    allowed = np.zeros((reader.tokenizer.size, 2), bool)
    allowed[reader.tokenizer.id("cat")] = True
    read: list[dict[int, str]] = []

    def scores(rows: list[Framed], columns: list[int]) -> torch.Tensor:
        read.extend(words_of(reader, row) for row in rows)
        return torch.zeros(len(rows), 2)

    table = SimpleNamespace(allowed=allowed, names=["one", "two"], first=np.zeros(reader.tokenizer.size, np.int64))
    judge: Any = SimpleNamespace(reader=reader, table=table, scores=scores)
    occurrence = Occurrence("the cat saw zebra", "cat", 4, "two")
    placed = _placed(judge, occurrence)
    assert isinstance(placed, tuple)
    _judged(judge, [(occurrence, *placed)])
    assert read == [{4: "zebra"}, {4: "zebra"}]


def test_prompts_spell_the_words_of_their_texts_and_of_answers_that_are_not_masked(reader: Reader) -> None:
    prompt = FilledPrompt("zebra saw the gnu", (14, 17), ((0, 5),))
    (candidate,) = InGaps(reader, None).candidates([prompt], ["gnu"])
    assert words_of(reader, candidate.source) == {1: "zebra", 4: "gnu"} and candidate.asked.tolist() == [4]


def test_a_word_to_replace_is_masked_without_its_characters_and_the_others_have_theirs(reader: Reader) -> None:
    ids, marks = reader.ids(["gnu saw yak"])[0], reader.marks(["gnu saw yak"])[0]
    row, column = Augmenter(reader, None)._masked(ids, marks, 2)
    assert column == 3 and row.ids[3] == reader.tokenizer.role("[MASK]")
    assert words_of(reader, row) == {1: "gnu", 5: "gnu", 7: "yak"}  # the text stands behind its copy, too


def test_windows_of_a_context_spell_its_words_and_those_of_the_question(reader: Reader) -> None:
    task: Any = SimpleNamespace(picture=None)
    extractor = Extractor(reader, torch.nn.Identity(), task, length=8, stride=2, max_answer_length=3, threshold=None)
    record = QuestionRecord(1, "", "", "yak", "the zebra saw a gnu", ())
    (row,) = extractor.encode(Questions([record], "file"))
    assert [words_of(reader, window.framed) for window in row.windows] == [{1: "yak", 4: "zebra"}, {1: "yak", 5: "gnu"}]


@pytest.mark.parametrize("how", [{}, {"cache": False}, {"stop": ["|"]}, {"beams": Beams(2)}])
def test_a_prompt_that_is_continued_has_its_unknown_words_spelled(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Words(min_count=1, special=SPECIAL).train(["the cat saw a dog in rain"], Normalise(lower=True))
    torch.manual_seed(0)
    part = CharCNN(filters=[(1, 4)], per_word=PER_WORD, vocab_size=tokenizer.size, spellings=tokenizer.spellings, mask=True)
    network = network_of(
        "lstm", layers=1, width=8, inner=8, embedding=part, vocab_size=tokenizer.size, clock=Clock()
    ).eval()
    reader = Reader(network, tokenizer, Reading(single="[EOS] {A}", pair=None, summary="last"), order="left_to_right")
    head = token_prediction(width=8, vocab_size=tokenizer.size)
    read: list[Any] = []
    real = Reader.continued

    def continued(self: Reader, tokens: torch.Tensor, start: int, *given: Any, **named: Any) -> Any:
        batch = real(self, tokens, start, *given, **named)
        read.append((start, batch.get("characters")))
        return batch

    monkeypatch.setattr(Reader, "continued", continued)
    generate(reader, head, ["zebra saw", "the yak"], tokens=2, **how)
    characters = torch.cat([letters for start, letters in read if not start][: 2 if "beams" in how else 1])
    assert characters.any(-1)[:2, :3].tolist() == [[False, True, False], [False, False, True]]
    assert characters[0, 1].tolist() == spell(["zebra"], PER_WORD)[0].tolist()
    assert len(read) > 1 and all(letters is None or not letters.any() for start, letters in read if start)
    read.clear()
    generate(reader, head, ["the cat"], tokens=1, **how)
    assert [letters for _, letters in read] == [None]
