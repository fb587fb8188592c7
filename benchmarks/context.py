"""What a coder with contexts would save of real messages: ideal code lengths beside the bytes of today.

Every message decodes alone, so that contexts are of the message itself and of the tensors' shapes: the tensor, the row
and the column of a place, and which of its neighbours are sent. A length is −Σ log₂ p of an adaptive model, without the
bytes that a real coder loses, and in floats, where a real one needs integers.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, median
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.measure import show_seconds
from gammafl.config.layers import make_config
from gammafl.core.layout import Layout
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import decode, header_bytes
from gammafl.federated import rounds
from gammafl.federated.client import Upload
from gammafl.federated.in_process import InProcess
from gammafl.federated.plan import Plan
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.task import LocalUpdate
from gammafl.methods.registry import label_of
from gammafl.report.tables import TextTable
from gammafl.runs.execute import make_plan
from gammafl.tasks.registry import settings_of

WANTED_LEFT, WANTED_SECONDS = 0.15, 1e-3
"""A coder is worth building if it saves so much of a message, in so much time."""
MAGNITUDE_BYTES = 5
"""What one run of equal magnitudes takes beside signs: its number, a varint, and the magnitude."""
TODAY, EVEN, ROWS, CONTEXTS = "today", "count alone", "counts of rows", "row, column, neighbours"
"""Today's message, and models: any choice of so many places; of each row its own; all contexts, for signs too."""

compiled: Any = njit
"""Anew every time, since one of the functions calls another."""


# --- real messages ----------------------------------------------------------------------------------------


class Recording(InProcess):
    """Keeps what clients send."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, ResidualStore(plan.method, plan.dim))
        self.payloads: list[bytes] = []

    def upload(self, client: int, local: LocalUpdate, round_number: int) -> list[Upload]:
        uploads = super().upload(client, local, round_number)
        self.payloads += [upload.payload for upload in uploads]
        return uploads


def record(
    task: str, method: str, keep: float, count: int, messages: int
) -> tuple[Layout, list[SparseUpdate], list[int]]:
    """Updates evenly from the first `count` rounds of a run, and the bytes of their messages; 0: of all rounds."""
    config = make_config(settings_of(task), {"task": task, "method": method, "keep": keep, "seed": 0})
    plan = make_plan(config, None, lambda text: None)
    carrier = Recording(plan)
    running = rounds.run_rounds(plan, rounds.start(plan), carrier)
    for _ in zip(range(count or plan.rounds), running, strict=False):
        pass
    chosen = carrier.payloads[:: max(1, len(carrier.payloads) // messages)]
    found = [(decode(payload), len(payload)) for payload in chosen]
    kept = [(update, size) for update, size in found if len(update)]
    return plan.layout, [update for update, _ in kept], [size for _, size in kept]


# --- where a place is -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Places:
    """Of every place: its tensor, its row and column in the whole model, and how far back two neighbours are."""

    tensor: NDArray[np.int32]
    row: NDArray[np.int32]
    column: NDArray[np.int32]
    above: NDArray[np.int32]
    beside: NDArray[np.int32]

    @property
    def around(self) -> tuple[Any, Any, Any]:
        return self.column, self.above, self.beside

    @cached_property
    def _rows(self) -> tuple[Any, Any]:
        _, firsts, lengths = np.unique(self.row, return_index=True, return_counts=True)
        return lengths, self.tensor[firsts]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Of each row."""
        return self._rows[0]

    @property
    def tensors(self) -> NDArray[np.int32]:
        """Of each row."""
        return self._rows[1]

    @classmethod
    def of(cls, layout: Layout) -> "Places":
        parts, rows, columns = list[Any](), 0, 0
        for number, (_, shape) in enumerate(layout.compressed):
            size = int(np.prod(shape))
            inner = size // shape[0] if len(shape) > 1 else size
            place = np.arange(size)
            width = shape[-1] if len(shape) > 2 else math.isqrt(inner) if math.isqrt(inner) ** 2 == inner else 1
            tensor, above, beside = (np.full(size, value) for value in (number, inner, width))
            parts.append((tensor, rows + place // inner, columns + place % inner, above, beside))
            rows, columns = rows + size // inner, columns + inner
        return cls(*(np.concatenate(part).astype(np.int32) for part in zip(*parts, strict=True)))


# --- lengths ----------------------------------------------------------------------------------------------


@compiled
def _context_bits(mask: Any, negative: Any, tensor: Any, row: Any, column: Any, above: Any, beside: Any) -> Any:
    """Bits of positions and of signs: frequencies by row, by column and by four neighbours, mixed as they prove good.

    A place's probability is a logistic mixture, whose weights are learnt within the message, one set a tensor.
    """
    dim, tensors = tensor.size, tensor[-1] + 1
    most = max(row[-1] + 1, max(column.max() + 1, 16 * tensors))
    ones, seen = np.zeros((3, most)), np.zeros((3, most))
    minus, signs = np.zeros((2, most)), np.zeros((2, most))
    tensor_ones, tensor_seen = np.zeros(tensors), np.zeros(tensors)
    weights = np.full((tensors, 4), 0.35)
    strength, inputs, context = (12.0, 6.0, 12.0), np.empty(4), np.empty(3, np.int64)
    start = mask.sum() / dim  # the header tells the count
    positions = sign_bits = 0.0
    for j in range(dim):
        t, a, b = tensor[j], above[j], beside[j]
        around = 0
        if j >= 2:
            around = mask[j - 1] + 2 * mask[j - 2]
        if j >= a:
            around += 4 * mask[j - a]
        if j >= b:
            around += 8 * mask[j - b]
        context[0], context[1], context[2] = row[j], column[j], around + 16 * t
        prior = (tensor_ones[t] + 60 * start) / (tensor_seen[t] + 60)
        inputs[3] = math.log(prior / (1 - prior))
        total = (weights[t, 3] - 0.05) * inputs[3]
        for k in range(3):
            one, all_ = ones[k, context[k]], seen[k, context[k]]
            inputs[k] = math.log((one + strength[k] * prior) / (all_ - one + strength[k] * (1 - prior)))
            total += weights[t, k] * inputs[k]
        chance = min(max(1 / (1 + math.exp(-total)), 2.0**-16), 1 - 2.0**-16)
        here = mask[j]
        positions -= math.log2(chance if here else 1 - chance)
        for k in range(4):
            weights[t, k] += 0.006 * (here - chance) * inputs[k]
        for k in range(3):
            ones[k, context[k]] += here
            seen[k, context[k]] += 1
        tensor_ones[t] += here
        tensor_seen[t] += 1
        if here:
            r, c = row[j], column[j]
            chance = (minus[0, r] + 1.5 * minus[1, c] + 0.4) / (signs[0, r] + 1.5 * signs[1, c] + 0.8)
            chance = min(max(chance, 0.01), 0.99)
            sign_bits -= math.log2(chance if negative[j] else 1 - chance)
            minus[0, r] = 0.9 * minus[0, r] + negative[j]
            signs[0, r] = 0.9 * signs[0, r] + 1
            minus[1, c] += negative[j]
            signs[1, c] += 1
    return positions, sign_bits


@compiled
def _choices(length: int, count: int) -> float:
    """log₂ of the number of ways to choose `count` of `length` places."""
    return float((math.lgamma(length + 1) - math.lgamma(count + 1) - math.lgamma(length - count + 1)) / math.log(2))


@compiled
def _row_bits(indices: Any, dim: int, rows: Any, lengths: Any, tensors: Any) -> float:
    """Bits of positions, where each row tells its count, and then one of all choices of so many: O(rows + entries).

    A count's distribution is geometric, its mean that of the tensor's rows before.
    """
    counts = np.zeros(lengths.size)
    for place in indices:
        counts[rows[place]] += 1
    bits, before, seen, last = 0.0, 0.0, 0, -1
    start = indices.size / dim
    for i in range(lengths.size):
        if tensors[i] != last:
            before, seen, last = 0.0, 0, tensors[i]
        expected = (before + start * lengths[i]) / (seen + 1)
        bits += math.log2(1 + expected) + counts[i] * math.log2(1 + 1 / expected) + _choices(lengths[i], counts[i])
        before, seen = before + counts[i], seen + 1
    return bits


@dataclass(frozen=True)
class Length:
    """What one message takes: bytes, and CPU seconds of finding all probabilities."""

    size: float
    seconds: float = 0.0


def lengths_of(update: SparseUpdate, size: int, places: Places) -> dict[str, Length]:
    """What `update`, whose message has `size` bytes, takes today, and with each model."""
    fixed, count = header_bytes(update.dim, len(update)) + MAGNITUDE_BYTES, len(update)
    mask, negative = np.zeros(update.dim, np.int8), np.zeros(update.dim, np.int8)
    mask[update.indices], negative[update.indices] = 1, update.values < 0
    models: dict[str, Callable[[], float]] = {
        EVEN: lambda: _choices(update.dim, count) + count,
        ROWS: lambda: _row_bits(update.indices, update.dim, places.row, places.lengths, places.tensors) + count,
        CONTEXTS: lambda: sum(_context_bits(mask, negative, places.tensor, places.row, *places.around)),
    }
    found = {TODAY: Length(size)}
    for name, model in models.items():
        began = time.thread_time()
        bits = model()
        found[name] = Length(fixed + math.ceil(bits / 8), time.thread_time() - began)
    return found


# --- tables -----------------------------------------------------------------------------------------------


def tables(tasks: Sequence[str], methods: Sequence[str], keep: float, count: int, messages: int) -> Iterator[TextTable]:
    """A table for each task."""
    for task in tasks:
        yield _table(task, methods, keep, count, messages)


def _table(task: str, methods: Sequence[str], keep: float, count: int, messages: int) -> TextTable:
    rows = []
    for method in methods:
        layout, updates, sizes = record(task, method, keep, count, messages)
        places = Places.of(layout)
        lengths = [lengths_of(update, size, places) for update, size in zip(updates, sizes, strict=True)]
        shown, worth = [], []
        today = mean(one[TODAY].size for one in lengths)
        for name in (EVEN, ROWS, CONTEXTS):
            left = 1 - mean(one[name].size for one in lengths) / today
            seconds = median(one[name].seconds for one in lengths)
            shown.append(f"{-100 * left:+.1f}%, {show_seconds(seconds)}")
            worth += [name] if left >= WANTED_LEFT and seconds <= WANTED_SECONDS else []
        entries = mean(map(len, updates))
        rows.append(
            [label_of(method), f"{len(lengths)}", f"{entries:.0f}", f"{today:.0f}", *shown, "; ".join(worth) or "none"]
        )
    span = f"the first {count} rounds" if count else "the whole run"
    return TextTable(
        f"what contexts would save: {task}, d = {layout.dim:,}, keep = {keep:g}, messages of {span}",
        ["method", "messages", "entries", "bytes today", EVEN, ROWS, CONTEXTS, "enough"],
        rows,
        "ideal lengths, with today's header, and the CPU time of one thread for the probabilities alone."
        f" Enough: at least {WANTED_LEFT:.0%} less, in at most {show_seconds(WANTED_SECONDS)}",
    )
