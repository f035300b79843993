"""A table of the names that texts use for entities: the candidates of each name, and how probable each is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.bounds import Count
from cloze.corpus.readers.text_files import read_all
from cloze.corpus.readers.wordnet import is_sense_index, read_sense_index
from cloze.corpus.stores.store import Store
from cloze.corpus.tables.lexicon import BoundLexicon, Matches
from cloze.corpus.tables.look_up import EntityNumbers, LookUp
from cloze.corpus.tables.vector_table import VectorSource, rows_by_id
from cloze.errors import CorpusError, RecipeError
from cloze.registry import register
from cloze.text.tokenizer import Tokenizer
from cloze.untrusted import parse_json

LONGEST = 16  # tokens of a surface form
NULL, MASK = "@@NULL@@", "@@MASK@@"  # the names of the last two rows of vectors, as in the files of KnowBert's authors


@register("table", "surfaces")
class Surfaces(LookUp):
    """Surface forms, each with its candidates: the entities that it may refer to (KnowBert, Peters et al., 2019, §3.2).

    Args:
        file: One candidate per line, with tabs: surface form, id of an entity, prior. The priors of a surface form are divided by
            their sum; without a prior it is 1. Forms of more than 16 tokens are left out. Or WordNet's `index.sense`: word forms
            with their synsets, whose ids are their offsets, and counts.
        vectors: Vectors whose words are the ids of entities: a run of `transe`, or a file of word2vec, GloVe or fastText. The
            words `@@NULL@@` and `@@MASK@@` stand for no entity and for a hidden one. Entities without a vector get zeros.
        most: How many candidates of a surface form are kept, those with the highest priors.

    `--bind NAME=PATH` gives the file.
    """

    def __init__(self, *, file: str | None = None, vectors: str | None = None, most: Count = 30) -> None:
        if most < 1:
            raise RecipeError(f"surfaces.most: got {most}, expected 1 or more.")
        self.file, self.vectors, self.most = file, vectors, most

    @property
    def opens(self) -> str | None:
        """The vectors that `bind` is given opened, None if there are none."""
        return self.vectors

    def bind(self, store: Store, vectors: VectorSource | None = None) -> BoundSurfaces:
        """The surface forms as the store's tokenizer reads them. Raises `CorpusError` without a file, and for one that does not
        have the form described above."""
        if self.file is None:
            raise CorpusError("tables: surfaces: no file of candidates. Name one: --bind NAME=FILE")
        by_form = read_surfaces(self.file)
        bound = surfaces_of(by_form, store.tokenizer(), most=self.most, matrix_of=lambda names: rows_by_id(vectors, names))
        if bound is None:
            raise CorpusError(
                f"{self.file}: no surface form has 1 to {LONGEST} tokens of {store.path} without [UNK].\n"
                "  Give surface forms in the language of the texts."
            )
        if vectors is not None and bound.matrix is not None and not bound.matrix.any():
            raise CorpusError(
                f"{vectors.place}: no vector for any candidate, such as {[*bound.ids, NULL][0]!r}.\n"
                "  Give vectors and candidates with the same ids."
            )
        return bound.over(store)

    @staticmethod
    def restored(arrays: Mapping[str, NDArray[Any]]) -> BoundSurfaces:
        """The bound table from `BoundSurfaces.arrays`. Raises `CorpusError` for any other arrays."""
        try:
            ids = parse_json(arrays["ids"].tobytes().decode())
            return BoundSurfaces(ids, arrays["grams"], arrays["candidates"], arrays["priors"], arrays.get("matrix"))
        except (KeyError, ValueError, TypeError, UnicodeDecodeError):
            raise CorpusError("surfaces: expected surface forms and candidates. The file is damaged: copy it again.") from None

    @staticmethod
    def over(bound: BoundSurfaces, store: Store) -> BoundSurfaces:
        """The surface forms of a checkpoint, for the layers of another store."""
        return bound.over(store)


class BoundSurfaces(EntityNumbers):
    """Surface forms with ids from 1 on; 0 is none, and the padding.

    Attributes:
        ids: The string id of each entity, in order: entity k has the number k + 1.
        size: The number of surface forms + 1.
        hidden: The id of the hidden surface form, whose only candidate is the hidden entity; it is `size`.
        candidates: The numbers of the candidates of each surface form, (size + 1, C), 0 for none.
        priors: Their prior probabilities, (size + 1, C).
        null: The number of no entity; the next number is that of the hidden entity.
        matrix: The vectors of entities (null + 2, W), float32, row 0 zero; None without vectors.
    """

    def __init__(
        self, ids: Sequence[str], grams: NDArray[np.int32], candidates: NDArray[np.int32], priors: NDArray[np.float32],
        matrix: NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__(ids)
        self.candidates, self.priors, self.matrix = candidates, priors, matrix
        self._forms = BoundLexicon(grams)
        self.size = self.hidden = self._forms.size
        self.null = len(self.ids) + 1

    def match(self, tokens: NDArray[Any], length: NDArray[np.integer]) -> Matches:
        """Every surface form in every row: tokens (B, L), length (B,). They may overlap."""
        return self._forms.match(tokens, length)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Its complete state, to save with a checkpoint; `Surfaces.restored` reads it."""
        ids = np.frombuffer(json.dumps(self.ids, ensure_ascii=False).encode(), np.uint8).copy()
        arrays: dict[str, NDArray[Any]] = {
            "ids": ids, "grams": self._forms.grams, "candidates": self.candidates, "priors": self.priors,
        }
        return arrays if self.matrix is None else {**arrays, "matrix": self.matrix}


def read_surfaces(file: str) -> dict[str, dict[str, float]]:
    """The candidates of every surface form with their priors, as the file gives them. Raises `CorpusError` with the line."""
    text = read_all(Path(file).expanduser())
    if is_sense_index(text):
        return read_sense_index(text, file)
    by_form: dict[str, dict[str, float]] = {}
    for number, row in enumerate(text.split("\n"), 1):
        cells = [cell.strip() for cell in row.rstrip("\r").split("\t")]
        if cells == [""]:
            continue
        try:
            form, identifier, prior = cells[0], cells[1], float(cells[2]) if len(cells) > 2 else 1.0
            well = bool(form and identifier) and len(cells) < 4 and 0 <= prior < float("inf")
        except (IndexError, ValueError):
            well = False
        if not well:
            raise CorpusError(
                f"{file}:{number}: {row.rstrip()[:60]!r}; expected a surface form, the id of an entity and a prior from 0 on, "
                "with a tab between them."
            )
        by_id = by_form.setdefault(form, {})
        by_id[identifier] = by_id.get(identifier, 0.0) + prior
    if not by_form:
        raise CorpusError(f"{file}: no surface forms; expected lines of surface form, id and prior, with tabs between them.")
    return by_form


def surfaces_of(
    by_form: Mapping[str, Mapping[str, float]], tokenizer: Tokenizer, *, most: int,
    matrix_of: Callable[[Sequence[str]], NDArray[np.float32] | None],
) -> BoundSurfaces | None:
    """The surface forms with the priors of their candidates as a tokenizer reads them; None if it reads none of them.

    Forms with the same tokens share their candidates; the `most` with the highest priors are kept. `matrix_of` gives the vectors
    of entities by their ids, below a row of zeros.
    """
    ids = list(dict.fromkeys(key for by_id in by_form.values() for key in by_id if key not in (NULL, MASK)))
    special = set(tokenizer.special_ids.tolist())
    by_tokens: dict[tuple[int, ...], dict[str, float]] = {}
    # Byte-level BPE has other pieces for a form behind a space than for one at the start of a text.
    ways = [tokenizer.encode_batch([f"{space}{form}" for form in by_form]) for space in ("", " ")]
    for starting, inside, form_priors in zip(*ways, by_form.values(), strict=True):
        for pieces in dict.fromkeys(tuple(encoded.ids.tolist()) for encoded in (starting, inside)):
            if 1 <= len(pieces) <= LONGEST and special.isdisjoint(pieces):
                sums = by_tokens.setdefault(pieces, {})
                for identifier, prior in form_priors.items():
                    sums[identifier] = sums.get(identifier, 0.0) + prior
    if not by_tokens:
        return None
    numbers = {NULL: len(ids) + 1, MASK: len(ids) + 2, **{key: number for number, key in enumerate(ids, 1)}}
    rows = [sorted(by_id.items(), key=lambda pair: (-pair[1], numbers[pair[0]]))[:most] for by_id in by_tokens.values()]
    grams = np.full((len(by_tokens) + 1, max(map(len, by_tokens))), -1, np.int32)
    candidates = np.zeros((len(by_tokens) + 2, max(map(len, rows))), np.int32)
    priors = np.zeros(candidates.shape, np.float32)
    for row, (pieces, best) in enumerate(zip(by_tokens, rows, strict=True), 1):
        grams[row, : len(pieces)] = pieces
        candidates[row, : len(best)] = [numbers[key] for key, _ in best]
        weights = np.array([prior for _, prior in best])
        priors[row, : len(best)] = weights / weights.sum() if weights.sum() else 1 / len(weights)
    candidates[-1, 0], priors[-1, 0] = numbers[MASK], 1.0
    return BoundSurfaces(ids, grams, candidates, priors, matrix_of([*ids, NULL, MASK]))
