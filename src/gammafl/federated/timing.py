"""Where the time of a run goes."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


class Timing:
    """Seconds by phase: "setup", "sampling", "training", "compression" (with encoding), "server" (with decoding),
    "evaluation", "bookkeeping"."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float, seconds or {})

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - began

    def each(self, name: str, items: Iterator[Item]) -> Iterator[Item]:
        """`items`, with the time that making each of them takes booked under `name`."""
        while True:
            with self.phase(name):
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item
