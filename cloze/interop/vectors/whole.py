"""One file, written whole or not at all."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from cloze import atomic
from cloze.errors import UserError


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write; it appears under its name, by one rename, only when it is on disk. It is compressed if its name ends in
    .gz."""
    atomic.require_parent(path)
    if path.is_dir():
        raise UserError(f"{path}: is a folder; expected the name of a file to write.")
    with atomic.whole_file(path) as stage, stage.open("wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(path.stem, "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
                yield cast(IO[bytes], packed)
        else:
            yield file
