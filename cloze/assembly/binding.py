"""What the command line names, bound to what a recipe asks for: texts or stores to sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cloze.assembly.corpora import open_corpus
from cloze.assembly.given import build, restored
from cloze.assembly.parts import builder_of
from cloze.assembly.recipe import Recipe
from cloze.assembly.watching import reading_corpus
from cloze.corpus import Store
from cloze.corpus.readers.files import require_paths
from cloze.errors import CorpusError, RecipeError, nearest
from cloze.text import Tokenizer

Say = Callable[[str], None]


def bound_paths(recipe: Recipe, paths: Sequence[str], binds: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The paths of every source by name: `--corpus` means `main`, or the only or first source."""
    first = "main" if "main" in recipe.sources else next(iter(recipe.sources))
    named = {first: list(paths)} if paths else {}
    for name, given in binds.items():
        named.setdefault(name, []).extend(given)
    missing = [name for name in recipe.sources if name not in named]
    if missing:
        raise CorpusError(f"{recipe.name}: the source {missing[0]!r} has no corpus. Give it with --bind {missing[0]}=PATH.")
    return named


def parse_binds(binds: Iterable[str]) -> dict[str, list[str]]:
    """The paths of every `--bind NAME=PATH` by name; another form is a `RecipeError`."""
    named: dict[str, list[str]] = {}
    for bind in binds:
        name, equals, path = bind.partition("=")
        if not equals or not path:
            raise RecipeError(f"--bind {bind}: expected NAME=PATH.")
        named.setdefault(name, []).append(path)
    return named


def check_binds(recipe: Recipe, binds: Iterable[str], checkpoints: Iterable[str]) -> None:
    """Refuse a name that is bound and belongs to no source and no checkpoint of a recipe or of its stages."""
    sources = {name for whole in [stage.recipe for stage in recipe.stages] or [recipe] for name in whole.sources}
    known = [*sorted(sources), *checkpoints]
    for name in binds:
        if name not in known:
            raise RecipeError(f"--bind {name}: {recipe.name} has no such source or checkpoint. {nearest(name, known)}")


def require_text(named: Mapping[str, Sequence[str]], out: Path) -> None:
    """A `CorpusError` for text that is not there and of which `out` holds no store yet."""
    for name, paths in named.items():
        if not Store.is_store(out / "cloze" / "corpus" / name / "store"):
            require_paths(paths)


def open_stores(
    recipe: Recipe, named: Mapping[str, Sequence[str]], out: Path, *, tokenizer: Path | None, text_format: str,
    seed: int, say: Say, began: bool = False,
) -> tuple[dict[str, Store], Tokenizer]:
    """The stores of all sources by name, and the one tokenizer they share. Text is read by rank 0 alone.

    `began`: `out` holds a run already, which resumes with the text that it was started with.
    """
    stores: dict[str, Store] = {}
    shared: Tokenizer | None = None if tokenizer is None else Tokenizer.load(tokenizer)
    for name in recipe.sources:
        folder = out / "cloze" / "corpus" / name
        with reading_corpus(say) as (tell, progress):
            stores[name], shared = open_corpus(
                recipe, named[name], folder, source=name, tokenizer=shared, text_format=text_format, seed=seed,
                run=out if began else None, report=tell, progress=progress,
            )
    assert shared is not None  # a recipe has at least one source
    return stores, shared


def make_tables(recipe: Recipe, stores: Mapping[str, Store], begin: Mapping[str, Path] | None = None) -> dict[str, Any]:
    """The recipe's look-up tables by name: those of the checkpoints that its networks begin with, else made for the first
    source's store."""
    from cloze.interop import import_folder
    from cloze.interop.vectors import open_vectors

    store = next(iter(stores.values()))
    known: dict[str, Any] = {}
    for folder in (begin or {}).values() if recipe.tables else ():
        known |= restored(import_folder(folder).model.tables)
    made: dict[str, Any] = {}
    for name, spec in recipe.tables.items():
        if name in known:
            made[name] = known[name]
            continue
        table = build(builder_of(spec.kind, spec.name), spec.arguments, {})
        file = getattr(table, "opens", None)  # what a table reads that the data tower cannot open
        made[name] = table.bind(store) if file is None else table.bind(store, open_vectors(file))
    return made
