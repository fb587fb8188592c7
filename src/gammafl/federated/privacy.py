"""Differential privacy of clients: bounded norms of uploads, equal weights, and noise on their sum.

    x ← x − (Σ_i Δ̂_i + N(0, (z·C)²·I)) / m,     ‖Δ̂_i‖ ≤ C

m is the number of clients that were *asked*. So it does not reveal who answered, and the noise is added even if no
client answered. C bounds the message that the server decoded: neither a residual of many rounds nor a client that lies
can exceed it. `Limits.norm` refuses larger uploads. Clients know C, and keep the rest in their memory.

Settings that would reveal facts about a client without noise are refused (`require_private`). docs/privacy.md has the
derivation.
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
"""A function that draws this number of independent numbers from the standard normal distribution."""


def seeded(seed: int, round_number: int) -> Normal:
    """Noise from (seed, round): a simulated run is repeatable, and its noise is no secret."""
    return seeds.generator(seed, "noise", round_number).standard_normal


def unpredictable(count: int) -> Doubles:
    """Noise from the operating system's random numbers. If somebody could predict noise, they could subtract it.

    It does not use a generator that is only seeded by the operating system. Some elements of updates are always zero,
    such as those for the dark border of images. Each round shows their noise, and from the numbers of some generators
    one can compute the generator's state.
    """
    words = np.frombuffer(os.urandom(16 * ((count + 1) // 2)), np.uint64).reshape(2, -1) >> np.uint64(11)
    radius = np.sqrt(-2 * np.log((words[0] + 1) * 2.0**-53))  # the number is from 2⁻⁵³ to 1
    angle = 2 * np.pi * 2.0**-53 * words[1]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def total(updates: Sequence[SparseUpdate], dim: int) -> Doubles:
    """Σ Δ̂_i in float64, so that rounding errors do not increase one client's influence."""
    summed = np.zeros(dim)
    for update in updates:
        summed[slice(None) if update.entire else update.indices] += update.values
    return summed


def take_step(model: Vector, updates: Sequence[SparseUpdate], asked: int, privacy: Privacy, normal: Normal) -> None:
    """model ← model − (Σ Δ̂_i + noise) / asked, in place."""
    summed = total(updates, model.size)
    summed += privacy.deviation * normal(model.size)
    with np.errstate(over="ignore"):  # larger values are clamped below
        model -= (summed / asked).astype(np.float32)


def limits_with(privacy: Privacy | None, limits: Limits) -> Limits:
    """`limits` with the norm C."""
    return limits if privacy is None else limits.within(Limits(norm=privacy.clip))


def require_private(privacy: Privacy | None, method: Method, tail: int, limits: Limits, budget: Budget) -> None:
    """Refuses settings that reveal facts about single clients without noise, and a missing accountant."""
    if privacy is None:
        return
    require_accountant()
    require(
        not isinstance(method.level, RunLevel),
        f"privacy: the level 'run' of {method.name} depends on what clients send, and all learn it without noise; use"
        " level='upload'",
    )
    require(
        not isinstance(method.memory, Shifts),
        f"privacy: the server adds its own memory of a client to each upload of {method.name}, so clip is no bound;"
        " use a method without shifts, such as gamma-fedht or top-k",
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
