"""Convolution with ReLU and max-pooling, forward and backward, for a batch of images.

An image is [height, width, channels] with a margin of zeros. A *pixel* is a pixel of the convolution's output, given by
the start of its part of the input. A *window* holds the pixels of which max-pooling takes the largest; without pooling,
it is one pixel. `pixels` has the pixels of a window next to each other; `places` tells where a window's result goes.

The backward pass multiplies only numbers that are not zero: after ReLU and pooling, most of the gradient is zero.
`chosen` tells for each window and channel which pixel was the largest, or that the ReLU blocked all of them.
"""

from typing import Any

import numpy as np

from gammafl.core.jit import bits_set, compiled_with, trailing_zeros
from gammafl.core.kernels import MAGNITUDE, ONE
from gammafl.tasks.fast.convolutions import microkernels
from gammafl.tasks.fast.convolutions.microkernels import DEAD, gather, hits, pool, tile, transpose

compiled = compiled_with(microkernels)

APART = 17
"""Entries between the ends of two lists. With a power of two, all lists would compete for the same cache lines."""
NO_CLASS = -1.0
INFINITY = np.uint32(0x7F800000)


@compiled
def forward(x: Any, pixels: Any, places: Any, w: Any, bias: Any, tmp: Any, out: Any, chosen: Any, rows: int, row: int,
            reach: int, channels: int, window: int, tiles: int, relu: bool, lanes: int, count: int,
            wide: Any, narrow: Any, one: Any) -> None:  # fmt: skip
    """out ← the windows' results; `chosen` is set too, if it is not empty.

    One iteration computes `tiles` tiles of `count` pixels each, which are whole windows; their sums are in `tmp`.
    """
    padded, windows, keep = bias.size, places.size, chosen.size > 0
    taken = tiles * count // window
    for start in range(0, windows, taken):
        end, first = min(start + taken, windows), start * window
        channel = 0
        while channel < padded:
            block = rows * reach * channel
            if channel + 2 * lanes <= padded:
                for t in range(0, (end - start) * window, count):
                    tile(x, pixels, first + t, rows, row, reach, w, block, bias, channel, tmp, t * padded + channel,
                         padded, wide)  # fmt: skip
                channel += 2 * lanes
            else:
                for t in range(0, (end - start) * window, count):
                    tile(x, pixels, first + t, rows, row, reach, w, block, bias, channel, tmp, t * padded + channel,
                         padded, narrow)  # fmt: skip
                channel += lanes
        for i in range(start, end):
            at = (i - start) * window * padded
            for c in range(0, channels, lanes):
                pool(tmp, at + c, padded, window, relu, out, places[i] + c, min(lanes, channels - c), chosen,
                     i * padded + c, keep, one)  # fmt: skip


@compiled
def finite(numbers: Any) -> Any:
    """Whether all numbers are finite."""
    largest, bits = np.uint32(0), numbers.view(np.uint32)
    for i in range(bits.size):
        largest = max(largest, np.uint32(bits[i] & MAGNITUDE))
    return largest < INFINITY


@compiled
def share_that_counts(places: Any, g: Any, chosen: Any, channels: int, padded: int, lanes: int, one: Any) -> Any:
    """The share of the gradient that is neither zero nor blocked by the ReLU."""
    count = np.uint64(0)
    for i in range(places.size):
        for c in range(0, channels, lanes):
            found = hits(g, places[i] + c, chosen, i * padded + c, DEAD, min(lanes, channels - c), one)
            count += bits_set(found)
    return count / (places.size * channels)


@compiled
def _list_by_channel(pixels: Any, places: Any, g: Any, chosen: Any, factor: Any, start: int, end: int, channels: int,
                     padded: int, window: int, room: int, scales: Any, offsets: Any, ends: Any, totals: Any, lanes: int,
                     one: Any) -> None:  # fmt: skip
    """For each channel, lists the windows from `start` to `end` with a gradient that is not zero, and adds it up.

    The lists are `room` apart. Indices are unsigned, which avoids a test for negative ones.
    """
    for c in range(np.uint64(channels)):
        ends[c] = c * np.uint64(room)
    for i in range(start, end):
        of_window = pixels[i * window : (i + 1) * window]
        for first in range(0, channels, lanes):
            at, place = places[i] + first, i * padded + first
            found = hits(g, at, chosen, place, DEAD, min(lanes, channels - first), one)
            while found:
                j = trailing_zeros(found)
                found &= found - ONE
                c = np.uint64(first) + j
                n, slope = ends[c], g[np.uint64(at) + j]
                scales[n] = factor * slope
                offsets[n] = of_window[np.uint64(chosen[np.uint64(place) + j])]
                ends[c] = n + ONE
                totals[c] += slope


@compiled
def _list_by_pixel(places: Any, g: Any, chosen: Any, start: int, end: int, channels: int, padded: int, window: int,
                   apart: int, scales: Any, offsets: Any, ends: Any, lanes: int, one: Any) -> None:  # fmt: skip
    """For each pixel of the windows from `start` to `end`, lists the channels with a gradient that is not zero."""
    n, of_channel = np.uint64(0), np.uint64(apart)
    for i in range(start, end):
        for p in range(window):
            for first in range(0, channels, lanes):
                at = places[i] + first
                found = hits(g, at, chosen, i * padded + first, p, min(lanes, channels - first), one)
                while found:
                    j = trailing_zeros(found)
                    found &= found - ONE
                    scales[n] = g[np.uint64(at) + j]
                    offsets[n] = (np.uint64(first) + j) * of_channel
                    n += ONE
            ends[(i - start) * window + p] = n


@compiled
def backward(x: Any, pixels: Any, places: Any, g: Any, chosen: Any, w: Any, dx: Any, to: Any, totals: Any, factor: Any,
             scales: Any, offsets: Any, ends: Any, rows: int, row: int, reach: int, line: int, channels: int,
             padded: int, window: int, group: int, at_once: int, width: int, most: float, lanes: int, shape: Any,
             single: Any, one: Any) -> Any:  # fmt: skip
    """dx ← the gradient by x, if `dx` has room; to ← to + factor · that by the weights; totals ← that by the bias.

    `w` and `to`, which may be the same, are [channels][rows][line], zero beyond `reach`. `group` windows are done at a
    time.

    Returns False, and does nothing, if a number is not finite, since its product with zero is not zero; or if more than
    `most` of the gradient is not zero, since skipping the rest would not be faster.
    """
    if most < 1 and share_that_counts(places, g, chosen, channels, padded, lanes, one) > most:
        return False
    if not (finite(g) and finite(x) and finite(w)):
        return False
    windows = places.size
    if dx.size > 0:
        dx[:] = 0
        for start in range(0, windows, group):
            end = min(start + group, windows)
            _list_by_pixel(places, g, chosen, start, end, channels, padded, window, rows * line, scales, offsets, ends,
                           lanes, one)  # fmt: skip
            for k in range(rows):
                begin = np.int64(0)
                for j in range((end - start) * window):
                    upto = np.int64(ends[j])
                    if upto > begin:
                        at = pixels[start * window + j] + k * row
                        for b in range(0, line, width):
                            gather(w, scales, offsets, begin, upto, k * line + b, line, dx, at + b, row, single)
                        begin = upto
    totals[:] = 0
    room = group + APART
    for start in range(0, windows, group):
        end = min(start + group, windows)
        _list_by_channel(pixels, places, g, chosen, factor, start, end, channels, padded, window, room, scales, offsets,
                         ends, totals, lanes, one)  # fmt: skip
        for c in range(channels):
            upto = np.int64(ends[c])
            if upto > c * room:
                for k in range(0, rows, at_once):
                    for b in range(0, line, width):
                        gather(x, scales, offsets, c * room, upto, k * row + b, row, to, (c * rows + k) * line + b,
                               line, shape)  # fmt: skip
    if line > reach:
        for at in range(0, channels * rows * line, line):
            to[at + reach : at + line] = 0
    return True


@compiled
def arranged(w: Any, rows: int, reach: int, line: int, padded: int, lanes: int, to: Any, one: Any) -> None:
    """to ← [channels][rows][line] in the order for the forward pass: blocks of one or two vectors of channels.

    It works on squares of lanes × lanes numbers. The next row overwrites numbers written after a row's end.
    """
    channel = 0
    while channel < padded:
        width = 2 * lanes if channel + 2 * lanes <= padded else lanes
        block = rows * reach * channel
        for k in range(rows):
            for r in range(0, reach, lanes):
                for c in range(0, width, lanes):
                    transpose(w, ((channel + c) * rows + k) * line + r, rows * line, to,
                              block + (k * reach + r) * width + c, width, one)  # fmt: skip
        channel += width


@compiled
def descend(x: Any, pixels: Any, places: Any, g: Any, chosen: Any, w: Any, dx: Any, totals: Any, bias: Any,
            stepsize: Any, arranged_w: Any, scales: Any, offsets: Any, ends: Any, rows: int, row: int, reach: int,
            line: int, channels: int, padded: int, window: int, group: int, at_once: int, width: int, most: float,
            lanes: int, shape: Any, single: Any, one: Any) -> Any:  # fmt: skip
    """A step of a layer: `backward` directly into the weights, and into `bias` if not empty; then rearranges all."""
    done = backward(x, pixels, places, g, chosen, w, dx, w, totals, -stepsize, scales, offsets, ends, rows, row, reach,
                    line, channels, padded, window, group, at_once, width, most, lanes, shape, single, one)  # fmt: skip
    if done:
        for c in range(bias.size):
            bias[c] -= stepsize * totals[c]
        arranged(w, rows, reach, line, padded, lanes, arranged_w, one)
    return done


@compiled
def take_weights(weights: Any, channels: int, inputs: int, rows: int, columns: int, line: int, to: Any) -> None:
    """to, which is [channels][rows][line], ← weights in torch's order, [channels][inputs][rows][columns]."""
    pixels = np.uint64(rows * columns)
    for c in range(channels):
        for k in range(rows):
            for j in range(columns):
                source = weights[(c * inputs * rows + k) * columns + j :]
                target = to[(c * rows + k) * line + j * inputs :]
                if pixels == ONE:  # neighbours stay neighbours, so the compiler vectorises this
                    for i in range(np.uint64(inputs)):
                        target[i] = source[i]
                else:
                    for i in range(np.uint64(inputs)):
                        target[i] = source[i * pixels]


@compiled
def subtract_weights(
    before: Any, w: Any, channels: int, inputs: int, rows: int, columns: int, line: int, to: Any
) -> None:
    """to ← before − w, where `to` and `before` are in torch's order and w is [channels][rows][line]."""
    pixels = np.uint64(rows * columns)
    for c in range(channels):
        for k in range(rows):
            for j in range(columns):
                at = (c * inputs * rows + k) * columns + j
                source, target, taken = before[at:], to[at:], w[(c * rows + k) * line + j * inputs :]
                if pixels == ONE:
                    for i in range(np.uint64(inputs)):
                        target[i] = source[i] - taken[i]
                else:
                    for i in range(np.uint64(inputs)):
                        target[i * pixels] = source[i * pixels] - taken[i]


@compiled
def cross_entropy(outputs: Any, targets: Any, slopes: Any) -> Any:
    """The mean over samples of −log softmax(outputs)[target], and slopes ← its gradient.

    `NO_CLASS` if a target is not a class.
    """
    samples, classes = outputs.shape
    total = 0.0
    for i in range(samples):
        if not 0 <= targets[i] < classes:
            return NO_CLASS
    for i in range(samples):
        largest = outputs[i, 0]
        for j in range(classes):
            largest = outputs[i, j] if outputs[i, j] > largest else largest
        weight = np.float32(0)
        for j in range(classes):
            slopes[i, j] = np.exp(outputs[i, j] - largest)
            weight += slopes[i, j]
        for j in range(classes):
            slopes[i, j] /= weight * np.float32(samples)
        slopes[i, targets[i]] -= np.float32(1) / np.float32(samples)
        total += np.log(weight) + largest - outputs[i, targets[i]]
    return total / samples
