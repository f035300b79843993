"""The small systems of tests/interop, and transformers where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def load(name: str, path: Path) -> ModuleType:
    """The module of a file next to the tests, imported once."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def systems() -> ModuleType:
    """Builders of small random BERT, RoBERTa, GPT-2 and ELECTRA models."""
    return load("cloze_interop_systems", Path(__file__).parent.parent / "interop" / "systems.py")


@pytest.fixture(scope="session")
def foreign() -> ModuleType:
    """Small models as transformers makes and saves them, of every architecture that it still has."""
    pytest.importorskip("transformers")
    return load("cloze_parity_foreign", Path(__file__).with_name("foreign.py"))
