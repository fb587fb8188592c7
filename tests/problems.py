"""Small problems for tests: a task without torch whose gradient is known, and torch data sets."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

import gammafl as gf
from gammafl.core.arrays import Vector
from gammafl.core.compressors import Compressor
from gammafl.core.method import as_method
from gammafl.federated import rounds
from gammafl.federated.in_process import InProcess
from gammafl.federated.plan import Plan
from gammafl.federated.records import RoundRecord
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.server import ServerState
from gammafl.federated.task import Evaluation, LocalUpdate

STEPSIZE = gf.InverseDecay(20, 100)

METHODS: dict[str, gf.Method] = {
    "fedavg": gf.fedavg(),
    "ht": gf.hard_threshold(threshold=0.05),
    "gamma-fedht": gf.gamma_fedht(initial_threshold=0.1),
    "top-k": gf.top_k(keep=0.1),
    "stc": gf.stc(keep=0.1),
    "gamma-fedht-q": gf.gamma_fedht_q(initial_threshold=0.1),
}


class Quadratic:
    """f_i(x) = ½‖x − c_i‖²: client i pulls towards its own centre, with noise in the gradient."""

    name, metric, higher_is_better = "quadratic", "distance", False

    def __init__(self, sizes: Sequence[int] = (10, 20, 30, 40), dim: int = 50) -> None:
        self.client_sizes = list(sizes)
        self.centres = np.random.default_rng(5).standard_normal((len(sizes), dim)).astype(np.float32)
        self.tensors = {"first": (dim - 10,), "second": (2, 5)}
        self.statistics: dict[str, tuple[int, ...]] = {}
        self.deltas: list[tuple[int, Vector]] = []

    def fingerprint(self) -> int:
        return 0

    def initial_model(self, rng: np.random.Generator) -> Vector:
        return np.asarray(rng.standard_normal(self.centres.shape[1:]), np.float32)

    def gradient(self, client: int, x: Vector, rng: np.random.Generator) -> Vector:
        return x - self.centres[client] + np.float32(0.1) * rng.standard_normal(x.size, np.float32)

    def train(
        self, clients: Sequence[int], model: Vector, stepsizes: Vector, rngs: Sequence[np.random.Generator]
    ) -> Iterator[LocalUpdate]:
        for client, rng in zip(clients, rngs, strict=True):
            x = model.copy()
            for stepsize in stepsizes:
                x -= stepsize * self.gradient(client, x, rng)
            self.deltas.append((client, model - x))
            yield LocalUpdate(model - x, float(stepsizes[0]))

    def evaluate(self, model: Vector) -> Evaluation:
        shares = np.array(self.client_sizes) / sum(self.client_sizes)
        distance = float(np.linalg.norm(model - shares @ self.centres))
        return Evaluation(distance**2 / 2, distance)


def plan_for(method: gf.Method | Compressor, task: Any = None, **changes: Any) -> Plan:
    settings: dict[str, Any] = {"iterations": 200, "local_steps": 5, "participants": 2, "seed": 0}
    return Plan(task=task or Quadratic(), method=as_method(method), stepsize=STEPSIZE, **settings | changes)


def run(plan: Plan) -> tuple[ServerState, ResidualStore, list[RoundRecord]]:
    """All rounds of `plan` in this process."""
    state, residuals = rounds.start(plan), ResidualStore(plan.method, plan.dim)
    return state, residuals, list(rounds.run_rounds(plan, state, InProcess(plan, residuals)))


def blobs(clients: int = 4, each: int = 40, seed: int = 0) -> tuple[list[TensorDataset], TensorDataset]:
    """Three separable clouds of points; client i holds mostly class i mod 3."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(3, 8, generator=generator)

    def points(labels: torch.Tensor) -> TensorDataset:
        return TensorDataset(centres[labels] + 0.5 * torch.randn(len(labels), 8, generator=generator), labels)

    mixed = torch.randint(3, (each,), generator=generator)
    skewed = [torch.where(torch.arange(each) % 4 > 0, i % 3, mixed) for i in range(clients)]
    return [points(labels) for labels in skewed], points(torch.arange(300) % 3)


class OnRound(gf.Callback):
    """A function as a callback."""

    def __init__(self, function: Callable[[gf.Round], str | None]) -> None:
        self.on_round = function  # type: ignore[assignment, method-assign]


class StoppedError(Exception):
    """A run was stopped on purpose."""


class StoppingAt:
    """A progress that stops its run after a round."""

    def __init__(self, round_number: int) -> None:
        self.round = round_number

    def say(self, text: str) -> None: ...

    def update(self, status: Any) -> None:
        if status.round == self.round:
            raise StoppedError
