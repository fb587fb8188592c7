"""The server's optimisers of "Adaptive Federated Optimization" (Reddi et al., arXiv 2003.00295), and FedAvgM.

They do the same float operations as Flower's strategies FedAvgM, FedAdam, FedYogi and FedAdagrad, on one flat vector.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gammafl.config.optimizers import (
    NoServerOptimizer,
    ServerAdagrad,
    ServerAdam,
    ServerMomentum,
    ServerOptimizer,
    ServerYogi,
)
from gammafl.core.arrays import Vector

LARGEST = 1e16
"""Elements of a mean update are cut to this value, so that a sum of a million squares is finite."""

MOMENTS: dict[str, tuple[str, ...]] = {
    "none": (),
    "momentum": ("momentum",),
    "adam": ("mean", "squares"),
    "yogi": ("mean", "squares"),
    "adagrad": ("squares",),
}
"""Kind → the names of the optimiser's vectors."""


def is_plain(optimizer: ServerOptimizer) -> bool:
    """Whether the optimiser is FedAVG: x ← x − u."""
    unchanged = isinstance(optimizer, ServerMomentum) and (optimizer.lr, optimizer.momentum) == (1, 0)
    return unchanged or isinstance(optimizer, NoServerOptimizer)


def remembered(optimizer: ServerOptimizer, uploads: int) -> tuple[str, ...]:
    """The names of the optimiser's vectors after `uploads` uploads."""
    return () if is_plain(optimizer) or uploads == 0 else MOMENTS[optimizer.kind]


def step(
    optimizer: ServerOptimizer, model: Vector, change: Vector, moments: dict[str, Vector], round_number: int
) -> None:
    """Makes the optimiser's step on `model`, in place. `moments` is updated too.

    change         what plain FedAVG would add to the model
    round_number   the number of the round; the first is 1
    """
    np.clip(change, -LARGEST, LARGEST, out=change)
    with np.errstate(over="ignore"):
        model += _STEPS[type(optimizer)](optimizer, change, moments, round_number)


def _momentum(chosen: ServerMomentum, change: Vector, moments: dict[str, Vector], _: int) -> Vector:
    """v ← momentum·v + u; −lr·v, where u = −change."""
    old = moments.get("momentum")
    moments["momentum"] = -change if old is None else chosen.momentum * old - change
    return -(chosen.lr * moments["momentum"])


def _adam(chosen: ServerAdam, change: Vector, moments: dict[str, Vector], round_number: int) -> Vector:
    """The exponents begin at 2, as in Flower's FedAdam."""
    mean = _mean(chosen, change, moments)
    squares = moments.get("squares", np.zeros_like(change))
    moments["squares"] = chosen.beta_2 * squares + (1 - chosen.beta_2) * change**2
    corrected = chosen.lr * (1 - chosen.beta_2 ** (round_number + 1)) ** 0.5 / (1 - chosen.beta_1 ** (round_number + 1))
    return _adapted(corrected, mean, moments["squares"], chosen.tau)


def _yogi(chosen: ServerYogi, change: Vector, moments: dict[str, Vector], _: int) -> Vector:
    mean, square = _mean(chosen, change, moments), change**2
    squares = moments.get("squares", np.zeros_like(change))
    moments["squares"] = squares - (1 - chosen.beta_2) * square * np.sign(squares - square)
    return _adapted(chosen.lr, mean, moments["squares"], chosen.tau)


def _adagrad(chosen: ServerAdagrad, change: Vector, moments: dict[str, Vector], _: int) -> Vector:
    moments["squares"] = moments.get("squares", np.zeros_like(change)) + change**2
    return _adapted(chosen.lr, change, moments["squares"], chosen.tau)


def _mean(chosen: ServerAdam | ServerYogi, change: Vector, moments: dict[str, Vector]) -> Vector:
    old = moments.get("mean", np.zeros_like(change))
    moments["mean"] = chosen.beta_1 * old + (1 - chosen.beta_1) * change
    return moments["mean"]


def _adapted(rate: float, mean: Vector, squares: Vector, tau: float) -> Vector:
    """rate·mean/(√squares + τ)."""
    adapted: Vector = np.float32(rate) * mean
    adapted /= np.sqrt(squares) + np.float32(tau)
    return adapted


_STEPS: dict[type, Callable[[Any, Vector, dict[str, Vector], int], Vector]] = {
    ServerMomentum: _momentum,
    ServerAdam: _adam,
    ServerYogi: _yogi,
    ServerAdagrad: _adagrad,
}
