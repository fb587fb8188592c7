"""Memory: what a client keeps between its messages.

A `Memory` is a frozen dataclass, a part of a method. It makes the state of each client. If the server must know this
state too, it also makes the server's half. A message has two phases. `propose` changes only state of the client alone.
State that the server knows too changes in `commit`, when both sides know that the message counted. `take_back` returns
a message that did not count.

Error feedback keeps the rest (Algorithm 1, lines 12-13). Its invariant, per element and call, in float32: with
wanted = residual + delta (one rounding),

    wanted = sent + residual'      exactly, if a value is sent unrounded or not at all
    residual' = wanted − sent      (one more rounding), if it is sent rounded
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gammafl.core import kernels
from gammafl.core.arrays import Vector
from gammafl.core.device.vectors import is_on_device, on_host, vector_on
from gammafl.core.errors import DivergedError, require
from gammafl.core.inputs import array_of, not_what_is_wanted
from gammafl.core.moment import Moment
from gammafl.core.sparse import MAX_DIM, SparseUpdate

if TYPE_CHECKING:
    from gammafl.core.method import Method
    from gammafl.core.shifts import Mirror

FLOAT32_MAX = float(np.finfo(np.float32).max)
RESIDUAL = "residual"


class Memory(ABC):
    """The kind of memory of a method."""

    commits: bool = False
    """Whether some of its state changes only when a message has counted, such as state that the server mirrors."""

    on_device: bool = False
    """Whether a client's vectors may be on a device (`core/device`)."""

    vectors: tuple[str, ...] = (RESIDUAL,)
    """The names of a client's vectors, each as long as the model."""

    @abstractmethod
    def client(self, method: "Method", dim: int, state: Mapping[str, Vector] | None = None) -> "ClientMemory":
        """The memory of one client: new, or with its `state`."""

    def server(self, dim: int, tail: int = 0) -> "Mirror | None":
        """The server's half; None if the server need not know the clients' memories.

        tail   the last elements of the model are statistics: their number
        """
        return None


class ClientMemory(ABC):
    """The memory of one client, for a `method` and a model of `dim` elements."""

    method: "Method"
    dim: int

    @abstractmethod
    def propose(self, delta: Any, moment: Moment, largest: float | None = None) -> SparseUpdate:
        """The update to send, from `delta` and the memory.

        delta     a float32 vector, numpy's or torch's, which does not change. If it is not on the memory's device, it
                  is copied there. If it is not finite, an error is raised and nothing has changed
        largest   max |delta_j|, if the caller knows it: it saves a pass over the vector
        """

    @abstractmethod
    def add(self, delta: Any, largest: float | None = None, tail: int = 0) -> None:
        """Adds `delta` to the memory; nothing is sent. Its last `tail` elements are statistics, always sent whole."""

    @abstractmethod
    def take_back(self, update: SparseUpdate) -> None:
        """Returns `update`, which was sent but did not count, to the memory. It is sent again later."""

    @abstractmethod
    def remove(self, update: SparseUpdate) -> None:
        """Removes `update` from the memory. It is sent instead of the proposed one, which was taken back."""

    @abstractmethod
    def wanted(self, update: SparseUpdate) -> Vector:
        """The values of `update`, the last result of `propose`, before they were rounded."""

    def commit(self, update: SparseUpdate, step: float) -> None:  # noqa: B027 - most memories need not do anything
        """Notes that `update` counted. `step` is `Moment.step` of the round in which it was made.

        `update` has no statistics. They are sent whole, and a client does not repeat them like a direction.
        """

    def lost(self, update: SparseUpdate, step: float) -> SparseUpdate | None:
        """Notes that `update` did not count. Returns what the server lacks of that round and gets later, or None."""
        self.take_back(update)
        return update

    @abstractmethod
    def state(self) -> dict[str, Vector]:
        """Name → vector of all that must be stored; empty if there is nothing."""


@dataclass(frozen=True)
class ErrorFeedback(Memory):
    """What was not sent is added to the next update.

    >>> import gammafl as gf
    >>> gf.Method(gf.TopK(1)).memory
    ErrorFeedback()
    """

    on_device = True

    def client(self, method: "Method", dim: int, state: Mapping[str, Vector] | None = None) -> "Residual":
        return Residual(method, dim, (state or {}).get(RESIDUAL))


@dataclass(frozen=True)
class NoMemory(Memory):
    """What was not sent is dropped.

    >>> import gammafl as gf
    >>> gf.Method(gf.TopK(1), NoMemory())
    Method(TopK(k=1, scope='global'), memory=NoMemory())
    """

    on_device = True

    def client(self, method: "Method", dim: int, state: Mapping[str, Vector] | None = None) -> "Residual":
        return Forgetting(method, dim, (state or {}).get(RESIDUAL))


class Residual(ClientMemory):
    """Error feedback of one client. `residual` is zeros at first, or the given float32 vector, which is not copied."""

    def __init__(self, method: "Method", dim: int, residual: Vector | None = None) -> None:
        require(0 <= dim <= MAX_DIM, f"dim must be between 0 and {MAX_DIM}, got {dim}")
        self.method = method
        self._proven = method.proven
        self.dim = dim
        self.residual = np.zeros(dim, np.float32) if residual is None else as_vector(residual, dim, "residual")
        self._bound = kernels.largest_magnitude(self.residual)
        require(self._bound <= FLOAT32_MAX, "the residual holds values that are not finite")
        self.remembers = method.leaves_a_rest or self._bound > 0
        """Whether the residual can hold anything."""

    def propose(self, delta: Any, moment: Moment, largest: float | None = None) -> SparseUpdate:
        vector = self._beside(delta)
        self._refuse_non_finite(vector, kernels.largest_magnitude(vector) if largest is None else largest)
        if not self._proven:
            return self._propose_checked(vector, moment)
        if not self.remembers:
            return self.method(vector, moment)
        self.remembers = self.method.leaves_a_rest
        return self.method.add_and_take(vector, self.residual, moment)

    def _propose_checked(self, delta: Vector, moment: Moment) -> SparseUpdate:
        """The same for a compressor from another package: on copies, with a check that sent + rest = vector."""
        wanted, rest = self.residual + delta, self.residual.copy()
        update = self.method.add_and_take(delta.copy(), rest, moment)
        self.method.check(wanted, update, rest)
        self.residual[:] = rest
        self.remembers = self.method.leaves_a_rest
        return update.copy()

    def add(self, delta: Any, largest: float | None = None, tail: int = 0) -> None:
        vector = self._beside(delta)
        self._refuse_non_finite(vector, kernels.largest_magnitude(vector) if largest is None else largest)
        self.residual += vector
        self.remembers = True

    def _beside(self, delta: Any) -> Vector:
        """`delta` on the residual's device, copied if necessary."""
        vector = as_vector(delta, self.dim, "delta")
        if not isinstance(self.residual, np.ndarray):
            return self.residual.beside(vector)
        return vector if isinstance(vector, np.ndarray) else vector.staged()

    def take_back(self, update: SparseUpdate) -> None:
        require(update.dim == self.dim, f"an update of {update.dim} elements for a residual of {self.dim}")
        self.residual[slice(None) if update.entire else update.indices] += update.values
        self._bound = kernels.largest_magnitude(self.residual)
        self.remembers = True

    def remove(self, update: SparseUpdate) -> None:
        require(update.dim == self.dim, f"an update of {update.dim} elements for a residual of {self.dim}")
        self.residual[slice(None) if update.entire else update.indices] -= update.values

    def wanted(self, update: SparseUpdate) -> Vector:
        """For unrounded values, the values themselves: the compressor chose not to send the rest at these positions."""
        return update.values if self.method.values.exact else update.values + self.residual[update.indices]

    def state(self) -> dict[str, Vector]:
        return {RESIDUAL: self.residual} if self.remembers else {}

    def _refuse_non_finite(self, delta: Vector, largest: float) -> None:
        """Refuses an update that is not finite, before anything is written: the residual could not be restored.

        max |delta_j| is enough, since |residual| is at most the sum of all largest magnitudes so far (`_bound`). Only
        if that sum could overflow, the vector residual + delta itself is checked.
        """
        if self._bound + largest <= FLOAT32_MAX:
            self._bound += largest
            return
        delta, residual = on_host(delta), on_host(self.residual)
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = residual + delta
        if bad := np.flatnonzero(~np.isfinite(wanted))[:1].tolist():
            raise DivergedError(
                f"the update is not finite: {delta[bad[0]]} at position {bad[0]} of {self.dim}"
                f" (residual {residual[bad[0]]}); nothing was changed. A smaller stepsize usually helps."
            )
        self._bound = kernels.largest_magnitude(wanted)


class Forgetting(Residual):
    """No memory: the rest of each update is dropped. But lost uploads, and entries that did not fit, are sent later."""

    _wanted: Vector | None = None
    """The values of the last update before rounding."""

    def propose(self, delta: Any, moment: Moment, largest: float | None = None) -> SparseUpdate:
        update = super().propose(delta, moment, largest)
        self._wanted = super().wanted(update)
        self.residual[:] = 0
        self._bound, self.remembers = 0.0, False
        return update

    def wanted(self, update: SparseUpdate) -> Vector:
        return update.values if self._wanted is None else self._wanted


def as_vector(value: Any, dim: int, name: str) -> Vector:
    """`value` as a float32 vector of length `dim` that shares its memory. A vector on a device stays there."""
    wanted = f"a contiguous float32 vector of {dim} elements"
    if is_on_device(value):
        vector = vector_on(value, name)
        require(vector.size == dim, f"{name} must be {wanted}, got {vector.size} elements on a device")
        return cast(Vector, vector)
    array = array_of(value, name, wanted)
    if array.dtype != np.float32 or array.shape != (dim,) or not array.flags.c_contiguous:
        raise not_what_is_wanted(value, name, wanted)
    return array
