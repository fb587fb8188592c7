"""The server's update (Algorithm 1, line 19): x ← x − (n/|S|)·Σ_{i∈S} p_i·Δ̂_i, in O(nnz)."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from gammafl.core import kernels
from gammafl.core.errors import require
from gammafl.core.kernels import Vector
from gammafl.core.sparse import SparseUpdate

Weighting = Literal["paper", "normalized"]


def weights(shares: Sequence[float], clients: int, weighting: Weighting = "paper", picked: int = 0) -> list[float]:
    """What each update counts; `shares` are the p_i of those that arrived, `clients` is n.

    "paper": (n/|S|)·p_i, unbiased over the sampling, but its sum differs from 1 when shards differ in size.
    "normalized": p_i / Σ_{S} p.

    |S| is `picked`, if that is more than arrived: what did not arrive returns to its client and counts later, so that
    nobody may stand in for it, or it would count twice. Its unknown p_i is taken to be like the others'.
    """
    require(weighting in ("paper", "normalized"), f"weights must be 'paper' or 'normalized', got {weighting!r}")
    if not shares:
        return []
    size = max(picked, len(shares))
    factor = clients / size if weighting == "paper" else len(shares) / size / sum(shares)
    return [factor * share for share in shares]


def subtract(model: Vector, updates: Sequence[SparseUpdate], update_weights: Sequence[float]) -> None:
    """model ← model − Σ weight·update, in place; every update must have the model's dimension."""
    for update, weight in zip(updates, update_weights, strict=True):
        require(update.dim == model.size, f"an update of {update.dim} elements for a model of {model.size}")
        if update.entire:
            kernels.subtract_scaled(model, update.values, np.float32(weight))
        else:
            kernels.subtract_scaled_at(model, update.indices, update.values, np.float32(weight))
