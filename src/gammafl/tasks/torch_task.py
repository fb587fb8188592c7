"""Any torch module on any samples as a task: local SGD and evaluation."""

import copy
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gammafl.core.errors import InputError, require
from gammafl.core.kernels import Vector
from gammafl.tasks.base import Evaluation, LocalUpdate
from gammafl.tasks.flat_module import Buffers, FlatModule, shapes
from gammafl.tasks.samples import Samples

Metric = Literal["accuracy", "perplexity", "loss"]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class TorchTask:
    """`module` trained by SGD on `clients` with batches of `batch_size`, evaluated on `test`.

    The metric is the share of right answers ("accuracy"), exp(mean loss) ("perplexity") or the mean loss itself
    ("loss"); `loss` must be a mean over the samples of a batch. Batches are drawn uniformly with replacement, as
    the paper's stochastic gradient assumes. `initialise` resets the module's weights; without it every seed
    starts from the weights the module came with.
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        clients: Sequence[Samples],
        test: Samples,
        batch_size: int,
        loss: Loss = nn.functional.cross_entropy,
        initialise: Callable[[nn.Module], None] | None = None,
        metric: Metric = "accuracy",
        evaluation_batch: int = 250,
        buffers: Buffers = "refuse",
    ) -> None:
        require(metric in get_args(Metric), f"metric must be one of {', '.join(get_args(Metric))}, got {metric!r}")
        self.metric = metric
        self.higher_is_better = metric == "accuracy"
        self.evaluation_batch = evaluation_batch
        self.evaluation_samples: int | None = None
        self.buffers = buffers
        self.name = name
        self.clients = clients
        self.client_sizes = [len(client) for client in clients]
        self.test = test
        self.batch_size = batch_size
        self.loss = loss
        self.initialise = initialise
        self.flat = FlatModule(copy.deepcopy(module), buffers)
        self.tensors = shapes(self.flat.parameters)
        self.statistics = shapes(self.flat.statistics)
        self._start = None if initialise else self.flat.weights.clone()

    def fingerprint(self) -> int:
        """A checksum of the clients' sizes and of a few samples of each."""
        checksum = zlib.crc32(repr(self.client_sizes).encode())
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            for samples in [*self.clients, self.test]:
                for part in samples.batch(np.arange(min(4, len(samples)))):
                    checksum = zlib.crc32(part.contiguous().numpy().tobytes(), checksum)
        return checksum

    def initial_model(self, rng: np.random.Generator) -> Vector:
        if self._start is not None:
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

    @torch.no_grad()
    def evaluate(self, model: Vector) -> Evaluation:
        self.flat.load(model)
        self.flat.module.eval()
        loss = correct = 0.0
        batches = self._evaluation_batches()
        for rows in batches:
            inputs, targets = self.test.batch(rows)
            outputs = self.flat.module(inputs)
            loss += self.loss(outputs, targets).item() * len(rows)
            if self.metric == "accuracy":
                correct += _right_answers(outputs, targets)
        count = sum(map(len, batches))
        loss /= count
        metrics = {"accuracy": correct / count, "perplexity": math.exp(min(loss, 700)), "loss": loss}
        return Evaluation(loss, metrics[self.metric])

    def _evaluation_batches(self) -> list[NDArray[np.int64]]:
        """The rows of the test set, or of its first `evaluation_samples`, in batches of about equal size."""
        rows = np.arange(min(len(self.test), self.evaluation_samples or len(self.test)))
        if self.buffers == "local":  # a batch is normalised by its own statistics, so it had better be a mixed one
            rows = np.random.default_rng(0).permutation(rows)
        return np.array_split(rows, -(-len(rows) // self.evaluation_batch))

    def module_with(self, model: Vector) -> nn.Module:
        """A copy of the module that holds the weights `model`."""
        self.flat.load(model)
        module = copy.deepcopy(self.flat.module)
        for tensor in [*module.parameters(), *module.buffers()]:
            tensor.data, tensor.grad = tensor.data.clone(), None
        return module.eval()


def _right_answers(outputs: torch.Tensor, targets: torch.Tensor) -> int:
    if outputs.dim() != 2 or targets.shape != outputs.shape[:1]:
        raise InputError(
            f"accuracy needs a score for each class, [samples, classes], and a class for each sample; the model gives"
            f" {list(outputs.shape)} for targets of {list(targets.shape)}. Use metric='loss' or metric='perplexity'"
        )
    return int((outputs.argmax(1) == targets).sum())


def _seed_torch(rng: np.random.Generator) -> None:
    torch.default_generator.manual_seed(int(rng.integers(2**63)))
