"""Small random systems as a checkpoint gives them, without files."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloze.text import Annotations


def load_systems() -> Any:
    """The builders of small systems that the interop tests use, imported once."""
    name = "cloze_interop_systems"
    if name not in sys.modules:
        path = Path(__file__).parent.parent / "interop" / "systems.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def checkpoint() -> Callable[..., Any]:
    """`checkpoint("bert")` or "gpt2", "electra", …: what `load_checkpoint` gives, with random weights."""

    def make(name: str, **changes: Any) -> Any:
        made = load_systems().system(name, **{"positions.max_length": 40, **changes})
        return SimpleNamespace(
            network=made.network, heads=made.objectives, tokenizer=made.tokenizer, reading=made.reading, order=made.order,
            network_arguments=made.arguments, folder=Path("nowhere"), clock=made.network.clock, reads={}, input_edits=(),
            languages=(), annotations=Annotations(), pictures=None, precision=None, recipe={},
        )

    return make
