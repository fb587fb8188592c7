"""Stepsizes γ_t as functions of the iteration t (paper, Sec. V-A).

A stepsize is a frozen dataclass. Call it with an iteration, or with an array of iterations:

    InverseDecay(100, 1000)(t)            γ_t = 100 / (t + 1000)
    ExponentialDecay(0.1, 0.999, 5)(t)    γ_t = 0.1 · 0.999^(t/5)
    Constant(0.1)(t)                      γ_t = 0.1
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

from gammafl.core.errors import InputError, require
from gammafl.core.inputs import is_number


class Stepsize(Protocol):
    """γ: iteration → stepsize. It returns a float for a number, and an array for an array."""

    def __call__(self, t: Any) -> Any: ...


@dataclass(frozen=True)
class InverseDecay:
    """γ_t = scale / (t + offset).

    scale    a positive number
    offset   a positive number: the first stepsize is scale / offset

    >>> InverseDecay(100, 1000)(1000)
    0.05
    """

    scale: float
    offset: float

    def __post_init__(self) -> None:
        _require_positive("InverseDecay scale", self.scale)
        _require_positive("InverseDecay offset", self.offset)

    def __call__(self, t: Any) -> Any:
        return self.scale / (t + self.offset)


@dataclass(frozen=True)
class ExponentialDecay:
    """γ_t = initial · rate^(t/period).

    initial   the first stepsize
    rate      the factor per period, at most 1
    period    in iterations; in the paper, it is the number of local steps E

    >>> ExponentialDecay(0.1, 0.5, 5)(10)
    0.025
    """

    initial: float
    rate: float
    period: float

    def __post_init__(self) -> None:
        _require_positive("ExponentialDecay initial", self.initial)
        _require_positive("ExponentialDecay rate", self.rate)
        _require_positive("ExponentialDecay period", self.period)
        require(self.rate <= 1, f"ExponentialDecay rate must be at most 1, got {self.rate}")

    def __call__(self, t: Any) -> Any:
        return self.initial * self.rate ** (t / self.period)


@dataclass(frozen=True)
class Constant:
    """γ_t = value.

    value   the stepsize

    >>> Constant(0.1)(1000)
    0.1
    """

    value: float

    def __post_init__(self) -> None:
        _require_positive("Constant stepsize", self.value)

    def __call__(self, t: Any) -> Any:
        return self.value + 0.0 * t


def as_stepsize(value: "Stepsize | float") -> Stepsize:
    """`value` as a stepsize. A number becomes a constant stepsize.

    >>> as_stepsize(0.1)
    Constant(value=0.1)
    """
    if is_number(value):
        return Constant(float(value))  # type: ignore[arg-type]
    if not callable(value):
        raise InputError(f"a stepsize is a number or a function of t such as gf.InverseDecay(100, 1000), got {value!r}")
    return value


def _require_positive(name: str, value: float) -> None:
    valid = is_number(value) and math.isfinite(value) and value > 0
    require(valid, f"{name} must be a positive number, got {value!r}")
