"""reproductions/knowledge_words.py: what the annotations say is read as it stands, and baselines know what a network may know."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def words() -> Iterator[ModuleType]:
    """The script as a module; it imports its neighbours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "reproductions"))
        yield importlib.import_module("knowledge_words")


ENTRIES = """\
bank:
  n:
    sense:
    - derivation:
      - 'bank%2:35:00::'
      id: 'bank%1:17:01::'
      synset: 09236472-n
    - id: 'bank%1:14:00::'
      synset: 08437235-n
  v:
    sense:
    - id: 'bank%2:38:00::'
bank account:
  n:
    sense:
    - id: 'bank_account%1:21:00::'
break:
  v:
    form:
    - broke
    - broken
    sense:
    - id: 'break%2:30:03::'
"""


def test_senses_of_an_entry_keep_their_order_and_its_irregular_forms(words: ModuleType) -> None:
    inputs = words.knowledge_word_inputs
    found = [*inputs.entries(ENTRIES.splitlines())]
    assert found == [("bank", [], [17, 14]), ("bank", [], [38]), ("break", ["broke", "broken"], [30])]
    named = [inputs.supersense("bank", number) for number in (17, 14, 38)]
    assert named == ["noun.object", "noun.group", "verb.motion"]
    assert [inputs.supersense(word, 3) for word in ("food", "thing")] == ["noun.food", "noun.Tops"]
    assert len(inputs.FILES) == 45 and inputs.FILES[44] == "adj.ppl"


def test_only_words_that_stand_alone_are_asked_for(words: ModuleType) -> None:
    tree = [("I", "i"), ("had", "have"), ("a", "a"), ("surgery", "surgery"), ("at", "at"), ("this", "this"), ("place", "place")]
    marked = "I|PRON had_ a|DET _surgery|V.LVC.full-v.social at|P-p.Locus this|DET place|N-n.LOCATION"
    (row,) = words.knowledge_word_inputs.labelled(tree, marked)
    assert row.pop("text") == "I had a surgery at this place" and row["start"] == 24
    assert row == {"word": "place", "start": 24, "lemma": "place", "sense": "noun.location"}


def test_the_second_of_two_equal_words_is_found_behind_the_first(words: ModuleType) -> None:
    tree = [("run", "run"), ("a", "a"), ("run", "run")]
    rows = [*words.knowledge_word_inputs.labelled(tree, "run|V-v.motion a|DET run|N-n.ACT")]
    assert [(row["start"], row["sense"]) for row in rows] == [(0, "verb.motion"), (6, "noun.act")]


def question(words: ModuleType, part: str, sense: str, lemma: str = "bank") -> object:
    return words.Question(part, ("", 0, lemma), ["noun.object", "noun.group"], sense, lemma)


def test_the_usual_sense_is_counted_in_training_and_falls_back_on_the_first(words: ModuleType) -> None:
    train = [question(words, "train", "noun.group")] * 3
    asked = [*train, question(words, "test", "noun.object"), question(words, "test", "noun.object", "bass")]
    usual = words.frequencies(asked)
    assert [int(usual(q).argmax()) for q in asked[3:]] == [1, 0]
    assert np.exp(usual(asked[3])) == pytest.approx(np.array([2.1, 3.1]) / 5.2)


def test_the_weight_of_one_part_is_fitted_on_the_other(words: ModuleType) -> None:
    judged = [question(words, part, "noun.group") for part in ("dev", "dev", "test", "test")]
    prior = [np.array([0.1, 0.0], np.float32)] * 4
    helps, harms = np.array([0.0, 9.0], np.float32), np.array([9.0, 0.0], np.float32)
    assert words.combined(judged, [helps, helps, harms, harms], prior) == [False] * 2 + [False] * 2
    assert words.combined(judged, [helps] * 4, prior) == [True] * 4
    assert words.hits(judged, prior) == [False] * 4
