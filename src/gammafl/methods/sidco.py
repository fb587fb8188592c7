"""SIDCo: a threshold from a distribution that is fitted to the magnitudes, in a few passes and without a sort."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from gammafl.core import kernels, largest
from gammafl.core.arrays import Vector
from gammafl.core.compressors import Compressor, TopK
from gammafl.core.errors import require
from gammafl.core.inputs import is_number
from gammafl.core.memory import FLOAT32_MAX
from gammafl.core.method import Method
from gammafl.core.moment import Moment
from gammafl.core.sparse import SparseUpdate
from gammafl.core.sums import excesses, mean_logarithm
from gammafl.methods.promises import contraction
from gammafl.methods.registry import KEEPS, register

Fit = Literal["exponential", "pareto", "gamma"]

FIRST = 0.25
"""δ_1: the fraction that the first of several stages keeps; with stages=0, every stage except the last."""

MOST_STAGES = 20


def exponential_threshold(mean: float, share: float) -> float:
    """The threshold that a share δ of exponential magnitudes exceeds: β·log(1/δ), β their mean. Corollary 1.1.

    >>> exponential_threshold(2.0, 1.0)
    0.0
    """
    return mean * math.log(1 / share)


def pareto_threshold(mean: float, variance: float, share: float) -> float:
    """The same for generalised Pareto magnitudes: β/α·(δ^−α − 1), from their moments. Corollary 1.3.

    α = ½(1 − μ²/σ²) and β = ½μ(μ²/σ² + 1); with α = 0 it is exponential.

    >>> pareto_threshold(1.0, 1.0, 0.5) == exponential_threshold(1.0, 0.5)
    True
    """
    if variance <= 1e-12 * mean * mean:
        return mean  # all are equal
    ratio = mean * mean / variance
    alpha, beta = (1 - ratio) / 2, mean * (ratio + 1) / 2
    return -beta * math.log(share) if alpha == 0 else beta / alpha * math.expm1(-alpha * math.log(share))


def gamma_threshold(mean: float, mean_log: float, share: float) -> float:
    """The same for gamma magnitudes, approximately: −β·(log δ + log Γ(α)). Corollary 1.2.

    α = (3 − s + √((s − 3)² + 24s))/(12s) with s = log μ − mean(log), and β = μ/α.

    >>> round(gamma_threshold(1.0, -0.5772156649, 0.01), 1)  # of α = 1 it is exponential
    4.6
    """
    spread = math.log(mean) - mean_log if mean > 0 else 0.0
    if spread <= 1e-12:
        return mean  # all are equal
    shape = (3 - spread + math.sqrt((spread - 3) ** 2 + 24 * spread)) / (12 * spread)
    return max(0.0, -mean / shape * (math.log(share) + math.lgamma(shape)))


def stage_shares(keep: float, stages: int = 0) -> list[float]:
    """δ_1, δ_2, …: the fraction that each stage keeps of the previous stage's entries. Their product is `keep`.

    With `stages` = 0, each stage keeps a quarter, and the last one the rest.

    >>> [round(share, 3) for share in stage_shares(0.01)], [round(share, 3) for share in stage_shares(0.01, 3)]
    ([0.25, 0.25, 0.25, 0.64], [0.25, 0.2, 0.2])
    """
    if stages == 1 or keep >= FIRST:
        return [keep]
    rest = keep / FIRST
    if stages:
        return [FIRST] + [rest ** (1 / (stages - 1))] * (stages - 1)
    more = max(1, math.ceil(math.log(rest) / math.log(FIRST) - 1e-9))
    return [FIRST] * more + [rest / FIRST ** (more - 1)]


@dataclass(frozen=True)
class Sidco(Compressor):
    """Keeps |v_j| > λ, with a λ that about k entries of the fitted distribution exceed.

    `k` is a count (int) or a fraction of d (float), as in `TopK`. Several stages fit the tail better: each fits the
    entries above the previous stage's threshold. If the fit is so wrong that no entry exceeds λ, exactly k entries are
    kept, as with Top-k: otherwise a client would never send. The paper's controller of the number of stages is left
    out, since it would need its own memory.
    """

    follows_keep = True

    k: int | float = 0.01
    fit: Fit = "pareto"
    stages: int = 0

    def __post_init__(self) -> None:
        TopK(self.k)  # raises an error if k is wrong
        require(self.fit in get_args(Fit), f"fit must be one of {', '.join(get_args(Fit))}, got {self.fit!r}")
        whole = isinstance(self.stages, int) and is_number(self.stages) and 0 <= self.stages <= MOST_STAGES
        require(whole, f"stages must be from 1 to {MOST_STAGES}, or 0 for as many as it takes; got {self.stages!r}")

    def planned(self, moment: Moment) -> float | None:
        return TopK(self.k).planned(moment)

    def threshold(self, vector: Vector, keep: float) -> float:
        """λ for this vector."""
        first, *others = stage_shares(keep, self.stages)
        limit = self._first_threshold(vector, first)
        for share in others:
            count, mean, variance = excesses(vector, min(limit, FLOAT32_MAX))
            if not count:
                break
            limit += (
                exponential_threshold(mean, share)
                if self.fit == "exponential"
                else pareto_threshold(mean, variance, share)
            )
        return min(limit, FLOAT32_MAX)

    def _first_threshold(self, vector: Vector, share: float) -> float:
        """λ of the first stage, for all entries. A gamma distribution has no zeros: it is fitted to the others."""
        count, mean, variance = excesses(vector, 0.0)
        if not count:
            return 0.0
        if self.fit == "gamma":
            return gamma_threshold(mean, mean_logarithm(vector)[0], min(1.0, share * vector.size / count))
        zeros = count / vector.size  # of the mean of all
        whole = zeros * mean
        if self.fit == "exponential":
            return exponential_threshold(whole, share)
        return pareto_threshold(whole, zeros * (variance + mean * mean) - whole * whole, share)

    def take(self, vector: Vector, moment: Moment) -> SparseUpdate:
        usual = self.k / max(1, vector.size) if isinstance(self.k, int) else self.k
        keep = min(1.0, usual if moment.keep is None else moment.keep)
        if not keep:
            return SparseUpdate(vector.size, [], [])
        found = kernels.add_and_take_above(np.zeros_like(vector), vector, self.threshold(vector, keep))
        if not len(found[0]):
            found = largest.take_largest(vector, max(1, round(keep * vector.size)), moment.key)
        return SparseUpdate.of_checked(vector.size, *found)


@register(
    "sidco",
    label="SIDCo",
    colour="#CC79A7",
    citation="Abdelmoniem et al., MLSys 2021",
    follows="gamma-fedht",
    cost="O(d): a pass to add, one for each stage (four of them at 1%), one to take",
    promise=contraction(
        "δ = k̂/d, k̂ the entries that exceed the fitted threshold, at least one",
        lambda method, vector: len(method(vector)) / vector.size if vector.any() else 1.0,
    ),
    tuned="untuned. Of its paper's three fits, this one came within 8% of `keep` on four distributions. The paper's "
    "controller of the stages is left out; quarters are its authors' choice",
    ranges={"keep": KEEPS},
)
def sidco(keep: float = 0.01, fit: Fit = "pareto", stages: int = 0, k: int | float | None = None) -> Method:
    """Keeps the entries above a threshold from a fitted distribution, about `keep` of them, with error feedback.

    keep     the kept fraction of the entries; only approximately, since it is not counted
    fit      the distribution of magnitudes: "pareto", the generalised one; "exponential"; "gamma", with Pareto tails
             in later stages
    stages   the number of fits, each to the tail of the previous one; 0: each stage keeps a quarter, until `keep`
    k        a count (whole number) or a fraction, instead of keep

    >>> sidco(keep=0.001)
    Method(Sidco(k=0.001, fit='pareto', stages=0))
    """
    return Method(Sidco(float(keep) if k is None else k, fit, stages))
