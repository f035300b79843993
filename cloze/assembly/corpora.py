"""What a person names as a corpus → a token store and its tokenizer: opened where it is one, built where it is text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cloze.assembly.recipe import Recipe, TextSpec
from cloze.corpus import Store
from cloze.corpus.build import Progress, build_store, train_tokenizer_from
from cloze.errors import CorpusError, RecipeError
from cloze.text import Annotations, Tokenizer
from cloze.text import TextSpec as Trainable
from cloze.text.segment import segmenter_of

Say = Callable[[str], None]


def open_corpus(
    recipe: Recipe, paths: Sequence[str], folder: Path, *, source: str | None = None,
    tokenizer: Tokenizer | Path | str | None = None, text_format: str = "auto", seed: int = 0,
    report: Say = lambda line: None, progress: Progress = lambda done, total: None,
) -> tuple[Store, Tokenizer]:
    """The store behind `paths`, and its tokenizer.

    One path that is a store is opened, and must have been built with `tokenizer` if that is given. Text is built into
    `folder/store`, with `tokenizer` or with one that is trained on the text as the recipe says; a store that stands there
    already is taken up again, so that a run resumes without reading the text.
    """
    if not paths:
        raise CorpusError("no corpus: give text files, folders or a token store with --corpus PATH.")
    given = Tokenizer.load(Path(tokenizer)) if isinstance(tokenizer, (str, Path)) else tokenizer
    whose = str(tokenizer) if isinstance(tokenizer, (str, Path)) else "the recipe's first source"
    annotations = Annotations.of(text_of(recipe)) if "main" in recipe.texts else Annotations()
    built = folder / "store"
    for path in ([Path(paths[0])] if len(paths) == 1 else []) + [built]:
        if Store.is_store(path):
            store = Store.open(path)
            if given is not None:
                store.require_tokenizer(given.hash, whose=whose)
            store.require_annotations(annotations, whose=recipe.name)
            return store, store.tokenizer()
    spec = recipe.sources[source or next(iter(recipe.sources))]
    text_format = "pairs" if spec.name == "pairs" else text_format
    mixed = spec.arguments.get("languages")  # an exponent: the text lies in a folder per language
    languages = mixed is not None and text_format != "pairs"
    smooth = mixed.get("smooth", 1.0) if isinstance(mixed, Mapping) else 1.0
    chosen = given or train_tokenizer_from(
        list(paths), trainable(text_of(recipe)), format=text_format, languages=languages, smooth=smooth, seed=seed,
        report=report,
    )
    folder.mkdir(parents=True, exist_ok=True)
    store = build_store(
        list(paths), chosen, built, format=text_format, languages=languages, annotations=annotations, report=report,
        progress=progress,
    )
    return store, chosen


def text_of(recipe: Recipe) -> TextSpec:
    """The recipe's text: how strings become tokens."""
    if "main" not in recipe.texts:
        raise RecipeError(
            f"{recipe.name}: says nothing of its text, so no tokenizer can be trained.\n"
            "  Write `text: {tokenizer: {wordpiece: {size: 30522}}}`, or give --tokenizer DIR."
        )
    return recipe.texts["main"]


def trainable(text: TextSpec) -> Trainable:
    """The recipe's text as the text package trains it."""
    return Trainable.of(text.normalise, text.tokenizer.name, text.tokenizer.arguments, segmenter_of(text))
