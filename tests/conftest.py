"""Shared fixtures: where real data lives when it is present."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if os.environ.get("CLOZE_NUMBA") == "off":
    sys.modules["numba"] = None  # type: ignore[assignment]  # then nothing imports it by another way

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def only_own_parts() -> Iterator[None]:
    """Parts that a test registers from files of its own are unknown to the tests after it, some of which walk the registry."""
    yield
    forget_own_parts()


clean: tuple[int, int] = (0, 0)  # modules and parts after the last time


def forget_own_parts() -> None:
    """What a new process knows: no part that was registered outside cloze. Looks only where a module or a part was added."""
    global clean
    from cloze.registry import _builders

    if (len(sys.modules), sum(map(len, _builders.values()))) == clean:
        return
    for known in _builders.values():
        for name in [name for name, builder in known.items() if not builder.__module__.startswith("cloze.")]:
            del known[name]
    for name in [name for name in sys.modules if name.startswith("cloze_user_")]:
        del sys.modules[name]
    clean = len(sys.modules), sum(map(len, _builders.values()))


@pytest.fixture(scope="session", autouse=True)
def without_waiting_for_disks() -> Iterator[None]:
    """`fsync` guards against a loss of power, which no test causes: what a killed process has written is there without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


#: Folders whose tests pre-train, and the module that tests what they leave out.
PRE_TRAINING, COUNTING = ("assembly", "cli", "comparison", "docs", "recipes"), "test_baselines.py"


@pytest.fixture(scope="module", autouse=True)
def fewer_baselines(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs count their baselines on 100 rows and not on 2,048, where no test reads them: a fifth of the time of a tiny run."""
    if request.path.parent.name not in PRE_TRAINING or request.path.name == COUNTING:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cloze.assembly.baselines._ROWS", 100)
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora: $CLOZE_DATA, else ../shared/data next to the repository; skips where it is absent."""
    named = os.environ.get("CLOZE_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data: {'CLOZE_DATA names no folder' if named else 'set CLOZE_DATA'}")
    return folder
