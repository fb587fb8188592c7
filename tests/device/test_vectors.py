"""A vector on a device gives what the CPU's loops give, to the bit: positions, values and what is left."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gammafl.core import kernels, largest
from gammafl.core.arrays import Vector
from gammafl.core.device import torch_largest
from gammafl.core.device.torch_vectors import TorchVector
from gammafl.core.device.vectors import DeviceVector
from tests.core.test_largest import optimiser_like
from tests.device.conftest import Place

KINDS = ["sgd", "heavy tails", "lion", "lion, some rounds", "adamw", "mostly zeros", "one spike", "zeros", "embedding"]
pytestmark = pytest.mark.device


def same(found: tuple[np.ndarray, Vector], wanted: tuple[np.ndarray, Vector], left: DeviceVector, rest: Vector) -> None:
    assert found[0].dtype == np.uint32
    assert found[0].tolist() == wanted[0].tolist()
    assert found[1].tobytes() == wanted[1].tobytes()
    assert left.host().tobytes() == rest.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 7, 4095, 4096, 70_001, 300_000])
def test_what_exceeds_a_threshold_is_the_same(kind: str, size: int, place: Place) -> None:
    delta, residual = optimiser_like(kind, size, 0), optimiser_like("sgd", size, 1)
    for quantile in (0.0, 0.5, 0.99, 1.0):
        threshold = float(np.quantile(np.abs(residual + delta), quantile))
        rest, left = residual.copy(), place(residual.copy())
        wanted = kernels.add_and_take_above(delta, rest, threshold)
        same(left.add_and_take_above(place(delta), threshold), wanted, left, rest)


@pytest.mark.parametrize("kind", [*KINDS, "sorted"])
@pytest.mark.parametrize("size", [1, 7, 4095, 4096, 70_001, 300_000])
def test_the_largest_are_the_same_and_so_is_the_choice_among_equals(kind: str, size: int, place: Place) -> None:
    delta, residual = optimiser_like(kind, size, 0), np.zeros(size, np.float32)
    for k in sorted({0, 1, size // 1000, size // 50, size // 3, size - 1, size, size + 5}):
        for key in (None, 0, 12345678901234567890):
            rest, left = residual.copy(), place(residual.copy())
            wanted = largest.add_and_take_largest(delta, rest, k, key)
            same(left.add_and_take_largest(place(delta), k, key), wanted, left, rest)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(0, 70), st.integers(1, 4))
def test_few_magnitudes_and_any_k(seed: int, size: int, k: int, magnitudes: int) -> None:
    rng = np.random.default_rng(seed)
    delta = rng.integers(-magnitudes, magnitudes + 1, size).astype(np.float32)
    rest, left = np.zeros(size, np.float32), TorchVector(torch.zeros(size))
    wanted = largest.add_and_take_largest(delta, rest, k, seed)
    same(left.add_and_take_largest(TorchVector(torch.from_numpy(delta)), k, seed), wanted, left, rest)


def test_a_sample_that_misleads_is_put_right(place: Place) -> None:
    """All that is large lies where the sample does not look, then all that is small."""
    vector = np.full(400_000, 1e-3, np.float32)
    vector[1::7] = 1.0
    for key in range(7):
        rest, left = vector.copy(), place(vector.copy())
        wanted = largest.take_largest(rest, 1000, key)
        same(torch_largest.take_largest(left.tensor, 1000, key), wanted, left, rest)


def test_room_that_is_too_small_is_made_larger(place: Place) -> None:
    vector, left = optimiser_like("sgd", 100_000, 3), place(np.zeros(100_000, np.float32))
    for threshold in (1.0, 0.0, 1.0):
        left[:] = 0
        found, _ = left.add_and_take_above(place(vector), threshold)
        assert len(found) == int((np.abs(vector) > threshold).sum())


def test_long_vectors_are_looked_at_part_by_part(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("torch_vectors", "torch_largest"):
        monkeypatch.setattr(f"gammafl.core.device.{module}.MOST", 1 << 14)
    delta, residual = optimiser_like("sgd", 100_000, 0), optimiser_like("adamw", 100_000, 1)
    rest, left = residual.copy(), place(residual.copy())
    same(left.add_and_take_above(place(delta), 2e-3), kernels.add_and_take_above(delta, rest, 2e-3), left, rest)
    wanted = largest.add_and_take_largest(delta, rest, 500, 7)
    same(left.add_and_take_largest(place(delta), 500, 7), wanted, left, rest)


def test_a_backend_without_a_fixed_room_gives_the_same(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gammafl.core.device.crossing._without_static", {"cpu", "cuda", "mps", "xpu"})
    delta = optimiser_like("sgd", 70_001, 0)
    for threshold in (1e-3, 1e-2, 1.0):
        rest, left = np.zeros_like(delta), place(np.zeros_like(delta))
        wanted = kernels.add_and_take_above(delta, rest, threshold)
        same(left.add_and_take_above(place(delta), threshold), wanted, left, rest)


def test_it_is_read_and_written_like_a_vector(place: Place) -> None:
    values = np.arange(10, dtype=np.float32)
    vector, positions = place(values.copy()), np.array([1, 4], np.uint32)
    assert vector[positions].tolist() == [1, 4]
    vector[positions] += np.array([10, 20], np.float32)
    vector[:3] -= np.array([0, 1, 0], np.float32)
    vector[8:] = 0
    vector += place(values)
    assert vector.host().tolist() == [0, 11, 4, 6, 28, 10, 12, 14, 8, 9]
    assert vector.largest_magnitude() == 28
    assert place(np.empty(0, np.float32)).largest_magnitude() == 0
    assert np.isnan(place(np.array([1, np.nan], np.float32)).largest_magnitude())


@pytest.mark.parametrize("telling", [True, False])
def test_what_is_not_finite_is_told_on_any_backend(
    telling: bool, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a maximum leaves NaN out, as on mps."""
    if not telling:
        monkeypatch.setattr("gammafl.core.device.torch_vectors.TELLS_NAN", set())
    values = np.array([1, -2, 0, -0.0, 1e-45], np.float32)
    assert place(values).largest_magnitude() == 2
    assert place(np.array([-0.0], np.float32)).largest_magnitude() == 0
    for odd in (np.nan, -np.nan):
        values[3] = odd
        assert np.isnan(place(values).largest_magnitude())
    values[3] = -np.inf
    assert place(values).largest_magnitude() == np.inf


def test_a_threshold_takes_what_the_host_takes_also_where_it_is_not_finite(place: Place) -> None:
    delta = np.array([1, np.nan, -np.inf, 0.1, 1e-45, -0.0, 3e38], np.float32)
    for threshold in (0.0, 0.5, 3e38, float("inf")):
        rest, left = np.zeros_like(delta), place(np.zeros_like(delta))
        wanted = kernels.add_and_take_above(delta, rest, threshold)
        same(left.add_and_take_above(place(delta), threshold), wanted, left, rest)


def test_it_never_becomes_an_array_by_itself(place: Place) -> None:
    """A dense copy on the host is made by `host` alone."""
    with pytest.raises((TypeError, ValueError)):
        np.asarray(place(np.ones(3, np.float32)), np.float32)
