"""Strategies that wrap other strategies, as Flower's for differential privacy do."""

from collections.abc import Iterator
from typing import Any


def layers(strategy: Any) -> Iterator[Any]:
    """The strategy, the one that it wraps, the one that this wraps, and so on."""
    while strategy is not None:
        yield strategy
        strategy = getattr(strategy, "strategy", None)
