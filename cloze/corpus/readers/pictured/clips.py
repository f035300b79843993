"""Parts of films: their keys, their frames, and captions that are joined until they last long enough.

A key such as `VIDEO#t=12.5,20` names the seconds 12.5 to 20 of the film VIDEO (W3C Media Fragments, 2012, §4.2.1), of which a
file of items has one vector for each second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

_CLIP = re.compile(r"(?P<film>.+)#t=(?P<start>\d+(\.\d+)?),(?P<end>\d+(\.\d+)?)")


class Clip(NamedTuple):
    """Seconds of a film."""

    film: str
    start: float
    end: float

    @classmethod
    def of_key(cls, key: str) -> Clip | None:
        """The clip that a key names; None for the key of a whole picture or film."""
        match = _CLIP.fullmatch(key)
        return None if match is None else cls(match["film"], float(match["start"]), float(match["end"]))

    @property
    def key(self) -> str:
        """Its key."""
        return f"{self.film}#t={_text(self.start)},{_text(self.end)}"

    def frames(self, count: int) -> tuple[int, int]:
        """The first of its frames among the `count` of the film, and the one after the last: the seconds in which it begins and
        ends, and those between (UniVL, dataloader_howto100m.py, `_expand_video_slice`).

        Differs: a clip behind the end of its film has the last frame; in the code, the frames up to other clips of the row.
        """
        first, last = sorted((int(self.start), int(self.end)))
        return max(min(first, count - 1), 0), min(max(last, 0) + 1, count)


def _text(seconds: float) -> str:
    """To the millisecond, without zeros at the end."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".")


def film_of(key: str) -> str:
    """The key of the picture or film in a file of items that has what a key names."""
    clip = Clip.of_key(key)
    return key if clip is None else clip.film


class Caption(NamedTuple):
    """A row of a file of captions, and the clip that it is about."""

    row: Any
    clip: Clip


def joined(captions: Iterator[Caption], seconds: float, join: Callable[[Sequence[Any]], Any]) -> Iterator[Caption]:
    """The captions of films in order, each joined with its neighbours until it lasts `seconds`, with the nearer one first; `join`
    makes one row of several (UniVL, dataloader_howto100m.py, `_get_single_transcript`).
    """
    for _, group in groupby(captions, key=lambda caption: caption.clip.film):
        film = list(group)
        for number in range(len(film)):
            low = high = number
            while film[high].clip.end - film[low].clip.start < seconds and high - low + 1 < len(film):
                before = film[high].clip.end - film[low - 1].clip.start if low else float("inf")
                after = film[high + 1].clip.end - film[low].clip.start if high + 1 < len(film) else float("inf")
                low, high = (low - 1, high) if before <= after else (low, high + 1)
            clip = film[number].clip._replace(start=film[low].clip.start, end=film[high].clip.end)
            yield Caption(join([caption.row for caption in film[low : high + 1]]), clip)
