"""The clients' shares of the training data."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np


class Shares:
    """The shares of all clients of a run, from the sizes of their data."""

    def __init__(self, sizes: Sequence[float]) -> None:
        self.relative_sizes = np.asarray(sizes, np.float64) / np.mean(sizes)
        self.mean_power = cache(self._mean_power)

    def of(self, client: int) -> "Share":
        return Share(self, client)

    def _mean_power(self, power: float) -> float:
        return float(np.mean(self.relative_sizes**power))


class Share(NamedTuple):
    """One client's share p_i of the samples, together with all p_j."""

    among: Shares
    client: int

    def relative(self, power: float = 1.0) -> float:
        """p_i^a divided by the mean of all p_j^a: 1 on average, and 1 for each client if all have equally many samples.

        >>> round(Shares([1, 8]).of(1).relative(2 / 3), 6)
        1.6
        """
        return float(self.among.relative_sizes[self.client]) ** power / self.among.mean_power(power)
