"""The cost of keeping more entries, from 0.1% to 30%: the fused pass, level "upload", encoding and decoding."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import NormalDist

from benchmarks.measure import COPY, Work, alternating, copy, medians, residual_and_update, show_seconds, verdict
from gammafl.core import threads
from gammafl.core.arrays import Vector
from gammafl.core.compressors import HardThreshold
from gammafl.core.kernels import largest_magnitude
from gammafl.core.levels import UploadLevel
from gammafl.core.method import Method
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import decode, encode
from gammafl.report.tables import TextTable

WANTED = {0.1: 1.5, 0.3: 2.2}
"""Kept fraction → the goal for the fused pass: its time, at most, in copies of the same memory."""

WANTED_LEVEL = 1.1
"""The goal for level "upload": its time, at most, in fused passes."""

FUSED, NEW, LEVEL = "fused pass", "… earlier updates kept", "level upload"
EARLIER = 8
"""How many earlier updates the measurement keeps, so that their memory is not free for new ones."""


def tables(dims: Sequence[int], fractions: Sequence[float], repeats: int, cpu: bool = False) -> Iterator[TextTable]:
    """A table for each dimension. With `cpu`, it has the CPU time of one thread."""
    before = threads.count()
    threads.set_count(1 if cpu else before)
    for dim in dims:
        yield _table(dim, fractions, repeats, cpu)
    threads.set_count(before)


def _table(dim: int, fractions: Sequence[float], repeats: int, cpu: bool) -> TextTable:
    residual, update = residual_and_update(dim)
    rows = []
    for fraction in fractions:
        clock = time.thread_time if cpu else time.perf_counter
        seconds = medians(_contenders(fraction, residual, update), repeats, clock)
        copies = {name: seconds[name] / seconds[COPY] for name in (FUSED, NEW)}
        wanted = WANTED.get(fraction)
        rows.append(
            [
                f"{100 * fraction:g}%",
                show_seconds(seconds[COPY]),
                show_seconds(seconds[FUSED]),
                verdict(copies[FUSED], wanted, at_most=True) if wanted else f"{copies[FUSED]:.2f}×",
                verdict(copies[NEW], wanted, at_most=True) if wanted else f"{copies[NEW]:.2f}×",
                verdict(seconds[LEVEL] / seconds[FUSED], WANTED_LEVEL, at_most=True),
                *(show_seconds(seconds[name]) for name in ("encode", "decode")),
                *(f"{seconds[name] / seconds[COPY]:.2f}×" for name in ("encode", "decode")),
            ]
        )
    columns = ["kept", "copy", FUSED, "of a copy", NEW, "level upload, of the fused pass", "encode", "decode"]
    return TextTable(
        f"densities: d = {dim:,}, {'CPU time of one thread' if cpu else 'all cores'}",
        [*columns, "encode, of a copy", "decode, of a copy"],
        rows,
        f"Earlier updates kept: the last {EARLIER} stay in memory, so each update needs new memory.",
    )


def _contenders(fraction: float, residual: Vector, update: Vector) -> dict[str, Work]:
    largest = largest_magnitude(update)
    threshold = HardThreshold(NormalDist().inv_cdf(1 - fraction / 2))  # the sum of residual and update is normal
    compress = alternating(threshold, residual, update, largest)
    held: deque[SparseUpdate] = deque(maxlen=EARLIER)
    holding = alternating(threshold, residual, update, largest)
    sent = compress()
    message = encode(sent)
    return {
        COPY: copy(residual.size),
        FUSED: compress,
        NEW: lambda: held.append(holding()),
        LEVEL: alternating(Method(HardThreshold(), level=UploadLevel(fraction)), residual, update, largest),
        "encode": partial(encode, sent),
        "decode": partial(decode, message),
    }
