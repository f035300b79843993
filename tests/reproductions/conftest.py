"""The scripts of the reproductions as modules."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "reproductions"


@pytest.fixture(scope="session")
def script() -> Callable[[str], ModuleType]:
    """`script("ledger")`: the module of reproductions/ledger.py."""

    def load(name: str) -> ModuleType:
        file = FOLDER / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(file.parent))  # as where a script is run
            spec.loader.exec_module(module)
        return module

    return load
