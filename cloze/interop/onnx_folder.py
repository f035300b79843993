"""An ONNX file that cloze exported as a folder: its metadata hold the files of the checkpoint, but for the weights.

`cloze export --to onnx` puts these files into the metadata, so that one file is enough to predict.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from cloze.errors import CheckpointError, MissingExtra
from cloze.interop.files import read_json
from cloze.untrusted import parse_json, without_surrogates

FILE = "model.onnx"
KEY = "cloze"  # of the metadata
ABOUT = "cloze/onnx.json"  # what `load_onnx` needs to know of the file
_ENDINGS = (".json", ".yaml", ".txt")


def is_onnx(path: Path) -> bool:
    """Whether a path is an ONNX file, or a folder with one in place of weights."""
    return path.suffix == ".onnx" and path.is_file() or ((path / FILE).is_file() and (path / ABOUT).is_file())


def folder_of(path: Path) -> Path:
    """The folder of a checkpoint: for an ONNX file one in which its metadata are unpacked, else the path itself.

    A `CheckpointError` for a file that cloze did not export.
    """
    if path.suffix != ".onnx" or not path.is_file():
        return path
    return _unpacked(path.resolve(), path.stat().st_mtime_ns)


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """`folder_of` a path; inside the block, errors about files in that folder name the path."""
    folder = folder_of(path)
    try:
        yield folder
    except CheckpointError as error:
        parts = [part.replace(str(folder), str(path)) if isinstance(part, str) else part for part in error.args]
        if parts == [*error.args]:
            raise
        raise CheckpointError(*parts) from None


def head_in(path: Path) -> str | None:
    """The name of the head that an ONNX file holds, or the file in a folder; None: it holds the network alone."""
    with unpacked(path) as folder:
        name: str | None = read_json(folder / ABOUT, "what cloze knows of the ONNX file").get("head")
    return name


@cache
def _unpacked(path: Path, changed: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="cloze-onnx-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, text in files_in(path).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / FILE).symlink_to(path)
    return folder


def files_in(path: Path) -> Mapping[str, str]:
    """The files in the metadata by name."""
    try:
        files = parse_json(session_of(path).get_modelmeta().custom_metadata_map[KEY])
    except (KeyError, ValueError):
        raise CheckpointError(
            f"{path}: holds no tokenizer and no task, so `cloze export` did not write it.\n"
            "  Write it from the folder of the model: cloze export DIR FILE.onnx --to onnx"
        ) from None
    safe = isinstance(files, dict) and all(_is_safe(name, text) for name, text in files.items())
    if not safe or ABOUT not in files:
        raise CheckpointError(f"{path}: its metadata are not what cloze writes there. Export it again.")
    return dict(files)


def _is_safe(name: str, text: Any) -> bool:
    """Whether a file of this name can be written below a folder, and holds text."""
    path, ordinary = PurePosixPath(name), isinstance(text, str) and without_surrogates(name + text) == name + text
    return ordinary and "\0" not in name and not path.is_absolute() and ".." not in path.parts and path.suffix in _ENDINGS


def session_of(path: Path, *, threads: int = 1) -> Any:
    """onnxruntime's session of a file; a `CheckpointError` if it cannot be opened."""
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("onnxruntime", "onnx", str(path)) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes, which have no common base of a documented name
        raise CheckpointError(f"{path}: onnxruntime cannot open it ({str(error).splitlines()[0]}).") from None
