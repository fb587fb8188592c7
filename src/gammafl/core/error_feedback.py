"""Error feedback: compensate, compress, remember the rest (Algorithm 1, lines 12-13).

The invariant, per coordinate and call, in float32: with wanted = residual + delta (one rounding),

    wanted = sent + residual'      exactly where a value is sent as it is or not at all,
    residual' = wanted − sent      (one more rounding) where it was quantised.
"""

from typing import Any

import numpy as np

from gammafl.core import kernels
from gammafl.core.compressors import Compressor, check_taken, is_proven
from gammafl.core.errors import DivergedError, require
from gammafl.core.inputs import array_of, not_what_is_wanted
from gammafl.core.kernels import Vector
from gammafl.core.sparse import MAX_DIM, SparseUpdate

FLOAT32_MAX = float(np.finfo(np.float32).max)


class ErrorFeedback:
    """A compressor with memory: what was not sent is added to the next update.

    `residual` starts as zeros, or is taken over as given (float32, not copied).
    """

    def __init__(self, method: Compressor, dim: int, residual: Vector | None = None) -> None:
        require(0 <= dim <= MAX_DIM, f"dim must be between 0 and {MAX_DIM}, got {dim}")
        is_method = isinstance(method, Compressor)
        require(is_method, f"method must be a compressor such as TopK(100), got {method!r}")
        sizes = sum(method.sizes)
        require(sizes in (0, dim), f"the method's tensor sizes add up to {sizes}, but the vector has {dim} elements")
        self.method = method
        self._proven = is_proven(method)
        self.dim = dim
        self.residual = np.zeros(dim, np.float32) if residual is None else as_vector(residual, dim, "residual")
        self._bound = kernels.largest_magnitude(self.residual)
        require(self._bound <= FLOAT32_MAX, "the residual holds values that are not finite")
        self.remembers = method.leaves_a_rest or self._bound > 0
        """Whether the residual can hold anything."""

    def compress(self, delta: Any, t: int, largest: float | None = None) -> SparseUpdate:
        """What is sent of residual + delta at iteration t; the rest becomes the residual.

        `delta` is a float32 vector (numpy, or a torch tensor on the CPU), neither copied nor changed. One
        that is not finite is refused, and the residual stays as it was. `largest` is for callers that know
        max |delta_j| already, as `kernels.difference` returns it: it saves the read that looks for it.
        """
        vector = as_vector(delta, self.dim, "delta")
        self._refuse_non_finite(vector, kernels.largest_magnitude(vector) if largest is None else largest)
        if not self._proven:
            return self._compress_checked(vector, t)
        if not self.remembers:
            return self.method(vector, t)
        self.remembers = self.method.leaves_a_rest
        return self.method.add_and_take(vector, self.residual, t)

    def _compress_checked(self, delta: Vector, t: int) -> SparseUpdate:
        """The same for a compressor that is not ours: what it took and left must add up, or nothing has happened."""
        before, wanted = self.residual.copy(), self.residual + delta
        try:
            update = self.method.add_and_take(delta, self.residual, t)
            check_taken(self.method, wanted, update, self.residual)
        except BaseException:
            self.residual[:] = before
            raise
        self.remembers = self.method.leaves_a_rest
        return update

    def add(self, delta: Any, largest: float | None = None) -> None:
        """residual ← residual + delta, with nothing sent."""
        vector = as_vector(delta, self.dim, "delta")
        self._refuse_non_finite(vector, kernels.largest_magnitude(vector) if largest is None else largest)
        self.residual += vector
        self.remembers = True

    def take_back(self, update: SparseUpdate) -> None:
        """residual ← residual + update: what was sent and did not arrive is sent another time."""
        require(update.dim == self.dim, f"an update of {update.dim} elements for a residual of {self.dim}")
        self.residual[slice(None) if update.entire else update.indices] += update.values
        self._bound = kernels.largest_magnitude(self.residual)
        self.remembers = True

    def remove(self, update: SparseUpdate) -> None:
        """residual ← residual − update: it is sent beside what `compress` takes."""
        require(update.dim == self.dim, f"an update of {update.dim} elements for a residual of {self.dim}")
        self.residual[slice(None) if update.entire else update.indices] -= update.values

    def _refuse_non_finite(self, delta: Vector, largest: float) -> None:
        """Looks before anything is written, since an overwritten residual can't be brought back.

        max |delta_j| is enough: |residual| is at most the sum of all largest magnitudes so far (`_bound`),
        and only when that could overflow is the sum itself looked at.
        """
        if self._bound + largest <= FLOAT32_MAX:
            self._bound += largest
            return
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = self.residual + delta
        if bad := np.flatnonzero(~np.isfinite(wanted))[:1].tolist():
            raise DivergedError(
                f"the update is not finite: {delta[bad[0]]} at position {bad[0]} of {self.dim}"
                f" (residual {self.residual[bad[0]]}); nothing was changed. A smaller stepsize usually helps."
            )
        self._bound = kernels.largest_magnitude(wanted)


def as_vector(value: Any, dim: int, name: str) -> Vector:
    """`value` as a float32 vector of length `dim` that shares its memory."""
    wanted = f"a contiguous float32 vector of {dim} elements"
    array = array_of(value, name, wanted)
    if array.dtype != np.float32 or array.shape != (dim,) or not array.flags.c_contiguous:
        raise not_what_is_wanted(value, name, wanted)
    return array
