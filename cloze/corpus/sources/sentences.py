"""The source of single sentences: one per row, with its neighbours as companions, and in groups of equal length."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.bounds import Count
from cloze.corpus.sources.bound import BoundSplit, Companion, documents_of_running_text, remember, require_tokens
from cloze.corpus.sources.gather import Arrays
from cloze.corpus.sources.passages import GIVES, BoundPassages, RunningText
from cloze.corpus.sources.plan import Int64, PassageCuts, RowPlan, ranges
from cloze.corpus.stores import languages as mixing
from cloze.corpus.stores.source import Address
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError, RecipeError
from cloze.registry import register

Neighbour = Literal["next", "previous"]
_STEPS = {"next": 1, "previous": -1}  # to the sentence of a companion
_FIELDS = ("tokens", "length", "document", "sentence", "word_start")


@register("source", "sentences")
class Sentences(RunningText):
    """One sentence per row, for MASS and RoBERTa's sentence pairs (§4.2, SENTENCE-PAIR).

    length: the length of the network's input; phases may set it instead.
    max_length: longer sentences are cut into pieces of this length, and sentences longer than a row into pieces of a row;
      nothing is left out.
    languages: `{smooth: S}`, see `passages`; without it, languages keep their own proportions.
    static: as in `passages`.

    The companion `next` is the next sentence in its document, `distractor` one sentence of another document.

    With `companions` or `bucket`, a sentence is never cut: it is left out if it, or one of its companions, has more than
    `max_length` tokens or does not fit into a row.

    companions: `next` and `previous`, the adjacent sentences. Every row has them, so the first or last sentence of a document is
      not a row (Skip-thought, Kiros et al. 2015).
    across_documents: adjacent sentences may belong to the neighbouring documents, as in the authors' code.
    bucket: `equal_length` makes every step of rows of one length, as the authors of Skip-thought and context2vec do. The
      remainders of all lengths are at the end of the epoch, in steps of nearly equal lengths.

    Differs: the authors of context2vec train on the remainders in smaller steps.
    """

    each = True

    def __init__(
        self, *, length: Count | None = None, max_length: Count | None = None, languages: dict[str, float] | None = None,
        static: bool = False, companions: Sequence[Neighbour] | None = None, across_documents: bool = False,
        bucket: Literal["equal_length"] | None = None,
    ) -> None:
        if max_length is not None and max_length < 2:
            raise RecipeError(f"sentences.max_length: {max_length} tokens; expected 2 or more.")
        wrong = [name for name in companions or () if name not in _STEPS]
        if wrong:
            raise RecipeError(f"sentences.companions: {wrong[0]!r}; expected next or previous.")
        if bucket not in (None, "equal_length"):
            raise RecipeError(f"sentences.bucket: {bucket!r}; expected equal_length, or nothing.")
        if across_documents and not companions:
            raise RecipeError("sentences.across_documents: applies to companions, and there are none. Write companions: [next].")
        self.companions: tuple[Neighbour, ...] = tuple(dict.fromkeys(companions or ()))
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

    def max_tokens(self, max_tokens: int) -> int:
        """The longest row if `max_tokens` tokens may come in."""
        return max_tokens if self.max_length is None else min(max_tokens, self.max_length)

    def bind(self, store: Store, *, lanes: int = 1, **address: Unpack[Address]) -> BoundPassages | BoundSingle:
        """This source over one store; `lanes` rows make a step. Raises `CorpusError` as `passages` does."""
        return BoundSingle(self, store, batch=lanes, **address) if self.whole else BoundPassages(self, store, **address)


def fields_of(companions: tuple[Neighbour, ...]) -> frozenset[str]:
    """The fields of rows: of the sentence, of its language if the store knows it, and of its companions."""
    return frozenset({*_FIELDS, "language", *(f"{view}.{name}" for view in companions for name in _FIELDS)})


class _Sentences(NamedTuple):
    """The sentences that make up rows, in the order of the store; N of each."""

    number: Int64       # in the store
    document: Int64


class BoundSingle(BoundSplit):
    """Whole sentences of one store, in steps of `batch` rows.

    Unlike passages it omits sentences that do not fit: a sentence is never cut.
    """

    source: Sentences

    def __init__(self, source: Sentences, store: Store, *, batch: int, **address: Unpack[Address]) -> None:
        super().__init__(source, store, **address)
        self.batch = batch
        self.open_split(documents_of_running_text(store, self.held_out, self.subset), joined=source.across_documents)
        self._all = self._with_neighbours()
        self._cuts: OrderedDict[Any, PassageCuts] = OrderedDict()
        if self.subset == "train" and not len(self._all.number):
            companions = " and ".join(source.companions) or "no"
            raise CorpusError(
                f"{store.path}: no sentence has the companions asked for ({companions}): {store.sentences:,} sentences in "
                f"{store.documents:,} documents.\n  Give documents of several sentences, or write across_documents: true."
            )

    @property
    def layered(self) -> tuple[str, ...]:
        """The row and its companions."""
        return ("", *(f"{view}." for view in self.source.companions))

    def make_plan(self, epoch: int, max_tokens: int) -> RowPlan[PassageCuts]:
        """The sentences of one epoch. Raises `CorpusError` if every training sentence is too long."""
        cuts = remember(self._cuts, self._longest(max_tokens), lambda: self.cuts(max_tokens))
        order = self.shuffled(len(cuts.start), epoch)
        if self.source.bucket is not None:
            order = self._in_groups(cuts.length, order, epoch)
        return RowPlan(epoch, max_tokens, order, cuts)

    def _longest(self, max_tokens: int) -> int:
        require_tokens("sentences", max_tokens, 1, "expected 1 or more")
        return max_tokens if self.source.max_length is None else min(max_tokens, self.source.max_length)

    def read_main(self, plan: RowPlan[PassageCuts], items: Int64, want: frozenset[str]) -> Arrays:
        """`tokens` (B, L), `length` and `document` (B) always; `word_start` (B, L), `sentence` (B, L; 0), `language` (B) and
        `layers/<name>` (B, L) if wanted. The companions have the same fields but `language`."""
        arrays = self._sentences(0, plan, items, want)
        if "language" in want:
            arrays["language"] = self.store.document_languages[arrays["document"]].astype(np.int32)
        return arrays

    @property
    def companions(self) -> Mapping[str, Companion]:
        """The previous and the next sentence, as the source has them."""
        return {view: partial(self._sentences, _STEPS[view]) for view in self.source.companions}

    def _sentences(self, step: int, plan: RowPlan[PassageCuts], items: Int64, want: frozenset[str]) -> Arrays:
        """The sentences `step` after those of the rows."""
        sentence = plan.passages.sentence[plan.order[items]] + step
        document = np.searchsorted(self.store.document_sentences, sentence, "right") - 1
        return self._gather.sentences(sentence, document, plan.max_tokens, want)

    def _with_neighbours(self) -> _Sentences:
        """The sentences that have every companion within their run of documents."""
        split = self.split
        first, last = split.first[split.runs[:-1]], split.last[split.runs[1:] - 1]
        first = first + ("previous" in self.source.companions)
        counts = np.maximum(last - ("next" in self.source.companions) - first, 0)
        number = ranges(counts, first)
        return _Sentences(number, np.searchsorted(self.store.document_sentences, number, "right") - 1)

    def cuts(self, max_tokens: int) -> PassageCuts:
        """The rows whose sentence and companions all fit, in the order of the store."""
        max_length = self._longest(max_tokens)
        sizes = np.diff(self.store.sentence_starts)
        number = self._all.number
        fits = sizes[number] <= max_length
        for view in self.source.companions:
            fits &= sizes[number + _STEPS[view]] <= max_length
        if self.subset == "train" and not fits.any():
            raise CorpusError(
                f"{self.store.path}: none of {len(number):,} sentences fits with its companions in {max_length} tokens; the "
                f"shortest has {int(sizes[number].min())}.\n  Raise sentences.length or sentences.max_length."
            )
        number, start = number[fits], self.store.sentence_starts[number[fits]]
        length = sizes[number]
        return PassageCuts(
            start=start, stop=start + length, length=length.astype(np.int32), document=self._all.document[fits],
            sentence=number, sentences=np.ones(len(number), dtype=np.int32), separator_first=None,
        )

    def _in_groups(self, length: NDArray[np.int32], mixed: Int64, epoch: int) -> Int64:
        """The rows of a random order in groups of `batch` of equal length, the groups in random order.

        The remainders of all lengths form the last groups, sorted by length, so that nothing is left out.
        """
        sorted_by_length = mixed[np.argsort(length[mixed], kind="stable")]
        _, counts = np.unique(length, return_counts=True)
        rank = ranges(counts)
        mask = rank < np.repeat(counts - counts % self.batch, counts)
        groups = sorted_by_length[mask].reshape(-1, self.batch)
        shuffled = groups[rng.permutation(len(groups), self.seed, self.entry, "groups", epoch)]
        return np.concatenate([shuffled.reshape(-1), sorted_by_length[~mask]])
