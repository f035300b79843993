"""Matrices by product quantisation, as fastText's .ftz files hold them: a byte for each piece of a row.

Jégou, Douze and Schmid, "Product quantization for nearest neighbor search" (2011); Joulin et al., "FastText.zip" (2016), §3.1;
facebookresearch/fastText, productquantizer.cc and quantmatrix.cc.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import IO

import numpy as np
from numpy.typing import NDArray

from cloze.errors import UserError

Matrix = NDArray[np.float32]
CENTROIDS = 256
_ITERATIONS, _POINTS, _TINY = 25, 256 * CENTROIDS, 1e-7


@dataclass(frozen=True)
class Quantiser:
    """256 centroids for each piece of `size` numbers of a row of `width`; the last piece may be shorter.

    `centroids`: those of each piece, (256, numbers of the piece).
    """

    width: int
    size: int
    centroids: tuple[Matrix, ...]

    @classmethod
    def learned(cls, rows: Matrix, size: int, *, seed: int = 1234) -> Quantiser:
        """By k-means on at most 65,536 rows, in 25 rounds, as the code has them. Fewer than 256 rows are a `UserError`.

        Differs: random numbers are numpy's, so centroids are not those of fastText bit for bit.
        """
        if len(rows) < CENTROIDS:
            raise UserError(
                f"{len(rows)} rows cannot be quantised; expected {CENTROIDS} or more. Raise --cutoff, or write the plain file: "
                "--to fasttext."
            )
        draw = np.random.default_rng(seed)
        centroids = []
        for start in range(0, rows.shape[1], size):
            sample = rows if len(rows) <= _POINTS else rows[draw.choice(len(rows), _POINTS, replace=False)]
            centroids.append(_means(np.ascontiguousarray(sample[:, start : start + size], np.float32), draw))
        return cls(rows.shape[1], size, tuple(centroids))

    def codes(self, rows: Matrix) -> NDArray[np.uint8]:
        """The nearest centroid of every piece, (N, pieces)."""
        pieces = [
            _nearest(np.ascontiguousarray(rows[:, number * self.size : (number + 1) * self.size], np.float32), centroids)
            for number, centroids in enumerate(self.centroids)
        ]
        return np.stack(pieces, 1).astype(np.uint8)

    def rows(self, codes: NDArray[np.uint8]) -> Matrix:
        """The rows that codes (N, pieces) stand for, (N, width)."""
        return np.concatenate([centroids[codes[:, number]] for number, centroids in enumerate(self.centroids)], 1)

    def write(self, file: IO[bytes]) -> None:
        """Write sizes and centroids."""
        last = self.width % self.size or self.size
        file.write(struct.pack("<4i", self.width, len(self.centroids), self.size, last))
        for centroids in self.centroids:
            file.write(centroids.astype("<f4").tobytes())

    @classmethod
    def read(cls, data: bytes | mmap.mmap, position: int) -> tuple[Quantiser, int]:
        """A quantiser, and where it ends; a `struct.error` if the data end before or cannot be one."""
        width, pieces, size, last = struct.unpack_from("<4i", data, position)
        position += 16
        if min(width, pieces, size, last) < 1 or (pieces - 1) * size + last != width or position + 1024 * width > len(data):
            raise struct.error
        centroids = []
        for number in range(pieces):
            piece_width = last if number == pieces - 1 else size
            centroids.append(np.frombuffer(data, "<f4", CENTROIDS * piece_width, position).reshape(CENTROIDS, piece_width))
            position += 4 * CENTROIDS * piece_width
        return cls(width, size, tuple(centroids)), position


def write_quantised(file: IO[bytes], rows: Matrix, *, size: int = 2, norms: bool = False) -> None:
    """Write a matrix in pieces of `size` numbers; with `norms` the length of each row is quantised apart from its direction."""
    lengths = np.linalg.norm(rows, axis=1).astype(np.float32)
    if norms:
        rows = (rows / np.where(lengths == 0, 1, lengths)[:, None]).astype(np.float32)
    quantiser = Quantiser.learned(rows, size)
    codes = quantiser.codes(rows)
    file.write(struct.pack("<b2qi", norms, *rows.shape, codes.size) + codes.tobytes())
    quantiser.write(file)
    if norms:
        of_lengths = Quantiser.learned(lengths[:, None], 1)
        file.write(of_lengths.codes(lengths[:, None]).tobytes())
        of_lengths.write(file)


def read_quantised(data: bytes | mmap.mmap, position: int) -> tuple[Matrix, int]:
    """The matrix that the data at a position stand for, and where they end; a `struct.error` if they end before."""
    norms, count, width, size = struct.unpack_from("<b2qi", data, position)
    position += 21
    if min(count, width) < 0 or size < 0 or position + size > len(data):
        raise struct.error
    flat = np.frombuffer(data, np.uint8, size, position)
    quantiser, position = Quantiser.read(data, position + size)
    if quantiser.width != width or size != count * len(quantiser.centroids):
        raise struct.error
    rows = quantiser.rows(flat.reshape(count, len(quantiser.centroids)))
    if norms:
        if position + count > len(data):
            raise struct.error
        codes = np.frombuffer(data, np.uint8, count, position)
        of_lengths, position = Quantiser.read(data, position + count)
        rows = rows * of_lengths.rows(codes[:, None])
    return rows.astype(np.float32), position


def _means(points: Matrix, draw: np.random.Generator) -> Matrix:
    """256 centroids of points (N, d); an empty one takes half of the points of another, drawn by their number."""
    centroids = points[draw.permutation(len(points))[:CENTROIDS]].copy()
    for _ in range(_ITERATIONS):
        codes = _nearest(points, centroids)
        counts = np.bincount(codes, minlength=CENTROIDS)
        for column in range(points.shape[1]):
            sums = np.bincount(codes, points[:, column], CENTROIDS)
            centroids[:, column] = sums / np.maximum(counts, 1)
        sign = np.where(np.arange(points.shape[1]) % 2, _TINY, -_TINY).astype(np.float32)
        for empty in np.flatnonzero(counts == 0):
            share = np.maximum(counts - 1, 0)
            other = int(draw.choice(CENTROIDS, p=share / share.sum()) if share.any() else 0)
            centroids[empty] = centroids[other] + sign
            centroids[other] -= sign
            counts[empty] = counts[other] // 2
            counts[other] -= counts[empty]
    return centroids


def _nearest(points: Matrix, centroids: Matrix) -> NDArray[np.int64]:
    """The number of the nearest centroid of every point."""
    lengths = (centroids**2).sum(1)
    indices = np.empty(len(points), np.int64)
    for start in range(0, len(points), 16384):
        indices[start : start + 16384] = (lengths - 2 * (points[start : start + 16384] @ centroids.T)).argmin(1)
    return indices
