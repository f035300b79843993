"""cloze: pre-trains the family of language models from a corpus, a budget and a recipe.

May import: its version when it is imported (no torch); each public name loads its module on first use.
To add a public name: one line in `_PUBLIC`, naming the module that defines it.
Contract: tests/docs/test_contracts.py (every public name resolves; importing cloze imports no torch).
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cloze.version import __version__

if TYPE_CHECKING:
    from cloze.api.best import Best, best
    from cloze.api.compare import Comparison, compare
    from cloze.api.frames import frame
    from cloze.api.model import Model, load
    from cloze.api.search import retrieve
    from cloze.api.sweep import Swept, sweep
    from cloze.api.train import finetune, plan, pretrain
    from cloze.errors import ClozeError
    from cloze.recipe.load import load_recipe
    from cloze.registry import Given, Live, Part, register
    from cloze.reports.page import write_report as report

# How many turns a thread of OpenMP waits busily for others before it sleeps; read when torch is loaded. With the default of
# 300,000, training next to other busy processes is half as fast (benchmarks/waiting.py).
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# public name -> module, and its name there when that differs
_PUBLIC: dict[str, tuple[str, str]] = {
    "load": ("cloze.api.model", "load"),
    "pretrain": ("cloze.api.train", "pretrain"),
    "finetune": ("cloze.api.train", "finetune"),
    "compare": ("cloze.api.compare", "compare"),
    "best": ("cloze.api.best", "best"),
    "Best": ("cloze.api.best", "Best"),
    "Comparison": ("cloze.api.compare", "Comparison"),
    "retrieve": ("cloze.api.search", "retrieve"),
    "sweep": ("cloze.api.sweep", "sweep"),
    "Swept": ("cloze.api.sweep", "Swept"),
    "frame": ("cloze.api.frames", "frame"),
    "Model": ("cloze.api.model", "Model"),
    "plan": ("cloze.api.train", "plan"),
    "load_recipe": ("cloze.recipe.load", "load_recipe"),
    "report": ("cloze.reports.page", "write_report"),
    "register": ("cloze.registry", "register"),
    "Given": ("cloze.registry", "Given"),
    "Live": ("cloze.registry", "Live"),
    "Part": ("cloze.registry", "Part"),
    "ClozeError": ("cloze.errors", "ClozeError"),
}

__all__ = [
    "Best",
    "ClozeError",
    "Comparison",
    "Given",
    "Live",
    "Model",
    "Part",
    "Swept",
    "__version__",
    "best",
    "compare",
    "finetune",
    "frame",
    "load",
    "load_recipe",
    "plan",
    "pretrain",
    "register",
    "report",
    "retrieve",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use; an unknown one is an ordinary `AttributeError`."""
    try:
        module, attribute = _PUBLIC[name]
    except KeyError:
        raise AttributeError(f"module 'cloze' has no attribute {name!r}; it has {', '.join(__all__)}") from None
    value = vars(import_module(module))[attribute]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
