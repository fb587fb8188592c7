"""The right-hand sides of Theorems 1 and 2, with the corrections that docs/deviations.md lists.

    Theorem 1   E f(x_T) − f* ≤ κ/(T+b) · { 9/μ · [(1 + γ_0μ/2)·B + (1/2 + 2(γ_0/γ_T)^{α/2}/(μγ_0))·D] + μ(1+b)/2·Δ_1 }
                B = Σp_i²σ² + 6LΓ + 8(E−1)²G² + 4E²G²/S,   D = 4dλ_0²,   γ_t = 3/(μ(b+t)),   b = max(12κ, E) − 1
    Theorem 2   min_t E‖∇f(x_t)‖² ≤ four terms over c·γ_{R−1}·R·E, with sums over the R = T/E rounds

D is 4dλ_0² as in the statement (a step of the proof has half of it). Statement and proof of Theorem 2 have different
conditions on γ: the stricter one is used. Both theorems are proven for a threshold of λ_t·γ_t on the update ("gradient
units").

With λ_0 fixed, (γ_0/γ_T)^{α/2} grows like T^{α/2}. So for α = 1 the bound of Theorem 1 falls like T^{−1/2}. Remark 1
says 1/T.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gammafl.core.errors import require
from gammafl.core.stepsizes import InverseDecay, Stepsize


@dataclass(frozen=True)
class Constants:
    """The constants of the assumptions: L, μ (0 if f is not convex), σ, G, Γ (Γ_c or Γ_n), p_i, S and E."""

    smoothness: float
    convexity: float
    noise: float
    gradient_bound: float
    heterogeneity: float
    shares: Sequence[float]
    participants: int
    local_steps: int

    @property
    def square_shares(self) -> float:
        """Σ p_i²."""
        return float(np.sum(np.square(self.shares)))


def convex_offset(smoothness: float, convexity: float, local_steps: int) -> float:
    """b = max(12κ, E) − 1."""
    require(0 < convexity <= smoothness, f"Theorem 1 needs 0 < μ ≤ L, got μ = {convexity}, L = {smoothness}")
    return max(12 * smoothness / convexity, local_steps) - 1


def convex_stepsize(smoothness: float, convexity: float, local_steps: int) -> InverseDecay:
    """The stepsize of Theorem 1: γ_t = 3/(μ(b+t))."""
    return InverseDecay(3 / convexity, convex_offset(smoothness, convexity, local_steps))


def convex_bound(
    constants: Constants, dim: int, initial: float, iterations: int, distance: float, alpha: float = 1.0
) -> float:
    """Theorem 1: a bound on E f(x_T) − f*. `initial` is λ_0, and `distance` is Δ_1 = ‖x_1 − x*‖²."""
    c, mu = constants, constants.convexity
    offset = convex_offset(c.smoothness, mu, c.local_steps)
    stepsize = convex_stepsize(c.smoothness, mu, c.local_steps)
    first, last = stepsize(0), stepsize(iterations)
    steps, squared = c.local_steps, c.gradient_bound**2
    b = c.square_shares * c.noise**2 + 6 * c.smoothness * c.heterogeneity
    b += 8 * (steps - 1) ** 2 * squared + 4 / c.participants * steps**2 * squared
    d = 4 * dim * initial**2
    spread = 0.5 + 2 * (first / last) ** (alpha / 2) / (mu * first)
    inner = 9 / mu * ((1 + first * mu / 2) * b + spread * d) + mu * (1 + offset) / 2 * distance
    return c.smoothness / mu / (iterations + offset) * inner


def descent_factor(constants: Constants, stepsize: float) -> float:
    """The largest c that the proof of Theorem 2 allows for γ_t ≤ `stepsize`. Not positive: there is no bound."""
    c = constants
    lipschitz, steps = c.smoothness * stepsize, c.local_steps
    drift = 15 * len(c.shares) * steps**2 * lipschitz**2 * c.square_shares
    return 0.5 - drift - lipschitz / c.participants * (90 * steps**3 * lipschitz**2 + 3 * steps)


def stepsize_allowed(constants: Constants, stepsize: float) -> bool:
    """Theorem 2's conditions on γ: γ ≤ 1/(8LE), γEL ≤ min(2S/(S−1), S/2), and a positive c."""
    c = constants
    both = min(2 * c.participants / max(1, c.participants - 1), c.participants / 2)
    product = stepsize * c.local_steps * c.smoothness
    return product <= 1 / 8 and product <= both and descent_factor(c, stepsize) > 0


def non_convex_bound(
    constants: Constants, dim: int, initial: float, stepsize: Stepsize, rounds: int, start: float, alpha: float = 1.0
) -> float:
    """Theorem 2: a bound on min_t E‖∇f(x_t)‖². `start` is f(x_0) − f*. The stepsize is that at a round's start."""
    c, steps = constants, constants.local_steps
    gammas = np.array([float(stepsize(steps * r)) for r in range(rounds)])
    factor = descent_factor(c, float(gammas.max()))
    if factor <= 0 or not stepsize_allowed(c, float(gammas.max())):
        return math.inf
    smooth, sigma = c.smoothness, c.noise**2
    second, third, fourth = (float(np.sum(gammas**power)) for power in (2, 3, 4))
    total = start
    total += (smooth * steps**2 * sigma + 3 * steps**2 * smooth * c.heterogeneity / c.participants) * second
    total += 2 * smooth * dim * initial**2 / gammas[0] * (gammas[0] / gammas[-1]) ** (alpha / 2) * third
    drift = 5 * len(c.shares) * steps**2 * smooth**2 * c.square_shares / 2 * third
    drift += 15 * steps**3 * smooth**3 / c.participants * fourth
    total += (sigma + 6 * steps * c.heterogeneity) * drift
    return float(total / (factor * gammas[-1] * rounds * steps))
