"""Shared fixtures: where real data lives when it is present."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # a path that is not there is no reason to ask a server
if os.environ.get("CLOZE_NUMBA") == "off":
    sys.modules["numba"] = None  # type: ignore[assignment]  # then nothing imports it by another way

#: Fixtures that the tests of recipes, checkpoints, budgets and runs share.
pytest_plugins = ["tests.small_recipe"]
ROOT = Path(__file__).resolve().parent.parent
trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
# oneDNN keeps 1,024 primitives with their code, and tests have so many shapes that these took hundreds of megabytes. A quarter of
# that costs no time; 16 would cost fine-tuning two fifths more.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")
STATM, MUCH = Path("/proc/self/statm"), 250 << 20
gc.disable()  # until the tests are collected: what is imported and collected stays


def pytest_collection_finish() -> None:
    """The garbage collector no longer walks through libraries and collected tests: a tenth of a second each time."""
    free()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """What a test leaves is gone: parts from files of its own, which tests that walk the registry would see, and much memory."""
    forget_own_parts()
    free_much()


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


settled = 0  # pages of memory after the last time that what is unused was given back


def free() -> None:
    """What is unused goes back to the system: garbage in circles, and what the allocator keeps in small pieces."""
    global settled
    gc.collect()
    if trim is not None:
        trim(0)
    settled = pages()


def free_much() -> None:
    """`free` where tests have left more than `MUCH`: networks and their gradients hold each other in circles."""
    if pages() > settled + MUCH // mmap.PAGESIZE:
        free()


def pages() -> int:
    """How many pages of memory this process has; 0 where the system does not say so."""
    return int(STATM.read_text().split()[1]) if STATM.is_file() else 0


@pytest.fixture(scope="module", autouse=True)
def freed_memory() -> Iterator[None]:
    """What the tests of a module have freed goes back to the system.

    What is left, which is what they imported and caches, stays: the collector no longer walks through it after every module.
    """
    yield
    free()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def without_waiting() -> Iterator[None]:
    """No test waits for disks, since none cuts the power, from which `fsync` guards; nor for large products: runs take a rate as
    read, with which they compare their own (tests/training/test_log.py measures it)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr("cloze.training.session.matrix_rate", lambda device, precision: 1e11)
        yield


#: Folders whose tests pre-train, and the module that tests what they leave out.
PRE_TRAINING, COUNTING = ("recipe", "checkpoint", "budget", "runs", "cli", "comparison", "docs", "recipes"), "test_baselines.py"
#: Modules that test what a trial of a run's speed and memory measures.
MEASURING = ("test_fit.py", "test_fit_words.py", "test_forecast.py", "test_plan.py")


@pytest.fixture(scope="module", autouse=True)
def fewer_baselines(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs count their baselines on 100 rows and not on 2,048, where no test reads them: a fifth of the time of a tiny run."""
    if request.path.parent.name not in PRE_TRAINING or request.path.name == COUNTING:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cloze.budget.baselines._ROWS", 100)
        yield


@pytest.fixture(scope="module", autouse=True)
def without_trials(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs are forecast from their real tokens and FLOPs, with a fixed speed and no memory, where no test reads the two."""
    if request.path.parent.name not in PRE_TRAINING or request.path.name in MEASURING:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cloze.training.forecasting.forecast.tried", assumed)
        yield


#: Folders whose tests fine-tune, and the modules that test how heads are fitted before the first step.
FINE_TUNING = ("tasks", "docs", "runs", "comparison", "contracts", "cli", "recipes", "reproductions", "parity", "compression")
FITTING = "test_frozen_start.py"


@pytest.fixture(scope="module", autouse=True)
def with_short_fits(request: pytest.FixtureRequest) -> Iterator[None]:
    """`short_fits` where no test reads how heads were fitted."""
    if request.path.parent.name not in FINE_TUNING or request.path.name == FITTING:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        shorten_fits(patch)
        yield


@pytest.fixture
def short_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """New heads are fitted with one penalty that no rows choose: two thirds of the time of a tiny fine-tuning run."""
    shorten_fits(monkeypatch)


def shorten_fits(patch: pytest.MonkeyPatch) -> None:
    for name, value in {"PENALTIES": (3.0,), "ENOUGH": 1, "STEPS": 1, "LAST_STEPS": 20}.items():
        patch.setattr(f"cloze.runs.frozen_start.{name}", value)


def assumed(step: Any, entry: str, rows: Callable[[int], Any], **settings: object) -> Any:
    """A trial that trains nothing: a row takes a millisecond."""
    from cloze.training.forecasting.trial import LinearCost, RowCosts

    batch = rows(2)
    return RowCosts(LinearCost(0.0, 1e-3), LinearCost(0, 0), tokens=batch.tokens / 2, flops=step.flops(entry, batch.batch) / 2)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real corpora: $CLOZE_DATA, else ../shared/data next to the repository; skips where it is absent."""
    named = os.environ.get("CLOZE_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data: {'CLOZE_DATA names no folder' if named else 'set CLOZE_DATA'}")
    return folder
