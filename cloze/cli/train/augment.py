"""`cloze augment`: more labelled rows, in which words are replaced by predicted ones, or by ones of the same part of speech."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cloze.cli.options import Batch, Columns, Device, Encoding, FileFormat, Overwrite, Quoting

if TYPE_CHECKING:
    from cloze.tasks.augmentation import Augmenter


def command(
    file: Annotated[str, typer.Argument(help="Labelled texts: TSV, CSV, JSON lines or Parquet.")],
    out: Annotated[Path, typer.Option(help="The file to write: .tsv, .csv or .jsonl.")],
    with_files: Annotated[list[Path] | None, typer.Option(
        "--with", help="The checkpoint that predicts words; also, repeated, a Python file that registers parts."
    )] = None,
    tags: Annotated[Path | None, typer.Option(
        help="In place of --with: a file with a word, a tab and its part of speech on each line."
    )] = None,
    ngrams: Annotated[float, typer.Option(
        min=0.0, max=1.0, help="The probability that only one to five words of a copy are left."
    )] = 0.0,
    copies: Annotated[int, typer.Option(min=1, help="Copies of each text; duplicates are written once.")] = 20,
    vectors: Annotated[Path | None, typer.Option(
        help="Word vectors, to replace words of several tokens; without them, these words stay."
    )] = None,
    rate: Annotated[float, typer.Option(min=0.0, max=1.0, help="The probability that a word is replaced in a copy.")] = 0.4,
    candidates: Annotated[int, typer.Option(min=1, help="The number of candidates for each word.")] = 15,
    keep: Annotated[Path | None, typer.Option(
        help="A file of words that are never replaced, one per line; default: English function words."
    )] = None,
    text: Annotated[str, typer.Option(help="The column with the text.")] = "text",
    text_b: Annotated[
        str | None, typer.Option("--text-b", help="The column with the second text; default: text_b, if there is one.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal rows.")] = 0,
    encoding: Encoding = None,
    columns: Columns = None,
    file_format: FileFormat = None,
    quoting: Quoting = "auto",
    batch: Batch = 32,
    device: Device = "cpu",
    overwrite: Overwrite = False,
) -> None:
    """Write each labelled row and copies of it with some words replaced, for a student to learn from.

    Examples: cloze augment train.tsv --with BERT --vectors glove.txt --out more.tsv; cloze augment train.tsv --tags pos.tsv
    --rate 0.1 --ngrams 0.25 --out more.tsv. With --with (TinyBERT), a word of one token is replaced by one of the most probable
    tokens in its place, a longer word by one of its nearest neighbours in --vectors; with --tags (Tang et al., 2019), a word is
    replaced by one of the same part of speech, as frequent as in the rows. Labels are copied. If you have a teacher, let it
    label the new rows: cloze predict TEACHER more.tsv --scores. In each copy of a pair, only one of the two texts changes.
    """
    from cloze.atomic import require_output
    from cloze.corpus.readers.labelled import as_format, as_quoting, read_table
    from cloze.corpus.readers.text_files import require_files
    from cloze.errors import TaskError
    from cloze.tasks.augmentation import FindsSlots, TagAugmenter, augmented_rows, format_of, line_of, texts_of
    from cloze.text.annotation.annotators import LexiconAnnotator

    kind = format_of(out)
    require_output(out, overwrite=overwrite)
    if ".conll" in "".join(Path(file).suffixes):
        raise TaskError(f"{file}: labelled words. A replaced word may not have the label of the old one; expected whole texts.")
    _require_one_way(with_files, tags, vectors, keep)
    names = columns.split(",") if columns else None
    table = read_table(file, format=as_format(file_format), columns=names, quoting=as_quoting(quoting))
    second = text_b or ("text_b" if "text_b" in table.columns else None)
    require_files([path for path in (keep, tags) if path is not None])

    from cloze.atomic import whole_file
    from cloze.decoding.progress import DecodingProgress

    text_columns = [text] if second is None else [text, second]
    augmenter: FindsSlots
    if with_files:
        augmenter = _predicting(_checkpoint(with_files), device, vectors, keep, candidates, batch)
    else:
        augmenter = TagAugmenter(LexiconAnnotator(file=str(tags)), texts_of(table, text_columns))
    count = 0
    progress = DecodingProgress(len(table), "rows")
    with progress, whole_file(out) as fresh, open(fresh, "w", encoding="utf-8", newline="") as stream:
        if kind != "jsonl":
            stream.write(line_of(table.columns, table.columns, kind))
        rows = augmented_rows(
            table, augmenter, text_columns, copies=copies, rate=rate, ngrams=ngrams, seed=seed, report=progress
        )
        for row in rows:
            stream.write(line_of(row, table.columns, kind))
            count += 1
    typer.echo(f"{out}: {count:,} rows of {len(table):,}")


def _require_one_way(with_files: list[Path] | None, tags: Path | None, vectors: Path | None, keep: Path | None) -> None:
    """A `UserError` unless words are predicted or have tags, and for options of the other way."""
    from cloze.errors import UserError

    if bool(with_files) == (tags is not None):
        raise UserError("expected --with CHECKPOINT, which predicts words, or --tags FILE, with their parts of speech.")
    if tags is not None and (vectors is not None or keep is not None):
        raise UserError("--vectors and --keep need --with CHECKPOINT. Leave them out, or give --with in place of --tags.")


def _predicting(
    checkpoint: Path, device: str, vectors: Path | None, keep: Path | None, candidates: int, batch: int
) -> Augmenter:
    """What a masked language model predicts."""
    from cloze.checkpoint.build import load_checkpoint
    from cloze.corpus.readers.text_files import lines
    from cloze.decoding.reader_and_head import to_augment
    from cloze.interop.vectors import open_vectors
    from cloze.tasks.augmentation import FUNCTION_WORDS, Augmenter

    kept_words = FUNCTION_WORDS if keep is None else frozenset(word for line in lines(keep) for word in line.text.lower().split())
    reader, head, _ = to_augment(load_checkpoint(checkpoint, device))
    return Augmenter(reader, head, None if vectors is None else open_vectors(vectors), kept_words, candidates, batch)


def _checkpoint(with_files: list[Path]) -> Path:
    """The one folder of --with; Python files are imported."""
    from cloze.errors import UserError
    from cloze.hub import local_folder
    from cloze.recipe.user_files import import_files

    import_files([path for path in with_files if path.suffix == ".py"])
    folders = [path for path in with_files if path.suffix != ".py"]
    if len(folders) != 1:
        raise UserError(f"--with: expected the folder of one checkpoint, got {len(folders)}.")
    return local_folder(folders[0])
