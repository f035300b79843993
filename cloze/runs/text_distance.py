"""How far a text is from what a model has read: pieces per word and bits per byte (`cloze pretrain --plan`, `cloze best --plan`).

Both texts are sampled: that of the user as the fit reads it (`fit_text.sample_text`), and, from a run folder, the documents that
the run held out. Bits are those of passages as the tokenizer gives them back, so that both texts are measured alike and a word
that is [UNK] counts neither as bits nor as bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cloze.budget.fit import fit_vocabulary
from cloze.budget.fit_text import fit_normalisation, is_unspaced
from cloze.checkpoint.build import load_checkpoint
from cloze.checkpoint.inputs import store_digest
from cloze.checkpoint.loaded import Loaded
from cloze.corpus import Store
from cloze.corpus.sources.bound import split_documents
from cloze.decoding.scores.text_figures import BITS, Method, figures_of
from cloze.errors import CorpusError
from cloze.recipe.load import load_recipe
from cloze.rng import permutation
from cloze.runs.corpora import trainable
from cloze.runs.plan import without_tables
from cloze.text import Tokenizer
from cloze.text.vocabularies.training import train
from cloze.text.vocabularies.vocabulary import fit_of
from cloze.training.run import read_run_record

_PASSAGE = re.compile(r"\S(?:.{0,198}\S)?(?!\S)|\S{1,200}")  # of a line, cut at spaces where there are any
_WORK = 5e11  # floating-point operations for the bits of a text: seconds of one core
_MOST, _LEAST = 5_000, 1_000  # bytes of a text whose bits are measured
_READ = 100_000  # tokens of the held-out documents of a run that are looked at
_LEARNED = 0.8  # the share of a sample that a new tokenizer is trained on; its pieces are counted on the rest
_PIECES = frozenset({"wordpiece", "byte_bpe", "bpe", "unigram"})  # kinds of tokenizers that a new one can be compared with
_ENOUGH = 30_000  # characters of a sample; of less, a new tokenizer cannot be judged
# The thresholds of the advice, measured (docs/budgets.md).
UNKNOWN = 0.05  # of the pieces
FOREIGN, WORDS = 0.2, 0.1  # of the pieces, that a new tokenizer saves: another language; words of a domain
NEAR = 1.15  # bits per byte in those of the model's held-out text


@dataclass(frozen=True)
class Measured:
    """A text under a model: pieces per word or character, the share of pieces that are unknown, and bits per byte (None if the
    model gives a text no probability)."""

    pieces: float
    unknown: float
    bits: float | None = None


@dataclass(frozen=True)
class TextDistance:
    """A text next to the held-out text of a run (`held_out`; None if the folder has none). `unit`: what pieces are counted per.
    `method`: how the bits were computed. `fewer`: the share of pieces that a tokenizer trained on the text would save.
    `of_pieces`: the vocabulary is one of pieces, not of whole words, which always lacks some."""

    folder: Path
    unit: str
    text: Measured
    held_out: Measured | None
    method: Method | None
    fewer: float
    of_pieces: bool = True

    @property
    def lines(self) -> list[str]:
        """What `--plan` prints: the figures, and advice where they allow any."""
        text, held_out = self.text, self.held_out
        comparison = "" if held_out is None else f" ({held_out.pieces:.2f} in its held-out text)"
        lines = [
            f"this text under {self.folder}:",
            f"  pieces per {self.unit}: {text.pieces:.2f}{comparison}, {100 * text.unknown:.1f} % of them unknown",
        ]
        if self.method is not None and text.bits is not None:
            comparison = "" if held_out is None or held_out.bits is None else f", {held_out.bits:.2f} on its held-out text"
            lines.append(f"  {BITS[self.method]}: {text.bits:.2f} on a sample of this text{comparison}")
        return lines + [f"  advice: {self.advice}"] * bool(self.advice)

    @property
    def advice(self) -> str:
        """What the figures say about starting from the model; empty if they say nothing."""
        if not self.of_pieces:
            return ""
        fewer = f"a tokenizer trained on this text would need {100 * self.fewer:.0f} % fewer pieces"
        if self.text.unknown >= UNKNOWN:
            return "too much is unknown to this tokenizer; pre-train `quick` on this text instead"
        if self.fewer >= FOREIGN:
            return f"{fewer}; pre-train `quick` on this text instead"
        if self.method is None:
            return ""  # it predicts no tokens, so it is not continued
        if self.fewer >= WORDS:
            return f"continue this model, and add words to its vocabulary (cloze vocab candidates): {fewer}"
        if self.held_out is None or self.held_out.bits is None or self.text.bits is None:
            return ""
        if self.text.bits <= NEAR * self.held_out.bits:
            return "the model has read text like this: it learns little from more of it"
        return "continue this model: at the peak rate of a new one it learns this text better than `quick`, and forgets more"


def text_distance(folder: Path, sample: str, *, text_bytes: int, device: str = "auto") -> TextDistance:
    """Compare a sample of a text of so many bytes with what the model in a folder has read.

    Deterministic; takes seconds of one core, more for a masked language model of a hundred million parameters. Raises a
    `ClozeError` if the folder cannot be opened.
    """
    loaded, passages, read = load_checkpoint(folder, device), passages_of(sample), held_out_passages(folder)
    unspaced = is_unspaced(sample)
    text, method = _measured(loaded, passages, unspaced=unspaced)
    alike = bool(read) and is_unspaced("\n".join(read)) == unspaced
    return TextDistance(
        folder, "character" if unspaced else "word", text, _measured(loaded, read, unspaced=unspaced)[0] if alike else None,
        method, _saved(loaded.tokenizer, sample, passages, text_bytes=text_bytes), loaded.tokenizer.kind in _PIECES,
    )  # fmt: skip


def _saved(tokenizer: Tokenizer, sample: str, passages: Sequence[str], *, text_bytes: int) -> float:
    """The share of pieces that a tokenizer saves that is trained on the text as `quick` would train it; negative if it needs
    more, 0 if the sample is too small to tell."""
    if len(sample) < _ENOUGH:
        return 0.0
    order = permutation(len(passages), 0, "learned").tolist()
    learned, counted = order[: int(_LEARNED * len(order))], order[int(_LEARNED * len(order)) :]
    recipe = load_recipe("quick")
    changes = [*fit_normalisation(recipe, sample), *fit_vocabulary(recipe, text_bytes, sample)]
    spec = load_recipe("quick", overrides=[change.override for change in changes]).texts["main"]
    new = train(trainable(spec), [passages[number] for number in learned])
    now, then = (
        fit_of(candidate, [passages[number] for number in counted], counts_words=False).tokens for candidate in (tokenizer, new)
    )
    return 1.0 - then / max(now, 1)


def passages_of(text: str) -> list[str]:
    """The lines of a text, longer ones cut after at most 200 characters, at spaces where there are any."""
    return _PASSAGE.findall(text)


def held_out_passages(folder: Path) -> list[str]:
    """Passages of the documents that the run in a folder held out; none if the folder holds no run, or no longer its text."""
    record = read_run_record(folder) or {}
    inputs = record.get("inputs") or {}
    apart = inputs.get("held_out")
    name, text = ("held_out", apart) if apart else next(iter((inputs.get("corpus") or {}).items()), ("", None))
    store = None if text is None else _store_of(folder / "cloze" / "corpus" / name / "store", text)
    if store is None:
        return []
    share = float(record["recipe"]["training"]["held_out"])
    held = np.arange(store.documents) if apart else split_documents(store.documents, share)["held_out"]
    return _texts(store, held)


def _store_of(built: Path, text: Mapping[str, Any]) -> Store | None:
    """The store of running text that a run has built or was given, as its record names it; None if it is no longer there."""
    path = next((path for path in (built, *map(Path, text["given"])) if Store.is_store(path)), None)
    try:
        store = None if path is None else Store.open(path)
    except CorpusError:
        return None
    if store is None or store_digest(store) != text["store"]:
        return None
    sample = store.sample
    return sample if type(sample) is Store else None  # labelled text and its like are other classes


def _texts(store: Store, documents: np.ndarray) -> list[str]:
    """The passages of some documents in a random order, from `_READ` tokens or a little more."""
    tokenizer, starts, passages, left = store.tokenizer(), store.document_starts, [], _READ
    for document in documents[permutation(len(documents), 0, "distance")].tolist():
        ids = store.tokens[starts[document] : starts[document + 1]][:left]
        passages += passages_of(tokenizer.decode(ids))
        left -= len(ids)
        if left <= 0:
            break
    return passages


def _measured(loaded: Loaded, passages: Sequence[str], *, unspaced: bool) -> tuple[Measured, Method | None]:
    """The figures of passages, and how the bits were computed."""
    tokenizer: Tokenizer = loaded.tokenizer
    fit = fit_of(tokenizer, passages, counts_words=False)
    units = sum(len("".join(passage.split())) for passage in passages) if unspaced else fit.words
    read = [tokenizer.decode(tokenizer.encode(passage).ids) for passage in drawn(passages, _bytes_for(loaded))]
    figures = figures_of(loaded, [[passage] for passage in read if passage.strip()])
    return Measured(fit.tokens / max(units, 1), fit.unknown / max(fit.tokens, 1), figures.bits_per_byte), figures.method


def drawn(passages: Sequence[str], most: int) -> list[str]:
    """Random passages of about so many bytes."""
    chosen: list[str] = []
    for number in permutation(len(passages), 0, "distance").tolist():
        if most <= 0:
            break
        chosen.append(passages[number])
        most -= len(passages[number].encode("utf-8", "surrogatepass"))
    return chosen


def _bytes_for(loaded: Any) -> int:
    """How many bytes of a text `_WORK` pays for: a masked language model reads a passage once for each of its tokens."""
    parameters = max(without_tables(loaded.network.parameters(), loaded.tokenizer.size), 1)
    return int(min(max(_WORK / (2.0 * parameters * 25 / 4), _LEAST), _MOST))
