"""The compressors C: vector → sparse update, as frozen values of their own hyperparameters.

    Dense            keeps everything: FedAVG
    HardThreshold    keeps |v_j| > λ: HT
    GammaFedHT       the same with λ_t that follows the stepsize: γ-FedHT
    TopK             keeps the k entries of largest magnitude

A compressor is written once, as `take`: it moves what is to be sent out of a vector and leaves the rest, so that
sent + rest is the vector. What it may know of the run arrives as a `Moment`. How kept values are rounded is the affair
of `core/values.py`, what is remembered that of `core/memory.py`.
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
"""For a compressor that is called without a run."""


class Compressor(ABC):
    """C(vector) at a moment of a run."""

    leaves_a_rest: bool = True
    """Whether anything is ever left for a memory to remember."""

    on_device: bool = False
    """Whether `add_and_take` works where the vectors are, on a device; else they must come to the host."""

    follows_keep: bool = False
    """Whether `take` keeps what `moment.keep` says, where it says so: then a run's byte budget can steer it."""

    def __init_subclass__(cls) -> None:
        """A subclass of ours that has a `take` of its own is not passed over by our fused `add_and_take`.

        Nor is it believed to work on a device, unless it says so.
        """
        if "take" in vars(cls) and "add_and_take" not in vars(cls):
            cls.add_and_take = Compressor.add_and_take  # type: ignore[method-assign]
        if vars(cls).keys() & {"take", "add_and_take"} and "on_device" not in vars(cls):
            cls.on_device = False

    @abstractmethod
    def take(self, vector: Vector, moment: Moment) -> SparseUpdate:
        """Moves what is to be sent out of `vector`, in place, and returns it."""

    def add_and_take(self, delta: Vector, residual: Vector, moment: Moment) -> SparseUpdate:
        """residual ← residual + delta, then `take` from it. Algorithm 1, lines 12-13."""
        residual += delta
        return self.take(residual, moment)

    def parts(self, dim: int, moment: Moment) -> Sequence[int]:
        """The lengths of the parts of a vector that are compressed each on its own."""
        return (dim,)

    def planned(self, moment: Moment) -> float | None:
        """The fraction of the entries that is to be kept at this moment; None where nobody can say before."""
        return None

    def __call__(self, vector: Any, moment: Moment = ALONE) -> SparseUpdate:
        """What would be sent of `vector` (numpy's, torch's, or a list), which is left as it is."""
        from gammafl.core.method import Method  # which is made of compressors

        method = Method(self)
        whole = method.placed(vector, "vector")
        rest = whole.copy()
        update = self.take(rest, moment)
        if not method.proven:
            method.check(whole, update, rest)
        return update


@dataclass(frozen=True)
class Dense(Compressor):
    """Keeps everything: FedAVG."""

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
    """Keeps |v_j| > λ_t, so that λ = 0 keeps all that is not zero. Subclasses say what λ_t is.

    Where the moment says how much to keep (`moment.keep`), λ_t is what just so many entries reach. Then
    max(1, round(keep·d)) are kept, fewer only where fewer are not zero. Among equal magnitudes `moment.key` chooses.
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

    With `units="gradient"` the threshold is on the update divided by γ_t, as the paper's proofs have it
    (docs/deviations.md).
    """

    value: float = 1.0
    units: Units = "update"

    def __post_init__(self) -> None:
        require_threshold(self.value)
        _require_units(self.units)

    def threshold(self, moment: Moment) -> float:
        return _in_units(self.units, self.value * moment.scale, moment)

    def matching(self, threshold: float, schedule: Schedule) -> float:
        """The scale at which the budget is that of HT with `threshold`."""
        return threshold


@dataclass(frozen=True)
class GammaFedHT(Thresholding):
    """λ_t = λ_0 / √(r^α + r^{−α}) with λ_0 = initial · scale and r = γ_t/√(γ_0γ_T): Algorithm 1, line 11."""

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
        """λ_0 such that the budget is that of HT with `threshold`: ∫1/λ² = ∫1/λ_t²."""
        return matched_threshold(threshold, schedule.stepsize, schedule.iterations, self.alpha)


def _in_units(units: Units, threshold: float, moment: Moment) -> float:
    return threshold if units == "update" else threshold * moment.gamma


def _require_units(units: Units) -> None:
    require(units in ("update", "gradient"), f"units must be 'update' or 'gradient', got {units!r}")


@dataclass(frozen=True)
class TopK(Compressor):
    """Keeps the k entries of largest magnitude; among equals the first. Zeros are never sent.

    `k` is a count (int) or a fraction of d (float, ⌈k·d⌉ entries). With `scope="tensor"` each tensor of the model keeps
    ⌈share·size⌉ of its own entries, share = k or k/d. Where the moment says how much to keep, that is k.
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
    """`k` if it is a count or a fraction."""
    k = int(k) if isinstance(k, np.integer) else k
    valid = is_number(k) and (k >= 0 if isinstance(k, int) else 0 < k <= 1)
    require(valid, f"{name} takes a count (int ≥ 0) or a fraction (float in (0, 1]), got {k!r}")
    return k


def count_of(k: int | float, size: int) -> int:
    """The entries that k means: itself, or ⌈k·size⌉."""
    return k if isinstance(k, int) else _ceil_share(_exact(k), size)


def share_of(k: int | float, moment: Moment) -> float | None:
    """The fraction that k means; None where nobody said how long the vector is."""
    if not isinstance(k, int):
        return k
    size = 0 if moment.layout is None else sum(moment.layout.sizes)
    return min(1.0, k / size) if size else None


def _exact(share: float) -> Fraction:
    """The decimal number that was written: 0.07 of 100 is 7, not 7.000000000000001."""
    return Fraction(repr(float(share)))


def _ceil_share(share: Fraction, size: int) -> int:
    return math.ceil(share * size)
