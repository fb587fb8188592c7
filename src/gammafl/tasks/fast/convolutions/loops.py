"""Convolution with ReLU and max-pooling, forward and backward, for a batch of images.

An image is [height, width, channels] with its margin of zeros. A *pixel* is a pixel of the convolution's output, given by
where its part of the input begins; a *window* is the pixels that max-pooling takes the largest of, one pixel where there
is no pooling. `pixels` has those of a window side by side, `places` says where a window's result belongs.

Backward, only numbers that count are multiplied: after ReLU and pooling most of the gradient is zero. `chosen` says for
each window and channel which pixel was the largest, or that the ReLU let nothing through.
"""

from typing import Any

import numpy as np

from gammafl.core.jit import compiled_with
from gammafl.core.kernels import MAGNITUDE
from gammafl.tasks.fast.convolutions import microkernels
from gammafl.tasks.fast.convolutions.microkernels import DEAD, gather, pool, tile, transpose

compiled = compiled_with(microkernels)

APART = 17
"""Entries between the ends of two lists: with a power of two, all lists would want the same lines of the cache."""
INFINITY = np.uint32(0x7F800000)


@compiled
def forward(x: Any, pixels: Any, places: Any, w: Any, bias: Any, tmp: Any, out: Any, chosen: Any, rows: int, row: int,
            reach: int, channels: int, window: int, tiles: int, relu: bool, keep: bool, lanes: int, count: int,
            wide: Any, narrow: Any, one: Any) -> None:  # fmt: skip
    """out ← the windows' results; chosen too, if `keep`.

    A turn takes `tiles` tiles of `count` pixels each, which are whole windows; their sums are in `tmp`.
    """
    padded, windows = bias.size, places.size
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
def weight_gradient(x: Any, pixels: Any, places: Any, g: Any, chosen: Any, dw: Any, db: Any, scales: Any, offsets: Any,
                    ends: Any, rows: int, row: int, line: int, channels: int, padded: int, window: int, group: int,
                    at_once: int, width: int, shape: Any) -> None:  # fmt: skip
    """dw ← Σ gradient · rows of x, as [channels][rows][line]; db ← Σ gradient. `group` windows at a time.

    For each channel, those of the windows whose gradient counts are listed. Indices are unsigned, which spares the test
    for negative ones.
    """
    dw[:] = 0
    db[:] = 0
    room = np.uint64(group + APART)
    for start in range(0, places.size, group):
        for c in range(np.uint64(channels)):
            ends[c] = c * room
        for i in range(start, min(start + group, places.size)):
            slopes, largest = g[places[i] : places[i] + channels], chosen[i * padded : i * padded + channels]
            of_window = pixels[i * window : (i + 1) * window]
            for c in range(np.uint64(channels)):
                db[c] += slopes[c] if largest[c] != DEAD else np.float32(0)
            for c in range(np.uint64(channels)):
                p, n = np.uint64(largest[c]), ends[c]
                counts = (p != np.uint64(DEAD)) & (slopes[c] != 0)
                scales[n] = slopes[c]
                offsets[n] = of_window[p if counts else np.uint64(0)]
                ends[c] = n + np.uint64(counts)
        for c in range(channels):
            for k in range(0, rows, at_once):
                for b in range(0, line, width):
                    gather(x, scales, offsets, c * (group + APART), np.int64(ends[c]), k * row + b, row, dw,
                           (c * rows + k) * line + b, line, shape)  # fmt: skip


@compiled
def input_gradient(w: Any, pixels: Any, places: Any, g: Any, chosen: Any, dx: Any, scales: Any, offsets: Any, ends: Any,
                   rows: int, row: int, line: int, channels: int, padded: int, window: int, group: int, at_once: int,
                   width: int, shape: Any) -> None:  # fmt: skip
    """dx ← Σ gradient · rows of w, which is [channels][rows][line]. `group` windows at a time.

    For each pixel, the channels whose gradient counts there are listed.
    """
    dx[:] = 0
    of_channel = np.uint64(rows * line)
    for start in range(0, places.size, group):
        end, n = min(start + group, places.size), np.uint64(0)
        for i in range(start, end):
            slopes, largest = g[places[i] : places[i] + channels], chosen[i * padded : i * padded + channels]
            for p in range(window):
                for c in range(np.uint64(channels)):
                    scales[n] = slopes[c]
                    offsets[n] = c * of_channel
                    n += np.uint64((largest[c] == p) & (slopes[c] != 0))
                ends[(i - start) * window + p] = n
        for k in range(0, rows, at_once):
            for b in range(0, line, width):
                begin = 0
                for j in range((end - start) * window):
                    upto = np.int64(ends[j])
                    if upto > begin:
                        gather(w, scales, offsets, begin, upto, k * line + b, line, dx,
                               pixels[start * window + j] + k * row + b, row, shape)  # fmt: skip
                        begin = upto


@compiled
def arranged(w: Any, rows: int, reach: int, line: int, padded: int, lanes: int, to: Any, one: Any) -> None:
    """to ← [channels][rows][line] as the forward pass wants it: blocks of one or two vectors of channels.

    A square of lanes × lanes numbers at a time; what is written beyond a row's end, the next row overwrites.
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
def descend(w: Any, dw: Any, bias: Any, db: Any, stepsize: Any, reach: int, line: int) -> None:
    """w ← w − γ·dw, bias ← bias − γ·db; what is beyond the rows' ends stays zero."""
    for at in range(0, w.size - line + 1, line):
        for r in range(at, at + reach):
            w[r] -= stepsize * dw[r]
    for c in range(bias.size):
        bias[c] -= stepsize * db[c]


@compiled
def finite(x: Any) -> bool:
    """Whether neither infinity nor NaN is among the numbers, which are given by their bits."""
    largest = np.uint32(0)
    for i in range(x.size):
        largest = max(largest, np.uint32(x[i] & MAGNITUDE))
    return largest < INFINITY
