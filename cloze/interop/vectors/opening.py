"""Detects the kind of vectors at a path from their content, and opens them."""

from __future__ import annotations

import mmap
from contextlib import suppress
from pathlib import Path
from typing import Literal

from cloze.corpus.readers.files import TextFile
from cloze.errors import CheckpointError, nearest_path
from cloze.interop.vectors.binary import read_binary
from cloze.interop.vectors.fasttext import FastText, is_fasttext, read_fasttext
from cloze.interop.vectors.text import read_text, sizes_of
from cloze.interop.vectors.vectors import Vectors

Kind = Literal["fasttext", "word2vec-binary", "text"]
_LOOKED_AT = 1 << 16


def open_vectors(path: Path | str, *, repeated: str = "refuse") -> Vectors:
    """Open vectors: a checkpoint with a table of tokens, or a file of word2vec (text, binary), GloVe or fastText (.vec, .bin).

    Files may be packed (.gz, .xz, .bz2). The matrix of a checkpoint or of fastText's .bin is memory-mapped, so only the used rows
    are read. `repeated`: `refuse` makes a repeated word an error, `first` keeps its first vector. Every fault is a
    `CheckpointError` (or a `CorpusError` for a damaged archive).
    """
    path = Path(path)
    if path.is_dir():
        from cloze.interop.vectors.checkpoint import of_folder

        return of_folder(path)
    kind = kind_of(path)
    if kind == "text":
        with TextFile(str(path)).open() as stream:
            return read_text(stream, str(path), repeated=repeated)
    data = _bytes_of(path)
    if kind == "fasttext":
        return read_fasttext(data, str(path)).vectors(str(path), repeated=repeated)
    return read_binary(data, str(path), repeated=repeated)


def width_of(path: Path | str) -> int:
    """Numbers per vector. Of a file of text only the first line is read. Errors: as `open_vectors`."""
    path = Path(path)
    if path.is_dir() or kind_of(path) != "text":
        return open_vectors(path).width
    with TextFile(str(path)).open() as stream:
        first = stream.readline()
    sizes = sizes_of(first)
    return sizes[1] if sizes is not None else len(first.split()) - 1


def open_fasttext(path: Path | str) -> FastText:
    """The complete contents of a fastText .bin file, including settings, labels and the output matrix."""
    path = Path(path)
    kind = kind_of(path)
    if kind != "fasttext":
        raise CheckpointError(f"{path}: {_NAMES[kind]}; expected fastText's .bin file.")
    return read_fasttext(_bytes_of(path), str(path))


_NAMES = {"text": "vectors as text", "word2vec-binary": "word2vec's binary file", "fasttext": "fastText's .bin file"}


def kind_of(path: Path) -> Kind:
    """The kind of a file, by its first bytes. A file without vectors is a `CheckpointError`."""
    if not path.exists():
        what = f"{path}: there is no such file or folder; expected vectors or a checkpoint."
        raise CheckpointError(f"{what} {nearest_path(path)}".rstrip())
    with TextFile(str(path)).open() as stream:
        start = stream.read(_LOOKED_AT)
    if not start.strip():
        raise CheckpointError(f"{path}: empty; expected vectors. Copy the file again.")
    if is_fasttext(start):
        return "fasttext"
    if start.startswith(b"PK\x03\x04"):
        raise CheckpointError(f"{path}: a zip archive; expected a file of vectors. Unpack it first.")
    if start.startswith(b"version https://git-lfs"):
        raise CheckpointError(f"{path}: a Git LFS pointer, not the vectors. Run `git lfs pull` in the clone it comes from.")
    first, _, rest = start.partition(b"\n")
    sizes = sizes_of(first)
    if sizes is not None and sizes[1] > 0 and not _row_of_text(rest.partition(b"\n")[0]) and _is_binary(rest):
        return "word2vec-binary"
    if start[:1] == b"\x80" and start[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        raise CheckpointError(
            f"{path}: a pickle, which can run any code when it is opened; expected vectors of word2vec, GloVe or fastText.\n"
            f"  If you trust it, save it from gensim in another way: model.wv.save_word2vec_format(PATH, binary=True)"
        )
    if path.suffix == ".safetensors":
        raise CheckpointError(f"{path}: the weights of a checkpoint; expected its folder. Give {path.parent}.")
    if _is_binary(start):
        raise CheckpointError(
            f"{path}: a binary file of another kind; expected vectors of word2vec (text or binary), GloVe or fastText."
        )
    return "text"


def _row_of_text(line: bytes) -> bool:
    fields = line.split()
    with suppress(ValueError):
        return len(fields) > 1 and all(float(field) == float(field) for field in fields[1:])
    return False


def _is_binary(start: bytes) -> bool:
    """Whether bytes contain control characters, as float32 numbers do and text does not."""
    return any(code < 9 or 13 < code < 28 for code in start)


def _bytes_of(path: Path) -> bytes | mmap.mmap:
    """The file mapped into memory; a packed one unpacked."""
    file = TextFile(str(path))
    if file.packing:
        with file.open() as stream:
            return stream.read()
    with path.open("rb") as plain:
        return mmap.mmap(plain.fileno(), 0, access=mmap.ACCESS_READ)
