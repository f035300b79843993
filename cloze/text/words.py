"""The tokenizer of whole words: one id per word, in descending order of count, from the whole corpus."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from cloze.bounds import Count
from cloze.errors import CorpusError, RecipeError
from cloze.registry import register
from cloze.text.encoding.counting import ChunkCounter
from cloze.text.encoding.cuts import cuts_inside
from cloze.text.normalise import Normalise
from cloze.text.roles import WORD_LITERALS, check_literals, in_id_order
from cloze.text.tokenizer import Tokenizer

Report = Callable[[str], None]

_TOGETHER = 4096  # chunks normalised in one call


@register("tokenizer", "words")
@dataclass(frozen=True)
class Words:
    """Whole words, as word2vec, GloVe and the recurrent models are trained on; every other word is [UNK].

    min_count: words that are rarer have no id.
    size: how many ids there are in all, the special ones among them (null: one for every word that is frequent enough).
    split: where words end: at white space, or also around every punctuation mark, which is then a word (as BERT cuts), or around
      every character (proteins).
    special: role → literal, ids from 0 in that order; the words follow by falling count, those of equal count by spelling.

    In scripts without spaces a segmenter (`text.words`) sets the words apart first. Without one, give text that is segmented
    already, with `split: whitespace`, or use `cjk_spacing`, which makes a word of every ideograph.

    Differs: word2vec.c counts line ends as the word `</s>` and breaks ties as its sort happens to; counts of the least
    frequent words are low if a corpus has more than four million distinct words (see `ChunkCounter`), as in word2vec.c.
    """

    min_count: Count = 5
    size: Count | None = None
    split: Literal["punctuation", "whitespace", "characters"] = "punctuation"
    special: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if self.min_count < 1:
            raise RecipeError(f"text.tokenizer.words.min_count: {self.min_count}; expected 1 or more.")
        if self.split not in ("punctuation", "whitespace", "characters"):
            raise RecipeError(f"text.tokenizer.words.split: {self.split!r}; expected punctuation, whitespace or characters.")

    def train(self, texts: list[str], normalise: Normalise) -> Tokenizer:
        """Train on texts held in memory."""
        return self.train_on(texts, normalise, lambda line: None)

    def train_on(self, texts: Iterable[str], normalise: Normalise, report: Report) -> Tokenizer:
        """Train on a stream of texts, read once. Raises `CorpusError` if no word is frequent enough."""
        literals = check_literals(WORD_LITERALS if self.special is None else self.special)
        special = in_id_order(literals)
        engine = self._engine(special, literals["[UNK]"], normalise)
        counter = ChunkCounter(marks=self.split == "punctuation", lower=normalise.for_kind("words").lower)
        has_text = False
        for batch in _batches(texts):
            has_text = has_text or any(text.strip() for text in batch)
            counter.add(batch)
        if not has_text:
            raise CorpusError("training a tokenizer: the corpus holds no text; expected at least one line that is not blank.")
        if counter.forgotten:
            report(
                f"the dictionary of words was full: words seen no more than {counter.forgotten} times so far were forgotten, "
                "and counts of rare words may be too low"
            )
        counted = count_words(engine, counter, set(special), self.min_count, by_chunk=self.split != "characters")
        del counter
        counts = counted.frequent
        if not counts:
            raise _nothing_left(counted, self.min_count)
        words = sorted(counts, key=lambda word: (-counts[word], word))
        if self.size is not None:
            if self.size <= len(special):
                raise RecipeError(
                    f"text.tokenizer.words.size: {self.size} leaves no room for words next to {len(special)} special tokens."
                )
            words = words[: self.size - len(special)]
        share = sum(counts[word] for word in words) / counted.total
        report(
            f"the vocabulary has {len(words):,} of {counted.different:,} different words, which make up {100 * share:.2f} % of "
            f"the {counted.total:,} words of the corpus"
        )
        return self.of_words(words, normalise)

    def of_words(self, words: Iterable[str], normalise: Normalise) -> Tokenizer:
        """The tokenizer of a given list of words, distinct and not special: their ids follow the special ones."""
        literals = check_literals(WORD_LITERALS if self.special is None else self.special)
        special = in_id_order(literals)
        engine = self._engine(special, literals["[UNK]"], normalise)
        engine.model = models.WordLevel({piece: i for i, piece in enumerate([*special, *words])}, literals["[UNK]"])
        engine.add_special_tokens(special)
        return Tokenizer(engine.to_str(), literals)

    def _engine(self, special: list[str], unknown: str, normalise: Normalise) -> tokenizers.Tokenizer:
        engine = tokenizers.Tokenizer(models.WordLevel({unknown: 0}, unknown))
        normaliser = normalise.build("words")
        if normaliser is not None:
            engine.normalizer = normaliser
        if self.split == "punctuation":
            engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        elif self.split == "characters":
            each = pre_tokenizers.Split(Regex("."), "isolated")
            engine.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), each])
        else:
            # Plain text must not produce a special token: its spelling between spaces is cut after its first character.
            rests = "|".join(f"{re.escape(literal[0])}(?={re.escape(literal[1:])}\\z)" for literal in special)
            apart = pre_tokenizers.Split(Regex(f"\\A(?:{rests})"), "isolated")
            engine.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), apart])
        return engine


def split_of(tokenizer: Tokenizer) -> Literal["punctuation", "whitespace", "characters"]:
    """Where a tokenizer of words ends them, as `Words.split` says it."""
    before = json.loads(tokenizer.description).get("pre_tokenizer") or {}
    first, *rest = before.get("pretokenizers") or [before]
    if first.get("type") != "WhitespaceSplit":
        return "punctuation"
    return "characters" if any(map(cuts_inside, rest)) else "whitespace"


class Counted(NamedTuple):
    """The words that are frequent enough, with their counts; the number of distinct words and of all, and the most frequent."""

    frequent: dict[str, int]
    different: int
    total: int
    best: tuple[str, int] | None


def count_words(
    engine: tokenizers.Tokenizer, counter: ChunkCounter, special: set[str], least: int, *, by_chunk: bool = True
) -> Counted:
    """Word counts from chunk counts, without keeping the rare words of a large corpus in memory. `by_chunk`: a chunk is one word,
    unless it holds something unusual."""

    def plain(word: str) -> bool:
        # ASCII without control characters is a word already, with its letters folded.
        return by_chunk and word.isascii() and word.isprintable() and word not in special

    held: dict[str, int] = {}  # words that also come from other chunks than scanned ones
    odd: list[tuple[str, int]] = []
    for chunk, count in counter.items():
        word = chunk.decode()
        if not plain(word):
            odd.append((word, count))
            if len(odd) == _TOGETHER:
                _count_odd(engine, odd, held)
                odd.clear()
    _count_odd(engine, odd, held)
    for chunk, count in counter.others():
        word = chunk.decode()
        if plain(word):
            held[word] = held.get(word, 0) + count
    scanned = ((word, count) for chunk, count in counter.scanned() if plain(word := chunk.decode()))
    frequent: dict[str, int] = {}
    different = total = 0
    best: tuple[str, int] | None = None
    for word, count in chain(((word, count + held.pop(word, 0)) for word, count in scanned), _emptying(held)):
        different += 1
        total += count
        if count >= least:
            frequent[word] = count
        if best is None or (-count, word) < (-best[1], best[0]):
            best = word, count
    return Counted(frequent, different, total, best)


def _emptying(held: dict[str, int]) -> Iterator[tuple[str, int]]:
    while held:
        yield held.popitem()


def _count_odd(engine: tokenizers.Tokenizer, odd: list[tuple[str, int]], counts: dict[str, int]) -> None:
    """Count the words of chunks that the normaliser or the pre-tokenizer may change."""
    if not odd:
        return
    # One call for many: offsets tell which chunk a word belongs to. No chunk contains a space.
    text = " ".join(chunk for chunk, _ in odd)
    pieces = tokenizers.PreTokenizedString(text)
    if engine.normalizer is not None:
        pieces.normalize(lambda string: engine.normalizer.normalize(string))
    engine.pre_tokenizer.pre_tokenize(pieces)
    ends, position = [], 0
    for chunk, _ in odd:
        position += len(chunk) + 1
        ends.append(position)
    owner = 0
    for word, (begin, _), _ in pieces.get_splits(offset_referential="original", offset_type="char"):
        while ends[owner] <= begin:
            owner += 1
        counts[word] = counts.get(word, 0) + odd[owner][1]


def _batches(texts: Iterable[str], size: int = 1 << 20) -> Iterator[list[str]]:
    held: list[str] = []
    length = 0
    for text in texts:
        held.append(text)
        length += len(text)
        if length >= size:
            yield held
            held, length = [], 0
    if held:
        yield held


def _nothing_left(counted: Counted, least: int) -> CorpusError:
    if counted.best is None:
        return CorpusError("text.tokenizer.words: the corpus holds no word, only white space and control characters.")
    word, count = counted.best
    return CorpusError(
        f"text.tokenizer.words: no word of the corpus occurs {least} times (min_count): the most frequent of "
        f"{counted.different:,} is {word!r} with {count:,}.\n"
        f"  Use more text, or lower it: --set text.tokenizer.min_count={count}"
    )
