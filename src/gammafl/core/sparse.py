"""The sparse update: what a client sends and a server adds."""

from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gammafl.core.errors import InputError
from gammafl.core.inputs import array_of, floats_of, not_what_is_wanted

MAX_DIM = 2**32 - 1
"""Positions are unsigned 32-bit numbers, in memory and on the wire."""


class SparseUpdate:
    """`values[j]` at position `indices[j]` of a vector of `dim` elements, zero elsewhere.

    `indices` (uint32) are below `dim` and strictly increasing, `values` are float32, both contiguous; the order is
    checked by `encode`. An update of every position is written `SparseUpdate(dim, None, values)` and is `entire`: its
    positions are neither stored nor sent.
    """

    __slots__ = ("_positions", "dim", "values")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, dim: int, indices: ArrayLike | None, values: ArrayLike) -> None:
        self.dim = index(dim) if hasattr(dim, "__index__") else -1
        if not 0 <= self.dim <= MAX_DIM:
            raise InputError(f"dim must be a whole number between 0 and {MAX_DIM}, got {dim!r}")
        self.values: NDArray[np.float32] = floats_of(values, "values")
        self._positions = None if indices is None else _positions(indices, self.dim)
        count = self.dim if self._positions is None else len(self._positions)
        if self.values.shape != (count,):
            raise InputError(f"{count} indices for values of shape {self.values.shape}")

    @classmethod
    def of_checked(cls, dim: int, indices: NDArray[np.uint32] | None, values: NDArray[np.float32]) -> "SparseUpdate":
        """The same from parts that are known to be in order, which spares looking at them again."""
        update = cls.__new__(cls)
        update.dim, update._positions, update.values = dim, indices, values
        return update

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

    def split(self, tail: int) -> tuple["SparseUpdate", "SparseUpdate"]:
        """The entries before the last `tail` positions, and those at them; both of `dim` elements.

        >>> [part.indices.tolist() for part in SparseUpdate(5, [0, 3, 4], [1.0, 2.0, 3.0]).split(2)]
        [[0], [3, 4]]
        """
        if not tail:
            return self, SparseUpdate(self.dim, [], [])
        indices, count = self.indices, int(np.searchsorted(self.indices, max(0, self.dim - tail)))
        head = self.of_checked(self.dim, indices[:count], self.values[:count])
        return head, self.of_checked(self.dim, indices[count:], self.values[count:])

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


def _positions(indices: ArrayLike, dim: int) -> NDArray[np.uint32]:
    """`indices` as unsigned 32-bit numbers below `dim`; compiled code relies on that."""
    wanted = "a vector of whole numbers (np.flatnonzero makes them of a mask)"
    array = np.asarray(array_of(indices, "indices", wanted), order="C")
    if array.size == 0:
        return np.empty(0, np.uint32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise not_what_is_wanted(indices, "indices", wanted)
    if array.max() >= dim or (array.dtype.kind == "i" and array.min() < 0):
        raise InputError(f"indices must be from 0 to {dim - 1}")
    return array.astype(np.uint32, copy=False)
