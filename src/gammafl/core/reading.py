"""Numbers out of a message whose length nobody promised."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl.core.errors import WireError

BYTES, U2, U4, F2, F4 = map(np.dtype, ("u1", "<u2", "<u4", "<f2", "<f4"))
Bytes = bytes | memoryview


def part(data: bytes, start: int, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """`count` numbers of `data`; nothing is allocated for them."""
    missing = start + count * dtype.itemsize - len(data)
    if missing > 0:
        raise WireError(f"message ends {missing} bytes too early")
    return np.frombuffer(data, dtype, count, start)


def require_zeros_after(used: int, in_bytes: NDArray[np.uint8]) -> None:
    """Of the bits in these bytes only the first `used` may be set."""
    if used % 8 and in_bytes[-1] >> (used % 8):
        raise WireError("bits that are not in use are set")
