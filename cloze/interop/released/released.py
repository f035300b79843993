"""Which released system a file or a folder holds, and reading it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from cloze.errors import CheckpointError
from cloze.interop.read import Imported
from cloze.interop.released import awd_lstm, bert_based, cove, elmo, k_adapter, skip_thought
from cloze.interop.released.words import Split
from cloze.interop.vectors.vectors import Vectors

Files = Mapping[str, Path]  # the files of a system by what they hold

#: The system → finding its files at a path (empty: it is not there), and reading them. The first that finds files is asked.
SYSTEMS: Mapping[str, tuple[Callable[[Path], Files], Callable[[Files, Split, Vectors | None], Imported]]] = MappingProxyType({
    "k-adapter": (k_adapter.find, k_adapter.read),
    "a system built on BERT": (bert_based.find, bert_based.read),
    "elmo": (elmo.find, elmo.read),
    "awd-lstm": (awd_lstm.find, awd_lstm.read),
    "skip-thought": (skip_thought.find, skip_thought.read),
    "cove": (cove.find, cove.read),
})


def is_released(source: Path) -> bool:
    """Whether a path holds weights of one of the systems, in their authors' layout."""
    return _system(source) is not None


def import_released(source: Path, *, split: Split = "punctuation", words: Vectors | None = None) -> Imported:
    """The released weights at a path as a model of cloze, under the recipe that trains such a network (`trained_by`).

    `split` says where words of a text end: around every punctuation mark, or only at white space, for text that is tokenised as
    the authors did. `words` are the word vectors that CoVe was trained over; the other systems bring their own words.

    Errors: missing files, arrays of another shape, pickles that hold more than tensors and words: `CheckpointError`.
    """
    name = _system(source)
    if name is None:
        raise CheckpointError(f"{source}: no weights of {', '.join(SYSTEMS)} in their authors' layout.")
    find, read = SYSTEMS[name]
    return read(find(source), split, words)


def _system(source: Path) -> str | None:
    return next((name for name, (find, _) in SYSTEMS.items() if find(source)), None) if source.exists() else None
