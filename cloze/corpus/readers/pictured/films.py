"""What is said in films, and when: one object with a film in each field → a row for each caption."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cloze.corpus.readers.pictured.clips import Clip
from cloze.corpus.readers.pictured.plain_pickle import read_plain
from cloze.errors import TaskError

_LISTS = ("start", "end", "text")


def is_pickle(path: Path | str) -> bool:
    """Whether a file has an ending of pickles."""
    return Path(path).suffix in (".pickle", ".pkl")


def films_of_pickle(path: Path | str) -> Mapping[str, Any]:
    """The films of a pickle of plain values, as UniVL's authors prepare captions; anything else is a `TaskError`."""
    try:
        content = read_plain(Path(path).read_bytes())
    except ValueError as error:
        raise TaskError(f"{path}: cannot be read: {error}.") from None
    except OSError as error:
        raise TaskError(f"{path}: cannot be read: {error.strerror}.") from None
    if not isinstance(content, dict) or not is_films(content):
        raise TaskError(f"{path}: expected captions of films: for each film the lists start, end and text.")
    return content


def is_films(record: Mapping[str, Any]) -> bool:
    """Whether an object is such a file: its fields have the lists start, end and text."""
    film = next(iter(record.values()), None)
    return isinstance(film, Mapping) and all(name in film for name in _LISTS)


def film_captions(path: Path | str, content: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The captions of each film in their order, numbered from 1: `image`, the name of the film; `start` and `end` in seconds;
    `text`; `clip`, the key of these seconds of the film; and what further lists have, such as `transcript` (HowTo100M; Miech et
    al., 2019, caption.json; UniVL's caption.pickle and youcookii_data.pickle).

    Errors: `TaskError`.
    """
    number = 0
    for name, film in content.items():
        if not isinstance(film, Mapping) or any(column not in film for column in _LISTS):
            raise TaskError(f"{path}: film {name!r}: expected the lists {', '.join(_LISTS)}.")
        sizes = {column: len(values) for column, values in film.items()}
        if len(set(sizes.values())) > 1:
            raise TaskError(f"{path}: film {name!r}: its lists have different lengths: {sizes}.")
        for cells in zip(*film.values(), strict=True):
            number += 1
            row = dict(zip(film, cells, strict=True))
            try:
                clip = Clip(str(name), float(row["start"]), float(row["end"]))
            except ValueError:
                raise TaskError(
                    f"{path}: film {name!r}: start and end of a caption are {row['start']!r} and {row['end']!r}, "
                    "expected seconds."
                ) from None
            texts = {column: str(cell) for column, cell in row.items()}
            yield number, {**texts, "image": clip.film, "start": clip.start, "end": clip.end, "clip": clip.key}
