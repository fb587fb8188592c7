"""Rand-k: a key draws the entries. The message has the key instead of their positions."""

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
    """Keeps k random entries, of any size, that `moment.key` draws.

    k        a count (int), or a fraction of d (float, ⌈k·d⌉ entries). If `moment.keep` is set, it is used instead
    scaled   sends d/k times the entries, so that the mean over keys is right. The rest is then −(d/k − 1) times the
             entries: use it only without a memory

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
