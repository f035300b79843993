"""A text as the mean of the rows of its words and hashed n-grams: the network of fastText's classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cloze.bounds import NonNegative, Width
from cloze.errors import RecipeError, require_table
from cloze.hashed import Bag, KeptBuckets
from cloze.networks.blocks.inputs.known_vectors import STAND_IN, matrix_of
from cloze.networks.network import Network, StateKind, named_sizes, reading_kinds
from cloze.networks.spelling import WORD_BEGINS
from cloze.registry import Given, register


@register("network", "bag_of_ngrams")
class BagOfNGrams(Network):
    """The mean of the vectors of a text's words, their character n-grams and its word n-grams (Joulin et al., 2017, §2).

    **States.** `summary` (E, D): the mean over all terms of an example, zero for one without any (`model.cc`, `computeHidden`).
    `hidden` (B, L, D): the mean of a word's own row and those of its n-grams; `layers` (1, B, L, D) has nothing else.

    **Terms** are chosen by the recipe's table `ngrams` (`hashed_ngrams`), which also says which n-grams have rows. The role
    `[EOS]` is a word if the tokenizer spells it `</s>`, as fastText does at the end of a line. A word without an id has no row of
    its own, but its n-grams count, and word n-grams contain it (`dictionary.cc`, `addSubwords`).
    Differs: of a word without an id only the first 128 bytes are read, and text that is trained on has all of them spelled
    `[UNK]` in word n-grams; with `min_count: 1` it has none.

    **Start.** Rows are uniform in ±`spread` / width; 1 is fastText's. With `vectors`, the name of a table of the recipe (kind
    `vectors`), words that it knows begin with its vectors and are trained further (`fasttext.cc`, `getInputMatrixFromFile`).

    Parameters: `embeddings.weight` (V + K, D): the words, then the n-grams that are kept.
    """

    sees: ClassVar[Mapping[str, str]] = MappingProxyType({"hidden": "a word sees nothing but itself"})
    sizes = named_sizes("width", tiny=(10,), mini=(20,), small=(50,), medium=(100,), base=(200,), large=(300,))
    looks_up = ("ngrams",)
    begins_with = ("vectors",)
    per_word = 130

    def __init__(
        self, *,
        width: Width,
        ngrams: str = "ngrams",
        vectors: str | None = None,
        spread: NonNegative = 1.0,
        vocab_size: Given[int], spellings: Given[Sequence[str] | None] = None,
        tables: Given[Mapping[str, Any] | None] = None,
    ) -> None:
        super().__init__()
        lookups = {} if tables is None else tables
        require_table("network.bag_of_ngrams.ngrams", ngrams, lookups)
        table = lookups[ngrams]
        self.width, self.vocab_size, self.spread = width, vocab_size, spread
        self.bag = Bag(spellings, table) if spellings is not None and isinstance(table, KeptBuckets) else None
        self.embeddings = nn.Embedding(vocab_size + table.size, width)
        self.takes = self.needs | {"block", "characters"}
        self.gives = {**reading_kinds("itself"), "summary": StateKind("E D", "all")}
        self.known_vectors: Any = None if vectors is None else self._vectors_of(vectors, lookups)
        self.reset_parameters()

    @property
    def token_tables(self) -> dict[str, nn.Embedding]:
        """None that heads may tie to: a word is more than its row."""
        return {}

    @property
    def compressible(self) -> list[nn.Embedding]:
        """The rows of words and n-grams."""
        return [self.embeddings]

    @property
    def layer_state_count(self) -> int:
        """The vectors."""
        return 1

    def depth_groups(self) -> list[nn.Module]:
        """The table."""
        return [self.embeddings]

    def reset_parameters(self) -> None:
        """Redraw every row from torch's generator, but rows that begin with vectors."""
        nn.init.uniform_(self.embeddings.weight, -self.spread / self.width, self.spread / self.width)
        table = self.known_vectors
        if table is not None and not self.embeddings.weight.is_meta:
            with torch.no_grad():
                rows = torch.from_numpy(np.flatnonzero(table.known)).to(self.embeddings.weight.device)
                self.embeddings.weight[rows] = torch.from_numpy(table.matrix[table.known]).to(rows.device)

    def _vectors_of(self, name: str, tables: Mapping[str, Any]) -> Any:
        """The table that rows begin with; None for a stand-in, which knows none."""
        require_table("network.bag_of_ngrams.vectors", name, tables)
        matrix = matrix_of(tables[name])
        if matrix is STAND_IN:
            return None
        if matrix is None or matrix.shape != (self.vocab_size, self.width):
            sizes = "none" if matrix is None else f"{matrix.shape[0]:,} of {matrix.shape[1]} numbers"
            raise RecipeError(
                f"network.bag_of_ngrams.vectors: {name} has vectors: {sizes}; expected {self.vocab_size:,} of {self.width}.\n"
                f"  Say how many numbers its vectors have: --set network.width={0 if matrix is None else matrix.shape[1]}"
            )
        return tables[name]

    def forward(
        self, *, want: frozenset[str], tokens: Tensor, block: Tensor | None = None, characters: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The wanted states of tokens (B, L); `characters` (B, L, C) spell words without an id, zeros elsewhere."""
        states: dict[str, Tensor] = {}
        if want & {"hidden", "layers"}:
            everyone = torch.arange(tokens.numel(), device=tokens.device)
            hidden = self._means(tokens, everyone, torch.ones_like(everyone, dtype=torch.bool), characters, runs=False)
            hidden = hidden.view(*tokens.shape, self.width)
            states |= {name: state for name, state in (("hidden", hidden), ("layers", hidden[None])) if name in want}
        if "summary" in want:
            example, inside, exists = examples_of(tokens, block)
            states["summary"] = self._means(tokens, example, inside, characters, runs=True, count=len(exists))[exists]
        return states

    def _means(
        self, tokens: Tensor, owner: Tensor, inside: Tensor, characters: Tensor | None, *, runs: bool, count: int | None = None
    ) -> Tensor:
        """The mean over the terms of each owner's words, (owners, D)."""
        if self.bag is None:
            raise RecipeError("bag_of_ngrams: needs the words' spellings and a bound table of n-grams, and was built without.")
        bag = self.bag
        ids = tokens.flatten().cpu().numpy()
        positions = np.flatnonzero(bag.spoken[ids] & inside.cpu().numpy())
        owners = owner.cpu().numpy()[positions]
        order = np.argsort(owners, kind="stable")
        positions, owners = positions[order], owners[order]
        rows, of, total = bag.of_texts(ids[positions], owners, self._unseen(characters, ids, positions), runs=runs)
        number = tokens.numel() if count is None else count
        sizes = np.zeros(number, np.int64)
        sizes[: len(total)] = total
        device = tokens.device
        vectors = F.embedding(torch.from_numpy(rows).to(device), self.embeddings.weight)
        sums = vectors.new_zeros(number, self.width).index_add(0, torch.from_numpy(of).to(device), vectors)
        return sums / torch.from_numpy(np.maximum(sizes, 1)).to(sums)[:, None]

    def _unseen(self, characters: Tensor | None, ids: Any, positions: Any) -> dict[int, str]:
        """The spelling of each word that is given in characters, by its place among the kept ones."""
        if characters is None or self.bag is None:
            return {}
        spelled = characters.flatten(0, 1).cpu().numpy()[positions]
        places = np.flatnonzero(self.bag.unknown[ids[positions]] & (spelled[:, 0] == WORD_BEGINS))
        return {int(index): _word(spelled[index]) for index in places}


def examples_of(tokens: Tensor, block: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The number of each token's example (B·L,), counted row by row, whether it is in one (B·L,), and which numbers exist.

    A row has an example, be it empty; the examples of a row are numbered by `block`.
    """
    row = torch.arange(len(tokens), device=tokens.device)[:, None].expand(tokens.shape)
    if block is None:
        return row.flatten(), torch.ones_like(row, dtype=torch.bool).flatten(), torch.ones_like(row[:, 0], dtype=torch.bool)
    several = max(int(block.max()), 1) if block.numel() else 1
    example, inside = (row * several + (block - 1).clamp(min=0)).flatten(), (block > 0).flatten()
    exists = torch.zeros(len(tokens) * several, dtype=torch.bool, device=tokens.device)
    exists[torch.arange(len(tokens), device=tokens.device) * several] = True
    exists[example[inside]] = True
    return example, inside, exists


def _word(characters: Any) -> str:
    """The word that characters spell (`spelling.py`): 1 + byte each, between two marks."""
    codes = characters[(characters > 0) & (characters <= 256)] - 1
    return bytes(codes.tolist()).decode("utf-8", "surrogateescape")
