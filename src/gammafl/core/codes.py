"""Codes: facts about an update's entries with which a message can be shorter.

A code describes the entries before those that are sent whole. It repeats what the entries themselves say: `encode`
checks this, and refuses a code that contradicts its update.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gammafl.core.arrays import Vector


@dataclass(frozen=True, eq=False)
class Blocks:
    """Values are whole numbers of `bits` bits times the scale of their block (`core/blocks.py`).

    Each block has `block` values; the last one may be shorter.
    """

    bits: int
    block: int
    scales: Vector


@dataclass(frozen=True, eq=False)
class Rotated:
    """Values are rotated signs times the scale of their block; `key` determines the rotation (`core/rotation.py`)."""

    key: int
    scales: Vector
    signs: NDArray[np.uint8]
    """One bit for each rotated value."""


@dataclass(frozen=True, eq=False)
class Code:
    """drawn    the key that draws the positions (`core/drawn.py`)
    values   how the values are coded
    """

    drawn: int | None = None
    values: Blocks | Rotated | None = None
