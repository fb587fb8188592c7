"""gammafl as one of the contenders of `simulate`: γ-FedHT with real messages, over the peers' protocol.

It does more work than its peers: images are bytes that every step normalises, and every update is compressed, encoded,
decoded and checked.
"""

import math
import time
from importlib.metadata import version

import numpy as np

from benchmarks.peers import work
from gammafl.config.schema import EvaluationSettings, Input, NoAverage
from gammafl.core import threads
from gammafl.core.stepsizes import Constant
from gammafl.federated import rounds
from gammafl.federated.in_process import InProcess
from gammafl.federated.plan import Plan
from gammafl.federated.residuals import ResidualStore
from gammafl.methods.gamma_fedht import gamma_fedht
from gammafl.tasks.build import normaliser
from gammafl.tasks.samples import ImageShards
from gammafl.tasks.torch_task import TorchTask

THRESHOLDS = {"logistic": 0.3, "cnn": 0.008, "vgg11s": 0.0003, "lenet": 0.01, "resnet": 0.01}
"""λ_t that keeps about 1% of an update for logistic regression and 0.1% for the CNN and VGG11s, as in the paper."""
ROUNDS = 1_000_000
"""More rounds than any request asks for. Only the last round is evaluated, and it is never reached."""


def make_task(spec: work.Work) -> TorchTask:
    """The peers' networks on random bytes of the same shape and number."""
    channels = 1 if spec.model == "logistic" else 3
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (spec.clients * work.SAMPLES, channels, 32, 32), np.uint8)
    labels = random.integers(0, work.CLASSES, len(images), np.uint8)
    normalise = normaliser(Input(mean=(0.5,) * channels, std=(0.25,) * channels), channels)
    shards = np.array_split(np.arange(len(images)), spec.clients)
    clients = ImageShards(images, labels, normalise, shards)
    return TorchTask(spec.model, work.network(spec.model), clients, clients[0], spec.batch_size)


def make_plan(task: TorchTask, threshold: float, participants: int, local_steps: int, rounds_made: int) -> Plan:
    """γ-FedHT with a constant stepsize, so that λ_t is constant too; evaluated after the last round only."""
    stepsize, iterations = Constant(work.LEARNING_RATE), rounds_made * local_steps
    initial = math.sqrt(2) * threshold
    return Plan(
        task,
        gamma_fedht(initial_threshold=initial),
        stepsize,
        iterations,
        local_steps,
        participants,
        seed=0,
        averaging=NoAverage(),
        evaluation=EvaluationSettings(every=rounds_made),
    )


class Gammafl:
    """A run that continues from one request to the next."""

    name = f"gammafl {version('gammafl')}"

    def __init__(self, spec: work.Work) -> None:
        threads.set_count(spec.threads)
        plan = make_plan(make_task(spec), THRESHOLDS[spec.model], spec.participants, spec.local_steps, ROUNDS)
        self.state = rounds.start(plan)
        self.records = rounds.run_rounds(plan, self.state, InProcess(plan, ResidualStore(plan.method, plan.dim)))

    @property
    def kept(self) -> float:
        totals = self.state.totals
        return totals.kept / max(1, totals.uploads) / self.state.model.size

    def run(self, count: int) -> list[float]:
        ends = []
        for _ in range(count):
            next(self.records)
            ends.append(time.perf_counter())
        return ends

    def weights(self) -> work.State:
        raise NotImplementedError("CHECK=1 checks the peers only; gammafl has its own tests")


if __name__ == "__main__":
    work.serve(Gammafl)
