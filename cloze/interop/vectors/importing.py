"""A file of vectors → a model of cloze: network `word_vectors`, a tokenizer of whole words, and a recipe to train it further."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cloze.interop.arguments import complete
from cloze.interop.model import PortableHead, PortableModel
from cloze.interop.read import Imported
from cloze.interop.vectors.checkpoint import PART, TABLE
from cloze.interop.vectors.fasttext import FastText
from cloze.interop.vectors.opening import kind_of, open_fasttext, open_vectors
from cloze.interop.vectors.subwords import END_OF_LINE
from cloze.interop.vectors.vectors import Vectors
from cloze.reading import Reading
from cloze.text.normalise import Normalise
from cloze.text.words import Words

#: How files of vectors spell roles; a role that no file spells keeps its own name.
_LITERALS: Mapping[str, tuple[str, ...]] = {
    "[PAD]": ("<pad>", "[PAD]"), "[UNK]": ("<unk>", "[UNK]"), "[BOS]": ("<s>", "[BOS]"), "[EOS]": (END_OF_LINE, "[EOS]"),
}  # fmt: skip
_HEAD = "negative_sampling"
_ESCAPED = re.compile(r"\\x[89a-f][0-9a-f]")  # what stands for a byte that is not UTF-8


def import_vectors(path: Path, *, repeated: str = "refuse") -> Imported:
    """Read a file of vectors as a model with network `word_vectors`; a fastText file keeps its n-grams and, if it was trained by
    negative sampling, its counts and output matrix.

    Words keep the order of the file. `</s>` becomes a role, and without n-grams so do `<unk>`, `<s>` and `<pad>`; the vectors of
    other roles are zeros. Errors: as `open_vectors`.
    """
    fasttext = open_fasttext(path) if kind_of(path) == "fasttext" else None
    vectors = open_vectors(path, repeated=repeated) if fasttext is None else fasttext.vectors(str(path), repeated=repeated)
    grams = vectors.subwords
    special = {
        role: next((name for name in names if name in vectors.ids and (grams is None or name == END_OF_LINE)), role)
        for role, names in _LITERALS.items()
    }
    spelled = set(special.values())
    rest = np.array([row for row, word in enumerate(vectors.words) if word not in spelled], np.int64)
    rows = [vectors.ids.get(name, -1) for name in special.values()]
    places = np.concatenate((np.array(rows, np.int64), rest))
    tokenizer = Words(min_count=1, split="whitespace", special=special).of_words(
        [vectors.words[row] for row in rest.tolist()], Normalise()
    )
    table = _taken(vectors.own, places)
    arguments: dict[str, Any] = {"width": vectors.width}
    if grams is not None:
        arguments.update(subwords=[grams.shortest, grams.longest], buckets=len(grams.rows), gradient="full", spread=1.0)
        table = np.concatenate((table, grams.rows))
    model = PortableModel(
        arguments=complete(arguments, PART), order="open", network={TABLE: torch.from_numpy(table)}, part=PART,
        heads=_head(vectors, fasttext, places, arguments),
    )  # fmt: skip
    roles = [name for name in special.values() if name in vectors.ids]
    remarks = [f"{', '.join(roles)} of the file stand for roles of the tokenizer."] if roles else []
    if escaped := [word for word in vectors.words if _ESCAPED.search(word)]:
        remarks.append(
            f"{len(escaped):,} of {len(vectors):,} words are not UTF-8, such as {escaped[0]}, and were read with \\xNN for their "
            "bytes. If the file has another encoding, convert it first (iconv -t UTF-8)."
        )
    return Imported(
        folder=path, architecture=None, model=model, tokenizer=tokenizer, reading=Reading("{A}", None, "first"),
        remarks=tuple(remarks),
    )


def supervised(path: Path) -> FastText | None:
    """A classifier of fastText in a file; None for any other file of vectors."""
    classifier = open_fasttext(path) if kind_of(path) == "fasttext" else None
    return classifier if classifier is not None and classifier.settings.model == 3 and classifier.labels else None


def recipe_of_vectors(imported: Imported, base: Mapping[str, Any], name: str) -> dict[str, Any]:
    """`base`, a recipe of word vectors as plain data, with the imported network and vocabulary in it."""
    recipe = copy.deepcopy(dict(base))
    recipe["name"] = name
    recipe["notes"] = (
        f"Read from a file of vectors: its words and their vectors. Everything else is that of the recipe {base['name']}, "
        f"because such a file does not say how it was trained.\n"
    )
    special = dict(imported.tokenizer.literals)
    recipe["text"] = {"tokenizer": {"words": {"min_count": 1, "split": "whitespace", "special": special}}}
    recipe["network"] = {PART: {**recipe["network"][PART], **_given(imported.model.arguments)}}
    return recipe


def base_of_vectors(imported: Imported) -> str:
    """The named recipe for such vectors."""
    return "fasttext" if imported.model.arguments.get("subwords") else "word2vec-skipgram"


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    grams = arguments.get("subwords")
    return {"width": arguments["width"], **({"subwords": list(grams), "buckets": arguments["buckets"]} if grams else {})}


def _head(
    vectors: Vectors, fasttext: FastText | None, places: NDArray[np.int64], arguments: dict[str, Any]
) -> dict[str, PortableHead]:
    """fastText's output matrix as the objective that trained it; empty if cloze has no such objective."""
    if fasttext is None or fasttext.settings.loss != 2 or fasttext.answers.shape != (len(fasttext.words), vectors.width):
        return {}
    if len(vectors) != len(fasttext.words):  # repeated words were taken out: rows no longer fit
        return {}
    counts = np.where(places >= 0, fasttext.counts[places], 0)
    state = {
        "head.weight": torch.from_numpy(_taken(fasttext.answers, places)),
        "counts": torch.from_numpy(np.concatenate((np.zeros(4, np.int64), np.maximum(counts[4:], 1)))),
    }
    settings = {"negatives": fasttext.settings.negatives, "power": 0.5, "redraw": True}
    return {_HEAD: PortableHead(_HEAD, settings, state)}


def _taken(table: NDArray[np.float32], places: NDArray[np.int64]) -> NDArray[np.float32]:
    """The rows at `places`; zeros where the place is -1."""
    rows = np.array(table[np.maximum(places, 0)], np.float32)
    rows[places < 0] = 0.0
    return rows
