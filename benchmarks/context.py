"""How many bytes of real messages our position code saves, and how many a code with contexts would save.

Our code uses that positions gather in clusters. It is measured on whole messages of `encode`, compared with the same
messages in a Rice code. The others are ideal lengths, −Σ log₂ p of an adaptive model, without the bytes that a real
coder loses. Every message decodes alone, so contexts come only from the message and the tensors' shapes: the tensor,
row and column of a place, and which of its neighbours are sent.
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
from gammafl.core.wire import PositionCoding, decode, encode, header_bytes
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

MAGNITUDE_BYTES = 5
"""The bytes of one run of equal magnitudes, without signs: the length of the run as a varint, and the magnitude."""
RICE, TODAY = "Rice code", "today"
EVEN, ROWS, CONTEXTS = "ideal: count alone", "ideal: counts of rows", "ideal: row, column, neighbours"
"""Real messages, and the models: one count of entries for all places, a count for each row, or all contexts, which also
serve for signs."""
REPEATS = 7

compiled: Any = njit
"""Without numba's cache, which does not notice changes in a function that another one calls."""


# --- real messages ----------------------------------------------------------------------------------------


class Recording(InProcess):
    """A carrier that keeps what clients send."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, ResidualStore(plan.method, plan.dim))
        self.payloads: list[bytes] = []

    def upload(self, client: int, local: LocalUpdate, round_number: int) -> list[Upload]:
        uploads = super().upload(client, local, round_number)
        self.payloads += [upload.payload for upload in uploads]
        return uploads


def record(task: str, method: str, keep: float, count: int, messages: int) -> tuple[Layout, list[SparseUpdate]]:
    """About `messages` updates, evenly spaced over the first `count` rounds of a run; 0 means all rounds."""
    config = make_config(settings_of(task), {"task": task, "method": method, "keep": keep, "seed": 0})
    plan = make_plan(config, None, lambda text: None)
    carrier = Recording(plan)
    running = rounds.run_rounds(plan, rounds.start(plan), carrier)
    for _ in zip(range(count or plan.rounds), running, strict=False):
        pass
    chosen = carrier.payloads[:: max(1, len(carrier.payloads) // messages)]
    return plan.layout, [update for update in map(decode, chosen) if len(update)]


# --- where a place is -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Places:
    """For every place: its tensor, its row and column in the whole model, and the distances back to two neighbours."""

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
        """The length of each row."""
        return self._rows[0]

    @property
    def tensors(self) -> NDArray[np.int32]:
        """The tensor of each row."""
        return self._rows[1]

    @classmethod
    def of(cls, layout: Layout) -> "Places":
        """The places of `layout`. Their neighbours are in the previous row, and in the previous line of an image."""
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
    """Bits of positions and of signs, from frequencies by row, by column and by four neighbours.

    A place's probability is a logistic mixture of these. Its weights are learnt within the message, for each tensor.
    """
    dim, tensors = tensor.size, tensor[-1] + 1
    most = max(row[-1] + 1, max(column.max() + 1, 16 * tensors))
    ones, seen = np.zeros((3, most)), np.zeros((3, most))
    minus, signs = np.zeros((2, most)), np.zeros((2, most))
    tensor_ones, tensor_seen = np.zeros(tensors), np.zeros(tensors)
    weights = np.full((tensors, 4), 0.35)
    strength, inputs, context = (12.0, 6.0, 12.0), np.empty(4), np.empty(3, np.int64)
    start = mask.sum() / dim  # the header has the count
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
    """Bits of positions, if each row has its count and then the number of one choice of so many places.

    A count's distribution is geometric. Its mean is that of the tensor's earlier rows. The time is O(rows + entries).
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
    """The cost of one message: bytes, and CPU seconds to encode and to decode, or to find all probabilities."""

    size: float
    seconds: float
    decoding: float = 0.0


def _real(update: SparseUpdate, positions: PositionCoding) -> Length:
    payload = encode(update, positions)
    encoding, decoding = (_seconds(work) for work in (lambda: encode(update, positions), lambda: decode(payload)))
    return Length(len(payload), encoding, decoding)


def _seconds(work: Callable[[], object]) -> float:
    """The shortest of several times, in CPU time of this thread."""
    times = []
    for _ in range(REPEATS):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return min(times)


def lengths_of(update: SparseUpdate, places: Places) -> dict[str, Length]:
    """The cost of `update` with a Rice code, with today's code, and with each model."""
    fixed, count = header_bytes(update.dim, len(update)) + MAGNITUDE_BYTES, len(update)
    mask, negative = np.zeros(update.dim, np.int8), np.zeros(update.dim, np.int8)
    mask[update.indices], negative[update.indices] = 1, update.values < 0
    models: dict[str, Callable[[], float]] = {
        EVEN: lambda: _choices(update.dim, count) + count,
        ROWS: lambda: _row_bits(update.indices, update.dim, places.row, places.lengths, places.tensors) + count,
        CONTEXTS: lambda: sum(_context_bits(mask, negative, places.tensor, places.row, *places.around)),
    }
    found = {RICE: _real(update, "rice"), TODAY: _real(update, "auto")}
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
        layout, updates = record(task, method, keep, count, messages)
        places = Places.of(layout)
        lengths = [lengths_of(update, places) for update in updates]
        rice, shown = mean(one[RICE].size for one in lengths), []
        for name in (TODAY, EVEN, ROWS, CONTEXTS):
            change, seconds = mean(one[name].size for one in lengths) / rice - 1, [one[name].seconds for one in lengths]
            shown.append(f"{100 * change:+.1f}%" + (f", {show_seconds(median(seconds))}" if name != TODAY else ""))
        times = [
            f"{show_seconds(median(one[name].seconds for one in lengths))}, "
            f"{show_seconds(median(one[name].decoding for one in lengths))}"
            for name in (RICE, TODAY)
        ]
        entries, today = mean(map(len, updates)), mean(one[TODAY].size for one in lengths)
        sizes = [f"{rice:.0f}", times[0], f"{today:.0f}, {shown[0]}", times[1]]
        rows.append([label_of(method), f"{len(lengths)}", f"{entries:.0f}", *sizes, *shown[1:]])
    span = f"the first {count} rounds" if count else "the whole run"
    return TextTable(
        f"what contexts save: {task}, d = {layout.dim:,}, keep = {keep:g}, messages of {span}",
        ["method", "messages", "entries", RICE, "encode, decode", TODAY, "encode, decode", EVEN, ROWS, CONTEXTS],
        rows,
        "Real bytes are of whole messages; ideal lengths include today's header. Changes are relative to the Rice code."
        " Times are CPU time of one thread; those of a model are for its probabilities alone.",
    )
