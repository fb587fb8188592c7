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


UNITS = {"h": 3600, "min": 60, "s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


def show_seconds(seconds: float) -> str:
    """Three digits; minutes and hours from two of them on."""
    unit = next((u for u in UNITS if seconds >= UNITS[u] * (2 if u in ("h", "min") else 1)), "ns")
    return f"{seconds / UNITS[unit]:.3g} {unit}"


def verdict(value: float, wanted: float, at_most: bool = False) -> str:
    """'12.3× (wanted ≥ 9×)', with a cross where it is not reached."""
    reached = value <= wanted if at_most else value >= wanted
    return f"{value:.3g}× {'✓' if reached else '✗'} (wanted {'≤' if at_most else '≥'} {wanted:g}×)"
