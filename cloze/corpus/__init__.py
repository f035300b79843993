"""Files → token store → passages: readers, the memory-mapped store, plans and sources.

May import text and the foundation (errors, registry, rng, fields, rows); never torch, never batch.
To add a source: one file here with a class under `@register("source", name)`; to add a reader: one file in `readers/`.
Its contract is tested in tests/corpus/.
"""

from cloze.corpus.passages import BoundPassages, Passages
from cloze.corpus.plan import Plan
from cloze.corpus.store import Store

__all__ = ["BoundPassages", "Passages", "Plan", "Store"]
