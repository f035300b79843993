"""reproductions/speech.py and data/spoken_sentences.py: sentences, the parts of recordings, and the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def test_lines_become_sentences_without_punctuation_and_every_voice_has_a_variant_of_its_own(
    script: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    spoken = script("data/spoken_sentences")
    (tmp_path / "a.txt").write_text("It's late - too late.\nYes, it is!\n\nNo more\nyes it is\n", encoding="utf-8")
    assert spoken.sentences(tmp_path / "a.txt") == ["it's late too late", "yes it is"]
    voices = spoken.voices(16)
    assert len({voice.variant for voice in voices}) == 16 and {voice.accent for voice in voices[-4:]} == set(spoken.ACCENTS)


@pytest.fixture
def speech(script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "reproductions"))
    return script("speech")


def test_no_voice_and_no_sentence_is_both_learnt_and_asked(speech: ModuleType) -> None:
    lines = [{"line": line, "held_out": new} for new in (False, True) for line in range(4, 7)]
    training, sentences, voices = speech.PARTS
    assert [speech.part_of(line) for line in lines] == [training, sentences, training, None, voices, None]


def test_the_table_has_the_mean_and_the_spread_of_the_seeds(speech: ModuleType, tmp_path: Path) -> None:
    ledger = speech.Ledger(tmp_path / "speech.jsonl")
    for seed, right in ((1, 10.0), (2, 20.0)):
        run = {"system": "speechbert", "steps": speech.STEPS, "frames": speech.FRAMES, "seed": seed}
        ledger.add(run, dict.fromkeys(speech.MEASURES, right))
    assert "| new sentences, new voices | 15.0 ± 7.1 |" in speech.table(ledger)
