"""The interface of a task: data split over clients, a model as one flat vector, local training, evaluation.

The simulator's round loop uses nothing else of a task.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gammafl.core.arrays import Vector
from gammafl.core.layout import Layout


@dataclass(frozen=True)
class SampleFacts:
    """Facts about the training samples for a partition, one entry per sample: label, natural group, size."""

    labels: NDArray[np.integer] | None = None
    groups: NDArray[np.integer] | None = None
    sizes: NDArray[np.integer] | None = None

    def __len__(self) -> int:
        return next(len(fact) for fact in (self.labels, self.groups, self.sizes) if fact is not None)


Split = Callable[[SampleFacts], list[NDArray[np.int64]]]
"""Facts → the row numbers of each client."""


@dataclass(frozen=True)
class Evaluation:
    """The model's mean loss on the whole test set, the task's metric, and further metrics by name."""

    loss: float
    metric: float
    others: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LocalUpdate:
    """Δ = x_{t+1−E} − x_{t+1} of one client (in the direction of descent), and its mean training loss.

    `largest` is max |Δ_j| if the task knows it. It saves the compressor a pass over the vector.
    """

    delta: Vector
    loss: float
    largest: float | None = None


class Task(Protocol):
    """A learning problem whose data are spread over clients."""

    @property
    def name(self) -> str: ...

    @property
    def metric(self) -> str:
        """The name of `Evaluation.metric`: "accuracy", "perplexity", …"""
        ...

    @property
    def higher_is_better(self) -> bool: ...

    @property
    def tensors(self) -> Mapping[str, tuple[int, ...]]:
        """Name and shape of each trained tensor of the model, in the order of the flat vector."""
        ...

    @property
    def statistics(self) -> Mapping[str, tuple[int, ...]]:
        """Name and shape of the tensors after those, which are sent uncompressed, such as running statistics."""
        ...

    @property
    def client_sizes(self) -> Sequence[int]:
        """|D^i|: how many samples each client holds."""
        ...

    def fingerprint(self) -> int:
        """A number that differs for other data, to check a resumed run."""
        ...

    def initial_model(self, rng: np.random.Generator) -> Vector:
        """x_0 as a flat float32 vector."""
        ...

    def train(
        self, clients: Sequence[int], model: Vector, stepsizes: Vector, rngs: Sequence[np.random.Generator]
    ) -> Iterator[LocalUpdate]:
        """Runs one local step per stepsize for each of `clients`, all from `model`. Yields one update each, in order.

        An update's vector is valid only until the next one is yielded.
        """
        ...

    def evaluate(self, model: Vector) -> Evaluation: ...


def layout_of(task: Task) -> Layout:
    """The layout of the task's flat vector."""
    return Layout.of(task.tensors, task.statistics)
