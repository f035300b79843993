"""Every registered source. Assembly imports this module to learn their names."""

from cloze.corpus.passages import BoundPassages, Passages

__all__ = ["BoundPassages", "Passages"]
