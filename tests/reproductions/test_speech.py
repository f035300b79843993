"""reproductions/speech.py and data/recorded_words.py: prompts become words, and seeds become a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


def test_prompts_become_words_without_punctuation_and_tones_are_no_speech(script: Callable[[str], ModuleType]) -> None:
    spelled = script("data/recorded_words").spelled
    assert spelled("Press 1 to mute, or 42.") == ["press", "one", "to", "mute", "or", "four", "two"]
    assert spelled("[this is a simple beep tone]") == [] and spelled("Waldo's premier provider") == []


def test_the_table_has_the_mean_and_the_spread_of_the_seeds(
    script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "reproductions"))
    speech = script("speech")
    ledger = speech.Ledger(tmp_path / "speech.jsonl")
    for seed, right in ((1, 10.0), (2, 20.0)):
        ledger.add({"system": "speechbert", "steps": speech.STEPS, "seed": seed}, dict.fromkeys(speech.MEASURES, right))
    assert "| held out | 15.0 ± 7.1 |" in speech.table(ledger)
