"""Words as the characters that a network reads: bytes of UTF-8 between marks, a fixed number of them per word. No torch.

The numbers are those of ELMo's released models (Peters et al., 2018; allenai/bilm-tf, allenai/allennlp): 0 for a token that
is padding, 1 + byte, then the marks. A 263rd row stands for [MASK] where a text has one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cloze.errors import RecipeError

Characters = NDArray[np.int16]

NOTHING = 0  # what a token that is padding consists of
TEXT_BEGINS, TEXT_ENDS, WORD_BEGINS, WORD_ENDS, PADDING, MASKED = range(257, 263)
ALPHABET = 262  # rows of a table without one for [MASK]

#: Tokens that are no words are one character of their own, between the marks of a word.
_MARKS = {
    **dict.fromkeys(("[BOS]", "[CLS]", "<s>", "<S>"), TEXT_BEGINS),
    **dict.fromkeys(("[EOS]", "[SEP]", "</s>", "</S>"), TEXT_ENDS),
    **dict.fromkeys(("[MASK]", "<mask>"), MASKED),
}
_PADDINGS = ("[PAD]", "<pad>", "")
_UNKNOWN = ("[UNK]", "<unk>", "<UNK>")


def spell(words: Sequence[str], per_word: int = 50) -> Characters:
    """Each word's characters (N, per_word): begin, up to `per_word` - 2 bytes, end, padding.

    >>> spell(["cat"], per_word=7).tolist()
    [[259, 100, 98, 117, 260, 261, 261]]
    """
    if per_word < 3:
        raise RecipeError(f"per_word: {per_word} leaves no room for a byte between two marks; expected at least 3.")
    pieces = [word.encode("utf-8", "replace")[: per_word - 2] for word in words]
    characters = np.full((len(pieces), per_word), PADDING, np.int16)
    sizes = np.fromiter(map(len, pieces), np.int64, len(pieces))
    rows = np.repeat(np.arange(len(pieces)), sizes)
    columns = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + 1
    characters[rows, columns] = np.frombuffer(b"".join(pieces), np.uint8).astype(np.int16) + 1
    characters[:, 0] = WORD_BEGINS
    characters[np.arange(len(pieces)), sizes + 1] = WORD_ENDS
    return characters


def spell_vocabulary(spellings: Sequence[str], per_word: int = 50) -> Characters:
    """The characters of every id (V, per_word); roles such as [BOS] are one mark, padding is nothing.

    [UNK] is spelled as its name: what a network learns of words that its vocabulary left out while it was trained.
    """
    characters = spell(spellings, per_word)
    for number, spelling in enumerate(spellings):
        if spelling in _PADDINGS:
            characters[number] = NOTHING
        elif spelling in _MARKS:
            characters[number] = PADDING
            characters[number, :3] = WORD_BEGINS, _MARKS[spelling], WORD_ENDS
    return characters


def mask_ids(spellings: Sequence[str] | None) -> list[int]:
    """The ids of [MASK]; none where spellings are not known."""
    return [number for number, spelling in enumerate(spellings or ()) if _MARKS.get(spelling) == MASKED]


def unknown_id(spellings: Sequence[str] | None) -> int:
    """The id that stands for every word without one; 1, as tokenizers of words number it, where spellings are not known."""
    return next((number for number, spelling in enumerate(spellings or ()) if spelling in _UNKNOWN), 1)


def trigrams(characters: NDArray[np.integer], base: int = MASKED + 1) -> NDArray[np.int64]:
    """The runs of three characters of each word, its marks included, as numbers (N, C - 2); -1 where there is no character."""
    ids = np.asarray(characters, np.int64)
    first, second, third = ids[:, :-2], ids[:, 1:-1], ids[:, 2:]
    real = (first != NOTHING) & (third != PADDING) & (third != NOTHING) & (second != PADDING)
    return np.where(real, (first * base + second) * base + third, -1)
