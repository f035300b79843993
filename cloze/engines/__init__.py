"""Engines: they train word vectors in compiled code or in closed form, where the loop would need autograd.

A run asks an engine whether it fits; if so, the engine trains the run in steps of its own (`cloze.training.engine` defines
both sides). Everything else stays with the run: budget, log, held-out losses, checkpoints, signals.

May import: the packages below `training`, and of `training` only `engine`, `run`, `step` and the optimizers.
To add an engine: a module here with a class under `@register("engine", name)`, and its name in the import below.
What a token table starts from (`start`) is counted here too: a class under `@register("start", name)` with a method `of`.
Tested in tests/engines, and in tests/training/test_engine.py (which engine a run gets).
"""

from __future__ import annotations

from cloze.engines import (  # noqa: F401  they register themselves; none of them imports numba yet
    glove,
    lock_free,
    svd,
    table_vectors,
    texts,
    translation,
)
