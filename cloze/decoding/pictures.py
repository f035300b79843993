"""Pictures next to texts: the items that a network reads with a text, from a store or from a file of items.

`cloze fill --items` shows one picture next to every text, tasks (`tasks/texts.py`) that of each row, and retrieval with pictures
(`tasks/intrinsic/picture_retrieval.py`) each of many. A `Reader` with `pictures` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloze.corpus.items import ItemSet, StoredItems, read_pictures
from cloze.corpus.items.following import of_two_pictures
from cloze.corpus.items.item_store import FEATURES
from cloze.corpus.items.item_writer import checked, kind_of
from cloze.corpus.items.picture import Picture
from cloze.corpus.readers.pictured.clips import Clip, film_of
from cloze.corpus.records import Records
from cloze.decoding.layout import Framed
from cloze.errors import CheckpointError, CorpusError, UserError, counted, propose
from cloze.registry import recorded_parts

Int64 = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Pictures:
    """The pictures that a network is shown: their keys, and the sets of their items. `default` is the number of the picture that
    is shown next to texts that name none; -1: none is."""

    keys: Sequence[str]
    sets: Mapping[str, ItemSet]
    default: int = -1

    @classmethod
    def of_store(cls, items: StoredItems) -> Pictures:
        """Those of a store."""
        return cls(items.keys, items.sets)

    @classmethod
    def of_files(cls, files: Mapping[str, str], keys: Iterable[str]) -> Pictures:
        """The pictures of these keys from files of items by set; they alone are kept in memory. A `CorpusError` for one that a
        file lacks."""
        distinct_keys = list(dict.fromkeys(keys))
        return cls(distinct_keys, {name: _kept(name, path, distinct_keys) for name, path in files.items()})

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of each picture, by its key."""
        return {key: number for number, key in enumerate(self.keys)}

    def fields(
        self, network: Any, numbers: Int64, also: frozenset[str] = frozenset(), *, second: Int64 | None = None,
        most: int | None = None,
    ) -> dict[str, NDArray[Any]]:
        """What a network reads of pictures (B,), -1 for the default, and after them of `second` ones, -1 for none, as the
        fields of a batch, and the fields `also` that there are; nothing if no row has one. Of more than `most` items of a
        picture, the first are read."""
        second = np.full_like(numbers, -1) if second is None else second
        first = np.where((numbers < 0) & (second < 0), self.default, numbers)
        if max(first.max(initial=-1), second.max(initial=-1)) < 0:
            return {}
        fields: dict[str, NDArray[Any]] = {}
        for name in network.item_sets:
            kinds = self.sets[name].kinds
            read = [array for array, kind in kinds.items() if kind.field(name, array) in network.takes | also]
            of_first = self.sets[name].read(first, read, most)
            has_two = second.max(initial=-1) >= 0
            fields |= of_two_pictures(of_first, self.sets[name].read(second, read, most), name) if has_two else of_first
        return {name: value.astype(np.int64 if value.dtype.kind == "i" else np.float32) for name, value in fields.items()}


def most_items_of(recipe: Any) -> int | None:
    """How many items of a picture the sources of a recipe, as plain data, read at most; None: all, as of no recipe."""
    reading = [arguments for arguments in recorded_parts(recipe, "source", Records) if arguments.get("items")]
    limits = [int(most) for arguments in reading if (most := arguments.get("most_items")) is not None]
    return max(limits) if limits and len(limits) == len(reading) else None


def require_items(loaded: Any, sets: Mapping[str, ItemSet], whose: str) -> None:
    """Raise an error unless the network of a checkpoint reads items, and `sets`, those of `whose`, have what it reads."""
    network = loaded.network
    if not network.item_sets:
        raise CheckpointError(
            f"{loaded.folder}: this network reads texts without items, so it sees no pictures.\n"
            "  Train one that does: cloze pretrain visualbert --corpus STORE --out RUN (cloze list names others)."
        )
    for name, width in network.item_sets.items():
        if name not in sets:
            raise CorpusError(f"{whose}: has no items {name!r}, which the network reads. {propose(name, sets)}")
        kinds = sets[name].kinds
        if FEATURES not in kinds:
            raise CorpusError(f"{whose}: its items {name!r} have no {FEATURES!r}; they have {', '.join(kinds)}.")
        if kinds[FEATURES].width != width:
            raise CorpusError(
                f"{whose}: its items {name!r} have {kinds[FEATURES].width} numbers each, and the network reads {width}.\n"
                "  Make features as for its training text: cloze features PICTURES with the same --model, or --with and --size."
            )


def files_of(loaded: Any, arguments: Sequence[str]) -> dict[str, str]:
    """The file of each set of items, from `NAME=FILE`, or `FILE` for a network that reads one set."""
    names = list(loaded.network.item_sets)
    if not names:
        require_items(loaded, {}, "")
    files: dict[str, str] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or not name.isidentifier():
            if len(names) > 1:
                raise UserError(f"--items {argument}: this network reads {', '.join(names)}; write NAME=FILE for each.")
            name, path = names[0], argument
        if name not in names or name in files or not path:
            raise UserError(f"--items {argument}: expected NAME=FILE, once for each of {', '.join(names)}.")
        files[name] = path
    missing = [name for name in names if name not in files]
    if missing:
        raise UserError(f"--items: the network also reads {', '.join(missing)}. Add --items {missing[0]}=FILE.")
    return files


def shown_picture(loaded: Any, arguments: Sequence[str], key: str | None) -> Pictures | None:
    """The picture `key` of files of items, as `files_of` takes them, for a checkpoint that reads every text with it; None without
    files."""
    if not arguments:
        if key is not None:
            raise UserError(f"--picture {key}: its items are needed, too. Add their file: --items features.npz")
        return None
    files = files_of(loaded, arguments)
    picture = one_picture(files, key)
    require_items(loaded, picture.sets, " ".join(files.values()))
    return picture


def shown_pictures(loaded: Any, arguments: Sequence[str], keys: Iterable[str]) -> Pictures:
    """The pictures of these keys for a checkpoint that reads them, from files of items as `files_of` takes them."""
    files = files_of(loaded, arguments)
    pictures = Pictures.of_files(files, keys)
    require_items(loaded, pictures.sets, " ".join(files.values()))
    return pictures


def pictures_for(
    loaded: Any, framed: Sequence[Framed], arguments: Sequence[str], picture: str | Sequence[str] | None
) -> tuple[Pictures | None, list[Framed]]:
    """The pictures of files of items, as `files_of` takes them, and framed texts next to them: `picture` is the key of one that
    all texts are read with, or holds one for each; None for the only one of the file. Without files there are no pictures."""
    if picture is None or isinstance(picture, str) or not arguments:
        key = picture if picture is None or isinstance(picture, str) else next(iter(picture), None)
        return shown_picture(loaded, arguments, key), list(framed)
    if len(picture) != len(framed):
        raise UserError(f"{len(picture)} keys of pictures for {counted(len(framed), 'text')}: expected one for each.")
    pictures = shown_pictures(loaded, arguments, picture)
    return pictures, [replace(row, picture=pictures.numbers[key]) for row, key in zip(framed, picture, strict=True)]


def one_picture(files: Mapping[str, str], key: str | None) -> Pictures:
    """The picture `key` of files of items by set, or their only one; it alone is kept in memory."""
    sets: dict[str, ItemSet] = {}
    for name, path in files.items():
        sets[name] = _set_of(name, path, key)
    return Pictures([key or "the picture"], sets, default=0)


def _set_of(name: str, path: str, key: str | None) -> ItemSet:
    seen: list[str] = []
    film = None if key is None else film_of(key)
    read, match = read_pictures(path), None
    for picture in read.pictures:
        if key is None and seen:
            raise UserError(f"{path}: has several pictures. Name one of them: --picture {seen[0]}")
        seen += [picture.key] if key is None or len(seen) < 10_000 else []
        if key is None or picture.key == film:
            match = picture
            if key is not None:
                break
    if match is None:
        raise CorpusError(f"{path}: has no picture {key!r}. {propose(key or '', seen) if seen else 'It has none.'}")
    return _joined(name, [_arrays(match, path, key)], read.names)


def first_picture(name: str, path: str) -> ItemSet:
    """The first picture of a file of items, as a set; a `CorpusError` if it has none."""
    read = read_pictures(path)
    picture = next(read.pictures, None)
    if picture is None:
        raise CorpusError(f"{path}: has no picture in it.")
    return _joined(name, [_arrays(picture, path)], read.names)


def _kept(name: str, path: str, keys: Sequence[str]) -> ItemSet:
    """The items of the pictures `keys` of a file, in this order."""
    read = read_pictures(path)
    keys_by_film: dict[str, list[str]] = {}
    for key in keys:
        keys_by_film.setdefault(film_of(key), []).append(key)
    arrays: dict[str, Arrays] = {}
    candidates: list[str] = []
    for picture in read.pictures:
        candidates += [picture.key] if len(candidates) < 10_000 else []
        arrays.update((key, _arrays(picture, path, key)) for key in keys_by_film.get(picture.key, ()))
    missing = [key for key in keys if key not in arrays]
    if missing:
        subject = f"{counted(len(missing), 'picture')} that rows name: {missing[0]!r}"
        raise CorpusError(f"{path}: has no items of {subject}. {propose(missing[0], candidates)}")
    return _joined(name, [arrays[key] for key in keys], read.names)


def _arrays(picture: Picture, path: str, key: str | None = None) -> Arrays:
    """The arrays of a picture, or of the clip of a film that `key` names, numbers as (R, width)."""
    arrays = checked(picture, f"{Path(path)}: picture {picture.key!r}")
    clip = None if key is None else Clip.of_key(key)
    first, stop = (0, None) if clip is None else clip.frames(len(next(iter(arrays.values()))))
    cut = {name: values[first:stop] for name, values in arrays.items()}
    return {name: values if values.dtype.kind == "i" else values.reshape(len(values), -1) for name, values in cut.items()}


def _joined(name: str, every: Sequence[Arrays], names: Mapping[str, tuple[str, ...]]) -> ItemSet:
    """The items of pictures one after another."""
    stop = np.cumsum([len(next(iter(arrays.values()))) for arrays in every], dtype=np.int64)
    spans = np.stack([np.concatenate([np.zeros(1, np.int64), stop[:-1]]), stop], axis=1)
    joint_arrays = {array: np.concatenate([arrays[array] for arrays in every]) for array in every[0]}
    return ItemSet(name, spans, joint_arrays, {array: kind_of(values) for array, values in joint_arrays.items()}, names)
