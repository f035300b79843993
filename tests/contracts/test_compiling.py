"""How kernels are compiled, and that machine code of other sources or argument types is never loaded."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloze.kernels import has_numba

numba = pytest.importorskip("numba")

from cloze.kernels import compiling  # noqa: E402

ROOT = Path(compiling.__file__).parent


def test_every_file_of_the_package_is_in_the_key_but_the_registry() -> None:
    assert set(compiling.sources()) == set(ROOT.rglob("*.py")) - {ROOT / "registry.py"} and len(compiling.sources()) > 10


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the sources that the key is taken of."""
    for path in compiling.sources():
        to = tmp_path / path.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(path.read_bytes())
    monkeypatch.setattr(compiling, "_ROOT", tmp_path)
    compiling.key.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    compiling.key.cache_clear()


def fresh_key() -> str:
    compiling.key.cache_clear()
    return compiling.key()


def test_the_key_changes_with_every_source_and_with_the_compiler(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [fresh_key()]
    assert fresh_key() == keys[0]
    for path in compiling.sources():
        path.write_text(path.read_text() + "\n")
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
    made = compiling.kernel()(twice)
    assert not compiling.is_kept(made)
    assert made(3) == 6 and compiling.is_kept(made)
    files = [path.name for path in kept_in.rglob("*.nb[ic]")]
    assert len(files) == 2 and all(compiling.key() in name for name in files)
    again = compiling.kernel()(twice)
    assert again(4) == 8 and sum(again.stats.cache_hits.values()) == 1


def test_code_for_other_types_is_not_taken_from_a_file_that_another_process_wrote_over(kept_in: Path) -> None:
    made = compiling.kernel()(twice)
    assert made(3) == 6
    (index,) = kept_in.rglob("*.nbi")
    with index.open("rb") as file:
        version, (stamp, overloads) = pickle.load(file), pickle.loads(file.read())
    ((signature, *rest), name), = overloads.items()
    wrong = {((numba.types.float64,), *rest): name}  # the index of floats leads to the code of integers
    with index.open("wb") as file:
        pickle.dump(version, file)
        file.write(pickle.dumps((stamp, wrong)))
    again = compiling.kernel()(twice)
    assert again(1.5) == 3.0


def test_code_under_an_old_key_is_removed_after_a_month(kept_in: Path) -> None:
    made = compiling.kernel()(twice)
    made(3)
    (index,) = kept_in.rglob("*.nbi")
    old, young = (index.with_name(index.name.replace(compiling.key(), name * 16)) for name in "01")
    old.touch()
    young.touch()
    os.utime(old, (time.time() - 40 * 24 * 3600,) * 2)
    made(1.5)
    assert not old.exists() and young.exists() and index.exists()


def test_where_nothing_can_be_written_kernels_are_compiled_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: Any) -> Any:
        raise RuntimeError("cannot cache function 'twice': no locator available for file")

    monkeypatch.setattr(compiling, "_Kept", refuse)
    made = compiling.kernel()(twice)
    monkeypatch.undo()
    assert made(3) == 6 and not compiling.is_kept(made)


def test_the_environment_hides_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOZE_NUMBA", "off")
    assert not has_numba.__wrapped__()
    monkeypatch.setenv("CLOZE_NUMBA", "")
    assert has_numba.__wrapped__()
