"""Small random systems, as the tests of decoding have them."""

from tests.decoding.conftest import checkpoint

__all__ = ["checkpoint"]
