"""The k entries of largest magnitude: a function of the vector, of k and of the key, however it is found."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gammafl.core import kernels, largest, threads
from gammafl.core.arrays import Vector
from gammafl.core.largest import add_and_take_largest

MAGNITUDE = 0x7FFFFFFF
TINIEST = float(np.finfo(np.float32).smallest_subnormal)


def bits(vector: Vector) -> np.ndarray:
    return vector.view(np.uint32) & MAGNITUDE


def taken(delta: Vector, residual: Vector, k: int, key: int | None = 0) -> tuple[np.ndarray, Vector, Vector]:
    """(positions, values, rest), with the residual left as it was."""
    rest = residual.copy()
    indices, values = add_and_take_largest(delta, rest, k, key)
    return indices, values, rest


def assert_the_largest(vector: Vector, k: int, indices: np.ndarray, values: Vector, rest: Vector) -> None:
    """As many as there should be, none smaller than what is left, and the two together are the vector."""
    assert len(indices) == min(k, np.count_nonzero(vector))
    assert (np.diff(indices.astype(np.int64)) > 0).all()
    left = rest.copy()
    left[indices] = values
    assert left.tobytes() == vector.tobytes()
    assert not rest[indices].any()
    if len(indices):
        assert bits(values).min() >= bits(rest).max()


def optimiser_like(kind: str, size: int, seed: int) -> Vector:
    """Updates as they come: of plain SGD, with heavy tails, of Lion, of AdamW, mostly zeros, of few magnitudes."""
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal(size)
    made = {
        "sgd": 1e-3 * normal * np.exp(rng.standard_normal(size)),
        "heavy tails": rng.standard_cauchy(size) ** 3,
        "lion": 1e-4 * np.sign(normal),
        "lion, some rounds": 1e-4 * rng.integers(-3, 4, size),
        "adamw": 5e-5 * np.clip(normal, -1, 1),
        "mostly zeros": normal * (rng.random(size) < 1e-3),
        "one spike": 1e6 * (np.arange(size) == seed % size),
        "zeros": np.zeros(size),
        "embedding": np.repeat(rng.random(-(-size // 64)) < 0.02, 64)[:size] * normal,
        "sorted": np.sort(normal),
    }
    return np.asarray(made[kind], np.float32)


KINDS = [
    "sgd", "heavy tails", "lion", "lion, some rounds", "adamw", "mostly zeros", "one spike", "zeros", "embedding",
    "sorted",
]  # fmt: skip
every_kind = pytest.mark.parametrize("kind", KINDS)
LONG = 70_003
COUNTS = (1, 2, 70, 700, LONG // largest.LINE, LONG // largest.LINE + 1, LONG // 2, LONG // 2 + 1, LONG)


@every_kind
@pytest.mark.parametrize("k", COUNTS)
def test_exactly_k_are_taken_whatever_the_optimiser(kind: str, k: int) -> None:
    delta, residual = optimiser_like(kind, LONG, 1), optimiser_like(kind, LONG, 2)
    assert_the_largest(residual + delta, k, *taken(delta, residual, k))


@every_kind
@pytest.mark.parametrize("k", [14_000, 200_000])
def test_exactly_k_are_taken_of_many_candidates(kind: str, k: int) -> None:
    delta, residual = optimiser_like(kind, 900_000, 1), optimiser_like(kind, 900_000, 2)
    assert_the_largest(residual + delta, k, *taken(delta, residual, k))


FLOATS = st.floats(-2, 2, width=32) | st.sampled_from([0.0, 1.0, -1.0, TINIEST, 3e38, 1e-40])
SHORT = hnp.arrays(np.float32, st.integers(0, 300), elements=FLOATS)


@given(SHORT, st.integers(0, 310), st.integers(0, 2**64 - 1))
def test_exactly_k_are_taken_of_any_vector(vector: Vector, k: int, key: int) -> None:
    assert_the_largest(vector + np.float32(0), k, *taken(np.zeros_like(vector), vector, k, key))


@given(
    st.sampled_from(KINDS),
    st.integers(4096, 30_000),
    st.floats(1e-4, 0.06),
    st.integers(0, 2**64 - 1),
    st.integers(0, 99),
)
def test_exactly_k_are_taken_where_a_sample_tells_where_to_look(
    kind: str, size: int, keep: float, key: int, seed: int
) -> None:
    vector, k = optimiser_like(kind, size, seed) + np.float32(0), max(1, round(keep * size))
    assert_the_largest(vector, k, *taken(np.zeros_like(vector), vector, k, key))


@every_kind
@pytest.mark.parametrize("factor", [2.0**100, 2.0**-100, 2.0**20, 2.0**-20])
def test_a_power_of_two_changes_no_decision(kind: str, factor: float) -> None:
    """As far as float32 holds the products: what becomes infinite or loses digits is left out."""
    vector = optimiser_like(kind, LONG, 3)
    with np.errstate(over="ignore", under="ignore"):
        scaled = vector * np.float32(factor)
        exact = np.isfinite(scaled) & (scaled / np.float32(factor) == vector)
    vector, scaled = np.where(exact, vector, 0).astype(np.float32), np.where(exact, scaled, 0).astype(np.float32)
    zeros = np.zeros_like(vector)
    for k in (70, 700):
        np.testing.assert_array_equal(taken(zeros, vector, k)[0], taken(zeros, scaled, k)[0])


@every_kind
@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_a_factor_that_rounds_changes_only_what_rounding_makes_equal(kind: str, factor: float) -> None:
    vector = optimiser_like(kind, LONG, 4)
    scaled = vector * np.float32(factor)
    zeros = np.zeros_like(vector)
    before, after = taken(zeros, vector, 700)[0], taken(zeros, scaled, 700)[0]
    swapped = np.setxor1d(before, after)
    assert len(before) == len(after)
    assert len(np.unique(bits(scaled[swapped]))) <= 1


def test_denormals_are_told_apart() -> None:
    vector = np.arange(20_000, dtype=np.uint32).view(np.float32)
    indices, _, _ = taken(np.zeros_like(vector), vector, 5)
    assert indices.tolist() == list(range(19_995, 20_000))


@pytest.mark.parametrize("size", [1000, LONG, 3 * kernels.SLICE_AT_LEAST])
@pytest.mark.parametrize("kind", ["lion", "lion, some rounds", "sgd", "embedding"])
def test_the_number_of_threads_changes_nothing(kind: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    delta, residual = optimiser_like(kind, size, 5), optimiser_like(kind, size, 6)
    results = []
    for count in (1, 2, 3):
        monkeypatch.setattr(threads, "_count", count)
        results.append([part.tobytes() for part in taken(delta, residual, size // 500, key=7)])
    assert results[0] == results[1] == results[2]


def test_the_sample_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that misleads, in either direction, nor none at all."""
    delta, residual = optimiser_like("sgd", LONG, 8), optimiser_like("sgd", LONG, 9)
    k, fair = 70, taken(delta, optimiser_like("sgd", LONG, 9), 70)
    largest_bits = int(bits(residual + delta).max())
    for limits in product((0, 1, largest_bits // 2, largest_bits - 1, largest_bits), repeat=2):
        monkeypatch.setattr(largest, "_likely_limits", lambda *_, limits=limits: limits)
        for ours, theirs in zip(fair, taken(delta, residual, k), strict=True):
            assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("size", [1000, LONG])
def test_among_equals_the_key_chooses_and_spreads_its_choice(size: int) -> None:
    """All magnitudes are equal, as Lion's are: no position is preferred, and no key sends what another sends."""
    vector, k = optimiser_like("lion", size, 10), size // 50
    zeros, times = np.zeros(size, np.float32), np.zeros(size)
    for key in range(400):
        indices = taken(zeros, vector, k, key)[0]
        assert len(indices) == k
        times[indices] += 1
    assert times.max() <= 8 + 8 * 3  # 8 on average: a binomial's maximum over all positions stays below 8 + 8·√8
    for part in np.array_split(times, 10):
        assert part.mean() == pytest.approx(8, rel=0.05)  # each tenth of the vector gets its share
    assert not np.array_equal(taken(zeros, vector, k, 1)[0], taken(zeros, vector, k, 2)[0])
    np.testing.assert_array_equal(taken(zeros, vector, k, 1)[0], taken(zeros, vector, k, 1)[0])


@pytest.mark.parametrize("size", [1000, LONG])
def test_without_a_key_the_first_of_equals_are_taken(size: int) -> None:
    vector = optimiser_like("lion", size, 11)
    assert taken(np.zeros(size, np.float32), vector, 20, None)[0].tolist() == list(range(20))


def test_equals_beside_larger_ones_fill_the_count() -> None:
    vector = optimiser_like("lion", LONG, 12)
    vector[[5, 40_000]] *= 3
    indices, values, rest = taken(np.zeros_like(vector), vector, 700, 3)
    assert {5, 40_000} <= set(indices.tolist())
    assert_the_largest(vector, 700, indices, values, rest)
