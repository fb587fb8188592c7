"""EF-signSGD: the sign of every entry, with error feedback."""

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from gammafl.core.arrays import Vector
from gammafl.core.compressors import Compressor, Scope
from gammafl.core.jit import compiled
from gammafl.core.kernels import on_slices
from gammafl.core.method import Method
from gammafl.core.moment import Moment
from gammafl.core.sparse import SparseUpdate
from gammafl.core.sums import mean_magnitude
from gammafl.methods.promises import contraction, squared
from gammafl.methods.registry import register
from gammafl.methods.rounded import OneMagnitude
from gammafl.methods.scopes import parts_in, require_scope


@dataclass(frozen=True)
class Sign(Compressor):
    """Sends ‖v‖₁/d·sign(v), one bit per entry. Zeros are sent as +‖v‖₁/d, since a bit has no third state.

    With `scope="tensor"`, each tensor has its own magnitude.
    """

    scope: Scope = "global"

    def __post_init__(self) -> None:
        require_scope(self.scope)

    def parts(self, dim: int, moment: Moment) -> tuple[int, ...]:
        return parts_in(self.scope, dim, moment)

    def planned(self, moment: Moment) -> float:
        return 1.0

    def take(self, vector: Vector, moment: Moment) -> SparseUpdate:
        values = np.empty_like(vector)
        for start, stop in pairwise(accumulate(self.parts(vector.size, moment), initial=0)):
            magnitude = np.float32(mean_magnitude(vector[start:stop]))
            _take_signs(vector[start:stop], magnitude, values[start:stop])
        return SparseUpdate.of_checked(vector.size, None, values)


def _take_signs(vector: Vector, magnitude: np.float32, values: Vector) -> None:
    """values ← ±magnitude with the signs of the vector, and vector ← vector − values."""
    on_slices(lambda start, stop: _signs(vector[start:stop], magnitude, values[start:stop]), vector.size)


@compiled
def _signs(vector: Any, magnitude: Any, values: Any) -> None:
    for j in range(vector.size):
        value = np.copysign(magnitude, vector[j])
        values[j] = value
        vector[j] -= value


def _delta(method: Method, vector: Vector) -> float:
    total = float(np.abs(vector).sum(dtype=np.float64))
    return total * total / max(vector.size * squared(vector), 1e-300)


@register(
    "ef-sign",
    label="EF-signSGD",
    colour="#882255",
    dash="dot",
    citation="Karimireddy et al., ICML 2019",
    cost="O(d): two passes",
    promise=contraction("δ = ‖v‖₁²/(d·‖v‖²) ≥ 1/d", _delta),
    tuned="nothing to tune",
)
def ef_sign(scope: Scope = "global") -> Method:
    """Sends ‖v‖₁/d·sign(v), one bit per entry, with error feedback.

    scope   "global": one magnitude; "tensor": one for each tensor, as in its authors' code

    >>> ef_sign()([0.5, -1.0, 0.0]).values
    array([ 0.5, -0.5,  0.5], dtype=float32)
    """
    return Method(Sign(scope), values=OneMagnitude(paper_bits=1))
