"""Logistic regression by its own gradient: the local steps of many clients are one compiled call.

For logits z = W·u + b and cross-entropy, ∂f/∂z = softmax(z) − onehot(y). No graph is built, nothing is allocated in
a step, images stay bytes (`softmax_steps`), and threads share out the clients without the interpreter.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import groupby
from typing import Any

import numpy as np
from torch import nn

from gammafl.core import threads
from gammafl.core.errors import InputError
from gammafl.core.kernels import Vector
from gammafl.tasks import softmax_steps
from gammafl.tasks.base import LocalUpdate
from gammafl.tasks.samples import Indices, Table

AT_ONCE = 64
"""Clients whose updates are held at a time."""


def is_softmax_regression(module: nn.Module, loss: Any) -> bool:
    """Whether `module` is one linear layer, its inputs flattened or not, under cross-entropy."""
    layers = list(module) if type(module) is nn.Sequential else [module]
    if len(layers) == 2 and type(layers[0]) is nn.Flatten and (layers[0].start_dim, layers[0].end_dim) == (1, -1):
        layers = layers[1:]
    if len(layers) != 1 or type(layers[0]) is not nn.Linear or loss is not nn.functional.cross_entropy:
        return False
    linear = layers[0]
    trained = linear.bias is not None and all(parameter.requires_grad for parameter in linear.parameters())
    hooked = any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    return trained and not hooked and linear.out_features >= 2


class SoftmaxRegression:
    """Local steps on a vector of W, [classes, features], and then b, for clients whose samples are plain arrays."""

    def __init__(self, module: nn.Module) -> None:
        linear = next(part for part in module.modules() if isinstance(part, nn.Linear))
        self.classes, self.features = linear.out_features, linear.in_features
        self._deltas = np.empty((0, self.classes * (self.features + 1)), np.float32)

    def train(self, tables: Sequence[Table], draws: Indices, model: Vector, stepsizes: Vector) -> Iterator[LocalUpdate]:
        """For each client a step a stepsize, each on its share of the client's draws, which are a row."""
        clients = list(zip(tables, draws, strict=True))
        for _, sharing in groupby(clients, key=lambda client: client[0].arrays):
            same = list(sharing)
            for start in range(0, len(same), AT_ONCE):
                yield from self._together(same[start : start + AT_ONCE], model, stepsizes)

    def _together(
        self, clients: Sequence[tuple[Table, Indices]], model: Vector, stepsizes: Vector
    ) -> Iterator[LocalUpdate]:
        """Clients that share their arrays. This thread trains one itself whenever the next update is not there yet."""
        data, count = clients[0][0], len(clients)
        rows = np.stack([drawn if table.rows is None else table.rows[drawn] for table, drawn in clients])
        if len(self._deltas) < count:
            self._deltas = np.empty((count, model.size), np.float32)
        losses, largest = np.empty(count), np.empty(count, np.float32)
        claimed, done = np.zeros(1, np.int64), np.zeros(count, np.int64)
        samples = data.inputs, data.labels, rows, data.scale, data.shift
        results = self._deltas[:count], losses, largest, claimed, done

        def train(first: int, last: int) -> None:
            softmax_steps.train(*samples, model, stepsizes, *results, last - first)

        helpers = min(threads.count(), count) - 1
        others = threads.begin(lambda *_: train(0, count), 0, helpers, helpers)
        try:
            for client in range(count):
                while not done[client] and claimed[0] < count:
                    train(0, 1)
                if not done[client]:
                    _wait(others)
                if losses[client] == softmax_steps.NO_CLASS:
                    raise InputError(f"targets must be classes from 0 to {self.classes - 1}")
                yield LocalUpdate(self._deltas[client], float(losses[client]), float(largest[client]))
        finally:
            claimed[0] = count
            _wait(others)  # nobody writes into `_deltas` any more


def _wait(others: Sequence[Future[None]]) -> None:
    for other in others:
        other.result()
