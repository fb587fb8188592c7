"""The sparse update: what a client sends and a server adds."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

MAX_DIM = 2**32 - 1
"""Positions are unsigned 32-bit numbers, in memory and on the wire."""


class SparseUpdate:
    """`values[j]` at position `indices[j]` of a vector of `dim` elements, zero elsewhere.

    `indices` are strictly increasing (uint32), `values` are float32; `encode` checks both. An update of
    every position is written `SparseUpdate(dim, None, values)` and is `entire`: its positions are neither
    stored nor sent.
    """

    __slots__ = ("_positions", "dim", "values")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, dim: int, indices: ArrayLike | None, values: ArrayLike) -> None:
        self.dim = dim
        self._positions = None if indices is None else np.asarray(indices, np.uint32)
        self.values: NDArray[np.float32] = np.asarray(values, np.float32)

    @property
    def indices(self) -> NDArray[np.uint32]:
        return np.arange(self.dim, dtype=np.uint32) if self._positions is None else self._positions

    @property
    def entire(self) -> bool:
        return self._positions is None

    def __len__(self) -> int:
        """Number of entries (nnz)."""
        return len(self.values)

    def dense(self) -> NDArray[np.float32]:
        """The update as a vector of `dim` elements."""
        if self._positions is None:
            return self.values.copy()
        vector = np.zeros(self.dim, np.float32)
        vector[self._positions] = self.values
        return vector

    def __eq__(self, other: Any) -> bool:
        """Same dimension, positions and value bits."""
        if not isinstance(other, SparseUpdate):
            return NotImplemented
        return (
            self.dim == other.dim
            and np.array_equal(self.indices, other.indices)
            and self.values.tobytes() == other.values.tobytes()
        )

    def __repr__(self) -> str:
        return f"SparseUpdate(dim={self.dim}, entries={len(self)})"
