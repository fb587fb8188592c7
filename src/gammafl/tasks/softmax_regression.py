"""Logistic regression by its own gradient: the local steps of many clients are one compiled call.

For logits z = W·u + b and cross-entropy, ∂f/∂z = softmax(z) − onehot(y). No graph is built, nothing is allocated in
a step, images stay bytes until a step needs them, and threads share out the clients without the interpreter. Rows
are taken four at a time, and classes two at a time, so that what was loaded is used more than once.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from queue import SimpleQueue
from typing import Any

import numpy as np
from torch import nn

from gammafl.core import threads
from gammafl.core.errors import InputError
from gammafl.core.jit import compiled_reordering, part_of_compiled
from gammafl.core.kernels import Vector
from gammafl.tasks.base import LocalUpdate
from gammafl.tasks.samples import Indices, Table

ROWS = 4
AT_ONCE = 64
"""Clients whose updates are held at a time."""
OWN_SHARE = 0.82
"""Of a thread's fair share, what this thread trains itself: it compresses while the others go on. Rounded up, since it
is awake, and the others must be woken first."""
NO_CLASS = -1.0
PAGE = 1024
"""Numbers in a page of memory."""
FLOAT32_MAX = np.finfo(np.float32).max


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
        """Clients that share their arrays, shared out over the threads."""
        data, count = clients[0][0], len(clients)
        rows = np.stack([drawn if table.rows is None else table.rows[drawn] for table, drawn in clients])
        if len(self._deltas) < count:
            self._deltas = np.empty((count, model.size), np.float32)
        losses, largest = np.empty(count), np.empty(count, np.float32)

        def train(start: int, stop: int) -> None:
            part = slice(start, stop)
            results = self._deltas[part], losses[part], largest[part]
            _train(data.inputs, data.labels, rows[part], data.scale, data.shift, model, stepsizes, *results)

        def work(start: int, stop: int) -> None:
            """Half of what is left at a time, so that it is compressed while the other half is trained."""
            try:
                while start < stop:
                    middle = stop - (stop - start) // 2
                    train(start, middle)
                    trained.put(range(start, middle))
                    start = middle
            finally:
                trained.put(range(start, stop))  # none, but after an error nobody shall wait for them

        own = count if threads.count() == 1 else math.ceil(OWN_SHARE * count / threads.count())
        trained: SimpleQueue[range] = SimpleQueue()
        others = threads.begin(work, own, count, threads.count() - 1)
        try:
            train(0, own)
            ready = set(range(own))
            for client in range(count):
                while client not in ready:
                    ready.update(trained.get())
                if losses[client] == NO_CLASS:
                    raise InputError(f"targets must be classes from 0 to {self.classes - 1}")
                yield LocalUpdate(self._deltas[client], float(losses[client]), float(largest[client]))
        finally:
            for other in others:
                other.result()  # nobody writes into `_deltas` any more


@compiled_reordering
def _train(
    data: Any,
    labels: Any,
    rows: Any,
    scale: Any,
    shift: Any,
    model: Any,
    steps: Any,
    deltas: Any,
    losses: Any,
    top: Any,
) -> None:
    """Δ, mean loss and max |Δ_j| of each client."""
    features, batch = scale.size, rows.shape[1] // steps.size
    classes = model.size // (features + 1)
    padded = -(-batch // ROWS) * ROWS  # rows of zeros, whose slopes stay zero
    inputs, flat = _rooms(padded, features, model.size)
    slopes = np.empty((padded, classes), np.float32)
    inputs[batch:] = 0
    for client in range(rows.shape[0]):
        flat[:] = model
        weights, bias = flat[: classes * features].reshape(classes, features), flat[classes * features :]
        total = 0.0
        for step in range(steps.size):
            chosen = rows[client, step * batch : (step + 1) * batch]
            _fetch(data, chosen, scale, shift, inputs)
            loss = _step(inputs, labels, chosen, weights, bias, slopes, steps[step])
            if loss == NO_CLASS:
                losses[client] = NO_CLASS
                return
            total += loss
        losses[client] = total / steps.size
        top[client] = _difference(model, flat, deltas[client])


@part_of_compiled
def _rooms(rows: int, columns: int, size: int) -> Any:
    """A matrix and a vector in memory that begin where a cache line does, half a page from each other modulo pages.

    A load from the place in its page that was written just before, in another page, waits for that write: at 64 bytes
    from each other, subtracting products takes more than twice as long.
    """
    memory = np.empty(rows * columns + size + 2 * PAGE, np.float32)
    first = -(memory.ctypes.data // 4) % PAGE
    second = first + rows * columns + (PAGE // 2 - rows * columns) % PAGE
    return memory[first : first + rows * columns].reshape(rows, columns), memory[second : second + size]


@part_of_compiled
def _fetch(data: Any, chosen: Any, scale: Any, shift: Any, inputs: Any) -> None:
    """A batch, normalised."""
    for i in range(chosen.size):
        sample, to = data[chosen[i]], inputs[i]
        for j in range(scale.size):
            to[j] = np.float32(sample[j]) * scale[j] - shift[j]


@part_of_compiled
def _difference(model: Any, weights: Any, delta: Any) -> Any:
    """delta ← model − weights; returns the largest magnitude, NaN if any is not finite."""
    largest, finite = np.float32(0), True
    for j in range(model.size):
        difference = model[j] - weights[j]
        delta[j] = difference
        largest = max(largest, abs(difference))
        finite &= abs(difference) <= FLOAT32_MAX
    return largest if finite else np.float32(np.nan)


@part_of_compiled
def _step(inputs: Any, labels: Any, chosen: Any, weights: Any, bias: Any, slopes: Any, stepsize: Any) -> float:
    """x ← x − γ·∇f(x); returns the mean loss, or `NO_CLASS` if a target is none."""
    batch, classes = chosen.size, bias.size
    _logits(inputs, weights, bias, slopes)
    slopes[batch:] = 0
    total = 0.0
    for i in range(batch):
        target = np.int64(labels[chosen[i]])
        if not 0 <= target < classes:
            return NO_CLASS
        total += _loss_and_slope(slopes[i], target)
    scale = stepsize / np.float32(batch)
    for i in range(batch):
        for k in range(classes):
            slopes[i, k] *= scale
            bias[k] -= slopes[i, k]
    _subtract_products(slopes, inputs, weights)
    return total / batch


@part_of_compiled
def _logits(rows: Any, weights: Any, bias: Any, logits: Any) -> None:
    """logits = rows·Wᵀ + b, for a number of rows that `ROWS` divides; the last pair of classes may overlap."""
    zero = np.float32(0)
    for i in range(0, rows.shape[0], ROWS):
        u0, u1, u2, u3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        for first in range(0, bias.size, 2):
            k = min(first, bias.size - 2)
            v, w = weights[k], weights[k + 1]
            v0, v1, v2, v3 = zero, zero, zero, zero
            w0, w1, w2, w3 = zero, zero, zero, zero
            for j in range(v.size):
                v0 += u0[j] * v[j]
                v1 += u1[j] * v[j]
                v2 += u2[j] * v[j]
                v3 += u3[j] * v[j]
                w0 += u0[j] * w[j]
                w1 += u1[j] * w[j]
                w2 += u2[j] * w[j]
                w3 += u3[j] * w[j]
            logits[i, k], logits[i, k + 1] = v0 + bias[k], w0 + bias[k + 1]
            logits[i + 1, k], logits[i + 1, k + 1] = v1 + bias[k], w1 + bias[k + 1]
            logits[i + 2, k], logits[i + 2, k + 1] = v2 + bias[k], w2 + bias[k + 1]
            logits[i + 3, k], logits[i + 3, k + 1] = v3 + bias[k], w3 + bias[k + 1]


@part_of_compiled
def _loss_and_slope(logits: Any, target: int) -> Any:
    """−log softmax(z)_y; the logits are replaced by the slope softmax(z) − onehot(y)."""
    largest = logits[0]
    for k in range(1, logits.size):
        largest = max(largest, logits[k])
    right = logits[target] - largest
    total = np.float32(0)
    for k in range(logits.size):
        logits[k] = math.exp(logits[k] - largest)
        total += logits[k]
    for k in range(logits.size):
        logits[k] /= total
    logits[target] -= np.float32(1)
    return math.log(total) - right


@part_of_compiled
def _subtract_products(slopes: Any, rows: Any, weights: Any) -> None:
    """W ← W − slopesᵀ·rows, for a number of rows that `ROWS` divides.

    Both new weights are computed before one is written: a row may lie there, as far as the compiler knows, and would
    have to be loaded again.
    """
    pairs = weights.shape[0] - weights.shape[0] % 2
    for i in range(0, rows.shape[0], ROWS):
        u0, u1, u2, u3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        for k in range(0, pairs, 2):
            v, w = weights[k], weights[k + 1]
            s0, s1, s2, s3 = slopes[i, k], slopes[i + 1, k], slopes[i + 2, k], slopes[i + 3, k]
            r0, r1, r2, r3 = slopes[i, k + 1], slopes[i + 1, k + 1], slopes[i + 2, k + 1], slopes[i + 3, k + 1]
            for j in range(v.size):
                new_v = v[j] - (s0 * u0[j] + s1 * u1[j] + s2 * u2[j] + s3 * u3[j])
                new_w = w[j] - (r0 * u0[j] + r1 * u1[j] + r2 * u2[j] + r3 * u3[j])
                v[j], w[j] = new_v, new_w
        for k in range(pairs, weights.shape[0]):
            w = weights[k]
            s0, s1, s2, s3 = slopes[i, k], slopes[i + 1, k], slopes[i + 2, k], slopes[i + 3, k]
            for j in range(w.size):
                w[j] -= s0 * u0[j] + s1 * u1[j] + s2 * u2[j] + s3 * u3[j]
