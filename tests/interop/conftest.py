"""The small systems that interop and parity tests share."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def load_systems() -> ModuleType:
    """The module systems.py next to this file, imported once however many test folders ask for it."""
    name = "cloze_interop_systems"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("systems.py"))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def systems() -> ModuleType:
    """Builders of small random BERT, RoBERTa, GPT-2 and ELECTRA models."""
    return load_systems()
