"""The sparse update, which a client sends and the server adds up."""

from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gammafl.core import blocks, rotation
from gammafl.core.codes import Blocks, Code, Rotated
from gammafl.core.errors import InputError, require
from gammafl.core.inputs import array_of, floats_of, not_what_is_wanted

MAX_DIM = 2**32 - 1
"""The longest vector: positions are unsigned 32-bit numbers, in memory and in messages."""


class SparseUpdate:
    """`values[j]` at position `indices[j]` of a vector with `dim` elements, zero elsewhere.

    dim       the length of the vector
    indices   strictly increasing positions below `dim` (uint32); `encode` checks their order. None: all positions,
              which are then neither stored nor sent (`entire`)
    values    one float32 for each position
    whole     how many of the last entries belong to tensors that are sent whole, at the last positions of the vector
    code      how the other entries can be written shorter (`core/codes.py`)

    `whole` and `code` only describe the message: updates that differ in them are equal.

    >>> update = SparseUpdate(5, [1, 3], [0.5, -2.0])
    >>> len(update), update.dense().tolist()
    (2, [0.0, 0.5, 0.0, -2.0, 0.0])
    """

    __slots__ = ("_positions", "code", "dim", "values", "whole")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, dim: int, indices: ArrayLike | None, values: ArrayLike, whole: int = 0, code: Code | None = None
    ) -> None:
        self.dim = index(dim) if hasattr(dim, "__index__") else -1
        if not 0 <= self.dim <= MAX_DIM:
            raise InputError(f"dim must be a whole number between 0 and {MAX_DIM}, got {dim!r}")
        self.values: NDArray[np.float32] = floats_of(values, "values")
        self._positions = None if indices is None else _positions(indices, self.dim)
        count = self.dim if self._positions is None else len(self._positions)
        if self.values.shape != (count,):
            raise InputError(f"{count} indices for values of shape {self.values.shape}")
        at_end = self._positions is None or not whole or self._positions[-whole:][:1] == self.dim - whole
        require(0 <= whole <= count and bool(at_end), f"the last {whole} entries are not the last positions")
        self.whole, self.code = whole, code

    @classmethod
    def of_checked(
        cls,
        dim: int,
        indices: NDArray[np.uint32] | None,
        values: NDArray[np.float32],
        whole: int = 0,
        code: Code | None = None,
    ) -> "SparseUpdate":
        """The same from parts that were checked before."""
        update = cls.__new__(cls)
        update.dim, update._positions, update.values, update.whole, update.code = dim, indices, values, whole, code
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

    def copy(self) -> "SparseUpdate":
        """A copy with its own memory."""
        positions = None if self._positions is None else self._positions.copy()
        return SparseUpdate.of_checked(self.dim, positions, self.values.copy(), self.whole, self.code)

    def with_values(self, values: NDArray[np.float32], coded: Blocks | Rotated | None = None) -> "SparseUpdate":
        """An update with other values at the same positions. `coded` is their code."""
        drawn = None if self.code is None else self.code.drawn
        code = None if drawn is None and coded is None else Code(drawn, coded)
        return SparseUpdate(self.dim, self._positions, values, self.whole, code)

    def scaled(self, factor: float) -> "SparseUpdate":
        """All values times `factor`, which must be positive. Coded values stay coded, with other scales."""
        number, head = np.float32(factor), len(self) - self.whole
        values, coded = number * self.values, None if self.code is None else self.code.values
        if isinstance(coded, Blocks):
            values[:head], coded = blocks.scaled(self.values[:head], coded, number)
        elif coded is not None:
            coded = Rotated(coded.key, coded.scales * number, coded.signs)
            values[:head] = rotation.restored(coded, head)
        return self.with_values(values, coded)

    def with_whole(self, values: NDArray[np.float32]) -> "SparseUpdate":
        """The update of a longer vector. Its last elements are `values`, which are sent whole."""
        dim = self.dim + values.size
        tail = np.arange(self.dim, dim, dtype=np.uint32)
        positions = None if self._positions is None else np.concatenate([self._positions, tail])
        return SparseUpdate.of_checked(dim, positions, np.concatenate([self.values, values]), values.size, self.code)

    def dense(self) -> NDArray[np.float32]:
        """The update as a vector of `dim` elements."""
        if self._positions is None:
            return self.values.copy()
        vector = np.zeros(self.dim, np.float32)
        vector[self._positions] = self.values
        return vector

    def split(self, tail: int) -> tuple["SparseUpdate", "SparseUpdate"]:
        """The entries before the last `tail` positions, and those at these positions; both with `dim` elements.

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
    """`indices` as unsigned 32-bit numbers below `dim`. Compiled code relies on this check."""
    wanted = "a vector of whole numbers (np.flatnonzero makes them of a mask)"
    array = np.asarray(array_of(indices, "indices", wanted), order="C")
    if array.size == 0:
        return np.empty(0, np.uint32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise not_what_is_wanted(indices, "indices", wanted)
    if array.max() >= dim or (array.dtype.kind == "i" and array.min() < 0):
        raise InputError(f"indices must be from 0 to {dim - 1}")
    return array.astype(np.uint32, copy=False)
