"""The innermost loops of convolutions, each by itself, against the sentence that says what it does."""

from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from gammafl.core.arrays import Vector
from gammafl.tasks.fast.convolutions import microkernels
from gammafl.tasks.fast.convolutions.machine import Vectors, widest
from gammafl.tasks.fast.convolutions.microkernels import DEAD, Fixed

LANES = [4, 8, 16]


def whole(size: int, seed: int) -> Vector:
    """Small whole numbers: sums of their products are exact."""
    return np.random.default_rng(seed).integers(-5, 6, size).astype(np.float32)


@njit
def tile(x: Any, pixels: Any, w: Any, bias: Any, out: Any, shape: Any) -> None:
    microkernels.tile(x, pixels, 1, 2, 11, 3, w, 5, bias, 4, out, 7, 100, shape)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("vectors", [1, 2])
def test_a_tile_is_a_convolution_at_some_pixels(lanes: int, vectors: int) -> None:
    width, pixels = lanes * vectors, np.array([99, 0, 17, 3], np.int32)
    x, w, bias, out = whole(60, 0), whole(5 + 6 * width, 1), whole(4 + width, 2), np.full(400, 77, np.float32)
    tile(x, pixels, w, bias, out, Fixed(lanes, 3, vectors))
    weights = w[5:].reshape(2, 3, width)
    expected = np.full(400, 77, np.float32)
    for p, start in enumerate(pixels[1:]):
        parts = np.stack([x[start : start + 3], x[start + 11 : start + 14]])
        expected[7 + 100 * p : 7 + 100 * p + width] = bias[4:] + np.einsum("kr,krc->c", parts, weights)
    np.testing.assert_array_equal(out, expected)


@njit
def gather(m: Any, scales: Any, offsets: Any, out: Any, shape: Any) -> None:
    microkernels.gather(m, scales, offsets, 1, 4, 2, 70, out, 3, 90, shape)


@pytest.mark.parametrize("lanes", LANES)
def test_gathering_adds_scaled_rows(lanes: int) -> None:
    m, scales, offsets = whole(400, 0), whole(5, 1), np.array([9, 40, 0, 5, 9], np.int32)
    before = whole(200, 2)
    out, expected = before.copy(), before.copy()
    gather(m, scales, offsets, out, Fixed(lanes, 2, 3))
    for k in range(2):
        for j in (1, 2, 3):
            row = m[offsets[j] + 2 + 70 * k :][: 3 * lanes]
            expected[3 + 90 * k : 3 + 90 * k + 3 * lanes] += scales[j] * row
    np.testing.assert_array_equal(out, expected)


@njit
def pool(values: Any, window: Any, relu: Any, out: Any, count: Any, chosen: Any, keep: Any, shape: Any) -> None:
    microkernels.pool(values, 2, 20, window, relu, out, 5, count, chosen, 3, keep, shape)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_pooling_takes_the_first_largest_and_the_last_that_is_no_number(lanes: int, relu: bool, keep: bool) -> None:
    random = np.random.default_rng(lanes)
    for count in (lanes, lanes - 1):
        values = whole(100, count)
        values[random.random(100) < 0.1] = np.nan
        out, chosen = np.full(40, 9, np.float32), np.full(40, 7, np.uint8)
        pool(values, 4, relu, out, count, chosen, keep, Fixed(lanes))
        seen = np.stack([values[2 + 20 * p :][:lanes] for p in range(4)])
        last = 3 - np.isnan(seen)[::-1].argmax(0)
        which = np.where(np.isnan(seen).any(0), last, np.where(np.isnan(seen), -9, seen).argmax(0))
        largest = seen[which, np.arange(lanes)]
        dead = relu & (largest <= 0)
        expected = np.full(40, 9, np.float32)
        expected[5 : 5 + count] = np.where(dead, 0, largest)[:count]
        np.testing.assert_array_equal(out, expected)
        noted = np.where(dead, DEAD, which) if keep else np.full(lanes, 7)
        np.testing.assert_array_equal(chosen[3 : 3 + count], noted[:count])


@njit
def hits(g: Any, chosen: Any, wanted: Any, count: Any, shape: Any) -> Any:
    return microkernels.hits(g, 3, chosen, 2, wanted, count, shape)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("wanted", [0, 1, DEAD])
def test_hits_are_the_channels_whose_gradient_counts(lanes: int, wanted: int) -> None:
    random = np.random.default_rng(0)
    g, chosen = whole(30, 3), random.choice(np.array([0, 1, DEAD], np.uint8), 30)
    g[5] = np.nan
    fits: NDArray[np.bool] = chosen[2:] != DEAD if wanted == DEAD else chosen[2:] == wanted
    for count in (1, lanes - 1, lanes):
        bits = hits(g, chosen, wanted, count, Fixed(lanes))
        counts = [bool(fits[c] and g[3 + c] != 0) for c in range(count)]
        assert bits == sum(1 << c for c in range(count) if counts[c])


@njit
def transpose(m: Any, out: Any, shape: Any) -> None:
    microkernels.transpose(m, 3, 30, out, 5, 20, shape)


@pytest.mark.parametrize("lanes", LANES)
def test_a_square_is_transposed(lanes: int) -> None:
    m, out = whole(600, 0), np.zeros(600, np.float32)
    transpose(m, out, Fixed(lanes))
    square = np.lib.stride_tricks.as_strided(m[3:], (lanes, lanes), (120, 4))
    found = np.lib.stride_tricks.as_strided(out[5:], (lanes, lanes), (80, 4))
    np.testing.assert_array_equal(found, square.T)


def test_vectors_are_as_wide_as_the_processors() -> None:
    intel, arm = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
    assert widest({"avx2", "fma", "avx512f"}, intel) == Vectors(16, 32)
    assert widest({"avx2", "fma"}, intel) == Vectors(8, 16)
    assert widest({"avx2"}, intel) is None
    assert widest(set(), arm) == Vectors(4, 32)
