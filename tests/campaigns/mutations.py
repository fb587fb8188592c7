"""Messages for the decoder that nobody in their right mind would send, by the batch and by the seed."""

import struct
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache

import numpy as np

import gammafl as gf
from gammafl.core import blocks, drawn, rotation, varints
from gammafl.core.codes import Code
from gammafl.core.wire import CHECKED, MARK, OLD_HEADER, OLD_MAGIC, POSITIONS, START, VALUES, WHOLE, read_head
from tests.core.test_wire import VERSION_1

BATCH = 2000
"""Inputs that are made at a time."""

EXTREMES = (0, 1, 2, 7, 8, 9, 255, 256, 65_535, 65_536, 10**9, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1)
PATTERNS = [
    bytes.fromhex(text)
    for text in ("00", "ff", "ffffffff", "00000000", "0000807f", "000080ff", "0000c07f", "00000080", "007c", "01000000")
]
"""Bytes that mean much: zeros, ones, infinities, NaN, −0.0, the smallest denormal."""

Family = Callable[[np.random.Generator, int], list[bytes]]


def batch(seed: int, number: int, size: int = BATCH) -> tuple[str, list[bytes]]:
    """The family's name and the inputs of one batch; the same whenever and wherever it is made."""
    name = TURNS[number % len(TURNS)]
    return name, FAMILIES[name](np.random.default_rng([seed, number]), size)


@cache
def corpus() -> tuple[bytes, ...]:
    """Valid messages of every pair of codings, from no entry to three hundred, and some of version 1."""
    rng = np.random.default_rng(0)
    messages = {bytes.fromhex(message) for message in VERSION_1}
    for dim, count in ((0, 0), (1, 1), (7, 3), (64, 64), (65, 20), (1000, 300), (10_250, 100), (2**32 - 1, 12)):
        for update in updates_of_every_kind(rng, dim, count):
            for positions in POSITIONS:
                if positions == "bitmap" and dim > 20_000:
                    continue
                for kind in VALUES:
                    with suppress(gf.InputError):  # not every coding can hold every update
                        messages.add(gf.encode(update, positions, kind))
    return tuple(sorted(messages))


def compile_all() -> None:
    """Compile the loops of every coding, so that a campaign that measures memory does not measure the compiler."""
    for message in corpus():
        gf.decode(message)


def updates_of_every_kind(rng: np.random.Generator, dim: int, count: int) -> list[gf.SparseUpdate]:
    """Positions that are scattered or drawn by a key, values of every kind, coded ones; some with others sent whole."""
    made = []
    for number, values in enumerate(values_of_every_kind(rng, count)):
        key = int(rng.integers(0, 2**64, dtype=np.uint64))
        places = scattered(rng, dim, count)
        made.append(gf.SparseUpdate(dim, places, values[: len(places)]))
        made.append(gf.SparseUpdate(dim, drawn.positions(key, dim, count), values, code=Code(key)))
        if number == 1:
            coded = [blocks.nearest(values, bits, block) for bits, block in ((2, 7), (4, 300), (8, 64))]
            coded_updates = [made[-1].with_values(*pair) for pair in coded]
            made += [*coded_updates, made[-1].with_values(*rotation.rotated(values, key, "nearest"))]
            made += [made[-1].with_values((values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32))]
    room = dim < 2**32 - 5
    return [*made, *(update.with_whole(rng.standard_normal(3).astype(np.float32)) for update in made if room)]


def values_of_every_kind(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """Full precision with every exponent, halves, one magnitude, runs of magnitudes."""
    bits = rng.integers(0, 0x7F800000, count, np.uint32) | rng.integers(0, 2, count, np.uint32) << np.uint32(31)
    signs = rng.choice([-1.0, 1.0], count)
    return [
        bits.view(np.float32),
        rng.standard_normal(count).astype(np.float16).astype(np.float32),
        (0.3 * signs).astype(np.float32),
        (signs * np.sort(rng.choice([0.1, 0.2, 0.3], count))).astype(np.float32),
    ]


def scattered(rng: np.random.Generator, dim: int, count: int) -> np.ndarray:
    if dim > 10**6:
        return np.unique(rng.integers(0, dim, count, np.uint32))
    return np.sort(rng.choice(dim, count, replace=False)).astype(np.uint32)


def sealed(messages: Sequence[bytes]) -> list[bytes]:
    """With the checksum made right, so that deeper code is reached; what is shorter than a header stays."""
    crc32, pack, made = zlib.crc32, struct.Struct("<I").pack, []
    for m in messages:
        start, end = (OLD_HEADER.size - 4, OLD_HEADER.size) if m[:2] == OLD_MAGIC else (CHECKED, START.size)
        made.append(m[:start] + pack(crc32(m[end:], crc32(m[:start]))) + m[end:] if len(m) >= end else m)
    return made


def _rows(matrix: np.ndarray) -> list[bytes]:
    data, length = matrix.tobytes(), matrix.shape[1]
    return [data[at : at + length] for at in range(0, len(data), length)]


def _one(rng: np.random.Generator) -> bytes:
    return corpus()[rng.integers(len(corpus()))]


def _copies(rng: np.random.Generator, size: int) -> np.ndarray:
    """One valid message, `size` times."""
    return np.tile(np.frombuffer(_one(rng), np.uint8), (size, 1))


def _noise(rng: np.random.Generator, size: int) -> list[bytes]:
    """Arbitrary bytes; of every second input the first ones are those of a message."""
    ends = np.cumsum(rng.integers(0, 80, size))
    data = rng.bytes(int(ends[-1]))
    pieces = [data[start:end] for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)]
    beginnings = [b"", bytes([MARK]), b"gF\x01", b""]
    return [beginnings[i % 4] + piece for i, piece in enumerate(pieces)]


def _flipped(rng: np.random.Generator, size: int, most: int = 1) -> list[bytes]:
    """Up to `most` bits changed."""
    rows = _copies(rng, size)
    for _ in range(most):
        at = rng.integers(0, rows.shape[1], size)
        rows[np.arange(size), at] ^= np.uint8(1) << rng.integers(0, 8, size, np.uint8)
    return _rows(rows)


def _flipped_and_sealed(rng: np.random.Generator, size: int) -> list[bytes]:
    return sealed(_flipped(rng, size, most=int(rng.integers(1, 4))))


def _overwritten(rng: np.random.Generator, size: int) -> list[bytes]:
    """Bytes that mean much, somewhere."""
    message = _one(rng)
    places = rng.integers(2, len(message), size).tolist()
    chosen = rng.integers(0, len(PATTERNS), size).tolist()
    patterns = [PATTERNS[number] for number in chosen]
    made = [message[:at] + p + message[at + len(p) :] for at, p in zip(places, patterns, strict=True)]
    return sealed(made)


def _cut_or_longer(rng: np.random.Generator, size: int) -> list[bytes]:
    message = _one(rng)
    extra = rng.bytes(40) if rng.integers(2) else bytes(40)
    ends = rng.integers(0, len(message) + len(extra), size).tolist()
    return sealed([(message + extra)[:end] for end in ends])


def _spliced(rng: np.random.Generator, size: int) -> list[bytes]:
    """The beginning of one message and the end of another."""
    first, second = _one(rng), _one(rng)
    here, there = rng.integers(0, len(first) + 1, size).tolist(), rng.integers(0, len(second) + 1, size).tolist()
    return sealed([first[:a] + second[b:] for a, b in zip(here, there, strict=True)])


def _fields(rng: np.random.Generator, size: int) -> list[bytes]:
    """Kinds, dimension, count and what is sent whole as they are, nearly so, or extreme."""
    message = _one(rng)
    while message[0] != MARK:
        message = _one(rng)
    head = read_head(message)
    kinds, body = message[1], message[head.end :]
    known = [p | v << 4 | w for p in range(len(POSITIONS)) for v in range(len(VALUES)) for w in (0, WHOLE)]
    chosen = rng.choice(np.array([kinds] * 40 + known + [0x06, 0x07, 0x60, 0xFF], np.uint8), size).tolist()
    numbers = [
        rng.choice(np.array([true] * 4 + [max(0, true - 1), min(true + 1, 2**32 - 1), *EXTREMES]), size).tolist()
        for true in (head.dim, head.entries, head.whole)
    ]
    made = []
    for kind, dim, count, whole in zip(chosen, *numbers, strict=True):
        fields = varints.written(dim) + varints.written(count) + (varints.written(whole) if kind & WHOLE else b"")
        made.append(bytes([MARK, kind]) + bytes(4) + fields + body)
    return sealed(made)


def _bodies(rng: np.random.Generator, size: int) -> list[bytes]:
    """A header that may be true of the random body behind it."""
    kinds = int(rng.integers(len(POSITIONS))) | int(rng.integers(len(VALUES))) << 4
    dims = rng.integers(0, 40, size).tolist()
    counts = [int(share * (dim + 1)) if kinds & 7 else dim for share, dim in zip(rng.random(size), dims, strict=True)]
    positions = [0, 1 + dims[0] // 8, -(-dims[0] // 8), 4 * counts[0], 8, counts[0] // 2][kinds & 7]
    count = counts[0]
    likely = positions + [4 * count, 2 * count, 5 + count // 8 + 1, 2 * count, 6 + count // 2, 20][kinds >> 4]
    bodies = rng.integers(0, 256, (size, likely), np.uint8)
    bodies[:, : 1 + likely // 4] &= rng.choice(np.array([0x00, 0x01, 0x07, 0xFF], np.uint8))
    start = bytes([MARK, kinds, 0, 0, 0, 0])
    heads = [start + varints.written(dim) + varints.written(count) for dim, count in zip(dims, counts, strict=True)]
    if rng.integers(2):  # all of one length: the first pair's
        heads = heads[:1] * size
    return sealed([head + body.tobytes() for head, body in zip(heads, bodies, strict=True)])


def _valid(rng: np.random.Generator, size: int) -> list[bytes]:
    """A tenth fresh updates, each ten times: what must be accepted."""
    made = []
    for _ in range(-(-size // 10)):
        dim = int(rng.choice([1, 9, 64, 100, 777]))
        count = int(rng.integers(0, dim + 1))
        kinds = updates_of_every_kind(rng, dim, count)
        update = kinds[rng.integers(len(kinds))]
        made += [gf.encode(update, POSITIONS[rng.choice([1, 2, 3, 5])] if rng.integers(2) else "auto")] * 10
    return made[:size]


FAMILIES: dict[str, Family] = {
    "noise": _noise,
    "one bit flipped": _flipped,
    "bits flipped, checksum right": _flipped_and_sealed,
    "overwritten": _overwritten,
    "cut or longer": _cut_or_longer,
    "spliced": _spliced,
    "extreme fields": _fields,
    "random bodies": _bodies,
    "valid": _valid,
}

TURNS = [name for turn in (0, 1) for name in FAMILIES if turn == 0 or name not in ("noise", "one bit flipped", "valid")]
"""The families of successive batches: those that get past the checksum come twice as often."""
