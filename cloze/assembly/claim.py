"""The folder that `--out` names: taken by one process before anything is written, and left unchanged if no run starts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloze.errors import CheckpointError, ClozeError
from cloze.processes import rank
from cloze.training.lock import alone_in

_RUN = Path("cloze") / "run.json"
SEEDS = Path("cloze") / "seeds"  # the runs of several seeds, each in a folder of its own
_BEFORE_RUN = {"lock", "corpus", "stages"}  # in `cloze/` where a run was prepared and did not begin


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Hold a run's folder, on the first rank; it is created if it does not exist.

    If the block fails before a run has begun in the folder, everything that this process created is removed. Text that an
    interrupted process has already read is kept for the next one. Raises `CheckpointError` if the folder holds something else or
    cannot be written, `RunError` if another process trains there.
    """
    if rank() != 0:
        yield
        return
    require_own(out)
    made = _make(out)
    inner = not (out / "cloze").exists()
    try:
        with alone_in(out, first=True):
            try:
                yield
            except BaseException as error:
                if inner and not _worth_keeping(out / "cloze", stores=not isinstance(error, ClozeError)):
                    shutil.rmtree(out / "cloze", ignore_errors=True)
                raise
    except BaseException:
        for folder in made:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        raise


def run_name(folder: Path) -> str:
    """The name of a run by its folder; that of one of several seeds is the name of the folder of all."""
    place = folder.resolve()
    return place.parents[2].name if place.parent.parts[-2:] == SEEDS.parts else place.name


def is_run(out: Path) -> bool:
    """Whether a run began in a folder, or runs of several seeds."""
    return (out / _RUN).is_file() or (out / SEEDS).is_dir()


def only_prepared(out: Path) -> bool:
    """Whether a folder holds only what was prepared for a run that never started."""
    if is_run(out) or not (out / "cloze").is_dir():
        return False
    return all(path.name == "cloze" for path in out.iterdir()) and all(
        path.name in _BEFORE_RUN for path in (out / "cloze").iterdir()
    )


def require_own(out: Path) -> None:
    """Refuse a folder that holds anything but a run, or what was prepared for one."""
    if out.exists() and not out.is_dir():
        raise CheckpointError(f"{out}: is a file; expected the folder of a run. Choose another --out.")
    if not out.exists() or is_run(out):
        return
    found = sorted(path.name for path in out.iterdir() if path.name != "cloze")
    if (out / "cloze").is_dir():
        found += sorted(f"cloze/{path.name}" for path in (out / "cloze").iterdir() if path.name not in _BEFORE_RUN)
    if not found:
        return
    named = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
    way_out = " To start from its weights, use --init." if (out / "config.json").is_file() else ""
    raise CheckpointError(
        f"{out}: holds {named}, which no run of cloze wrote; training could overwrite these files.\n"
        f"  Choose another --out.{way_out}"
    )


def _make(out: Path) -> list[Path]:
    """Make a folder and its parents; returns the ones that did not exist, the innermost first."""
    absent = [folder for folder in (out, *out.parents) if not folder.exists()]
    made: list[Path] = []
    try:
        for folder in reversed(absent):
            folder.mkdir()
            made.insert(0, folder)
    except FileExistsError:  # another process made it at the same moment: the lock decides between the two
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        for folder in made:
            folder.rmdir()
        reason = (error.strerror or str(error)).lower()
        raise CheckpointError(f"{out}: cannot be created: {reason}. Choose another --out.") from None
    return made


def _worth_keeping(inner: Path, *, stores: bool) -> bool:
    """Whether a run has begun below `cloze/`, or, with `stores`, text has been read there."""
    kept = {"run.json", "store.json"} if stores else {"run.json"}
    return any(path.name in kept for path in inner.rglob("*.json"))
