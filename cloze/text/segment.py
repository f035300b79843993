"""Word segmentation: where words begin in a script without spaces. Registered under "segmenter"."""

from __future__ import annotations

import hashlib
import json
import warnings
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from cloze.errors import MissingExtra
from cloze.registry import lookup, register
from cloze.text.characters import ideograph
from cloze.text.matching import RUNS, WordList, listing, read_list

#: Stands for the path of the saved list in the arguments of a saved segmenter.
LISTED = "<list>"


class Segmenter(Protocol):
    """A part registered under "segmenter": picklable, with the same result for the same text in every process."""

    @property
    def hash(self) -> str:
        """A hash of everything that decides where words begin."""
        ...

    def segment(self, text: str) -> list[int]:
        """Where the words of a text begin, in characters, ascending. White space belongs to no word."""
        ...

    def saved(self) -> tuple[bytes | None, dict[str, Any]]:
        """The data to rebuild it without the user's files: the content of its list (None: no list), and its arguments, in which
        `LISTED` is the placeholder for the path of that list."""
        ...


def segmenter_of(text: Any) -> Segmenter | None:
    """The segmenter that a recipe's `text` names: anything with `words`, which has `name` and `arguments` or is None."""
    part = text.words
    return None if part is None else lookup("segmenter", part.name)(**part.arguments)


@register("segmenter", "dictionary")
class Dictionary:
    """Bidirectional maximum matching with a list of words; needs no package and no model.

    file: a list with one word per line (a jieba dictionary works).
    built_in: also use cloze's short list of frequent Chinese words.

    Each run of ideographs is read forward and backward; the reading with fewer words wins, then the one with fewer single
    characters, then the backward one. An ideograph, a run of other letters and digits, or a mark that no list contains is a word
    by itself.
    """

    def __init__(self, *, file: str | None = None, built_in: bool = True) -> None:
        self.file = file
        self.built_in = built_in
        words = set(read_list(file, "text.words.dictionary.file")) if file is not None else set()
        if built_in:
            from cloze.text.words_zh import FREQUENT

            words |= FREQUENT
        self._list = WordList(words)

    @cached_property
    def hash(self) -> str:
        """A hash of the words."""
        return hashlib.sha256(f"dictionary:{self._list.hash}".encode()).hexdigest()

    def __contains__(self, word: str) -> bool:
        return word in self._list.words

    def saved(self) -> tuple[bytes | None, dict[str, Any]]:
        """All its words, including the built-in ones."""
        return listing(self._list.words), {"file": LISTED, "built_in": False}

    def segment(self, text: str) -> list[int]:
        """Where the words of a text begin, in characters."""
        starts: list[int] = []
        for match in RUNS.finditer(text):
            run, begin = match.group(), match.start()
            if len(run) == 1 or run.isascii() or not any(map(ideograph, run)):
                starts.append(begin)
            else:
                starts += [begin + offset for offset in self._better(run)]
        return starts

    def _better(self, run: str) -> list[int]:
        forward, backward = self._list.forward(run), self._list.backward(run)
        if forward == backward or len(forward) > len(backward):
            return backward
        if len(forward) < len(backward):
            return forward
        return forward if _singles(forward, len(run)) < _singles(backward, len(run)) else backward


@register("segmenter", "jieba")
class Jieba:
    """The words of the package jieba (extra `chinese`), with its dictionary and its hidden Markov model for unknown words.

    dictionary: a user dictionary in jieba's format (word, frequency, part of speech), added to jieba's own.
    hmm: also recognise words that are in no dictionary.

    Differs: jieba's cache file in the temporary folder is neither read nor written, so that runs are reproducible.
    """

    def __init__(self, *, dictionary: str | None = None, hmm: bool = True) -> None:
        self.dictionary = dictionary
        self.hmm = hmm
        if dictionary is not None:
            read_list(dictionary, "text.words.jieba.dictionary")

    def __reduce__(self) -> tuple[Any, ...]:
        return _jieba, (self.dictionary, self.hmm)

    @cached_property
    def hash(self) -> str:
        """A hash of the version of jieba, the user dictionary and the switch."""
        user = "" if self.dictionary is None else "\n".join(read_list(self.dictionary, "text.words.jieba.dictionary"))
        key = json.dumps(["jieba", _import_jieba().__version__, self.hmm, user], ensure_ascii=False)
        return hashlib.sha256(key.encode()).hexdigest()

    def saved(self) -> tuple[bytes | None, dict[str, Any]]:
        """The user dictionary, without jieba's own: that comes with the package, whose version is part of the hash."""
        if self.dictionary is None:
            return None, {"hmm": self.hmm}
        return Path(self.dictionary).expanduser().read_bytes(), {"dictionary": LISTED, "hmm": self.hmm}

    def segment(self, text: str) -> list[int]:
        """Where the words of a text begin, in characters."""
        starts, position = [], 0
        for word in self._engine.cut(text, HMM=self.hmm):
            if not word.isspace():
                starts.append(position)
            position += len(word)
        return starts

    @cached_property
    def _engine(self) -> Any:
        engine = _import_jieba().Tokenizer()
        engine.FREQ, engine.total = engine.gen_pfdict(engine.get_dict_file())
        engine.initialized = True
        if self.dictionary is not None:
            with open(self.dictionary, "rb") as file:
                engine.load_userdict(file)
        return engine


def _jieba(dictionary: str | None, hmm: bool) -> Jieba:
    return Jieba(dictionary=dictionary, hmm=hmm)


def _import_jieba() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns about its own pkg_resources and old escapes
            import jieba
    except ImportError:
        raise MissingExtra("jieba", "chinese", "segmenting Chinese words with jieba") from None
    return jieba


def _singles(starts: list[int], size: int) -> int:
    """The number of words with one character."""
    ends = [*starts[1:], size]
    return sum(end - start == 1 for start, end in zip(starts, ends, strict=True))
