"""The compressors C: vector → sparse update. A compressor is a frozen dataclass of its hyperparameters.

    Dense            keeps everything: FedAVG
    HardThreshold    keeps |v_j| > λ: HT
    GammaFedHT       the same with λ_t that follows the stepsize: γ-FedHT
    TopK             keeps the k entries of largest magnitude

Every compressor has one function, `take`: it moves the entries to send out of a vector and leaves the rest, so that
sent + rest is the vector. All facts about the run come in a `Moment`. `core/values.py` rounds kept values, and
`core/memory.py` keeps the rest.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np

from gammafl.core import kernels, largest
from gammafl.core.arrays import Vector
from gammafl.core.device.vectors import on_host, zeros_like
from gammafl.core.errors import require
from gammafl.core.inputs import is_number
from gammafl.core.moment import Moment, Schedule
from gammafl.core.sparse import SparseUpdate
from gammafl.core.thresholds import Units, matched_threshold, require_alpha, require_threshold, stepsize_aware

Scope = Literal["global", "tensor"]
ALONE = Moment()
"""The moment for a compressor that is called outside a run."""


class Compressor(ABC):
    """C(vector) at a moment of a run. Derive from it to write your own (docs/own-method.md).

    >>> class Signs(Compressor):
    ...     def take(self, vector, moment):
    ...         indices = np.flatnonzero(vector > 0)
    ...         values = vector[indices].copy()
    ...         vector[indices] = 0
    ...         return SparseUpdate(vector.size, indices, values)
    >>> Signs()([1.0, -2.0, 3.0]).indices.tolist()
    [0, 2]
    """

    leaves_a_rest: bool = True
    """Whether `take` ever leaves anything in the vector, so that the memory has something to keep."""

    on_device: bool = False
    """Whether `add_and_take` works on a device. Otherwise vectors must be copied to the host."""

    follows_keep: bool = False
    """Whether `take` keeps the fraction `moment.keep` if it is set. A run's byte budget needs this."""

    def __init_subclass__(cls) -> None:
        """A subclass with its own `take` does not inherit the fused `add_and_take`, which would not call it.

        Nor does it inherit `on_device`: it must set this itself.
        """
        if "take" in vars(cls) and "add_and_take" not in vars(cls):
            cls.add_and_take = Compressor.add_and_take  # type: ignore[method-assign]
        if vars(cls).keys() & {"take", "add_and_take"} and "on_device" not in vars(cls):
            cls.on_device = False

    @abstractmethod
    def take(self, vector: Vector, moment: Moment) -> SparseUpdate:
        """Moves the entries to send out of `vector`, in place, and returns them."""

    def add_and_take(self, delta: Vector, residual: Vector, moment: Moment) -> SparseUpdate:
        """residual ← residual + delta, then `take` from the residual. Algorithm 1, lines 12-13."""
        residual += delta
        return self.take(residual, moment)

    def parts(self, dim: int, moment: Moment) -> Sequence[int]:
        """The lengths of the parts of a vector that are compressed separately."""
        return (dim,)

    def planned(self, moment: Moment) -> float | None:
        """The fraction of the entries to keep at this moment; None if it is not known before."""
        return None

    def __call__(self, vector: Any, moment: Moment = ALONE) -> SparseUpdate:
        """The update that would be sent for `vector`: an array, a tensor or a list. It does not change."""
        from gammafl.core.method import Method  # here, since method imports compressors

        method = Method(self)
        whole = method.placed(vector, "vector")
        rest = whole.copy()
        update = self.take(rest, moment)
        if not method.proven:
            method.check(whole, update, rest)
        return update


@dataclass(frozen=True)
class Dense(Compressor):
    """Keeps everything: FedAVG.

    >>> len(Dense()([1.0, 0.0, -2.0]))
    3
    """

    leaves_a_rest = False
    on_device = True

    def take(self, vector: Vector, moment: Moment) -> SparseUpdate:
        update = SparseUpdate(vector.size, None, on_host(vector.copy()))
        vector[:] = 0
        return update

    def planned(self, moment: Moment) -> float:
        return 1.0


@dataclass(frozen=True)
class Thresholding(Compressor):
    """Keeps |v_j| > λ_t. With λ = 0 it keeps all entries that are not zero. Subclasses define λ_t.

    If `moment.keep` is set, it keeps the max(1, round(keep·d)) largest entries instead, but never zeros. Among equal
    magnitudes, `moment.key` chooses.
    """

    follows_keep = True
    on_device = True

    @abstractmethod
    def threshold(self, moment: Moment) -> float:
        """λ_t."""

    def take(self, vector: Vector, moment: Moment) -> SparseUpdate:
        return Thresholding.add_and_take(self, zeros_like(vector), vector, moment)

    def add_and_take(self, delta: Vector, residual: Vector, moment: Moment) -> SparseUpdate:
        if moment.keep is None:
            found = kernels.add_and_take_above(delta, residual, self.threshold(moment))
        else:
            k = max(1, round(moment.keep * residual.size))
            found = largest.add_and_take_largest(delta, residual, k, moment.key)
        return SparseUpdate.of_checked(residual.size, *found)


@dataclass(frozen=True)
class HardThreshold(Thresholding):
    """λ_t = value · scale: HT.

    value   λ, multiplied by the scale that a level sets
    units   "update", or "gradient": the threshold is for the update divided by γ_t, as in the paper's proofs
            (docs/deviations.md)

    >>> HardThreshold(1.5)([1.0, -2.0, 3.0]).values.tolist()
    [-2.0, 3.0]
    """

    value: float = 1.0
    units: Units = "update"

    def __post_init__(self) -> None:
        require_threshold(self.value)
        _require_units(self.units)

    def threshold(self, moment: Moment) -> float:
        return _in_units(self.units, self.value * moment.scale, moment)

    def matching(self, threshold: float, schedule: Schedule) -> float:
        """The scale with the same budget as HT with `threshold`."""
        return threshold


@dataclass(frozen=True)
class GammaFedHT(Thresholding):
    """λ_t = λ_0 / √(r^α + r^{−α}) with λ_0 = initial · scale and r = γ_t/√(γ_0γ_T): Algorithm 1, line 11.

    initial   λ_0, multiplied by the scale that a level sets
    alpha     α: how strongly λ_t follows the stepsize
    units     "update", or "gradient": the threshold is for the update divided by γ_t

    >>> GammaFedHT(2.0)([1.0, -2.0, 3.0]).values.tolist()
    [-2.0, 3.0]
    """

    initial: float = 1.0
    alpha: float = 1.0
    units: Units = "update"

    def __post_init__(self) -> None:
        require_threshold(self.initial)
        require_alpha(self.alpha)
        _require_units(self.units)

    def threshold(self, moment: Moment) -> float:
        initial = self.initial * moment.scale
        shaped = stepsize_aware(initial, moment.gamma, moment.first_gamma, moment.last_gamma, self.alpha)
        return _in_units(self.units, shaped, moment)

    def matching(self, threshold: float, schedule: Schedule) -> float:
        """The λ_0 with the same budget as HT with `threshold`: ∫1/λ² = ∫1/λ_t²."""
        return matched_threshold(threshold, schedule.stepsize, schedule.iterations, self.alpha)


def _in_units(units: Units, threshold: float, moment: Moment) -> float:
    return threshold if units == "update" else threshold * moment.gamma


def _require_units(units: Units) -> None:
    require(units in ("update", "gradient"), f"units must be 'update' or 'gradient', got {units!r}")


@dataclass(frozen=True)
class TopK(Compressor):
    """Keeps the k entries of largest magnitude; among equal ones the first. Zeros are never sent.

    k       a count (int) or a fraction of d (float, ⌈k·d⌉ entries). If `moment.keep` is set, it is used instead
    scope   "global", or "tensor": each tensor of the model keeps ⌈share·size⌉ of its own entries, share = k or k/d

    >>> TopK(2)([1.0, -2.0, 3.0]).values.tolist()
    [-2.0, 3.0]
    """

    follows_keep = True
    on_device = True

    k: int | float
    scope: Scope = "global"

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", checked_k(self.k, "TopK"))
        require(self.scope in ("global", "tensor"), f"scope must be 'global' or 'tensor', got {self.scope!r}")

    def parts(self, dim: int, moment: Moment) -> Sequence[int]:
        if self.scope == "global":
            return (dim,)
        sizes = moment.tensors.sizes
        require(sum(sizes) == dim, f"the tensor sizes add up to {sum(sizes)}, but the vector has {dim} elements")
        return sizes

    def planned(self, moment: Moment) -> float | None:
        return share_of(self.k, moment)

    def take(self, vector: Vector, moment: Moment) -> SparseUpdate:
        return TopK.add_and_take(self, zeros_like(vector), vector, moment)

    def add_and_take(self, delta: Vector, residual: Vector, moment: Moment) -> SparseUpdate:
        size, kept = residual.size, self.k if moment.keep is None else moment.keep
        if self.scope == "global":
            k = count_of(kept, size)
            return SparseUpdate.of_checked(size, *largest.add_and_take_largest(delta, residual, k))
        share = Fraction(kept, max(1, size)) if isinstance(kept, int) else _exact(kept)
        indices, values = [], []
        for start, stop in pairwise(accumulate(self.parts(size, moment), initial=0)):
            k = _ceil_share(share, stop - start)
            part = largest.add_and_take_largest(delta[start:stop], residual[start:stop], k)
            indices.append(part[0] + np.uint32(start))
            values.append(part[1])
        return SparseUpdate(size, np.concatenate(indices), np.concatenate(values))


def checked_k(k: int | float, name: str) -> int | float:
    """`k`, or an error if it is neither a count nor a fraction."""
    k = int(k) if isinstance(k, np.integer) else k
    valid = is_number(k) and (k >= 0 if isinstance(k, int) else 0 < k <= 1)
    require(valid, f"{name} takes a count (int ≥ 0) or a fraction (float in (0, 1]), got {k!r}")
    return k


def count_of(k: int | float, size: int) -> int:
    """The number of entries that k stands for: k itself, or ⌈k·size⌉."""
    return k if isinstance(k, int) else _ceil_share(_exact(k), size)


def share_of(k: int | float, moment: Moment) -> float | None:
    """The fraction that k stands for; None if the length of the vector is not known."""
    if not isinstance(k, int):
        return k
    size = 0 if moment.layout is None else sum(moment.layout.sizes)
    return min(1.0, k / size) if size else None


def _exact(share: float) -> Fraction:
    """The decimal number that the user wrote: 0.07 of 100 is 7, not 7.000000000000001."""
    return Fraction(repr(float(share)))


def _ceil_share(share: Fraction, size: int) -> int:
    return math.ceil(share * size)
