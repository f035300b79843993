"""The source of passages: whole sentences or plain spans of running text, with companions if edits need them.

`plan.py` decides where the passages of an epoch start and stop; `gather.py` copies their tokens out of the store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.bounds import Count, Share
from cloze.corpus.sources import plan as plans
from cloze.corpus.sources.bound import BoundSplit, Companion, documents_of_running_text, remember, require_tokens
from cloze.corpus.sources.gather import Arrays
from cloze.corpus.sources.page_links import PageLinks
from cloze.corpus.sources.plan import Int64, PassageCuts, RowPlan
from cloze.corpus.stores import languages as mixing
from cloze.corpus.stores.source import Address, Source
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError, RecipeError, text_in
from cloze.registry import register

_FIELDS = ("tokens", "length", "document", "sentence", "word_start")
#: The fields of a source of running text; a store with annotation layers adds `layers/<name>` (and `labels/<name>`) to each.
GIVES = frozenset({*_FIELDS, "language", "target_length", *(f"{c}.{f}" for c in ("distractor", "next") for f in _FIELDS)})
_PARTS = frozenset({"border", "apart"})
_LEAD = "lead"  # the companion: a sentence from the beginning of the passage's document
_LINKED = "linked"  # the companion: one from the beginning of a document that the passage links to


class RunningText(Source):
    """A source that `BoundPassages` reads: `Passages` or `Sentences`. `each`: every sentence is a row."""

    gives: frozenset[str] = GIVES
    each = False
    short = 0.0
    short_by: Literal["document", "passage"] = "document"
    distractor: Literal["documents", "sentences"] = "documents"
    across_documents = False
    break_at: Literal["sentence", "anywhere"] = "sentence"
    separator: str | None = None
    overrun = True
    lead: int | None = None
    links: str | None = None

    def max_tokens(self, max_tokens: int) -> int:
        """The longest row if `max_tokens` tokens may come in."""
        return max_tokens


@register("source", "passages")
class Passages(RunningText):
    """Passages of running text, as BERT, RoBERTa, GPT-2 and ELECTRA are trained on.

    length: the length of the network's input; phases may set it instead.
    short: share of documents whose passages get a random target length of 2 … `max_tokens` instead of `max_tokens` (BERT §A.2,
      `short_seq_prob`).
    short_by: whether one draw holds for all passages of a "document", as in BERT's code, or each "passage" has its own
      (ELECTRA's `build_pretraining_dataset.py`); `short` is then a share of the passages.
    distractor: the document of a random text is drawn uniformly from the others ("documents", BERT's code), or in proportion
      to its "sentences" (ZEN's).
    across_documents: a passage may continue into the next document of the store (RoBERTa §4.2, FULL-SENTENCES).
    separator: role inserted between the documents of one passage, for example "[SEP]".
    break_at: "sentence" keeps sentences whole; "anywhere" cuts every `max_tokens` tokens (GPT-2).
    overrun: the sentence that reaches the target length is taken whole and the exercise trims the passage (BERT's code); with
      false, the passage ends before it, so that nothing is trimmed (RoBERTa).
    static: the same passages with the same addresses, hence the same masks, in every epoch; only their order differs.
    lead: with a number n, the companion `lead` is one of the first n sentences of the passage's document, drawn at random.
    links: with the name of an annotation layer whose labels are titles (`cloze corpus pages`), the companion `linked` is such a
      sentence of a document that a link of the passage leads to, drawn at random; not its title, if it has more. A passage that
      links to no other document of its part (training or held out) gets one of its own document. Needs `lead`.
    languages: `{smooth: S}` draws the languages of the store with q ∝ p^S, p their shares of the passages (multilingual
      BERT: 0.7). Passages of a small language then repeat, with new masks, before all passages of a large language have occurred.

    Distractors are in the passage's own language, and no passage continues into another language.

    Where an edit replaces the second part of a passage (`pair`), that part begins the next passage, so that no text is left out
    (BERT's code puts back the segments that it did not use). The source then draws where the parts meet and which are replaced;
    passages of one sentence always get other text. With `across_documents` or `break_at: anywhere`, the part is left out instead.

    Differs: with `languages`, and in a store of several shards, passages are cut once, not again in every epoch. In a store of
    several shards their parts are the same in every epoch, too.
    """

    def __init__(
        self, *, length: Count | None = None, short: Share = 0.0, short_by: Literal["document", "passage"] = "document",
        distractor: Literal["documents", "sentences"] = "documents", across_documents: bool = False,
        break_at: Literal["sentence", "anywhere"] = "sentence", separator: str | None = None,
        overrun: bool = True, static: bool = False, lead: Count | None = None, links: str | None = None,
        languages: dict[str, float] | None = None,
    ) -> None:
        if links is not None and lead is None:
            raise RecipeError(f"passages.links: {links}; say how many sentences begin a document, too, such as lead: 5.")
        if lead is not None and (across_documents or lead < 1):
            raise RecipeError(
                f"passages.lead: {lead}; expected the number of sentences that begin a document, 1 or more, and passages of "
                "single documents (across_documents: false)."
            )
        if not 0.0 <= short <= 1.0:
            raise RecipeError(f"passages.short: {short} is not a share; expected 0 to 1.")
        if short and (break_at == "anywhere" or across_documents):
            raise RecipeError("passages.short: needs whole sentences of single documents; leave it at 0 here.")
        if separator is not None and not across_documents:
            raise RecipeError("passages.separator: stands between documents; it needs across_documents: true.")
        if short_by not in ("document", "passage"):
            raise RecipeError(f"passages.short_by: {short_by!r}; expected document or passage.")
        if distractor not in ("documents", "sentences"):
            raise RecipeError(f"passages.distractor: {distractor!r}; expected documents or sentences.")
        if break_at not in ("sentence", "anywhere"):
            raise RecipeError(f"passages.break_at: {break_at!r}; expected sentence or anywhere.")
        self.length = length
        self.short = short
        self.short_by = short_by
        self.distractor = distractor
        self.across_documents = across_documents
        self.break_at = break_at
        self.separator = separator
        self.overrun = overrun
        self.static = static
        self.lead = lead
        self.links = links
        self.puts_back = break_at == "sentence" and not across_documents
        companions = [name for name, option in ((_LEAD, lead), (_LINKED, links)) if option is not None]
        self.gives = GIVES | {f"{companion}.{name}" for companion in companions for name in _FIELDS}
        self.languages = languages
        self.smooth = mixing.smoothing(languages, "passages")
        self.needs_whole = "" if self.smooth is None else "languages are drawn at smoothed rates from a whole store"
        if links is not None:
            self.needs_whole = "links lead to documents of a whole store"

    def bind(self, store: Store, *, put_back: float = 0.0, **address: Unpack[Address]) -> BoundPassages:
        """This source over one store; the second part of a share `put_back` of the passages begins the next one.

        Raises `CorpusError` if the training part holds no passage of two tokens, or `languages` is set and the store has none.
        """
        return BoundPassages(self, store, put_back=put_back, **address)


class BoundPassages(BoundSplit):
    """Passages of one store, or its sentences one by one."""

    source: RunningText
    layered = ("", "distractor.", "next.")

    def __init__(self, source: RunningText, store: Store, *, put_back: float = 0.0, **address: Unpack[Address]) -> None:
        super().__init__(source, store, **address)
        self._put_back = put_back
        documents = documents_of_running_text(store, self.held_out, self.subset)
        if source.smooth is not None:
            store.document_languages  # noqa: B018  # raises an error that says what to do if there are none
        separator = None if source.separator is None else store.role(source.separator)
        self.open_split(documents, joined=source.across_documents, separator=separator)
        training = self.subset == "train"
        if training and not (self.split.stop - self.split.start >= 2).any():
            raise CorpusError(
                text_in(store.path), ": the corpus is smaller than one example: no document has two tokens "
                f"({store.documents:,} documents, {len(store.tokens):,} tokens).\n  Build the store from more text."
            )
        self._links = None if source.links is None else PageLinks(store, self.split, source.links, required=training)
        self._cuts: OrderedDict[Any, PassageCuts] = OrderedDict()

    @property
    def gives(self) -> frozenset[str]:
        """Full names of the fields that `read` can give."""
        return super().gives | (_PARTS if self._put_back else frozenset[str]())

    def make_plan(self, epoch: int, max_tokens: int) -> RowPlan[PassageCuts]:
        """The passages of one epoch."""
        require_tokens("passages", max_tokens, 2, "a passage needs 2")
        recut = (self.source.short or self._put_back) and not self.source.static and self.source.smooth is None
        cut_epoch = epoch if recut else 0
        cuts = remember(self._cuts, (cut_epoch, max_tokens), lambda: self._cut(cut_epoch, max_tokens))
        return self.shuffled_plan(epoch, max_tokens, cuts, lambda: self.store.document_languages[cuts.document])

    def read_main(self, plan: RowPlan[PassageCuts], items: Int64, want: frozenset[str]) -> Arrays:
        """`tokens` (B, L) int32, `length` (B) int32 and `document` (B) int64 always; if wanted, `sentence` (B, L) int32, the
        ordinal of the token's sentence within its passage (-1 at a separator), `word_start` (B, L) bool, `language` (B)
        int32, `target_length` (B) int32, `layers/<name>` (B, L) uint8 and, if parts are put back, `border` (B) int32 and `apart`
        (B) bool. Values at or beyond `length` are meaningless.
        """
        index = plan.order[items]
        arrays = self._gather.passages(plan.passages, index, want)
        if "target_length" in want:
            target = plan.passages.target
            arrays["target_length"] = np.full(len(index), plan.max_tokens, np.int32) if target is None else target[index]
        if self._put_back and not want.isdisjoint(_PARTS):
            arrays["border"], arrays["apart"] = self._parts_of(plan, items, index)
        if "language" in want:
            arrays["language"] = self.store.document_languages[arrays["document"]].astype(np.int32)
        return arrays

    @property
    def companions(self) -> Mapping[str, Companion]:
        """`distractor`, sentences from a random place of another document, up to `max_tokens`; `next`, the passage that
        follows in the document, with length 0 after the last; `lead` and `linked`, whose `sentence` is the ordinal of
        that sentence within the passage, -1 where it is not in it."""
        return {"distractor": self._distractors, "next": self._next, _LEAD: self._lead, _LINKED: self._linked}

    def cuts(self, max_tokens: int) -> PassageCuts:
        """The passages of a shard, the same for every seed and in every epoch."""
        return self._cut(None, max_tokens)

    def _cut(self, epoch: int | None, max_tokens: int) -> PassageCuts:
        if self.source.each:
            return plans.cut_each_sentence(self.store, self.split, self.source.max_tokens(max_tokens))
        if self.source.break_at == "anywhere":
            return plans.cut_by_length(self.store, self.split, max_tokens)
        targets = self._targets(epoch, max_tokens) if self.source.short else None
        put_back = self._parts(epoch) if self._put_back else None
        return plans.cut_by_sentence(self.store, self.split, max_tokens, targets, overrun=self.source.overrun, put_back=put_back)

    def _parts(self, epoch: int | None) -> plans.PutBack:
        """Where the parts of passages meet, uniform over their sentences, and whose second part is put back, with the first token
        of a passage as the address. They do not depend on the seed if there is no epoch."""
        address: tuple[int | str, ...] = () if epoch is None else (self.seed, self.entry, epoch)

        return lambda start, sentences: self._drawn_parts(rng.Draw(rng.row_keys(*address, "put_back", items=start)), sentences)

    def _drawn_parts(self, draw: rng.Draw, sentences: NDArray[np.integer]) -> tuple[Int64, NDArray[np.bool_]]:
        border = 1 + draw.integers("border", np.maximum(sentences - 1, 1))
        return border, (sentences < 2) | (draw.uniform("apart") < self._put_back)

    def _parts_of(
        self, plan: RowPlan[PassageCuts], items: Int64, index: Int64
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """`border` and `apart` as the passages were cut; drawn again where one of a small language repeats."""
        cuts = plan.passages
        assert cuts.border is not None and cuts.apart is not None  # `_cut` has drawn them
        border, apart = cuts.border[index], cuts.apart[index]
        if plan.repeat is None or self.source.static:
            return border, apart
        again, (other, replaced) = plan.repeat[items] > 0, self._drawn_parts(self.draw(plan, items), cuts.sentences[index])
        return np.where(again, other, border).astype(np.int32), np.where(again, replaced, apart)

    def _targets(self, epoch: int | None, max_tokens: int) -> plans.TargetLengths:
        """Target lengths: `max_tokens`, or for a share `short` a smaller number from 2 on, drawn by document, or by passage with
        its first token as the address. They do not depend on the seed if there is no epoch."""
        address: tuple[int | str, ...] = () if epoch is None else (self.seed, self.entry, epoch)

        def drawn(name: str, items: Int64) -> Int64:
            draw = rng.Draw(rng.row_keys(*address, name, items=items))
            return np.where(draw.uniform("whether") < self.source.short, 2 + draw.integers("target", max_tokens - 1), max_tokens)

        if self.source.short_by == "passage":
            return lambda document, start: drawn("short/passage", start)
        of_document = drawn("short", self.split.documents)
        return lambda document, start: of_document[document]

    def _distractors(self, plan: RowPlan[PassageCuts], items: Int64, want: frozenset[str]) -> Arrays:
        split, draw, index = self.split, self.draw(plan, items), plan.order[items]
        document = np.searchsorted(split.documents, plan.passages.document[index])
        spanned: Any = 1
        if self.source.across_documents:
            spanned = np.searchsorted(split.start, plan.passages.stop[index], "left") - document
        low, high = self._range_of_language(document)
        other_count = high - low - spanned
        if np.min(other_count) < 1:
            part = "" if len(split.documents) == self.store.documents else f" ({len(split.documents)} in the {self.subset} part)"
            raise CorpusError(
                text_in(self.store.path), ": `pair: {wrong: random_document}` needs a random document, but the corpus has "
                f"only the passage's own document{part}.\n"
                f"  Give a text of at least two documents{' of every language' if self.store.languages else ''}, "
                f"or pair with rate: 0."
            )
        other = self._others(draw, document, spanned, low, high)
        first, last = split.first[other], split.last[other]
        sentence = first + draw.integers("distractor/sentence", last - first)
        start = self.store.sentence_starts[sentence]
        stop = self.store.sentence_starts[sentence + 1] if self.source.each else split.stop[other]
        length = np.minimum(stop - start, self.source.max_tokens(plan.max_tokens))
        return self._gather.spans(start, length, sentence, split.documents[other], want)

    def _others(self, draw: rng.Draw, first: NDArray[np.intp], spanned: Any, low: Any, high: Any) -> NDArray[np.int64]:
        """A document of low … high - 1 for each row, but none of the `spanned` ones from `first` on."""
        if self.source.distractor == "documents":
            other = low + draw.integers("distractor/document", high - low - spanned)
            return np.asarray(other + np.where(other >= first, spanned, 0))
        before = self._sentences_before  # sentences of the split before each document
        own_count = before[first + spanned] - before[first]
        sentence = before[low] + draw.integers("distractor/document", before[high] - before[low] - own_count)
        sentence += np.where(sentence >= before[first], own_count, 0)
        return np.asarray(np.searchsorted(before, sentence, "right") - 1)

    @cached_property
    def _sentences_before(self) -> Int64:
        return np.concatenate([[0], np.cumsum(self.split.last - self.split.first)])

    def _range_of_language(self, documents: NDArray[np.intp]) -> tuple[Any, Any]:
        """The first document of the split in each one's language, and one past the last; a store keeps a language together."""
        if not self.store.languages:
            return 0, len(self.split.documents)
        language = self.store.document_languages[self.split.documents]
        return np.searchsorted(language, language[documents], "left"), np.searchsorted(language, language[documents], "right")

    def _lead(self, plan: RowPlan[PassageCuts], items: Int64, want: frozenset[str]) -> Arrays:
        """A sentence from the beginning of each passage's document, cut to `max_tokens`."""
        index = plan.order[items]
        document = np.searchsorted(self.split.documents, plan.passages.document[index])
        return self._beginning(plan, index, document, self.split.first[document], self.draw(plan, items), _LEAD, want)

    def _linked(self, plan: RowPlan[PassageCuts], items: Int64, want: frozenset[str]) -> Arrays:
        """A sentence from the beginning of a document that each passage links to, else of its own, cut to `max_tokens`."""
        split, passages, draw, index = self.split, plan.passages, self.draw(plan, items), plan.order[items]
        document = np.searchsorted(split.documents, passages.document[index])
        assert self._links is not None  # else no companion of this name is given
        other = self._links.drawn(passages.start[index], passages.stop[index], document, draw)
        behind_title = self._links.titled[other] & (split.last[other] - split.first[other] > 1)
        return self._beginning(plan, index, other, split.first[other] + behind_title, draw, _LINKED, want)

    def _beginning(
        self, plan: RowPlan[PassageCuts], index: Int64, document: Int64, first: Int64, draw: rng.Draw, name: str,
        want: frozenset[str]
    ) -> Arrays:
        """One of the `lead` sentences of each document (B, in the split) from `first` on, and its place in the passage."""
        split, passages = self.split, plan.passages
        assert self.source.lead is not None  # else no such companion is given
        sentence = first + draw.integers(name, np.minimum(split.last[document] - first, self.source.lead))
        arrays = self._gather.sentences(sentence, split.documents[document], plan.max_tokens, want)
        if "sentence" in want:
            position = sentence - passages.sentence[index]
            position = np.where((position >= 0) & (position < passages.sentences[index]), position, -1)
            arrays["sentence"] = np.repeat(position[:, None], arrays["tokens"].shape[1], axis=1).astype(np.int32)
        return arrays

    def _next(self, plan: RowPlan[PassageCuts], items: Int64, want: frozenset[str]) -> Arrays:
        passages, index = plan.passages, plan.order[items]
        last = len(passages.start) - 1
        following = np.minimum(index + 1, last)
        follows = (index < last) & (passages.start[following] == passages.stop[index])
        if not self.source.across_documents:
            follows &= passages.document[following] == passages.document[index]
        arrays = self._gather.passages(passages, following, want)
        arrays["length"] = np.where(follows, arrays["length"], 0).astype(np.int32)
        return arrays
