"""Logistic regression with its explicit gradient: one compiled call makes the local steps of many clients.

For logits z = W·u + b and cross-entropy, ∂f/∂z = softmax(z) − onehot(y). There is no graph and no allocation in a
step, images stay bytes (`softmax_steps`), and threads divide the clients without the interpreter.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gammafl.core import threads
from gammafl.core.arrays import Vector
from gammafl.core.errors import InputError
from gammafl.federated.task import LocalUpdate
from gammafl.tasks.fast import softmax_steps
from gammafl.tasks.samples import Indices, Table

AT_ONCE = 64
"""How many clients' updates are held at a time."""


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
    """Local steps on the vector of W, [classes, features], and b, for clients whose samples are plain arrays."""

    def __init__(self, module: nn.Module) -> None:
        linear = next(part for part in module.modules() if isinstance(part, nn.Linear))
        self.classes, self.features = linear.out_features, linear.in_features
        self._deltas = np.empty((0, self.classes * (self.features + 1)), np.float32)

    def train(self, tables: Sequence[Table], draws: Indices, model: Vector, stepsizes: Vector) -> Iterator[LocalUpdate]:
        """Runs one local step for each of `stepsizes`, for every client.

        Row i of `draws` has the sample indices of client i; each step uses an equal slice of it.
        """
        for start in range(0, len(tables), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            yield from self._together(tables[some], draws[some], model, stepsizes)

    def _together(
        self, tables: Sequence[Table], draws: Indices, model: Vector, stepsizes: Vector
    ) -> Iterator[LocalUpdate]:
        """Trains the clients of one group. This thread trains one itself if the next update is not ready yet."""
        if len(self._deltas) < len(tables):
            self._deltas = np.empty((len(tables), model.size), np.float32)
        groups, start = [], 0
        for _, sharing in groupby(tables, key=lambda table: table.arrays):
            same = list(sharing)
            part = slice(start, start + len(same))
            groups.append(_Group(same, draws[part], self._deltas[part]))
            start = part.stop

        def train_all(*_: int) -> None:
            for group in groups:
                group.train(model, stepsizes, len(group))

        helpers = min(threads.count(), len(tables)) - 1
        others = threads.begin(train_all, 0, helpers, helpers)
        try:
            for number, group in enumerate(groups):
                for client in range(len(group)):
                    while not group.is_done(client) and (waiting := next(filter(_Group.waits, groups[number:]), None)):
                        waiting.train(model, stepsizes, 1)
                    if not group.is_done(client):
                        _wait(others)
                    if group.losses[client] == softmax_steps.NO_CLASS:
                        raise InputError(f"targets must be classes from 0 to {self.classes - 1}")
                    yield group.update(client)
        finally:
            for group in groups:
                group.claimed[0] = len(group)
            _wait(others)


class _Group:
    """Clients whose samples are in the same arrays: their samples, their results, and which of them are finished."""

    def __init__(self, tables: Sequence[Table], draws: Indices, deltas: NDArray[np.float32]) -> None:
        table, count = tables[0], len(tables)
        own = [client.rows for client in tables if client.rows is not None]
        rows = np.empty_like(draws) if own else draws
        for of_client, drawn, to in zip(own, draws, rows, strict=True) if own else ():
            of_client.take(drawn, out=to, mode="clip")  # all indices are valid; a check would take as long
        self.samples = table.inputs, table.labels, rows, table.scale, table.shift
        self.deltas, self.losses, self.largest = deltas, np.empty(count), np.empty(count, np.float32)
        self.claimed, self.done = np.zeros(1, np.int64), np.zeros(count, np.int64)

    def __len__(self) -> int:
        return len(self.done)

    def waits(self) -> bool:
        """Whether a client of the group is not claimed yet."""
        return bool(self.claimed[0] < len(self.done))

    def is_done(self, client: int) -> bool:
        return softmax_steps.is_done(self.done, client)

    def train(self, model: Vector, stepsizes: Vector, most: int) -> None:
        """Trains clients that are not claimed yet, at most `most` of them."""
        if self.waits():
            results = self.deltas, self.losses, self.largest, self.claimed, self.done
            softmax_steps.train(*self.samples, model, stepsizes, *results, most)

    def update(self, client: int) -> LocalUpdate:
        return LocalUpdate(self.deltas[client], float(self.losses[client]), float(self.largest[client]))


def _wait(others: Sequence[Future[None]]) -> None:
    """Waits until all threads are finished, even if one has failed."""
    wait(others)
    for other in others:
        other.result()
