"""Differential privacy of whole clients: uploads of bounded norm, equal weights, and noise on their sum.

    x ← x − (Σ_i Δ̂_i + N(0, (z·C)²·I)) / m,     ‖Δ̂_i‖ ≤ C

m is the number of clients that were *asked*. Who answered does not show in it, and the noise comes also where nobody
did. C bounds the message as the server decoded it, so that neither a residual of many rounds nor a client that lies
exceeds it: `Limits.norm` refuses what is beyond, and clients, who are told C, keep the rest in their memory.

What would tell of a client without noise is refused (`require_private`). docs/privacy.md has the derivation.
"""

import os
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from gammafl import seeds
from gammafl.config.budget import Budget
from gammafl.config.privacy import Privacy, require_accountant
from gammafl.core.arrays import Vector
from gammafl.core.errors import require
from gammafl.core.levels import RunLevel
from gammafl.core.method import Method
from gammafl.core.shifts import Shifts
from gammafl.core.sparse import SparseUpdate
from gammafl.federated.limits import Limits

Doubles = NDArray[np.float64]
Normal = Callable[[int], Doubles]
"""So many independent numbers of the standard normal distribution."""


def seeded(seed: int, round_number: int) -> Normal:
    """By (seed, round): a simulated run is repeatable, and its noise no secret."""
    return seeds.generator(seed, "noise", round_number).standard_normal


def unpredictable(count: int) -> Doubles:
    """From the operating system's randomness. Whoever can predict noise can subtract it.

    No generator that is merely seeded by it: where updates are always zero, as at the dark rim of images, each round
    shows its noise, and some generators can be found from what they gave.
    """
    words = np.frombuffer(os.urandom(16 * ((count + 1) // 2)), np.uint64).reshape(2, -1) >> np.uint64(11)
    radius = np.sqrt(-2 * np.log((words[0] + 1) * 2.0**-53))  # of a number from 2⁻⁵³ to 1
    angle = 2 * np.pi * 2.0**-53 * words[1]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def total(updates: Sequence[SparseUpdate], dim: int) -> Doubles:
    """Σ Δ̂_i, in float64: roundings must not add to what one client can change."""
    summed = np.zeros(dim)
    for update in updates:
        summed[slice(None) if update.entire else update.indices] += update.values
    return summed


def take_step(model: Vector, updates: Sequence[SparseUpdate], asked: int, privacy: Privacy, normal: Normal) -> None:
    """model ← model − (Σ Δ̂_i + noise) / asked, in place."""
    summed = total(updates, model.size)
    summed += privacy.deviation * normal(model.size)
    with np.errstate(over="ignore"):  # beyond what a model can hold is clamped
        model -= (summed / asked).astype(np.float32)


def limits_with(privacy: Privacy | None, limits: Limits) -> Limits:
    """`limits` with C: what is beyond is refused, and clients keep within it."""
    return limits if privacy is None else limits.within(Limits(norm=privacy.clip))


def require_private(privacy: Privacy | None, method: Method, tail: int, limits: Limits, budget: Budget) -> None:
    """Refuses what tells of single clients without noise, and a missing accountant."""
    if privacy is None:
        return
    require_accountant()
    require(
        not isinstance(method.level, RunLevel),
        f"privacy: the level 'run' of {method.name} is steered by what clients send, and told to all without noise; use"
        " level='upload'",
    )
    require(
        not isinstance(method.memory, Shifts),
        f"privacy: the server adds to an upload of {method.name} what it remembers of its client, so that clip bounds"
        " nothing; use a method without shifts, such as gamma-fedht or top-k",
    )
    require(
        limits.learnt_norm is None,
        "privacy: a learnt norm is a function of what clients send, and told to all without noise; leave it out, clip"
        " is the bound",
    )
    require(
        budget.run is None,
        "privacy: what clients may keep of a run's budget follows what others sent, without noise; give each upload a"
        " budget instead (64 kB/upload)",
    )
    require(
        not tail,
        "privacy: running statistics would get noise, and a variance with noise can be negative; keep them at the"
        " clients (in gf.simulate buffers='local'), or use a model without them",
    )
