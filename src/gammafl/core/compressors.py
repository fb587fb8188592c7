"""The compressors C: vector → sparse update, as frozen values.

    Dense            keeps everything: FedAVG
    HardThreshold    keeps |v_j| > λ_t: HT with a fixed λ, γ-FedHT with λ_t that follows the stepsize
    TopK             keeps the k entries of largest magnitude
    Ternary          around any of them: kept values become ±μ, μ their mean magnitude
    Half             around any of them: kept values become 16-bit floats

A compressor is written once, as `take`: it moves what is to be sent out of a vector and leaves the rest, so
that sent + rest is the vector. Compression is `take` on a copy; error feedback is `take` on the residual.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gammafl.core import kernels
from gammafl.core.errors import InputError, require
from gammafl.core.inputs import floats_of
from gammafl.core.kernels import Vector
from gammafl.core.sparse import SparseUpdate
from gammafl.core.stepsizes import Stepsize
from gammafl.core.thresholds import Fixed, StepsizeAware, Threshold, Units, in_units

Scope = Literal["global", "tensor"]
HALF_MAX = float(np.finfo(np.float16).max)


class Compressor(ABC):
    """C(vector) at iteration t, the iteration a round ends at (t+1 of Algorithm 1)."""

    sizes: tuple[int, ...] = ()
    """Lengths of the tensors that are compressed each on its own; empty: the vector as a whole."""

    leaves_a_rest: bool = True
    """Whether anything is ever left for error feedback to remember."""

    value_bits: int = 32
    """Bits of one kept value in the paper's own accounting, which counts no positions."""

    @abstractmethod
    def take(self, vector: Vector, t: int) -> SparseUpdate:
        """Moves what is to be sent out of `vector`, in place, and returns it."""

    def add_and_take(self, delta: Vector, residual: Vector, t: int) -> SparseUpdate:
        """residual ← residual + delta, then `take` from it. Algorithm 1, lines 12-13."""
        residual += delta
        return self.take(residual, t)

    def __call__(self, vector: Any, t: int = 0) -> SparseUpdate:
        """What would be sent of `vector` (numpy's, torch's on the CPU, or a list), which is left as it is."""
        whole = floats_of(vector, "vector")
        rest = whole.copy()
        update = self.take(rest, t)
        if not is_proven(self):
            check_taken(self, whole, update, rest)
        return update


@dataclass(frozen=True)
class Dense(Compressor):
    """Keeps everything: FedAVG."""

    leaves_a_rest = False

    def take(self, vector: Vector, t: int) -> SparseUpdate:
        update = SparseUpdate(vector.size, None, vector.copy())
        vector[:] = 0
        return update


@dataclass(frozen=True)
class HardThreshold(Compressor):
    """Keeps |v_j| > λ_t, so that λ = 0 keeps all that is not zero. A number means a fixed λ."""

    threshold: Threshold | float

    def __post_init__(self) -> None:
        if not callable(self.threshold):
            object.__setattr__(self, "threshold", Fixed(self.threshold))

    def at(self, t: int) -> float:
        """λ_t."""
        assert callable(self.threshold)
        return self.threshold(t)

    def take(self, vector: Vector, t: int) -> SparseUpdate:
        return self.add_and_take(np.zeros_like(vector), vector, t)

    def add_and_take(self, delta: Vector, residual: Vector, t: int) -> SparseUpdate:
        return SparseUpdate.of_checked(residual.size, *kernels.add_and_take_above(delta, residual, self.at(t)))


@dataclass(frozen=True)
class TopK(Compressor):
    """Keeps the k entries of largest magnitude; among equals the first. Zeros are never sent.

    `k` is a count (int) or a fraction of d (float, ⌈k·d⌉ entries). With `scope="tensor"` each tensor of
    `sizes` keeps ⌈share·size⌉ of its own entries, share = k or k/d.
    """

    k: int | float
    scope: Scope = "global"
    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.k, np.integer):
            object.__setattr__(self, "k", int(self.k))
        valid = self.k >= 0 if isinstance(self.k, int) else 0 < self.k <= 1
        require(valid, f"TopK takes a count (int ≥ 0) or a fraction (float in (0, 1]), got {self.k!r}")
        require(self.scope in ("global", "tensor"), f"scope must be 'global' or 'tensor', got {self.scope!r}")
        if self.scope == "tensor":
            require(len(self.sizes) > 0, "scope='tensor' needs sizes=(…), the length of each tensor")
        else:
            object.__setattr__(self, "sizes", ())

    def take(self, vector: Vector, t: int) -> SparseUpdate:
        if self.scope == "global":
            k = self.k if isinstance(self.k, int) else _ceil_share(_exact(self.k), vector.size)
            return SparseUpdate.of_checked(vector.size, *kernels.take_largest(vector, k))
        share = Fraction(self.k, max(1, vector.size)) if isinstance(self.k, int) else _exact(self.k)
        indices, values = [], []
        for start, stop in _segments(self.sizes, vector.size):
            part = kernels.take_largest(vector[start:stop], _ceil_share(share, stop - start))
            indices.append(part[0] + np.uint32(start))
            values.append(part[1])
        return SparseUpdate(vector.size, np.concatenate(indices), np.concatenate(values))


@dataclass(frozen=True)
class _Rounded(Compressor):
    """A compressor whose kept values are rounded; the rounding error stays behind with the rest."""

    inner: Compressor

    def __post_init__(self) -> None:
        require(not isinstance(self.inner, _Rounded), "values are rounded once: not one quantiser around another")

    @property
    def sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.inner.sizes

    @abstractmethod
    def round(self, update: SparseUpdate) -> Vector:
        """The values as they will be sent."""

    def take(self, vector: Vector, t: int) -> SparseUpdate:
        return self._rounded(self.inner.take(vector, t), vector)

    def add_and_take(self, delta: Vector, residual: Vector, t: int) -> SparseUpdate:
        return self._rounded(self.inner.add_and_take(delta, residual, t), residual)

    def _rounded(self, exact: SparseUpdate, rest: Vector) -> SparseUpdate:
        if exact.entire:  # zeros have no sign to send
            kept = np.flatnonzero(exact.values).astype(np.uint32)
            exact = SparseUpdate(exact.dim, kept, exact.values[kept])
        values = self.round(exact)
        rest[exact.indices] = exact.values - values  # where `inner` has taken all and left zero
        return SparseUpdate(exact.dim, exact.indices, values)


@dataclass(frozen=True)
class Ternary(_Rounded):
    """Kept values become μ·sign, μ the mean magnitude of the kept values (per tensor where `inner` works so).

    The quantiser of STC and of γ-FedHT-Q.
    """

    value_bits = 2

    def round(self, update: SparseUpdate) -> Vector:
        magnitudes = np.abs(update.values)
        bounds = np.searchsorted(update.indices, _bounds(self.sizes or (update.dim,)))
        for start, stop in pairwise(bounds):
            if stop > start:
                magnitudes[start:stop] = magnitudes[start:stop].mean(dtype=np.float64)
        return np.copysign(magnitudes, update.values)


@dataclass(frozen=True)
class Half(_Rounded):
    """Kept values become 16-bit floats, which the wire then sends in half the space."""

    value_bits = 16

    def round(self, update: SparseUpdate) -> Vector:
        return np.clip(update.values, -HALF_MAX, HALF_MAX).astype(np.float16).astype(np.float32)


@dataclass(frozen=True)
class DenseTail(Compressor):
    """The last `tail` elements are always sent whole, the others by `inner`: for what must not be sparse."""

    inner: Compressor
    tail: int

    @property
    def sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        return (*self.inner.sizes, self.tail) if self.inner.sizes else ()

    @property
    def value_bits(self) -> int:  # type: ignore[override]
        return self.inner.value_bits

    def take(self, vector: Vector, t: int) -> SparseUpdate:
        return self.add_and_take(np.zeros_like(vector), vector, t)

    def add_and_take(self, delta: Vector, residual: Vector, t: int) -> SparseUpdate:
        head = residual.size - self.tail
        update = self.inner.add_and_take(delta[:head], residual[:head], t)
        tail = residual[head:] + delta[head:]
        residual[head:] = 0
        indices = np.concatenate([update.indices, np.arange(head, residual.size, dtype=np.uint32)])
        return SparseUpdate(residual.size, indices, np.concatenate([update.values, tail]))


def with_dense_tail(method: Compressor, tail: int) -> Compressor:
    """`method`, with the last `tail` elements sent whole."""
    return DenseTail(method, tail) if tail else method


def GammaFedHT(
    initial: float, stepsize: Stepsize, iterations: int, alpha: float = 1.0, units: Units = "update"
) -> HardThreshold:
    """γ-FedHT: the hard threshold whose λ_t follows γ_t. `initial` is λ_0, `iterations` T."""
    return HardThreshold(in_units(units, StepsizeAware(initial, stepsize, iterations, alpha), stepsize))


def GammaFedHTQ(
    initial: float, stepsize: Stepsize, iterations: int, alpha: float = 1.0, units: Units = "update"
) -> Ternary:
    """γ-FedHT-Q: γ-FedHT with STC's quantiser."""
    return Ternary(GammaFedHT(initial, stepsize, iterations, alpha, units))


def STC(k: int | float, scope: Scope = "global", sizes: tuple[int, ...] = ()) -> Ternary:
    """Sparse ternary compression: Top-k, then ±μ."""
    return Ternary(TopK(k, scope, sizes))


def is_proven(method: Compressor) -> bool:
    """Whether `method` and all that it is made of are of this file, where tests hold that sent + rest = vector."""
    parts = [part for part in vars(method).values() if isinstance(part, Compressor)]
    return type(method) in PROVEN and all(is_proven(part) for part in parts)


PROVEN = (Dense, HardThreshold, TopK, Ternary, Half, DenseTail)

ROUNDING = 2.0**-20
"""What sent + rest may differ from the vector by, as a part of the three: a few roundings of float32."""


def check_taken(method: Compressor, vector: Vector, update: Any, rest: Vector) -> None:
    """Refuses what `take` made of `vector` unless `update` is well formed and update + rest is the vector."""
    name = type(method).__name__
    if not isinstance(update, SparseUpdate):
        raise InputError(
            f"{name}.take must return what it took as gf.SparseUpdate(vector.size, indices, values), got"
            f" {type(update).__name__}"
        )
    require(update.dim == vector.size, f"{name}.take returned an update of {update.dim} elements, not {vector.size}")
    ordered = update.entire or bool((update.indices[:-1] < update.indices[1:]).all())
    require(ordered, f"{name}.take returned positions that do not increase; sort them, each once")
    sent, whole = update.dense().astype(np.float64), vector.astype(np.float64)
    size = np.abs(whole) + np.abs(sent) + np.abs(rest)
    wrong = np.flatnonzero(~(np.abs(whole - sent - rest) <= ROUNDING * size))  # also where NaN is sent
    if wrong.size:
        j = wrong[0]
        raise InputError(
            f"{name}.take must move what it returns out of the vector: at position {j} it returned {sent[j]:g} and left"
            f" {rest[j]:g} of {whole[j]:g}; write vector[indices] = 0 there, or vector[indices] -= values"
        )
    left = not method.leaves_a_rest and bool(rest.any())
    require(not left, f"{name} says leaves_a_rest = False but left something; remove that line")


def _exact(share: float) -> Fraction:
    """The decimal number that was written: 0.07 of 100 is 7, not 7.000000000000001."""
    return Fraction(repr(float(share)))


def _ceil_share(share: Fraction, size: int) -> int:
    return math.ceil(share * size)


def _bounds(sizes: tuple[int, ...]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _segments(sizes: tuple[int, ...], dim: int) -> list[tuple[int, int]]:
    bounds = _bounds(sizes)
    require(bounds[-1] == dim, f"the tensor sizes add up to {bounds[-1]}, but the vector has {dim} elements")
    return [(int(a), int(b)) for a, b in pairwise(bounds)]
