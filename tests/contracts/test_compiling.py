"""How kernels are compiled, and that machine code of other sources, registers or argument types is never loaded."""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloze.compiled import has_numba
from cloze.errors import UserError

numba = pytest.importorskip("numba")

from cloze import kernel  # noqa: E402

ROOT = Path(kernel.__file__).parent


def imports(path: Path) -> set[str]:
    """What a file imports, wherever it stands in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def module_of(path: Path) -> str:
    """The dotted name of a file of the package."""
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def test_every_file_that_kernels_are_made_of_is_in_the_key() -> None:
    found = set(kernel.sources())
    asking = {ROOT / "engines" / name for name in ("conditions.py", "tables.py")}  # ask about kernels, and hold none
    compiling = {path for path in ROOT.rglob("*.py") if imports(path) & {"numba", "cloze.kernel", "cloze.simd"}} - asking
    assert compiling <= found and len(compiling) > 10
    allowed = {module_of(path) for path in found} | {"cloze.errors"}
    for path in found:
        assert {name for name in imports(path) if name.startswith("cloze")} <= allowed, path


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the sources that the key is taken of."""
    for path in kernel.sources():
        to = tmp_path / path.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(path.read_bytes())
    monkeypatch.setattr(kernel, "_ROOT", tmp_path)
    kernel.key.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    kernel.key.cache_clear()


def fresh_key() -> str:
    kernel.key.cache_clear()
    return kernel.key()


def test_the_key_changes_with_every_source_with_the_vector_width_and_with_the_compiler(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [fresh_key()]
    assert fresh_key() == keys[0]
    for path in kernel.sources():
        path.write_text(path.read_text() + "\n")
        keys.append(fresh_key())
    monkeypatch.setattr(kernel, "SIMD_WIDTH", 8 if kernel.SIMD_WIDTH == 16 else 16)
    keys.append(fresh_key())
    monkeypatch.setattr(numba, "__version__", "0.0")
    keys.append(fresh_key())
    assert len(keys) > 12 and len(set(keys)) == len(keys)


@pytest.fixture
def kept_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that machine code goes to."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept"


def twice(x: Any) -> Any:
    return x * 2


def test_machine_code_is_kept_under_the_key_and_found_again(kept_in: Path) -> None:
    made = kernel.kernel()(twice)
    assert not kernel.is_kept(made)
    assert made(3) == 6 and kernel.is_kept(made)
    files = [path.name for path in kept_in.rglob("*.nb[ic]")]
    assert len(files) == 2 and all(kernel.key() in name for name in files)
    again = kernel.kernel()(twice)
    assert again(4) == 8 and sum(again.stats.cache_hits.values()) == 1


def test_code_for_other_types_is_not_taken_from_a_file_that_another_process_wrote_over(kept_in: Path) -> None:
    made = kernel.kernel()(twice)
    assert made(3) == 6
    (index,) = kept_in.rglob("*.nbi")
    with index.open("rb") as file:
        version, (stamp, overloads) = pickle.load(file), pickle.loads(file.read())
    ((signature, *rest), name), = overloads.items()
    wrong = {((numba.types.float64,), *rest): name}  # the index of floats leads to the code of integers
    with index.open("wb") as file:
        pickle.dump(version, file)
        file.write(pickle.dumps((stamp, wrong)))
    again = kernel.kernel()(twice)
    assert again(1.5) == 3.0


def test_code_under_an_old_key_is_removed_after_a_month(kept_in: Path) -> None:
    made = kernel.kernel()(twice)
    made(3)
    (index,) = kept_in.rglob("*.nbi")
    old, young = (index.with_name(index.name.replace(kernel.key(), name * 16)) for name in "01")
    old.touch()
    young.touch()
    os.utime(old, (time.time() - 40 * 24 * 3600,) * 2)
    made(1.5)
    assert not old.exists() and young.exists() and index.exists()


def test_where_nothing_can_be_written_kernels_are_compiled_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: Any) -> Any:
        raise RuntimeError("cannot cache function 'twice': no locator available for file")

    monkeypatch.setattr(kernel, "_Kept", refuse)
    made = kernel.kernel()(twice)
    monkeypatch.undo()
    assert made(3) == 6 and not kernel.is_kept(made)


def test_the_environment_sets_the_vector_width_and_hides_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, width in (("8", 8), ("16", 16)):
        monkeypatch.setenv("CLOZE_SIMD", given)
        assert kernel._simd_width() == width
    monkeypatch.setenv("CLOZE_SIMD", "12")
    with pytest.raises(UserError, match=r"CLOZE_SIMD=12: expected 8 or 16"):
        kernel._simd_width()
    monkeypatch.delenv("CLOZE_SIMD")
    monkeypatch.setenv("CLOZE_NUMBA", "off")
    assert not has_numba.__wrapped__()
    monkeypatch.setenv("CLOZE_NUMBA", "")
    assert has_numba.__wrapped__()


def test_the_vector_width_follows_what_numba_compiles_for_and_not_the_processor() -> None:
    script = "from cloze.kernel import SIMD_WIDTH; print(SIMD_WIDTH)"
    given = {**os.environ, "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma", "CLOZE_SIMD": ""}
    assert subprocess.run([sys.executable, "-c", script], env=given, capture_output=True, text=True).stdout == "8\n"

