"""The book-keeping of tests/flower."""

from tests.flower.conftest import applied

__all__ = ["applied"]
