"""The engines there are, and which of them trains a run. None of them imports numba before it is chosen."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from cloze.errors import MissingExtra, RecipeError
from cloze.registry import lookup, names
from cloze.training import cell_engine, factorise, lock_free  # noqa: F401  they register themselves
from cloze.training.engine import Engine
from cloze.training.run import Run


class Choice(NamedTuple):
    """The engine that is to train a run, None for the loop; on which device; and what to tell the user of it."""

    engine: Engine | None
    device: str
    hint: str = ""


def choose(run: Run, processes: int) -> Choice:
    """What is to train a run; decided before anything of it is written.

    Raises `RecipeError` where `engine: compiled` is asked for and none fits, `MissingExtra` where its package is missing.
    """
    wanted = run.training.engine
    if wanted == "loop":
        return Choice(None, run.device)
    reasons, expected = {}, []
    for name in names("engine"):
        engine: Any = lookup("engine", name)()
        reasons[name] = "several processes train" if processes > 1 else engine.fits(run)
        if not reasons[name]:
            try:
                return _taken(engine, run)
            except MissingExtra as missing:
                if wanted == "compiled":
                    raise
                return Choice(None, run.device, f"hint: the loop trains this recipe, slowly. {missing}")
        if engine.meant_for(run):
            expected.append(reasons[name])
    if wanted == "compiled":
        told = "\n".join(f"  {name}: {reason}" for name, reason in reasons.items())
        raise RecipeError(f"training.engine: compiled, but no compiled engine fits this recipe.\n{told}\n  Write `engine: auto`.")
    slowly = "hint: the loop trains this recipe, slowly. The compiled engine for it was not taken:"
    return Choice(None, run.device, f"{slowly} {expected[0]}." if expected else "")


def _taken(engine: Engine, run: Run) -> Choice:
    hints = [engine.require(run)]
    elsewhere = engine.processor_only and run.device == "auto"
    if elsewhere and torch.cuda.is_available():
        hints.append(
            "hint: compiled code trains this recipe on the CPU, faster than the loop would on the GPU.\n"
            "  To train it in the loop on the GPU, give --device cuda."
        )
    return Choice(engine, "cpu" if elsewhere else run.device, "\n".join(hint for hint in hints if hint))
