"""How sure several seeds make us: Student's interval of a mean, its test, and Holm's correction for many tests.

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
    """The interval of the mean of independent `values`, which are roughly normal.

    >>> one = interval([0.9, 1.0, 1.1])
    >>> round(one.low, 3), round(one.high, 3)
    (0.752, 1.248)
    """
    count = len(values)
    if not count:
        return Interval(math.nan, -math.inf, math.inf, 0)
    mean = float(np.mean(values))
    if count == 1 or not math.isfinite(mean):
        return Interval(mean, -math.inf, math.inf, count)
    from scipy.special import stdtrit  # scipy.stats.t.ppf, without the second that scipy.stats takes to load

    half = float(stdtrit(count - 1, (1 + confidence) / 2)) * _error(values)
    return Interval(mean, mean - half, mean + half, count)


def p_value(values: Sequence[float], limit: float) -> float:
    """Of Student's two-sided test that the mean of `values` is `limit`; 1 where they can't say."""
    count = len(values)
    if count < 2 or not math.isfinite(float(np.mean(values))):
        return 1.0
    from scipy.special import stdtr

    distance, error = abs(float(np.mean(values)) - limit), _error(values)
    if not error:
        return 0.0 if distance else 1.0
    return 2 * float(stdtr(count - 1, -distance / error))


def _error(values: Sequence[float]) -> float:
    """The standard error of the mean."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of a family of tests, corrected so that the chance of any false rejection is that of one test.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """p of the least-squares line log y = p·log x + c."""
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)), 1)[0])
