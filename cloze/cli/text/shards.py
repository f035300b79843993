"""Stores of several shards: `cloze corpus build --shard`, `join` and `plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cloze.cli.options import WithFiles
from cloze.errors import Say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloze.corpus import Store
    from cloze.text import Tokenizer


class Sharded(NamedTuple):
    """The options of `cloze corpus build` that are for stores of several shards."""

    shard: str | None
    on: str | None
    part: str | None

    @property
    def tokens(self) -> int | None:
        """The most tokens of a shard; None: an ordinary store."""
        from cloze.runs.shard_building import shard_size

        return None if self.shard is None else shard_size(self.shard)

    def require_place(self, out: Path, *, replace: bool, text_format: str, languages: bool) -> None:
        """Refuse options that do not go together, and a place where no store can be written."""
        from cloze.corpus.stores.writer import check_out
        from cloze.errors import CorpusError
        from cloze.runs.shard_building import part_of, require_place

        if self.tokens is None:
            for name, value in (("--on", self.on), ("--part", self.part)):
                if value is not None:
                    raise CorpusError(f"{name} is for stores of several shards. Add --shard, such as --shard 256M.")
            check_out(out, replace=replace)
            return
        for name, present in (("--format pairs", text_format == "pairs"), ("--languages", languages)):
            if present:
                raise CorpusError(f"--shard does not work with {name}, which builds a store in one piece. Omit one of them.")
        if self.part is not None:
            part_of(self.part)
        if self.part is not None and self.on is not None:
            raise CorpusError("--part builds on this machine and --on elsewhere. Omit one of them.")
        require_place(out, replace=replace)

    def tokenizer(self, out: Path, *, path: Path | None) -> Path | None:
        """The tokenizer folder that was given, or that of a build that was begun."""
        from cloze.corpus.stores.store import TOKENIZER
        from cloze.errors import CorpusError

        if path is not None or self.tokens is None:
            return path
        folder = out / TOKENIZER
        if folder.is_dir():
            return folder
        if self.part is not None:
            raise CorpusError(
                "--part: all parts need the same tokenizer. Give it with --tokenizer FOLDER, for example that of a small store:\n"
                "  cloze corpus build SOME_TEXT --out SMALL, then --tokenizer SMALL/tokenizer."
            )
        return None

    def build(
        self, paths: list[str], tokenizer: Tokenizer, out: Path, *, text_format: str, names: Mapping[str, Any],
        workers: int | None, say: Say,
    ) -> Store | None:
        """Build the shards, or go on building them, and join them; None if other parts are missing."""
        from cloze.jobs import cores, workers_on
        from cloze.runs.shard_building import Building, part_of

        assert self.tokens is not None
        part = (0, 1) if self.part is None else part_of(self.part)
        processes = workers_on(self.on or "local", workers or cores())  # refuses a place before anything is written
        building = Building.begin(
            out, paths, tokenizer, tokens=self.tokens, format=text_format, say=say, **names
        )
        building.run(processes, part, _progress())
        if self.part is not None:
            left = len(building.left())
            say(f"{out}: part {self.part} is done; {left:,} of {len(building.tasks):,} tasks are left")
            if left == 0:
                say(f"  All parts are done: cloze corpus join {out}")
            return None
        store = building.join()
        say(f"{out}: {len(store.header.get('shards', [0])):,} shards")
        return store


def add_commands(app: typer.Typer) -> None:
    """Add the commands to `cloze corpus`."""
    for command in (join, plan, copy):
        app.command()(command)


def join(
    store: Annotated[Path, typer.Argument(help="The folder of the shards.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Write the text of all shards as one ordinary store here.", show_default=False)
    ] = None,
) -> None:
    """Finish a store that was built in parts; with --out, write its shards as one ordinary store.

    Example: cloze corpus build TEXT --shard 256M --tokenizer TOK --out STORE --part 1/4 (… 4/4), then cloze corpus join STORE
    """
    from cloze.corpus.shards.join import write_as_one
    from cloze.corpus.stores.store import Store
    from cloze.corpus.stores.writer import check_out
    from cloze.errors import CorpusError, spelled_by
    from cloze.runs.shard_building import Building

    building = Building.read(store)
    if out is not None:
        with spelled_by(lambda phrase: "" if phrase.parameter.path == "overwrite" else None):
            check_out(out, replace=False)
        whole_store = write_as_one(Store.open(store), out)
        typer.echo(f"{out}: one store of {whole_store.documents:,} documents, {whole_store.size:,} tokens")
        return
    if building is None and Store.is_store(store):
        raise CorpusError(f"{store}: is a store already; there is nothing to join.")
    if building is None:
        raise CorpusError(f"{store}: no build was started here. Start one: cloze corpus build TEXT --shard 256M --out {store}")
    joined = building.join()
    typer.echo(
        f"{store}: {len(joined.header.get('shards', [0])):,} shards, {joined.documents:,} documents, {joined.size:,} tokens"
    )


def plan(
    store: Annotated[str, typer.Argument(help="A store of several shards.", show_default=False)],
    recipe: Annotated[str, typer.Option(help="The recipe that will read it.")] = "bert",
    overrides: Annotated[list[str] | None, typer.Option("--set", help="Change a value of the recipe; repeatable.")] = None,
    with_files: WithFiles = None,
) -> None:
    """Count the rows of every shard for a recipe in advance, so that runs start faster."""
    from cloze.checkpoint.build import build_step
    from cloze.checkpoint.checks.check import check_recipe
    from cloze.checkpoint.feeds import build_data, first_length
    from cloze.corpus import Store
    from cloze.recipe.load import load_recipe
    from cloze.runs.binds import make_tables

    loaded = load_recipe(recipe, overrides=overrides or [])
    check_recipe(loaded)
    shards = Store.open(store)
    stores, tokenizer = dict.fromkeys(loaded.sources, shards), shards.tokenizer()
    tables = make_tables(loaded, stores)
    step = build_step(loaded, vocab_size=tokenizer.size, device="meta", tables=tables, store=shards, tokenizer=tokenizer)
    data = build_data(loaded, stores, step, tokenizer, seed=0, tables=tables)
    lengths = [int(phase.set["length"]) for phase in loaded.schedule if "length" in phase.set]
    for length in dict.fromkeys([first_length(loaded), *lengths]):
        data.change({"length": length})
        for name in data.feeds:
            typer.echo(f"{name}: {data.rows_in_epoch(name):,} rows of up to {data.feeds[name].length} tokens in an epoch")


def copy(
    source: Annotated[str, typer.Argument(help="A store: a folder or an address such as s3://bucket/store.", show_default=False)],
    target: Annotated[str, typer.Argument(help="Where to copy it: a folder or an address.", show_default=False)],
) -> None:
    """Copy a store to or from object storage; to resume, repeat the command. Keys are read from the environment."""
    from cloze.corpus.shards.copying import copy_store

    copy_store(source, target, typer.echo)


def _progress() -> Callable[[int, int], None]:
    """A line that rewrites itself; silent where lines stay."""
    from cloze.display import choose_display

    display = choose_display()
    return lambda done, total: display.show(f"{done:,} of {total:,} tasks", done / total) if display.live else None
