"""Passes over a client's samples, for `sampler = "epochs"`: all samples once, before any sample comes again.

The position in a pass follows from the number of earlier rounds of the client. So there is no iterator to store.
"""

from collections.abc import Sequence

import numpy as np

from gammafl import seeds
from gammafl.federated.batch_draws import Generator, Integers, Streams


class Passes(Streams):
    """Streams whose rows come from passes; other random numbers are as in `Streams`.

    before   how many rounds each client took part in before. All rounds of a run use equally many samples
    fixed    whether all passes of a client have the same order; otherwise each has its own

    A batch may continue from the end of a pass into the next one. So all batches have the same size.
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
        """The next `size` numbers from passes over the numbers below `below`."""
        first = int(self._before[number]) * size
        passes = range(first // below, -(-(first + size) // below))
        rows = np.concatenate([self._order(number, one, below) for one in passes])
        start = first - passes.start * below
        return rows[start : start + size]

    def _order(self, number: int, one: int, below: int) -> Integers:
        rng = seeds.generator(self._seed, "passes", 0 if self._fixed else one, self._clients[number])
        return rng.permutation(below)
