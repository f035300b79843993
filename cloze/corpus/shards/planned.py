"""What was planned before: numbers and large arrays in the folder of plans of a store, for `sharded.py` and `packed.py`.

All processes of a machine share arrays that are mapped from a file. A store that may only be read, or a full disk, is no error:
then every process plans for itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cloze.array_files import save_array
from cloze.atomic import whole_file, whole_folder

_LARGE = 1 << 18  # entries of arrays that are mapped from files
Made = TypeVar("Made")


def mapped(folder: Path, make: Callable[[], Made], of: Callable[..., Made]) -> Made:
    """A dataclass of arrays: `of` the files in `folder` if they were written before, else what `make` gives, written if large."""
    if (disk_arrays := _read(folder, of)) is not None:
        return disk_arrays
    arrays = make()
    columns = {name: column for name, column in vars(arrays).items() if column is not None}
    if max(map(len, columns.values())) < _LARGE:
        return arrays
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with whole_folder(folder) as stage:
            for name, column in columns.items():
                with (stage / f"{name}.npy").open("wb") as stream:
                    save_array(stream, column)
    except OSError:
        return arrays
    return _read(folder, of) or arrays


def _read(folder: Path, of: Callable[..., Made]) -> Made | None:
    if not folder.is_dir():
        return None
    return of(**{file.stem: np.load(file, mmap_mode="r").view(np.ndarray) for file in folder.glob("*.npy")})


def numbers(file: Path) -> dict[str, int]:
    """The numbers in a file; none if there is no such file."""
    try:
        counts: dict[str, int] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return counts


def write_numbers(file: Path, counts: Mapping[str, int]) -> None:
    """Keep numbers for later runs and other processes."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as stage:
            stage.write_text(json.dumps(counts) + "\n", encoding="utf-8")
    except OSError:
        return


def digest(value: Any) -> str:
    """A short name for plain values: equal values have equal names."""
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:24]
