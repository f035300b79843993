"""Visual words: hierarchical k-means over the vectors of items, so that a frame of a film becomes one number (VideoBERT)."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.atomic import require_output, whole_file
from cloze.corpus.items.item_store import FEATURES
from cloze.corpus.items.picture import Picture
from cloze.errors import CheckpointError, CorpusError

Floats = NDArray[np.float64]
#: The file of a tree in a folder of `cloze vocab visual`.
VISUAL_WORDS = "visual_words.npz"
_ROUNDS = 100  # of Lloyd's algorithm at most
_TOGETHER = 1 << 16  # vectors assigned together
_MOST = 1 << 22  # words of a tree


class VisualWordCounts(NamedTuple):
    """How many pictures and items got words, and how many words there are among them."""

    pictures: int
    items: int
    words: int


@dataclass(frozen=True)
class VisualWords:
    """A tree of centres whose leaves are the words (Sun et al., VideoBERT, 2019, §4.2: 4 levels of 12 branches, 20,736 words).

    `centres[l]` (branches^(l+1), F) are those of level l: the children of node n of the level above have the rows from
    n · branches. `sizes[l]` counts the vectors of each node that the tree was made from; nothing is assigned to a node without
    any, which a node with fewer distinct vectors than branches has.
    """

    branches: int
    centres: tuple[Floats, ...]
    sizes: tuple[NDArray[np.int64], ...]

    @classmethod
    def fit(cls, vectors: NDArray[Any], *, branches: int = 12, levels: int = 4, seed: int = 0) -> VisualWords:
        """The tree of some vectors (N, F): at each node, k-means of the vectors that come down to it.

        Centres begin as k-means++ chooses them and follow Lloyd's algorithm to its end, or for 100 rounds.
        """
        if branches < 2 or levels < 1 or branches**levels > _MOST:
            raise CorpusError(
                f"visual words: {levels} levels of {branches} branches; expected at least 1 level of 2 branches, and at most "
                f"{_MOST:,} words."
            )
        if not len(vectors):
            raise CorpusError("visual words: there is no vector to make them from.")
        vectors = np.asarray(vectors, np.float64)
        node = np.zeros(len(vectors), np.int64)  # (N,): the node of the level above that each vector is in
        centres: list[Floats] = []
        sizes: list[NDArray[np.int64]] = []
        for level in range(levels):
            level_centres = np.zeros((branches ** (level + 1), vectors.shape[1]))
            level_sizes = np.zeros(len(level_centres), np.int64)
            for parent, members in _groups(node):
                kids = slice(parent * branches, (parent + 1) * branches)
                points = vectors[members]
                key = rng.fold(seed, "visual words", level, parent)
                cut = _k_means(points, branches, np.random.Generator(np.random.Philox(key=key)))
                level_centres[kids][: len(cut)] = cut
                level_sizes[kids][: len(cut)] = 1  # may be chosen below
                node[members] = parent * branches + _nearest(points, level_centres[kids], level_sizes[kids])
                level_sizes[kids] = np.bincount(node[members] - parent * branches, minlength=branches)
            centres.append(level_centres)
            sizes.append(level_sizes)
        return cls(branches, tuple(centres), tuple(sizes))

    @property
    def levels(self) -> int:
        """How many choices lead to a word."""
        return len(self.centres)

    @property
    def size(self) -> int:
        """How many words there are."""
        return len(self.centres[-1])

    @property
    def width(self) -> int:
        """The numbers of a vector."""
        return self.centres[0].shape[1]

    def assign(self, vectors: NDArray[Any]) -> NDArray[np.int32]:
        """The word of each vector (N, F): the nearest child of the root, the nearest child of that, and so on. (N,)

        Of equally near children the first. This need not be the nearest leaf.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.width:
            raise CorpusError(f"visual words: vectors of the shape {vectors.shape}; the words are of {self.width} numbers each.")
        words = np.zeros(len(vectors), np.int32)
        for low in range(0, len(vectors), _TOGETHER):
            block = np.asarray(vectors[low : low + _TOGETHER], np.float64)
            node = np.zeros(len(block), np.int64)
            for centres, sizes in zip(self.centres, self.sizes, strict=True):
                for parent, members in _groups(node):
                    kids = slice(parent * self.branches, (parent + 1) * self.branches)
                    node[members] = parent * self.branches + _nearest(block[members], centres[kids], sizes[kids])
            words[low : low + len(block)] = node
        return words

    def save(self, path: Path) -> None:
        """Write the tree as an `.npz`, whole or not at all."""
        arrays: dict[str, NDArray[Any]] = {f"centres_{level}": centres for level, centres in enumerate(self.centres)}
        arrays |= {f"sizes_{level}": sizes for level, sizes in enumerate(self.sizes)}
        with whole_file(path) as stage, stage.open("wb") as stream:
            np.savez(stream, branches=np.array(self.branches), **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> VisualWords:
        """Read a tree. Raises `CheckpointError` for a file that is missing or holds none."""
        if not path.is_file():
            raise CheckpointError(
                f"{path}: no such file; expected visual words.\n  Make them: cloze vocab visual ITEMS.npz --out DIR"
            )
        try:
            with np.load(path, allow_pickle=False) as archive:
                levels = range(sum(name.startswith("centres_") for name in archive.files))
                centres, sizes = (tuple(archive[f"{name}_{level}"] for level in levels) for name in ("centres", "sizes"))
                words = cls(int(archive["branches"]), centres, sizes)
        except (ValueError, OSError, KeyError, zipfile.BadZipFile, EOFError) as error:
            raise CheckpointError(f"{path}: damaged, or no visual words ({error}).") from None
        words._check(path)
        return words

    def _check(self, path: Path) -> None:
        expected = [self.branches ** (level + 1) for level in range(self.levels)]
        if not expected or [len(level) for level in self.centres] != expected or [len(level) for level in self.sizes] != expected:
            raise CheckpointError(
                f"{path}: its levels have {[len(level) for level in self.centres]} centres; expected {expected}."
            )


def sampled(pictures: Iterable[Picture], most: int, seed: int) -> NDArray[np.float32]:
    """At most `most` vectors of all items, (N, F); of more, a random choice that depends on nothing but `seed`."""
    vectors: list[NDArray[np.float32]] = []
    keys: list[NDArray[np.uint64]] = []
    count = held = 0
    for picture in pictures:
        features = features_of(picture).astype(np.float32)
        vectors.append(features)
        keys.append(rng.row_keys(seed, "visual words", items=np.arange(count, count + len(features))))
        count, held = count + len(features), held + len(features)
        if held >= 2 * most:
            vectors, keys = _kept(vectors, keys, most)
            held = most
    return _kept(vectors, keys, most)[0][0] if vectors else np.zeros((0, 0), np.float32)


def write_words(pictures: Iterable[Picture], words: VisualWords, out: Path, *, overwrite: bool = False) -> VisualWordCounts:
    """Write the words of all items to a new `.npz` of items, as the array `word`, with the keys of the pictures."""
    require_output(out, overwrite=overwrite)
    keys: list[str] = []
    word_ids: list[NDArray[np.int32]] = []
    for picture in pictures:
        keys.append(picture.key)
        word_ids.append(words.assign(features_of(picture)))
    every = np.concatenate([np.zeros(0, np.int32), *word_ids])
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in word_ids], dtype=np.int64)])
    with whole_file(out) as stage, stage.open("wb") as stream:
        np.savez(stream, keys=np.array(keys, np.str_), offsets=offsets, word=every)
    return VisualWordCounts(len(keys), len(every), len(np.unique(every)))


def features_of(picture: Picture) -> NDArray[Any]:
    """The vectors of the items of a picture. Raises `CorpusError` if it has none."""
    if FEATURES not in picture.arrays or picture.arrays[FEATURES].ndim != 2:
        has = ", ".join(picture.arrays)
        raise CorpusError(f"picture {picture.key!r}: has no {FEATURES!r} (items, width), only {has}; visual words need vectors.")
    return picture.arrays[FEATURES]


def _kept(
    vectors: list[NDArray[np.float32]], keys: list[NDArray[np.uint64]], most: int
) -> tuple[list[NDArray[np.float32]], list[NDArray[np.uint64]]]:
    """The vectors with the smallest keys, in their order."""
    if len({block.shape[1] for block in vectors}) > 1:
        raise CorpusError(
            f"visual words: vectors of {sorted({block.shape[1] for block in vectors})} numbers; expected one width."
        )
    every, key = np.concatenate(vectors), np.concatenate(keys)
    chosen = np.sort(np.argsort(key, kind="stable")[:most])
    return [every[chosen]], [key[chosen]]


def _groups(node: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each node that occurs, with the places where it does."""
    order = np.argsort(node, kind="stable")
    nodes, starts = np.unique(node[order], return_index=True)
    yield from zip(nodes.tolist(), np.split(order, starts[1:]), strict=True)


def _nearest(vectors: Floats, centres: Floats, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The nearest of the centres (k, F) that have a size, for each vector; (N,)."""
    # (N, k): ½ ‖v‖² - ½ ‖v - c‖², of which the first part is the same for all centres.
    nearness = vectors @ centres.T - 0.5 * np.square(centres).sum(1)
    nearness[:, sizes == 0] = -np.inf
    nearest: NDArray[np.int64] = nearness.argmax(1)
    return nearest


def _k_means(vectors: Floats, count: int, generator: np.random.Generator) -> Floats:
    """At most `count` centres of the vectors, fewer where these have fewer distinct values."""
    centres = _begun(vectors, count, generator)
    alive = np.ones(len(centres), np.int64)
    nearest = _nearest(vectors, centres, alive)
    for _ in range(_ROUNDS):
        sizes = np.bincount(nearest, minlength=len(centres))
        sums = np.zeros_like(centres)  # (k, F): of the vectors that are nearest to each centre
        np.add.at(sums, nearest, vectors)
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
        before, nearest = nearest, _nearest(vectors, centres, alive)
        if np.array_equal(before, nearest):
            break
    return centres


def _begun(vectors: Floats, count: int, generator: np.random.Generator) -> Floats:
    """Centres of k-means++: each next one is a vector drawn in proportion to its squared distance from those before."""
    chosen = [int(generator.integers(len(vectors)))]
    distance = np.full(len(vectors), np.inf)  # (N,): squared, to the nearest centre so far
    for _ in range(count - 1):
        distance = np.minimum(distance, np.square(vectors - vectors[chosen[-1]]).sum(1))
        total = distance.sum()
        if total <= 0:
            break
        index = np.searchsorted(np.cumsum(distance), generator.random() * total, side="right")
        chosen.append(int(min(index, len(vectors) - 1)))
    return vectors[chosen]
