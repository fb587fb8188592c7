"""Reads numbers from a message that may be too short."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl.core.errors import WireError

BYTES, U2, U4, F2, F4 = map(np.dtype, ("u1", "<u2", "<u4", "<f2", "<f4"))
Bytes = bytes | memoryview


def part(data: bytes, start: int, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """`count` numbers of `data`, without a copy."""
    missing = start + count * dtype.itemsize - len(data)
    if missing > 0:
        raise WireError(f"message ends {missing} bytes too early")
    return np.frombuffer(data, dtype, count, start)


def require_zeros_after(used: int, in_bytes: NDArray[np.uint8]) -> None:
    """Raises a `WireError` if any bit after the first `used` bits is set."""
    if used % 8 and in_bytes[-1] >> (used % 8):
        raise WireError("bits that are not in use are set")
