"""A table of supersenses: which of a few coarse senses each word of the vocabulary may have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count
from cloze.corpus.readers.wordnet import ENDINGS
from cloze.corpus.stores.store import Store
from cloze.corpus.tables.look_up import LookUp
from cloze.errors import CorpusError, RecipeError, propose
from cloze.registry import register
from cloze.text import Tokenizer
from cloze.text.encodings import decoded

Senses = tuple[str, ...]


@register("table", "senses")
class SupersenseTable(LookUp):
    """The supersenses of words, as in SenseBERT (Levine et al., 2020, §3): noun.animal, verb.motion, …

    file: one lemma per line, a tab, and its supersenses separated by `|`, the most frequent first.
    inflected: `english` also finds lemmas of regular word forms by WordNet's endings: *dogs* has the noun senses of *dog*,
      *walking* the verb senses of *walk*. That reads the part of speech from the names (`noun.animal`); senses with other names
      have no endings. `none`: only words that are listed.
    combine: what a network adds at its input for a word of several senses, the `sum` of their vectors or the `mean`.
    shortest: words of fewer characters have no senses (SenseBERT: 4, because shorter ones are often abbreviations).

    An id of the vocabulary has senses if it spells a whole word; pieces, special tokens and words that are not listed have none.

    Differs: irregular forms (*went*) are found only where the file lists them; WordNet has lists of exceptions.
    """

    usual_size: ClassVar[int] = 45

    def __init__(
        self, *, file: str | None = None, inflected: Literal["english", "none"] = "english",
        combine: Literal["sum", "mean"] = "sum", shortest: Count = 1,
    ) -> None:
        self.file, self.inflected, self.combine, self.shortest = file, inflected, combine, shortest

    def bind(self, store: Store) -> BoundSenses:
        """The senses of a store's vocabulary. Raises `CorpusError` if no word of it has one."""
        if self.file is None:
            raise RecipeError("tables: senses: no file. Name a list of supersenses: --bind senses=PATH")
        by_lemma = read_senses(self.file)
        names = sorted({name for senses in by_lemma.values() for name in senses})
        tokenizer = store.tokenizer()
        by_lemma = _as_read(by_lemma, tokenizer)
        ids = {name: number for number, name in enumerate(names)}
        allowed = np.zeros((tokenizer.size, len(names)), np.bool_)
        first = np.full(tokenizer.size, -1, np.int32)
        for number, word in words_of(tokenizer):
            if len(word) < self.shortest:
                continue
            word_senses = senses_of(word, by_lemma, ENDINGS if self.inflected == "english" else {})
            if word_senses:
                allowed[number, [ids[name] for name in word_senses]] = True
                first[number] = ids[word_senses[0]]
        if not allowed.any():
            raise CorpusError(
                f"{self.file}: has none of the words of {store.path}, which is split into {tokenizer.size:,} pieces.\n"
                "  Give a list in the language of the text, or a larger vocabulary: --set text.tokenizer.size=N"
            )
        return BoundSenses(allowed, first, tuple(names), mean=self.combine == "mean")

    @staticmethod
    def restored(arrays: Mapping[str, NDArray[Any]]) -> BoundSenses:
        """The bound table from `BoundSenses.arrays`. Raises `CorpusError` for any other arrays."""
        allowed, first, names, mean = (arrays.get(name) for name in ("allowed", "first", "names", "mean"))
        if allowed is None or first is None or names is None or mean is None or allowed.ndim != 2:
            raise CorpusError("senses: expected the senses of a vocabulary (V, S). The file is damaged: copy it again.")
        sense_names = tuple(names.astype(np.uint8).tobytes().decode().split("\n"))
        if len(sense_names) != allowed.shape[1] or first.shape != allowed.shape[:1]:
            raise CorpusError("senses: the names do not fit the senses. The file is damaged: copy it again.")
        return BoundSenses(allowed.astype(np.bool_), first.astype(np.int32), sense_names, mean=bool(mean.any()))


class BoundSenses:
    """The senses of a vocabulary: `allowed` (V, S), the id of the `first` one of each word (V,), -1 for none, and their `names`.

    `size` is S. `mixed` (V, S) float32 are the weights with which the input of a network adds the vectors of senses: 1 for each
    allowed one, or with `mean` one over their number.
    """

    def __init__(self, allowed: NDArray[np.bool_], first: NDArray[np.int32], names: Senses, *, mean: bool = False) -> None:
        self.allowed, self.first, self.names, self.mean, self.size = allowed, first, names, mean, len(names)

    @property
    def mixed(self) -> NDArray[np.float32]:
        """The weights (V, S) at the input of a network; zero for words without senses."""
        weights = self.allowed.astype(np.float32)
        return weights / np.maximum(weights.sum(1, keepdims=True), 1) if self.mean else weights

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many senses each id may have, (V,)."""
        return self.allowed.sum(1)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Its complete state, to save with a checkpoint; `SupersenseTable.restored` reads it."""
        return {
            "allowed": self.allowed.astype(np.uint8), "first": self.first, "mean": np.array([self.mean], np.uint8),
            "names": np.frombuffer("\n".join(self.names).encode(), np.uint8).copy(),
        }


def read_senses(file: str) -> dict[str, Senses]:
    """The supersenses of each lemma of a file, in its order. Any other line is a `CorpusError` with its number."""
    path = Path(file).expanduser()
    if path.is_dir():
        raise RecipeError(f"tables: senses: {file}: is a folder, expected a file.")
    if not path.is_file():
        siblings = [sibling.name for sibling in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = propose(path.name, siblings) if siblings else ""
        raise RecipeError(f"tables: senses: {file}: no such file. {hint}".rstrip())
    lines = decoded(path.read_bytes(), file).split("\n")
    by_lemma: dict[str, Senses] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        lemma, rest = (part.strip() for part in line.partition("\t")[::2])
        senses = tuple(dict.fromkeys(name.strip() for name in rest.split("|")))
        if not lemma or not all(senses):
            raise CorpusError(
                f"{file}, line {number}: got {line[:60]!r}, expected a lemma, a tab and its supersenses, such as:\n"
                "  bass\tnoun.animal|noun.artifact"
            )
        by_lemma[lemma] = tuple(dict.fromkeys((*by_lemma.get(lemma, ()), *senses)))
    if not by_lemma:
        raise CorpusError(f"{file}: the list is empty; expected lines such as: bass\tnoun.animal|noun.artifact")
    return by_lemma


def senses_of(word: str, lexicon: Mapping[str, Senses], endings: Mapping[str, Sequence[tuple[str, str]]] = ENDINGS) -> Senses:
    """The senses of a word form: those of the lemmas of its spelling, then those of lemmas with another ending.

    A form at the beginning of a sentence is also looked up in lower case. A doubled consonant before an ending may be single in
    the lemma (*running*).

    >>> lexicon = {"dog": ("noun.animal", "verb.motion"), "run": ("verb.motion",)}
    >>> senses_of("dogs", lexicon), senses_of("running", lexicon), senses_of("went", lexicon)
    (('noun.animal', 'verb.motion'), ('verb.motion',), ())
    """
    spelled = list(dict.fromkeys((word, word.lower())))
    senses = [name for form in spelled for name in lexicon.get(form, ())]
    for part, changes in endings.items():
        for form in spelled:
            for lemma in _lemmas(form, changes):
                senses += [name for name in lexicon.get(lemma, ()) if name.partition(".")[0] == part]
    return tuple(dict.fromkeys(senses))


def _lemmas(form: str, changes: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The possible lemmas of a word form."""
    for ending, instead in changes:
        stem = form.removesuffix(ending)
        if stem == form or len(stem + instead) < 2:
            continue
        yield stem + instead
        if not instead and ending != "s" and stem[-1] == stem[-2]:
            yield stem[:-1]


def words_of(tokenizer: Tokenizer) -> Iterator[tuple[int, str]]:
    """The ordinary ids that spell a whole word, and the words: their text gives the id and nothing else.

    A piece of byte-level BPE must have its leading space: without one it usually stands inside a word.
    """
    ids = tokenizer.ordinary_ids.tolist()
    texts = [tokenizer.decode([number]) for number in ids]
    for number, text, encoded in zip(ids, texts, tokenizer.encode_batch(texts), strict=True):
        is_word = tokenizer.kind != "byte_bpe" or text.startswith(" ")
        if is_word and encoded.ids.tolist() == [number] and text.strip():
            yield number, text.strip()


def _as_read(lexicon: Mapping[str, Senses], tokenizer: Tokenizer) -> dict[str, Senses]:
    """The senses of lemmas as the tokenizer spells them: *Paris* is *paris* where it lower-cases."""
    by_form: dict[str, Senses] = {}
    for lemma, senses in lexicon.items():
        form = tokenizer.normalised(lemma).strip()
        by_form[form] = tuple(dict.fromkeys((*by_form.get(form, ()), *senses)))
    return by_form
