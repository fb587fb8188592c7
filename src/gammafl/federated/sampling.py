"""The random streams from which a task draws the samples of a round's clients."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gammafl.federated import server
from gammafl.federated.batch_draws import Streams
from gammafl.federated.passes import Passes
from gammafl.federated.plan import Plan


class Sampling:
    """The streams of each round, for the plan's sampler.

    A pass continues where the client's last round ended. To count how often a client was picked before, all earlier
    rounds are picked again. That takes about 20 µs per round, and a resumed run needs no stored state.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._counted = 0
        self._picks = np.zeros(plan.clients, np.int64)

    def streams(self, round_number: int, clients: Sequence[int]) -> Streams:
        """The generators of `clients` in a round."""
        plan = self.plan
        if plan.sampler == "replacement":
            return Streams(plan.seed, "batches", round_number, clients)
        before = self.picks_before(round_number)[list(clients)]
        return Passes(plan.seed, "batches", round_number, clients, before.tolist(), plan.sampler == "epochs-fixed")

    def picks_before(self, round_number: int) -> NDArray[np.int64]:
        """How often each client was picked in earlier rounds, also if it did not answer."""
        if round_number < self._counted:
            self._counted, self._picks[:] = 0, 0
        for number in range(self._counted, round_number):
            self._picks[server.pick_participants(self.plan, number)] += 1
        self._counted = round_number
        return self._picks
