"""Any torch module on any samples as a task: local training and evaluation."""

import copy
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gammafl.config.schema import Precision
from gammafl.core import threads
from gammafl.core.arrays import Vector
from gammafl.core.device.places import Place, place_named
from gammafl.core.device.torch_vectors import TorchVector
from gammafl.core.device.vectors import NOWHERE
from gammafl.core.errors import InputError, require
from gammafl.federated import batch_draws as streams
from gammafl.federated.task import Evaluation, LocalUpdate
from gammafl.tasks.device_replica import DeviceReplica, require_precision
from gammafl.tasks.fast.convolutions.block import has_compiled
from gammafl.tasks.fast.replicas import LARGE, Replica, Replicas, Training
from gammafl.tasks.fast.softmax_regression import SoftmaxRegression, is_softmax_regression
from gammafl.tasks.flat_module import Buffers, FlatModule, plain_copy, shapes
from gammafl.tasks.metrics import MetricChoice, metrics_of, right_answers
from gammafl.tasks.nested import Nested, leaves, mapped
from gammafl.tasks.objective import Loss, Objective
from gammafl.tasks.optimizers import LocalRule, OptimizerChoice, local_rule
from gammafl.tasks.placed_samples import Placement
from gammafl.tasks.samples import ImageSamples, Samples, Table, TensorSamples, batches

FINGERPRINTED = 1000


class TorchTask:
    """`module` trained on `clients` with batches of `batch_size`, evaluated on `test`.

    Local steps are plain SGD, unless `train_by` sets an optimiser. Batches are drawn from the streams given to `train`:
    uniformly with replacement, as the paper's stochastic gradient assumes, or in passes (`Passes`).

    loss         a mean over the samples of a batch; None: the model's own loss
    metric       "accuracy", the share of right answers; "perplexity", exp(mean loss); "loss", the mean loss; a function
                 of (outputs, targets) of the whole test set; or a table of several
    initialise   resets the module's weights. Without it, every seed starts from the module's own weights
    fast         use compiled loops instead of torch if possible (`tasks/fast`)
    """

    def __init__(
        self,
        name: str,
        module: nn.Module,
        clients: Sequence[Samples],
        test: Samples,
        batch_size: int,
        loss: Loss | None = nn.functional.cross_entropy,
        initialise: Callable[[nn.Module], None] | None = None,
        metric: MetricChoice = "accuracy",
        evaluation_batch: int = 250,
        buffers: Buffers = "refuse",
        higher_is_better: bool = True,
        fast: bool = True,
    ) -> None:
        whole = isinstance(batch_size, int) and batch_size >= 1
        require(whole, f"batch_size must be a whole number of at least 1, got {batch_size}")
        self.metrics = metrics_of(metric, higher_is_better)
        self.metric = self.metrics.first
        self.higher_is_better = self.metrics.higher_is_better
        self.evaluation_batch = evaluation_batch
        self.evaluation_samples: int | None = None
        self.buffers = buffers
        self.name = name
        self.clients = clients
        self.client_sizes = [len(client) for client in clients]
        self.test = test
        self.batch_size = batch_size
        self.objective = Objective(loss)
        self.initialise = initialise
        module = plain_copy(module)
        self.fast = fast
        self._home = next(module.parameters(), torch.empty(0)).device
        require(self._home.type != NOWHERE, "the model is on 'meta', which holds nothing: give it weights first")
        module = module.to("cpu")
        self._softmax = SoftmaxRegression(module) if is_softmax_regression(module, loss) else None
        self._start = FlatModule(module, buffers)
        self.tensors = shapes(self._start.parameters)
        self.statistics = shapes(self._start.statistics)
        self.optimizer: OptimizerChoice = None
        self.proximal = 0.0
        self._rule: LocalRule | None = None
        self.place = Place()
        self.precision: Precision = "f32"
        self._placement: Placement | None = None
        self._replicas = Replicas(self._replica, large=self._start.weights.numel() >= LARGE)
        self._initial = None if initialise else self._start.weights.numpy().copy()
        self._tables_made: dict[int, Table | None] = {}
        self.put_on()

    def train_by(self, optimizer: OptimizerChoice = None, proximal: float = 0.0) -> None:
        """Sets the clients' optimiser, None for plain SGD, and FedProx's μ `proximal`."""
        self._rule = local_rule(optimizer, proximal, list(self._start.parameters.values()))
        self.optimizer, self.proximal = optimizer, proximal
        self._replicas.forget()

    def put_on(self, device: Any = None, precision: Precision = "f32") -> None:
        """Sets the device of the training, by default the module's, and the precision of steps."""
        known = get_args(Precision)
        require(precision in known, f"precision must be one of {', '.join(known)}, got {precision!r}")
        kinds = {parameter.dtype for parameter in self._start.parameters.values()}
        require(
            precision != "f16" or torch.float16 not in kinds,
            "precision='f16' is for weights of float32, whose gradients it scales, and these are of float16: leave it"
            " out, or give model.float()",
        )
        place = place_named(self._home if device is None else device)
        require_precision(place.device or torch.device("cpu"), precision)
        self.place, self.precision = place, precision
        self._placement = None if self.place.is_host else Placement(self.place.device)
        self._replicas.forget()

    @property
    def _by_torch(self) -> bool:
        """Whether torch's own operations train: on a device, or in a precision other than float32."""
        return not self.place.is_host or self.precision != "f32" or not self._start.is_exact

    def _replica(self) -> Replica:
        module, rule = self._start.module, self._rule
        if not self._by_torch:
            return Replica(module, self.objective, self.buffers, rule, self.fast)
        device = self.place.device or torch.device("cpu")
        return DeviceReplica(module, self.objective, self.buffers, rule, device, self.precision)

    def _placed(self, model: Vector) -> Any:
        """The model in the place where copies of the module read it."""
        if not self._by_torch:
            return model
        return TorchVector(torch.from_numpy(model).to(self.place.device or "cpu", copy=True))

    @property
    def _threads(self) -> int:
        return 1 if self._by_torch else threads.count()

    @property
    def arithmetic(self) -> str:
        """Which code computes, since other code rounds differently."""
        if self._by_torch:
            kind = "cpu" if self.place.is_host else self.place.device.type
            return f"torch on {kind}" + ("" if self.precision == "f32" else f" in {self.precision}")
        if self.fast and self._softmax is not None:
            return "compiled softmax regression"
        return "compiled convolutions" if self.fast and has_compiled(self._start.module) else "torch"

    @property
    def optimizer_text(self) -> str:
        """The optimiser of local training and its settings."""
        return "sgd" if self._rule is None else self._rule.text

    def fingerprint(self) -> int:
        """A checksum of the clients' sizes, and of a few samples of at most `FINGERPRINTED` clients."""
        checksum = zlib.crc32(repr(self.client_sizes).encode())
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            some = range(0, len(self.clients), -(-len(self.clients) // FINGERPRINTED))
            for samples in [*(self.clients[client] for client in some), self.test]:
                for part in leaves(samples.batch(np.arange(min(4, len(samples))))):
                    plain = part.detach().cpu().reshape(-1).view(torch.uint8)  # numpy has no bf16
                    checksum = zlib.crc32(plain.numpy().tobytes(), checksum)
        return checksum

    def check_precision(self) -> None:
        """Refuses samples in a precision that the module and the loss can't take, such as numpy's usual float64.

        If samples are made one by one, only the first client's data set and the test set are checked.
        """
        named = {f"client_datasets[{i}]": samples for i, samples in enumerate(self.clients)}
        for name, samples in {**named, "test_dataset": self.test}.items():
            if not isinstance(samples, TensorSamples) and name not in ("client_datasets[0]", "test_dataset"):
                continue
            with torch.random.fork_rng(devices=[]):
                batch = samples.batch(np.zeros(1, np.int64))
                odd = [part.dtype for part in leaves(batch) if part.is_floating_point() and part.dtype != self._kind]
                if odd and not self._takes(*batch) and self._takes(*mapped(self._converted, batch)):
                    kind, wanted = (str(dtype).removeprefix("torch.") for dtype in (odd[0], self._kind))
                    how = "array.astype(np.float32) or tensor.float()" if wanted == "float32" else f"tensor.{wanted}()"
                    raise InputError(
                        f"{name} holds {kind} numbers, which a model of {wanted} weights can't be trained on: convert"
                        f" them, as by {how}"
                    )

    @property
    def _kind(self) -> torch.dtype:
        """The precision of the weights."""
        return next(iter(self._start.parameters.values())).dtype

    def _converted(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._kind) if tensor.is_floating_point() else tensor

    def _takes(self, inputs: Nested, targets: Nested) -> bool:
        """Whether module and loss accept such samples. A module may convert them itself."""
        try:
            self.objective(self.module_with(self._start.weights.numpy()).to("cpu"), inputs, targets)[0].backward()
        except (RuntimeError, ValueError, TypeError):
            return False
        return True

    def initial_model(self, rng: np.random.Generator) -> Vector:
        if self._initial is not None:
            return self._initial.copy()
        assert self.initialise is not None
        _seed_torch(rng)
        self.initialise(self._start.module)
        return self._start.weights.numpy().copy()

    def train(
        self, clients: Sequence[int], model: Vector, stepsizes: Vector, rngs: Sequence[np.random.Generator]
    ) -> Iterator[LocalUpdate]:
        """Trains as many clients at a time as there are threads. Each has its own random state, such as for dropout."""
        plain = self._softmax if self.fast and self._rule is None and not self._by_torch else None
        if plain is not None and (tables := self._tables(clients, plain.features)) is not None:
            size = len(stepsizes) * self.batch_size
            draws = streams.integers(rngs, [self.client_sizes[client] for client in clients], size)
            yield from plain.train(tables, draws, model, stepsizes)
            return
        torch.set_num_threads(1)
        start = self._placed(model)
        fetches = [
            partial(self._fetch, self._samples(self.clients[client]), start, stepsizes, rngs, number)
            for number, client in enumerate(clients)
        ]
        yield from self._replicas.train(fetches, len(stepsizes), self._threads)

    def _samples(self, samples: Samples) -> Samples:
        """The samples on the module's device."""
        return samples if self._placement is None else self._placement.of(samples)

    def _tables(self, clients: Sequence[int], features: int) -> list[Table] | None:
        """The clients' samples as plain arrays, if all have tables with `features` columns; else None."""
        for client in clients:
            if client not in self._tables_made:
                samples = self.clients[client]
                plain = samples.table() if isinstance(samples, ImageSamples | TensorSamples) else None
                self._tables_made[client] = plain
        tables = [self._tables_made[client] for client in clients]
        found = [table for table in tables if table is not None and table.inputs.shape[1] == features]
        return found if len(found) == len(clients) else None

    def _fetch(
        self, samples: Samples, model: Any, stepsizes: Vector, rngs: Sequence[np.random.Generator], number: int
    ) -> Training:
        """A client's samples for a round, read at once."""
        draws, rng = streams.drawn(rngs, number, len(samples), len(stepsizes) * self.batch_size)
        _seed_torch(rng)  # for random numbers of the data set, then of the module
        fetched = batches(samples, draws, len(stepsizes))
        return Training(model, fetched, stepsizes, torch.get_rng_state())

    def evaluate(self, model: Vector) -> Evaluation:
        """Evaluates as many batches at a time as there are threads. This thread reads them, as for training.

        If the data set or the module draws random numbers, they are the same in each evaluation.
        """
        parts, test, start = self._evaluation_batches(), self._samples(self.test), self._placed(model)
        at_once = min(self._threads, len(parts))
        torch.set_num_threads(1)
        torch.default_generator.manual_seed(0)
        for replica in self._replicas.get(at_once):
            replica.prepare(start)
        jobs = (partial(self._evaluate, *test.batch(rows), number, len(rows)) for number, rows in enumerate(parts))
        sums, outputs, targets = zip(*self._replicas.in_order(jobs, at_once), strict=True)
        loss, accuracy = (np.sum(sums, 0) / sum(map(len, parts))).tolist()
        first, *others = self.metrics.values(loss, accuracy, outputs, targets)
        return Evaluation(loss, first, dict(zip(list(self.metrics.named)[1:], others, strict=True)))

    def _evaluate(
        self, inputs: Nested, targets: Nested, seed: int, count: int, replica: Replica
    ) -> tuple[tuple[float, int], Nested, Nested]:
        """(sum of losses, number of right answers), and the outputs and targets for a user's own metrics."""
        mean, outputs = replica.evaluate(inputs, targets, seed)
        right = right_answers(outputs, targets) if self.metrics.counts_answers else 0
        looked_at = (outputs, targets) if self.metrics.needs_outputs else (None, None)
        return (mean.item() * count, right), *looked_at

    def _evaluation_batches(self) -> list[NDArray[np.int64]]:
        """The rows of the test set, or of its first `evaluation_samples`, in batches of about equal size."""
        rows = np.arange(min(len(self.test), self.evaluation_samples or len(self.test)))
        if self.buffers == "local":  # batches are normalised by their own statistics: mix the classes
            rows = np.random.default_rng(0).permutation(rows)
        return np.array_split(rows, -(-len(rows) // self.evaluation_batch))

    def module_with(self, model: Vector) -> nn.Module:
        """A copy of the module with the weights `model`."""
        self._start.load(model)
        module = copy.deepcopy(self._start.module)
        for tensor in [*module.parameters(), *module.buffers()]:
            tensor.data, tensor.grad = tensor.data.clone(), None
        return module.to(self._home).eval()


def _seed_torch(rng: np.random.Generator) -> None:
    torch.default_generator.manual_seed(int(rng.integers(2**63)))
