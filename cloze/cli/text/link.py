"""`cloze link`: find the names of entities in a text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.hints import suggest
from cloze.cli.modes import Mode, mode_of, takes_options_of
from cloze.cli.options import Device
from cloze.errors import UserError

if TYPE_CHECKING:
    from cloze.knowledge.linking import MentionFinder


@dataclass(frozen=True, kw_only=True)
class LinkMode(Mode):
    """A way to link names: a linker, and what there is to say about it."""

    @abstractmethod
    def linker(self) -> MentionFinder:
        """What finds the mentions."""

    def remark(self, linker: Any) -> str:
        """What else is said about the linker in the end."""
        return ""


@dataclass(frozen=True, kw_only=True)
class NetworkMode(LinkMode):
    """Link names to the entities that a trained network chooses for them."""

    purpose = "a network that chooses among the candidates of a name"
    how = "--model RUN"

    model: Annotated[Path | None, typer.Option(help="A run of e-bert-mlm, which has a table of names.")] = None
    rounds: Annotated[int, typer.Option(min=1, help="Rounds: the surest links of a text become tokens before the others.")] = 3
    batch: Annotated[int, typer.Option(min=1, help="Mentions that are read at once.")] = 32
    device: Device = "auto"

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> bool:
        """Whether a network is given."""
        return options["model"] is not None

    def linker(self) -> MentionFinder:
        """That of the network."""
        from cloze.checkpoint.build import load_checkpoint
        from cloze.tasks.intrinsic.entity_linking import EntityLinker

        assert self.model is not None  # it is asked for
        return EntityLinker.of(load_checkpoint(self.model, self.device), rounds=self.rounds, rows=self.batch)


@dataclass(frozen=True, kw_only=True)
class TableMode(LinkMode):
    """Link names to their most frequent entities."""

    purpose = "a table of entities"

    entities: Annotated[list[str] | None, typer.Option(
        help="A tab-separated table of entities: id, label, aliases, type, description, count; without a header: id, label."
    )] = None
    least: Annotated[float, typer.Option(
        min=0.0, max=1.0, help="Skip ambiguous names: those whose most frequent entity has less than this share of their counts."
    )] = 0.0
    shortest: Annotated[int, typer.Option(min=1, help="Skip names of fewer characters.")] = 2

    def linker(self) -> MentionFinder:
        """That of the table."""
        from cloze.knowledge.linking import linker_of

        if not self.entities:
            raise UserError(
                "expected a table of entities, or a network that links.\n"
                "  cloze link TEXT --entities entities.tsv --out mentions.jsonl, or with a run of e-bert-mlm: --model RUN"
            )
        return linker_of(self.entities, least=self.least, shortest=self.shortest)

    def remark(self, linker: Any) -> str:
        """How many names are ambiguous."""
        return f"; {linker.ambiguous:,} of the names mean several entities"


MODES: tuple[type[NetworkMode | TableMode], ...] = (NetworkMode, TableMode)


@takes_options_of(*MODES)
def command(
    context: typer.Context,
    paths: Annotated[list[str], typer.Argument(help="Text files, folders, globs, or python-docs.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The file of mentions to write, as JSON lines.")],
    text_format: Annotated[str, typer.Option("--format", help="As for cloze corpus build; default: detected per file.")] = "auto",
    column: Annotated[
        str | None, typer.Option("--text", help="In tables and JSON lines: the column or key with the text.")
    ] = None,
    **options: Any,
) -> None:
    """Link names of entities in a text to their ids: the longest match, and the most frequent entity of that name; with --model
    the entities that a network chooses.

    Example: cloze link TEXT --entities entities.tsv --out mentions.jsonl
    """
    from cloze.corpus.readers.formats import with_column
    from cloze.knowledge.linking import link_text

    mode = mode_of(MODES, context, options)
    linker = mode.linker()
    stats = link_text(paths, linker, out, format=with_column(text_format, column, None))
    typer.echo(
        f"{out}: {stats.mentions:,} mentions of {stats.entities:,} entities in {stats.sentences:,} of {stats.read:,} sentences"
        f"{mode.remark(linker)}"
    )
    suggest("cloze", "corpus", "build", *paths, "--annotate", f"entity=mentions:{out}", "--out", "STORE")
