"""The source of records: each row holds the texts of one record, and its answer is a field."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from cloze import fields, rng
from cloze.bounds import Count, Natural, NonNegative
from cloze.corpus.items.film_clips import DrawnClips, FilmClips
from cloze.corpus.items.following import of_two_pictures
from cloze.corpus.items.item_store import ItemSet, item_fields
from cloze.corpus.items.item_writer import ItemFiles
from cloze.corpus.items.kin import Kin, require_siblings
from cloze.corpus.items.links import LINKED
from cloze.corpus.readers.files import require_paths
from cloze.corpus.readers.labelled import Format, Quoting
from cloze.corpus.records.answer import Answer, Columns
from cloze.corpus.records.build_records import batches, build_records
from cloze.corpus.records.record_store import RecordStore
from cloze.corpus.records.windows import RecordCuts, TextParts, cut, windows
from cloze.corpus.sources.bound import BoundSource, Companion, fields_in
from cloze.corpus.sources.gather import Arrays
from cloze.corpus.sources.plan import Int64, RowPlan
from cloze.corpus.stores.source import Address, Source
from cloze.corpus.stores.store import Store
from cloze.errors import CorpusError, RecipeError, Say, TaskError
from cloze.registry import Part, lookup, register
from cloze.rows import Rows
from cloze.text.annotation.annotate import Annotations

if TYPE_CHECKING:
    from cloze.text.annotation.annotator import Annotator
    from cloze.text.tokenizer import Tokenizer

    AnswerPart = Answer | str
    AnnotatorParts = dict[str, Annotator]
else:
    AnswerPart = Part["answer"]
    AnnotatorParts = dict[str, Part["annotator"]]  # noqa: F821  the name of a kind

#: The layer of words that mean an item, which records with items have even if none of their words does.
_LINKED = frozenset({f"layers/{LINKED}", f"labels/{LINKED}"})
_TEXT = frozenset({"tokens", "length", "word_start"})  # the fields of text that the companions have


@register("source", "records")
class Records(Source):
    """Labelled text: rows of a table, or texts with a label for each word.

    text, text_b: the columns of the text and, for pairs, of the second one.
    label: the column of the answer.
    answer: the kind of answer: the `class` of the row, its `number`, its `classes`, the `choice` among the texts of text_b, the
      labels of its `words`, the `tree` over them, or a `text` to generate.
    columns: the names of a file's columns if it has no header.
    format, quoting: how the file is written, if that cannot be seen from its name and its rows (`tsv`, `csv`, `jsonl`,
      `parquet`; `none`, `standard`).
    annotate: annotators of the texts, each under the name of the layer that it makes.
    new_words: adds words that the vocabulary lacks, for networks that read the spelling of words.
    length: the length of the network's input. A longer row loses the end of its longest text.
    stride: a longer row becomes several windows over its last text instead, each `stride` tokens after the previous one.
    pool: records of similar length share batches; this many batches are sorted together in every epoch. With 0, records are in
      random order.
    items: arrays of the items of each record's picture by set, such as `{regions: [features, boxes, class]}`, for networks that
      read pictures with texts; `item_files` are the files that they come from and `picture` the column with the keys of the
      pictures, unless the text is a store that has its items. JSON lines may say which words mean which item, in `links`, a list
      of [first character, the one after the last, number of the item] for each text; they become the labelled layer `linked`.
    picture_b: the column of a second picture. Each record then makes two rows, its text with the one picture and with the other,
      and is their `owner` (NLVR2), or with `joined` one row, in which the items of the second picture follow those of the first.

    seconds: the picture of a row is a film, of which it is about the seconds from `start` to `end`, two further columns; captions
      are joined with their neighbours until they last so long.
    most_items: of pictures and films with more items only the first are read.
    clips: an epoch is a pass over films, of each of which it has this many neighbouring clips, drawn at random, in place of all;
      the rows of a film then stand together, in random order of films.

    Records with items have two companions: `sibling`, the text of another record of the same picture, which every picture must
    have if an edit reads it, and `distractor`, the text and the items of a record of another picture. Where the keys of pictures
    have a slash, such as `cooking/03`, the text before the last slash names a film, and the companion `next` is the text and the
    items of its next picture, in the order of the file; it is empty at the end of the film.
    """

    builds_store = True
    keeps_empty = True
    of_one_length = True
    of_rows = frozenset({"length", "stride", "pool"})

    def __init__(
        self, *, length: Count | None = None, text: str = "text", text_b: str | None = None, label: str = "label",
        answer: AnswerPart = "class", columns: list[str] | None = None, format: Format | None = None,
        quoting: Quoting = "auto", stride: Count | None = None, pool: Natural = 50,
        new_words: bool = False, annotate: AnnotatorParts | None = None, items: dict[str, list[str]] | None = None,
        item_files: dict[str, str] | None = None, picture: str = "image", clips: Count | None = None,
        most_items: Count | None = None, seconds: NonNegative | None = None, picture_b: str | None = None,
        joined: bool = False,
    ) -> None:
        names = [text, label] if text_b is None else [text, text_b, label]
        if len(set(names)) < len(names):
            raise RecipeError(f"records: {', '.join(names)}: expected a column of its own for each text and for the answer.")
        self.length, self.stride, self.pool, self.new_words = length, stride, pool, new_words
        self.answer: Answer = lookup("answer", answer)() if isinstance(answer, str) else answer
        self.columns = Columns(text, text_b, label, None if columns is None else tuple(columns), format, quoting)
        parts = {"parts"} if text_b is not None else set()
        parts |= {"choices"} if self.answer.lists else set()
        if self.answer.lists and (text_b is None or stride is not None):
            raise RecipeError("records: a choice among texts needs their column, text_b, and has no stride.")
        self.annotations = Annotations(layers=annotate or {})
        if items and LINKED in self.annotations.layers:
            raise RecipeError(f"records: the layer {LINKED!r} holds links of words with items. Give the annotator another name.")
        self.items = {name: tuple(arrays) for name, arrays in (items or {}).items()}
        self.item_files = ItemFiles(item_files, picture, seconds, picture_b) if item_files else None
        if picture_b is not None and picture_b == picture:
            raise RecipeError(f"records: picture_b: {picture_b}: is the column of the first picture. Name another.")
        if picture_b is not None and (self.answer.lists or clips is not None or seconds is not None):
            raise RecipeError(
                f"records: picture_b: {picture_b}: records with lists of texts, clips or seconds have one picture. Omit it."
            )
        if joined and picture_b is None:
            raise RecipeError("records: joined: true joins two pictures; name the column of the second one, picture_b.")
        self.two_pictures, self.joined = picture_b is not None, joined
        if item_files and set(item_files) != set(self.items):
            item_names = ", ".join(self.items) or "nothing"
            raise RecipeError(f"records: item_files are of {', '.join(item_files)}, but items are of {item_names}.")
        if clips is not None and (not self.items or stride is not None):
            raise RecipeError("records: clips are those of films, whose frames are items. Name their items, and omit stride.")
        self.clips, self.most_items = clips, most_items
        layers = {f"layers/{name}" for name in self.annotations.layers} | {f"labels/{name}" for name in self.annotations.labels}
        self.gives = frozenset({"tokens", "length", "document", "word_start", *parts, *layers, *self.answer.gives})
        self.gives |= self._companions() | ({"owner"} if self.two_pictures and not joined else set())

    def _companions(self) -> frozenset[str]:
        """The fields of items, and those of the companions of records with items."""
        if not self.items:
            return frozenset()
        item_names = {field for name, arrays in self.items.items() for field in item_fields(name, arrays)}
        if self.two_pictures:  # records about two pictures have no companions
            return frozenset(item_names | {f"items/{name}/picture" for name in self.items})
        companion_fields = {f"{name}.{field}" for name in ("distractor", "next") for field in item_names | _TEXT}
        item_names |= set() if self.clips is None else {"film"}
        return frozenset({*item_names, *companion_fields, *_LINKED, *(f"sibling.{field}" for field in _TEXT)})

    def texts(self, paths: Sequence[str | Path]) -> Iterable[str] | None:
        """All texts of the records, for a recipe that begins without a checkpoint; None for records with items, whose tokenizer
        comes with their store."""
        if self.items:
            return None
        require_paths(paths)
        return (text for path in paths for record in self.answer.read(path, self.columns) for text in record.texts)

    def knowing(self, paths: Sequence[str | Path], tokenizer: Tokenizer | None) -> Tokenizer:
        """The tokenizer for the text; with `new_words`, one that knows all words of these files."""
        require_paths(paths)
        if tokenizer is None:
            way = "Fine-tune a checkpoint: cloze finetune CHECKPOINT --train FILE --dev FILE --out DIR"
            if self.items:
                items = " ".join(f"{name}=FILE" for name in self.items)
                way = f"Build a store, which trains one: cloze corpus build CAPTIONS.jsonl --items {items} --out STORE"
            raise CorpusError(
                f"{' '.join(map(str, paths))}: this recipe reads records, which do not train a tokenizer, and it has no other "
                f"one.\n  {way}"
            )
        if not self.new_words:
            return tokenizer
        words: dict[str, None] = {}
        for path in paths:
            for records in batches(self.answer.read(path, self.columns)):
                words.update(dict.fromkeys(tokenizer.unknown_words([text for record in records for text in record.texts])))
        return tokenizer.with_words(list(words)) if words else tokenizer

    def build_store(
        self, paths: Sequence[str | Path], tokenizer: Tokenizer, out: Path, *, base: Store | None, report: Say
    ) -> RecordStore:
        """Encode files into a store at `out`; with `base`, the store of the training text, its classes are used."""
        classes = base.classes or None if isinstance(base, RecordStore) else None
        store = build_records(
            paths, tokenizer, out, answer=self.answer, columns=self.columns, classes=classes, annotations=self.annotations,
            items=self.item_files, report=report,
        )
        if isinstance(base, RecordStore) and store.about["given"] != base.about["given"]:
            actual, expected = (", ".join(f"{n} {name}" for name, n in side.about["given"].items()) for side in (store, base))
            shutil.rmtree(store.path)
            raise TaskError(f"{', '.join(map(str, paths))}: {actual} in every record; the training text has {expected}.")
        return store

    def bind(self, store: Store, *, batch: int = 1, **address: Unpack[Address]) -> BoundRecords:
        """This source over one store; rows of similar length are in batches of `batch`."""
        if not isinstance(store, RecordStore):
            raise CorpusError(
                f"{store.path}: this store holds running text, not labelled records.\n"
                "  Give the labelled file itself."
            )
        store.require_annotations(self.annotations, whose="the source")
        if self.items:
            if store.items is None:
                option = f"--items {next(iter(self.items))}=FILE"
                raise CorpusError(
                    f"{store.path}: the recipe reads items ({', '.join(self.items)}) with the texts, and this store has none.\n"
                    f"  Add {option} to cloze finetune, or build a store: cloze corpus build TEXTS.jsonl {option} --out STORE"
                )
            store.items.require(self.items)
            self.answer.require_items(store)
        if self.two_pictures and (store.items is None or store.items.second is None):
            raise CorpusError(
                f"{store.path}: the recipe reads each text with two pictures, and this store has "
                f"{'none' if store.items is None else 'one'} for each.\n  Give the file with their items: --items features.npz"
            )
        of_two = BoundJoinedPictures if self.joined else BoundPicturePairs
        return (of_two if self.two_pictures else BoundRecords)(self, store, batch=batch, **address)


class BoundRecords(BoundSource[RowPlan[RecordCuts]]):
    """The records of one store, in batches of similar length."""

    source: Records
    store: RecordStore

    def __init__(self, source: Records, store: RecordStore, *, batch: int, **address: Unpack[Address]) -> None:
        super().__init__(source, store, **address)
        self.records, self.batch = store.split(self.held_out)[self.subset], batch

    @cached_property
    def _kin(self) -> Kin:
        assert self.store.items is not None
        return Kin(self.store.items.pictures[self.records], self.store.items.groups)

    def require(self, want: frozenset[str]) -> None:
        """Siblings are other texts: a copy of the row's own would show every hidden word."""
        if self.source.items and fields_in("sibling", want):
            assert self.store.items is not None
            require_siblings(self.store.items)

    @property
    def tokens(self) -> int:
        """Tokens of these records."""
        return int(self.store.lengths[self.records].sum())

    def make_plan(self, epoch: int, max_tokens: int) -> RowPlan[RecordCuts]:
        """The rows of one epoch: a function of the batch, too."""
        if max_tokens < 1:
            raise RecipeError(f"records: a row can hold {max_tokens} tokens of text (is `length` too small?).")
        views = self._views(max_tokens)
        if self.source.clips is not None:
            drawn = self._drawn(epoch)
            return RowPlan(epoch, max_tokens, drawn.record, views, drawn.repeat)
        return RowPlan(epoch, max_tokens, self._order(epoch, views.length.astype(np.int64)), views)

    @cached_property
    def _films(self) -> FilmClips:
        assert self.store.items is not None and self.source.clips is not None
        return FilmClips(self.store.items.groups[self.store.items.pictures[self.records]], self.source.clips)

    def _drawn(self, epoch: int) -> DrawnClips:
        """The clips of an epoch, those of a film together."""
        films = self.shuffled(len(self._films), epoch)
        return self._films.drawn(films, rng.Draw(rng.row_keys(self.seed, self.entry, epoch, items=films)))

    def _views(self, max_tokens: int) -> RecordCuts:
        """The rows in the order of the store: one per record, or several windows of a record."""
        lengths, stride = self.store.lengths[self.records], self.source.stride
        record, parts = cut(lengths, max_tokens) if stride is None else windows(lengths, max_tokens, stride)
        start = self.store.begins(self.records[record], 1)[:, 0]
        return RecordCuts(start, parts.kept.sum(1).astype(np.int32), record, parts)

    def _order(self, epoch: int, sizes: Int64) -> Int64:
        """The rows of an epoch in random order, in batches of similar length.

        Batches may cross epochs: the first batch completes the last one of the previous epoch.
        """
        count = len(sizes)
        order = self.shuffled(count, epoch)
        if not self.source.pool or self.batch < 2:
            return order
        shortfall = -epoch * count % self.batch  # rows that the last batch of the previous epoch still lacks
        first, rest = order[:shortfall], order[shortfall:]
        pools = np.arange(len(rest)) // (self.batch * self.source.pool)
        rest = rest[np.lexsort((sizes[rest], pools))]
        batch_count = len(rest) // self.batch
        batch_order = rng.permutation(batch_count, self.seed, self.entry, "batches", epoch)
        batches = rest[: batch_count * self.batch].reshape(batch_count, self.batch)[batch_order]
        return np.concatenate([first, batches.ravel(), rest[batch_count * self.batch :]])

    def read_main(self, plan: RowPlan[RecordCuts], plan_rows: Int64, want: frozenset[str]) -> Arrays:
        """Always `tokens` (B, L), the visible parts of the texts of a record one after another, `length` and `document` (B), the
        record. With several texts, `parts` (B, P, 2); with a list of texts, `choices` (B), their number. `word_start` (B, L) if
        wanted; and the fields of the answer.
        """
        row = plan.order[plan_rows]
        records = self.records[plan.passages.record[row]]
        parts = TextParts(plan.passages.shown.first[row], plan.passages.shown.kept[row])
        texts = parts.kept.shape[1]
        begin = self.store.begins(records, texts) + parts.first
        stop = np.cumsum(parts.kept, axis=1)
        start = stop - parts.kept
        length = stop[:, -1]
        columns = self._columns(length)
        index = begin[:, :1] + columns
        for text in range(1, texts):
            index = np.where(columns < start[:, text, None], index, begin[:, text, None] + columns - start[:, text, None])
        index = np.minimum(index, max(len(self.store.tokens) - 1, 0))
        arrays: Arrays = {
            "tokens": self.store.tokens[index].astype(np.int32), "length": length.astype(np.int32), "document": records,
        }  # fmt: skip
        if self.store.texts > 1:
            arrays["parts"] = np.stack([start, stop], axis=2)
        if self.store.lists:
            arrays["choices"] = self.choices(plan, plan_rows)
        if "word_start" in want:
            arrays["word_start"] = self.store.words(index)
        arrays |= {name: layer[index] for name, layer in self.store.aligned.items() if name in want}
        arrays |= {name: np.zeros(index.shape, np.int32) for name in want & _LINKED - arrays.keys()}  # a store without links
        arrays |= self.source.answer.fields(self.store.answers(records), parts, len(self.store.classes))
        if self.source.clips is not None:
            assert self.store.items is not None
            offset = plan_rows % self.source.clips - self.source.clips // 2
            arrays["film"] = np.stack([self.store.items.groups[self.store.items.pictures[records]], offset], axis=1)
        return arrays | self._items(records, want)

    def read(self, plan: RowPlan[RecordCuts], items: Int64, want: frozenset[str]) -> Rows:
        """As in every source; a companion with items has the arrays of the row's own."""
        of_items = [name for name in want if fields.split(name).view == "main" and fields.find(name).per == "item"]
        views = {fields.split(name).view for name in want if fields.split(name).field == "item_length"} - {"main"}
        return super().read(plan, items, want | {f"{view}.{name}" for view in views for name in of_items})

    def _items(self, records: Int64, want: frozenset[str]) -> Arrays:
        """The items of the pictures of some records, -1 for none, as fields: the arrays that the source names, and others that
        are wanted and there; none if the source reads no items."""
        arrays: Arrays = {}
        for name, columns in self.source.items.items():
            assert self.store.items is not None
            item_set = self.store.items.sets[name]
            kinds = item_set.kinds.items()
            further_arrays = [array for array, kind in kinds if kind.field(name, array) in want and array not in columns]
            arrays |= self._of_set(item_set, records, [*columns, *further_arrays])
        return arrays

    def _of_set(self, item_set: ItemSet, records: Int64, names: Sequence[str]) -> Arrays:
        """The fields of the items of one set."""
        assert self.store.items is not None
        pictures = np.where(records >= 0, self.store.items.pictures[records], -1)
        return item_set.read(pictures, names, self.source.most_items)

    @property
    def companions(self) -> Mapping[str, Companion]:
        """Other records of the same pictures, and records of other pictures."""
        choices = {"sibling": Kin.sibling, "distractor": Kin.distractor, "next": Kin.next} if self.source.items else {}
        return {view: partial(self._companion, choose) for view, choose in choices.items()}

    def _companion(
        self, choose: Callable[[Kin, Int64, rng.Draw], Int64], plan: RowPlan[RecordCuts], plan_rows: Int64,
        want: frozenset[str],
    ) -> Arrays:
        """The wanted fields of the records that `choose` finds for those of some rows of the plan."""
        chosen = choose(self._kin, plan.passages.record[plan.order[plan_rows]], self.draw(plan, plan_rows))
        records = np.where(chosen >= 0, self.records[chosen], -1)
        arrays = self._text(records, plan.max_tokens) if want & _TEXT else {}
        arrays = {name: value for name, value in arrays.items() if name in want}
        return arrays | self._items(records, want) if want - _TEXT else arrays

    def _text(self, records: Int64, max_tokens: int) -> Arrays:
        """The first text of some records, -1 for none, cut to `max_tokens` tokens."""
        begin = self.store.begins(records, 1)[:, 0]
        length = np.where(records >= 0, np.minimum(self.store.lengths[records, 0], max_tokens), 0)
        columns = self._columns(length)
        index = np.minimum(begin[:, None] + columns, max(len(self.store.tokens) - 1, 0))
        return {
            "tokens": self.store.tokens[index].astype(np.int32), "length": length.astype(np.int32),
            "word_start": self.store.words(index),
        }  # fmt: skip

    def _columns(self, length: Int64) -> Int64:
        """The columns of a block of texts of these lengths: at least one, unless all texts of the store are empty."""
        return np.arange(max(int(length.max(initial=1)), 1) if len(self.store.tokens) else 0)

    def choices(self, plan: RowPlan[RecordCuts], plan_rows: Int64) -> Int64:
        """How many texts the list of each row's record has, (B,)."""
        records = self.records[plan.passages.record[plan.order[plan_rows]]]
        counts: Int64 = np.diff(self.store.document_sentences)[records] - (self.store.texts - 1)
        return counts

    def address(self, plan: RowPlan[RecordCuts], plan_rows: Int64) -> Int64:
        """The record, and for windows the first token, for clips of a film how often the record came before."""
        row = plan.order[plan_rows]
        copy = plan.passages.shown.first[row, -1] if plan.repeat is None else plan.repeat[plan_rows]
        return self.records[plan.passages.record[row]] + self.store.documents * copy


class BoundJoinedPictures(BoundRecords):
    """Records about two pictures, whose items stand in one row; `items/<set>/picture` says of which of both an item is."""

    def _of_set(self, item_set: ItemSet, records: Int64, names: Sequence[str]) -> Arrays:
        assert self.store.items is not None and self.store.items.second is not None
        sides = (self.store.items.pictures[records], self.store.items.second[records])
        first, second = (item_set.read(pictures, names, self.source.most_items) for pictures in sides)
        return of_two_pictures(first, second, item_set.name)

    @property
    def companions(self) -> Mapping[str, Companion]:
        """None."""
        return {}


class BoundPicturePairs(BoundRecords):
    """Records about two pictures: each makes two rows, its text with the one picture and with the other. The `owner` of a row is
    its record."""

    def widths(self, plan: RowPlan[RecordCuts], items: Int64) -> Int64:
        """How many rows each item of a plan makes, (B,)."""
        return np.full(len(items), 2, np.int64)

    def read_main(self, plan: RowPlan[RecordCuts], plan_rows: Int64, want: frozenset[str]) -> Arrays:
        """The fields of `BoundRecords` for both rows of each record, and `owner`."""
        arrays = super().read_main(plan, np.repeat(plan_rows, 2), want)
        return {**arrays, "owner": np.repeat(np.arange(len(plan_rows)), 2)}

    def _of_set(self, item_set: ItemSet, records: Int64, names: Sequence[str]) -> Arrays:
        """The items of the first and of the second picture in turn."""
        assert self.store.items is not None and self.store.items.second is not None
        is_second = np.arange(len(records)) % 2 > 0
        pictures = np.where(is_second, self.store.items.second[records], self.store.items.pictures[records])
        arrays = item_set.read(pictures, names, self.source.most_items)
        width = int(arrays[f"item_length/{item_set.name}"].max(initial=0))
        return {**arrays, f"items/{item_set.name}/picture": np.repeat(is_second[:, None], width, axis=1).astype(np.int32)}

    @property
    def companions(self) -> Mapping[str, Companion]:
        """None."""
        return {}
