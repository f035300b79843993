"""Builds a store of records from files of labelled text, in constant memory; the store appears only when complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from cloze.corpus.items.item_writer import ItemFiles, ItemsWriter, clips_of, pictures_of
from cloze.corpus.items.links import LINKED, RecordLinks, has_links
from cloze.corpus.readers.hub_tables import local_tables
from cloze.corpus.records.answer import Answer, Columns, Record, RecordBlock, RecordEncoder, has_keys
from cloze.corpus.records.record_store import FOLDER, LINES, RecordStore
from cloze.corpus.records.span_marks import with_marks
from cloze.corpus.stores.writer import HashedFile, StoreWriter, saving
from cloze.errors import CorpusError, RunError, Say, TaskError, counted
from cloze.text.annotation.annotate import Annotations
from cloze.text.encodings import recoded
from cloze.text.tokenizer import Tokenizer

_TOGETHER = 2048  # records encoded together
_CHUNK = 1 << 20  # values renumbered together


def build_records(
    paths: Sequence[str | Path], tokenizer: Tokenizer, out: str | Path, *, answer: Answer, columns: Columns,
    classes: Sequence[str] | None = None, annotations: Annotations | None = None, items: ItemFiles | None = None,
    report: Say = lambda line: None,
) -> RecordStore:
    """Encode labelled text into a store at `out`.

    `answer` is the kind of the answers, `columns` names the columns of texts and answers. `classes` are those of the training
    text, None if this is the training text; `annotations` makes further layers, and `items` names the files with the items of
    the records' pictures. Raises `CorpusError` for items that cannot be used, `TaskError`, with file and line, for a
    row that cannot be used, and `RunError` if the disk is full; nothing is then left behind.
    """
    paths = local_tables(paths)
    encode = answer.encoder(tokenizer, classes)
    annotators = annotations or Annotations()
    annotators.require_files()
    with RecordWriter(out, tokenizer, answer, columns, annotators, files=[str(path) for path in paths], items=items) as writer:
        try:
            for path in paths:
                for records in batches(writer.noting_pictures(path, answer.read(path, columns))):
                    writer.add(records, encode(records, str(path)), str(path))
            return writer.close_with(encode, report)
        except OSError as error:
            raise RunError(f"{out}: cannot write the store: {error.strerror}. Nothing was written.") from error


class RecordWriter(StoreWriter):
    """Appends records to a store under construction."""

    def __init__(
        self, out: str | Path, tokenizer: Tokenizer, answer: Answer, columns: Columns, annotations: Annotations, *,
        files: Sequence[str], items: ItemFiles | None = None,
    ) -> None:
        linked = items is not None and has_links(files, columns.format)
        header = annotations.header()
        if linked:  # the layer has no annotator, because only the file knows its units
            header["annotations"] = {**header["annotations"], LINKED: LINKED}
        super().__init__(
            out, vocab_size=tokenizer.size, roles=tokenizer.roles, tokenizer_hash=tokenizer.hash,
            annotations=header if annotations or linked else None, labels=annotations.labels | ({LINKED: ()} if linked else {}),
        )
        self.tokenizer, self.answer, self.annotations = tokenizer, answer, annotations
        self.audits = answer.audits(tokenizer)
        self.marked = dict.fromkeys(annotations.layers, 0)
        self.about: dict[str, Any] = {
            "texts": list(columns.texts), "read": asdict(columns), "files": list(files),
            "columns": {name: np.dtype(kind).name for name, kind in answer.columns.items()},
        }
        if answer.lists:
            self.about["lists"] = True
        if answer.nested:
            self.about["nested"] = {name: list(levels) for name, levels in answer.nested.items()}
        levels = [*(["bounds"] if answer.ragged else []), *dict.fromkeys(chain.from_iterable(answer.nested.values()))]
        self.values = dict.fromkeys(levels, 0)  # how many items each level has
        self.pictures: list[int] = []  # those of the records that `noting_pictures` has given and `add` has not yet had
        names = [LINES, *(f"{FOLDER}{name}.bin" for name in (*answer.columns, *levels))]
        self._files |= {name: HashedFile(self.folder / name) for name in names}
        self.items = None if items is None else ItemsWriter(items, self.folder, self._files)
        self.linked = RecordLinks(columns.text, columns.format) if linked else None

    def noting_pictures(self, path: str | Path, records: Iterator[Record]) -> Iterator[Record]:
        """The records of a file, whose pictures are noted where the store gets their items."""
        if self.items is None:
            yield from records
            return
        read = self.about["read"]
        if not has_keys(path, self.answer, read["format"]):
            column = self.items.item_files.column
            raise TaskError(
                f"{path}: with --items, every row names its picture, and in this format it cannot.\n"
                f"  Write rows with pictures as JSON lines (.jsonl) that have the key {column!r}, too."
            )
        how = {name: read[name] for name in ("format", "quoting")}
        keyed = pictures_of(path, records, self.items.item_files.columns, columns=read["names"], **how)
        if (seconds := self.items.item_files.seconds) is not None:
            films = self.items.of_known_films((record, film) for record, (film,) in keyed)
            clips = clips_of(path, films, seconds, columns=read["names"], **how)
            keyed = ((record, (clip,)) for record, clip in clips)
        for record, keys in keyed:
            self.pictures.append(self.items.add(keys))
            yield record

    def add(self, records: Sequence[Record], block: RecordBlock, path: str) -> None:
        """Add records of a file and their encoded block."""
        for audit in self.audits:
            audit.add(path, records)
        texts = np.array([len(record.texts) for record in records], np.int64)
        layers: dict[str, Any] = {}
        labels: dict[str, Any] = {}
        units = {} if self.linked is None else {LINKED: self.linked.units(path, records, self.pictures)}
        self.pictures.clear()
        if self.annotations or units:
            every = [text for record in records for text in record.texts]
            marked = self.annotations.encode(self.tokenizer, every, texts.tolist(), units)
            places = block.inserted
            if not np.array_equal(np.insert(marked.ids, places, block.ids[places + np.arange(len(places))]), block.ids):
                raise TaskError(f"{path}: texts of this task cannot be annotated: they are not stored as they stand in the file.")
            layers = {name: with_marks(layer, layer, places) for name, layer in marked.layers.items()}
            labels = {name: with_marks(values, marked.layers[name], places) for name, values in marked.labels.items()}
            owner = np.repeat(np.repeat(np.arange(len(records)), texts), np.diff(block.offsets))
            for name, layer in layers.items():
                self.marked[name] = self.marked.get(name, 0) + len(np.unique(owner[layer > 0]))
        self.append(block.ids, block.word_start, np.diff(block.offsets), texts, layers=layers, labels=labels)
        self._files[LINES].write(np.array([record.line for record in records], np.int64))
        for name, values in block.columns.items():
            self._files[f"{FOLDER}{name}.bin"].write(values)
        counts = block.nested if block.counts is None else {"bounds": block.counts, **block.nested}
        for level, of_items in counts.items():
            ends = self.values[level] + np.cumsum(of_items, dtype=np.int64)
            self._files[f"{FOLDER}{level}.bin"].write(ends - of_items)
            self.values[level] += int(of_items.sum())

    def close_with(self, encoder: RecordEncoder, report: Say) -> RecordStore:
        """Number the classes in their final order, and finish the store."""
        labels = encoder.labels
        for level, items in self.values.items():
            self._files[f"{FOLDER}{level}.bin"].write(np.array([items], np.int64))
        classes: tuple[str, ...] | None = None
        if labels is not None:
            classes, order = labels.order()
            if self.answer.coded is not None:
                self._renumber(f"{FOLDER}{self.answer.coded}.bin", np.append(order, np.int32(-1)))
        encodings = recoded(self.about["files"])
        self.header["records"] = {
            **self.about, **({"encodings": encodings} if encodings else {}),
            "classes": None if classes is None else list(classes), "constant_answer": encoder.constant_answer,
            "given": dict(encoder.given),
            "described": dict(encoder.described),
        }
        files = ", ".join(self.about["files"])
        totals = [counted(self.documents, "record"), counted(self.tokens, "token")]
        report(f"{files}: {', '.join([*totals, *([counted(len(classes), 'class')] if classes else [])])}")
        for remark in chain(encoder.remarks, *(audit.remarks() for audit in self.audits)):
            report(remark)
        for name, count in self.marked.items():
            if not count and name in self.annotations.layers and not self.annotations.layers[name].of_any_text:
                raise CorpusError(
                    f"{files}: the file of the annotation layer {name!r} has none of these texts. Nothing was written.\n"
                    "  Give one with the texts of all files, for training and for dev, as they stand there."
                )
            report(f"{files}: {counted(count, 'record')} with units of the layer {name}")
        if self.items is not None:
            self.header["items"] = self.items.finish(report, self.linked)
        if self.linked is not None:
            self.labels[LINKED] = [str(number) for number in range(self.linked.largest + 1)]
        store = self.finish({"records": self.documents, "tokens": self.tokens}, saving(self.tokenizer))
        assert isinstance(store, RecordStore)
        return store

    def _renumber(self, name: str, order: Any) -> None:
        """Write a file again with other numbers; `order` ends with the number for -1."""
        self._files[name].close()
        old = self.folder / f"{name}.old"
        (self.folder / name).rename(old)
        file = HashedFile(self.folder / name)
        with old.open("rb") as stream:
            while data := stream.read(_CHUNK * 4):
                file.write(order[np.frombuffer(data, np.int32)])
        old.unlink()
        self._files[name] = file


def batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Records in batches, in order."""
    stream = iter(records)
    while batch := list(islice(stream, _TOGETHER)):
        yield batch
