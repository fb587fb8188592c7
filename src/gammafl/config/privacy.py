"""Differential privacy of clients: the user's settings, and the resulting ε, computed by Google's dp-accounting.

`federated/privacy.py` enforces it; docs/privacy.md has the derivation.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gammafl.core.errors import not_installed, require
from gammafl.core.inputs import is_number

LEAST_NOISE = 1e-140
"""ε grows as T/z². With less noise no float holds it, and the accountant's answer is wrong or none."""


@dataclass(frozen=True)
class Privacy:
    """Uploads have a norm of at most `clip`, and Gaussian noise is added to the sum of a round's uploads.

    clip    C: the largest Euclidean norm of an upload, which includes the client's residual
    noise   z: the standard deviation of the noise in each element of the sum, in units of C
    delta   δ: the probability with which the guarantee may fail; choose less than 1 / number of clients

    >>> Privacy(clip=1.0, noise=2.0).deviation
    2.0
    """

    clip: float
    noise: float
    delta: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("clip", "noise"):
            value = getattr(self, name)
            positive = is_number(value) and 0 < value < math.inf
            require(positive, f"privacy: {name} must be a positive number, got {value!r}")
            object.__setattr__(self, name, float(value))
        require(
            self.noise >= LEAST_NOISE, f"privacy: noise must be at least {LEAST_NOISE}, or ε is no number: {self.noise}"
        )
        require(
            is_number(self.delta) and 0 < self.delta < 1,
            f"privacy: delta must be a number between 0 and 1, such as 1e-5; got {self.delta!r}",
        )

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise in each element of the sum."""
        return self.noise * self.clip

    def epsilon(self, rounds: int) -> float:
        """ε at δ = `delta`, for a client that was asked in each of `rounds` rounds.

        It uses no amplification by sampling: a round counts fully, although other clients might have been asked.
        """
        if not rounds:
            return 0.0
        together = self.noise / math.sqrt(rounds)  # `rounds` Gaussian mechanisms equal one with less noise
        with np.errstate(all="ignore"):  # on its way to a large ε, it takes logarithms of 0
            return float(require_accountant().get_epsilon_gaussian(together, self.delta))

    @classmethod
    def within(cls, epsilon: float, rounds: int, clip: float, delta: float = 1e-5) -> "Privacy":
        """The privacy with the least noise for which `rounds` rounds stay within `epsilon`."""
        possible = is_number(epsilon) and 0 < epsilon < math.inf and isinstance(rounds, int) and rounds >= 1
        require(possible, f"privacy: a positive epsilon and a number of rounds are needed, got {epsilon!r}, {rounds!r}")
        return cls(clip, math.sqrt(rounds) * require_accountant().get_sigma_gaussian(epsilon, delta), delta)


def require_accountant() -> Any:
    """The library that computes ε. An `InputError` if it is missing, so that a run fails before it begins."""
    try:
        import dp_accounting
    except ModuleNotFoundError:
        raise not_installed("dp-accounting", "privacy") from None
    return dp_accounting
