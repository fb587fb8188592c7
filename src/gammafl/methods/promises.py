"""The declared property of a method's error E‖C(v) − v‖²: its card shows it, and a test checks it.

contraction   E‖C(v) − v‖² ≤ (1 − δ)·‖v‖²
unbiased      E C(v) = v, with E‖C(v) − v‖² ≤ ω·‖v‖²
absolute      ‖C(v) − v‖² ≤ d·λ², for any v
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gammafl.core.arrays import Vector
from gammafl.core.layout import Layout
from gammafl.core.method import Method
from gammafl.core.moment import Moment

Bound = Callable[[Method, Vector], float]


@dataclass(frozen=True)
class Promise:
    """The declared property of a method.

    text    the property on its card
    error   the upper bound of E‖C(v) − v‖², for a method with this name and a vector
    mean    E C(v), for a random method; None: it is not random

    >>> from gammafl.core.compressors import TopK
    >>> TOP_K.error(Method(TopK(1)), np.array([3, 4, 0, 0], np.float32))
    18.75
    """

    text: str
    error: Bound
    mean: Callable[[Method, Vector], Vector] | None = None


def contraction(text: str, delta: Bound) -> Promise:
    """A contraction of a compressor that is not random. `delta` computes δ of a vector.

    >>> from gammafl.core.compressors import TopK
    >>> contraction("δ = 1/4", lambda method, vector: 0.25).error(Method(TopK(1)), np.ones(4, np.float32))
    3.0
    """
    return Promise(f"contraction, {text}", lambda method, vector: (1 - delta(method, vector)) * squared(vector))


def squared(vector: Vector) -> float:
    """‖v‖², added up in float64."""
    return float(np.sum(np.square(vector, dtype=np.float64)))


def planned_share(method: Method, vector: Vector) -> float:
    """k/d of a method that keeps its k largest entries, at least one."""
    keep = method.planned(Moment(layout=Layout.flat(vector.size))) or 0.0
    return max(1, np.floor(keep * vector.size + 0.5)) / max(1, vector.size)


def _by_threshold(method: Method, vector: Vector) -> float:
    """The bound of a threshold: at level "upload" that of Top-k, else d·λ²."""
    if method.level is not None:
        return (1 - planned_share(method, vector)) * squared(vector)
    return vector.size * method.compressor.threshold(Moment()) ** 2  # type: ignore[attr-defined]


def _by_threshold_and_ternary(method: Method, vector: Vector) -> float:
    worst = (1 - 1 / max(1, vector.size)) * squared(vector)
    return worst if method.level is not None else max(worst, _by_threshold(method, vector))


def steps_error(vector: Vector, levels: int, block: int, norm: str = "max") -> float:
    """Σ over blocks of n_b·(norm_b/levels)²/4: each value has an error of at most half a step, or so on average."""
    total = 0.0
    for start in range(0, vector.size, block):
        part = vector[start : start + block].astype(np.float64)
        size = float(np.abs(part).max()) if norm == "max" else float(np.sqrt(np.sum(part * part)))
        total += part.size * (size / levels) ** 2 / 4
    return total


EXACT = Promise("exact: nothing is left out; with 16-bit floats a relative error of 2⁻¹¹", lambda method, vector: 0.0)
TOP_K = contraction("δ = k/d", planned_share)
TERNARY = contraction("δ = ‖v_K‖₁²/(k·‖v‖²) ≥ 1/d, K the kept entries", lambda m, v: 1 / max(1, v.size))
THRESHOLD = Promise("contraction, δ = k/d at level 'upload'; absolute, ‖C(v) − v‖² ≤ d·λ², with a λ", _by_threshold)
TERNARY_THRESHOLD = Promise(
    "contraction, δ = ‖v_K‖₁²/(k·‖v‖²) ≥ 1/d, K the kept entries, if there are any", _by_threshold_and_ternary
)
