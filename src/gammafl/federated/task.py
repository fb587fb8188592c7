"""What a task is: data split over clients, a model as one flat vector, local training, evaluation.

Nothing else of a task is seen by the simulator's round loop, or by one's own code.
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
    """What a partition may split the training samples by, an entry a sample: label, natural group, size."""

    labels: NDArray[np.integer] | None = None
    groups: NDArray[np.integer] | None = None
    sizes: NDArray[np.integer] | None = None

    def __len__(self) -> int:
        return next(len(fact) for fact in (self.labels, self.groups, self.sizes) if fact is not None)


Split = Callable[[SampleFacts], list[NDArray[np.int64]]]
"""Facts → the rows of each client."""


@dataclass(frozen=True)
class Evaluation:
    """The model on the whole test set: mean loss, the task's metric, and others by name where there are some."""

    loss: float
    metric: float
    others: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LocalUpdate:
    """Δ = x_{t+1−E} − x_{t+1} of one client (in the direction of descent), and its mean training loss.

    `largest` is max |Δ_j| where the task knows it, which spares the compressor a look.
    """

    delta: Vector
    loss: float
    largest: float | None = None


class Task(Protocol):
    """A learning problem that is spread over clients."""

    @property
    def name(self) -> str: ...

    @property
    def metric(self) -> str:
        """What `Evaluation.metric` is: "accuracy", "perplexity", …"""
        ...

    @property
    def higher_is_better(self) -> bool: ...

    @property
    def tensors(self) -> Mapping[str, tuple[int, ...]]:
        """Name and shape of each trained tensor of the model, in the order of the flat vector."""
        ...

    @property
    def statistics(self) -> Mapping[str, tuple[int, ...]]:
        """Name and shape of what follows them in the vector and is sent uncompressed, such as running statistics."""
        ...

    @property
    def client_sizes(self) -> Sequence[int]:
        """|D^i|: how many samples each client holds."""
        ...

    def fingerprint(self) -> int:
        """A number that tells other data apart from these, for a run that is resumed."""
        ...

    def initial_model(self, rng: np.random.Generator) -> Vector:
        """x_0 as a flat float32 vector."""
        ...

    def train(
        self, clients: Sequence[int], model: Vector, stepsizes: Vector, rngs: Sequence[np.random.Generator]
    ) -> Iterator[LocalUpdate]:
        """One local step per stepsize for each of `clients`, all from `model`; an update each, in order.

        An update's vector is valid until the next one is asked for.
        """
        ...

    def evaluate(self, model: Vector) -> Evaluation: ...


def layout_of(task: Task) -> Layout:
    """Where the task's tensors lie in the flat vector."""
    return Layout.of(task.tensors, task.statistics)
