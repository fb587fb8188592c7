"""Memory: what a sender remembers between its messages.

A `Memory` is a frozen value, part of a method. The living half of a client is made from it; a memory that the server
must mirror has a server half too. Two phases: `propose` changes only what the client alone owns. State that the server
mirrors moves at `commit`, when both know that the message counted. `take_back` returns a message that did not count.

Error feedback remembers the rest (Algorithm 1, lines 12-13). Its invariant, per coordinate and call, in float32: with
wanted = residual + delta (one rounding),

    wanted = sent + residual'      exactly where a value is sent as it is or not at all,
    residual' = wanted − sent      (one more rounding) where it was rounded.
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
    """What kind of memory a method has."""

    commits: bool = False
    """Whether something of it moves only when a message has counted, such as what the server mirrors."""

    on_device: bool = False
    """Whether what a client remembers may be on a device (`core/device`)."""

    vectors: tuple[str, ...] = (RESIDUAL,)
    """What a client remembers, by name: vectors as long as the model."""

    @abstractmethod
    def client(self, method: "Method", dim: int, state: Mapping[str, Vector] | None = None) -> "ClientMemory":
        """The memory of one client, new or from its `state`."""

    def server(self, dim: int, tail: int = 0) -> "Mirror | None":
        """The server's half; None where the server need not know what clients remember.

        The last `tail` elements of a model are statistics.
        """
        return None


class ClientMemory(ABC):
    """What one client remembers, for a `method` and a model of `dim` elements."""

    method: "Method"
    dim: int

    @abstractmethod
    def propose(self, delta: Any, moment: Moment, largest: float | None = None) -> SparseUpdate:
        """What is to be sent of `delta` and the memory.

        `delta` is a float32 vector (numpy's, or a torch tensor), and is not changed. It crosses to where the memory is,
        if it is elsewhere. One that is not finite is refused, and nothing has changed. `largest` is for callers that
        know max |delta_j| already: it saves the read that looks for it.
        """

    @abstractmethod
    def add(self, delta: Any, largest: float | None = None, tail: int = 0) -> None:
        """Remember `delta`, with nothing sent. Its last `tail` elements are statistics, which are sent whole."""

    @abstractmethod
    def take_back(self, update: SparseUpdate) -> None:
        """`update` was sent and did not count: it is sent another time."""

    @abstractmethod
    def remove(self, update: SparseUpdate) -> None:
        """`update` is sent in place of the one that `propose` returned, which was taken back."""

    @abstractmethod
    def wanted(self, update: SparseUpdate) -> Vector:
        """What the values of `update`, which `propose` returned last, were before they were rounded."""

    def commit(self, update: SparseUpdate, step: float) -> None:  # noqa: B027 - most have nothing to do
        """`update` counted; `step` is `Moment.step` of the round that it was made in.

        It is without statistics: they are sent whole, and are no direction that a client keeps to.
        """

    def lost(self, update: SparseUpdate, step: float) -> SparseUpdate | None:
        """`update` did not count. Returns what the server lacks of that round, which is sent again; None: nothing."""
        self.take_back(update)
        return update

    @abstractmethod
    def state(self) -> dict[str, Vector]:
        """All that must outlive the process; empty where there is nothing to remember."""


@dataclass(frozen=True)
class ErrorFeedback(Memory):
    """What was not sent is added to the next update."""

    on_device = True

    def client(self, method: "Method", dim: int, state: Mapping[str, Vector] | None = None) -> "Residual":
        return Residual(method, dim, (state or {}).get(RESIDUAL))


@dataclass(frozen=True)
class NoMemory(Memory):
    """What was not sent is dropped."""

    on_device = True

    def client(self, method: "Method", dim: int, state: Mapping[str, Vector] | None = None) -> "Residual":
        return Forgetting(method, dim, (state or {}).get(RESIDUAL))


class Residual(ClientMemory):
    """Error feedback of one client. `residual` starts as zeros, or is taken over as given (float32, not copied)."""

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
        """The same for a compressor that is not ours. It works on copies, and what it took and left must add up."""
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
        """The vector where the residual is: an update that is elsewhere crosses."""
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
        """Of values that are sent as they are, themselves: what else is there the compressor did not want to send."""
        return update.values if self.method.values.exact else update.values + self.residual[update.indices]

    def state(self) -> dict[str, Vector]:
        return {RESIDUAL: self.residual} if self.remembers else {}

    def _refuse_non_finite(self, delta: Vector, largest: float) -> None:
        """Looks before anything is written, since an overwritten residual can't be brought back.

        max |delta_j| is enough: |residual| is at most the sum of all largest magnitudes so far (`_bound`). Only when
        that could overflow is the sum itself looked at.
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
    """No memory: the rest of each update is dropped. What did not count or had no room is added to the next update."""

    _wanted: Vector | None = None
    """Of the last update, before it was rounded."""

    def propose(self, delta: Any, moment: Moment, largest: float | None = None) -> SparseUpdate:
        update = super().propose(delta, moment, largest)
        self._wanted = super().wanted(update)
        self.residual[:] = 0
        self._bound, self.remembers = 0.0, False
        return update

    def wanted(self, update: SparseUpdate) -> Vector:
        return update.values if self._wanted is None else self._wanted


def as_vector(value: Any, dim: int, name: str) -> Vector:
    """`value` as a float32 vector of length `dim` that shares its memory; one on a device stays there."""
    wanted = f"a contiguous float32 vector of {dim} elements"
    if is_on_device(value):
        vector = vector_on(value, name)
        require(vector.size == dim, f"{name} must be {wanted}, got {vector.size} elements on a device")
        return cast(Vector, vector)
    array = array_of(value, name, wanted)
    if array.dtype != np.float32 or array.shape != (dim,) or not array.flags.c_contiguous:
        raise not_what_is_wanted(value, name, wanted)
    return array
