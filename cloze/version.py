"""The version of cloze."""

__version__ = "0.1.0"
