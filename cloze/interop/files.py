"""Reading and writing the files of a Hugging Face folder: safetensors (sharded ones too), JSON, atomic publishing.

No code of a file runs: a pickle is read as tensors alone (`pickled.py`). A file appears under its final name only when it is
complete and on disk.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.interop.pickled import load_state, widened
from cloze.untrusted import parse_json, read_small, require_ordinary

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
DESCRIPTION = "cloze/network.json"
#: The files that may hold a folder's weights: the first that is there counts. An index names its shards.
_WEIGHT_FILES = (WEIGHTS, INDEX, PICKLE, f"{PICKLE}.index.json")
_OTHERS = ("tf_model.h5", "flax_model.msgpack", "model.ckpt.index", "bert_model.ckpt.index")

#: What wrappers of modules put in front of every name: torch's DataParallel, and torch.compile.
_WRAPPERS = ("module.", "_orig_mod.")

T = TypeVar("T")


class StoredWeights(NamedTuple):
    """The tensors of a folder as fp32, and the narrower types in which they are stored, such as `bfloat16`."""

    tensors: dict[str, Tensor]
    narrow: tuple[str, ...]


@contextmanager
def staged(folder: Path, last: tuple[str, ...] = ("config.json",)) -> Iterator[Path]:
    """A temporary folder whose files move to `folder` together, each by one rename, those in `last` at the end.

    If anything fails before that, `folder` is unchanged. A folder has one writer; leftovers of a killed writer are removed.
    """
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    for litter in folder.glob(".writing-*"):
        shutil.rmtree(litter, ignore_errors=True)
    stage = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))
    try:
        yield stage
        files = sorted((p for p in stage.rglob("*") if p.is_file()), key=lambda p: (p.name in last, p.as_posix()))
        for path in files:
            _sync(path)
        for path in files:
            target = folder / path.relative_to(stage)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
        for parent in {folder, *((folder / path.relative_to(stage)).parent for path in files)}:
            _sync(parent)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        if new and not any(folder.iterdir()):
            folder.rmdir()


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as fp32 (integers as they are) with the metadata that transformers asks for."""
    ready: dict[str, Tensor] = {}
    stored: set[int] = set()
    for name, tensor in tensors.items():
        plain = (tensor.detach().float() if tensor.is_floating_point() else tensor.detach()).cpu().contiguous()
        storage = plain.untyped_storage().data_ptr()
        ready[name] = plain.clone() if storage in stored else plain  # safetensors refuses tensors that share memory
        stored.add(ready[name].untyped_storage().data_ptr())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()  # an ordinary file first: safetensors makes new files readable by their owner only
    mode = path.stat().st_mode
    try:
        save_file(ready, path, metadata={"format": "pt"})
    except SafetensorError as error:
        if "os error 28" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from None
        raise
    path.chmod(mode & 0o777)


def write_json(path: Path, value: Any) -> None:
    """Write JSON as transformers does: two spaces, sorted keys, a newline at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path, expected: str) -> dict[str, Any]:
    """A JSON object; `expected` says what the file is for. Every fault is a `CheckpointError`."""
    try:
        value = parse_json(read_small(path))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: there is no such file; expected {expected}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); expected {expected}.") from None
    except json.JSONDecodeError as error:
        raise CheckpointError(
            f"{path}, line {error.lineno}: not JSON ({error.msg}); expected {expected}.\n  Copy the file again."
        ) from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: a JSON {type(value).__name__}; expected {expected}.")
    return value


def parse_modules(path: Path) -> list[tuple[str, str]]:
    """The modules of sentence-transformers' modules.json in their order: the last word of the type, and the folder.

    A folder outside the model, and anything that is no such list, is a `CheckpointError`.
    """
    try:
        value = parse_json(read_small(path))
        listed = [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in value]
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path}: not a list of modules ({error!r}). Copy the file again.") from None
    for _, folder in listed:
        if Path(folder).is_absolute() or ".." in Path(folder).parts:
            raise CheckpointError(f"{path}: names the folder {folder!r}; expected folders of the same model.")
    return listed


def weights_file(folder: Path) -> Path:
    """The file that holds a folder's weights, or the index that names its shards; a `CheckpointError` if there is none."""
    file = next((folder / name for name in _WEIGHT_FILES if (folder / name).exists()), None)
    if file is None:
        raise CheckpointError(_no_weights(folder))
    return file


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder as fp32; see `read_stored`."""
    return read_stored(folder).tensors


def read_stored(folder: Path) -> StoredWeights:
    """All tensors of a folder, from one file or from the files that the index names, without the prefix of a wrapper."""
    path = weights_file(folder)
    stored = _read_shards(path) if path.suffix == ".json" else _stored(path)
    for wrapper in _WRAPPERS:
        if all(name.startswith(wrapper) for name in stored):
            stored = {name.removeprefix(wrapper): tensor for name, tensor in stored.items()}
    types = {str(tensor.dtype).removeprefix("torch.") for tensor in stored.values() if tensor.is_floating_point()}
    return StoredWeights(widened(stored), tuple(sorted(types - {"float32", "float64"})))


def names_of_weights(folder: Path) -> list[str]:
    """The names of all tensors of a folder; of files that are not pickles, only the beginning is read."""
    path = weights_file(folder)
    if path.name == WEIGHTS:
        return _opened(path, lambda: list(safe_open(path, "pt").keys()))
    return list(_places(path)) if path.suffix == ".json" else list(read_tensors(path))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """One file of safetensors, or of a pickle by its ending, floating-point tensors as fp32."""
    return widened(_stored(path))


def _stored(path: Path) -> dict[str, Tensor]:
    """The same as they are in the file."""
    return load_state(path) if path.suffix == ".bin" else _opened(path, lambda: load_file(path))


def _opened(path: Path, read: Callable[[], T]) -> T:
    try:
        require_ordinary(path)
        return read()
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: {_damage(path, error)}") from None


def _places(path: Path) -> dict[str, str]:
    """The file of each tensor that an index names."""
    places = read_json(path, "the index of a checkpoint in several files").get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise CheckpointError(f"{path}: no weight_map from tensor names to file names. Copy the file again.")
    return places


def _read_shards(path: Path) -> dict[str, Tensor]:
    places, folder = _places(path), path.parent
    result: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name:
            raise CheckpointError(f"{path}: names the file {name!r}; expected files of the same folder.")
        if not (folder / name).exists():
            count = sum(shard == name for shard in places.values())
            raise CheckpointError(
                f"{folder / name}: there is no such file; {path.name} places {count} tensors in it.\n"
                "  Copy the whole folder again."
            )
        result.update(_stored(folder / name))
    absent = sorted(set(places) - set(result))
    if absent:
        raise CheckpointError(
            f"{folder}: {path.name} promises {len(absent)} tensors that its files do not hold: {', '.join(absent[:4])}.\n"
            "  The copy is incomplete: copy the whole folder again."
        )
    return result


def _damage(path: Path, error: Exception) -> str:
    if not path.is_file():
        return f"{'not an ordinary file' if path.exists() else 'there is no such file'}; expected a file of safetensors."
    with path.open("rb") as file:
        start = file.read(64)
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the weights.\n  Fetch the real file: run `git lfs pull` in the clone it comes from."
    size = path.stat().st_size
    return (
        f"damaged or copied only in part ({size} bytes; {error}); expected a whole safetensors file.\n"
        "  Copy it again, or use an earlier checkpoint."
    )


def _no_weights(folder: Path) -> str:
    files = [name for name in _OTHERS if (folder / name).exists()]
    contents = f"only {files[0]}" if files else "no weights"
    return f"{folder}: {contents}; expected {WEIGHTS} or {PICKLE}, or an index with its shards.\n  Copy the missing file."


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
