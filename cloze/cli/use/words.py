"""`cloze words`: the odd one out, classes of words, and vectors fitted to a lexicon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cloze.cli.options import Overwrite

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True,
    help="Find the odd one out or classes of words; retrofit vectors to a lexicon.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
Source = Annotated[Path, typer.Argument(help="A checkpoint, or a file of word2vec, GloVe or fastText, also compressed.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def odd(model: Source, words: Annotated[list[str], typer.Argument(help="Three words or more.")], as_json: Json = False) -> None:
    """Print words with their cosine similarity to the mean of all of them; the first word is the odd one out.

    Example: cloze words odd RUN breakfast cereal dinner lunch
    """
    from cloze.cli.vectors import note_alike, opened, table
    from cloze.decoding.vectors.word_sets import fitting

    vectors = opened(model)
    ranking = fitting(vectors, words)
    note_alike(vectors)
    if as_json:
        print(json.dumps({"odd": ranking[0].word, "words": [word._asdict() for word in ranking]}, indent=2, ensure_ascii=False))
        return
    print(table(ranking))


@app.command("classes")
def classes_of(
    model: Source,
    out: Annotated[Path, typer.Option(help="The file to write: a word and its class per line.")],
    count: Annotated[int, typer.Option(min=1, help="How many classes.")] = 500,
    overwrite: Overwrite = False,
) -> None:
    """Cluster the vectors by k-means and write the class of every word, sorted by class (word2vec's -classes).

    Example: cloze words classes RUN --count 500 --out classes.txt
    """
    from cloze.atomic import require_output, whole_file
    from cloze.cli.vectors import opened
    from cloze.decoding.vectors.word_sets import classes

    require_output(out, overwrite=overwrite)
    vectors = opened(model)
    labels = classes(vectors, count)
    with whole_file(out) as stage, stage.open("w", encoding="utf-8") as stream:
        for row in labels.argsort(kind="stable").tolist():
            stream.write(f"{vectors.words[row]} {labels[row]}\n")
    typer.echo(f"{out}: {len(vectors):,} words in {len(set(labels.tolist())):,} classes")


@app.command()
def retrofit(
    model: Source,
    lexicon: Annotated[str, typer.Option(help="A file with a word and the words related to it per line, also compressed.")],
    out: Annotated[Path, typer.Option(help="The file of vectors to write, word2vec's text; .gz compresses.")],
    passes: Annotated[int, typer.Option(min=1, help="Number of passes over all words.")] = 10,
    normed: Annotated[bool, typer.Option("--normed", help="First give all vectors the length 1, as the authors do.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Move vectors towards those of related words, such as synonyms, and write them (retrofitting, Faruqui et al., 2015).

    Example: cloze words retrofit RUN --lexicon ppdb.txt --out better.vec; cloze neighbours better.vec happy
    """
    from cloze.atomic import require_output
    from cloze.cli.vectors import opened
    from cloze.corpus.readers.text_files import cells_of, lines, require_files
    from cloze.decoding.vectors.word_sets import retrofitted
    from cloze.interop.vectors.text import writable, write_text
    from cloze.interop.vectors.whole import whole_file

    require_output(out, overwrite=overwrite)
    require_files([lexicon])
    entries = (cells for line in lines(lexicon) if (cells := cells_of(line.text)))
    table, moved = retrofitted(opened(model), entries, passes=passes, normed=normed)
    with whole_file(out) as stage:
        remarks = write_text(stage, table, header=True)
    typer.echo(f"{out}: {len(writable(table)):,} vectors, {moved:,} of them moved")
    for remark in remarks:
        typer.echo(remark)
