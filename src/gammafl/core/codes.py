"""Codes: what an update may carry about itself, so that the wire can write it shorter.

A code describes the entries before those that are sent whole. It says nothing that the entries do not say: `encode`
compares, and refuses a code that is not true of its update.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gammafl.core.arrays import Vector


@dataclass(frozen=True, eq=False)
class Blocks:
    """Values are whole numbers of `bits` bits times the scale of their block (`core/blocks.py`).

    Each block is of `block` values; the last one may be shorter.
    """

    bits: int
    block: int
    scales: Vector


@dataclass(frozen=True, eq=False)
class Rotated:
    """Values are signs that were rotated back by `key`, times the scale of their block (`core/rotation.py`)."""

    key: int
    scales: Vector
    signs: NDArray[np.uint8]
    """A bit for each rotated value."""


@dataclass(frozen=True, eq=False)
class Code:
    """`drawn`: the key that positions were drawn by (`core/drawn.py`). `values`: how values are coded."""

    drawn: int | None = None
    values: Blocks | Rotated | None = None
