"""The server's update (Algorithm 1, line 19): x ← x − (n/|S|)·Σ_{i∈S} p_i·Δ̂_i, in O(nnz)."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from gammafl.core import kernels
from gammafl.core.arrays import Vector
from gammafl.core.device.vectors import DeviceVector
from gammafl.core.errors import require
from gammafl.core.sparse import SparseUpdate

Weighting = Literal["paper", "normalized"]

LARGEST_MODEL = float(np.finfo(np.float32).max) / 4
"""The largest element of a model, and of the sum of a round's updates. So the difference of two models is finite in
float32."""


SMALLEST_WEIGHT, LARGEST_WEIGHT = 2.0**-53, 2.0**53
"""The range of a weight that a client sends."""


def weights(shares: Sequence[float], clients: int, weighting: Weighting = "paper", picked: int = 0) -> list[float]:
    """The weight of each update.

    shares      the p_i of the updates that arrived
    clients     n
    weighting   "paper": (n/|S|)·p_i with p_i ≤ 1. It is unbiased over the sampling, but the sum of the weights differs
                from 1 if clients have different numbers of samples. "normalized": p_i / Σ_{S} p, for any scale
    picked      |S|, if more clients were picked than arrived. A missing update is sent again later: if the others were
                scaled up for it now, it would count twice. Its unknown p_i is taken as the mean of the others

    Every weight is finite, for any shares: they are divided by the largest one before they are added up.
    """
    require(weighting in ("paper", "normalized"), f"weights must be 'paper' or 'normalized', got {weighting!r}")
    most = 1.0 if weighting == "paper" else math.inf
    wrong = [share for share in shares if not (0 <= share <= most and math.isfinite(share))]
    require(not wrong, f"a share must be a number from 0 to {most:g}, got {wrong[:1]}")
    if not shares:
        return []
    size = max(picked, len(shares))
    if weighting == "paper":
        return [clients / size * share for share in shares]
    largest = max(shares)
    require(largest > 0, "one share at least must be positive")
    scaled = [share / largest for share in shares]
    total = sum(scaled)
    return [len(shares) / size * (share / total) for share in scaled]


def largest_value(total_weight: float) -> float:
    """The largest allowed element of an update, if the weights of a round have this sum.

    Then a model within `LARGEST_MODEL` is finite after the round, for any updates.
    """
    return LARGEST_MODEL / max(1.0, total_weight)


def clamp(model: Vector) -> None:
    """Sets elements larger than `LARGEST_MODEL` to it. So an element that a bad client made large stays finite."""
    if kernels.largest_magnitude(model) > LARGEST_MODEL:
        if isinstance(model, DeviceVector):
            model.clamp(LARGEST_MODEL)
        else:
            np.clip(model, -LARGEST_MODEL, LARGEST_MODEL, out=model)


def subtract(model: Vector, updates: Sequence[SparseUpdate], update_weights: Sequence[float]) -> None:
    """model ← model − Σ weight·update, in place; every update must have the model's dimension."""
    for update, weight in zip(updates, update_weights, strict=True):
        require(update.dim == model.size, f"an update of {update.dim} elements for a model of {model.size}")
        if isinstance(model, DeviceVector):
            model.subtract_scaled(slice(None) if update.entire else update.indices, update.values, weight)
        elif update.entire:
            kernels.subtract_scaled(model, update.values, np.float32(weight))
        else:
            kernels.subtract_scaled_at(model, update.indices, update.values, np.float32(weight))
