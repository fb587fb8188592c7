"""The k entries of largest magnitude of a tensor on any device, bit for bit the same as in `core/largest.py`.

A sample gives a limit that k entries and a few more exceed. These are copied to the host, which chooses k of them. If
the limit was wrong, or the vector is short, the bits of the magnitudes are counted, digit by digit, to find the k-th.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from gammafl.core.candidates import chosen, kth_between
from gammafl.core.device.crossing import MAGNITUDE, MOST, Crossing, magnitudes, nonzero, to_device, to_host
from gammafl.core.device.vectors import Found
from gammafl.core.largest import DIGITS

SAMPLE = 1 << 16
"""The number of elements in a sample."""

MARGIN = 3
"""By how many standard deviations the sample's count of large elements may be too high."""

SHORT, SPARSE = 1 << 12, 2
"""No sample is used for fewer than SHORT elements, or if k is more than one in SPARSE of them."""


def take_largest(vector: torch.Tensor, k: int, key: int | None) -> Found:
    """Takes the k entries of largest magnitude out of the vector, where they become zero. Zeros are never taken."""
    if k == 0:
        return joined([])
    if vector.numel() >= max(SPARSE * k, SHORT) and vector.numel() <= MOST:
        found = _take_by_sample(vector, k, key)
        if found is not None:
            return found
    return _take_by_digits(vector, k, key)


def joined(parts: Sequence[Found]) -> Found:
    """The entries of consecutive parts of a vector."""
    if len(parts) == 1:
        return parts[0]
    nothing = (np.empty(0, np.uint32), np.empty(0, np.float32))
    indices, values = zip(nothing, *parts, strict=True)
    return np.concatenate(indices), np.concatenate(values)


def _take_by_sample(vector: torch.Tensor, k: int, key: int | None) -> Found | None:
    """None if fewer than k entries exceed the sample's limit, unless all others are zero."""
    size = vector.numel()
    stride = max(1, size // SAMPLE) | 1  # odd, so that it reaches all columns of most matrices
    sample = magnitudes(vector[(key or 0) % stride :: stride])
    expected = sample.numel() * k / size
    margin = MARGIN * math.sqrt(expected) + MARGIN
    place = sample.numel() - math.ceil(expected + margin)
    # not kthvalue: mps has none, and CUDA's is refused if torch must be deterministic
    limit = sample.sort().values[place - 1] if place >= 1 else sample.new_zeros(())
    room = min(size, math.ceil(k * (1 + 2 * margin / expected)))
    crossing = Crossing.of(vector, magnitudes(vector) > limit, room, limit)
    (indices, values), (low,) = crossing.arrive(vector)
    if len(indices) < k and low:
        return None
    if len(indices) > k:
        bits = values.view(np.uint32)
        kth, ties, wanted = kth_between(bits, np.uint32(low), np.uint32(MAGNITUDE), len(bits) - k)
        picks = _picks(bits, kth, ties, wanted, key)
        indices, values = indices[picks], values[picks]
    _clear(vector, indices)
    return indices, values


def _picks(bits: np.ndarray, kth: int, ties: int, wanted: int, key: int | None) -> np.ndarray:
    """The positions of the magnitudes above the k-th, and of the chosen ones equal to it."""
    sizes = bits & np.uint32(MAGNITUDE)
    kept = sizes > kth
    kept[np.flatnonzero(sizes == kth)[chosen(int(ties), int(wanted), key is not None, np.uint64(key or 0))]] = True
    return np.flatnonzero(kept)


def _clear(vector: torch.Tensor, indices: np.ndarray) -> None:
    vector.index_fill_(0, to_device(indices.astype(np.int64), vector.device), 0)


def _take_by_digits(vector: torch.Tensor, k: int, key: int | None) -> Found:
    kth, above = _kth_largest(vector, k)
    parts = []
    for start in range(0, vector.numel(), MOST):
        part = vector[start : start + MOST]
        bits = magnitudes(part)
        mask = bits > kth if kth == 0 else bits >= kth
        where = nonzero(mask, int(to_host(mask.sum())))
        both = to_host(torch.cat([where.to(torch.int32), part[where].view(torch.int32)]))
        indices, values = np.split(both, 2)
        parts.append((indices.view(np.uint32) + np.uint32(start), values.view(np.float32)))
    indices, values = joined(parts)
    if kth and len(indices) > k:
        picks = _picks(values.view(np.uint32), kth, len(indices) - above, k - above, key)
        indices, values = indices[picks], values[picks]
    _clear(vector, indices)
    return indices, values


def _kth_largest(vector: torch.Tensor, k: int) -> tuple[int, int]:
    """The bits of the k-th largest magnitude, and how many are larger."""
    prefix, above, wanted = 0, 31, k
    for shift, width in DIGITS:
        counts = np.zeros(1 << width, np.int64)
        for start in range(0, vector.numel(), MOST):
            bits = magnitudes(vector[start : start + MOST])
            digits = (bits >> shift) & ((1 << width) - 1)
            elsewhere = 1 << width
            counted = digits if above == 31 else torch.where((bits >> above) == prefix, digits, elsewhere)
            counts += to_host(torch.bincount(counted, minlength=elsewhere + 1)[:elsewhere])
        from_the_top = np.cumsum(counts[::-1])
        place = int(np.searchsorted(from_the_top, wanted))
        wanted -= int(from_the_top[place - 1]) if place else 0
        prefix, above = (prefix << width) | ((1 << width) - 1 - place), shift
    return prefix, k - wanted
