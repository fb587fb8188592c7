"""The cost of every registered method for a client: CPU time to compress and encode, compared with the fused threshold.

One thread computes. All methods take turns, so ratios are more reliable than times. Methods with a kept fraction keep
0.1%.
"""

import json
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.measure import KEPT, THRESHOLD, Work, medians, repeated, residual_and_update, show_seconds
from gammafl.core import threads
from gammafl.core.arrays import Vector
from gammafl.core.kernels import largest_magnitude
from gammafl.core.layout import Layout
from gammafl.core.levels import RunLevel
from gammafl.core.method import Method
from gammafl.core.moment import Schedule
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import encode
from gammafl.files.atomic import write_atomically
from gammafl.methods.registry import label_of, method_named, methods_in
from gammafl.report.tables import TextTable

FUSED = f"ht:threshold={THRESHOLD}"
"""The method with which all others are compared. It takes one pass and keeps 0.1% too."""

SMALL, TIMES = 1_000_000, 10
"""Below `SMALL` elements a call is too short to be timed alone, so `TIMES` calls are timed together."""

Figures = dict[str, dict[str, Any]]
"""Method → seconds to compress, seconds to compress and encode, bytes of a message."""


def measure(dim: int, repeats: int, methods: Sequence[str] = ()) -> Figures:
    """Measures `methods`, or all methods that need no setting, at one dimension."""
    before = threads.count()
    threads.set_count(1)
    try:
        return _measured(dim, repeats, [FUSED, *(methods or methods_in("all"))])
    finally:
        threads.set_count(before)


def _measured(dim: int, repeats: int, methods: Sequence[str]) -> Figures:
    residual, update = residual_and_update(dim)
    updates, works, sizes, times = (update, -update), {}, {}, TIMES if dim < SMALL else 1
    for name in methods:
        compress = _compressing(method_named(name, keep=KEPT), residual, updates)
        sizes[name] = len(encode(compress()))
        works[name] = repeated(compress, times)
        works[f"{name}, encoded"] = repeated(_then_encode(compress), times)
    seconds = {key: value / times for key, value in medians(works, repeats, time.thread_time).items()}
    return {
        name: {"compress": seconds[name], "both": seconds[f"{name}, encoded"], "bytes": sizes[name]} for name in methods
    }


def _compressing(method: Method, residual: Vector, updates: Sequence[Vector]) -> Callable[[], SparseUpdate]:
    """Compresses the updates in turn, as in the middle of a run, where the server has already found a level's λ."""
    dim, schedule = residual.size, Schedule(1.0, iterations=1)
    scale = THRESHOLD if isinstance(method.level, RunLevel) else method.scale(dim, schedule)
    moment, turns = schedule.moment(1, scale, Layout.flat(dim), key=1), cycle(updates)
    memory, largest = method.memory.client(method, dim), largest_magnitude(updates[0])
    memory.add(residual)
    return lambda: memory.propose(next(turns), moment, largest)


def _then_encode(compress: Callable[[], SparseUpdate]) -> Work:
    return lambda: encode(compress())


def table(dim: int, figures: Figures) -> TextTable:
    """A table with a line for each method, cheapest first."""
    fused = figures[FUSED]
    rows = [
        [
            "fused threshold" if name == FUSED else label_of(name),
            show_seconds(own["compress"]),
            f"{own['compress'] / fused['compress']:.2f}×",
            f"{own['both'] / fused['both']:.2f}×",
            f"{own['bytes']:,}",
        ]
        for name, own in sorted(figures.items(), key=lambda item: item[1]["both"])
    ]
    return TextTable(
        f"cost of an upload: d = {dim:,}, CPU time of one thread",
        ["method", "compress", "of the fused threshold", "with encoding, of the same", "bytes of a message"],
        rows,
        "0.1% kept where a method has a kept fraction",
    )


def write(path: Path, measured: dict[int, Figures]) -> None:
    """Writes the file from which docs/methods.md is made."""
    write_atomically(path, (json.dumps(measured, indent=1) + "\n").encode())


def read(path: Path) -> dict[int, Figures]:
    """Reads what `write` wrote; empty if nothing was measured yet."""
    return {int(dim): figures for dim, figures in json.loads(path.read_text()).items()} if path.exists() else {}
