"""The small systems of tests/interop, and transformers where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def systems() -> ModuleType:
    """Builders of small random BERT, RoBERTa, GPT-2 and ELECTRA models."""
    name = "cloze_interop_systems"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent.parent / "interop" / "systems.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]
