"""Several languages in one corpus: where they come from, and how often each is drawn.

Languages are drawn with q ∝ p^S, p being their shares of the corpus (the README of google-research/bert, multilingual;
Conneau and Lample 2019, §3.1). A small language is then repeated several times during the first
pass over a large one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cloze import rng
from cloze.corpus.readers.blocks import Block, corpus_size, read_blocks
from cloze.corpus.readers.files import PYTHON_DOCS, NoText, find_files
from cloze.corpus.readers.hub_datasets import is_dataset, split_of
from cloze.corpus.readers.pipes import STDIN
from cloze.corpus.readers.report import CorpusReport, Oddities
from cloze.errors import CorpusError, RecipeError

Int64 = NDArray[np.int64]


def shares(counts: Sequence[float] | NDArray[Any], smooth: float) -> NDArray[np.float64]:
    """The shares q ∝ p^smooth from the counts of each language; 1 keeps p, 0 makes all equal; a language without text gets 0."""
    sizes = np.asarray(counts, dtype=np.float64)
    raised = np.where(sizes > 0, (sizes / max(sizes.sum(), 1.0)) ** smooth, 0.0)
    return np.asarray(raised / raised.sum())


def smoothing(languages: Mapping[str, float] | None, source: str) -> float | None:
    """The exponent in a source's `languages: {smooth: 0.7}`; None if `languages` is not given."""
    if languages is None:
        return None
    unknown = set(languages) - {"smooth"}
    if unknown:
        raise RecipeError(f"{source}.languages: unknown key {sorted(unknown)[0]!r}; expected smooth.")
    smooth = float(languages.get("smooth", 1.0))
    if not 0.0 <= smooth <= 1.0:
        raise RecipeError(f"{source}.languages.smooth: {smooth} is not a smoothing exponent; expected 0 to 1.")
    return smooth


class Resampled(NamedTuple):
    """An epoch of rows drawn by language: the row and the number of its earlier occurrences, (N,) each, in order."""

    order: Int64
    repeat: Int64


def resample(group: NDArray[np.integer], smooth: float, epoch: int, *address: int | str) -> Resampled:
    """One epoch: as many rows as there are, with smoothed shares of the groups; a pure function of its arguments.

    `group` (N,) is the group of each row. A group's rows come in rounds, each a random order of all its rows. An epoch continues
    the round of the previous epoch, so that no row repeats before all others of its group have occurred.
    """
    if not len(group):  # nothing is held out of so small a corpus
        return Resampled(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    number = np.unique(group, return_inverse=True)[1]
    counts = np.bincount(number)
    quota = _whole(shares(counts, smooth) * len(group), len(group))
    members = np.split(np.argsort(number, kind="stable"), np.cumsum(counts)[:-1])
    rows, rounds = [], []
    for which, (group_members, take) in enumerate(zip(members, quota.tolist(), strict=True)):
        position = epoch * take + np.arange(take)
        repeat = position // len(group_members)
        for t in np.unique(repeat).tolist():
            order = rng.permutation(len(group_members), *address, "round", which, t)
            rows.append(group_members[order[position[repeat == t] % len(group_members)]])
        rounds.append(repeat)
    mixed = rng.permutation(len(group), *address, "order", epoch)
    return Resampled(np.concatenate(rows)[mixed], np.concatenate(rounds)[mixed])


def language_folders(paths: Sequence[str | Path], odd: Oddities | None = None) -> dict[str, list[str]]:
    """Name of each language → its paths. One folder of folders is a language per folder, else every path is one.

    A language is named after its folder, its file up to the first dot, or the configuration of a data set. The order is that of
    the paths. Folders inside of one that hold no text, as some of a program's translations do, are left out and noted in `odd`.
    """
    candidates = [Path(path) for path in paths]
    if len(candidates) == 1 and candidates[0].is_dir():
        inside = sorted(p for p in candidates[0].iterdir() if p.is_dir() and not p.name.startswith((".", "_")))
        empty = [path for path in inside if not _holds_text(path)]
        for path in empty:
            (odd or Oddities()).note("left_out", f"{path}: holds no text")
        candidates = [path for path in inside if path not in empty] or candidates
    if not candidates:
        raise CorpusError("no corpus given; expected a folder per language.")
    folders: dict[str, list[str]] = {}
    for path in candidates:
        if str(path) in (STDIN, PYTHON_DOCS):
            raise CorpusError(f"{path}: does not name a language; expected a folder or file named after its language.")
        dataset = split_of(str(path)) if is_dataset(path) else None
        name = path.name if path.is_dir() else path.name.split(".")[0]
        folders.setdefault(name if dataset is None else dataset.name.config, []).append(str(path if dataset is None else dataset))
    if len(folders) > 255:
        raise CorpusError(f"{len(folders)} languages; a store holds up to 255.")
    return folders


def _holds_text(folder: Path) -> bool:
    try:
        return bool(find_files([folder], Oddities()))
    except NoText:
        return False


def read_languages(folders: Mapping[str, list[str]], format: str, report: CorpusReport) -> Iterator[Block]:
    """The blocks of all languages, one language after the other."""
    for number, paths in enumerate(folders.values()):
        for block in read_blocks(paths, format, report):
            yield replace(block, languages=(number,))


def smoothed(texts: Mapping[str, Iterable[str]], sizes: Mapping[str, int], smooth: float, budget: int) -> Iterator[str]:
    """The texts of all languages in smoothed shares: `budget` bytes or the whole corpus's size, whichever is less.

    Languages above their share lose some of their texts at regular intervals; texts of those below are repeated.
    """
    target = min(budget, sum(sizes.values())) * shares(list(sizes.values()), smooth)
    for (language, lines), size in zip(texts.items(), target.tolist(), strict=True):
        rate = size / max(1, sizes[language])
        for number, line in enumerate(lines):
            for _ in range(int((number + 1) * rate) - int(number * rate)):
                yield line


def language_sizes(folders: Mapping[str, list[str]]) -> dict[str, int]:
    """Bytes of text of every language, estimated for packed files."""
    return {name: corpus_size(paths) or 0 for name, paths in folders.items()}


def _whole(amounts: NDArray[np.float64], total: int) -> Int64:
    """Whole numbers nearest to the amounts that sum to `total`: the largest remainders are rounded up."""
    integers = np.floor(amounts).astype(np.int64)
    order = np.argsort(-(amounts - integers), kind="stable")
    integers[order[: total - int(integers.sum())]] += 1
    return integers
