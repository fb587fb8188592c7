"""Passes over a client's samples, for `sampler = "epochs"`: each sample once before any comes again.

Where a pass stands follows from how many rounds the client took part in before, so there is no iterator to save.
"""

from collections.abc import Sequence

import numpy as np

from gammafl import seeds
from gammafl.federated.batch_draws import Generator, Integers, Streams


class Passes(Streams):
    """Streams whose rows come from passes; what else is random, as in `Streams`.

    `before` are the rounds that each client took part in so far. All of a run's rounds use equally many samples.
    A pass is in an order of its own, or with `fixed` in that of the client's first one. A batch goes over the end of a
    pass into the next, so that all are of one size.
    """

    def __init__(
        self, seed: int, role: str, round_number: int, clients: Sequence[int], before: Sequence[int], fixed: bool
    ) -> None:
        super().__init__(seed, role, round_number, clients)
        self._seed, self._before, self._fixed = seed, before, fixed

    def integers(self, below: Sequence[int], size: int) -> Integers:
        return np.stack([self._rows(number, most, size) for number, most in enumerate(below)])

    def drawn(self, number: int, below: int, size: int) -> tuple[Integers, Generator]:
        return self._rows(number, below, size), self[number]

    def _rows(self, number: int, below: int, size: int) -> Integers:
        """The next `size` of the passes over the numbers below `below`."""
        first = int(self._before[number]) * size
        passes = range(first // below, -(-(first + size) // below))
        rows = np.concatenate([self._order(number, one, below) for one in passes])
        start = first - passes.start * below
        return rows[start : start + size]

    def _order(self, number: int, one: int, below: int) -> Integers:
        rng = seeds.generator(self._seed, "passes", 0 if self._fixed else one, self._clients[number])
        return rng.permutation(below)
