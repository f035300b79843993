"""The folder that `--out` names: taken by one process before anything is written, and left unchanged if no run starts.

The section "Folders" of docs/architecture.md describes the protocol.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cloze.atomic import exchange
from cloze.errors import CheckpointError, ClozeError, RunError, Say
from cloze.processes import rank
from cloze.training.checkpoints.lock import alone_in, holds, require_free
from cloze.training.run import read_run_record
from cloze.untrusted import parse_json, read_small

_RUN = Path("cloze") / "run.json"
_TASK = Path("cloze") / "task.json"
SEEDS = Path("cloze") / "seeds"  # the runs of several seeds, each in a folder of its own
_BEFORE_RUN = {"lock", "corpus", "stages"}  # in `cloze/` where a run was prepared and did not begin
#: Options that do not change what is trained, and how many words of a command each takes.
_FREE = {"--out": 2, "--test": 2, "--keep-checkpoints": 1}
WAIT = 60.0  # seconds


@contextmanager
def claimed(
    out: Path, *, overwrite: bool | None = None, resume: bool = True, command: Sequence[str] = (),
    say: Say = lambda line: None,
) -> Iterator[None]:
    """Hold a run's folder, on the first rank; it is created if it does not exist. The claim is re-entrant within a thread.

    If the block fails before a run has begun in the folder, everything that this process created is removed. Text that an
    interrupted process has already read is kept for the next one. With `overwrite` (None: the command has no such option), what
    the folder holds is set aside, unless it is an unfinished run of the same `command`, which resumes; it is removed when the new
    run has finished, and put back if that has written no checkpoint. Without `resume`, a run in the folder is refused. Raises
    `CheckpointError` if the folder holds something else or cannot be written, or if another process trains there.
    """
    if rank() != 0 or holds(out):
        _wait_until_set_aside(out, overwrite=overwrite, command=command)
        yield
        return
    require_free(out)
    _clean_up_after_kill(out)
    require_usable(out, overwrite=overwrite, resume=resume, command=command)
    if _replaces(out, overwrite=overwrite, command=command):
        _set_aside(out)
    new_folders = _make_folders(out)
    new_inner = not (out / "cloze").exists()
    try:
        with alone_in(out, first=True):
            try:
                yield
            except BaseException as error:
                keeps_stores = not isinstance(error, ClozeError)  # interrupted: the next process need not read the text again
                if not _put_back(out) and new_inner and not _worth_keeping(out / "cloze", stores=keeps_stores):
                    shutil.rmtree(out / "cloze", ignore_errors=True)
                raise
            finally:
                _drop_or_put_back(out, say)
    except BaseException:
        for folder in new_folders:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        raise


def require_usable(
    out: Path, *, overwrite: bool | None = None, resume: bool = True, command: Sequence[str] = ()
) -> None:
    """Refuse a folder in which another process trains, or that `claimed` would refuse; nothing is written.

    Where an earlier run has set a result aside, `claimed` decides under the lock what the folder holds.
    """
    if rank() != 0 or holds(out):
        return
    require_free(out)
    if _replaces(out, overwrite=overwrite, command=command):
        has_aside = _holds_result(_aside(out))  # if `out` has no checkpoint, `claimed` gives it its name back
        if has_aside and has_checkpoint(out):
            raise CheckpointError(
                f"{out}: holds an unfinished run of another command. That run replaces a result, which is in {_aside(out)}.\n"
                f"  Choose another --out, resume the run, or remove {out}: the result then gets its name back."
            )
        if not has_aside and not ((out / _TASK).is_file() or (out / SEEDS).is_dir()):
            raise CheckpointError(
                f"{out}: already exists, and cloze finetune did not write it; --overwrite does not delete it.\n"
                "  Choose another --out, or remove it yourself."
            )
    elif not _holds_result(_aside(out)):
        _require_run_folder(out, overwrite=overwrite, resume=resume)
    _require_writable(out)


def run_name(folder: Path) -> str:
    """The name of a run by its folder; that of one of several seeds is the name of the folder of all."""
    path = folder.resolve()
    return path.parents[2].name if path.parent.parts[-2:] == SEEDS.parts else path.name


def is_run(out: Path) -> bool:
    """Whether a run began in a folder, or runs of several seeds."""
    return (out / _RUN).is_file() or (out / SEEDS).is_dir()


def has_finished(out: Path) -> bool:
    """Whether a run of fine-tuning has finished in a folder."""
    try:
        return "trials" in parse_json(read_small(out / _TASK))
    except (OSError, ValueError, TypeError):
        return False


def has_checkpoint(out: Path) -> bool:
    """Whether a run has written a checkpoint in a folder, or one of its stages or seeds has."""
    return next((out / "cloze").glob("**/checkpoints/step-*"), None) is not None


def only_prepared(out: Path) -> bool:
    """Whether a folder holds only what was prepared for a run that never started."""
    if is_run(out) or not (out / "cloze").is_dir():
        return False
    return all(path.name == "cloze" for path in out.iterdir()) and all(
        path.name in _BEFORE_RUN for path in (out / "cloze").iterdir()
    )


def _require_run_folder(out: Path, *, overwrite: bool | None = None, resume: bool = True) -> None:
    """Refuse a folder that holds anything but a run that can `resume`, or what was prepared for one."""
    if out.exists() and not out.is_dir():
        raise CheckpointError(f"{out}: is a file; expected the folder of a run. Choose another --out.")
    if not out.exists() or (resume and is_run(out)):
        return
    names = sorted(path.name for path in out.iterdir() if path.name != "cloze")
    if (out / "cloze").is_dir():
        names += sorted(f"cloze/{path.name}" for path in (out / "cloze").iterdir() if path.name not in _BEFORE_RUN)
    if not names:
        return
    if overwrite is not None and (out / _TASK).is_file():
        raise CheckpointError(f"{out}: already holds a fine-tuned model. Choose another --out, or replace it with --overwrite.")
    listing = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    way_out = " To start from its weights, use --init." if overwrite is None and (out / "config.json").is_file() else ""
    raise CheckpointError(
        f"{out}: holds {listing}, which no run of cloze wrote; training could overwrite these files.\n"
        f"  Choose another --out.{way_out}"
    )


def _aside(out: Path) -> Path:
    """Where the previous contents of a folder are until the run that replaces them has finished."""
    return out.with_name(f".{out.name}.replaced")


def _holds_result(folder: Path) -> bool:
    """Whether a folder holds more than what is prepared for a run."""
    return folder.is_dir() and any(folder.iterdir()) and not only_prepared(folder)


def _replaces(out: Path, *, overwrite: bool | None, command: Sequence[str]) -> bool:
    """Whether a claim sets aside what the folder holds."""
    if not overwrite or not out.exists() or only_prepared(out) or (out.is_dir() and not any(out.iterdir())):
        return False
    unfinished = has_checkpoint(out) and not has_finished(out)
    return not (unfinished and _same_command(out, command))


def _same_command(out: Path, command: Sequence[str]) -> bool:
    """Whether the run in a folder, or one of its seeds or stages, was started by this command."""
    folders = [out, *out.glob(str(SEEDS / "*")), *out.glob("cloze/stages/*")]
    records = [record for folder in folders if (record := read_run_record(folder)) is not None]
    return any(_training_words(record.get("command", ())) == _training_words(command) for record in records)


def _training_words(command: Sequence[str]) -> list[str]:
    """The words of a command that say what it trains: all but the options in `_FREE`."""
    free = {index + step for index, word in enumerate(command) for step in range(_FREE.get(word, 0))}
    return [word for index, word in enumerate(command) if index not in free]


def _set_aside(out: Path) -> None:
    """Give an empty folder the name of the result, and the result that of `_aside`, in one step where the system can."""
    with alone_in(out, first=True):  # nobody trains in it
        aside = _aside(out)
        (aside / "cloze").mkdir(parents=True, exist_ok=True)
        if not exchange(aside, out):
            shutil.rmtree(aside)
            os.replace(out, aside)


def _wait_until_set_aside(out: Path, *, overwrite: bool | None, command: Sequence[str]) -> None:
    """Of several processes, all but the first wait until it has set a result aside."""
    began = time.monotonic()
    while rank() != 0 and _replaces(out, overwrite=overwrite, command=command):
        if time.monotonic() - began > WAIT:
            raise RunError(f"{out}: rank 0 has not taken this folder after {WAIT:.0f} s. Its own output may have the reason.")
        time.sleep(0.1)


def _clean_up_after_kill(out: Path) -> None:
    """Finish what a killed process began: its result stays if it finished, the previous one comes back if it wrote nothing."""
    if not _aside(out).exists():
        return
    with alone_in(out, first=True):
        _put_back(out)
        _drop_or_put_back(out, lambda line: None)


def _put_back(out: Path) -> bool:
    """Give the previous contents their name back unless a checkpoint was written; the caller holds the lock of `out`."""
    aside = _aside(out)
    if not _holds_result(aside) or has_checkpoint(out) or has_finished(out):
        return False
    if not exchange(aside, out):
        unused = Path(tempfile.mkdtemp(prefix=f".{out.name}.new-", dir=out.parent))
        os.replace(out, unused)
        os.replace(aside, out)
        os.replace(unused, aside)
    shutil.rmtree(aside, ignore_errors=True)
    return True


def _drop_or_put_back(out: Path, say: Say) -> None:
    """Remove the previous contents if the run has finished; put them back if it has no checkpoint; else say where they are."""
    aside = _aside(out)
    if not aside.exists():
        return
    if has_finished(out) or not _holds_result(aside):
        shutil.rmtree(aside, ignore_errors=True)
    elif not _put_back(out):
        say(f"{aside}: keeps the previous contents of --out until this run has finished.")


def _require_writable(out: Path) -> None:
    """Refuse a folder that cannot be created or written."""
    ancestor = next(parent for parent in (out.absolute(), *out.absolute().parents) if parent.exists())
    if not ancestor.is_dir():
        raise CheckpointError(f"{out}: cannot be created: not a directory. Choose another --out.")
    if not os.access(ancestor, os.W_OK | os.X_OK):
        raise CheckpointError(f"{out}: you cannot write to {ancestor}. Choose another --out.")


def _make_folders(out: Path) -> list[Path]:
    """Make a folder and its parents; returns the ones that did not exist, the innermost first."""
    absent = [folder for folder in (out, *out.parents) if not folder.exists()]
    new_folders: list[Path] = []
    try:
        for folder in reversed(absent):
            folder.mkdir()
            new_folders.insert(0, folder)
    except FileExistsError:  # another process made it at the same moment: the lock decides between the two
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        for folder in new_folders:
            folder.rmdir()
        reason = (error.strerror or str(error)).lower()
        raise CheckpointError(f"{out}: cannot be created: {reason}. Choose another --out.") from None
    return new_folders


def _worth_keeping(inner: Path, *, stores: bool) -> bool:
    """Whether a run has begun below `cloze/`, or, with `stores`, text has been read there."""
    names = {"run.json", "store.json"} if stores else {"run.json"}
    return any(path.name in names for path in inner.rglob("*.json"))
