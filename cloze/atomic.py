"""Files and folders that appear under their names whole or not at all, and replace older ones without a moment of neither.

What is being written lies next to its target in a hidden place, `.NAME.new-XXXXXXXX`, on which its writer holds a lock. Once it
is whole it gets the name. An older one of that name exchanges names with it (renameat2 with RENAME_EXCHANGE on Linux,
renamex_np with RENAME_SWAP on macOS). Where the file system cannot do that, the older one is called `.NAME.kept` for a moment;
if the process dies in that moment, the next writer gives it its name back. The next writer also removes the hidden places of
killed ones: those on which nobody holds a lock.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cloze.errors import CheckpointError, UserError

_AT_CWD = -100
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux and RENAME_SWAP of macOS have the same value


@contextmanager
def whole_folder(target: Path, *, new: bool = False) -> Iterator[Path]:
    """An empty folder to write in, which becomes `target` when the block ends without an error and is removed otherwise.

    A `new` target is never replaced: `require_new` is asked before and after the block.
    """
    if new:
        require_new(target)
    with hidden(target) as folder:
        stage = folder / target.name
        stage.mkdir()
        yield stage
        flush(stage)
        if not new:
            put(stage, target)
            return
        require_new(target)  # another process may have written it meanwhile
        os.replace(stage, target)
        _sync(target.parent)


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """The path of a file to write, which becomes `target` when the block ends without an error and is removed otherwise."""
    with hidden(target) as folder:
        stage = folder / target.name
        yield stage
        flush(stage)
        os.replace(stage, target)
        _sync(target.parent)


def put(new: Path, target: Path) -> None:
    """Give a finished folder its name, in the same file system; an older one of that name is removed afterwards."""
    backup = _kept(target)
    if not os.path.lexists(target):
        os.replace(new, target)
    elif exchange(new, target):
        _sync(target.parent)
        _remove(new)
    else:
        os.replace(target, backup)
        os.replace(new, target)
        _sync(target.parent)
        _remove(backup)
    _sync(target.parent)


def recover(target: Path) -> None:
    """Finish what a killed writer of `target` began: an older one gets its name back, hidden places are removed."""
    if not target.parent.is_dir():
        return
    backup = _kept(target)
    if os.path.lexists(backup):
        if os.path.lexists(target):
            _remove(backup)
        else:
            os.replace(backup, target)
    with _locked(target.parent):
        for folder in target.parent.glob(f".{_escaped(target.name)}.new-*"):
            _sweep(folder)


def exchange(path: Path, other: Path) -> bool:
    """Exchange the names of two files or folders in one step; False, with nothing changed, where that cannot be done."""
    library = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(path), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            return int(library.renamex_np(first, second, _EXCHANGE)) == 0
        return int(library.renameat2(_AT_CWD, first, _AT_CWD, second, _EXCHANGE)) == 0
    except AttributeError:  # a C library without the call
        return False


def flush(path: Path) -> None:
    """Force a file, or every file below a folder and the folders themselves, to the disk."""
    for entry in [*path.rglob("*"), path] if path.is_dir() else [path]:
        _sync(entry)


@contextmanager
def hidden(target: Path) -> Iterator[Path]:
    """A hidden folder next to `target` for as long as the block lasts, locked by this process; see `put`.

    An `OSError` about something in it names `target`, or the file in `target`, because users know nothing of the hidden place.
    """
    with _naming(target):
        recover(target)
        with _locked(target.parent):  # nobody sweeps between making and locking
            folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.new-", dir=target.parent))
            held = os.open(folder, os.O_RDONLY)
            with suppress(OSError):  # a file system without locks on folders: nothing is ever swept there
                fcntl.flock(held, fcntl.LOCK_EX)
        try:
            folder.chmod(0o755)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)


@contextmanager
def _naming(target: Path) -> Iterator[None]:
    """Let an `OSError` name `target` in place of a hidden one next to it."""
    try:
        yield
    except OSError as error:
        _, hidden_name, after = str(error.filename).partition(f".{target.name}.new-")
        if hidden_name:
            inner = Path(after).parts[2:]  # below the random letters and the folder of the same name
            error.filename = str(target.joinpath(*inner))
        elif error.filename is None and error.errno == errno.ENOSPC:
            error.filename = str(target)
        raise


def _sweep(path: Path) -> None:
    """Remove a hidden place if its writer is gone."""
    with suppress(OSError):
        held = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        finally:
            os.close(held)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder's own lock for a moment."""
    held = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _kept(target: Path) -> Path:
    return target.with_name(f".{target.name}.kept")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _escaped(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_parent(path: Path) -> None:
    """Raise a `UserError` if the folder of a file to write does not exist."""
    if not path.parent.is_dir():
        raise UserError(f"{path}: its folder does not exist. Make it first, or choose another name.")


def require_output(
    path: Path, *, overwrite: bool = False, what: str = "", holds: Callable[[Path], bool] = lambda path: False
) -> None:
    """Raise a `UserError` if a file cannot be written, or if there is one that must not be replaced.

    An existing file is replaced with `overwrite`, or if it `holds` what the same command wrote before, which is called `what`.
    """
    require_parent(path)
    if path.is_dir():
        raise UserError(f"{path}: is a folder; expected the name of a file to write.")
    if overwrite or not os.path.lexists(path) or (path.is_file() and holds(path)):
        return
    if what:
        raise UserError(f"{path}: holds something else than {what}, which would be lost. Choose another --out.")
    raise UserError(f"{path}: already exists. Choose another name, or replace it with --overwrite.")


def require_new(out: Path) -> None:
    """Raise a `CheckpointError` if `out` is a file or a folder that is not empty; what a killed writer left is removed first."""
    recover(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CheckpointError(f"{out}: is {'not empty' if out.is_dir() else 'a file'}. Choose a new or empty folder.")
