"""Builds a store from text: reads blocks, lets workers encode them, and writes them in order and in constant memory.

The stages are `readers/blocks.py` (files → blocks), `readers/parse.py` (blocks → documents), `encode.py` (documents → token ids,
in workers) and `writer.py` (the files of the store).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cloze.corpus.readers.blocks import PAIRS, Block, corpus_size, read_blocks
from cloze.corpus.readers.documents import add_faults, documents_of
from cloze.corpus.readers.files import find_files
from cloze.corpus.readers.pair_files import find_pairs, read_pairs
from cloze.corpus.readers.parse import parse_block
from cloze.corpus.readers.report import CorpusReport, FileFaults, Oddities
from cloze.corpus.stores.encode import BlockEncoder, EncodedBlock, WordsApart
from cloze.corpus.stores.languages import language_folders, language_sizes, read_languages, smoothed
from cloze.corpus.stores.store import Store
from cloze.corpus.stores.workers import WorkerPool
from cloze.corpus.stores.writer import StoreWriter, saving
from cloze.errors import CorpusError, RunError, Say
from cloze.jobs import cores
from cloze.text import Annotations, Tokenizer
from cloze.text import train as train_tokenizer
from cloze.text.vocabularies.training import Streaming, TextSpec, spec_of, trainer_of

Progress = Callable[[int, "int | None"], None]

_SMALL = 6_000_000      # bytes below which starting processes costs more than it saves
_DICTIONARY_MB = 160    # for the chunk dictionaries of all workers together


def build_store(
    paths: Sequence[str | Path], tokenizer: Tokenizer, out: str | Path, *, format: str = "auto",
    languages: bool = False, annotations: Annotations | None = None, workers: int | None = None,
    report: Say = lambda line: None, progress: Progress = lambda done, total: None,
) -> Store:
    """Encode a corpus into a store at `out`, which appears only when complete.

    `format`: "auto", one of `readers.formats.FORMATS` ("csv:review" names the column with the text), or "pairs" for parallel text
    (see `readers.pair_files`). `languages`: the paths are a folder per language, or one folder of these; every document keeps its
    language. `annotations`: words of a segmenter and layers, kept with the ids. `workers`: the number of processes; None means
    one per core, or only this process for a small corpus. `report` receives formats, counts and anomalies line by line;
    `progress` receives the bytes done and the total (None if unknown). Nothing is truncated. Memory does not depend on the size
    of the corpus. Raises `CorpusError` if input is missing, empty, binary, in another encoding or badly paired, `RunError` if the
    disk is full.
    """
    account = CorpusReport()
    names, blocks, total = _open_corpus(paths, format, languages, account)
    count = _worker_count(workers, total)
    annotations = (annotations or Annotations()).of_words(tokenizer)
    annotations.require_files()
    with ExitStack() as stack:
        writer = stack.enter_context(store_writer(out, tokenizer, annotations, names, pairs=format == PAIRS))
        if count > 1:
            task = partial(
                BlockEncoder, tokenizer, memory_mb=_DICTIONARY_MB // count, annotations=annotations, compiled=True
            )
            pool: WorkerPool[EncodedBlock] = stack.enter_context(WorkerPool(task, count))
            encoded: Iterable[tuple[Block, EncodedBlock]] = pool.each(_counted(blocks, account))
        else:
            large = total is None or total >= _SMALL
            encode = BlockEncoder(tokenizer, memory_mb=_DICTIONARY_MB, annotations=annotations, compiled=large)
            encoded = ((block, encode(block)) for block in _counted(blocks, account))
        try:
            annotations.require_matches(write_blocks(encoded, writer, account, lambda: progress(account.bytes, total)))
            store = finish_store(writer, saving(tokenizer), account)
        except OSError as error:
            raise RunError(f"{out}: cannot write the store: {error.strerror}. Nothing was written.") from error
    for line in account.lines():
        report(line)
    return store


def build_store_from_texts(
    texts: Iterable[str], tokenizer: Tokenizer, out: str | Path, *, origin: str = "texts",
    annotations: Annotations | None = None, report: Say = lambda line: None,
) -> Store:
    """Encode documents that are already strings; blank lines end their paragraphs. One process."""
    account = CorpusReport()
    account.add_file(origin, "texts", "given as strings")
    annotations = (annotations or Annotations()).of_words(tokenizer)
    annotations.require_files()
    encode = BlockEncoder(tokenizer, memory_mb=_DICTIONARY_MB, annotations=annotations)
    with store_writer(out, tokenizer, annotations) as writer:
        blocks = _counted(_text_blocks(texts, origin), account)
        annotations.require_matches(write_blocks(((block, encode(block)) for block in blocks), writer, account, lambda: None))
        store = finish_store(writer, saving(tokenizer), account)
    for line in account.lines():
        report(line)
    return store


def train_tokenizer_from(
    paths: Sequence[str | Path], spec: Any, *, format: str = "auto", languages: bool = False, smooth: float = 0.7,
    size: int | None = None, budget_bytes: int = 200_000_000, seed: int = 0, workers: int | None = None,
    report: Say = lambda line: None,
) -> Tokenizer:
    """Train a tokenizer on a corpus, or on an even, deterministic sample of its blocks if it exceeds the budget.

    `spec` is what `cloze.text.train` takes. Words are counted in the whole corpus, with the languages in their own proportions;
    if a segmenter cuts them, `workers` processes count (as in `build_store`). A sample is taken block by block (2 MB), spread
    evenly over the corpus, and `report` gets details. With `languages` (see `build_store`) each language's share is smoothed with
    the exponent `smooth`; small ones are repeated.
    """
    account = CorpusReport()
    if isinstance(trainer_of(spec), Streaming):
        _, every, total = _open_corpus(paths, format, languages, account)
        return _train_by_counting(spec_of(spec), every, total, workers, size, report)
    if languages:
        sentences = _smoothed_sentences(paths, format, smooth, budget_bytes, account)
        return train_tokenizer(spec, sentences, size=size, budget_bytes=2 * budget_bytes, seed=seed, report=report)
    if format == PAIRS:
        sentences = (text for block in read_pairs(paths, account)[1] for text in block.data if isinstance(text, str))
        return train_tokenizer(spec, sentences, size=size, budget_bytes=budget_bytes, seed=seed, report=report)
    total = corpus_size(paths)
    blocks = read_blocks(paths, format, account)
    if total is not None and total > budget_bytes:
        report(
            f"the tokenizer is trained on an even sample of about {budget_bytes / 1e6:,.0f} MB "
            f"of the corpus's {total / 1e6:,.0f} MB"
        )
        blocks = _spread(blocks, budget_bytes / total)
    sentences = (sentence for document in documents_of(blocks, account) for sentence in document.sentences)
    return train_tokenizer(spec, sentences, size=size, budget_bytes=budget_bytes, seed=seed, report=report)


def _train_by_counting(
    spec: TextSpec, blocks: Iterable[Block], total: int | None, workers: int | None, size: int | None, report: Say
) -> Tokenizer:
    """Train a tokenizer that reads the whole corpus. Counting is fast; a segmenter is not, and runs in processes of its own."""
    if spec.words is None:
        parsed = (parse_block(block, spaces=False, cut=False) for block in blocks)
        texts = (text for parsed_block in parsed for document in parsed_block.documents for text in document)
        return train_tokenizer(spec, texts, size=size, report=report)
    with ExitStack() as stack:
        task, count = partial(WordsApart, spec.words), _worker_count(workers, total)
        if count > 1:
            pool: WorkerPool[list[str]] = stack.enter_context(WorkerPool(task, count))
            cut: Iterable[list[str]] = (words for _, words in pool.each(blocks))
        else:
            cut = map(task(), blocks)
        texts = (text for words in cut for text in words)
        return train_tokenizer(replace(spec, words=None), texts, size=size, report=report).cut_by(spec.words)


def _open_corpus(
    paths: Sequence[str | Path], format: str, languages: bool, account: CorpusReport
) -> tuple[tuple[str, ...], Iterator[Block], int | None]:
    """Names of the languages (none unless requested), blocks, and the total bytes if known."""
    if format == PAIRS:
        names, pairs = read_pairs(paths, account)
        return names, pairs, corpus_size([file.path for corpus in find_pairs(paths) for file in corpus.files])
    if languages:
        folders = language_folders(paths, account.odd)
        return tuple(folders), read_languages(folders, format, account), sum(language_sizes(folders).values())
    return (), read_blocks(paths, format, account), corpus_size(paths)


def corpus_files(paths: Sequence[str | Path], format: str = "auto", languages: bool = False) -> list[str]:
    """The files that `build_store` reads for these arguments, in its order; "-" and "python-docs" unchanged.

    Raises `CorpusError` if a file is missing or badly paired. Only the first line of parallel tables is read.
    """
    if format == PAIRS:
        return [file.path for corpus in find_pairs(paths) for file in corpus.files]
    groups = language_folders(paths).values() if languages else [paths]
    return [file.path for group in groups for file in find_files(group, Oddities())]


def _smoothed_sentences(
    paths: Sequence[str | Path], format: str, smooth: float, budget: int, account: CorpusReport
) -> Iterator[str]:
    """The sentences of a folder per language in smoothed shares, about `budget` bytes at most."""
    folders = language_folders(paths)
    texts = {
        name: (text for document in documents_of(read_blocks(inside, format, account), account) for text in document.sentences)
        for name, inside in folders.items()
    }
    return smoothed(texts, language_sizes(folders), smooth, budget)


def _worker_count(requested: int | None, total: int | None) -> int:
    """How many processes encode a corpus of `total` bytes."""
    if requested is not None:
        if requested < 1:
            raise CorpusError(f"workers: {requested}; expected 1 or more.")
        return requested
    if total is not None and total < _SMALL:
        return 1
    return min(cores(), 32, -(-(total or 1 << 40) // _SMALL))


def store_writer(
    out: str | Path, tokenizer: Tokenizer, annotations: Annotations | None, languages: Sequence[str] = (), *,
    pairs: bool = False,
) -> StoreWriter:
    """What writes the store of a tokenizer and its annotations."""
    if pairs and tokenizer.targets is not tokenizer:
        raise CorpusError(
            f"{out}: a store of pairs has one tokenizer, and Marian's cuts what is written in another way than what is read.\n"
            "  Train on such pairs with a column for each text: cloze finetune CHECKPOINT --task text_to_text --train PAIRS.tsv"
        )
    return StoreWriter(
        out, vocab_size=tokenizer.size, roles=tokenizer.roles, tokenizer_hash=tokenizer.hash,
        annotations=annotations.header() if annotations else None, labels=annotations.labels if annotations else None,
        languages=languages, pairs=pairs,
    )


def write_blocks(
    encoded: Iterable[tuple[Block, EncodedBlock]], writer: StoreWriter, account: CorpusReport, after_block: Callable[[], None]
) -> dict[str, frozenset[int]]:
    """Append every block to the store and call `after_block`. Returns the records of annotators' files that the text matches."""
    matches: dict[str, frozenset[int]] = {}
    file = FileFaults("")
    is_open = False  # the last document may continue
    is_written = False  # ... and some of it has been written
    for block, encoding in encoded:
        account.odd.add(encoding.odd)
        file = add_faults(file, encoding.faults)
        if block.last or file.bytes > 1 << 24:
            file.check()
        counts = encoding.document_lengths
        goes_on = is_open and encoding.goes_on and len(counts) > 0
        merged = goes_on and is_written
        words = np.unpackbits(encoding.word_bits, count=len(encoding.ids), bitorder="little").view(np.bool_)
        has_tokens = counts > 0
        first_counts = bool(len(counts)) and bool(has_tokens[0])
        writer.append(
            encoding.ids, words, encoding.sentence_lengths, counts[has_tokens], continues=merged and first_counts,
            layers=encoding.layers, labels=encoding.labels, languages=block.languages,
        )
        matches = (
            {name: matches.get(name, frozenset()) | records for name, records in encoding.matched_records.items()}
            if encoding.matched_records else matches
        )
        # Whether the last document has something written after this block.
        if len(counts) > 1 or not goes_on:
            is_written = bool(len(counts)) and bool(has_tokens[-1])
        else:
            is_written = is_written or bool(has_tokens[-1])
        _note_empty(encoding, has_tokens, goes_on, block, account)
        is_open = encoding.open_end
        after_block()
    return matches


def _note_empty(encoding: EncodedBlock, has_tokens: Any, goes_on: bool, block: Block, account: CorpusReport) -> None:
    """Note documents that are certainly empty; those that cross a block border are not judged."""
    certain = ~has_tokens
    if goes_on:
        certain[0] = False
    if encoding.open_end and len(certain):
        certain[-1] = False
    for line in encoding.lines[certain].tolist():
        account.odd.note("empty_document", f"{block.path}:{line}")


def finish_store(writer: StoreWriter, save_tokenizer: Callable[[Path], object], account: CorpusReport) -> Store:
    """Make a store of what was written. Raises `CorpusError` if that holds no token."""
    if writer.tokens == 0:
        raise CorpusError(f"the corpus is empty: no token in {account.bytes:,} bytes of text. Nothing was written.")
    account.documents, account.sentences, account.tokens = writer.documents, writer.sentences, writer.tokens
    return writer.finish(account.as_dict(), save_tokenizer)


def _counted(blocks: Iterable[Block], account: CorpusReport) -> Iterator[Block]:
    for block in blocks:
        account.bytes += block.bytes
        yield block


def _spread(blocks: Iterator[Block], share: float) -> Iterator[Block]:
    """Every block whose number raises the running share past the next whole number."""
    for number, block in enumerate(blocks):
        if int((number + 1) * share) > int(number * share) or number == 0:
            yield block


def _text_blocks(texts: Iterable[str], origin: str) -> Iterator[Block]:
    held: list[str] = []
    size, number = 0, 1
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= 1 << 22:
            yield Block(origin, "texts", held, number, last=False)
            held, size, number = [], 0, number + len(held)
    yield Block(origin, "texts", held, number, last=True)
