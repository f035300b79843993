"""`cloze corpus`: text files into a token store, and a look at text before that."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloze.text import Tokenizer

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Text files into token stores.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
Paths = Annotated[
    list[str], typer.Argument(help="Text files, folders, globs, - for standard input, or python-docs.", show_default=False)
]
Format = Annotated[
    str, typer.Option("--format", help="blank, book, line, sentence, wiki, jsonl or parquet; default: detected by file.")
]


@app.command()
def build(
    paths: Paths,
    out: Annotated[Path, typer.Option(help="The store to make.")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="A folder with a tokenizer: a checkpoint, a store's tokenizer/, any HF folder.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Train a tokenizer as this recipe says; default without --tokenizer: bert.")
    ] = None,
    size: Annotated[int | None, typer.Option(min=8, help="Size of the vocabulary to train; default: the recipe's.")] = None,
    text_format: Format = "auto",
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one per core.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sample that the tokenizer is trained on.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Encode text into a store that any recipe with the same tokenizer can use."""
    from cloze.corpus.build import build_store
    from cloze.corpus.check import as_json as to_json
    from cloze.errors import CorpusError

    if tokenizer is not None and (recipe is not None or size is not None):
        raise CorpusError("--tokenizer is a finished tokenizer: leave out --recipe and --size, or leave out --tokenizer.")
    say = (lambda line: None) if as_json else typer.echo
    started = time.perf_counter()
    chosen = _tokenizer(paths, tokenizer, recipe or "bert", size, text_format, seed, say)
    encoding = time.perf_counter()
    store = build_store(
        paths, chosen, out, format=text_format, workers=workers, report=say, progress=_progress(encoding)
    )
    if as_json:
        typer.echo(to_json(dict(store.report)))
        return
    seconds = time.perf_counter() - encoding
    speed = store.report["bytes"] / 1e6 / max(seconds, 1e-9)
    typer.echo(f"{out}: built in {time.perf_counter() - started:.1f} s, encoding {speed:.1f} MB/s")


@app.command()
def check(
    paths: Paths,
    text_format: Format = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what is odd in a corpus without building it; of a store, compare every checksum."""
    from cloze.corpus.check import as_json as to_json
    from cloze.corpus.check import check_corpus, check_store
    from cloze.corpus.store import Store

    if len(paths) == 1 and Store.is_store(paths[0]):
        header = check_store(paths[0])
        if as_json:
            typer.echo(to_json(header))
        else:
            typer.echo(
                f"{paths[0]}: a token store, {header['documents']:,} documents, {header['sentences']:,} sentences, "
                f"{header['tokens']:,} tokens, vocabulary {header['vocab_size']:,}; every checksum is right"
            )
        return
    findings = check_corpus(paths, format=text_format)
    typer.echo(to_json(findings.as_dict()) if as_json else "\n".join(findings.lines()))


def _tokenizer(
    paths: list[str], folder: Path | None, recipe: str, size: int | None, text_format: str, seed: int,
    say: Callable[[str], None],
) -> Tokenizer:
    from cloze.corpus.build import train_tokenizer_from
    from cloze.text import Tokenizer

    if folder is not None:
        return Tokenizer.load(folder)
    from cloze.assembly.corpora import text_of, trainable
    from cloze.assembly.load import load_recipe

    spec = trainable(text_of(load_recipe(recipe)))
    return train_tokenizer_from(paths, spec, format=text_format, size=size, seed=seed, report=say)


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
