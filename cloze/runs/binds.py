"""Binds the paths of the command line to the sources of a recipe, as text or stores, and to the networks that start from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cloze.corpus import Store
from cloze.corpus.readers.files import require_paths
from cloze.errors import CheckpointError, CorpusError, RecipeError, Say, UserError, propose
from cloze.exercises.retokenize import OtherReading
from cloze.hub import local_folder
from cloze.recipe.builders import build, restored
from cloze.recipe.changes import joins_vocabulary, read_by_export
from cloze.recipe.parts import builder_of, class_of
from cloze.recipe.recipe import Recipe
from cloze.recipe.stages import stage_recipes
from cloze.runs.corpora import open_corpus
from cloze.runs.progress import reading_corpus
from cloze.text import Tokenizer
from cloze.training.schedule.untrained import require_trained


def bound_paths(recipe: Recipe, paths: Sequence[str], binds: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The paths of every source by name: `--corpus` means `main`, or the only or first source."""
    first = "main" if "main" in recipe.sources else next(iter(recipe.sources))
    source_paths = {first: list(paths)} if paths else {}
    for name, files in binds.items():
        if name in recipe.sources:
            source_paths.setdefault(name, []).extend(files)
    missing = [name for name in recipe.sources if name not in source_paths]
    if missing:
        raise CorpusError(f"{recipe.name}: the source {missing[0]!r} has no corpus. Give it with --bind {missing[0]}=PATH.")
    return source_paths


def parse_binds(binds: Iterable[str]) -> dict[str, list[str]]:
    """The paths of every `--bind NAME=PATH`, by name. Raises a `RecipeError` for any other form."""
    paths_by_name: dict[str, list[str]] = {}
    for bind in binds:
        name, equals, path = bind.partition("=")
        if not equals or not path:
            raise RecipeError(f"--bind {bind}: expected NAME=PATH.")
        paths_by_name.setdefault(name, []).append(path)
    return paths_by_name


def parse_inits(inits: Mapping[str, Path] | Sequence[str | Path] | str | Path | None) -> dict[str, Path]:
    """The folder of each `--init [NETWORK=]DIR` by the name of the network, "" for the exported one.

    Raises `CheckpointError` for a folder that does not exist, and for two checkpoints for one network.
    """
    if isinstance(inits, Mapping):
        pairs = [(name, Path(folder)) for name, folder in inits.items()]
    else:
        pairs = [_init(str(option)) for option in ([inits] if isinstance(inits, (str, Path)) else inits or ())]
    folders: dict[str, Path] = {}
    for name, path in pairs:
        folder = local_folder(path)
        if not folder.is_dir():
            raise CheckpointError(f"{folder}: there is no such folder. --init takes a run folder or a Hugging Face folder.")
        if name in folders:
            what = f"the network {name!r}" if name else "the exported network"
            raise CheckpointError(f"--init: {what} has two checkpoints, {folders[name]} and {folder}. Give one.")
        folders[name] = folder
    return folders


def _init(option: str) -> tuple[str, Path]:
    """The network and the folder of one `--init`; a folder may have = in its name."""
    name, equals, path = option.partition("=")
    return (name, Path(path)) if equals and path and not Path(option).is_dir() else ("", Path(option))


def bound_tables(recipe: Recipe, binds: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The values that `--bind NAME=PATH` sets in the look-up tables of a recipe or its stages, as `--set` would, by name."""
    settings: dict[str, str] = {}
    sources = {name for stage_recipe in [recipe, *(stage.recipe for stage in recipe.stages)] for name in stage_recipe.sources}
    for stage_recipe in [recipe, *(stage.recipe for stage in recipe.stages)]:
        for name, spec in stage_recipe.tables.items():
            if name in binds and name not in sources:
                settings[name] = f"tables.{name}.{class_of(spec.kind, spec.name).bound_to}={binds[name][-1]}"
    return settings


def check_binds(recipe: Recipe, binds: Iterable[str], checkpoints: Iterable[str]) -> None:
    """Refuse a bound name that is no source, table or checkpoint of the recipe or its stages."""
    names = [*sorted({name for stage in stage_recipes(recipe) for name in [*stage.sources, *stage.tables]}), *checkpoints]
    for name in binds:
        if name not in names:
            raise RecipeError(f"--bind {name}: {recipe.name} has no such source, table or checkpoint. {propose(name, names)}")


def require_text(texts: Mapping[str, Sequence[str]], out: Path) -> None:
    """Raise a `CorpusError` for missing text, unless `out` already holds its store."""
    for name, paths in texts.items():
        if not Store.is_store(out / "cloze" / "corpus" / name / "store"):
            require_paths(paths)


def open_stores(
    recipe: Recipe, texts: Mapping[str, Sequence[str]], out: Path, *, tokenizer: Path | Tokenizer | None, text_format: str,
    seed: int, say: Say, began: bool = False,
) -> tuple[dict[str, Store], Tokenizer]:
    """The stores of all sources by name, and their common tokenizer. Only rank 0 reads text.

    `began`: `out` already holds a run, which resumes with the text that it started with.
    """
    stores: dict[str, Store] = {}
    shared: Tokenizer | Path | None = tokenizer
    for name in recipe.sources:
        folder = out / "cloze" / "corpus" / name
        with reading_corpus(say) as (tell, progress):
            stores[name], shared = open_corpus(
                recipe, texts[name], folder, source=name, tokenizer=shared, text_format=text_format, seed=seed,
                run=out if began else None, report=tell, progress=progress,
            )
    assert isinstance(shared, Tokenizer)  # a recipe has at least one source
    _require_languages(recipe, languages_of(stores))
    return stores, shared


def languages_of(stores: Mapping[str, Store]) -> tuple[str, ...]:
    """The names of the languages of the text, by number."""
    return next((store.languages for store in stores.values() if store.languages), ())


def _require_languages(recipe: Recipe, languages: Sequence[str]) -> None:
    """Raise `RecipeError` if the text has more languages than a network has vectors for."""
    from cloze.checkpoint.build import plain_arguments
    from cloze.interop.arguments import flat

    for name, network in recipe.networks.items():
        part = network.part
        inputs = {} if part is None else flat(plain_arguments(part.arguments), part.name).get("embedding.inputs")
        rows = (inputs or {}).get("language")
        if rows is not None and len(languages) > rows:
            path = "network" if len(recipe.networks) == 1 else f"networks.{name}"
            raise RecipeError(
                f"{recipe.name}: the network has vectors for {rows} languages, and the text has {len(languages)}: "
                f"{', '.join(languages[:3])} …\n  Give it as many: --set {path}.embedding.table.inputs.language={len(languages)}"
            )


def make_tables(recipe: Recipe, stores: Mapping[str, Store], origins: Mapping[str, Path] | None = None) -> dict[str, Any]:
    """What the parts of a recipe look up by name: its tables, and how networks with a tokenizer of their own read (`reading_of`).

    Tables come from the checkpoints that the networks start from; others are built for the first source's store.
    """
    from cloze.interop import import_folder

    store = next(iter(stores.values()))
    restored_tables: dict[str, Any] = {}
    for folder in (origins or {}).values() if recipe.tables else ():
        restored_tables |= restored(import_folder(folder).model.tables)
    tables: dict[str, Any] = other_readings(recipe, store, origins or {})
    for name, spec in recipe.tables.items():
        table = build(builder_of(spec.kind, spec.name), spec.arguments, {})
        if name in restored_tables and (table.has_weights or spec.arguments.get(table.bound_to) is None):
            tables[name] = table.over(restored_tables[name], store)
            continue
        with naming_table(name):
            if table.opens is not None:
                require_trained(Path(table.opens))
            tables[name] = table.bind(store, *_further_arguments(table, origins or {}))
    return tables


def _further_arguments(table: Any, origins: Mapping[str, Path]) -> list[Any]:
    """What a table is bound to besides a store: opened vectors, or a function that makes texts into vectors."""
    from cloze.interop.vectors import open_vectors

    if table.encoded_by is not None:
        return [partial(_passage_vectors, table.encoded_by, origins)]
    return [] if table.opens is None else [open_vectors(table.opens)]


def _passage_vectors(network: str, origins: Mapping[str, Path], texts: Sequence[str]) -> Any:
    """The vectors (N, D) of passages, by the checkpoint that a network of the recipe starts from."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.tasks.search import retriever_of

    if network not in origins:
        raise RecipeError(f"networks.{network}: makes vectors of texts, and starts from no checkpoint. Write `from: start`.")
    return retriever_of(load_checkpoint(origins[network], "auto")).passage_vectors(texts)


@contextmanager
def naming_table(name: str) -> Iterator[None]:
    """Messages of a table, which does not know what the recipe calls it, give commands with its name."""
    try:
        yield
    except UserError as error:
        message = str(error).replace("--bind NAME=", f"--bind {name}=").replace("--set tables.NAME.", f"--set tables.{name}.")
        raise type(error)(message) from None


def other_readings(recipe: Recipe, store: Store, origins: Mapping[str, Path]) -> dict[str, OtherReading]:
    """How each network with a tokenizer of its own reads the texts of a store, by its name: those whose states the exported one
    reads (`fuse`), and those that read the ids of both tokenizers (`join_vocabulary`)."""
    from cloze.checkpoint.open_folder import open_folder

    readings: dict[str, OtherReading] = {}
    joined = [name for name in recipe.networks if joins_vocabulary(recipe, name)]
    if recipe.export in joined:
        raise RecipeError(
            f"networks.{recipe.export}: join_vocabulary gives a teacher the ids of two tokenizers, and a folder has one.\n"
            "  Export the network that reads the ids of the text alone: `export: student`."
        )
    for name in [*read_by_export(recipe), *joined]:
        if name not in origins:
            continue
        checkpoint = open_folder(origins[name])
        orders = {str(entry.order) for entry in recipe.entries.values()}
        if orders != {checkpoint.model.order}:
            raise CheckpointError(
                f"{checkpoint.folder}: networks.{name} reads {checkpoint.model.order}, "
                f"and the recipe reads {', '.join(sorted(orders))}.\n"
                "  Bind a checkpoint that reads texts in the order of the recipe, such as bert."
            )
        limit = checkpoint.model.flat.get("positions.max_length")
        first = store.vocab_size if name in joined else 0
        readings[name] = OtherReading(
            store.tokenizer(), checkpoint.tokenizer, checkpoint.reading.single, limit, first + checkpoint.vocab_size, first
        )
    return readings
