"""`cloze corpus`: text files into a token store, and a look at text before that."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloze.cli.hints import suggest
from cloze.cli.shards import Sharded, add_commands

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Text files into token stores.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
Paths = Annotated[
    list[str], typer.Argument(help="Text files, folders, globs, - for standard input, or python-docs.", show_default=False)
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        help="blank, book, line, sentence, wiki, jsonl, csv, tsv or parquet (default: detected per file); or pairs: parallel "
        "text, as a table with two languages in its header or as aligned files such as news.en and news.fr; or triples: facts of "
        "a knowledge graph, head, relation and tail per line.",
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        "--text", help="In tables and JSON lines: the column or key with the text; without a header, its number. Default: text."
    ),
]
Encoding = Annotated[
    str | None, typer.Option("--encoding", help="Encoding of text files: utf-8, gb18030, cp1252, …; default: detected.")
]


Columns = Annotated[
    str | None, typer.Option("--columns", help="With --format triples: the order of the columns, such as head,tail,relation.")
]
Entities = Annotated[
    Path | None, typer.Option(help="With --format triples: the entities, an id per line, after a tab its name or description.")
]
Relations = Annotated[Path | None, typer.Option(help="With --format triples: the relations, written like the entities.")]
Task = Annotated[str | None, typer.Option(help="The text is labelled for this task: sentence_classification, …")]
Values = Annotated[
    list[str] | None, typer.Option("--set", help="With --task, change a value of its recipe: corpus.label=NAME.")
]


@app.command()
def build(
    paths: Paths,
    out: Annotated[Path, typer.Option(help="The store to write.")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="A folder with a tokenizer: a checkpoint, a store's tokenizer/, any HF folder.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Train the tokenizer of this recipe; default without --tokenizer: bert.")
    ] = None,
    size: Annotated[int | None, typer.Option(min=8, help="Size of the vocabulary to train; default: the recipe's.")] = None,
    text_format: Format = "auto",
    column: Column = None,
    encoding: Encoding = None,
    task: Task = None,
    values: Values = None,
    entities: Entities = None,
    relations: Relations = None,
    columns: Columns = None,
    languages: Annotated[
        bool, typer.Option("--languages", help="The paths are a folder or file per language, or one folder of these.")
    ] = False,
    smooth: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="With --languages: exponent of their shares in the tokenizer's sample.")
    ] = 0.7,
    words: Annotated[
        str | None,
        typer.Option(help="Word segmenter: jieba or dictionary, also with your own list (jieba:FILE); default: the recipe's."),
    ] = None,
    annotate: Annotated[
        list[str] | None,
        typer.Option(
            help="Annotate the text: NAME=PART or NAME=PART:FILE, for example entity=mentions:links.jsonl; NAME=FILE marks the "
            "entries of a list. Default: the recipe's."
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one per core.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sample that the tokenizer is trained on.")] = 0,
    shard: Annotated[
        str | None,
        typer.Option(help="Build shards of at most this many tokens, such as 256M (2^28); a build that was stopped goes on."),
    ] = None,
    on: Annotated[
        str | None, typer.Option(help="With --shard, where to build: local, ray, ray://HOST:PORT or dask://HOST:PORT.")
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(help="With --shard, build only part I of N; afterwards `cloze corpus join STORE`.", metavar="I/N"),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing store.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print how the first files were read.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Encode text into a store that any recipe with the same tokenizer can use; with --format triples, facts into a graph."""
    from cloze.assembly.shard_building import annotations_of
    from cloze.corpus.build import build_store, train_tokenizer_from
    from cloze.corpus.check import as_json as to_json
    from cloze.corpus.readers.formats import with_column
    from cloze.corpus.readers.not_text import require_apart
    from cloze.errors import CorpusError
    from cloze.text import Tokenizer

    lists = _lists(text_format, entities, relations, columns)
    if text_format == "triples":
        _of_text(tokenizer=tokenizer, recipe=recipe, task=task, words=words, annotate=annotate, text=column)
        _build_graph(paths, out, lists, replace=overwrite, quiet=quiet, as_json=as_json)
        return
    sharded = Sharded(shard, on, part)
    sharded.require_place(out, replace=overwrite, task=task, text_format=text_format, languages=languages)
    require_apart(paths, out)
    if languages and text_format == "pairs":
        raise CorpusError("--format pairs takes the languages from its files. Omit --languages.")
    if task is not None:
        source = _labelled(task, values or [], column, text_format, annotate)
        _build_labelled(paths, out, tokenizer, source, quiet=quiet or as_json)
        return
    _only_with_task(set=values)
    text_format = with_column(text_format, column, encoding)
    if tokenizer is not None and (recipe is not None or size is not None):
        raise CorpusError("--tokenizer gives a trained tokenizer. Omit --recipe and --size, or omit --tokenizer.")
    say = (lambda line: None) if as_json or quiet else typer.echo
    started = time.perf_counter()
    kept = annotations_of(None if tokenizer else recipe or "bert", words, annotate or [])
    known = sharded.tokenizer(out, given=tokenizer)
    if known is not None:
        chosen = Tokenizer.load(known)
    else:
        spec = replace(_trainable(recipe or "bert"), words=kept.words)
        chosen = train_tokenizer_from(
            paths, spec, format=text_format, languages=languages, smooth=smooth, size=size, seed=seed, workers=workers,
            report=say,
        )
    began = time.perf_counter()
    if sharded.tokens is not None:
        named = {"recipe": None if tokenizer else recipe or "bert", "words": words, "annotate": annotate or []}
        store = sharded.build(paths, chosen, out, text_format=text_format, named=named, workers=workers, say=say)
        if store is None:
            return
    else:
        store = build_store(
            paths, chosen, out, format=text_format, languages=languages, annotations=kept, workers=workers, report=say,
            progress=(lambda done, total: None) if quiet else _progress(began),
        )
    if as_json:
        typer.echo(to_json(dict(store.report)))
    elif not quiet:
        _tell(store.report, out, verbose, time.perf_counter() - started, time.perf_counter() - began)
        usual = "quick" if sharded.tokens is None else "bert"
        suggest("cloze", "pretrain", recipe or usual, "--corpus", out, "--budget", "10m", "--out", "RUN")


def _tell(report: Mapping[str, Any], out: Path, verbose: bool, whole: float, encoding: float) -> None:
    """What was built, in how many seconds, and with `verbose` how each file was read."""
    for read in report["files"] if verbose else ():
        typer.echo(f"{read['path']}: read as {read['format']}: {read['why']}")
    speed = report["bytes"] / 1e6 / max(encoding, 1e-9)
    typer.echo(f"{out}: built in {whole:.1f} s, encoding {speed:.1f} MB/s")


add_commands(app)


@app.command()
def check(
    paths: Paths,
    text_format: Format = "auto",
    column: Column = None,
    encoding: Encoding = None,
    task: Task = None,
    values: Values = None,
    entities: Entities = None,
    relations: Relations = None,
    columns: Columns = None,
    against: Annotated[
        list[str] | None,
        typer.Option(help="With --task or --format triples, the training set: also count the texts or triples that it shares."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Report problems in a text before you build a store; for a store, verify every checksum.

    With --task, list every labelled row that cannot be used, with file, line and reason, and exit with code 2 if any. With
    --format triples, report repeated and shared facts and ids that are unknown; exit with code 2 if --against shares any.
    Example: cloze corpus check dev.tsv --task sentence_classification --against train.tsv
    """
    from cloze.corpus.check import as_json as to_json
    from cloze.corpus.check import check_corpus, check_store
    from cloze.corpus.check_pairs import check_pairs
    from cloze.corpus.graph import Graph
    from cloze.corpus.readers.formats import with_column
    from cloze.corpus.store import Store

    if task is not None:
        from cloze.corpus.records import check_records

        source = _labelled(task, values or [], column, text_format)
        checked = check_records(paths, source.answer, source.columns, against=against or [])
        typer.echo(to_json(checked.as_dict()) if as_json else "\n".join(checked.lines()))
        raise typer.Exit(2 if checked.unusable else 0)
    if len(paths) == 1 and Graph.is_graph(paths[0]):
        text_format = "triples"
    lists = _lists(text_format, entities, relations, columns)
    if text_format == "triples":
        from cloze.corpus.check_triples import check_triples

        facts = check_triples(paths, against=against or [], **lists)
        typer.echo(to_json(facts.as_dict()) if as_json else "\n".join(facts.lines()))
        raise typer.Exit(2 if facts.unusable else 0)
    _only_with_task(against=against, set=values)
    text_format = with_column(text_format, column, encoding)
    if len(paths) == 1 and Store.is_store(paths[0]):
        header = check_store(paths[0])
        if as_json:
            typer.echo(to_json(header))
        else:
            typer.echo(
                f"{paths[0]}: a token store, {header['documents']:,} documents, {header['sentences']:,} sentences, "
                f"{header['tokens']:,} tokens, vocabulary {header['vocab_size']:,}; every checksum matches"
            )
        return
    findings = check_pairs(paths) if text_format == "pairs" else check_corpus(paths, format=text_format)
    typer.echo(to_json(findings.as_dict()) if as_json else "\n".join(findings.lines()))


def _build_graph(paths: list[str], out: Path, lists: dict[str, Any], *, replace: bool, quiet: bool, as_json: bool) -> None:
    """Read triples into a graph, which `cloze pretrain transe --corpus GRAPH` takes."""
    from cloze.corpus.check import as_json as to_json
    from cloze.corpus.graph import Graph, check_out
    from cloze.corpus.readers.triples import read_graph
    from cloze.corpus.triples import described

    check_out(out, replace=replace)
    graph = read_graph(paths, **lists)
    graph.save(out)
    if as_json:
        typer.echo(to_json(dict(Graph.open(out).report)))
        return
    if not quiet:
        for read in graph.report.get("files", ()):
            if read["said"]:
                typer.echo(f"{read['path']}: {read['said']}")
        typer.echo(f"{out}: {described(graph)}")
        suggest("cloze", "pretrain", "transe", "--corpus", out, "--out", "KG")


def _lists(text_format: str, entities: Path | None, relations: Path | None, columns: str | None) -> dict[str, Any]:
    """The options that say how triples are read."""
    from cloze.errors import CorpusError

    given = {"entities": entities, "relations": relations, "columns": columns}
    for name, value in given.items():
        if value is not None and text_format != "triples":
            raise CorpusError(f"--{name} is for facts of a knowledge graph: add --format triples.")
    return {**given, "columns": None if columns is None else columns.split(",")}


def _of_text(**given: Any) -> None:
    from cloze.errors import CorpusError

    for name, value in given.items():
        if value:
            raise CorpusError(f"--{name} is for text; --format triples reads ids. Omit it.")


def _build_labelled(paths: list[str], out: Path, tokenizer: Path | None, source: Any, *, quiet: bool) -> None:
    """Encode labelled text into a store, which `cloze finetune --train STORE` takes."""
    from cloze.errors import CorpusError
    from cloze.text import Tokenizer

    if tokenizer is None:
        raise CorpusError("--task: labelled text is read with the tokenizer of a checkpoint. Name it: --tokenizer FOLDER.")
    store = source.build_store(
        paths, Tokenizer.load(tokenizer), out, known=None, report=(lambda line: None) if quiet else typer.echo
    )
    if not quiet:
        typer.echo(f"{out}: {store.documents:,} rows")
        suggest("cloze", "finetune", tokenizer, "--train", out, "--dev", "DEV.tsv", "--out", "TUNED")


def _labelled(task: str, values: list[str], column: str | None, text_format: str, annotate: list[str] | None = None) -> Any:
    """The source of labelled text of a task's recipe."""
    from cloze.assembly.annotating import parse_annotators
    from cloze.assembly.given import build
    from cloze.assembly.load import load_sources, task_recipe_names
    from cloze.assembly.parts import builder_of
    from cloze.assembly.recipe import plain
    from cloze.errors import TaskError, nearest

    if task not in task_recipe_names() and not Path(task).is_file():
        raise TaskError(f"--task {task}: unknown task. {nearest(task, task_recipe_names())}")
    own = [f"corpus.text={column}"] if column is not None else []
    own += [f"corpus.format={text_format}"] if text_format != "auto" else []
    sources = load_sources(task, overrides=[*own, *values])
    spec = sources["main" if "main" in sources else next(iter(sources))]
    arguments = plain(spec.arguments)
    if annotate:
        arguments["annotate"] = parse_annotators(annotate)
    return build(builder_of(spec.kind, spec.name), arguments, {})


def _only_with_task(**given: Any) -> None:
    from cloze.errors import CorpusError

    for name, value in given.items():
        if value:
            raise CorpusError(f"--{name} is for labelled text: name the task with --task.")


def _trainable(recipe: str) -> Any:
    from cloze.assembly.corpora import text_of, trainable
    from cloze.assembly.load import load_recipe

    return trainable(text_of(load_recipe(recipe)))


def _progress(started: float) -> Callable[[int, int | None], None]:
    """A line that rewrites itself on a terminal; silent elsewhere."""
    if not sys.stderr.isatty():
        return lambda done, total: None
    last = started

    def show(done: int, total: int | None) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last < 0.2:
            return
        last = now
        share = f" of about {total / 1e6:,.0f} MB" if total else ""
        speed = done / 1e6 / (now - started)
        sys.stderr.write(f"\r\033[K{done / 1e6:,.0f} MB{share}, {speed:.1f} MB/s")
        sys.stderr.flush()

    return show
