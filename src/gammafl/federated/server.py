"""The server: it accepts uploads, updates its model (Algorithm 1, lines 3 and 17-19), and averages models."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gammafl import seeds
from gammafl.config.optimizers import NoServerOptimizer, ServerOptimizer
from gammafl.config.schema import ExponentialAverage, NoAverage, TailAverage
from gammafl.core import aggregate, kernels
from gammafl.core.arrays import Vector
from gammafl.core.errors import WireError
from gammafl.core.moment import Moment
from gammafl.core.shifts import Counted, Mirror
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import decode
from gammafl.federated import server_optimizers
from gammafl.federated.client import Upload
from gammafl.federated.downlink import ViewState
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.plan import Plan
from gammafl.federated.receipts import Address

Accepted = tuple[Upload, SparseUpdate]
TakeStep = Callable[[Vector], None]
BEYOND = "its values could move the model beyond what float32 can hold"
Averaging = TailAverage | ExponentialAverage | NoAverage
AVERAGINGS: dict[str, Averaging] = {how.kind: how for how in (TailAverage(), ExponentialAverage(), NoAverage())}
"""Name in the configuration → averaging, with the default settings."""

NO_OPTIMIZER = NoServerOptimizer()


@dataclass
class Totals:
    """Sums over all accepted uploads so far."""

    uploads: int = 0
    kept: int = 0
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    link_seconds: float | None = None
    """Seconds on the virtual clock; None without one."""


class Closed(NamedTuple):
    """The last finished round: its end as methods see it, and the uploads that counted."""

    moment: Moment
    accepted: Sequence[Accepted]


@dataclass
class ServerState:
    """The server's state after `round` rounds. Together with the clients' residuals, it is the state of a run."""

    model: Vector
    round: int = 0
    average: Vector | None = None
    averaged_rounds: int = 0
    totals: Totals = field(default_factory=Totals)
    moments: dict[str, Vector] = field(default_factory=dict)
    """The vectors of the server's optimiser."""

    level: dict[str, Any] | None = None
    """The controller's state (`federated/level.py`), if it has one."""

    health: dict[str, Any] = field(default_factory=dict)
    """The state of `federated/health.py`."""

    norms: dict[str, Any] | None = None
    """The state of the learnt bound (`federated/norms.py`), if limits ask for one."""

    down: ViewState | None = None
    """The downlink's state; None before the first round, and if the model is sent whole each time."""

    mirror: Mirror | None = None
    """The server's half of the clients' memories; None if the method has none."""

    closed: Closed | None = None
    """The last finished round, for callbacks; not stored in checkpoints."""

    @property
    def held(self) -> Vector:
        """The model that clients hold when the next round begins. It is evaluated and averaged, and is the result."""
        return self.model if self.down is None else self.down.view


def pick_participants(plan: Plan, round_number: int) -> list[int]:
    """S_t: uniformly at random, without replacement (line 3)."""
    return pick(plan.clients, plan.participants, plan.seed, round_number)


def pick(clients: int, participants: int, seed: int, round_number: int) -> list[int]:
    """Draws `participants` of the numbers below `clients`, sorted."""
    rng = seeds.generator(seed, "sampling", round_number)
    return sorted(rng.choice(clients, participants, replace=False).tolist())


class Intake:
    """The valid uploads of a round with their updates, and for each other client why its upload was refused.

    An upload counts only once and only in its own round: otherwise it has returned to its client.

    largest   no value of an update may exceed it (`aggregate.largest_value`)
    own       client → its own limits
    """

    def __init__(
        self,
        dim: int,
        limits: Limits = NO_LIMITS,
        round_number: int = 0,
        largest: float = math.inf,
        own: Mapping[int, Limits] | None = None,
    ) -> None:
        self.dim, self.limits, self.round, self.largest = dim, limits, round_number, largest
        self.own = own or {}
        self._accepted: dict[int, Accepted] = {}
        self.refused: dict[int, str] = {}

    @property
    def accepted(self) -> list[Accepted]:
        return list(self._accepted.values())

    @property
    def updates(self) -> dict[Address, SparseUpdate]:
        """Client → update, for the valid uploads."""
        return {client: update for client, (_, update) in self._accepted.items()}

    def refuse(self, client: int, reason: str) -> None:
        """Refuses an upload of `client` that was taken before."""
        del self._accepted[client]
        self.refused[client] = reason

    def take(self, upload: Upload) -> None:
        try:
            if upload.round != self.round:
                raise WireError(f"an upload of round {upload.round} came in round {self.round}")
            if upload.client in self._accepted:
                raise WireError("a second upload in one round")
            limits = self.own.get(upload.client, self.limits)
            limits.check(upload.payload, self.dim)
            update = decode(upload.payload, self.dim)
            limits.check_update(update)
            if kernels.largest_magnitude(update.values) > self.largest:
                raise WireError(BEYOND)
            self._accepted[upload.client] = upload, update
        except WireError as error:
            self.refused[upload.client] = str(error)


def weights(plan: Plan, clients: Sequence[int]) -> list[float]:
    """The weight of an upload of each of `clients` (line 19)."""
    shares = [plan.task.client_sizes[client] / plan.samples for client in clients]
    return aggregate.weights(shares, plan.clients, plan.weights, plan.participants)


def mirrored(plan: Plan, accepted: Sequence[Accepted], update_weights: Sequence[float], step: float) -> list[Counted]:
    """The accepted uploads for the server's half of the memory."""
    return [
        Counted(str(upload.client), update, weight, step, plan.task.client_sizes[upload.client])
        for (upload, update), weight in zip(accepted, update_weights, strict=True)
    ]


def apply(
    state: ServerState,
    accepted: Sequence[Accepted],
    update_weights: Sequence[float],
    optimizer: ServerOptimizer = NO_OPTIMIZER,
    statistics: int = 0,
    take_step: TakeStep | None = None,
    always: bool = False,
) -> None:
    """Adds a round to the state: x ← x − Σ weight·Δ̂_i (line 19) or the optimiser's step, and the totals.

    accepted     the accepted uploads
    statistics   the last elements of the model are averages, which the optimiser does not move: their number
    take_step    subtracts the round's step from a vector, if the step is more than the sum of the updates
    always       whether to make a step also in a round without uploads

    The model stays finite: `Intake` bounds the updates, and `clamp` bounds the model for the next round.
    """
    updates = [update for _, update in accepted]
    if take_step is None:
        take_step = partial(aggregate.subtract, updates=updates, update_weights=update_weights)
    if server_optimizers.is_plain(optimizer):
        take_step(state.model)
    elif updates or always:
        change = np.zeros_like(state.model)
        take_step(change)
        trained = state.model.size - statistics
        averaged = state.model[trained:] + change[trained:]
        server_optimizers.step(optimizer, state.model, change, state.moments, state.round + 1)
        state.model[trained:] = averaged
    aggregate.clamp(state.model)
    state.totals.uploads += len(accepted)
    state.totals.kept += sum(len(update) for _, update in accepted)
    state.totals.uplink_bytes += sum(len(upload.payload) for upload, _ in accepted)
    state.round += 1


def average(state: ServerState, how: Averaging, rounds: int) -> None:
    """Updates the averaged model, in a run of `rounds`. It costs no traffic, and varies less than the last model."""
    if isinstance(how, NoAverage):
        return
    if isinstance(how, TailAverage) and state.round <= rounds - max(1, round(how.fraction * rounds)):
        return
    state.averaged_rounds += 1
    if state.average is None:
        state.average = state.held.copy()
        return
    share = 1 - how.decay if isinstance(how, ExponentialAverage) else 1 / state.averaged_rounds
    state.average += np.float32(share) * (state.held - state.average)


def round_stepsizes(plan: Plan, round_number: int) -> NDArray[np.float32]:
    """γ_t of the round's local iterations t."""
    start = round_number * plan.local_steps
    return np.array([plan.stepsize(t) for t in range(start, start + plan.local_steps)], np.float32)
