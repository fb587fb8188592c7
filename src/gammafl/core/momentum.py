"""Momentum correction with factor masking (DGC, Lin et al., ICLR 2018): a sum of velocities is compressed.

    u ← μ·u + Δ;  v ← v + u;  m = C(v);  v ← v − m;  and when m counted, u_j ← 0 for all j in m

So entries that wait in v get the momentum of all rounds in which they wait. The mask stops the momentum of entries that
were just sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gammafl.core import kernels
from gammafl.core.arrays import Vector
from gammafl.core.errors import require
from gammafl.core.inputs import is_number
from gammafl.core.memory import FLOAT32_MAX, RESIDUAL, Memory, Residual, as_vector
from gammafl.core.moment import Moment
from gammafl.core.sparse import SparseUpdate

if TYPE_CHECKING:
    from gammafl.core.method import Method

VELOCITY = "velocity"


@dataclass(frozen=True)
class MomentumCorrection(Memory):
    """Error feedback with momentum: the memory of DGC.

    momentum   μ; with 0, it is the same as error feedback

    >>> import gammafl as gf
    >>> gf.Method(gf.TopK(1), MomentumCorrection(0.9)).memory
    MomentumCorrection(momentum=0.9)
    """

    momentum: float = 0.9

    commits = True
    vectors = (RESIDUAL, VELOCITY)

    def __post_init__(self) -> None:
        fits = is_number(self.momentum) and 0 <= self.momentum < 1
        require(fits, f"momentum must be a number from 0 to below 1, got {self.momentum!r}")

    def client(self, method: "Method", dim: int, state: Mapping[str, Vector] | None = None) -> "Accelerated":
        return Accelerated(method, dim, state)


class Accelerated(Residual):
    """Residual v and velocity u of one client."""

    def __init__(self, method: "Method", dim: int, state: Mapping[str, Vector] | None = None) -> None:
        given = state or {}
        super().__init__(method, dim, given.get(RESIDUAL))
        new = VELOCITY not in given
        self.velocity = np.zeros(dim, np.float32) if new else as_vector(given[VELOCITY], dim, VELOCITY)
        require(
            kernels.largest_magnitude(self.velocity) <= FLOAT32_MAX, "the velocity holds values that are not finite"
        )
        self.remembers = True

    def propose(self, delta: Any, moment: Moment, largest: float | None = None) -> SparseUpdate:
        tail = 0 if moment.layout is None else moment.layout.tail
        velocity = self._accelerated(delta)
        update = super().propose(velocity, moment)
        self._keep(velocity, tail)
        self.remembers = True
        return update

    def add(self, delta: Any, largest: float | None = None, tail: int = 0) -> None:
        velocity = self._accelerated(delta)
        super().add(velocity)
        self._keep(velocity, tail)

    def _keep(self, velocity: Vector, tail: int) -> None:
        """Sets the velocity. Statistics get no momentum: a variance that keeps falling would become negative."""
        self.velocity[:] = velocity
        self.velocity[self.dim - tail :] = 0

    def _accelerated(self, delta: Any) -> Vector:
        """μ·u + Δ."""
        assert isinstance(self.method.memory, MomentumCorrection)
        with np.errstate(over="ignore", invalid="ignore"):  # non-finite results are refused later
            return np.float32(self.method.memory.momentum) * self.velocity + as_vector(delta, self.dim, "delta")

    def commit(self, update: SparseUpdate, step: float) -> None:
        self.velocity[slice(None) if update.entire else update.indices] = 0

    def state(self) -> dict[str, Vector]:
        return {RESIDUAL: self.residual, VELOCITY: self.velocity}
