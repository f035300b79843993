"""Writes a token store block by block, in constant memory; nothing appears under its name until it is complete."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from cloze.atomic import flush, hidden, put, recover
from cloze.corpus.stores.store import (
    COUNTS,
    FILES,
    HEADER,
    LANGUAGES,
    TOKENIZER,
    VERSION,
    Store,
    file_hash,
    labels_file,
    layer_file,
    names_file,
)
from cloze.errors import CorpusError, Parameter, Phrase

if TYPE_CHECKING:
    from cloze.text.tokenizer import Tokenizer


class StoreWriter:
    """Appends documents to a store under construction. Use as a context manager; `finish` makes it visible.

    Leaving the block without `finish` (an error, Ctrl-C) removes everything that was written.
    """

    def __init__(
        self, out: str | Path, *, vocab_size: int, roles: Mapping[str, int], tokenizer_hash: str,
        annotations: Mapping[str, Any] | None = None, labels: Mapping[str, Sequence[str]] | None = None,
        languages: Sequence[str] = (), pairs: bool = False,
    ) -> None:
        """`annotations` is what `Annotations.header` says, `labels` the names of labels by layer; the layers, their labels, and
        languages if named, come with every append."""
        self.out = Path(out)
        check_out(self.out)
        self.dtype = np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)
        self.header: dict[str, Any] = {
            "format": "cloze token store", "version": VERSION, "dtype": self.dtype.name, "vocab_size": vocab_size,
            "roles": dict(roles), "tokenizer_hash": tokenizer_hash, **(annotations or {}),
        }
        self.layers = tuple((annotations or {}).get("annotations", ()))
        self.labels = dict(labels or {})
        self.pairs = pairs
        if pairs:
            self.header["pairs"] = True
        if languages:
            self.header["languages"] = list(languages)
        self.tokens = self.sentences = self.documents = 0
        self.counts = np.zeros(vocab_size, dtype=np.int64)
        self._bits = np.zeros(0, dtype=np.bool_)  # word starts that do not fill a byte yet
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self._place = hidden(self.out)
        self.folder = self._place.__enter__() / self.out.name
        self.folder.mkdir()
        extra = [*([LANGUAGES] if languages else []), *map(layer_file, self.layers), *map(labels_file, self.labels)]
        self._files = {name: HashedFile(self.folder / name) for name in (*FILES, *extra)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):  # a full disk complains again when the buffer is flushed
                file.close()
        self._place.__exit__(None, None, None)

    def append(
        self, ids: NDArray[np.integer], word_start: NDArray[np.bool_], sentence_lengths: NDArray[np.integer],
        document_lengths: NDArray[np.integer], *, continues: bool = False,
        layers: Mapping[str, NDArray[np.uint8]] | None = None, labels: Mapping[str, NDArray[np.int32]] | None = None,
        languages: Sequence[int] = (),
    ) -> None:
        """Add documents.

        `ids` and `word_start` (tokens) are concatenated; `sentence_lengths` (sentences) counts tokens per sentence and
        `document_lengths` (documents) sentences per document. Sentences without a token must have been left out. With
        `continues` the first document goes on with the last one added before. `layers` and `labels` (tokens each) must hold
        every layer that was announced; `languages` is the one language of these documents, or the two of their sides.
        """
        self._files["tokens.bin"].write(ids.astype(self.dtype))
        self.counts += np.bincount(ids, minlength=len(self.counts))
        bits = np.concatenate([self._bits, word_start])
        bit_count = len(bits) & ~7
        self._files["words.bin"].write(np.packbits(bits[:bit_count], bitorder="little"))
        self._bits = bits[bit_count:]
        ends = np.cumsum(sentence_lengths, dtype=np.int64) + self.tokens
        self._files["sentences.bin"].write(ends - sentence_lengths)
        ends = np.cumsum(document_lengths, dtype=np.int64) + self.sentences
        starts = (ends - document_lengths)[int(continues):]
        self._files["documents.bin"].write(starts)
        for name in self.layers:
            self._files[layer_file(name)].write((layers or {})[name])
        for name in self.labels:
            self._files[labels_file(name)].write((labels or {})[name])
        if LANGUAGES in self._files:
            self._files[LANGUAGES].write(np.tile(np.array(languages, dtype=np.uint8), len(starts)))
        self.tokens += len(ids)
        self.sentences += len(sentence_lengths)
        self.documents += len(starts)

    def finish(self, report: Mapping[str, Any], save_tokenizer: Callable[[Path], object]) -> Store:
        """Close the files, write the tokenizer and the header, and move the folder to its name. Returns the store."""
        self._files["words.bin"].write(np.packbits(self._bits, bitorder="little"))
        self._files["sentences.bin"].write(np.array([self.tokens], dtype=np.int64))
        self._files["documents.bin"].write(np.array([self.sentences], dtype=np.int64))
        for name, names in self.labels.items():
            self._files[names_file(name)] = HashedFile(self.folder / names_file(name))
            self._files[names_file(name)].write(np.frombuffer("".join(f"{label}\n" for label in names).encode(), np.uint8))
        for file in self._files.values():
            file.close()
        save_tokenizer(self.folder / TOKENIZER)
        counts = {"tokens": self.tokens, "sentences": self.sentences, "documents": self.documents}
        files = {name: {"bytes": file.bytes, "sha256": file.hash.hexdigest()} for name, file in self._files.items()}
        for path in sorted(path for path in (self.folder / TOKENIZER).rglob("*") if path.is_file()):
            files[path.relative_to(self.folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": file_hash(path)}
        counted = {**counts, COUNTS: " ".join(map(str, self.counts.tolist()))}
        header = {**self.header, **counted, "files": files, "report": dict(report)}
        (self.folder / HEADER).write_text(json.dumps(header, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        flush(self.folder)  # before it has its name: a finished shard is never built again
        put(self.folder, self.out)
        return Store.open(self.out, content=False)  # it would map all that was written


class HashedFile:
    """A file that is only appended to, with its size and its sha256 so far."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        self.stream: IO[bytes] = path.open("wb")
        self.hash = hashlib.sha256()
        self.bytes = 0

    def write(self, array: NDArray[Any]) -> None:
        data = np.ascontiguousarray(array).data
        self.stream.write(data)
        self.hash.update(data)
        self.bytes += data.nbytes

    def close(self) -> None:
        self.stream.close()


def check_out(out: Path, *, replace: bool = True) -> None:
    """A `CorpusError` where no store can be written, and for a store that is there already unless it may be replaced.

    It is asked before any text is read. What a killed build left unfinished there is put in order first.
    """
    ancestor = next(parent for parent in out.absolute().parents if parent.exists())
    if not ancestor.is_dir() or not os.access(ancestor, os.W_OK | os.X_OK):
        raise CorpusError(f"{out}: {ancestor} is not a folder that you can write to. Choose another --out.")
    recover(out)
    if Store.is_store(out) and not replace:
        overwriting = Phrase(", or replace it with ", Parameter("overwrite", style="option"))
        raise CorpusError(f"{out}: already holds a token store. Choose another --out", overwriting, ".")
    if out.exists() and not Store.is_store(out) and (not out.is_dir() or any(out.iterdir())):
        raise CorpusError(f"{out}: already exists and is not a token store. Choose another --out, or remove it yourself.")


def saving(tokenizer: Tokenizer) -> Callable[[Path], object]:
    """What saves a tokenizer in a folder, as every store does."""
    return lambda folder: tokenizer.save(folder, length=512, frame_single="{A}", frame_pair="{A} {B}")
