"""DAGC: a client with more data compresses less, k_i ∝ p_i^⅔ or λ_i ∝ p_i^−⅔."""

import logging
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from gammafl.core.arrays import Vector
from gammafl.core.compressors import HardThreshold, Scope, TopK
from gammafl.core.errors import InputError
from gammafl.core.method import Method
from gammafl.core.moment import Moment
from gammafl.core.sparse import SparseUpdate
from gammafl.methods.levels import level_named
from gammafl.methods.promises import Promise, squared
from gammafl.methods.registry import KEEPS, NOTHING_TO_TUNE, register
from gammafl.methods.top_k import COST

CITATION = "Lu et al., INFOCOM 2023"
POWER = 2 / 3
SMALLEST = 1e-9
"""The smallest share that is used: for a client without data, λ_i would be infinite."""
LOG = logging.getLogger(__name__)


@cache
def _say_unknown() -> None:
    LOG.warning("dagc: it is not known how much data each client has, so all clients are compressed in the same way")


def say_if_unknown(moment: Moment) -> None:
    """Warns once per process if a client's share is not known."""
    if moment.share is None:
        _say_unknown()


def factor_of(moment: Moment) -> float:
    """n·p_i^⅔ / Σ p_j^⅔: 1 on average, and 1 if the shares are not known, as over Flower.

    >>> from gammafl.core.shares import Shares
    >>> round(factor_of(Moment(share=Shares([1, 8]).of(0))), 6)
    0.4
    """
    return 1.0 if moment.share is None else moment.share.relative(POWER)


@dataclass(frozen=True)
class TopKByShare(TopK):
    """Top-k with k_i = k·n·p_i^⅔ / Σ p_j^⅔, and at most all entries: DAGC-R."""

    on_device = True

    def planned(self, moment: Moment) -> float | None:
        keep = TopK.planned(self, moment)
        return None if keep is None else min(1.0, keep * factor_of(moment))

    def take(self, vector: Vector, moment: Moment) -> SparseUpdate:
        return TopK.take(self, vector, self._told(moment, vector.size))

    def add_and_take(self, delta: Vector, residual: Vector, moment: Moment) -> SparseUpdate:
        return TopK.add_and_take(self, delta, residual, self._told(moment, residual.size))

    def _told(self, moment: Moment, size: int) -> Moment:
        """The moment with this client's own kept fraction, if it has one."""
        say_if_unknown(moment)
        factor = factor_of(moment)
        if factor == 1:
            return moment
        usual = self.k / max(1, size) if isinstance(self.k, int) else self.k
        return replace(moment, keep=min(1.0, factor * (usual if moment.keep is None else moment.keep)))


@dataclass(frozen=True)
class ThresholdByShare(HardThreshold):
    """HT with λ_i = λ·Σ p_j^⅔ / (n·p_i^⅔): DAGC-A."""

    on_device = True

    def threshold(self, moment: Moment) -> float:
        return HardThreshold.threshold(self, moment) / max(factor_of(moment), SMALLEST)

    def take(self, vector: Vector, moment: Moment) -> SparseUpdate:
        say_if_unknown(moment)
        return HardThreshold.take(self, vector, moment)

    def add_and_take(self, delta: Vector, residual: Vector, moment: Moment) -> SparseUpdate:
        say_if_unknown(moment)
        return HardThreshold.add_and_take(self, delta, residual, moment)


@register(
    "dagc-r",
    label="DAGC-R",
    colour="#999933",
    dash="dashdot",
    citation=CITATION,
    follows="gamma-fedht",
    cost=COST,
    promise=Promise("contraction, δ_i = k_i/d", lambda m, v: (1 - min(1.0, m.planned(Moment()) or 0.0)) * squared(v)),
    tuned=NOTHING_TO_TUNE,
    ranges={"keep": KEEPS},
)
def dagc_r(keep: float = 0.01, k: int | float | None = None, scope: Scope = "global") -> Method:
    """Top-k where a client with more data keeps more, k_i ∝ p_i^⅔, with error feedback.

    keep    the kept fraction, on average over the clients; p_i is a client's share of all samples
    k       a count (whole number) or a fraction, instead of keep
    scope   "global": of the whole model; "tensor": of each tensor, as its authors' code does it

    Over Flower, the p_i are not known before clients train: there it is Top-k, and the log says so once.

    >>> dagc_r(keep=0.001)
    Method(TopKByShare(k=0.001, scope='global'))
    """
    return Method(TopKByShare(float(keep) if k is None else k, scope))


@register(
    "dagc-a",
    label="DAGC-A",
    colour="#661100",
    dash="dashdot",
    citation=CITATION,
    cost="O(d): one fused pass",
    promise=Promise(
        "absolute, ‖C(v) − v‖² ≤ d·λ_i²",
        lambda m, v: v.size * m.compressor.threshold(Moment()) ** 2 if m.level is None else squared(v),  # type: ignore[attr-defined]
    ),
    tuned=NOTHING_TO_TUNE,
    ranges={"keep": KEEPS},
)
def dagc_a(keep: float = 0.01, threshold: float | None = None, level: Literal["run", "paper"] = "run") -> Method:
    """Hard threshold that is lower for a client with more data, λ_i ∝ p_i^−⅔, with error feedback.

    keep        the kept fraction, on average over the clients; p_i is a client's share of all samples
    level       how `keep` is reached. "run": the server steers one λ for all, after first rounds that keep exactly
                `keep`; "paper": λ is calibrated as in γ-FedHT's Table II
    threshold   λ itself, instead of a level

    Over Flower, the p_i are not known before clients train: there it is HT, and the log says so once.

    >>> dagc_a(threshold=0.02)
    Method(ThresholdByShare(value=0.02, units='update'))
    """
    if level not in ("run", "paper"):
        raise InputError(f"dagc-a: level must be 'run' or 'paper', got {level!r}; at 'upload' λ_i would have no effect")
    if threshold is not None:
        return Method(ThresholdByShare(threshold))
    return Method(ThresholdByShare(), level=level_named(level, keep, "constant"))
