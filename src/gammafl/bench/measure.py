"""Timing side by side: contenders take turns, so that whatever else the machine does meets all of them."""

import time
from collections.abc import Callable, Mapping
from statistics import median

Work = Callable[[], object]


def medians(contenders: Mapping[str, Work], repeats: int) -> dict[str, float]:
    """The median seconds of each, over `repeats` turns; a first turn is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(repeats + 1):
        for name, work in contenders.items():
            began = time.perf_counter()
            work()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return {name: median(values) for name, values in seconds.items()}


def repeated(work: Work, times: int) -> Work:
    """`work` done `times` times, for what is too short to be timed once."""

    def many() -> None:
        for _ in range(times):
            work()

    return many


def show_seconds(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def verdict(value: float, wanted: float, at_most: bool = False) -> str:
    """'12.3× (wanted ≥ 9×)', with a cross where it is not reached."""
    reached = value <= wanted if at_most else value >= wanted
    return f"{value:.3g}× {'✓' if reached else '✗'} (wanted {'≤' if at_most else '≥'} {wanted:g}×)"
