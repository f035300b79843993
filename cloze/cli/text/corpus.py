"""`cloze corpus`: text files into a token store, and a look at text before that."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from cloze.cli.hints import suggest
from cloze.cli.modes import Mode, class_of, mode_of, takes_options_of
from cloze.cli.options import Encoding
from cloze.cli.text.prepare import pages, sounds
from cloze.cli.text.shards import Sharded, add_commands

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Encode text files into token stores, or check them.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
Paths = Annotated[
    list[str], typer.Argument(help="Text files, folders, globs, - for standard input, or python-docs.", show_default=False)
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        help="blank, book, line, sentence, wiki, jsonl, csv, tsv or parquet (default: detected per file). pairs: parallel text, "
        "a table with two languages in its header or aligned files such as news.en and news.fr. triples: facts of a knowledge "
        "graph, with head, relation and tail in each line.",
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        "--text", help="In tables and JSON lines: the column or key with the text; without a header, its number. Default: text."
    ),
]
TokenizerFolder = Annotated[
    Path | None, typer.Option(help="A folder with a tokenizer: a checkpoint, a store's tokenizer/, any Hugging Face folder.")
]
Recipe = Annotated[
    str | None,
    typer.Option(
        help="Read the text as this recipe's `text` says, and train its tokenizer unless --tokenizer gives one; default without "
        "--tokenizer: bert."
    ),
]
Size = Annotated[int | None, typer.Option(min=8, help="Size of the vocabulary to train; default: the recipe's.")]
Seed = Annotated[int, typer.Option(help="Seed of the sample that the tokenizer is trained on.")]
Annotate = Annotated[
    list[str] | None,
    typer.Option(
        help="Annotate the text: NAME=PART or NAME=PART:FILE, for example entity=mentions:links.jsonl; NAME=FILE marks the "
        "entries of a list; NAME=PART:{file: FILE, ARGUMENT: VALUE} sets arguments. Default: the recipe's annotation."
    ),
]
Against = Annotated[list[str] | None, typer.Option(help="The training set: also count the texts or facts that occur in both.")]


@dataclass(frozen=True, kw_only=True)
class OfTask(Mode):
    """Labelled text, as the recipe of a task reads it."""

    purpose: ClassVar[str] = "labelled text"
    how: ClassVar[str] = "--task NAME"

    task: Annotated[str | None, typer.Option(help="The text is labelled for this task: sentence_classification, …")] = None
    values: Annotated[
        list[str] | None, typer.Option("--set", help="Change a value of the task's recipe: corpus.label=NAME.")
    ] = None
    column: Column = None
    encoding: Encoding = None

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> bool:
        """Whether a task is named."""
        return options["task"] is not None

    def source(self, text_format: str, annotate: list[str] | None = None) -> Any:
        """The source of labelled text of the task's recipe."""
        from cloze.errors import TaskError, propose
        from cloze.recipe.builders import build as build_part
        from cloze.recipe.load import load_sources, task_recipe_names
        from cloze.recipe.parts import builder_of
        from cloze.recipe.recipe import as_plain_data

        task = str(self.task)
        if task not in task_recipe_names() and not Path(task).is_file():
            raise TaskError(f"--task {task}: unknown task. {propose(task, task_recipe_names())}")
        assignments = [f"corpus.text={self.column}"] if self.column is not None else []
        assignments += [f"corpus.format={text_format}"] if text_format != "auto" else []
        sources = load_sources(task, overrides=[*assignments, *(self.values or [])])
        spec = sources["main" if "main" in sources else next(iter(sources))]
        arguments = as_plain_data(spec.arguments)
        if annotate:  # loads torch, which a check needs for nothing else
            from cloze.checkpoint.annotators import parse_annotators

            arguments["annotate"] = parse_annotators(annotate)
        return build_part(builder_of(spec.kind, spec.name), arguments, {})


@dataclass(frozen=True, kw_only=True)
class OfFacts(Mode):
    """Facts of a knowledge graph, and how their files are written."""

    purpose: ClassVar[str] = "facts of a knowledge graph"
    how: ClassVar[str] = "--format triples"

    entities: Annotated[
        Path | None, typer.Option(help="The entities: an id per line, then a tab and its name or description.")
    ] = None
    relations: Annotated[Path | None, typer.Option(help="The relations, in the same format as the entities.")] = None
    columns: Annotated[str | None, typer.Option(help="The order of the columns, such as head,tail,relation.")] = None

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> bool:
        """Whether the files are facts."""
        return bool(options["text_format"] == "triples")

    @property
    def lists(self) -> dict[str, Any]:
        """What the reader of triples is given."""
        columns = None if self.columns is None else self.columns.split(",")
        return {"entities": self.entities, "relations": self.relations, "columns": columns}


@dataclass(frozen=True, kw_only=True)
class Build(Mode):
    """What `cloze corpus build` writes: the options of all kinds of text."""

    text_format: Format = "auto"
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing store.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False

    @abstractmethod
    def run(self, paths: list[str], out: Path) -> None:
        """Write the store or the graph."""


@dataclass(frozen=True, kw_only=True)
class BuildText(Build):
    """Encode text into a store, with a tokenizer that is given or trained."""

    purpose: ClassVar[str] = "running text"

    tokenizer: TokenizerFolder = None
    recipe: Recipe = None
    size: Size = None
    column: Column = None
    encoding: Encoding = None
    languages: Annotated[
        bool, typer.Option("--languages", help="Each path is a folder or file of one language; or one folder holds all of these.")
    ] = False
    smooth: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="With --languages: smoothing exponent of their shares in the tokenizer's sample; default: 0.7."
        ),
    ] = None
    words: Annotated[
        str | None,
        typer.Option(help="Word segmenter: jieba or dictionary, also with your own list (jieba:FILE); default: the recipe's."),
    ] = None
    annotate: Annotate = None
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one per core.")] = None
    seed: Seed = 0
    shard: Annotated[
        str | None,
        typer.Option(help="Build shards of at most this many tokens, such as 256M (2^28). To resume, repeat the command."),
    ] = None
    on: Annotated[
        str | None, typer.Option(help="With --shard, where to build: local, ray, ray://HOST:PORT or dask://HOST:PORT.")
    ] = None
    part: Annotated[
        str | None,
        typer.Option(help="With --shard, build only part I of N; at the end, run `cloze corpus join STORE`.", metavar="I/N"),
    ] = None
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print how the first files were read.")] = False

    def run(self, paths: list[str], out: Path) -> None:
        """Encode the text of some files."""
        from cloze.budget.fit_text import advise_on_build, advise_on_unknown
        from cloze.corpus.checks.check_text import as_json as to_json
        from cloze.corpus.readers.formats import with_column
        from cloze.corpus.readers.not_text import require_apart
        from cloze.corpus.stores.build import build_store, train_tokenizer_from
        from cloze.errors import CorpusError
        from cloze.runs.shard_building import annotations_of
        from cloze.text import Tokenizer

        sharded = Sharded(self.shard, self.on, self.part)
        sharded.require_place(out, replace=self.overwrite, text_format=self.text_format, languages=self.languages)
        require_apart(paths, out)
        if self.languages and self.text_format == "pairs":
            raise CorpusError("--format pairs reads the languages from the names or headers of the files. Omit --languages.")
        if self.smooth is not None and not self.languages:
            raise CorpusError("--smooth needs a folder or file per language. Add --languages, or omit --smooth.")
        text_format = with_column(self.text_format, self.column, self.encoding)
        if self.tokenizer is not None and self.size is not None:
            raise CorpusError("--tokenizer names a trained tokenizer; --size is that of a new one. Omit one or the other.")
        say = (lambda line: None) if self.as_json or self.quiet else typer.echo
        started = time.perf_counter()
        recipe = self.recipe if self.tokenizer else self.recipe or "bert"
        layers = annotations_of(recipe, self.words, self.annotate or [])
        tokenizer_path = sharded.tokenizer(out, path=self.tokenizer)
        if tokenizer_path is not None:
            chosen = Tokenizer.load(tokenizer_path)
        else:
            advise_on_build(self.recipe or "bert", paths, text_format, segmented=layers.words is not None, report=say)
            chosen = train_tokenizer_from(
                paths, replace(_trainable(self.recipe or "bert"), words=layers.words), format=text_format, size=self.size,
                languages=self.languages, smooth=0.7 if self.smooth is None else self.smooth, seed=self.seed,
                workers=self.workers, report=say,
            )
        began = time.perf_counter()
        if sharded.tokens is not None:
            names = {"recipe": recipe, "words": self.words, "annotate": self.annotate or []}
            sharded_store = sharded.build(paths, chosen, out, text_format=text_format, names=names, workers=self.workers, say=say)
            if sharded_store is None:
                return
            store = sharded_store
        else:
            store = build_store(
                paths, chosen, out, format=text_format, languages=self.languages, annotations=layers, workers=self.workers,
                report=say, progress=(lambda done, total: None) if self.quiet else _progress(began),
            )
        if self.as_json:
            typer.echo(to_json(dict(store.report)))
        elif not self.quiet:
            advise_on_unknown(store, chosen, say)
            _tell(store.report, out, self.verbose, time.perf_counter() - started, time.perf_counter() - began)
            usual = self.recipe or ("quick" if sharded.tokens is None else "bert")
            suggest("cloze", "pretrain", usual, "--corpus", out, "--budget", "10m", "--out", "RUN")


@dataclass(frozen=True, kw_only=True)
class BuildLabelled(Build, OfTask):
    """Encode labelled text into a store, which `cloze finetune --train STORE` takes."""

    tokenizer: TokenizerFolder = None
    annotate: Annotate = None

    def run(self, paths: list[str], out: Path) -> None:
        """Encode labelled rows with the tokenizer of a checkpoint."""
        from cloze.corpus.readers.not_text import require_apart
        from cloze.corpus.stores.writer import check_out
        from cloze.errors import CorpusError
        from cloze.text import Tokenizer

        check_out(out, replace=self.overwrite)
        require_apart(paths, out)
        source, quiet = self.source(self.text_format, self.annotate), self.quiet or self.as_json
        if self.tokenizer is None:
            raise CorpusError("--task: labelled text is encoded with the tokenizer of a checkpoint. Give it: --tokenizer FOLDER")
        store = source.build_store(
            paths, Tokenizer.load(self.tokenizer), out, base=None, report=(lambda line: None) if quiet else typer.echo
        )
        if not quiet:
            typer.echo(f"{out}: {store.documents:,} rows")
            suggest("cloze", "finetune", self.tokenizer, "--train", out, "--dev", "DEV.tsv", "--out", "TUNED")


@dataclass(frozen=True, kw_only=True)
class BuildItems(Build):
    """Encode captions with the items of their pictures."""

    purpose: ClassVar[str] = "captions with items of pictures"
    how: ClassVar[str] = "--items NAME=FILE"

    items: Annotated[
        list[str] | None,
        typer.Option(
            help="Items of the pictures of the texts, such as regions=features.npz. The file is a .npz, a .tsv in LXMERT's "
            "format, or a folder of .npz or .npy."
        ),
    ] = None
    picture: Annotated[str, typer.Option(help="With --items: the column or field with the key of the picture.")] = "image"
    seconds: Annotated[
        float, typer.Option(min=0.0, help="With --items, captions with start and end: shorter ones are joined with neighbours.")
    ] = 5.0
    tokenizer: TokenizerFolder = None
    recipe: Recipe = None
    size: Size = None
    column: Column = None
    encoding: Encoding = None
    seed: Seed = 0

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> bool:
        """Whether items are given."""
        return bool(options["items"])

    def run(self, paths: list[str], out: Path) -> None:
        """Encode captions, and copy the items of their pictures."""
        from cloze.cli.text.items import build_items, parse_items
        from cloze.corpus.checks.check_text import as_json as to_json
        from cloze.corpus.readers.not_text import require_apart
        from cloze.corpus.stores.writer import check_out
        from cloze.errors import CorpusError

        files = parse_items(self.items or [])
        check_out(out, replace=self.overwrite)
        require_apart(paths, out)
        if self.tokenizer is not None and (self.recipe is not None or self.size is not None):
            raise CorpusError("--tokenizer names a trained tokenizer; --recipe and --size train one. Omit one or the other.")
        say = (lambda line: None) if self.as_json or self.quiet else typer.echo
        store = build_items(
            paths, out, files, column=self.column, picture=self.picture, seconds=self.seconds, text_format=self.text_format,
            tokenizer=self.tokenizer, recipe=self.recipe or "bert", size=self.size, seed=self.seed, say=say,
        )
        if self.as_json:
            typer.echo(to_json(dict(store.report)))
        elif not self.quiet:
            typer.echo(f"{out}: {store.documents:,} texts with items")


@dataclass(frozen=True, kw_only=True)
class BuildGraph(Build, OfFacts):
    """Read triples into a graph, which `cloze pretrain transe --corpus GRAPH` takes."""

    def run(self, paths: list[str], out: Path) -> None:
        """Read files of facts."""
        from cloze.corpus.checks.check_text import as_json as to_json
        from cloze.corpus.stores.graph import Graph, check_out
        from cloze.knowledge.triple_files import read_graph
        from cloze.knowledge.triples import described

        check_out(out, replace=self.overwrite)
        graph = read_graph(paths, **self.lists)
        graph.save(out)
        if self.as_json:
            typer.echo(to_json(dict(Graph.open(out).report)))
            return
        if not self.quiet:
            for read in graph.report.get("files", ()):
                if read["said"]:
                    typer.echo(f"{read['path']}: {read['said']}")
            typer.echo(f"{out}: {described(graph)}")
            suggest("cloze", "pretrain", "transe", "--corpus", out, "--out", "KG")


@dataclass(frozen=True, kw_only=True)
class Check(Mode):
    """What `cloze corpus check` looks for: the options of all kinds of text."""

    text_format: Format = "auto"
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False

    @abstractmethod
    def run(self, paths: list[str]) -> None:
        """Print what was found."""

    def tell(self, findings: Any) -> None:
        """Print findings as lines, or as JSON."""
        from cloze.corpus.checks.check_text import as_json as to_json

        typer.echo(to_json(findings.as_dict()) if self.as_json else "\n".join(findings.lines()))


@dataclass(frozen=True, kw_only=True)
class CheckText(Check):
    """Problems in text or parallel text; damage of a store."""

    purpose: ClassVar[str] = "running text"

    column: Column = None
    encoding: Encoding = None

    def run(self, paths: list[str]) -> None:
        """Check the text of some files, or the checksums of a store."""
        from cloze.corpus.checks.check_pairs import check_pairs
        from cloze.corpus.checks.check_text import as_json as to_json
        from cloze.corpus.checks.check_text import check_corpus, check_store
        from cloze.corpus.readers.formats import with_column
        from cloze.corpus.stores.store import Store

        text_format = with_column(self.text_format, self.column, self.encoding)
        if len(paths) == 1 and Store.is_store(paths[0]):
            header = check_store(paths[0])
            typer.echo(
                to_json(header) if self.as_json else
                f"{paths[0]}: a token store, {header['documents']:,} documents, {header['sentences']:,} sentences, "
                f"{header['tokens']:,} tokens, vocabulary {header['vocab_size']:,}; every checksum matches"
            )
            return
        self.tell(check_pairs(paths) if text_format == "pairs" else check_corpus(paths, format=text_format))


@dataclass(frozen=True, kw_only=True)
class CheckLabelled(Check, OfTask):
    """Labelled rows that cannot be used."""

    against: Against = None
    tokenizer: Annotated[Path | None, typer.Option(help="The checkpoint: reports targets that it cannot write.")] = None

    def run(self, paths: list[str]) -> None:
        """List the rows; exit code 2 if there are any."""
        from cloze.corpus.records import check_records
        from cloze.text import Tokenizer

        source = self.source(self.text_format)
        tokenizer = None if self.tokenizer is None else Tokenizer.load(self.tokenizer)
        checked = check_records(paths, source.answer, source.columns, against=self.against or [], tokenizer=tokenizer)
        self.tell(checked)
        raise typer.Exit(2 if checked.unusable else 0)


@dataclass(frozen=True, kw_only=True)
class CheckFacts(Check, OfFacts):
    """Repeated and shared facts, and unknown ids."""

    against: Against = None

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> bool:
        """Whether the files are facts, or the path is a graph."""
        from cloze.corpus.stores.graph import Graph

        return super().asked(options) or (len(options["paths"]) == 1 and Graph.is_graph(options["paths"][0]))

    def run(self, paths: list[str]) -> None:
        """Report on facts; exit code 2 if they are shared with the training set."""
        from cloze.knowledge.check_triples import check_triples

        facts = check_triples(paths, against=self.against or [], **self.lists)
        self.tell(facts)
        raise typer.Exit(2 if facts.unusable else 0)


BUILDS: tuple[type[Build], ...] = (BuildGraph, BuildItems, BuildLabelled, BuildText)
CHECKS: tuple[type[Check], ...] = (CheckFacts, CheckLabelled, CheckText)


@takes_options_of(*BUILDS)
def build(
    context: typer.Context, paths: Paths, out: Annotated[Path, typer.Option(help="The store to write.")], **options: Any
) -> None:
    """Encode text into a store that any recipe with the same tokenizer can use; with --format triples, facts into a graph."""
    mode_of(BUILDS, context, options).run(paths, out)


@takes_options_of(*CHECKS)
def check(context: typer.Context, paths: Paths, **options: Any) -> None:
    """Report problems in a text before you build a store; for a store, verify every checksum.

    With --task, list every labelled row that cannot be used, with file, line and reason, and exit with code 2 if any. With
    --format triples, report repeated and shared facts and ids that are unknown; exit with code 2 if --against shares any.
    Example: cloze corpus check dev.tsv --task sentence_classification --against train.tsv
    """
    mode_of(CHECKS, context, options).run(paths)


app.command(cls=class_of(build))(build)
add_commands(app)
app.command(cls=class_of(check))(check)
app.command()(sounds)
app.command()(pages)


def _tell(report: Mapping[str, Any], out: Path, verbose: bool, seconds: float, encoding: float) -> None:
    """What was built, in how many seconds, and with `verbose` how each file was read."""
    for read in report["files"] if verbose else ():
        typer.echo(f"{read['path']}: read as {read['format']}: {read['why']}")
    speed = report["bytes"] / 1e6 / max(encoding, 1e-9)
    typer.echo(f"{out}: built in {seconds:.1f} s, encoding {speed:.1f} MB/s")


def _trainable(recipe: str) -> Any:
    from cloze.recipe.load import load_recipe
    from cloze.runs.corpora import text_of, trainable

    return trainable(text_of(load_recipe(recipe)))


def _progress(started: float) -> Callable[[int, int | None], None]:
    """A line that rewrites itself; silent where lines stay."""
    from cloze.display import choose_display

    display, last = choose_display(), started

    def show(done: int, total: int | None) -> None:
        nonlocal last
        now = time.perf_counter()
        if not display.live or now - last < 0.2:
            return
        last = now
        share = f" of about {total / 1e6:,.0f} MB" if total else ""
        speed = done / 1e6 / (now - started)
        display.show(f"{done / 1e6:,.0f} MB{share}, {speed:.1f} MB/s", done / total if total else None)

    return show
