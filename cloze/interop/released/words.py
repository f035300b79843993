"""Vocabularies of released models: which words a tokenizer can find, and where their rows go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cloze.errors import CheckpointError
from cloze.text.normalise import Normalise
from cloze.text.roles import WORD_LITERALS
from cloze.text.tokenizer import Tokenizer
from cloze.text.words import Words
from cloze.untrusted import read_small

Split = str  # "punctuation" or "whitespace", as the tokenizer `words` has it


def tokenizer_of(
    words: Sequence[str], *, split: Split, spelled: Mapping[str, Sequence[str]], lower: bool = False
) -> tuple[Tokenizer, list[int]]:
    """A tokenizer of whole words, and for each of its ids the place of its row in `words`, -1 for a role without one.

    `spelled`: how the released vocabulary may spell a role; the row of the first one that it holds is the role's, which is
    spelled `[UNK]` from then on. Words that occur twice keep their first row. Words that the tokenizer would never find in a text
    (with a space or, where punctuation is split off, a mark in them) get no id.
    """
    rows: dict[str, int] = {}
    for index, word in enumerate(words):
        rows.setdefault(word, index)
    roles = [next((name for name in spelled.get(role, ()) if name in rows), literal) for role, literal in WORD_LITERALS.items()]
    maker = Words(min_count=1, split=split)  # type: ignore[arg-type]  # checked by Words
    empty = maker.of_words([], Normalise(lower=lower))
    ordinary_words = findable(empty, [word for word in rows if word and word not in {*roles, *WORD_LITERALS.values()}])
    return maker.of_words(ordinary_words, Normalise(lower=lower)), [rows.get(name, -1) for name in [*roles, *ordinary_words]]


def findable(tokenizer: Tokenizer, words: Sequence[str]) -> list[str]:
    """Of words that the vocabulary lacks, those that the tokenizer cuts out of a text as one word."""
    candidates = [word for word in words if not (tokenizer.lower and word != word.lower())]
    unknown = tokenizer.role("[UNK]")
    return [
        word for word, encoded in zip(candidates, tokenizer.encode_batch(candidates), strict=True)
        if encoded.ids.tolist() == [unknown]
    ]


def lost(places: Sequence[int], words: Sequence[str], split: Split) -> list[str]:
    """A remark on words that got no id; none if all did."""
    different = set(words)
    missing = len(different) - sum(row >= 0 for row in places)
    if not missing:
        return []
    other = "; text that is tokenised already keeps them: --split whitespace" if split == "punctuation" else ""
    return [f"{missing:,} of {len(different):,} words can never be cut out of a text and were left out{other}."]


def lower_case(words: Sequence[str]) -> bool:
    """Whether no word has a capital letter."""
    return all(word == word.lower() for word in words)


def lines_of(path: Path) -> list[str]:
    """The words of a file, one on each line."""
    try:
        text = read_small(path)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: there is no such file; it belongs to the model: put it into the same folder.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); expected a word on each line, in UTF-8.") from None
    return [line.strip() for line in text.removesuffix("\n").split("\n")]
