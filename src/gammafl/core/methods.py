"""The six methods of the paper by name, as one would type them."""

from collections.abc import Callable
from dataclasses import dataclass

from gammafl.core.compressors import (
    STC,
    Compressor,
    Dense,
    GammaFedHT,
    GammaFedHTQ,
    HardThreshold,
    Scope,
    TopK,
)
from gammafl.core.errors import InputError
from gammafl.core.names import did_you_mean
from gammafl.core.stepsizes import Stepsize
from gammafl.core.thresholds import Fixed, Units, calibrate, in_units, rounded, threshold_for


@dataclass(frozen=True)
class MethodSettings:
    """What the methods are made from; what is None is calibrated from `keep` as in the paper's Table II.

    `keep` is k as a fraction, `k` overrides it for Top-k and STC (count or fraction), `threshold` is λ,
    `initial_threshold` λ_0, `alpha` α, `sizes` the lengths of the model's tensors.
    """

    dim: int
    sizes: tuple[int, ...]
    stepsize: Stepsize
    iterations: int
    keep: float = 0.01
    k: int | float | None = None
    threshold: float | None = None
    initial_threshold: float | None = None
    alpha: float = 1.0
    units: Units = "update"
    scope: Scope = "global"

    @property
    def fixed(self) -> float:
        if self.threshold is not None:
            return self.threshold
        return rounded(threshold_for(self.keep, self.dim))

    @property
    def initial(self) -> float:
        if self.initial_threshold is not None:
            return self.initial_threshold
        return calibrate(self.keep, self.dim, self.stepsize, self.iterations, self.alpha).initial_threshold

    @property
    def count(self) -> int | float:
        return self.keep if self.k is None else self.k


Build = Callable[[MethodSettings], Compressor]

BUILDERS: dict[str, Build] = {
    "gamma-fedht": lambda s: GammaFedHT(s.initial, s.stepsize, s.iterations, s.alpha, s.units),
    "gamma-fedht-q": lambda s: GammaFedHTQ(s.initial, s.stepsize, s.iterations, s.alpha, s.units),
    "ht": lambda s: HardThreshold(in_units(s.units, Fixed(s.fixed), s.stepsize)),
    "top-k": lambda s: TopK(s.count, s.scope, s.sizes),
    "stc": lambda s: STC(s.count, s.scope, s.sizes),
    "fedavg": lambda s: Dense(),
}


def make_method(name: str, settings: MethodSettings) -> Compressor:
    """The method of that name, or an error that names the nearest one."""
    if name not in BUILDERS:
        raise InputError(f"no method {name!r}{did_you_mean(name, BUILDERS)}; the methods are {', '.join(BUILDERS)}")
    return BUILDERS[name](settings)
