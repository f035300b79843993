"""Small random systems, as the tests of decoding and of tasks have them."""

from tests.decoding.conftest import checkpoint
from tests.tasks.conftest import tuned, writer

__all__ = ["checkpoint", "tuned", "writer"]
