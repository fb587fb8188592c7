"""Measures the time of each phase of a run."""

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeVar

Item = TypeVar("Item")


class Phase:
    """A stopwatch for a `with` block. It is a class: a generator would be too slow for several uses per upload."""

    __slots__ = ("began", "name", "seconds")

    def __init__(self, seconds: defaultdict[str, float], name: str) -> None:
        self.seconds = seconds
        self.name = name

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds[self.name] += time.perf_counter() - self.began


class Timing:
    """Seconds by phase: "setup", "sampling", "training", "compression" (with encoding), "server" (with decoding),
    "evaluation", "bookkeeping"."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float, seconds or {})
        self._phases: dict[str, Phase] = {}

    def phase(self, name: str) -> "Phase":
        """Adds the time of a `with` block to the phase `name`. Blocks of the same phase must not be nested."""
        phase = self._phases.get(name)
        if phase is None:
            phase = self._phases[name] = Phase(self.seconds, name)
        return phase

    def each(self, name: str, items: Iterator[Item]) -> Iterator[Item]:
        """Yields `items`, and adds the time to make each of them to the phase `name`."""
        while True:
            with self.phase(name):
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item
