"""The source of single sentences: one per row."""

from __future__ import annotations

from typing import Literal

from cloze.corpus import languages as mixing
from cloze.corpus.passages import GIVES, BoundPassages
from cloze.corpus.store import Store
from cloze.errors import RecipeError
from cloze.registry import register


@register("source", "sentences")
class Sentences:
    """One sentence per row, as MASS and sentence pairs of RoBERTa (§4.2, SENTENCE-PAIR) take them.

    length: what the network sees; phases may set it instead. longest: sentences of more tokens are cut into pieces of this
    length, as those are that exceed the room; nothing is left out. languages: `{smooth: S}`, see `passages`; without it the
    languages come as they are. static: as in `passages`.

    The companion `next` is the sentence behind it in its document, `distractor` one sentence of another document.
    """

    gives: frozenset[str] = GIVES
    each = True
    short = 0.0
    across_documents = False
    break_at: Literal["sentence", "anywhere"] = "sentence"
    separator: str | None = None
    overrun = True

    def __init__(
        self, *, length: int | None = None, longest: int | None = None, languages: dict[str, float] | None = None,
        static: bool = False,
    ) -> None:
        if longest is not None and longest < 2:
            raise RecipeError(f"sentences.longest: {longest} tokens; expected 2 or more.")
        self.length = length
        self.longest = longest
        self.languages = languages
        self.smooth = mixing.smoothing(languages, "sentences")
        self.static = static

    def room(self, room: int) -> int:
        """The longest row if `room` tokens may come in."""
        return room if self.longest is None else min(room, self.longest)

    def bind(
        self, store: Store, *, seed: int, entry: str, held_out: float = 0.0,
        part: Literal["train", "held_out"] = "train",
    ) -> BoundPassages:
        """This source over one store. Raises `CorpusError` as `passages` does."""
        return BoundPassages(self, store, seed=seed, entry=entry, held_out=held_out, part=part)
