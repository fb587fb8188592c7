"""Timing in turns: contenders alternate, so that other work of the machine disturbs all of them equally."""

import time
from collections.abc import Callable, Mapping
from itertools import cycle
from statistics import median

import numpy as np

from gammafl.core.arrays import Vector
from gammafl.core.compressors import Compressor, HardThreshold
from gammafl.core.kernels import largest_magnitude, on_slices
from gammafl.core.memory import Residual
from gammafl.core.method import Method, as_method
from gammafl.core.moment import Moment
from gammafl.core.sparse import SparseUpdate

Work = Callable[[], object]
COPY = "copy of 12 bytes an element"

KEPT = 0.001
THRESHOLD = 3.345
"""The λ that keeps about this share of what `alternating` compresses."""


def medians(
    contenders: Mapping[str, Work], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """The median seconds of each by `clock`, over `repeats` turns.

    A turn is three calls, and the mean of the last two counts. The first call only warms the caches, which another
    contender has used. Two calls are timed because the input alternates.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, work in contenders.items():
            work()
            began = clock()
            work()
            work()
            seconds[name].append((clock() - began) / 2)
    return {name: median(values) for name, values in seconds.items()}


def repeated(work: Work, times: int) -> Work:
    """Does `work` `times` times, because a single call is too short to be timed."""

    def many() -> None:
        for _ in range(times):
            work()

    return many


UNITS = {"h": 3600, "min": 60, "s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


def copy(dim: int) -> Work:
    """Copies 1.5·d elements of 4 bytes with all threads: as many bytes as a fused pass reads and writes."""
    source, target = np.ones(3 * dim // 2, np.float32), np.zeros(3 * dim // 2, np.float32)
    return lambda: on_slices(lambda a, b: np.copyto(target[a:b], source[a:b]), source.size)


def residual_and_update(dim: int) -> tuple[Vector, Vector]:
    """A residual Y and an update X − Y, where X and Y are normal.

    With the updates X − Y and Y − X in turn, the sum of residual and update looks like X and like Y, with nonzero
    numbers everywhere, as in training. If the residual began with zeros, every second sum would be zero except for the
    entries that were sent, which makes the search too easy.
    """
    random = np.random.default_rng(0)
    first, second = random.standard_normal(dim, np.float32), random.standard_normal(dim, np.float32)
    first -= second
    return second, first


def alternating(
    method: Compressor | Method, residual: Vector, update: Vector, largest: float | None = None
) -> Callable[[], SparseUpdate]:
    """Compresses `update` and −`update` in turn, with error feedback. A threshold keeps equally many each time."""
    memory, turns = Residual(as_method(method), update.size, residual.copy()), cycle([update, -update])
    moment = Moment()
    for _ in range(2):
        memory.propose(next(turns), moment, largest)
    return lambda: memory.propose(next(turns), moment, largest)


def fused(dim: int) -> Callable[[], SparseUpdate]:
    """γ-FedHT's pass over `dim` elements, of which it keeps the share `KEPT`. The largest magnitude is known."""
    residual, update = residual_and_update(dim)
    return alternating(HardThreshold(THRESHOLD), residual, update, largest_magnitude(update))


def show_seconds(seconds: float) -> str:
    """A time with three digits. Minutes are used from two minutes on, and hours from two hours on."""
    unit = next((u for u in UNITS if seconds >= UNITS[u] * (2 if u in ("h", "min") else 1)), "ns")
    return f"{seconds / UNITS[unit]:.3g} {unit}"


def verdict(value: float, wanted: float, at_most: bool = False) -> str:
    """'12.3× ✓ (wanted ≥ 9×)', or with a cross if the goal is not reached."""
    reached = value <= wanted if at_most else value >= wanted
    return f"{value:.3g}× {'✓' if reached else '✗'} (wanted {'≤' if at_most else '≥'} {wanted:g}×)"
