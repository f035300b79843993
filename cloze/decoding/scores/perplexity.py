"""How probable texts are per unit: perplexity by token, word, byte and character, bits per byte and per character."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from cloze.decoding.scores.scoring import Score

UNITS = ("token", "word", "byte", "character")


@dataclass(frozen=True)
class Perplexity:
    """The summed log-probability of texts (natural logarithms) and how many units it is the sum over.

    Words are what stands between white space, bytes those of UTF-8, both of the texts as they were given. Figures by word, byte
    or character can be compared between tokenizers, as long as few tokens are `unknown`; figures by token only within one.
    """

    score: float
    texts: int
    token: int
    word: int
    byte: int
    character: int
    unknown: int

    @classmethod
    def of(cls, texts: Sequence[str], scores: Sequence[Score], *, ends: bool = False) -> Perplexity:
        """Of texts and their scores. `ends`: the end of every text was scored, and is one word, byte and character more."""
        more = len(texts) if ends else 0
        return cls(
            sum(score.score for score in scores),
            len(texts),
            sum(score.tokens for score in scores),
            sum(len(text.split()) for text in texts) + more,
            sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) + more,
            sum(len(text) for text in texts) + more,
            sum(score.unknown for score in scores),
        )

    def nats(self, unit: str) -> float | None:
        """The mean negative log-probability of a unit; None if there is none."""
        count: int = vars(self)[unit]
        return -self.score / count if count and self.token else None

    def bits(self, unit: str) -> float | None:
        """The same with logarithms to base 2."""
        nats = self.nats(unit)
        return None if nats is None else nats / log(2)

    def __getitem__(self, unit: str) -> float | None:
        """The perplexity per unit, at most e^700; None if there is none."""
        nats = self.nats(unit)
        return None if nats is None else exp(min(nats, 700.0))

    def record(self) -> dict[str, float | int | None]:
        """All figures by name."""
        return {
            "perplexity": self["token"], "word_perplexity": self["word"], "byte_perplexity": self["byte"],
            "character_perplexity": self["character"], "bits_per_byte": self.bits("byte"),
            "bits_per_character": self.bits("character"), "score": self.score, "tokens": self.token, "unknown": self.unknown,
            "words": self.word, "bytes": self.byte, "characters": self.character, "texts": self.texts,
        }  # fmt: skip
