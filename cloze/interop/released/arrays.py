"""Arrays of others by name, taken with the shape that is expected: what is missing, misshapen or left over is said."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cloze.errors import CheckpointError, MissingExtra
from cloze.untrusted import require_ordinary

_MOST_PACKED = 30  # weights hardly compress; more is a file that blows up


class Arrays:
    """Named tensors of one file, each taken once."""

    def __init__(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        self.path, self._left = path, dict(tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def shape(self, name: str, dimensions: int) -> tuple[int, ...]:
        """The shape of a tensor, which has so many dimensions."""
        shape = self._found(name).shape
        if len(shape) != dimensions:
            raise CheckpointError(f"{self.path}: {name} has the shape {tuple(shape)}; expected {dimensions} dimensions.")
        return tuple(shape)

    def take(self, name: str, *shape: int) -> Tensor:
        """A tensor of this shape, float32. Errors: `CheckpointError`."""
        tensor = self._found(name)
        if tuple(tensor.shape) != shape:
            raise CheckpointError(
                f"{self.path}: {name} has the shape {tuple(tensor.shape)}; expected {shape}.\n"
                "  The file belongs to another model than its other files, or was cut: copy all of them again."
            )
        if not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(f"{self.path}: {name} holds numbers that are not finite. Copy the file again.")
        del self._left[name]
        return tensor.float()

    def left(self) -> list[str]:
        """The names that nobody took."""
        return sorted(self._left)

    def _found(self, name: str) -> Tensor:
        if name not in self._left:
            names = ", ".join(sorted(self._left)[:4]) or "nothing"
            raise CheckpointError(f"{self.path}: there is no {name} in it, only {names} …; expected the whole file.")
        return self._left[name]


def read_hdf5(path: Path) -> Arrays:
    """All data sets of an HDF5 file. Links to other files are refused. `MissingExtra` without h5py."""
    try:
        import h5py
    except ImportError:
        raise MissingExtra("h5py", "hdf5", "reading ELMo's weights") from None
    tensors: dict[str, Tensor] = {}

    def gather(group: Any, prefix: str) -> None:
        for name in group:
            link = group.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink):
                raise CheckpointError(f"{path}: {prefix}{name} is a link out of its place; expected arrays.")
            item = group[name]
            if isinstance(item, h5py.Group):
                if prefix.count("/") > 8:
                    raise CheckpointError(f"{path}: nested too deeply; expected arrays.")
                gather(item, f"{prefix}{name}/")
                continue
            if item.dtype.kind != "f" or item.external or item.is_virtual:
                raise CheckpointError(f"{path}: {prefix}{name} is not an array of numbers in this file; expected one.")
            if item.nbytes > _MOST_PACKED * max(item.id.get_storage_size(), 64):
                raise CheckpointError(f"{path}: {prefix}{name} would grow to {item.nbytes:,} bytes; the file is damaged.")
            tensors[f"{prefix}{name}"] = torch.from_numpy(np.asarray(item[...], np.float32))

    try:
        require_ordinary(path)
        with h5py.File(path, "r") as file:
            gather(file, "")
    except OSError as error:
        raise CheckpointError(f"{path}: not a whole HDF5 file ({error}); expected ELMo's weights. Copy the file again.") from None
    return Arrays(path, tensors)


def read_npz(path: Path) -> Arrays:
    """All arrays of numbers in NumPy's archive; objects, which would be unpickled, are refused."""
    try:
        require_ordinary(path)
        with zipfile.ZipFile(path) as archive:
            grown = [member for member in archive.infolist() if member.file_size > _MOST_PACKED * max(member.compress_size, 64)]
        if grown:
            raise CheckpointError(f"{path}: {grown[0].filename} would grow to {grown[0].file_size:,} bytes; it is damaged.")
        with np.load(path, allow_pickle=False) as file:
            tensors = {name: torch.from_numpy(np.asarray(file[name], np.float32)) for name in file.files}
    except (OSError, ValueError, EOFError, KeyError, MemoryError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path}: not an archive of arrays ({error}); expected .npz. Copy the file again.") from None
    return Arrays(path, tensors)


def read_npy(path: Path) -> np.ndarray[Any, Any]:
    """A matrix of numbers, mapped from the file; an array of objects, which would be unpickled, is refused."""
    try:
        require_ordinary(path)
        matrix: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: there is no such file; it belongs to the model: put it into the same folder.") from None
    except (OSError, ValueError, EOFError) as error:
        raise CheckpointError(
            f"{path}: not a plain array ({error}); expected one number per cell.\n"
            "  If it holds objects and you trust it: numpy.save(NEW, numpy.load(PATH, allow_pickle=True).astype('float32'))"
        ) from None
    if matrix.ndim != 2 or matrix.dtype.kind != "f":
        raise CheckpointError(f"{path}: an array {matrix.shape} of {matrix.dtype}; expected a row of numbers for every word.")
    return matrix
