"""Any torch module on any samples as a task: local SGD and evaluation."""

import copy
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import nn

from gammafl.core.kernels import Vector
from gammafl.tasks.base import Evaluation, LocalUpdate
from gammafl.tasks.flat_module import FlatModule
from gammafl.tasks.samples import Samples

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
EVALUATION_BATCH = 250


class TorchTask:
    """Classification by `module`: accuracy on `test`, SGD on `clients` with batches of `batch_size`.

    Batches are drawn uniformly with replacement, as the paper's stochastic gradient assumes. `initialise`
    resets the module's weights; without it every seed starts from the weights the module came with.
    """

    metric = "accuracy"
    higher_is_better = True

    def __init__(
        self,
        name: str,
        module: nn.Module,
        clients: Sequence[Samples],
        test: Samples,
        batch_size: int,
        loss: Loss = nn.functional.cross_entropy,
        initialise: Callable[[nn.Module], None] | None = None,
    ) -> None:
        self.name = name
        self.clients = clients
        self.client_sizes = [len(client) for client in clients]
        self.test = test
        self.batch_size = batch_size
        self.loss = loss
        self.initialise = initialise
        self.flat = FlatModule(copy.deepcopy(module))
        self.tensors = self.flat.shapes
        self._start = self.flat.weights.clone()

    def initial_model(self, rng: np.random.Generator) -> Vector:
        self.flat.weights.copy_(self._start)
        if self.initialise is not None:
            _seed_torch(rng)
            self.initialise(self.flat.module)
        return self.flat.weights.numpy().copy()

    def train(
        self, clients: Sequence[int], model: Vector, stepsizes: Vector, rngs: Sequence[np.random.Generator]
    ) -> Iterator[LocalUpdate]:
        delta = np.empty_like(model)
        self.flat.module.train()
        for client, rng in zip(clients, rngs, strict=True):
            samples = self.clients[client]
            draws = rng.integers(len(samples), size=len(stepsizes) * self.batch_size)
            _seed_torch(rng)  # for what the module or the data set draws itself, such as dropout
            inputs, targets = (part.split(self.batch_size) for part in samples.batch(draws))  # one gather a round
            self.flat.load(model)
            total = 0.0
            for x, y, stepsize in zip(inputs, targets, stepsizes, strict=True):
                loss = self.loss(self.flat.module(x), y)
                self.flat.step(loss, float(stepsize))
                total += loss.item()
            np.subtract(model, self.flat.weights.numpy(), out=delta)
            yield LocalUpdate(delta, total / len(stepsizes))

    @torch.inference_mode()
    def evaluate(self, model: Vector) -> Evaluation:
        self.flat.load(model)
        self.flat.module.eval()
        loss = correct = 0.0
        for start in range(0, len(self.test), EVALUATION_BATCH):
            rows = np.arange(start, min(start + EVALUATION_BATCH, len(self.test)))
            inputs, targets = self.test.batch(rows)
            outputs = self.flat.module(inputs)
            loss += self.loss(outputs, targets).item() * len(rows)
            correct += (outputs.argmax(-1) == targets).sum().item()
        return Evaluation(loss / len(self.test), correct / len(self.test))

    def module_with(self, model: Vector) -> nn.Module:
        """A copy of the module that holds the weights `model`."""
        self.flat.load(model)
        module = copy.deepcopy(self.flat.module)
        for parameter in module.parameters():
            parameter.data, parameter.grad = parameter.data.clone(), None
        return module.eval()


def _seed_torch(rng: np.random.Generator) -> None:
    torch.default_generator.manual_seed(int(rng.integers(2**63)))
