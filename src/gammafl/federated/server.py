"""The server: its model, what it accepts, its update (Algorithm 1, lines 3 and 17-19), its averaged model."""

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
BEYOND = "its values would take the model beyond what float32 can hold"
Averaging = TailAverage | ExponentialAverage | NoAverage
AVERAGINGS: dict[str, Averaging] = {how.kind: how for how in (TailAverage(), ExponentialAverage(), NoAverage())}
"""By the names that users give; with the default settings."""

NO_OPTIMIZER = NoServerOptimizer()


@dataclass
class Totals:
    """Sums over the rounds so far, of what the server accepted."""

    uploads: int = 0
    kept: int = 0
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    link_seconds: float | None = None
    """On the virtual clock, where there is one."""


class Closed(NamedTuple):
    """The round that was closed last: its end as methods saw it, and the uploads that counted."""

    moment: Moment
    accepted: Sequence[Accepted]


@dataclass
class ServerState:
    """All that the server knows after `round` rounds; with the clients' residuals, a whole run."""

    model: Vector
    round: int = 0
    average: Vector | None = None
    averaged_rounds: int = 0
    totals: Totals = field(default_factory=Totals)
    moments: dict[str, Vector] = field(default_factory=dict)
    """What the server's optimiser remembers."""

    level: dict[str, Any] | None = None
    """Of the controller (`federated/level.py`), where it remembers anything."""

    health: dict[str, Any] = field(default_factory=dict)
    """Of `federated/health.py`."""

    norms: dict[str, Any] | None = None
    """Of the learnt bound (`federated/norms.py`), where limits ask for one."""

    down: ViewState | None = None
    """Of the way down; None before the first round, and where the model is sent as a whole."""

    mirror: Mirror | None = None
    """The server's half of the clients' memories; None where the method has none."""

    closed: Closed | None = None
    """For whoever watches the run; no checkpoint keeps it."""

    @property
    def held(self) -> Vector:
        """The model as clients hold it when the next round begins: what is evaluated, averaged, and the result."""
        return self.model if self.down is None else self.down.view


def pick_participants(plan: Plan, round_number: int) -> list[int]:
    """S_t: uniformly at random, without replacement (line 3)."""
    return pick(plan.clients, plan.participants, plan.seed, round_number)


def pick(clients: int, participants: int, seed: int, round_number: int) -> list[int]:
    """`participants` of the numbers below `clients`, in order."""
    rng = seeds.generator(seed, "sampling", round_number)
    return sorted(rng.choice(clients, participants, replace=False).tolist())


class Intake:
    """The uploads of a round that are in order, with their updates, and for each other client why it was refused.

    An upload counts in its own round and once: what did not count then has returned to its client. No value of an
    update may exceed `largest` (`aggregate.largest_value`). Some clients may have limits of their `own`.
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
        """Of those that are in order, by client."""
        return {client: update for client, (_, update) in self._accepted.items()}

    def refuse(self, client: int, reason: str) -> None:
        """Its upload does not count after all."""
        del self._accepted[client]
        self.refused[client] = reason

    def take(self, upload: Upload) -> None:
        try:
            if upload.round != self.round:
                raise WireError(f"an upload of round {upload.round} in round {self.round}")
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
    """What an upload of each of `clients` counts (line 19)."""
    shares = [plan.task.client_sizes[client] / plan.samples for client in clients]
    return aggregate.weights(shares, plan.clients, plan.weights, plan.participants)


def mirrored(plan: Plan, accepted: Sequence[Accepted], update_weights: Sequence[float], step: float) -> list[Counted]:
    """The accepted uploads as the server's half of the memory sees them."""
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
    """x ← x − Σ weight·Δ̂_i (line 19) over what was accepted, or the optimiser's step, and the totals.

    The last `statistics` elements of the model are averages, which no optimiser moves. In a round without uploads
    nothing moves, unless it `always` does. The model stays finite: `Intake` has bounded the updates, and `clamp` bounds
    the model for the next round. `take_step` subtracts a round's updates from a vector, where they are not all of its
    step.
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
    """The averaged model, of a run of `rounds`: no traffic, and steadier than the last iterate."""
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
