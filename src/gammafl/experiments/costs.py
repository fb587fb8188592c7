"""What runs cost, as data: seconds of one core, measured on a machine with 2 AVX2 cores at one thread a run.

gammafl run TASK --set threads=1 --profile      prints the phases that these numbers come from
"""

from dataclasses import dataclass

from gammafl.config.schema import RunConfig


@dataclass(frozen=True)
class UnitCost:
    """Seconds to set up a run, of one local step of one client with its share of the round, of one evaluation."""

    setup: float
    step: float
    evaluation: float

    def seconds(self, config: RunConfig) -> float:
        """Of a whole run; the averaged model is evaluated too, in the last tenth."""
        evaluation, samples = config.evaluation, config.evaluation.samples
        evaluations = config.rounds * (0.8 / evaluation.every + 0.3 / evaluation.every_in_tail) + 1
        share = min(1.0, samples / TEST_SAMPLES) if samples else 1.0
        return self.setup + self.step * config.iterations * config.participants + self.evaluation * share * evaluations


TEST_SAMPLES = 10_000

UNIT_COSTS = {
    "logistic-mini": UnitCost(0.6, 1.0e-4, 0.005),
    "logistic-fmnist": UnitCost(1.5, 1.2e-4, 0.012),
    "cnn-cifar10": UnitCost(1.0, 5.5e-3, 2.0),
    "vgg11s-flickr": UnitCost(5.0, 2.4e-2, 5.0),
    "gpt2-wikitext2": UnitCost(20.0, 8.0, 60.0),
}
"""A full run: Logistic about 16 s, CNN about 23 min."""

PROCESS = 4.0
"""Seconds until a fresh worker process has imported what it needs."""


def run_seconds(config: RunConfig) -> float:
    """Of one run on one core; a task that was never measured counts as CNN."""
    return UNIT_COSTS.get(config.task, UNIT_COSTS["cnn-cifar10"]).seconds(config)
