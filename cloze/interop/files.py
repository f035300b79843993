"""Reading and writing the files of a Hugging Face folder: safetensors (sharded ones too), JSON, atomic publishing.

Nothing is ever unpickled. A file appears under its final name only when it is complete and on disk.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from cloze.errors import CheckpointError
from cloze.untrusted import parse_json, read_small

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_OTHERS = ("tf_model.h5", "flax_model.msgpack", "model.ckpt.index")


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
        listed = [(str(one["type"]).rpartition(".")[2], str(one["path"])) for one in value]
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path}: not a list of modules ({error!r}). Copy the file again.") from None
    for _, folder in listed:
        if Path(folder).is_absolute() or ".." in Path(folder).parts:
            raise CheckpointError(f"{path}: names the folder {folder!r}; expected folders of the same model.")
    return listed


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder as fp32, from one file or from the files that the index names."""
    if (folder / WEIGHTS).exists():
        return read_tensors(folder / WEIGHTS)
    if (folder / INDEX).exists():
        return _read_shards(folder)
    raise CheckpointError(_no_weights(folder))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """One safetensors file, floating-point tensors as fp32."""
    try:
        loaded = load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: {_damage(path, error)}") from None
    return {name: t.to(torch.float32) if t.is_floating_point() else t for name, t in loaded.items()}


def _read_shards(folder: Path) -> dict[str, Tensor]:
    index = read_json(folder / INDEX, "the index of a checkpoint in several files")
    places = index.get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise CheckpointError(f"{folder / INDEX}: no weight_map from tensor names to file names. Copy the file again.")
    result: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name:
            raise CheckpointError(f"{folder / INDEX}: names the file {name!r}; expected files of the same folder.")
        if not (folder / name).exists():
            count = sum(place == name for place in places.values())
            raise CheckpointError(
                f"{folder / name}: there is no such file; {INDEX} places {count} tensors in it.\n"
                "  Copy the whole folder again."
            )
        result.update(read_tensors(folder / name))
    absent = sorted(set(places) - set(result))
    if absent:
        raise CheckpointError(
            f"{folder}: {INDEX} promises {len(absent)} tensors that its files do not hold: {', '.join(absent[:4])}.\n"
            "  The copy is incomplete: copy the whole folder again."
        )
    return result


def _damage(path: Path, error: Exception) -> str:
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
    pickles = [name for name in _PICKLES if (folder / name).exists()]
    if pickles:
        return (
            f"{folder}: the weights are in {pickles[0]}, a pickle, which can run any code when it is opened; "
            f"expected {WEIGHTS}.\n  If you trust it, convert it once with transformers: "
            "AutoModel.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)\n"
            "  (with the class named in config.json's architectures, so that the heads come along)."
        )
    others = [name for name in _OTHERS if (folder / name).exists()]
    found = f"only {others[0]}" if others else "no weights"
    return (
        f"{folder}: {found}; expected {WEIGHTS}, or {INDEX} with its shards.\n"
        "  Save the model with transformers' save_pretrained, or copy the missing file."
    )


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
