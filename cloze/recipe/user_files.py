"""Python files of users, which register parts: imported by `--with`, copied into run folders, named where one is missing.

A checkpoint never runs code by itself. If a part of it is unknown, the error names the copy in its folder; the user reads that
and decides whether to give it with `--with`.
"""

from __future__ import annotations

import importlib.util
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from cloze import registry
from cloze.errors import CheckpointError, RecipeError, UnknownPart
from cloze.recipe.parts import load_kind
from cloze.recipe.recipe import parts_in

FOLDER = Path("cloze") / "code"  # of a run or a checkpoint


class UserFile(NamedTuple):
    """A file as it was imported: its path and its contents at that time."""

    path: Path
    source: bytes

    @property
    def digest(self) -> str:
        """The sha256 of the contents."""
        return sha256(self.source).hexdigest()


_imported: dict[str, UserFile] = {}  # by the name of the module


def import_files(files: Iterable[str | Path]) -> None:
    """Import user code (`--with FILE`), which registers parts; the same code is imported once per process.

    A file that was edited since is imported again, and its parts replace those of the earlier version. If that fails, the
    earlier version stays.
    """
    for file in files:
        path = Path(file).resolve()
        if not path.is_file():
            raise RecipeError(f"--with {file}: there is no such file.")
        user_file = UserFile(path, path.read_bytes())
        name = f"{registry.USER_MODULE}{path.stem}_{sha256(str(path).encode()).hexdigest()[:12]}"
        old_file = _imported.get(name)
        if old_file is not None and old_file.source == user_file.source and name in sys.modules:
            continue
        if any(entry.source == user_file.source and registry.made_in(other) for other, entry in _imported.items()):
            continue
        earlier, parts = sys.modules.pop(name, None), registry.forget(name)
        try:
            _import(file, user_file, name)
        except RecipeError:
            sys.modules.pop(name, None)
            registry.forget(name)
            for (kind, part), builder in parts.items():
                registry.register(kind, part)(builder)
            if earlier is not None:
                sys.modules[name] = earlier
            raise
        _imported[name] = user_file


def function_of(file: Path, name: str) -> tuple[Callable[..., Any], str]:
    """A function of a user's file, which is imported, and the sha256 of the file; a `RecipeError` if it has none."""
    import_files([file])
    module, user_file = next((module, entry) for module, entry in _imported.items() if entry.source == file.read_bytes())
    function = vars(sys.modules[module]).get(name)
    if not callable(function):
        raise RecipeError(f"--with {file}: has no function {name!r}.")
    return function, user_file.digest


def _import(file: str | Path, user_file: UserFile, name: str) -> None:
    """Run the source that was read: Python's cache of compiled files would miss an edit within the same second."""
    spec = importlib.util.spec_from_file_location(name, user_file.path)
    if spec is None or user_file.path.suffix != ".py":
        raise RecipeError(f"--with {file}: not a Python file (its name must end in .py).")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    linecache.checkcache(str(user_file.path))
    try:
        exec(compile(user_file.source, str(user_file.path), "exec", dont_inherit=True), vars(module))
    except RecipeError:
        raise
    except Exception as error:
        path = str(user_file.path)
        lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == path]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        option = f"--with {file}" if line is None else f"--with {file}, line {line}"
        raise RecipeError(f"{option}: importing it failed: {type(error).__name__}: {error}") from error


def files_of(parts: Any) -> dict[str, UserFile]:
    """The files that registered parts of a recipe, or of some of its sections, by the names of their copies."""
    modules = dict.fromkeys(_module_of(part.kind, part.name) for part in parts_in(parts))
    files: dict[str, UserFile] = {}
    for file in (_imported[module] for module in modules if module in _imported):
        name = file.path.name if file.path.name not in files else f"{file.path.stem}-{len(files) + 1}.py"
        files[name] = file
    return files


def record_of(files: Mapping[str, UserFile]) -> dict[str, Any]:
    """The files as `run.json` lists them among a run's inputs; nothing where there are none."""
    records = {name: {"given": str(file.path), "sha256": file.digest} for name, file in files.items()}
    return {"code": records} if records else {}


def changed_since(record: Mapping[str, Any] | None, files: Mapping[str, UserFile]) -> list[str]:
    """The files that differ from those in a run's recorded inputs."""
    old = (record or {}).get("code") or {}
    return [name for name, file in files.items() if name in old and old[name]["sha256"] != file.digest]


def write_copies(folder: Path, files: Mapping[str, UserFile]) -> None:
    """Copy files into `cloze/code` of a checkpoint."""
    for name, file in files.items():
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        (folder / FOLDER / name).write_bytes(file.source)


def copies_in(folder: Path) -> list[Path]:
    """The copies in a checkpoint's folder, or in that of the run around it."""
    for parent in (folder, *folder.absolute().parents[:3]):  # cloze/networks/NAME of a run, and its cloze/checkpoints/STEP
        copies = sorted(path for path in (parent / FOLDER).glob("*.py") if path.is_file())
        if copies:
            return copies
    return []


def _module_of(kind: str, name: str) -> str:
    load_kind(kind)
    return registry.lookup(kind, name).__module__


@contextmanager
def naming_files(folder: Path) -> Iterator[None]:
    """While a checkpoint is opened: an unknown part is a `CheckpointError` that names the file to give."""
    try:
        yield
    except UnknownPart as error:
        raise CheckpointError(f"{folder}: {error}\n{_way_out(copies_in(folder))}") from None


def require_parts(folder: Path) -> None:
    """Raise a `CheckpointError`, as `naming_files` does, if cloze's description of a checkpoint names an unknown part.

    The weights are not read, so this is quick.
    """
    from cloze.interop.own import own_description  # imports torch

    description = own_description(folder)
    if description is None:
        return
    parts = [
        ("network", description["part"]), *(("objective", head["part"]) for head in description["heads"].values()),
        *(("change", name) for change in description.get("changes", ()) for name in change),
        *(("edit", name) for edit in description.get("input_edits", ()) for name in edit),
    ]
    with naming_files(folder):
        for kind, name in parts:
            load_kind(kind)
            registry.lookup(kind, name)


def file_to_give(recipe: Path) -> str:
    """What to do about an unknown part of a recipe in a run folder, `cloze/recipe.yaml`; empty for any other recipe."""
    copies = copies_in(recipe.parent.parent) if recipe.parent.name == FOLDER.parent.name else []
    return _way_out(copies).strip() if copies else ""


def _way_out(copies: Sequence[Path]) -> str:
    if not copies:
        return (
            "  If a Python file of yours registers it, add --with FILE (in Python: with_files=[FILE]).\n"
            "  If not, the description of this checkpoint was changed: copy it again."
        )
    return (
        "  It comes from a Python file, of which the folder has a copy; a checkpoint never runs code by itself.\n"
        f"  Read the copy. If you trust it, add: {' '.join(f'--with {quote(str(path))}' for path in copies)}  "
        f"(in Python: with_files={list(map(str, copies))})"
    )
