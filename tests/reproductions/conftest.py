"""The scripts of the reproductions as modules."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "reproductions"
SCRIPTS = [path.stem for path in FOLDER.glob("*.py")]


@pytest.fixture(scope="session")
def script() -> Callable[[str], ModuleType]:
    """`script("ledger")`: the module of reproductions/ledger.py, with its own copies of the scripts that it imports."""

    def load(name: str) -> ModuleType:
        file = FOLDER / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(file.parent))  # as where a script is run
            for other in SCRIPTS:
                patch.delitem(sys.modules, other, raising=False)
            patch.setitem(sys.modules, name, module)  # where dataclasses look for the names of their annotations
            spec.loader.exec_module(module)
            for other in SCRIPTS:
                sys.modules.pop(other, None)
        return module

    return load
