"""`cloze vocab`: how well the vocabulary of a checkpoint fits a text, and which words to add to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.options import Overwrite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloze.text.vocabularies.vocabulary import Fit

app = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True,
    help="Measure how well a vocabulary fits a text, and find words to add to it.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
Corpus = Annotated[list[str], typer.Option("--corpus", help="Text files or folders; repeatable.", show_default=False)]
Format = Annotated[str, typer.Option("--format", help="As for `cloze corpus build`; default: detected per file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def fit(
    tokenizers: Annotated[list[Path], typer.Argument(help="Checkpoints or folders of tokenizers.", show_default=False)],
    corpus: Corpus,
    text_format: Format = "auto",
    as_json: Json = False,
) -> None:
    """Print tokens per word, bytes per token and unknown tokens of a text, for each vocabulary.

    Example: cloze vocab fit BERT RUN --corpus papers.txt
    """
    from cloze.budget.fit_text import sample_text
    from cloze.text import Tokenizer
    from cloze.text.vocabularies.costs import costs_of
    from cloze.text.vocabularies.vocabulary import fit_of

    rows = {str(f): fit_of(Tokenizer.load(f), _texts(corpus, text_format), counts_words=False) for f in tokenizers}
    if as_json:
        typer.echo(json.dumps({name: _data(figures) for name, figures in rows.items()}, indent=2))
        return
    width = max(map(len, rows))
    typer.echo(f"{'':<{width}}  tokens per word  bytes per token  unknown")
    for name, figures in rows.items():
        unknown = figures.unknown / max(figures.tokens, 1)
        typer.echo(f"{name:<{width}}  {figures.fertility:<15.4f}  {figures.bytes_per_token:<15.3f}  {unknown:.4%}")
    sample = sample_text(corpus, text_format)
    for folder in tokenizers:
        costs = costs_of(sample, Tokenizer.load(folder).normalised)
        if costs.sizeable:
            typer.echo(f"{folder}: {costs}")


@app.command()
def candidates(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint or the folder of a tokenizer.")],
    corpus: Corpus,
    add: Annotated[int, typer.Option(min=1, help="How many words to add.")] = 1000,
    out: Annotated[Path | None, typer.Option(help="Write the tokenizer with these words to this folder.")] = None,
    min_count: Annotated[int, typer.Option(min=1, help="Minimum number of occurrences of a word.")] = 5,
    text_format: Format = "auto",
    as_json: Json = False,
) -> None:
    """Rank the words that would save the most tokens if each were one token; with --out, write a tokenizer that has them.

    Example: cloze vocab candidates BERT --corpus papers.txt --add 2000 --out WORDS. Then continue pre-training with it:
    cloze pretrain bert --init BERT --tokenizer WORDS --corpus papers.txt --budget 1h --out RUN
    """
    from cloze.atomic import require_new, whole_folder
    from cloze.errors import CorpusError
    from cloze.text import Tokenizer
    from cloze.text.vocabularies.vocabulary import extended, fit_of

    if out is not None:
        require_new(out)
    tokenizer = Tokenizer.load(checkpoint)
    before = fit_of(tokenizer, _texts(corpus, text_format))
    entries = before.candidates(min_count=min_count)[:add]
    if not entries:
        raise CorpusError(
            f"{', '.join(corpus)}: every word that occurs at least {min_count} times is already one token of {checkpoint}. Try a "
            "smaller --min-count, or another text."
        )
    new_tokenizer = extended(tokenizer, [entry.word for entry in entries])
    after = fit_of(new_tokenizer, _texts(corpus, text_format), counts_words=False)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with whole_folder(out, new=True) as stage:
            new_tokenizer.save(stage, length=512, frame_single="{A}", frame_pair="{A} {B}")
    if as_json:
        words = [{"word": entry.word, "count": entry.times, "pieces": entry.pieces, "saved": entry.saved} for entry in entries]
        typer.echo(json.dumps({"before": _data(before), "after": _data(after), "words": words}, indent=2, ensure_ascii=False))
        return
    typer.echo("saved     count     pieces  word")
    for entry in entries:
        typer.echo(f"{entry.saved:<8,}  {entry.times:<8,}  {entry.pieces:<6}  {entry.word}")
    typer.echo(
        f"{len(entries):,} words: {before.tokens:,} tokens become {after.tokens:,}; tokens per word {before.fertility:.4f} → "
        f"{after.fertility:.4f}"
    )
    if out is not None:
        typer.echo(f"{out}: a tokenizer with {new_tokenizer.size:,} ids")


@app.command()
def entities(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint.")],
    vectors: Annotated[Path, typer.Option(help="Vectors of words and entities in the same space, such as Wikipedia2Vec's.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    prefix: Annotated[str, typer.Option(help="The prefix of entries that are entities.")] = "ENTITY/",
    as_json: Json = False,
) -> None:
    """Add a token for each entity to a checkpoint, with embeddings mapped from vectors, without training (E-BERT).

    Example: cloze vocab entities BERT --vectors wiki.txt --out E-BERT; cloze fill E-BERT "[ENTITY/Q90] / Paris is in [MASK]."
    """
    from cloze.checkpoint.entity_rows import add_entities

    extension = add_entities(checkpoint, vectors, out, prefix=prefix)
    if as_json:
        typer.echo(json.dumps({"entities": extension.entities, "words": extension.words, "explained": extension.explained}))
        return
    typer.echo(f"{out}: {extension.entities:,} entities; the map was fitted to {extension.words:,} words and explains "
               f"{extension.explained:.1%} of the variance of their embeddings")
    for remark in extension.remarks:
        typer.echo(remark)


@app.command()
def mentions(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint of `cloze vocab entities`.")],
    file: Annotated[Path, typer.Argument(help="Mentions as JSON lines; `cloze link` writes them.")],
    out: Annotated[Path, typer.Option(help="The file to write: a text per line.")],
    reading: Annotated[str, typer.Option("--as", help="concat (`[ENTITY/Q90] / Paris`) or replace (`[ENTITY/Q90]`).")] = "concat",
    prefix: Annotated[str, typer.Option(help="The prefix of entries that are entities.")] = "ENTITY/",
    overwrite: Overwrite = False,
) -> None:
    """Write texts with the tokens of the entities that they mention (E-BERT).

    Example: cloze vocab mentions E-BERT mentions.jsonl --as concat --out text.txt; cloze embed E-BERT --file text.txt
    """
    from cloze.atomic import require_output, whole_file
    from cloze.checkpoint.entity_rows import with_mentions
    from cloze.errors import UserError
    from cloze.text import Tokenizer
    from cloze.text.annotation.mentions import Mentions
    from cloze.text.matching import read_text

    require_output(out, overwrite=overwrite)
    if reading not in ("concat", "replace"):
        raise UserError(f"--as {reading}: expected concat or replace.")
    tokenizer = Tokenizer.load(checkpoint)
    rows = list(Mentions(file=str(file)).records(read_text(str(file), "mentions")))
    lines = [with_mentions(row, tokenizer, reading, prefix=prefix).replace("\n", " ") for row in rows]  # type: ignore[arg-type]
    changed = sum(line != row.text.replace("\n", " ") for line, row in zip(lines, rows, strict=True))
    with whole_file(out) as stage:
        stage.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    typer.echo(f"{out}: {len(lines):,} texts, {changed:,} of them with entities that {checkpoint} knows")


@app.command()
def visual(
    items: Annotated[Path, typer.Argument(help="Items with vectors, as `cloze corpus build --items` reads them.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="A folder with a tokenizer, such as a checkpoint, to which the words are added.")
    ] = None,
    init: Annotated[
        Path | None, typer.Option(help="A checkpoint to write with the words: their embeddings are the centroids.")
    ] = None,
    name: Annotated[str, typer.Option("--set", help="The name of the set of items; words are [NAME/0], [NAME/1], …")] = "frames",
    branches: Annotated[int, typer.Option(min=2, help="Children of each node of the k-means tree.")] = 12,
    levels: Annotated[int, typer.Option(min=1, help="Levels of the tree, which makes branches ** levels words.")] = 4,
    sample: Annotated[int, typer.Option(min=1, help="Fit the tree to at most this many vectors.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Seed of the sample and of the initial centroids.")] = 0,
) -> None:
    """Cluster the vectors of frames into visual words by hierarchical k-means (VideoBERT); --init adds them to a checkpoint.

    Example: cloze vocab visual CLIPS.npz --init BERT --out WORDS; cloze vocab assign WORDS CLIPS.npz --out words.npz
    """
    from cloze.atomic import require_new, whole_folder
    from cloze.checkpoint.visual_rows import add_visual_words, require_width
    from cloze.corpus.items import read_pictures
    from cloze.corpus.items.visual_words import VISUAL_WORDS, VisualWords, sampled
    from cloze.errors import UserError, counted
    from cloze.interop import import_folder
    from cloze.text import Tokenizer
    from cloze.text.visual import with_visual_words

    if not name.isidentifier():
        raise UserError(f"--set {name}: expected a name of letters, digits and underscores, such as frames.")
    if tokenizer is not None and init is not None:
        raise UserError("--tokenizer and --init: the tokenizer is that of the checkpoint. Leave out --tokenizer.")
    require_new(out)
    extended_tokenizer = None if tokenizer is None else with_visual_words(Tokenizer.load(tokenizer), name, branches**levels)
    imported = None if init is None else import_folder(init)
    vectors = sampled(read_pictures(items).pictures, sample, seed)
    if init is not None and imported is not None:
        require_width(init, imported, vectors.shape[1])
    words = VisualWords.fit(vectors, branches=branches, levels=levels, seed=seed)
    if init is not None and imported is not None:
        for remark in add_visual_words(init, imported, words, name, out):
            typer.echo(remark)
    else:
        with whole_folder(out, new=True) as stage:
            words.save(stage / VISUAL_WORDS)
            if extended_tokenizer is not None:
                extended_tokenizer.save(stage, length=512, frame_single="{A}", frame_pair="{A} {B}")
    used = int((words.sizes[-1] > 0).sum())
    typer.echo(
        f"{out}: {counted(words.size, 'visual word')} of {counted(words.levels, 'level')}, made from "
        f"{counted(len(vectors), 'vector')}, of which {used:,} have vectors"
    )
    if init is not None:
        typer.echo(f"{out}: {init} with these words, whose embeddings are the centroids")
    elif extended_tokenizer is not None:
        typer.echo(f"{out}: a tokenizer with {extended_tokenizer.size:,} ids")


@app.command()
def assign(
    words: Annotated[Path, typer.Argument(help="A folder of `cloze vocab visual`.")],
    items: Annotated[Path, typer.Argument(help="Items with vectors.")],
    out: Annotated[Path, typer.Option(help="The .npz to write, with the keys of the pictures and the word of each item.")],
    overwrite: Overwrite = False,
) -> None:
    """Write the visual word of each item, for cloze corpus build CAPTIONS.jsonl --items frames=words.npz …

    Example: cloze vocab assign WORDS CLIPS.npz --out words.npz
    """
    from cloze.atomic import require_output
    from cloze.corpus.items import read_pictures
    from cloze.corpus.items.visual_words import VISUAL_WORDS, VisualWords, write_words
    from cloze.errors import counted

    require_output(out, overwrite=overwrite)
    counts = write_words(read_pictures(items).pictures, VisualWords.load(words / VISUAL_WORDS), out, overwrite=overwrite)
    typer.echo(f"{out}: the words of {counted(counts.items, 'item')} of {counted(counts.pictures, 'picture')}, {counts.words:,} "
               "different ones")


def _texts(corpus: list[str], text_format: str) -> Iterator[str]:
    from cloze.corpus.readers import read_documents

    return (sentence for document in read_documents(corpus, format=text_format) for sentence in document.sentences)


def _data(fit: Fit) -> dict[str, float]:
    return {
        "bytes": fit.bytes, "words": fit.words, "tokens": fit.tokens, "unknown": fit.unknown, "tokens_per_word": fit.fertility,
        "bytes_per_token": fit.bytes_per_token,
    }
