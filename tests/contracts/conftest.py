"""A small corpus of our own: sentences from a little grammar, the same in every run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

PEOPLE = ["Anna", "Bruno", "Clara", "David", "Elena", "Felix", "Greta", "Henri", "Ines", "Jonas", "Katja", "Leo", "Mina", "Nico"]
THINGS = [
    "bread", "a letter", "the lamp", "two apples", "a red coat", "the piano", "an old map", "some paper", "the blue door",
]
DOES = [
    "buys", "loses", "paints", "carries home", "repairs", "describes", "hides", "finds", "sells",
]
WHEN = [
    "in the morning", "after lunch", "every winter", "before the storm", "without a word", "on Sundays",
]


def little_text(documents: int = 60, sentences: int = 8, seed: int = 0) -> str:
    """Documents separated by blank lines, one sentence per line."""
    chance = random.Random(seed)
    made = []
    for _ in range(documents):
        who = chance.choice(PEOPLE)
        made.append("\n".join(
            f"{chance.choice([who, who, chance.choice(PEOPLE)])} {chance.choice(DOES)} {chance.choice(THINGS)} "
            f"{chance.choice(WHEN)}." for _ in range(sentences)
        ))
    return "\n\n".join(made) + "\n"


@pytest.fixture(scope="session")
def little_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text file of about 25 kB."""
    path = tmp_path_factory.mktemp("text") / "little.txt"
    path.write_text(little_text(), encoding="utf-8")
    return path
