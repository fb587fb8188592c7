"""Logistic regression by its own gradient: all local steps of a client are one compiled call.

For logits z = W·u + b and cross-entropy, ∂f/∂z = softmax(z) − onehot(y). No graph is built, nothing is allocated in
a step, and the interpreter is free for another client meanwhile. Rows are taken four at a time, and classes two at a
time, so that what was loaded is used more than once.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from gammafl.core.errors import InputError
from gammafl.core.jit import compiled_reordering
from gammafl.core.kernels import Vector
from gammafl.tasks.base import LocalUpdate

ROWS = 4


def is_softmax_regression(module: nn.Module, loss: Any, batch_size: int) -> bool:
    """Whether `module` is one linear layer, its inputs flattened or not, under cross-entropy."""
    layers = list(module) if type(module) is nn.Sequential else [module]
    if len(layers) == 2 and type(layers[0]) is nn.Flatten and (layers[0].start_dim, layers[0].end_dim) == (1, -1):
        layers = layers[1:]
    if len(layers) != 1 or type(layers[0]) is not nn.Linear or loss is not nn.functional.cross_entropy:
        return False
    linear = layers[0]
    trained = linear.bias is not None and all(parameter.requires_grad for parameter in linear.parameters())
    hooked = any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    return trained and not hooked and linear.out_features >= 2 and batch_size >= ROWS


class SoftmaxRegression:
    """Local steps on a vector of W, [classes, features], and then b."""

    def __init__(self, module: nn.Module) -> None:
        linear = next(part for part in module.modules() if isinstance(part, nn.Linear))
        self.classes, self.features = linear.out_features, linear.in_features
        self.delta = np.empty(self.classes * (self.features + 1), np.float32)

    def train(self, model: Vector, inputs: torch.Tensor, targets: torch.Tensor, stepsizes: Vector) -> LocalUpdate:
        """A step for each stepsize, on its share of the samples."""
        weights, size = self.delta, self.classes * self.features
        weights[:] = model
        loss = _descend(
            inputs.reshape(len(inputs), self.features).numpy(),
            targets.numpy(),
            weights[:size].reshape(self.classes, self.features),
            weights[size:],
            stepsizes,
        )
        if loss < 0:
            raise InputError(f"targets must be classes from 0 to {self.classes - 1}")
        np.subtract(model, weights, out=self.delta)
        return LocalUpdate(self.delta, loss)


@compiled_reordering
def _descend(inputs: Any, targets: Any, weights: Any, bias: Any, stepsizes: Any) -> float:
    """Mean loss over the steps, x ← x − γ·∇f in each; −1 if a target is not a class."""
    classes, batch = bias.size, inputs.shape[0] // stepsizes.size
    slopes = np.empty((batch, classes), np.float32)
    total = 0.0
    for step in range(stepsizes.size):
        rows = inputs[step * batch : (step + 1) * batch]
        _logits(rows, weights, bias, slopes)
        for i in range(batch):
            target = targets[step * batch + i]
            if not 0 <= target < classes:
                return -1.0
            total += _loss_and_slope(slopes[i], target)
        scale = stepsizes[step] / np.float32(batch)
        for i in range(batch):
            for k in range(classes):
                slopes[i, k] *= scale
                bias[k] -= slopes[i, k]
        _subtract_products(slopes, rows, weights)
    return total / (batch * stepsizes.size)


@compiled_reordering
def _logits(rows: Any, weights: Any, bias: Any, logits: Any) -> None:
    """logits = rows·Wᵀ + b; the last block overlaps the one before it where there is no whole one left."""
    zero = np.float32(0)
    for start in range(0, rows.shape[0], ROWS):
        i = min(start, rows.shape[0] - ROWS)
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


@compiled_reordering
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


@compiled_reordering
def _subtract_products(slopes: Any, rows: Any, weights: Any) -> None:
    """W ← W − slopesᵀ·rows."""
    whole = rows.shape[0] - rows.shape[0] % ROWS
    for i in range(0, whole, ROWS):
        u0, u1, u2, u3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        for k in range(weights.shape[0]):
            w = weights[k]
            s0, s1, s2, s3 = slopes[i, k], slopes[i + 1, k], slopes[i + 2, k], slopes[i + 3, k]
            for j in range(w.size):
                w[j] -= s0 * u0[j] + s1 * u1[j] + s2 * u2[j] + s3 * u3[j]
    for i in range(whole, rows.shape[0]):
        for k in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                weights[k, j] -= slopes[i, k] * rows[i, j]
