"""Rand-k, QSGD, quantised and DRIVE as methods: what is sent and what is left, on average and every time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.core.arrays import Vector
from gammafl.core.moment import key_of
from gammafl.core.wire import POSITIONS, VALUES, header_bytes, read_head
from tests.conftest import vectors
from tests.core.test_compressors import every_vector
from tests.methods.proofs import reference

METHODS: dict[str, gf.Method] = {
    "rand-k": gf.rand_k(keep=0.3),
    "rand-k, scaled": gf.rand_k(keep=0.3, scaled=True),
    "rand-k, 4 bits": gf.rand_k(keep=0.3, values="4bit"),
    "qsgd": gf.qsgd(),
    "qsgd, l2": gf.qsgd(levels=1, block=50, norm="l2"),
    "quantised": gf.quantised(),
    "drive": gf.drive(),
    "drive, nearest": gf.drive(scale="nearest"),
    "top-k, rotated": gf.Method(gf.TopK(0.3), values=gf.Rotation("nearest")),
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
LAYOUT = gf.Layout.of({"weight": (20, 20), "bias": (7,)}, whole={"running_mean": (13,)})


def moment(key: int, layout: gf.Layout | None = None) -> gf.Moment:
    return gf.Moment(key=key_of(key), layout=layout)


@every_method
@every_vector
def test_sent_and_rest_are_the_vector_and_the_message_is_the_update(method: gf.Method, vector: Vector) -> None:
    """`check` refuses anything else."""
    rest = vector.copy()
    with np.errstate(over="ignore"):
        update = method.add_and_take(np.zeros_like(rest), rest, moment(3))
    if np.isfinite(rest).all():
        method.check(vector, update, rest)
    payload = gf.encode(update)
    arrived = gf.decode(payload, vector.size)
    assert arrived == update
    assert gf.encode(arrived) == payload


@every_method
def test_the_key_alone_decides_what_is_drawn(method: gf.Method) -> None:
    (vector,) = vectors(1, 1000)
    first, again, other = method(vector, moment(1)), method(vector, moment(1)), method(vector, moment(2))
    assert first == again
    assert (first == other) == (method.values == gf.Bits(4) and isinstance(method.compressor, gf.Dense))


@every_method
def test_statistics_are_sent_whole_beside_coded_values(method: gf.Method) -> None:
    (vector,) = vectors(1, LAYOUT.dim)
    update = method(vector, moment(1, LAYOUT))
    assert update.whole == 13
    np.testing.assert_array_equal(update.dense()[-13:], vector[-13:])
    arrived = gf.decode(gf.encode(update))
    assert arrived == update
    assert arrived.whole == 13


def kinds(method: gf.Method, scale: float = 1.0) -> tuple[str, str]:
    head = read_head(gf.encode(method(vectors(1, 5000, scale=scale)[0], moment(1))))
    return POSITIONS[head.positions], VALUES[head.values]


def test_messages_are_of_the_kind_that_is_meant_for_them() -> None:
    assert kinds(gf.rand_k(keep=0.1)) == ("drawn", "f32")
    assert kinds(gf.rand_k(keep=0.1, values="4bit")) == ("drawn", "bits")
    assert kinds(gf.qsgd()) == kinds(gf.quantised()) == kinds(gf.fedavg(values="2bit")) == ("all", "bits")
    assert kinds(gf.drive()) == ("all", "rotated")
    assert kinds(gf.fedavg(values="bf16"), scale=1e-9) == ("all", "bf16")  # too small for f16
    assert kinds(gf.top_k(keep=0.01, values="8bit")) == ("rice", "bits")


def test_rand_k_sends_a_key_in_place_of_positions() -> None:
    message = gf.encode(gf.rand_k(keep=0.01)(vectors(1, 100_000)[0], moment(1)))
    assert len(message) == header_bytes(100_000, 1000) + 8 + 4 * 1000


@given(st.integers(1, 2000), st.floats(0.001, 1), st.integers(0, 2**64 - 1))
def test_rand_k_keeps_as_many_as_it_is_told(dim: int, keep: float, key: int) -> None:
    (vector,) = vectors(1, dim)
    assert len(gf.RandK(keep)(vector, gf.Moment(key=key))) == len(gf.TopK(keep)(vector))
    assert len(gf.RandK(7)(vector, gf.Moment(key=key))) == min(7, dim)
    assert len(gf.RandK(7)(vector, gf.Moment(key=key, keep=keep))) == len(gf.TopK(keep)(vector))


@reference("rand-k")
def test_rand_k_contracts_by_k_of_d_on_average() -> None:
    """E‖x − C(x)‖² = (1 − k/d)·‖x‖² (Stich et al.); over n keys within 6 standard deviations of a mean of n."""
    (vector,) = vectors(1, 200)
    keys, size = 3000, float((vector.astype(float) ** 2).sum())
    left = [size - float((gf.RandK(0.1)(vector, moment(key)).values.astype(float) ** 2).sum()) for key in range(keys)]
    assert abs(np.mean(left) - 0.9 * size) <= 6 * np.std(left) / np.sqrt(keys)


UNBIASED = {name: METHODS[name] for name in ("rand-k, scaled", "qsgd", "qsgd, l2", "drive")}


@pytest.mark.parametrize("method", UNBIASED.values(), ids=UNBIASED)
def test_what_is_unbiased_is_right_on_average(method: gf.Method) -> None:
    """The mean of n draws has an n-th of the squared error of one: its ratio to that is about 1 for any vector."""
    (vector,) = vectors(1, 256, seed=4)
    keys = 3000
    draws = np.array([method(vector, moment(key)).dense() for key in range(keys)], np.float64)
    each = ((draws - vector) ** 2).sum(axis=1).mean()
    mean = ((draws.mean(axis=0) - vector) ** 2).sum()
    assert mean <= 1.6 * each / keys


def test_scaled_rand_k_has_the_variance_of_its_paper() -> None:
    """E‖Q(x) − x‖² = (d/k − 1)·‖x‖²."""
    (vector,) = vectors(1, 200)
    size = float((vector.astype(float) ** 2).sum())
    method = gf.rand_k(keep=0.1, scaled=True)
    errors = [float(((method(vector, moment(key)).dense() - vector) ** 2).sum()) for key in range(3000)]
    assert abs(np.mean(errors) - 9 * size) <= 6 * np.std(errors) / np.sqrt(3000)


@pytest.mark.parametrize("name", ["rand-k", "rand-k, 4 bits", "quantised", "drive, nearest", "top-k, rotated"])
def test_with_error_feedback_nothing_is_lost_over_rounds(name: str) -> None:
    method, dim = METHODS[name], 300
    memory = method.memory.client(method, dim)
    computed, sent = np.zeros(dim), np.zeros(dim)
    for t, delta in enumerate(vectors(30, dim, seed=2)):
        computed += delta
        sent += gf.decode(gf.encode(memory.propose(delta, moment(t)))).dense()
    np.testing.assert_allclose(computed, sent + memory.state()["residual"], atol=1e-4)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: gf.Bits(3), "2, 4 or 8 bits"),
        (lambda: gf.Bits(4, block=0), "block must be"),
        (lambda: gf.qsgd(levels=128), "from 1 to 127"),
        (lambda: gf.qsgd(norm="l1"), "'max' or 'l2'"),  # type: ignore[arg-type]
        (lambda: gf.drive(scale="best"), "scale must be one of"),  # type: ignore[arg-type]
        (lambda: gf.rand_k(k=-1), "RandK takes a count"),
        (lambda: gf.top_k(values="3bit"), "values must be one of"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_are_none_are_a_sentence(make, problem: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(gf.InputError, match=problem):
        make()


class Thirds(gf.Values):
    """One's own rounding that draws random numbers: `sent` in place of `round`."""

    def round(self, update: gf.SparseUpdate, sizes: object) -> Vector:
        return (np.rint(update.values * 3) / 3).astype(np.float32)

    def sent(self, update: gf.SparseUpdate, sizes: object, key: int) -> gf.SparseUpdate:
        chance = np.random.default_rng(key).random(len(update))
        return update.with_values((np.floor(update.values * 3 + chance) / 3).astype(np.float32))


def test_a_rounding_of_ones_own_may_draw_random_numbers() -> None:
    (vector,) = vectors(1, 50)
    method = gf.Method(gf.TopK(0.5), values=Thirds())
    assert method(vector, moment(1)) == method(vector, moment(1)) != method(vector, moment(2))
