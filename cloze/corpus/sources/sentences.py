"""The source of single sentences: one per row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cloze.bounds import Count
from cloze.corpus.sources.passages import GIVES, BoundPassages
from cloze.corpus.sources.single import BoundSingle, Companion, fields_of
from cloze.corpus.stores import languages as mixing
from cloze.corpus.stores.source import Source
from cloze.corpus.stores.store import Store
from cloze.errors import RecipeError
from cloze.registry import register


@register("source", "sentences")
class Sentences(Source):
    """One sentence per row, for MASS and RoBERTa's sentence pairs (§4.2, SENTENCE-PAIR).

    length: the length of the network's input; phases may set it instead.
    max_length: longer sentences are cut into pieces of this length, and sentences that exceed the room into pieces of the room;
      nothing is left out.
    languages: `{smooth: S}`, see `passages`; without it, languages keep their own proportions.
    static: as in `passages`.

    The companion `next` is the next sentence in its document, `distractor` one sentence of another document.

    With `companions` or `bucket`, a sentence is never cut: it is left out if it, or one of its companions, has more than
    `max_length` tokens or does not fit into the room.

    companions: `next` and `previous`, the adjacent sentences. Every row has them, so the first or last sentence of a document is
      not a row (Skip-thought, Kiros et al. 2015).
    across_documents: adjacent sentences may belong to the neighbouring documents, as in the authors' code.
    bucket: `equal_length` makes every step of rows of one length, as the authors of Skip-thought and context2vec do. The
      remainders of all lengths are at the end of the epoch, in steps of nearly equal lengths.

    Differs: the authors of context2vec train on the remainders in smaller steps.
    """

    each = True
    short = 0.0
    short_by: Literal["document", "passage"] = "document"
    distractor: Literal["documents", "sentences"] = "documents"
    break_at: Literal["sentence", "anywhere"] = "sentence"
    separator: str | None = None
    overrun = True
    lead: int | None = None
    links: str | None = None

    def __init__(
        self, *, length: Count | None = None, max_length: Count | None = None, languages: dict[str, float] | None = None,
        static: bool = False, companions: Sequence[Companion] | None = None, across_documents: bool = False,
        bucket: Literal["equal_length"] | None = None,
    ) -> None:
        if max_length is not None and max_length < 2:
            raise RecipeError(f"sentences.max_length: {max_length} tokens; expected 2 or more.")
        wrong = [name for name in companions or () if name not in ("next", "previous")]
        if wrong:
            raise RecipeError(f"sentences.companions: {wrong[0]!r}; expected next or previous.")
        if bucket not in (None, "equal_length"):
            raise RecipeError(f"sentences.bucket: {bucket!r}; expected equal_length, or nothing.")
        if across_documents and not companions:
            raise RecipeError("sentences.across_documents: applies to companions, and there are none. Write companions: [next].")
        self.companions: tuple[Companion, ...] = tuple(dict.fromkeys(companions or ()))
        #: A run then passes the number of rows of a step to `bind`.
        self.lanes = bucket is not None
        self.whole = bool(self.companions) or bucket is not None
        if self.whole and languages is not None:
            raise RecipeError("sentences.languages: languages cannot be drawn together with companions or bucket.")
        self.length = length
        self.max_length = max_length
        self.languages = languages
        self.smooth = mixing.smoothing(languages, "sentences")
        self.static = static
        self.across_documents = across_documents
        self.bucket = bucket
        self.needs_whole = (
            "languages are drawn at smoothed rates from a whole store" if self.smooth is not None
            else "steps of sentences of one length are made from a whole store" if bucket is not None else ""
        )
        self.gives: frozenset[str] = fields_of(self.companions) if self.whole else GIVES

    def room(self, room: int) -> int:
        """The longest row if `room` tokens may come in."""
        return room if self.max_length is None else min(room, self.max_length)

    def bind(
        self, store: Store, *, seed: int, entry: str, held_out: float = 0.0,
        part: Literal["train", "held_out"] = "train", lanes: int = 1,
    ) -> BoundPassages | BoundSingle:
        """This source over one store; `lanes` rows make a step. Raises `CorpusError` as `passages` does."""
        if self.whole:
            return BoundSingle(self, store, seed=seed, entry=entry, held_out=held_out, part=part, batch=lanes)
        return BoundPassages(self, store, seed=seed, entry=entry, held_out=held_out, part=part)
