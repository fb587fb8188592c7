"""Compiled local steps of softmax regression on samples in their stored form.

A sample is u = scale·x − shift, where x is stored, such as bytes of an image, and each channel has a scale and a shift.
u is never computed: W·u = scale·(W·x) − shift·ΣW. So the loops read bytes, a quarter of the memory of floats, and
normalise sums instead of samples. They use five samples and five classes at a time: 25 products of ten numbers.
"""

import math
from typing import Any

import numpy as np

from gammafl.core.jit import compiled, compiled_reordering, fetch_and_add, part_of_compiled
from gammafl.core.kernels import subtract_into

FIVE = 5
NO_CLASS = -1.0
LINE = 16
"""Numbers in a cache line."""


@compiled_reordering
def train(
    data: Any,
    labels: Any,
    rows: Any,
    scale: Any,
    shift: Any,
    model: Any,
    stepsizes: Any,
    deltas: Any,
    losses: Any,
    largest: Any,
    claimed: Any,
    done: Any,
    most: int,
) -> None:
    """Δ, mean loss and max |Δ_j| of clients, one for each row of `rows`. The loss is `NO_CLASS` if a target is none.

    Each thread claims the next client that no thread has claimed, trains it, and marks it as finished. This thread
    trains at most `most` clients.
    """
    features, batch = data.shape[1], rows.shape[1] // stepsizes.size
    classes = model.size // (features + 1)
    flat, slopes = _aligned(model.size), np.zeros((classes, -(-batch // FIVE) * FIVE), np.float32)
    weights, bias = flat[: classes * features].reshape(classes, features), flat[classes * features :]
    chosen, room = np.empty(slopes.shape[1], np.int64), np.empty((2, slopes.shape[1]), np.float32)
    for _ in range(most):
        client = fetch_and_add(claimed, 1)
        if client >= rows.shape[0]:
            return
        flat[:] = model
        loss, total = 0.0, 0.0
        for step in range(stepsizes.size):
            chosen[:batch] = rows[client, step * batch : (step + 1) * batch]
            chosen[batch:] = chosen[0]  # fills up to a multiple of five; the slopes of these are zero
            _logits(data, chosen, scale, shift, weights, bias, slopes)
            loss = _loss_and_slopes(slopes, labels, chosen, batch, stepsizes[step], room)
            if loss == NO_CLASS:
                break
            total += loss
            _descend(data, chosen, scale, shift, slopes, weights, bias)
        losses[client] = NO_CLASS if loss == NO_CLASS else total / stepsizes.size
        largest[client] = np.uint32(subtract_into(model, flat, deltas[client])).view(np.float32)
        fetch_and_add(done[client:], 1)


@compiled
def is_done(done: Any, client: int) -> bool:
    """Whether all results of a client are ready."""
    return fetch_and_add(done[client:], 0) > 0


@part_of_compiled
def _aligned(size: int) -> Any:
    """A vector that starts at a cache line."""
    memory = np.empty(size + LINE, np.float32)
    first = -(memory.ctypes.data // 4) % LINE
    return memory[first : first + size]


@part_of_compiled
def _columns(data: Any, five: Any, first: int, last: int) -> Any:
    """These columns of five samples."""
    x0, x1, x2 = data[five[0]][first:last], data[five[1]][first:last], data[five[2]][first:last]
    return x0, x1, x2, data[five[3]][first:last], data[five[4]][first:last]


# --- logits: z = W·u + b ----------------------------------------------------------------------------------


@part_of_compiled
def _logits(data: Any, chosen: Any, scale: Any, shift: Any, weights: Any, bias: Any, logits: Any) -> None:
    """Fills one column of `logits` for each sample."""
    pixels = weights.shape[1] // scale.size
    for k in range(bias.size):
        logits[k] = bias[k]
    for channel in range(scale.size):
        first, last = channel * pixels, (channel + 1) * pixels
        for k in range(bias.size):
            logits[k] -= shift[channel] * _sum(weights[k][first:last])
        for i in range(0, chosen.size, FIVE):
            _add_products(data, chosen[i : i + FIVE], first, last, weights, scale[channel], logits[:, i : i + FIVE])


@part_of_compiled
def _sum(vector: Any) -> Any:
    total = np.float32(0)
    for j in range(vector.size):
        total += vector[j]
    return total


@part_of_compiled
def _add_products(data: Any, five: Any, first: int, last: int, weights: Any, scale: Any, logits: Any) -> None:
    """logits ← logits + scale·W·x for five samples."""
    x0, x1, x2, x3, x4 = _columns(data, five, first, last)
    zero = np.float32(0)
    zeros = zero, zero, zero, zero, zero
    fives = weights.shape[0] - weights.shape[0] % FIVE
    for k in range(0, fives, FIVE):
        w0, w1, w2 = weights[k][first:last], weights[k + 1][first:last], weights[k + 2][first:last]
        w3, w4 = weights[k + 3][first:last], weights[k + 4][first:last]
        z0, z1, z2, z3, z4 = zeros, zeros, zeros, zeros, zeros
        for j in range(w0.size):
            x = np.float32(x0[j]), np.float32(x1[j]), np.float32(x2[j]), np.float32(x3[j]), np.float32(x4[j])
            z0, z1, z2 = _plus(z0, w0[j], x), _plus(z1, w1[j], x), _plus(z2, w2[j], x)
            z3, z4 = _plus(z3, w3[j], x), _plus(z4, w4[j], x)
        _add(logits[k], scale, z0)
        _add(logits[k + 1], scale, z1)
        _add(logits[k + 2], scale, z2)
        _add(logits[k + 3], scale, z3)
        _add(logits[k + 4], scale, z4)
    for k in range(fives, weights.shape[0]):
        w0, z0 = weights[k][first:last], zeros
        for j in range(w0.size):
            x = np.float32(x0[j]), np.float32(x1[j]), np.float32(x2[j]), np.float32(x3[j]), np.float32(x4[j])
            z0 = _plus(z0, w0[j], x)
        _add(logits[k], scale, z0)


@part_of_compiled
def _plus(z: Any, w: Any, x: Any) -> Any:
    """z + w·x, five of each."""
    return z[0] + w * x[0], z[1] + w * x[1], z[2] + w * x[2], z[3] + w * x[3], z[4] + w * x[4]


@part_of_compiled
def _add(to: Any, scale: Any, z: Any) -> None:
    to[0] += scale * z[0]
    to[1] += scale * z[1]
    to[2] += scale * z[2]
    to[3] += scale * z[3]
    to[4] += scale * z[4]


# --- slopes: γ/batch · (softmax(z) − onehot(y)) -----------------------------------------------------------


@part_of_compiled
def _loss_and_slopes(slopes: Any, labels: Any, chosen: Any, batch: int, stepsize: Any, room: Any) -> Any:
    """The mean of −log softmax(z)_y, or `NO_CLASS`; the logits are replaced by what a sample adds to the step.

    Each loop goes over the samples, so that the compiler vectorises it. `room` holds two numbers for each sample.
    """
    classes, factor = slopes.shape[0], stepsize / np.float32(batch)
    largest, total = room[0], room[1]
    largest[:], total[:] = slopes[0], 0
    for k in range(1, classes):
        for i in range(batch):
            largest[i] = max(largest[i], slopes[k, i])
    loss = 0.0
    for i in range(batch):
        target = np.int64(labels[chosen[i]])
        if not 0 <= target < classes:
            return NO_CLASS
        loss += largest[i] - slopes[target, i]
    for k in range(classes):
        for i in range(batch):
            slopes[k, i] = _exp(slopes[k, i] - largest[i])
            total[i] += slopes[k, i]
    for i in range(batch):
        loss += math.log(total[i])
        total[i] = factor / total[i]
    for k in range(classes):
        for i in range(batch):
            slopes[k, i] *= total[i]
        slopes[k, batch:] = 0
    for i in range(batch):
        slopes[np.int64(labels[chosen[i]]), i] -= factor
    return loss / batch


ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)
LEAST = np.float32(-87)
LOG2_E, LN_2 = np.float32(1 / math.log(2)), np.float32(math.log(2))
TAYLOR = tuple(np.float32(1 / math.factorial(n)) for n in range(7, 1, -1))
EXPONENT, BIAS = np.int32(23), np.int32(127)
"""The position of a float32's exponent, and the bias that is added to it."""


@part_of_compiled
def _exp(x: Any) -> Any:
    """e^x for x ≤ 0: 2^n·e^r with a whole n and |r| ≤ ½ ln 2; zero if it is less than 1e-38.

    `math.exp` is one call per number; this is a few products for sixteen numbers.
    """
    within = max(x, LEAST)
    n = np.int32(within * LOG2_E - HALF)
    r = within - np.float32(n) * LN_2
    y = TAYLOR[0]
    y = y * r + TAYLOR[1]
    y = y * r + TAYLOR[2]
    y = y * r + TAYLOR[3]
    y = y * r + TAYLOR[4]
    y = y * r + TAYLOR[5]
    y = y * r * r + r + ONE
    return ZERO if x < LEAST else y * np.int32((n + BIAS) << EXPONENT).view(np.float32)


# --- the step: x ← x − γ·∇f(x) ----------------------------------------------------------------------------


@part_of_compiled
def _descend(data: Any, chosen: Any, scale: Any, shift: Any, slopes: Any, weights: Any, bias: Any) -> None:
    """W ← W − slopes·u, b ← b − Σ slopes."""
    pixels = weights.shape[1] // scale.size
    for k in range(bias.size):
        bias[k] -= _sum(slopes[k])
    for channel in range(scale.size):
        first, last = channel * pixels, (channel + 1) * pixels
        for i in range(0, chosen.size, FIVE):
            some = slopes[:, i : i + FIVE]
            _subtract_products(data, chosen[i : i + FIVE], first, last, some, scale[channel], shift[channel], weights)


@part_of_compiled
def _subtract_products(
    data: Any, five: Any, first: int, last: int, slopes: Any, scale: Any, shift: Any, weights: Any
) -> None:
    """W ← W − slopes·(scale·x − shift) for five samples.

    All five new weights are computed before one is written. Otherwise the compiler would load the samples again, since
    it can't know that they are not in the same memory.
    """
    x0, x1, x2, x3, x4 = _columns(data, five, first, last)
    fives = weights.shape[0] - weights.shape[0] % FIVE
    for k in range(0, fives, FIVE):
        w0, w1, w2 = weights[k][first:last], weights[k + 1][first:last], weights[k + 2][first:last]
        w3, w4 = weights[k + 3][first:last], weights[k + 4][first:last]
        s0, s1 = _scaled(slopes[k], scale, shift), _scaled(slopes[k + 1], scale, shift)
        s2, s3 = _scaled(slopes[k + 2], scale, shift), _scaled(slopes[k + 3], scale, shift)
        s4 = _scaled(slopes[k + 4], scale, shift)
        for j in range(w0.size):
            x = np.float32(x0[j]), np.float32(x1[j]), np.float32(x2[j]), np.float32(x3[j]), np.float32(x4[j])
            v0, v1, v2 = _minus(w0[j], s0, x), _minus(w1[j], s1, x), _minus(w2[j], s2, x)
            v3, v4 = _minus(w3[j], s3, x), _minus(w4[j], s4, x)
            w0[j], w1[j], w2[j], w3[j], w4[j] = v0, v1, v2, v3, v4
    for k in range(fives, weights.shape[0]):
        w0, s0 = weights[k][first:last], _scaled(slopes[k], scale, shift)
        for j in range(w0.size):
            x = np.float32(x0[j]), np.float32(x1[j]), np.float32(x2[j]), np.float32(x3[j]), np.float32(x4[j])
            w0[j] = _minus(w0[j], s0, x)


@part_of_compiled
def _scaled(s: Any, scale: Any, shift: Any) -> Any:
    """Of five slopes: the factor of each, and the term that all samples share."""
    return s[0] * scale, s[1] * scale, s[2] * scale, s[3] * scale, s[4] * scale, shift * _sum(s)


@part_of_compiled
def _minus(w: Any, s: Any, x: Any) -> Any:
    return w - (s[0] * x[0] + s[1] * x[1] + s[2] * x[2] + s[3] * x[3] + s[4] * x[4] - s[5])
