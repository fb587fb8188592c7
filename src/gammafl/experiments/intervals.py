"""How sure several seeds make us: Student's interval of a mean, without scipy.

With three seeds a bootstrap would resample three numbers, and its interval would be far too short; Student's t knows
how little three numbers say about their own spread.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with the interval that covers the true one with the stated confidence; unbounded for a single value."""

    mean: float
    low: float
    high: float
    count: int


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The interval of the mean of independent `values`, which are roughly normal."""
    count = len(values)
    if not count:
        return Interval(math.nan, -math.inf, math.inf, 0)
    mean = float(np.mean(values))
    if count == 1 or not math.isfinite(mean):
        return Interval(mean, -math.inf, math.inf, count)
    half = t_quantile(confidence, count - 1) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


def t_quantile(confidence: float, degrees: int) -> float:
    """t with P(|T| ≤ t) = `confidence` for Student's T with so many degrees of freedom."""
    low, high = 0.0, 1.0
    while _inside(high, degrees) < confidence:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, degrees) < confidence else (low, middle)
    return high


def _inside(t: float, degrees: int) -> float:
    """P(|T| ≤ t), by the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    power, term, total = (math.cos(angle) if odd else 1.0), 1.0, 0.0
    for j in range(1 + odd, degrees, 2):  # factors 2/3, 4/5, … for odd degrees, 1/2, 3/4, … for even ones
        total += term * power
        power *= math.cos(angle) ** 2
        term *= j / (j + 1)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """p of the least-squares line log y = p·log x + c."""
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)), 1)[0])
