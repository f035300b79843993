"""Data sets of the Hugging Face Hub by name, `hf://datasets/ORG/NAME[@REVISION][:CONFIG[/SPLIT]]`, read as a stream.

The library `datasets` reads them in any format that it knows; only some rows at a time are held. Code of a repository is never
fetched or run. No server is asked, and `datasets` is not imported, before a name is used.
"""

from __future__ import annotations

import copy
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from cloze.corpus.readers.columnar import TOGETHER, parquet_batches, require_text_column
from cloze.errors import CorpusError, MissingExtra, did_you_mean, nearest
from cloze.hub import HubRequest, explained

_NAME = re.compile(
    r"hf:/{1,2}datasets/(?P<repository>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[^:]+))?(?::(?P<config>[^/]+)(?:/(?P<split>[^/]+))?)?"
)
_COMMIT = re.compile("[0-9a-f]{40}")
_BLOCK, _BLOCKS = 4 << 20, 4  # bytes that are fetched at a time, and how many of these are held
_SHOWN = 20  # names in a message
_DEFAULT_SPLIT = "train"


@dataclass(frozen=True)
class DatasetName:
    """A data set of the hub, its revision, configuration and split; what is empty is chosen by `split_of`."""

    repository: str
    revision: str = ""
    config: str = ""
    split: str = ""

    @classmethod
    def parse(cls, text: str | Path) -> DatasetName | None:
        """The name in a text, also one whose slashes a `Path` has merged; None for any other path."""
        match = _NAME.fullmatch(str(text))
        return None if match is None else cls(**{part: value or "" for part, value in match.groupdict().items()})

    def __str__(self) -> str:
        revision, config = f"@{self.revision}" if self.revision else "", f":{self.config}" if self.config else ""
        return f"hf://datasets/{self.repository}{revision}{config}{f'/{self.split}' if self.split else ''}"


def is_dataset(path: str | Path) -> bool:
    """Whether this is the name of a data set of the hub."""
    return str(path).startswith("hf:/") and DatasetName.parse(path) is not None


def is_pinned(path: str | Path) -> bool:
    """Whether this is the name of a split of a data set at a commit."""
    name = DatasetName.parse(path)
    return name is not None and bool(_COMMIT.fullmatch(name.revision) and name.config and name.split)


@dataclass(frozen=True)
class DatasetSplit:
    """One split of a data set at a commit: its full name, the bytes of each of its files (0 where unknown), their addresses if
    they are Parquet, and its columns as it declares them (`datasets.Features`; None if it declares none)."""

    name: DatasetName
    sizes: tuple[int, ...]
    parquet: tuple[str, ...]
    features: Any

    def __str__(self) -> str:
        return str(self.name)

    def tables(self, start: int = 0, stop: int | None = None, *, columns: list[str] | None = None) -> Iterator[Any]:
        """The rows of the files `start` … `stop` - 1 in order, as Arrow tables of some rows. `columns` are those that are needed;
        formats that cannot skip the others give all."""
        with understood(self.name):
            if self.parquet:
                for address in self.parquet[start:stop]:
                    yield from self._parquet_tables(address, columns)
                return
            stream = _stream(self.name)
            for number in range(*slice(start, stop).indices(len(self.sizes))):
                yield from stream.shard(len(self.sizes), number).iter(batch_size=TOGETHER)

    def _parquet_tables(self, address: str, columns: list[str] | None) -> Iterator[Any]:
        """The rows of a Parquet file. `datasets` has Arrow read ahead up to a gigabyte; here a thread fetches one block ahead."""
        from datasets.table import table_cast
        from huggingface_hub import HfFileSystem
        from pyarrow import Table
        from pyarrow.parquet import ParquetFile

        features = self.features.copy()
        for name in set(features) - set(features if columns is None else columns):
            del features[name]
        with HfFileSystem().open(
            address, "rb", block_size=_BLOCK, cache_type="background", cache_options={"maxblocks": _BLOCKS}
        ) as stream:
            for batch in parquet_batches(ParquetFile(stream, buffer_size=_BLOCK // 4), list(features)):
                yield table_cast(Table.from_batches([batch]), features.arrow_schema)

    def texts(self, column: str, start: int = 0, stop: int | None = None) -> Iterator[list[str]]:
        """The cells of a column of text, some rows at a time; a missing cell is empty. `start`, `stop` as in `tables`."""
        if self.features is not None:
            require_text_column(str(self), column, self.features.arrow_schema)
        for table in self.tables(start, stop, columns=None if self.features is None else [column]):
            require_text_column(str(self), column, table.schema)
            yield [text or "" for text in table.column(column).to_pylist()]


_SPLITS: dict[str, DatasetSplit] = {}  # by every name that was asked for: a process reads one commit, even if the branch moves on


def split_of(path: str) -> DatasetSplit:
    """The split that a name means, at the commit of today. Without a configuration it is the only or the default one, without a
    split `train` or the only one.

    Raises:
        CorpusError: There is no such data set, revision, configuration or split; a configuration or a split must be named; its
            terms were not accepted; the server does not answer; it is read by code, which is never run.
        MissingExtra: `datasets` is not installed.
    """
    if path not in _SPLITS:
        split = _fetched_split(path)
        _SPLITS[path] = _SPLITS[str(split)] = split
    return _SPLITS[path]


def _fetched_split(path: str) -> DatasetSplit:
    name = DatasetName.parse(path)
    if name is None or "/" not in name.repository:
        raise CorpusError(f"{path}: expected hf://datasets/ORG/NAME, such as hf://datasets/stanfordnlp/imdb.")
    with understood(name) as datasets, _without_bars(datasets):
        from datasets.packaged_modules.parquet.parquet import Parquet
        from huggingface_hub import HfApi

        described = HfApi().dataset_info(name.repository, revision=name.revision or None, files_metadata=True)
        file_sizes = {file.rfilename: file.size or 0 for file in described.siblings or ()}
        script = f"{name.repository.rpartition('/')[2]}.py"
        if script in file_sizes:
            raise CorpusError(
                f"{name}: is read by code of the repository, {script}, which cloze never runs.\n"
                "  Look on the Hub for a copy of it in Parquet, or write its rows to files and give those."
            )
        pinned = replace(name, repository=described.id, revision=str(described.sha))
        address = f"hf://datasets/{pinned.repository}"  # never a folder of this name
        configs = datasets.get_dataset_config_names(address, revision=pinned.revision)
        config = name.config
        if not config and len(configs) > 1:
            config = datasets.get_dataset_default_config_name(address, revision=pinned.revision) or ""
        pinned = replace(pinned, config=_chosen(name, "configuration", config, configs))
        data_files = {str(split): files for split, files in (_builder(replace(pinned, split="")).config.data_files or {}).items()}
        if not data_files:
            raise FileNotFoundError
        split = name.split or (_DEFAULT_SPLIT if _DEFAULT_SPLIT in data_files else "")
        pinned = replace(pinned, split=_chosen(replace(name, config=pinned.config), "split", split, list(data_files)))
        addresses = tuple(map(str, data_files[pinned.split]))
        sizes = tuple(file_sizes.get(address.partition(f"@{pinned.revision}/")[2], 0) for address in addresses)
        stream = _stream(pinned)
        count = stream.num_shards
        is_parquet = isinstance(_builder(replace(pinned, split="")), Parquet)
    sizes = sizes if count == len(sizes) else (sum(sizes) // count,) * count
    return DatasetSplit(pinned, sizes, addresses if is_parquet else (), stream.features)


def _stream(name: DatasetName) -> Any:
    """A split as `datasets.IterableDataset` of Arrow tables."""
    builder = copy.deepcopy(_builder(replace(name, split="")))  # it learns the columns of one split
    return builder.as_streaming_dataset(name.split).with_format("arrow")


@contextmanager
def _without_bars(datasets: Any) -> Iterator[None]:
    """No progress bars of `datasets`."""
    hidden = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not hidden:
            datasets.enable_progress_bars()


def _library() -> Any:
    """`datasets`. It would import torch, some 200 MB, to make its streams a subclass of torch's; not if nothing else has."""
    without_torch = "torch" not in sys.modules and "USE_TORCH" not in os.environ
    os.environ.update({"USE_TORCH": "0"} if without_torch else {})
    try:
        import datasets
    finally:
        if without_torch:
            del os.environ["USE_TORCH"]
    return datasets


@lru_cache(maxsize=16)
def _builder(name: DatasetName) -> Any:
    return _library().load_dataset_builder(f"hf://datasets/{name.repository}", name.config, revision=name.revision)


def _chosen(name: DatasetName, what: str, value: str, names: list[str]) -> str:
    """The configuration or the split of this name; without a name, the only one."""
    if not value and len(names) == 1:
        return names[0]
    if value in names:
        return value
    listing = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
    example = [*nearest(value, names), names[0]][0]
    full = replace(name, **({"config": example, "split": name.split} if what == "configuration" else {"split": example}))
    problem = f"has no {what} {value!r}" if value else f"has several {what}s, of which none is named"
    hint = f"{did_you_mean(nearest(value, names))} ".lstrip() if value else ""
    split = f", or a split of it: {replace(full, split=value)}" if value and what == "configuration" and not name.split else ""
    raise CorpusError(f"{name}: {problem}; it has: {listing}.\n  {hint}Name it, such as {full}{split}")


@contextmanager
def understood(name: DatasetName) -> Iterator[Any]:
    """Gives the library `datasets`, and turns what can go wrong with it and on the way to the hub into `CorpusError`s."""
    try:
        datasets = _library()
    except ImportError:
        raise MissingExtra("datasets", "datasets", f"reading {name}") from None
    import pyarrow

    request = HubRequest(
        str(name), name.revision or "main", page=f"datasets/{name.repository}", error=CorpusError,
        absent="there is no such data set on the Hugging Face Hub, or it is private.\n"
        "  Check the name; for a private data set, run: hf auth login",
        offline="a data set is read over the network, and HF_HUB_OFFLINE is set.\n"
        "  Unset it, or give a token store that was built before.",
    )
    try:
        with explained(request):
            try:
                yield datasets
            except FileNotFoundError:
                raise CorpusError(
                    f"{name}: has no files of data that the library datasets reads. Download its files and give those."
                ) from None
    except (pyarrow.ArrowException, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise CorpusError(
            f"{name}: its files are not what it declares ({reason}). Ask its authors, or name another revision."
        ) from None
