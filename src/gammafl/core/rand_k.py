"""Rand-k: entries that a key draws. The message has the key in place of their positions."""

from dataclasses import dataclass

import numpy as np

from gammafl.core import drawn
from gammafl.core.arrays import Vector
from gammafl.core.codes import Code
from gammafl.core.compressors import Compressor, checked_k, count_of, share_of
from gammafl.core.moment import Moment
from gammafl.core.sparse import SparseUpdate

LARGEST = np.finfo(np.float32).max


@dataclass(frozen=True)
class RandK(Compressor):
    """Keeps k entries that `moment.key` draws, whatever they are.

    k        a count (int), or a fraction of d (float, ⌈k·d⌉ entries). Where the moment says how much to keep, that is k
    scaled   sends d/k times the entries, which is right on average over keys. What is left is −(d/k − 1) times them,
             and makes sense only without a memory

    >>> sent = RandK(3)([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> len(sent), bool((sent.values == sent.indices + 1).all())
    (3, True)
    """

    follows_keep = True
    on_device = True

    k: int | float
    scaled: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", checked_k(self.k, "RandK"))

    def planned(self, moment: Moment) -> float | None:
        return share_of(self.k, moment)

    def take(self, vector: Vector, moment: Moment) -> SparseUpdate:
        size = vector.size
        count = min(size, count_of(self.k if moment.keep is None else moment.keep, size))
        indices = drawn.positions(moment.key, size, count)
        values = vector[indices]
        if self.scaled and count:
            values = np.clip(size / count * values.astype(np.float64), -LARGEST, LARGEST).astype(np.float32)
        vector[indices] -= values
        return SparseUpdate.of_checked(size, indices, values, code=Code(moment.key))
