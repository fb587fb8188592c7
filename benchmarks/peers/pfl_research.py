"""Apple's pfl-research: PyTorchModel, FederatedAveraging and SimulatedBackend in one process.

It is set up for speed, as its guides say: the users' datasets are made once and stay in memory as tensors, there is no
privacy mechanism or other postprocessor and no central evaluation, and metrics are not sent to the platform. With any
settings, its algorithm evaluates each user in iteration 0, which is one of the rounds that are not counted.
"""

import os
import random
import time
from collections.abc import Iterator
from importlib.metadata import version

os.environ["PFL_PYTORCH_DEVICE"] = "cpu"

import torch
import work
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional


class Network(nn.Module):
    """The network with the two methods that pfl asks for."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.layers = work.network(name)

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.layers(inputs), labels)

    def metrics(self, inputs: Tensor, labels: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(self.loss(inputs, labels).item() * len(labels), len(labels))}


class RandomBatches(PyTorchTensorDataset):
    """A user whose batches are random.

    pfl's own batches are slices in a fixed order that end with the data: 200 samples give 4 batches of 50, not 5.
    """

    def __init__(self, data: work.Data, steps: int) -> None:
        super().__init__(data)
        self.steps = steps

    def iter(self, batch_size: int) -> Iterator[work.Data]:
        return work.batches(self.raw_data, self.steps, batch_size)


class RoundEnds(TrainingProcessCallback):
    """The time at the end of each round."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.times.append(time.perf_counter())
        return False, Metrics()


class Pfl:
    """One model and backend for all requests, and a new algorithm for each request."""

    name = f"pfl {version('pfl')}"
    kept = 1.0

    def __init__(self, spec: work.Work) -> None:
        torch.set_num_threads(spec.threads)
        self.spec = spec
        self.network = Network(spec.model)
        central = torch.optim.SGD(self.network.parameters(), lr=1.0)  # takes the mean of the clients' models unchanged
        self.model = PyTorchModel(self.network, torch.optim.SGD, central)
        users = [RandomBatches(data, spec.local_steps) for data in work.clients(spec.model, spec.clients)]
        dataset = FederatedDataset(users.__getitem__, self.picked().__next__)
        self.backend = SimulatedBackend(training_data=dataset, val_data=dataset)

    def picked(self) -> Iterator[int]:
        """The users of each round in turn. They all differ; pfl's own random sampler may draw one twice."""
        while True:
            yield from random.sample(range(self.spec.clients), self.spec.participants)

    def run(self, rounds: int) -> list[float]:
        ends = RoundEnds()
        FederatedAveraging().run(
            algorithm_params=NNAlgorithmParams(
                central_num_iterations=rounds,
                evaluation_frequency=rounds,
                train_cohort_size=self.spec.participants,
                val_cohort_size=0,
            ),
            backend=self.backend,
            model=self.model,
            model_train_params=NNTrainHyperParams(
                local_batch_size=self.spec.batch_size,
                local_num_epochs=None,
                local_num_steps=self.spec.local_steps,
                local_learning_rate=work.LEARNING_RATE,
            ),
            model_eval_params=NNEvalHyperParams(local_batch_size=1),  # next to no evaluation in iteration 0
            callbacks=[ends],
            send_metrics_to_platform=False,
        )
        return ends.times

    def weights(self) -> work.State:
        return {key: value.clone() for key, value in self.network.layers.state_dict().items()}


if __name__ == "__main__":
    work.serve(Pfl)
