"""Sets the words of a segmenter apart: adds a space before every word of a script without spaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze.errors import CheckpointError, ClozeError, RecipeError
from cloze.registry import lookup, names
from cloze.text.segment import LISTED, Segmenter
from cloze.untrusted import parse_json, read_small, require_ordinary

_SAID, _LIST = "segmenter.json", "segmenter.txt"


class SpacedText(NamedTuple):
    """A text with spaces before its words, and the character offsets of these spaces, ascending."""

    text: str
    put: list[int]


def set_apart(segmenter: Segmenter, text: str) -> SpacedText:
    """The text with a space before each word that has no white space before it."""
    put = [position for position in segmenter.segment(text) if position and not text[position - 1].isspace()]
    bounds = [0, *put, len(text)]
    return SpacedText(" ".join([text[a:b] for a, b in zip(bounds[:-1], bounds[1:], strict=True)]), put)


def places_before(put: list[int], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Offsets in the text with added spaces → offsets in the original text."""
    spaces = np.array(put, dtype=np.int64) + np.arange(len(put))
    return places - np.searchsorted(spaces, places, "left")


def write_segmenter(segmenter: Segmenter, folder: Path) -> None:
    """Save a segmenter with its tokenizer: name, arguments, hash, and the list that it reads, if any."""
    name = next((name for name in names("segmenter") if lookup("segmenter", name) is type(segmenter)), None)
    if name is None:
        raise RecipeError(f"a segmenter of class {type(segmenter).__name__} cannot be saved: register it as in text/segment.py.")
    listed, arguments = segmenter.saved()
    if listed is not None:
        (folder / _LIST).write_bytes(listed)
    described = {"name": name, "arguments": arguments, "list": None if listed is None else _LIST, "hash": segmenter.hash}
    (folder / _SAID).write_text(json.dumps(described, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_segmenter(folder: Path) -> Segmenter | None:
    """The segmenter saved with a tokenizer, None if there is none.

    Raises `CheckpointError` if it cannot be rebuilt or would cut differently (another version of jieba), `MissingExtra` if its
    package is not installed.
    """
    if not (folder / _SAID).is_file():
        return None
    try:
        described = parse_json(read_small(folder / _SAID))
        name, arguments, listed, expected = described["name"], dict(described["arguments"]), described["list"], described["hash"]
        if listed is not None:
            require_ordinary(folder / listed)
            arguments = {key: str(folder / listed) if value == LISTED else value for key, value in arguments.items()}
        segmenter: Segmenter = lookup("segmenter", name)(**arguments)
    except (ValueError, KeyError, TypeError, OSError) as problem:
        raise CheckpointError(f"{folder / _SAID}: cannot be read ({problem!r}); copy the whole folder again.") from None
    except ClozeError as problem:
        raise CheckpointError(f"{folder / _SAID}: {problem}\n  Copy the whole folder again.") from None
    if segmenter.hash != expected:
        raise CheckpointError(
            f"{folder / _SAID}: the words of this tokenizer were cut by {name} with hash {expected[:12]}; what is installed or "
            f"copied here has {segmenter.hash[:12]} and may cut words differently.\n"
            "  Copy the whole folder again, or install the version of the package that was used."
        )
    return segmenter
