"""The time of compression: the fused threshold, compared with the machine's limit and with usual code in torch.

Every contender compresses residual + update and keeps the rest. Updates alternate between Δ and −Δ, so that each call
keeps about 0.1% of the entries.
"""

from collections.abc import Callable, Iterator
from itertools import cycle

import numpy as np
import torch

from benchmarks.measure import (
    COPY,
    KEPT,
    THRESHOLD,
    Work,
    alternating,
    copy,
    medians,
    repeated,
    residual_and_update,
    show_seconds,
    verdict,
)
from gammafl.core import kernels, threads
from gammafl.core.compressors import HardThreshold, TopK
from gammafl.paper.cost import FUSED, NAIVE_TOP_K, OUR_TOP_K
from gammafl.report.tables import TextTable

READ = "reading 8 bytes an element"
CHECKED, TORCH_TOP_K = "γ-FedHT, fused, update checked first", "torch.topk alone"
NAIVE_HT = "torch hard threshold with error feedback"
LEAN_TOP_K = "torch.topk with error feedback, lean"


def tables(dims: list[int], thread_counts: list[int], repeats: int) -> Iterator[TextTable]:
    """A table for each dimension and number of threads."""
    for dim in dims:
        for count in thread_counts:
            yield _table(dim, count, seconds_of(dim, count, repeats))


def seconds_of(dim: int, count: int, repeats: int) -> dict[str, float]:
    """Contender → median seconds of one compression of `dim` elements with `count` threads."""
    before, of_torch = threads.count(), torch.get_num_threads()
    try:
        threads.set_count(count)
        torch.set_num_threads(count)
        times = 1 if dim > 1_000_000 else REPEATED
        return {name: value / times for name, value in medians(_contenders(dim), repeats).items()}
    finally:
        threads.set_count(before)
        torch.set_num_threads(of_torch)


def _table(dim: int, count: int, seconds: dict[str, float]) -> TextTable:
    fused = seconds[FUSED]
    rows = [
        [name, show_seconds(value), f"{value / seconds[COPY]:.2f}×", _compared(name, value / fused, dim, count)]
        for name, value in seconds.items()
    ]
    top_k = seconds[NAIVE_TOP_K] / seconds[OUR_TOP_K]
    note = f"our Top-k is faster than torch.topk with error feedback by {_against(top_k, 8, dim, 2, count)}"
    return TextTable(
        f"compression: d = {dim:,}, {count} thread(s), 0.1% kept",
        ["", "median", "of the copy", "slower than the fused kernel by"],
        rows,
        note,
    )


WANTED = {TORCH_TOP_K: 25.0, NAIVE_TOP_K: 80.0, NAIVE_HT: 20.0}
WANTED_SMALL = {NAIVE_TOP_K: 9.0, NAIVE_HT: 9.0}
LARGE, REPEATED = 100_000_000, 50


def _compared(name: str, ratio: float, dim: int, count: int) -> str:
    if name == COPY:
        return _against(ratio, 1.0, dim, 1, count)
    wanted = (WANTED if dim >= LARGE else WANTED_SMALL if dim < 1_000_000 else {}).get(name)
    return f"{ratio:.3g}×" if wanted is None or count < 2 else verdict(ratio, wanted)


def _against(ratio: float, wanted: float, dim: int, at_least_threads: int, count: int) -> str:
    stated = dim >= LARGE and count >= at_least_threads
    return verdict(ratio, wanted) if stated else f"{ratio:.3g}×"


def _contenders(dim: int) -> dict[str, Work]:
    residual, update = residual_and_update(dim)
    start, updates = torch.from_numpy(residual), (torch.from_numpy(update), torch.from_numpy(-update))
    largest = kernels.largest_magnitude(update)
    k = max(1, round(KEPT * dim))
    works: dict[str, Work] = {
        COPY: copy(dim),
        READ: _read(dim),
        FUSED: alternating(HardThreshold(THRESHOLD), residual, update, largest),
        CHECKED: alternating(HardThreshold(THRESHOLD), residual, update),
        OUR_TOP_K: alternating(TopK(KEPT), residual, update, largest),
        TORCH_TOP_K: lambda: torch.topk(torch.from_numpy(update).abs(), k),
        NAIVE_TOP_K: in_torch(lambda rest, update: naive_top_k(rest, update, k), start, updates),
        LEAN_TOP_K: in_torch(lambda rest, update: lean_top_k(rest + update, k), start, updates),
        NAIVE_HT: in_torch(lambda rest, update: _above(rest + update), start, updates),
    }
    return works if dim > 1_000_000 else {name: repeated(work, REPEATED) for name, work in works.items()}


def _read(dim: int) -> Work:
    """Reads as many bytes as residual and update have. No form of error feedback can read less."""
    both = np.ones(2 * dim, np.float32)
    return lambda: kernels.largest_magnitude(both)


Selected = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Indices and values of what is sent, and the rest."""


def in_torch(
    select: Callable[[torch.Tensor, torch.Tensor], Selected],
    residual: torch.Tensor,
    updates: tuple[torch.Tensor, torch.Tensor],
) -> Work:
    """Error feedback: `select` takes the entries to send from residual and update, and the rest is the new residual."""
    turns = cycle(updates)
    rest = residual.clone()

    def work() -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal rest
        indices, values, rest = select(rest, next(turns))
        return indices, values

    return work


def naive_top_k(
    residual: torch.Tensor, update: torch.Tensor, k: int, beta: float = 1.0, gamma: float = 1.0
) -> Selected:
    """Top-k as people usually write it, after GRACE (Xu et al. 2021), whose form many have copied.

    The residual is the sum minus the decompressed message.
    """
    wanted = beta * residual + gamma * update
    indices = torch.topk(wanted.abs(), k, sorted=False).indices
    values = wanted.gather(0, indices)
    return indices, values, wanted - torch.zeros_like(wanted).scatter_(0, indices, values)


def lean_top_k(wanted: torch.Tensor, k: int) -> Selected:
    """Top-k with as few passes over memory as torch allows."""
    indices = torch.topk(wanted.abs(), k).indices
    rest = wanted.clone()
    rest[indices] = 0
    return indices, wanted[indices], rest


def _above(wanted: torch.Tensor) -> Selected:
    mask = wanted.abs() > THRESHOLD
    return mask.nonzero().squeeze(1), wanted[mask], wanted * ~mask
