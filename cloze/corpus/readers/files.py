"""Lists the files of a corpus, and opens them with any compression."""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from cloze.corpus.readers.columnar import files_of_dataset, is_saved_dataset
from cloze.corpus.readers.gettext import CATALOGUES, without_compiled
from cloze.corpus.readers.hub_datasets import DatasetSplit, is_dataset, split_of
from cloze.corpus.readers.not_text import refuse_made
from cloze.corpus.readers.pipes import STDIN, open_pipe
from cloze.corpus.readers.report import Oddities
from cloze.errors import CorpusError, MissingExtra, nearest_path
from cloze.text.encodings import PACKED

PYTHON_DOCS = "python-docs"

_ENDINGS = frozenset({"", ".txt", ".text", ".jsonl", ".ndjson", ".json", ".parquet"})
_NOT_TEXT = ("readme", "license", "licence", "copying", "source_readme", "changelog", "citation")
_OTHER_PARTS = frozenset({"valid", "validation", "dev", "val", "test", "heldout", "held_out", "eval"})
# How much larger the text is than its packed file; only used to divide a sample evenly and to show progress.
_EXPANSION = {".gz": 2.8, ".xz": 3.6, ".zst": 3.2, ".bz2": 3.6}


class NoText(CorpusError):
    """A folder that holds no text file."""


@dataclass(frozen=True)
class TextFile:
    """One input: a file, standard input ("-"), Python's documentation ("python-docs"), or a split of a data set of the hub.

    Of an unpacked file it may be a range of bytes, `start` … `stop` - 1; of a data set, a range of its files.
    """

    path: str
    start: int = 0
    stop: int | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.path} (from {'file' if self.dataset else 'byte'} {self.start:,})" if self.start else self.path

    @property
    def dataset(self) -> DatasetSplit | None:
        """The split of a data set that this is; None for files."""
        return split_of(self.path) if is_dataset(self.path) else None

    @property
    def packing(self) -> str:
        """The compression by the file's ending, or the empty string."""
        return next((ending for ending in PACKED if self.path.lower().endswith(ending)), "")

    @property
    def ending(self) -> str:
        """The ending without the compression's."""
        return Path(self.path[: len(self.path) - len(self.packing)]).suffix.lower()

    @property
    def size(self) -> int | None:
        """Bytes of text, estimated for packed files, None where unknown."""
        if self.path in (STDIN, PYTHON_DOCS):
            return None
        if (dataset := self.dataset) is not None:
            return sum(dataset.sizes[self.start : self.stop]) or None
        return int(Path(self.path).stat().st_size * _EXPANSION.get(self.packing, 1.0))

    def _misnamed(self) -> bool:
        """Whether the file does not begin as compressed ones do."""
        with Path(self.path).open("rb") as stream:
            return not stream.read(8).startswith(PACKED[self.packing])

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The bytes of the text. A damaged or cut off archive is a `CorpusError`."""
        try:
            with _open(self.path, self.packing) as stream:
                yield stream if not self.start and self.stop is None else _range(stream, self.start, self.stop)
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            if self._misnamed():
                why = f"not compressed as its ending says. Remove {self.packing} from its name."
                raise CorpusError(f"{self.path}: {why}") from None
            raise CorpusError(
                f"{self.path}: damaged or truncated {self.packing[1:]} file ({error}).\n  Copy or download it again."
            ) from None
        except PermissionError:
            raise CorpusError(f"{self.path}: no permission to read it.") from None
        except OSError as error:
            if self.packing == ".bz2" and error.errno is None:
                raise CorpusError(f"{self.path}: damaged bz2 file ({error}).\n  Copy or download it again.") from None
            raise


def find_files(paths: Sequence[str | Path], odd: Oddities) -> list[TextFile]:
    """The files named by paths, folders, globs, "-", "python-docs" and names of data sets, folders in the order of their names.
    A data set is named with its commit, configuration and split.

    Some files of a folder are skipped, with a note: hidden files; files that are not text by their name or ending; and, next to a
    file called train (train.txt, train.jsonl.xz …), files called valid, dev or test. To read those, name them. Catalogues of
    gettext count as text in a folder that has no other. A folder that
    holds a token store, a run, a checkpoint or a tokenizer is a `CorpusError` that names it.
    """
    if not paths:
        raise CorpusError("no corpus given; expected files, folders, globs or - for standard input.")
    files: dict[str, TextFile] = {}
    for name in map(str, paths):
        for path in _expand(name, odd):
            files.setdefault(path, TextFile(path))
    return list(files.values())


def absolute(path: str | Path) -> str:
    """The same input for a process in another folder: "-", "python-docs" and addresses as they are, paths made absolute, data
    sets with their commits."""
    name = str(split_of(str(path))) if is_dataset(path) else str(path)
    is_path = os.path.exists(name) or (name not in (STDIN, PYTHON_DOCS) and "://" not in name)
    return os.path.abspath(name) if is_path else name


def require_paths(paths: Sequence[str | Path]) -> None:
    """Raise a `CorpusError` for a path that does not exist; no folder is listed and nothing is read."""
    for name in map(str, paths):
        if not Path(name).is_dir():
            _expand(name, Oddities())


def _expand(pattern: str, odd: Oddities) -> list[str]:
    if is_dataset(pattern):
        return [str(split_of(pattern))]
    path = Path(pattern)
    if pattern == STDIN or (pattern == PYTHON_DOCS and not path.exists()):
        return [pattern]
    if path.is_dir():
        return _folder(path, odd)
    if path.exists():
        if pattern.lower().endswith((".tar", ".zip", ".tgz")) or ".tar." in path.name.lower():
            raise CorpusError(f"{pattern}: is an archive; expected text files.\n  Unpack it first and give the folder.")
        return [pattern]
    if glob.has_magic(pattern):
        matches = sorted(glob.glob(pattern, recursive=True))
        files = [m for m in matches if Path(m).is_file()]
        if not files:
            raise CorpusError(f"{pattern}: no file matches this pattern.")
        for folder in sorted({Path(file).parent for file in files}):
            refuse_made(folder, ())
        return files
    raise CorpusError(f"{pattern}: no such file or folder. {nearest_path(path)}".rstrip())


def _folder(folder: Path, odd: Oddities) -> list[str]:
    if is_saved_dataset(folder):
        return files_of_dataset(folder)
    inside = sorted(p for p in folder.rglob("*") if p.is_file() and not _hidden(p.relative_to(folder)))
    refuse_made(folder, inside)
    with_train = {p.parent for p in inside if _stem(p) == "train" and _is_text(p)}
    catalogues: set[Path] = set()
    if not any(map(_is_text, inside)):
        catalogues.update(without_compiled(path for path in inside if path.suffix in CATALOGUES))
    paths = []
    for path in inside:
        if path in catalogues:
            paths.append(str(path))
        elif not _is_text(path):
            odd.note("left_out", f"{path}: not text, by its name")
        elif path.parent in with_train and _stem(path) in _OTHER_PARTS:
            odd.note("left_out", f"{path}: not training text, by its name; name the file to read it")
        else:
            paths.append(str(path))
    if not paths:
        raise NoText(
            f"{folder}: holds no text file ({len(inside)} other files).\n"
            f"  Expected .txt, .jsonl or .parquet, or files without an ending, also as {', '.join(PACKED)}. "
            "Tables (.csv, .tsv) are read if named: 'FOLDER/*.csv' --text COLUMN"
        )
    return paths


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "__")) for part in path.parts)


def _stem(path: Path) -> str:
    return path.name.lower().split(".")[0]


def _is_text(path: Path) -> bool:
    file = TextFile(str(path))
    archive = any(s.lower() in (".tar", ".zip", ".tgz") for s in path.suffixes)
    return file.ending in _ENDINGS and not archive and not path.name.lower().startswith(_NOT_TEXT)


@contextmanager
def _open(path: str, packing: str) -> Iterator[IO[bytes]]:
    if (pipe := open_pipe(path)) is not None:
        with pipe:
            yield pipe
        return
    if packing == ".zst":
        with _open_zstd(path) as stream:
            yield stream
        return
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open, "": open}
    with openers[packing](path, "rb") as stream:
        yield cast(IO[bytes], stream)


def _range(stream: IO[bytes], start: int, stop: int | None) -> IO[bytes]:
    """A part of an unpacked file."""
    stream.seek(start)
    return stream if stop is None else io.BufferedReader(_Limited(stream, stop - start))


class _Limited(io.RawIOBase):
    """The next bytes of a stream, up to a number of them."""

    def __init__(self, stream: IO[bytes], left: int) -> None:
        self.stream, self.left = stream, left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.stream.read(min(len(buffer), self.left))
        buffer[: len(data)] = data
        self.left -= len(data)
        return len(data)


@contextmanager
def _open_zstd(path: str) -> Iterator[IO[bytes]]:
    try:
        import zstandard
    except ImportError:
        raise MissingExtra("zstandard", "zstd", f"reading {path}") from None
    try:
        with open(path, "rb") as packed, zstandard.ZstdDecompressor().stream_reader(packed) as stream:
            yield io.BufferedReader(stream)
    except zstandard.ZstdError as error:
        raise EOFError(str(error)) from None
