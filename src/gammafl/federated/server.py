"""The server: its model, what it accepts, its update (Algorithm 1, lines 3 and 17-19), its averaged model."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gammafl import seeds
from gammafl.config import ExponentialAverage, NoAverage, TailAverage
from gammafl.core import aggregate
from gammafl.core.errors import WireError
from gammafl.core.kernels import Vector
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import decode
from gammafl.federated.client import Upload
from gammafl.federated.plan import Plan


@dataclass
class Totals:
    """Sums over the rounds so far, of what the server received."""

    uploads: int = 0
    kept: int = 0
    uplink_bytes: int = 0


@dataclass
class ServerState:
    """All that the server knows after `round` rounds; with the clients' residuals, a whole run."""

    model: Vector
    round: int = 0
    average: Vector | None = None
    averaged_rounds: int = 0
    totals: Totals = field(default_factory=Totals)


def pick_participants(plan: Plan, round_number: int) -> list[int]:
    """S_t: uniformly at random, without replacement (line 3)."""
    rng = seeds.generator(plan.seed, "sampling", round_number)
    return sorted(rng.choice(plan.clients, plan.participants, replace=False).tolist())


def receive(uploads: Sequence[Upload], dim: int) -> tuple[list[tuple[Upload, SparseUpdate]], dict[int, str]]:
    """The well-formed uploads with their updates, and for each other client why its upload was refused."""
    accepted, refused = [], {}
    for upload in uploads:
        try:
            update = decode(upload.payload)
            if update.dim != dim:
                raise WireError(f"an update of {update.dim} elements for a model of {dim}")
            accepted.append((upload, update))
        except WireError as error:
            refused[upload.client] = str(error)
    return accepted, refused


def apply(plan: Plan, state: ServerState, accepted: Sequence[tuple[Upload, SparseUpdate]]) -> None:
    """x ← x − (n/|S|)·Σ p_i·Δ̂_i (line 19) over what was accepted, and the totals."""
    if accepted:
        shares = [plan.task.client_sizes[upload.client] / plan.samples for upload, _ in accepted]
        updates = [update for _, update in accepted]
        aggregate.subtract(state.model, updates, aggregate.weights(shares, plan.clients, plan.weights))
    state.totals.uploads += len(accepted)
    state.totals.kept += sum(len(update) for _, update in accepted)
    state.totals.uplink_bytes += sum(len(upload.payload) for upload, _ in accepted)
    state.round += 1
    _average(plan, state)


def _average(plan: Plan, state: ServerState) -> None:
    """The server's averaged model: no traffic, and steadier than the last iterate."""
    how = plan.averaging
    if isinstance(how, NoAverage):
        return
    if isinstance(how, TailAverage) and state.round <= plan.rounds - max(1, round(how.fraction * plan.rounds)):
        return
    state.averaged_rounds += 1
    if state.average is None:
        state.average = state.model.copy()
        return
    share = 1 - how.decay if isinstance(how, ExponentialAverage) else 1 / state.averaged_rounds
    state.average += np.float32(share) * (state.model - state.average)


def round_stepsizes(plan: Plan, round_number: int) -> NDArray[np.float32]:
    """γ_t of the round's local iterations t."""
    start = round_number * plan.local_steps
    return np.array([plan.stepsize(t) for t in range(start, start + plan.local_steps)], np.float32)
