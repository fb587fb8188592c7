"""Which samples the clients of a round train on: the streams that a task draws them from."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gammafl.federated import server
from gammafl.federated.batch_draws import Streams
from gammafl.federated.passes import Passes
from gammafl.federated.plan import Plan


class Sampling:
    """The streams of each round, by the plan's sampler.

    Passes go on where a client's last round ended. How often a client was picked before is counted by picking again,
    which takes some 20 µs a round: a resumed run needs nothing from before.
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
        """How often each client was picked in the rounds before; one that was picked and stayed away counts too."""
        if round_number < self._counted:
            self._counted, self._picks[:] = 0, 0
        for number in range(self._counted, round_number):
            self._picks[server.pick_participants(self.plan, number)] += 1
        self._counted = round_number
        return self._picks
