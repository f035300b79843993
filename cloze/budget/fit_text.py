"""Fit how a recipe reads text to the text: its normalisation, and a vocabulary with an id for nearly every character.

A recipe that cloze invented keeps marks that are a part of how the text is written, and the case of a text in which lower-casing
changes letters. A published recipe keeps its published normalisation, and the user reads what it costs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from cloze.budget.facts import ChangedValue
from cloze.corpus import Store
from cloze.corpus.readers import read_documents
from cloze.corpus.readers.files import PYTHON_DOCS
from cloze.corpus.readers.pipes import STDIN
from cloze.corpus.stores.build import PAIRS, corpus_files
from cloze.errors import ClozeError, CorpusError, Say
from cloze.recipe.load import load_recipe
from cloze.recipe.parts import class_of
from cloze.recipe.recipe import Recipe, TextSpec
from cloze.text import Normalise, Tokenizer
from cloze.text.characters import EXTENDING, IDEOGRAPHS, UNSPACED, ideograph
from cloze.text.vocabularies.costs import SAMPLE, SIZEABLE, costs_of, covering

_OURS = "cloze's own"  # how `paper` begins in a recipe that cloze invented
_FILES = 16  # of a corpus that are looked into
_TOKENS = SAMPLE // 2  # of a store
WAY = "--set {value}"
_UNSPACED = re.compile(f"[{IDEOGRAPHS}{UNSPACED}{EXTENDING}]+")
_MOSTLY = 0.5  # the share of letters of scripts without spaces from which a text is taken for one of them
_SOME = 0.02  # the share from which such text is worth a word
_CLAUSE = 6  # characters of such a script in a row, on average: words have fewer
_SHOWN = 20  # runs and characters from which an example is taken
_UNKNOWN = 0.01  # the share of [UNK] from which it is worth a line


def sample_for(recipe: Recipe, paths: Sequence[str], text_format: str = "auto") -> str:
    """A sample of the running text at the paths of a recipe's first source; empty if that source reads something else."""
    source = class_of("source", next(iter(recipe.sources.values())).name)
    return "" if source.builds_store else sample_text(paths, source.text_format or text_format)


def sample_text(paths: Sequence[str], text_format: str = "auto") -> str:
    """The beginnings of up to 16 files of a corpus, or of a store; empty if the corpus cannot be read twice or not at all."""
    if len(paths) == 1 and Store.is_store(paths[0]):
        store = Store.open(paths[0])
        return store.tokenizer().decode(store.tokens[:_TOKENS])
    if text_format == PAIRS or any(path in (STDIN, PYTHON_DOCS) for path in paths):
        return ""
    try:
        files = corpus_files(list(paths), text_format)
        chosen = files[:: -(-len(files) // _FILES)]
        return "\n".join(_beginning(file, text_format, SAMPLE // len(chosen)) for file in chosen)
    except ClozeError:
        return ""  # building the store tells the user


def _beginning(file: str, text_format: str, size: int) -> str:
    texts: list[str] = []
    for document in read_documents([file], format=text_format, block_bytes=4 * size, longest=size):
        texts.append(document.text)
        size -= len(document.text)
        if size <= 0:
            break
    return "\n".join(texts)


def normaliser_of(text: TextSpec) -> Callable[[str], str]:
    """What a recipe's text does to a string before it is cut into words."""
    return Normalise.of(text.normalise).applied(text.tokenizer.name)


def fit_normalisation(recipe: Recipe, sample: str) -> Iterator[ChangedValue]:
    """The switches that suit a text, for a recipe that cloze invented; none for a published recipe."""
    if not (recipe.paper or "").startswith(_OURS) or not sample:
        return
    for name, text in recipe.texts.items():
        switches, costs = Normalise.of(text.normalise).for_kind(text.tokenizer.name), costs_of(sample, normaliser_of(text))
        if switches.strip_accents and costs.sizeable:
            yield ChangedValue(f"texts.{name}.normalise.strip_accents", True, False, f"else {costs}")
        if switches.lower and costs.dotted >= SIZEABLE:
            why = f"lower-casing makes i of I, and {100 * costs.dotted:.1f} % of the letters are İ or ı"
            yield ChangedValue(f"texts.{name}.normalise.lower", True, False, why)


def least_vocabulary(text: TextSpec, sample: str) -> int:
    """The smallest vocabulary with an id for nearly every character of a text; half of it is for single characters."""
    return 1000 * -(-2 * covering(sample, normaliser_of(text)) // 1000)


def is_unspaced(text: str, share: float = _MOSTLY) -> bool:
    """Whether a text is mostly (from this `share` of its letters) of scripts without spaces, and has none between its words."""
    letters, runs = sum(map(str.isalpha, text)), _UNSPACED.findall(text)
    unspaced = sum(map(len, runs))
    return unspaced >= share * letters and unspaced > _CLAUSE * len(runs)


def require_words_apart(recipe: Recipe, sample: str) -> None:
    """A `CorpusError` if a tokenizer of whole words would read text in which no spaces stand between words."""
    for name, text in recipe.texts.items():
        normal = normaliser_of(text)(sample) if _reads_words(text) else ""
        if is_unspaced(normal):
            example, ways = _run_and_ways(recipe, name, normal)
            raise CorpusError(
                f"{recipe.name} reads whole words, but this text has no spaces between them: {example!r} would be one.\n"
                f"  {ways}"
            )


def _reads_words(text: TextSpec) -> bool:
    """Whether words are what stands between spaces."""
    return text.tokenizer.name == "words" and text.words is None


def _run_and_ways(recipe: Recipe, name: str, normal: str) -> tuple[str, str]:
    """What would be a word of a normalised text without spaces, and how words come out of it instead."""
    runs = _UNSPACED.findall(normal)
    at = "text" if name == "main" else f"texts.{name}"
    ways = f"Put spaces between the words first, and read them with --set {at}.tokenizer.split=whitespace."
    if sum(map(ideograph, normal)) > sum(map(len, runs)) / 2:
        ways = (
            f"Cut it into words: cloze corpus build TEXT --recipe {recipe.name} --words jieba --out STORE, then --corpus "
            f"STORE\n  Or make a word of every character: --set {at}.normalise.cjk_spacing=true"
        )
    return max(runs[:_SHOWN], key=len)[:_SHOWN], ways


def advise_on_text(recipe: Recipe, sample: str, tokenizer: Tokenizer | None = None, *, way: str = WAY) -> Iterator[str]:
    """What the words and the normalisation of a recipe, or of the tokenizer that takes the place of its own, cost a text. `way`
    says how a value of the recipe is changed."""
    if tokenizer is not None:
        costs = costs_of(sample, tokenizer.normalised)
        if costs.sizeable:
            yield f"advice: with this tokenizer, {costs}."
        return
    for name, text in recipe.texts.items():
        normal = normaliser_of(text)(sample) if _reads_words(text) else ""
        if normal and is_unspaced(normal, _SOME):
            example, ways = _run_and_ways(recipe, name, normal)
            part = f"part of this text has no spaces: {example!r} counts as one word"
            yield f"advice: {recipe.name} reads whole words, and {part}.\n  {ways}"
        at = "text.normalise" if name == "main" else f"texts.{name}.normalise"
        costs = costs_of(sample, normaliser_of(text))
        if costs.sizeable:
            yield f"advice: with {recipe.name}, {costs}.\n  To keep the marks: {way.format(value=f'{at}.strip_accents=false')}"
        if costs.dotted >= SIZEABLE and Normalise.of(text.normalise).lower:
            share = f"{100 * costs.dotted:.1f} %"
            yield (
                f"advice: {recipe.name} lower-cases I to i, but {share} of the letters are İ or ı.\n"
                f"  To keep the case: {way.format(value=f'{at}.lower=false')}"
            )


def advise_on_build(recipe: str, paths: Sequence[str], text_format: str, *, segmented: bool, report: Say) -> None:
    """Report what the normalisation of a recipe costs a text of which a store is built; `segmented`: a segmenter cuts its words.

    Raises `CorpusError` if the recipe cannot read the text as words.
    """
    loaded, sample = load_recipe(recipe), sample_text(paths, text_format)
    if not segmented:
        require_words_apart(loaded, sample)
    way = f"set {{value}} in a recipe of your own (cloze show {recipe} > mine.yaml), and give it with --recipe mine.yaml"
    for line in advise_on_text(loaded, sample, way=way):
        report(line)


def advise_on_unknown(store: Store, tokenizer: Tokenizer, report: Say) -> None:
    """Report how many tokens of a store are [UNK], if they are many, with a way out. For a vocabulary of words that is usual."""
    unknown = tokenizer.roles.get("[UNK]")
    if unknown is None or tokenizer.kind in ("words", "byte_bpe"):
        return
    share = float(store.counts()[unknown]) / max(store.size, 1)
    if share >= _UNKNOWN:
        report(
            f"advice: {100 * share:.1f} % of the tokens are [UNK]: the vocabulary of {tokenizer.size:,} ids lacks characters of "
            "this text.\n  For a larger one: --set text.tokenizer.size=N"
        )
