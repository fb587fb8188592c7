"""Statistics over seeds: Student's interval of a mean, its test, and Holm's correction for many tests.

With three seeds, a bootstrap would resample three numbers, and its interval would be far too short. Student's t takes
into account how little three numbers say about their own spread.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

CONFIDENCE = 0.95
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Interval:
    """A mean with its 95% confidence interval. The interval of a single value is unbounded."""

    mean: float
    low: float
    high: float
    count: int

    @property
    def band(self) -> tuple[float, float]:
        """(low, high), or (mean, mean) for a single value."""
        return (self.low, self.high) if self.count > 1 else (self.mean, self.mean)

    def text(self, digits: str) -> str:
        """'0.98 [0.95, 1.01]'; '–' where there is no interval."""
        return f"{self.mean:{digits}} [{self.low:{digits}}, {self.high:{digits}}]" if self.count > 1 else "–"


def interval(values: Collection[float]) -> Interval:
    """The interval of the mean of `values`, which must be independent and roughly normal.

    >>> one = interval([0.9, 1.0, 1.1])
    >>> round(one.low, 3), round(one.high, 3)
    (0.752, 1.248)
    """
    count = len(values)
    if not count:
        return Interval(math.nan, -math.inf, math.inf, 0)
    mean = float(np.mean([*values]))
    if count == 1 or not math.isfinite(mean):
        return Interval(mean, -math.inf, math.inf, count)
    from scipy.special import stdtrit  # equals scipy.stats.t.ppf, but loads a second faster

    half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * _error(values)
    return Interval(mean, mean - half, mean + half, count)


def seeds_to_decide(values: Collection[float], limit: float) -> int | None:
    """How many values would put the interval on one side of `limit`, if their mean and spread stay as they are.

    None for a single value, which has no spread, and if not even `MOST_SEEDS` values would do.

    >>> seeds_to_decide([0.0, 1.0, 2.0], 0.0), seeds_to_decide([0.0, 1.0, 2.0], 1.0)
    (7, None)
    """
    if len(values) < 2:
        return None
    from scipy.special import stdtrit

    counts = np.arange(2, MOST_SEEDS + 1)
    halves = stdtrit(counts - 1, (1 + CONFIDENCE) / 2) * np.std([*values], ddof=1) / np.sqrt(counts)
    enough = counts[halves < abs(np.mean([*values]) - limit)]
    return int(enough[0]) if enough.size else None


def p_value(values: Collection[float], limit: float, side: Literal["above", "below"]) -> float:
    """The p-value of Student's test that the mean of `values` is on `side` of `limit`.

    It is below 5% if and only if the whole 95% interval is on this side. The interval leaves out 2.5% at each end, so
    the p-value of one side is doubled. It is 1 if the mean is on the other side, or if there are fewer than two values.

    >>> p_value([0.9, 1.0, 1.1], 0.0, "above") < 0.05, p_value([0.9, 1.0, 1.1], 0.0, "below")
    (True, 1.0)
    """
    count, mean = len(values), float(np.mean([*values])) if len(values) else math.nan
    distance = mean - limit if side == "above" else limit - mean
    if count < 2 or not distance > 0:
        return 1.0
    from scipy.special import stdtr

    error = _error(values)
    return 2 * float(stdtr(count - 1, -distance / error)) if error else 0.0


def _error(values: Collection[float]) -> float:
    """The standard error of the mean."""
    return float(np.std([*values], ddof=1)) / math.sqrt(len(values))


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
    """The slope p of the least-squares line log y = p·log x + c."""
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)), 1)[0])
