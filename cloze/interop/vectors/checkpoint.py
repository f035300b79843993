"""A checkpoint as vectors: its token table, memory-mapped if cloze wrote it in its own format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from cloze.errors import CheckpointError
from cloze.interop.export import OWN_HEADS, OWN_NETWORK
from cloze.interop.files import DESCRIPTION, read_json
from cloze.interop.model import PortableModel
from cloze.interop.read import import_folder
from cloze.interop.vectors.subwords import Subwords
from cloze.interop.vectors.vectors import Matrix, Vectors, refuse_infinite
from cloze.text.tokenizer import Tokenizer
from cloze.untrusted import require_ordinary

PART, PARAGRAPHS = "word_vectors", "paragraph_vectors"
TABLE, CONTEXTS = "embeddings.weight", "contexts.weight"
_TABLES = ("embeddings.tokens.weight", TABLE)
_MARKS = {"byte_bpe": ("Ġ",), "unigram": ("▁",)}


def of_folder(folder: Path) -> Vectors:
    """The vectors of a checkpoint: those of the words for `word_vectors` (with n-grams; both sides added), else the token table.

    Roles such as [PAD] are left out; pieces are spelled as in the vocabulary. A network without a table of its tokens in
    one piece is a `CheckpointError`, as is whatever `import_folder` refuses.
    """
    description = _description(folder)
    if description is not None and description["part"] in (PART, PARAGRAPHS):
        if not description["arguments"].get("words", True):
            raise CheckpointError(
                f"{folder}: has vectors of paragraphs and none of words.\n"
                f"  `cloze embed {folder} TEXT` gives those of texts; the recipe pv-dm trains vectors of words, too."
            )
        return _of_words(folder, description["arguments"])
    imported = import_folder(folder)
    name = next((name for name in _TABLES if name in imported.model.network), None)
    if name is None:
        raise CheckpointError(
            f"{folder}: {imported.model.part} has no table with a vector for every token; expected a network with one, such "
            f"as word_vectors or transformer.\n  `cloze embed {folder} TEXT` gives vectors of texts."
        )
    table = imported.model.network[name].numpy()
    return _vectors(folder, imported.tokenizer, table[: imported.tokenizer.size], None, None)


def has_vectors(model: PortableModel) -> bool:
    """Whether `of_folder` finds vectors in what this model was read from."""
    if model.part == PARAGRAPHS:
        return bool(model.arguments.get("words", True))
    return model.part == PART or any(name in model.network for name in _TABLES)


def answers_of(folder: Path) -> Matrix | None:
    """The output matrix of a checkpoint of `word_vectors`, a row per word as `of_folder` has them; None if it has none."""
    matrix = _of_heads(folder, "head.weight")
    size = len(_ids(tokenizer := Tokenizer.load(folder)))
    if matrix is None or matrix.ndim != 2 or len(matrix) < tokenizer.size or not size:
        return None
    return np.ascontiguousarray(_rows(matrix, _ids(tokenizer)), dtype=np.float32)


def _of_words(folder: Path, arguments: dict[str, Any]) -> Vectors:
    tokenizer = Tokenizer.load(folder)
    tensors = _mapped(folder / OWN_NETWORK)
    table, contexts = tensors.get(TABLE), tensors.get(CONTEXTS)
    grams = arguments.get("subwords")
    if table is None or len(table) < tokenizer.size or (contexts is not None and len(contexts) != tokenizer.size):
        contents = "no table" if table is None else f"a table of {len(table):,} rows"
        raise CheckpointError(
            f"{folder / OWN_NETWORK}: {contents} for {tokenizer.size:,} ids of the tokenizer.\n"
            f"  They belong to different models: copy the whole folder again."
        )
    words = table[: tokenizer.size]
    if contexts is not None:
        words = words + contexts
    part = None if grams is None else Subwords(table[tokenizer.size :], int(grams[0]), int(grams[1]))
    return _vectors(folder, tokenizer, words, part, _of_heads(folder, "counts"))


def _vectors(
    folder: Path, tokenizer: Tokenizer, table: Matrix, subwords: Subwords | None, counts: NDArray[np.int64] | None
) -> Vectors:
    ids = _ids(tokenizer)
    words = [tokenizer.piece(i) for i in ids]
    vectors = _rows(table, ids)
    refuse_infinite(vectors, words, str(folder))
    has_counts = counts is not None and len(counts) == tokenizer.size and bool(counts.any())
    return Vectors(
        words, vectors, str(folder), subwords,
        counts=counts[ids].astype(np.int64) if has_counts else None,  # type: ignore[index]  # has_counts
        lower=tokenizer.lower, marks=_MARKS.get(tokenizer.kind, ()),
    )  # fmt: skip


def _ids(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """The ids of words: all but the roles; a role that is spelled like a word of a vectors' file (`</s>`) is one, too."""
    roles = {id for role, id in tokenizer.roles.items() if tokenizer.kind == "words" and tokenizer.literals[role] != role}
    left = [id for id in tokenizer.special_ids.tolist() if id not in roles]
    return np.setdiff1d(np.arange(tokenizer.size), left)


def _rows(table: Matrix, ids: NDArray[np.int64]) -> Matrix:
    """These rows; without a copy if they are contiguous."""
    together = len(ids) > 0 and ids[-1] - ids[0] + 1 == len(ids)
    return table[ids[0] : ids[-1] + 1] if together else table[ids]


def _description(folder: Path) -> dict[str, Any] | None:
    path = folder / DESCRIPTION
    description = read_json(path, "what cloze knows of the model") if path.exists() else None
    return (
        description if description is not None and description.get("architecture") is None
        and "part" in description and "arguments" in description else None
    )


def _of_heads(folder: Path, ending: str) -> NDArray[Any] | None:
    """The tensor of that name of the first head that has one."""
    if not (folder / OWN_HEADS).exists():
        return None
    tensors = _mapped(folder / OWN_HEADS, ending)
    return next(iter(tensors.values()), None)


def _mapped(path: Path, ending: str = "") -> dict[str, NDArray[Any]]:
    """The tensors of a safetensors file as arrays over the mapped file; only those whose names end so."""
    if not path.exists():
        raise CheckpointError(f"{path}: there is no such file. The copy is incomplete: copy the whole folder again.")
    try:
        require_ordinary(path)
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name).numpy() for name in sorted(file.keys()) if name.endswith(ending)}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path}: damaged or copied only in part ({error}); expected a whole safetensors file. Copy it again."
        ) from None
