"""The bytes of messages, compared with the entropy of their positions, and the time to encode and decode them."""

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from benchmarks.measure import Work, fused, medians, repeated, show_seconds, verdict
from gammafl.core import aggregate
from gammafl.core.arrays import Vector
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import decode, encode, header_bytes
from gammafl.report.tables import TextTable

FRACTIONS = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.3)


def sizes_table(dim: int, fractions: Sequence[float] = FRACTIONS) -> TextTable:
    """The bytes of messages with scattered positions, with exact and with ternary values."""
    rows = []
    for fraction in fractions:
        update = scattered(dim, round(fraction * dim))
        ternary = SparseUpdate(dim, update.indices, np.copysign(np.float32(0.5), update.values))
        count, whole, small = len(update), len(encode(update)), len(encode(ternary))
        bound = dim * entropy(count / dim) / 8
        head = header_bytes(dim, count)
        positions = whole - head - 4 * count
        rows.append(
            [
                f"{100 * fraction:g}%",
                f"{count:,}",
                f"{whole:,}",
                f"{8 * count / whole:.2f}×",
                verdict(positions / bound, 1.05, at_most=True),
                f"{small:,}",
                f"{8 * (small - head - positions) - count:.0f}",
                f"{8 * small / count / stc_bits(count / dim):.3f}×",
            ]
        )
    return TextTable(
        f"messages: d = {dim:,}, positions scattered at random",
        [
            "kept",
            "entries",
            "bytes",
            "raw (u32, f32) pairs",
            "positions / entropy",
            "bytes, ternary",
            "bits beyond 1 a value",
            "ternary / STC's formula",
        ],
        rows,
        "entropy: d·H(p) bits, p = entries/d. STC's formula: b + 1/(1−(1−p)^(2^b)) bits a position and 1 a sign",
    )


def times_table(dims: Sequence[int], repeats: int) -> TextTable:
    """Encoding and decoding, compared with the fused compression that makes the update; 0.1% is kept."""
    rows = []
    for dim in dims:
        times = 1 if dim > 1_000_000 else 100
        seconds, entries = _times(dim, times, repeats)
        rows.append(
            [
                f"{dim:,}",
                f"{entries:,}",
                *(show_seconds(value) for value in seconds.values()),
                f"{100 * seconds['encode'] / seconds['compress']:.1f}% (wanted < 15%)",
            ]
        )
    columns = ["d", "entries", "fused compression", "encode", "decode", "encode / compression"]
    return TextTable("time of messages, 0.1% kept, all cores", columns, rows)


def _times(dim: int, times: int, repeats: int) -> tuple[dict[str, float], int]:
    """The seconds to compress, encode and decode an update, and its number of entries."""
    compress = fused(dim)
    update = compress()
    message = encode(update)
    works: dict[str, Work] = {
        "compress": compress,
        "encode": lambda: encode(update),
        "decode": lambda: decode(message),
    }
    seconds = medians({name: repeated(work, times) for name, work in works.items()}, repeats)
    return {name: value / times for name, value in seconds.items()}, len(update)


def growth_table(entries: int, dims: Sequence[int], repeats: int) -> TextTable:
    """Shows that decoding and aggregating cost O(nnz): the number of entries is the same, and the vectors grow."""
    rows = []
    for dim in dims:
        message, model = encode(scattered(dim, entries)), np.zeros(dim, np.float32)
        works: dict[str, Work] = {
            "decode": partial(decode, message),
            "aggregate": partial(_aggregate, model, decode(message)),
        }
        seconds = medians(works, repeats)
        rows.append([f"{dim:,}", f"{len(message):,}", *map(show_seconds, seconds.values())])
    note = "Aggregation touches the same number of places, but in a larger model fewer of them are in the cache."
    return TextTable(f"{entries:,} entries", ["d", "bytes", "decode", "aggregate"], rows, note)


def _aggregate(model: Vector, update: SparseUpdate) -> None:
    aggregate.subtract(model, [update], [0.5])


def tables(dims: Sequence[int], repeats: int) -> Iterator[TextTable]:
    yield sizes_table(1_000_000)
    yield times_table(dims, repeats)
    yield growth_table(10_000, (100_000, 1_000_000, 10_000_000, 100_000_000), repeats)


def scattered(dim: int, count: int) -> SparseUpdate:
    """`count` normal values at random positions."""
    rng = np.random.default_rng(0)
    positions = np.sort(rng.choice(dim, count, replace=False, shuffle=False)).astype(np.uint32)
    return SparseUpdate(dim, positions, rng.standard_normal(count, np.float32))


def entropy(p: float) -> float:
    """H(p) in bits."""
    return 0.0 if p in (0, 1) else -p * math.log2(p) - (1 - p) * math.log2(1 - p)


def stc_bits(p: float) -> float:
    """The bits per entry that STC's paper predicts: an optimal Golomb code's mean for a gap, and a sign."""
    golden = (math.sqrt(5) + 1) / 2
    b = max(0, 1 + math.floor(math.log2(math.log(golden - 1) / math.log(1 - p))))
    return b + 1 / (1 - (1 - p) ** (2**b)) + 1
