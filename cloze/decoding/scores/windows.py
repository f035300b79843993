"""Windows over a text that is longer than a network reads, in which each token is scored once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloze.decoding.layout import Framed
from cloze.decoding.reader import Reader
from cloze.errors import UserError


@dataclass(frozen=True)
class ScoredWindow:
    """A stretch of the text number `text` as one row, and which tokens of the row are scored in it (L,)."""

    text: int
    row: Framed
    asked: NDArray[np.bool_]

    def with_facts(self, reader: Reader, most: int | None) -> ScoredWindow:
        """The window with the facts that belong to its words, none of which is scored."""
        (row,) = reader.with_facts([self.row], most)
        return self if row.tree is None else ScoredWindow(self.text, row, self.asked[row.tree.column] & (row.tree.branch == 0))


@dataclass(frozen=True)
class Windows:
    """How a long text is divided: windows of `max_length` tokens, each beginning `stride` tokens after the one before.

    None for `max_length` is what the network reads at most, and a network of any length then reads the text in one window. None
    for `stride` is half of the text that a window holds: a token then sees at least that much of what stands before it, and
    everything is read twice.
    """

    max_length: int | None = None
    stride: int | None = None

    def size(self, limit: int | None) -> int | None:
        """The tokens of a window for a network that reads at most `limit`; None: any number. Errors: a `UserError`."""
        if self.max_length is not None and limit is not None and self.max_length > limit:
            raise UserError(f"--max-length {self.max_length}: this network reads at most {limit} tokens. Give no more.")
        length = limit if self.max_length is None else self.max_length
        if length is None and self.stride is not None:
            raise UserError(
                f"--stride {self.stride}: this network reads a text of any length at once, so there are no windows.\n"
                "  Leave it out, or say with --max-length how many tokens to read at once."
            )
        return length

    def over(
        self, row: Framed, mask: NDArray[np.bool_], *, text: int, frame: tuple[int, int], max_length: int | None,
        left_to_right: bool,
    ) -> list[ScoredWindow]:
        """The windows of one text. `row` is all of it, with `frame` tokens before and after that every window repeats.

        From left to right a window scores what the windows before have not (the strided evaluation of a model of fixed length).
        Otherwise a token is scored in the window whose middle is nearest to it, so that it has context on both sides.
        """
        size, (before, after) = self.size(max_length), frame
        if size is None or (len(row) <= size and self.stride is None):
            return [ScoredWindow(text, row, mask)]
        max_tokens, body = size - before - after, len(row) - before - after
        most = max_tokens if before else max_tokens - 1  # a window's first token must have something before it
        stride = max(1, max_tokens // 2) if self.stride is None else self.stride
        if max_tokens < 1 or most < 1:
            raise UserError(f"a window of {size} tokens leaves no room for text: {before + after} of them are the frame's.")
        if not 1 <= stride <= most:
            raise UserError(
                f"--stride {stride}: windows hold {max_tokens} tokens of a text and must meet. "
                f"Expected a number from 1 to {most}."
            )
        spans = _advancing(body, max_tokens, stride) if left_to_right else _centred(body, max_tokens, stride)
        return [
            ScoredWindow(text, *_cut(row, mask, np.arange(a, b), np.arange(c, d), frame)) for a, b, c, d in spans
        ]


def _advancing(body: int, max_tokens: int, stride: int) -> Iterator[tuple[int, int, int, int]]:
    """Begin and end of each window, and of what is scored in it: all that no window before has read."""
    done = 0
    for begin in range(0, max(1, body), stride):
        end = min(begin + max_tokens, body)
        yield begin, end, done, end
        if end == body:
            return
        done = end


def _centred(body: int, max_tokens: int, stride: int) -> Iterator[tuple[int, int, int, int]]:
    """Begin and end of each window, and of the tokens to whose middle no other is nearer; of two the first."""
    last = max(0, body - max_tokens)
    begins = np.append(np.arange(0, last, stride), last)
    bounds = [0, *((begins[:-1] + begins[1:] + max_tokens - 1) // 2 + 1).tolist(), body]
    for begin, start, stop in zip(begins.tolist(), bounds, bounds[1:], strict=False):
        yield begin, min(begin + max_tokens, body), start, stop


def _cut(
    row: Framed, mask: NDArray[np.bool_], read: NDArray[np.int64], scored: NDArray[np.int64], frame: tuple[int, int]
) -> tuple[Framed, NDArray[np.bool_]]:
    before, after = frame
    columns = np.concatenate([np.arange(before), before + read, np.arange(len(row) - after, len(row))])
    chosen = np.zeros(len(row), bool)
    chosen[before + scored] = True
    return row.take(columns), (mask & chosen)[columns]
