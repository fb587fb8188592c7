"""The server's update (Algorithm 1, line 19): x ← x − (n/|S|)·Σ_{i∈S} p_i·Δ̂_i, in O(nnz)."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from gammafl.core import kernels
from gammafl.core.errors import require
from gammafl.core.kernels import Vector
from gammafl.core.sparse import SparseUpdate

Weighting = Literal["paper", "normalized"]

LARGEST_MODEL = float(np.finfo(np.float32).max) / 2
"""No element of a model may be larger. Below it the difference of two models is finite too."""


def weights(shares: Sequence[float], clients: int, weighting: Weighting = "paper", picked: int = 0) -> list[float]:
    """What each update counts; `shares` are the p_i of those that arrived, `clients` is n.

    "paper": (n/|S|)·p_i with p_i ≤ 1. It is unbiased over the sampling, but its sum differs from 1 when shards differ
    in size.
    "normalized": p_i / Σ_{S} p, for shares of any scale.

    |S| is `picked`, if that is more than arrived. A missing update is sent again later; scaling up the others now would
    count it twice. The unknown p_i of a missing client is taken to be like the others'.

    Every weight is finite, whatever the shares are: they are divided by the largest one before they are added up.
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


def room(model: Vector, total_weight: float) -> float:
    """How large an element of an update may be, so that updates of this total weight keep the model finite."""
    return (LARGEST_MODEL - kernels.largest_magnitude(model)) / max(1.0, total_weight)


def stays_finite(model: Vector, updates: Sequence[SparseUpdate], update_weights: Sequence[float]) -> bool:
    """Whether `subtract` can't lead beyond what float32 holds."""
    steps = (weight * kernels.largest_magnitude(u.values) for u, weight in zip(updates, update_weights, strict=True))
    return kernels.largest_magnitude(model) + sum(steps) < 2 * LARGEST_MODEL


def subtract(model: Vector, updates: Sequence[SparseUpdate], update_weights: Sequence[float]) -> None:
    """model ← model − Σ weight·update, in place; every update must have the model's dimension."""
    for update, weight in zip(updates, update_weights, strict=True):
        require(update.dim == model.size, f"an update of {update.dim} elements for a model of {model.size}")
        if update.entire:
            kernels.subtract_scaled(model, update.values, np.float32(weight))
        else:
            kernels.subtract_scaled_at(model, update.indices, update.values, np.float32(weight))
