"""Small checkpoints and labelled files, as the tests of tasks have them."""

from tests.tasks.conftest import cloze, folder, tables, tuned

__all__ = ["cloze", "folder", "tables", "tuned"]
