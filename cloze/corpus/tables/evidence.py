"""Blocks of text in which answers are looked for: their tokens, and the vectors by which they are retrieved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count
from cloze.corpus.readers.text_files import lines
from cloze.corpus.stores.store import Store
from cloze.corpus.tables.look_up import LookUp
from cloze.errors import CorpusError, RecipeError
from cloze.registry import register
from cloze.text import Tokenizer

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


@register("table", "evidence")
class Evidence(LookUp):
    """Blocks of text, one per line of `file`, with their vectors (ORQA: Lee et al., 2019; orqa/predict/encode_blocks.py).

    The checkpoint that the recipe's network `network` starts from makes the vectors, once: its encoder of blocks is not trained
    further, as in the authors' code. A question is compared with the `top` nearest blocks, of which it is read together with
    the `read` nearest; a row of both has at most `length` tokens.

    Differs: the nearest blocks are found by comparing all, not by an index that leaves some out (the authors' ScaNN).
    """

    has_weights: ClassVar[bool] = False

    def __init__(
        self, *, file: str | None = None, network: str = "query", top: Count = 5000, read: Count = 5, length: Count = 320
    ) -> None:
        if read > top:
            raise RecipeError(f"tables: evidence: read is {read}; expected at most {top}, the number of nearest blocks (top).")
        self.file, self.network, self.top, self.read, self.length = file, network, top, read, length

    @property
    def encoded_by(self) -> str:
        """The network whose checkpoint makes the vectors of blocks; `bind` is given a function that does."""
        return self.network

    def bind(self, store: Store, encode: Encode) -> BoundEvidence:
        """The blocks as a store's tokenizer reads them, and their vectors."""
        if self.file is None:
            raise RecipeError("tables: evidence: no file. Give one with a block of text per line: --bind NAME=FILE")
        blocks = [line for line in lines(self.file) if line.text.strip()]
        if not blocks:
            raise CorpusError(f"{self.file}: has no text; expected a block of text per line.")
        texts = [block.text.strip() for block in blocks]
        return BoundEvidence.of(
            texts, [block.number for block in blocks], store.tokenizer(), encode(texts),
            settings=EvidenceSettings(min(self.top, len(texts)), min(self.read, len(texts)), self.length),
        )

    @staticmethod
    def restored(arrays: Mapping[str, NDArray[Any]]) -> BoundEvidence:
        """The bound table from `BoundEvidence.arrays`. Raises `CorpusError` for any other arrays."""
        if arrays.keys() != set(_ARRAYS) or len(arrays["vectors"]) != len(arrays["lines"]):
            raise CorpusError(f"evidence: expected the arrays {', '.join(_ARRAYS)}. The file is damaged: copy it again.")
        return BoundEvidence(**arrays)


_ARRAYS = ("tokens", "places", "offsets", "characters", "ends", "lines", "vectors", "settings")


class EvidenceSettings(NamedTuple):
    """How many blocks are compared with a question, how many are read, and the most tokens of a row."""

    top: int
    read: int
    length: int


class BoundEvidence:
    """N blocks. `size` is N.

    `tokens` (T,) are those of all blocks, block n from `offsets[n]` to `offsets[n + 1]`; `places` (T, 2) the first character of
    each token in its block and the one after it. `characters` are the bytes of all texts in UTF-8, those of block n until
    `ends[n]`. `lines` (N,) are the lines of the file, `matrix` (N, D) float32 their vectors. `settings` is a `EvidenceSettings`.
    """

    def __init__(self, **arrays: NDArray[Any]) -> None:
        self.arrays = {name: arrays[name] for name in _ARRAYS}
        self.tokens, self.places = arrays["tokens"].astype(np.int64), arrays["places"].astype(np.int64)
        self.offsets, self.lines = arrays["offsets"].astype(np.int64), arrays["lines"].astype(np.int64)
        self.matrix = arrays["vectors"].astype(np.float32)
        self.settings = EvidenceSettings(*map(int, arrays["settings"]))
        self.size = len(self.lines)

    @classmethod
    def of(
        cls, texts: Sequence[str], numbers: Sequence[int], tokenizer: Tokenizer, vectors: NDArray[np.float32], *,
        settings: EvidenceSettings,
    ) -> BoundEvidence:
        """Blocks with these line `numbers` as a tokenizer reads them."""
        spelled = tokenizer.encode_spelled(texts)
        encoded = [text.encode("utf-8", "surrogateescape") for text in texts]
        return cls(
            tokens=spelled.ids, places=np.stack([spelled.begin, spelled.end], axis=1), offsets=spelled.offsets,
            characters=np.frombuffer(bytearray().join(encoded), np.uint8), ends=np.cumsum([len(text) for text in encoded]),
            lines=np.array(numbers), vectors=vectors, settings=np.array(settings),
        )

    def text(self, block: int) -> str:
        """The text of a block."""
        begin = int(self.arrays["ends"][block - 1]) if block else 0
        characters: bytes = self.arrays["characters"][begin : int(self.arrays["ends"][block])].tobytes()
        return characters.decode("utf-8", "surrogateescape")

    def rows(self, blocks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The tokens of blocks (R,) as rows (R, L), -1 behind their ends, and how many each has (R,)."""
        begin, count = self.offsets[blocks], self.offsets[blocks + 1] - self.offsets[blocks]
        columns = np.arange(max(int(count.max(initial=0)), 1))
        index = np.minimum(begin[:, None] + columns, max(len(self.tokens) - 1, 0))
        inside = columns < count[:, None]
        return np.where(inside, self.tokens[index] if len(self.tokens) else -1, -1), count
