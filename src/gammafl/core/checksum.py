"""CRC-32 of long messages with all threads: each computes the checksum of a part, and the checksums are combined.

A checksum is a polynomial over the field of two elements, modulo the CRC's polynomial; its highest power is in the
lowest bit. Each further byte of data multiplies it by x^8 (zlib's `crc32_combine`, which Python does not offer).
"""

import zlib
from typing import Any

import numpy as np

from gammafl.core import threads
from gammafl.core.jit import compiled

MODULUS = np.uint32(0xEDB88320)
UNIT, BYTE = np.uint32(1 << 31), np.uint32(1 << 23)
"""The polynomials 1 and x^8."""

PART_AT_LEAST = 1 << 20
"""A shorter part is finished before a second thread starts."""


@compiled
def _product(one: Any, two: Any) -> Any:
    product = np.uint32(0)
    for power in range(32):
        if (one >> np.uint32(31 - power)) & np.uint32(1):
            product ^= two
        two = np.uint32((two >> np.uint32(1)) ^ (MODULUS if two & np.uint32(1) else np.uint32(0)))
    return np.uint32(product)


@compiled
def _followed(checksum: Any, size: Any) -> Any:
    """The checksum multiplied by x^8 `size` times."""
    factor, power = UNIT, BYTE
    while size:
        if size & 1:
            factor = _product(factor, power)
        power = _product(power, power)
        size >>= 1
    return _product(factor, np.uint32(checksum))


def crc32(data: Any, before: int = 0) -> int:
    """As `zlib.crc32`: the checksum of `data`, which follows data with the checksum `before`.

    >>> crc32(b"message") == crc32(b"sage", crc32(b"mes")) == zlib.crc32(b"message")
    True
    """
    view = memoryview(data)
    if len(view) < 2 * PART_AT_LEAST:
        return zlib.crc32(view, before)

    def work(start: int, stop: int) -> tuple[int, int]:
        return zlib.crc32(view[start:stop]), stop - start

    for checksum, size in threads.share_out(work, len(view), PART_AT_LEAST):
        before = int(_followed(before, size)) ^ checksum
    return before
