"""One battery of properties over all compressors and hostile vectors, then what is special about each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gammafl as gf
from gammafl.core import largest
from gammafl.core.arrays import Vector
from gammafl.core.compressors import Compressor
from gammafl.core.memory import Residual
from gammafl.core.method import as_method
from tests.methods.catalogue import REGISTERED

STEPSIZE = gf.InverseDecay(100, 1000)

SCHEDULE = gf.Schedule(STEPSIZE, iterations=1000)
MOMENT = SCHEDULE.moment(10)

COMPRESSORS: dict[str, gf.Method] = {
    "dense": gf.fedavg(),
    "ht-0.5": gf.hard_threshold(threshold=0.5),
    "ht-0": gf.hard_threshold(threshold=0.0),
    "gamma-fedht-0.8": gf.gamma_fedht(initial_threshold=0.8),
    "top-k-count": gf.top_k(k=3),
    "top-k-fraction": gf.top_k(keep=0.1),
    "top-k-all": gf.top_k(keep=1.0),
    "stc-0.1": gf.stc(keep=0.1),
    "gamma-fedht-q-0.8": gf.gamma_fedht_q(initial_threshold=0.8),
    "ternary-dense": gf.Method(gf.Dense(), values=gf.Ternary()),
    "half": gf.hard_threshold(threshold=0.5, values="f16"),
    "half-dense": gf.fedavg(values="f16"),
    "bfloat": gf.top_k(keep=0.3, values="bf16"),
    "8bit-dense": gf.quantised(bits=8, block=50),
    "4bit": gf.hard_threshold(threshold=0.5, values="4bit"),
    "2bit-dense": gf.fedavg(values="2bit"),
    "rand-k at 10%": gf.rand_k(keep=0.1),
    "rand-k-2bit": gf.rand_k(keep=0.5, values="2bit"),
    **REGISTERED,
}


def remembering(method: gf.Method | Compressor, dim: int, residual: Vector | None = None) -> Residual:
    """Error feedback with that method."""
    return Residual(as_method(method), dim, residual)


def at(t: int) -> gf.Moment:
    """Iteration t of the schedule that these tests share."""
    return SCHEDULE.moment(t)


ROUNDING = {name for name, method in COMPRESSORS.items() if type(method.values) is not gf.Exact}

MAX, TINY = np.finfo(np.float32).max, np.float32(1e-42)
HOSTILE: dict[str, Vector] = {
    "empty": np.empty(0, np.float32),
    "single": np.array([2.5], np.float32),
    "single zero": np.zeros(1, np.float32),
    "zeros": np.zeros(130, np.float32),
    "minus zeros": np.full(100, -0.0, np.float32),
    "one spike": np.eye(1, 200, 77, dtype=np.float32)[0] * 1e9,
    "all equal": np.full(129, 0.5, np.float32),
    "equal magnitudes": np.where(np.arange(257) % 3, 0.75, -0.75).astype(np.float32),
    "denormals": np.full(65, TINY) * np.where(np.arange(65) % 2, 1, -1).astype(np.float32),
    "largest floats": np.array([MAX, -MAX, 1.0, 0.0], np.float32),
    "around a block": np.linspace(-1, 1, 64 * 3 + 1, dtype=np.float32),
    "heavy tails": np.random.default_rng(1).standard_cauchy(999).astype(np.float32) ** 3,
    "normal": np.random.default_rng(0).standard_normal(1001).astype(np.float32),
}

every_compressor = pytest.mark.parametrize("name", COMPRESSORS)
every_vector = pytest.mark.parametrize("vector", HOSTILE.values(), ids=HOSTILE)


@every_compressor
@every_vector
def test_an_update_has_the_vectors_dimension_and_sorted_distinct_positions(name: str, vector: Vector) -> None:
    update = COMPRESSORS[name](vector, MOMENT)
    assert update.dim == vector.size
    assert update.values.dtype == np.float32
    assert (np.diff(update.indices.astype(np.int64)) > 0).all()
    assert np.isfinite(update.values).all()


@every_compressor
@every_vector
def test_what_is_not_sent_is_left(name: str, vector: Vector) -> None:
    """sent + rest is the vector: exactly, or up to the one rounding of wanted − sent where values are rounded."""
    rest = vector.copy()
    sent = COMPRESSORS[name].add_and_take(np.zeros_like(rest), rest, MOMENT).dense()
    np.testing.assert_array_equal(rest, vector - sent)
    if name not in ROUNDING:
        np.testing.assert_array_equal(sent + rest, vector)


@every_compressor
@every_vector
def test_compressing_leaves_the_vector_as_it_was(name: str, vector: Vector) -> None:
    before = vector.tobytes()
    COMPRESSORS[name](vector, MOMENT)
    assert vector.tobytes() == before


@pytest.mark.parametrize("name", [name for name in COMPRESSORS if "drive" not in name])  # which rotates them
@every_vector
def test_values_sent_have_the_sign_of_what_they_stand_for(name: str, vector: Vector) -> None:
    update = COMPRESSORS[name](vector, MOMENT)
    assert (np.sign(update.values) * np.sign(vector[update.indices]) >= 0).all()


@every_compressor
@every_vector
def test_every_update_travels(name: str, vector: Vector) -> None:
    update = COMPRESSORS[name](vector, MOMENT)
    assert gf.decode(gf.encode(update)) == update


FLOATS = hnp.arrays(np.float32, st.integers(0, 300), elements=st.floats(-2, 2, width=32))


@given(FLOATS, st.floats(0, 2))
def test_hard_threshold_keeps_exactly_what_exceeds_it(vector: Vector, threshold: float) -> None:
    update = gf.HardThreshold(threshold)(vector)
    np.testing.assert_array_equal(update.indices, np.flatnonzero(np.abs(vector) > np.float32(threshold)))
    np.testing.assert_array_equal(update.values, vector[update.indices])


def assert_top_k(vector: Vector, k: int) -> None:
    """The k largest by sorting, and the first among equals."""
    order = np.lexsort((np.arange(vector.size), -np.abs(vector)))[:k]
    expected = np.sort(order[vector[order] != 0])
    update = gf.TopK(k)(vector)
    np.testing.assert_array_equal(update.indices, expected)
    np.testing.assert_array_equal(update.values, vector[expected])


@given(FLOATS, st.integers(0, 310))
def test_top_k_keeps_the_k_largest_and_the_first_among_equals(vector: Vector, k: int) -> None:
    assert_top_k(vector, k)


LONG = np.random.default_rng(5).standard_normal(20_000).astype(np.float32)
MISLEADING: dict[str, Vector] = {
    "fair": LONG,
    "large only where a sample looks": np.where(np.arange(LONG.size) % (largest.SPARSE | 1), 0.01 * LONG, LONG),
    "large only where no sample looks": np.where(np.arange(LONG.size) % (largest.SPARSE | 1), LONG, 0.01 * LONG),
    "few magnitudes": np.round(LONG),
    "one magnitude": np.copysign(np.float32(0.5), LONG),
    "nearly all zero": np.where(np.arange(LONG.size) % 4999, np.float32(0), LONG),
    "sorted": np.sort(LONG),
}


@pytest.mark.parametrize("k", [1, 20, 1000, LONG.size // largest.SPARSE, LONG.size // 2])
@pytest.mark.parametrize("vector", MISLEADING.values(), ids=MISLEADING)
def test_top_k_of_a_long_vector_is_exact_whatever_a_sample_shows(vector: Vector, k: int) -> None:
    assert_top_k(vector.astype(np.float32), k)


def test_top_k_takes_a_fraction_as_the_decimal_it_is_written_as() -> None:
    vector = np.arange(1, 101, dtype=np.float32)
    assert len(gf.TopK(0.07)(vector)) == 7  # 0.07 * 100 is 7.000000000000001 in floating point
    assert len(gf.TopK(0.071)(vector)) == 8


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.floats(0.01, 1))
def test_top_k_per_tensor_is_top_k_of_each_tensor(sizes: list[int], share: float) -> None:
    vector = np.random.default_rng(sum(sizes)).standard_normal(sum(sizes)).astype(np.float32)
    layout = gf.Layout.of({str(i): (size,) for i, size in enumerate(sizes)})
    update = gf.TopK(share, scope="tensor")(vector, gf.Moment(layout=layout))
    parts = [gf.TopK(share)(part).dense() for part in np.split(vector, np.cumsum(sizes)[:-1])]
    np.testing.assert_array_equal(update.dense(), np.concatenate(parts))


def test_ternary_sends_the_mean_magnitude_of_the_kept_values_only() -> None:
    vector = np.array([0.1, -3, 0, 1, 0.2], np.float32)
    update = gf.stc(k=2)(vector)
    np.testing.assert_array_equal(update.indices, [1, 3])
    np.testing.assert_array_equal(update.values, [-2, 2])


def test_ternary_around_a_per_tensor_compressor_has_a_magnitude_per_tensor() -> None:
    vector = np.array([8, -4, 0, 0.25, -0.5, 0], np.float32)
    layout = gf.Layout.of({"first": (3,), "second": (3,)})
    update = gf.stc(keep=2 / 3, scope="tensor")(vector, gf.Moment(layout=layout))
    np.testing.assert_array_equal(update.dense(), [6, -6, 0, 0.375, -0.375, 0])


def test_gamma_fedht_is_ht_at_each_iterations_threshold() -> None:
    vector = HOSTILE["normal"]
    compressor = gf.GammaFedHT(1.5)
    for t in (0, 5, 500, 1000):
        moment = SCHEDULE.moment(t)
        assert compressor(vector, moment) == gf.HardThreshold(compressor.threshold(moment))(vector, moment)


@pytest.mark.parametrize("k", [-1, 0.0, 1.5, float("nan")])
def test_top_k_refuses_what_is_neither_count_nor_fraction(k: float) -> None:
    with pytest.raises(gf.InputError, match="TopK"):
        gf.TopK(k)


def test_a_per_tensor_compressor_needs_sizes_that_add_up() -> None:
    with pytest.raises(gf.InputError, match="the model's tensors"):
        gf.TopK(0.1, scope="tensor")(np.ones(6, np.float32))
    layout = gf.Layout.of({"first": (2,), "second": (3,)})
    with pytest.raises(gf.InputError, match="add up to 5"):
        gf.TopK(0.1, scope="tensor")(np.ones(6, np.float32), gf.Moment(layout=layout))


@pytest.mark.parametrize("method", [gf.top_k(k=5), gf.top_k(k=5, scope="tensor")], ids=str)
def test_tensors_that_are_whole_are_sent_as_they_are_and_the_rest_as_by_the_compressor(method: gf.Method) -> None:
    vector = HOSTILE["normal"]
    layout = gf.Layout.of({"weight": (901,)}, whole={"running_mean": (100,)})
    update = method(vector, gf.Moment(layout=layout))
    assert gf.SparseUpdate(901, update.indices[:5], update.values[:5]) == gf.TopK(5)(vector[:901])
    np.testing.assert_array_equal(update.indices[5:], np.arange(901, 1001))
    np.testing.assert_array_equal(update.values[5:], vector[901:])


def test_a_compressor_is_a_value() -> None:
    assert gf.gamma_fedht(keep=0.1) == gf.gamma_fedht(keep=0.1) != gf.gamma_fedht(keep=0.2)
    assert len({gf.top_k(), gf.top_k(), gf.stc()}) == 2
    assert gf.HardThreshold(0.5) != gf.HardThreshold(0.25)
    with pytest.raises(AttributeError):
        gf.TopK(3).k = 4  # type: ignore[misc]
