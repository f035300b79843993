"""`cloze corpus build CAPTIONS --items NAME=FILE`: texts with the items of their pictures into a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloze.errors import CorpusError, Phrase, spelled_by


def parse_items(options: Sequence[str]) -> dict[str, str]:
    """The file of every `--items NAME=FILE`, by name; any other form is a `CorpusError`."""
    files: dict[str, str] = {}
    for option in options:
        name, equals, path = option.partition("=")
        if not equals or not path or not name.isidentifier() or name in files:
            raise CorpusError(f"--items {option}: expected NAME=FILE, such as regions=features.npz, and each name once.")
        files[name] = path
    return files


def _as_options(phrase: Phrase) -> str | None:
    """How a phrase about a table is written with the options of this command."""
    name = phrase.parameter.key
    if name in ("text", "format"):
        return phrase.naming(replace(phrase.parameter, style="option"))
    return {"columns": "", "quoting": "Quote the cells that hold one."}.get(name)


def column_of(path: str, column: str | None, text_format: Any) -> str:
    """The column with the texts: the one that the user names, else `caption` where the file has it, else `text`."""
    from cloze.corpus.readers.labelled import names_of

    if column is not None or not Path(path).is_file():
        return column or "text"
    return "caption" if "caption" in names_of(path, format=text_format) else "text"


def build_items(
    paths: Sequence[str], out: Path, files: Mapping[str, str], *, column: str | None, picture: str, seconds: float,
    text_format: str, tokenizer: Path | None, recipe: str, size: int | None, seed: int, say: Any,
) -> Any:
    """Encode captions with a tokenizer, or with one that is trained on them as `recipe` specifies, and copy their items."""
    from cloze.corpus.items import read_pictures
    from cloze.corpus.items.item_writer import END, START
    from cloze.corpus.readers.labelled import as_format, names_of
    from cloze.corpus.records import Records
    from cloze.recipe.load import load_recipe
    from cloze.runs.corpora import text_of, trainable
    from cloze.text import Tokenizer, train

    with spelled_by(_as_options):
        for path in files.values():  # a file that is missing or is none of items is refused before the captions are read
            read_pictures(path)
        format = as_format(None if text_format == "auto" else text_format)
        timed = {START, END} <= set(names_of(paths[0], format=format)) if Path(paths[0]).is_file() else False
        source = Records(
            text=column_of(paths[0], column, format), answer=_answer(load_recipe(recipe), paths[0]), format=format,
            items={name: [] for name in files}, item_files=dict(files), picture=picture, seconds=seconds if timed else None,
        )
        if tokenizer is not None:
            text_tokenizer = Tokenizer.load(tokenizer)
        else:
            texts = (record.texts[0] for path in paths for record in source.answer.read(path, source.columns))
            text_tokenizer = train(trainable(text_of(load_recipe(recipe))), texts, size=size, seed=seed, report=say)
        return source.build_store(paths, text_tokenizer, out, base=None, report=say)


def _answer(recipe: Any, path: str) -> str:
    """The kind of the answers: `class_or_none` for a recipe that reads it, such as LXMERT, and a file with labels; else none."""
    from cloze.corpus.readers.objects import fields_of, holds_objects
    from cloze.recipe.recipe import PartSpec

    answers = [part.arguments.get("answer") for part in recipe.sources.values()]
    kinds = {answer.name if isinstance(answer, PartSpec) else answer for answer in answers}
    labelled = "class_or_none" in kinds and holds_objects(path) and "label" in fields_of(path)
    return "class_or_none" if labelled else "none"
