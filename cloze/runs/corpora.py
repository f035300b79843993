"""The paths of a corpus → a token store and its tokenizer: a store is opened, text is built into one."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloze.budget.fit_text import advise_on_unknown, require_words_apart, sample_for
from cloze.checkpoint.inputs import TextRecord, difference, file_states, require_read_alike, require_text_unchanged, store_digest
from cloze.corpus import Store
from cloze.corpus.readers.hub_tables import local_tables
from cloze.corpus.stores.build import Progress, build_store, corpus_files, train_tokenizer_from
from cloze.errors import CorpusError, RecipeError, Say, text_in
from cloze.processes import rank
from cloze.recipe.builders import build
from cloze.recipe.parts import builder_of, class_of
from cloze.recipe.recipe import PartSpec, Recipe, TextSpec
from cloze.text import Annotations, Tokenizer
from cloze.text import TextSpec as Trainable
from cloze.text.encodings import chosen_encoding
from cloze.text.segment import segmenter_of
from cloze.text.vocabularies.training import train
from cloze.text.vocabularies.vocabulary import extended
from cloze.training.checkpoints.lock import LOCK

_UNSEEN, _REMIND = 60.0, 600.0  # seconds: after which a lock must be seen, and between two lines of a process that waits


def open_corpus(
    recipe: Recipe, paths: Sequence[str], folder: Path, *, source: str | None = None,
    tokenizer: Tokenizer | Path | str | None = None, text_format: str = "auto", seed: int = 0, run: Path | None = None,
    report: Say = lambda line: None, progress: Progress = lambda done, total: None,
) -> tuple[Store, Tokenizer]:
    """The store behind `paths`, and its tokenizer.

    One path that is a store is opened, and must have been built with `tokenizer` if that is given. Text is built into
    `folder/store`, with `tokenizer` or with one that is trained on the text as the recipe specifies. An existing store there is
    reused if it was built from the same text in the same way, and rebuilt otherwise. `run` is the folder of a run that has begun
    with the store: the run resumes without reading the text, and text that has changed is refused.
    """
    if not paths:
        raise CorpusError("no corpus: give text files, folders or a token store with --corpus PATH.")
    given_tokenizer = Tokenizer.load(Path(tokenizer)) if isinstance(tokenizer, (str, Path)) else tokenizer
    whose = str(tokenizer) if isinstance(tokenizer, (str, Path)) else "the recipe's first source"
    annotations = text_annotations(recipe)
    spec = recipe.sources[source or next(iter(recipe.sources))]
    source_type = class_of("source", spec.name)
    if source_type.builds_store:
        given_tokenizer = given_tokenizer or tokenizer_of_texts(recipe, spec, paths, folder, seed=seed, run=run, report=report)
        return open_source_store(spec, paths, folder, tokenizer=given_tokenizer, run=run, report=report)
    text_format = source_type.text_format or text_format
    language_options = spec.arguments.get("languages")  # {smooth: …}: the text lies in a folder per language
    languages = language_options is not None and source_type.text_format is None
    smooth = language_options.get("smooth", 1.0) if isinstance(language_options, Mapping) else 1.0

    def open_store(path: Path) -> tuple[Store, Tokenizer]:
        store = Store.open(path)
        if given_tokenizer is not None:
            store.require_tokenizer(given_tokenizer.hash, whose=whose)
        store.require_annotations(annotations, whose=recipe.name)
        return store, store.tokenizer()

    if len(paths) == 1 and Store.is_store(paths[0]):
        return open_store(Path(paths[0]))
    how = {
        **{key: value for key, value in recipe.canonical().items() if key in ("text", "texts")}, "format": text_format,
        "languages": languages, "smooth": smooth, "seed": seed,
        "tokenizer": None if given_tokenizer is None else given_tokenizer.hash,
    }
    corpus_text = StoredText(folder, tuple(map(str, paths)), text_format, languages, json.loads(json.dumps(how)))
    if corpus_text.wait_until_built(run):
        return open_store(folder / "store")
    annotations.require_files()
    if given_tokenizer is None and any(text.tokenizer.name == "words" for text in recipe.texts.values()):
        require_words_apart(recipe, sample_for(recipe, paths, text_format))
    chosen = given_tokenizer or with_table_words(recipe, report, train_tokenizer_from(
        list(paths), trainable(text_of(recipe)), format=text_format, languages=languages, smooth=smooth, seed=seed,
        report=report,
    ))  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    store = build_store(
        list(paths), chosen, folder / "store", format=text_format, languages=languages, annotations=annotations, report=report,
        progress=progress,
    )
    corpus_text.record(store)
    advise_on_unknown(store, chosen, report)
    return store, chosen


def text_annotations(recipe: Recipe) -> Annotations:
    """The words and the layers that a recipe asks of its running text."""
    return Annotations.of(text_of(recipe)) if "main" in recipe.texts else Annotations()


def tokenizer_of_texts(
    recipe: Recipe, spec: PartSpec, paths: Sequence[str], folder: Path, *, seed: int, run: Path | None, report: Say
) -> Tokenizer | None:
    """A tokenizer trained on the texts of a source that builds its own store; None if it has none, or a store already."""
    paths = local_tables(paths)
    if len(paths) == 1 and Store.is_store(paths[0]) or "main" not in recipe.texts:
        return None
    if run is not None and Store.is_store(folder / "store"):
        return Store.open(folder / "store").tokenizer()
    from cloze.checkpoint.build import plain_arguments  # loads torch, which stores of plain text do without

    texts = build(builder_of("source", spec.name), plain_arguments(spec.arguments), {}).texts(paths)
    if texts is None:
        return None
    return with_table_words(recipe, report, train(trainable(text_of(recipe)), texts, seed=seed, report=report))


def with_table_words(recipe: Recipe, report: Say, tokenizer: Tokenizer) -> Tokenizer:
    """A trained tokenizer with the further words of the tables that add theirs."""
    for spec in recipe.tables.values():
        table = build(builder_of(spec.kind, spec.name), spec.arguments, {})
        if not table.adds_words:
            continue
        from cloze.interop.released.words import findable
        from cloze.interop.vectors import open_vectors

        if tokenizer.kind != "words":
            raise RecipeError(f"tables: {spec.name}: words: added is for a tokenizer of words; this one is {tokenizer.kind}.")
        spellings = set(tokenizer.spellings)
        new = [word for word in open_vectors(table.opens).words if word not in spellings]
        words = findable(tokenizer, new)
        left = f"; {len(new) - len(words):,} can never be cut out of a text and were left out" if len(words) < len(new) else ""
        report(f"{table.opens}: adds {len(words):,} words to the {len(spellings):,} of the text{left}")
        tokenizer = extended(tokenizer, words)
    return tokenizer


def open_source_store(
    spec: PartSpec, paths: Sequence[str], folder: Path, *, tokenizer: Tokenizer | None, base: Store | None = None,
    run: Path | None = None, report: Say = lambda line: None,
) -> tuple[Store, Tokenizer]:
    """The store of labelled text or of triples, as its source reads them, and its tokenizer. A path to a store is opened; files
    are built into `folder/store`. `base` is the store of the training part, whose classes and vocabulary are used."""
    paths = local_tables(paths)
    if len(paths) == 1 and Store.is_store(paths[0]):
        store = Store.open(paths[0])
        if tokenizer is not None:
            store.require_tokenizer(tokenizer.hash, whose="the checkpoint")
        return store, store.tokenizer()
    from cloze.checkpoint.build import plain_arguments

    options = plain_arguments(spec.arguments)
    of_rows = class_of("source", spec.name).of_rows
    arguments = {key: value for key, value in options.items() if key not in of_rows}
    known_tokenizer = None if tokenizer is None else tokenizer.hash
    how = {
        "records": arguments, "tokenizer": known_tokenizer, "known": None if base is None else store_digest(base),
        "encoding": chosen_encoding() or "auto",
    }
    if arguments.get("annotate"):
        how["annotations"] = build(builder_of("source", spec.name), options, {}).annotations.header()
    text = StoredLabels(folder, tuple(map(str, paths)), "records", False, json.loads(json.dumps(how)))
    if not text.wait_until_built(run):
        folder.mkdir(parents=True, exist_ok=True)
        source = build(builder_of("source", spec.name), options, {})
        source_tokenizer = tokenizer if base is not None else source.knowing(paths, tokenizer)
        text.record(source.build_store(paths, source_tokenizer, folder / "store", base=base, report=report))
    store = Store.open(folder / "store")
    same = tokenizer is not None and store.tokenizer_hash == tokenizer.hash
    return store, tokenizer if tokenizer is not None and same else store.tokenizer()


def open_held_out(
    recipe: Recipe, paths: Sequence[str], folder: Path, tokenizer: Tokenizer, *, text_format: str, run: Path | None, report: Say
) -> Store:
    """The store of held-out text. A path to a store is opened; text is built into `folder/store` with the run's tokenizer and the
    recipe's annotations. Raises `RecipeError` if one of these names no file: another text has marks of its own."""
    annotations = text_annotations(recipe)
    if len(paths) == 1 and Store.is_store(paths[0]):
        store = Store.open(paths[0])
        store.require_tokenizer(tokenizer.hash, whose="the training corpus")
        store.require_annotations(annotations, whose=recipe.name)
        return store
    how = {"format": text_format, "tokenizer": tokenizer.hash, **(annotations.header() if annotations else {})}
    text = StoredText(folder, tuple(map(str, paths)), text_format, False, how)
    if not text.wait_until_built(run):
        annotations.require_files()
        folder.mkdir(parents=True, exist_ok=True)
        text.record(
            build_store(list(paths), tokenizer, folder / "store", format=text_format, annotations=annotations, report=report)
        )
    return Store.open(folder / "store")


@contextmanager
def naming_texts(texts: Mapping[Path, Sequence[str]]) -> Iterator[None]:
    """Inside the block, an error about a store names the text of which a run has built it. `texts` are the user's paths by the
    folder of their store."""
    names = {text_in(folder): " ".join(paths) for folder, paths in texts.items()}
    try:
        yield
    except CorpusError as error:
        error.spell(lambda phrase: phrase.naming(names[phrase.parameter]) if phrase.parameter in names else None)
        raise


@dataclass(frozen=True)
class StoredText:
    """The store in `folder/store` that is, or will be, built from text, and the record of what has been built there.

    `languages`: the paths are a folder per language. `how` are the settings by which text is read and encoded, as plain data; a
    store that was built with others is built again, and a run that began with others is refused (`require_read_alike`, which
    leaves out what is compared with the recipe, the tokenizer and the seed).
    """

    folder: Path
    paths: tuple[str, ...]
    format: str
    languages: bool
    how: Mapping[str, Any]

    def wait_until_built(self, run: Path | None) -> bool:
        """As `is_built`; of several processes, all but the first wait until the first has built the store.

        They say so from time to time. Raises `CorpusError` if what the first process writes cannot be seen from here.
        """
        start, last_report = time.monotonic(), 0.0
        while not (built := self.is_built(run)) and rank() != 0:
            waited = time.monotonic() - start
            if waited > _UNSEEN and not any((above / LOCK).exists() for above in self.folder.parents):
                raise CorpusError(
                    f"rank {rank()}: rank 0 builds the text into {self.folder}, but nothing of it reaches this host.\n"
                    "  Put --out on a disk that all hosts share, or build a store first and give each host a copy of it: "
                    "cloze corpus build TEXT --out STORE, then --corpus STORE."
                )
            if waited - last_report > _REMIND:
                last_report = waited
                sys.stderr.write(f"rank {rank()}: has waited {waited / 60:.0f} min for rank 0 to build {self.folder}\n")
            time.sleep(0.5)
        return built

    def is_built(self, run: Path | None) -> bool:
        """Whether the folder holds the store of this text; a `CheckpointError` if `run` began with different text."""
        if not Store.is_store(self.folder / "store"):
            return False
        record = TextRecord.read(self.folder)
        if record is None:
            return False
        if run is None:
            return dict(record.how) == self.how and not self.differs(record)
        require_read_alike(run, record, self.how)
        current = require_text_unchanged(run, record, self.paths, self.files())
        if current != record and rank() == 0:
            current.write(self.folder)
        return True

    def differs(self, record: TextRecord) -> str:
        """How the text differs from that of a record, in words."""
        return difference(record.files, file_states(self.files() or (), record.files))

    def files(self) -> list[str] | None:
        """The files of the text in the order in which they are read; None if the text does not exist."""
        try:
            return self.listed()
        except CorpusError:
            return None

    def listed(self) -> list[str]:
        """The files of the text in the order in which they are read; a `CorpusError` if the text does not exist."""
        return corpus_files(self.paths, self.format, self.languages)

    def record(self, store: Store) -> None:
        """Record what the store was built from."""
        files = tuple(file_states(self.listed()))
        TextRecord(self.paths, files, self.how, store_digest(store)).write(self.folder)


class StoredLabels(StoredText):
    """Labelled text and triples: tables, or folders."""

    def listed(self) -> list[str]:
        """The files, those of a folder by name; a `CorpusError` if one does not exist."""
        files: list[str] = []
        for path in map(Path, self.paths):
            if not path.exists() and str(path) != "-":
                raise CorpusError(f"{path}: no such file.")
            inside = sorted(str(file) for file in path.rglob("*") if file.is_file()) if path.is_dir() else [str(path)]
            files += inside
        return files


def text_of(recipe: Recipe) -> TextSpec:
    """The recipe's text: how strings become tokens."""
    if "main" not in recipe.texts:
        raise RecipeError(
            f"{recipe.name}: has no `text:`, so no tokenizer can be trained.\n"
            "  Write `text: {tokenizer: {wordpiece: {size: 30522}}}`, or give --tokenizer DIR."
        )
    return recipe.texts["main"]


def trainable(text: TextSpec) -> Trainable:
    """The recipe's text as the text package trains it."""
    return Trainable.of(text.normalise, text.tokenizer.name, text.tokenizer.arguments, segmenter_of(text))
