"""A compressor that is not ours: what it takes and leaves is checked, and a mistake loses nothing."""

from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.core.arrays import Vector
from gammafl.core.compressors import Compressor
from gammafl.core.method import as_method
from tests.conftest import vectors
from tests.core.test_compressors import at, remembering
from tests.problems import METHODS, plan_for, run


class EveryThird(Compressor):
    """As one should be."""

    def take(self, vector: Vector, moment: gf.Moment) -> gf.SparseUpdate:
        indices = np.arange(moment.t % 3, vector.size, 3)
        values = vector[indices]
        vector[indices] = 0
        return gf.SparseUpdate(vector.size, indices, values)


class Rounded(EveryThird):
    """Sends whole numbers, and leaves the rounding error."""

    def take(self, vector: Vector, moment: gf.Moment) -> gf.SparseUpdate:
        values = np.rint(vector)
        vector -= values
        return gf.SparseUpdate(vector.size, None, values)


class Forgetful(EveryThird):
    def take(self, vector: Vector, moment: gf.Moment) -> gf.SparseUpdate:
        return super().take(vector.copy(), moment)


class Negated(EveryThird):
    def take(self, vector: Vector, moment: gf.Moment) -> gf.SparseUpdate:
        update = super().take(vector, moment)
        return gf.SparseUpdate(update.dim, update.indices, -update.values)


class Returns(EveryThird):
    def __init__(self, value: Any) -> None:
        self.value = value

    def take(self, vector: Vector, moment: gf.Moment) -> Any:
        vector[:] = 0
        return self.value


class LeavesNothing(EveryThird):
    leaves_a_rest = False


class Fails(EveryThird):
    def take(self, vector: Vector, moment: gf.Moment) -> gf.SparseUpdate:
        vector[:] = 7
        raise RuntimeError("own mistake")


MISTAKES: dict[str, tuple[Compressor | gf.Method, str]] = {
    "forgets to take it out": (Forgetful(), "Forgetful.take must move what it returns out of the vector"),
    "sends another sign": (Negated(), "must move what it returns"),
    "returns nothing": (Returns(None), r"must return what it took as gf.SparseUpdate.*NoneType"),
    "returns a dense vector": (Returns(np.zeros(30, np.float32)), "got ndarray"),
    "returns a pair": (Returns(([1], [2.0])), "got tuple"),
    "returns another dimension": (Returns(gf.SparseUpdate(31, [1], [2.0])), "31 elements, not 30"),
    "returns positions twice": (Returns(gf.SparseUpdate(30, [1, 1], [2.0, 2.0])), "do not increase"),
    "returns NaN": (Returns(gf.SparseUpdate(30, [1], [np.nan])), "not finite"),
    "leaves something after all": (LeavesNothing(), "leaves_a_rest = False but left"),
    "forgets, with rounded values": (gf.Method(Forgetful(), values=gf.Half()), "must move what it returns"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_a_sentence_and_the_residual_stays(mistake: str) -> None:
    method, sentence = MISTAKES[mistake]
    start, delta = vectors(2, 30)
    memory = remembering(method, 30, start.copy())
    with pytest.raises(gf.InputError, match=sentence):
        memory.propose(delta, at(5))
    assert memory.residual.tobytes() == start.tobytes()
    with pytest.raises(gf.InputError, match=sentence):
        as_method(method)(delta, at(5))


class Viewing(EveryThird):
    """Returns a view, and then zeroes what it shows."""

    def take(self, vector: Vector, moment: gf.Moment) -> gf.SparseUpdate:
        update = gf.SparseUpdate(vector.size, np.arange(10), vector[:10])
        vector[:10] = 0
        return update


class Rounding(gf.Values):
    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def round(self, update: gf.SparseUpdate, sizes: Any) -> Any:
        return self.returned


@pytest.mark.parametrize(
    "returned",
    [None, "x", np.zeros(9, np.float32), np.zeros((10, 1), np.float32), np.full(10, np.nan, np.float32)],
    ids=str,
)
def test_values_of_ones_own_that_are_none_are_a_sentence_and_the_residual_stays(returned: Any) -> None:
    start, delta = vectors(2, 30)
    memory = remembering(gf.Method(gf.TopK(10), values=Rounding(returned)), 30, start.copy())
    with pytest.raises(gf.InputError, match=r"Rounding\.round"):
        memory.propose(delta, at(5))
    assert memory.residual.tobytes() == start.tobytes()


def test_a_view_that_was_zeroed_is_told_from_a_forgotten_zero() -> None:
    with pytest.raises(gf.InputError, match="Copy what you return before you zero it"):
        Viewing()(vectors(1, 30)[0])


def test_a_class_in_place_of_a_compressor_is_asked_for_its_brackets() -> None:
    with pytest.raises(gf.InputError, match=r"EveryThird; did you forget the \(\)\?"):
        gf.Method(EveryThird)  # type: ignore[arg-type]


class Random(EveryThird):
    """Sends ten places by the key."""

    def take(self, vector: Vector, moment: gf.Moment) -> gf.SparseUpdate:
        indices = np.sort(np.random.default_rng(moment.key).choice(vector.size, 10, replace=False))
        values = vector[indices]
        vector[indices] = 0
        return gf.SparseUpdate(vector.size, indices, values)


def test_every_client_and_round_has_a_key_of_its_own_and_a_run_is_repeatable() -> None:
    keys: list[int] = []

    class Spy(Random):
        def take(self, vector: Vector, moment: gf.Moment) -> gf.SparseUpdate:
            keys.append(moment.key)
            return super().take(vector, moment)

    first, again = (run(plan_for(Spy())) for _ in range(2))
    assert len(keys) == 2 * 80
    assert keys[:80] == keys[80:]
    assert len(set(keys)) == 80
    assert first[0].model.tobytes() == again[0].model.tobytes()


def test_the_residual_stays_when_a_compressor_fails() -> None:
    start, delta = vectors(2, 30)
    memory = remembering(Fails(), 30, start.copy())
    with pytest.raises(RuntimeError, match="own mistake"):
        memory.propose(delta, at(5))
    assert memory.residual.tobytes() == start.tobytes()


class Meddling(EveryThird):
    """Writes into the update that it is given, keeps the residual, and returns the same array each time."""

    kept: ClassVar[list[Vector]] = []
    values = np.zeros(10, np.float32)

    def add_and_take(self, delta: Vector, residual: Vector, moment: gf.Moment) -> gf.SparseUpdate:
        for old in self.kept:
            old[:] = 99
        self.kept.append(residual)
        residual += delta
        delta[:] = 0
        self.values[:] = residual[::3]
        residual[::3] = 0
        return gf.SparseUpdate(30, np.arange(0, 30, 3), self.values)


def test_a_compressor_sees_copies_alone() -> None:
    deltas = vectors(4, 30)
    before = [delta.copy() for delta in deltas]
    first, second = remembering(Meddling(), 30), remembering(Meddling(), 30)
    updates = [memory.propose(delta, at(3)) for memory, delta in zip([first, second] * 2, deltas, strict=True)]
    for memory, number in ((first, 0), (second, 1)):
        sent = updates[number].dense() + updates[number + 2].dense()
        np.testing.assert_allclose(sent + memory.residual, before[number] + before[number + 2], atol=1e-6)
    assert all(np.array_equal(a, b) for a, b in zip(deltas, before, strict=True))


numbers = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100)


@pytest.mark.parametrize(
    "method",
    [
        gf.Method(EveryThird()),
        gf.Method(Rounded()),
        gf.Method(EveryThird(), values=gf.Ternary()),
        gf.Method(EveryThird(), values=gf.Half()),
    ],
    ids=["as it is", "rounded", "ternary", "half"],
)
@given(deltas=st.lists(st.lists(numbers, min_size=7, max_size=7), min_size=1, max_size=4))
def test_a_compressor_in_order_is_accepted_whatever_the_numbers(method: gf.Method, deltas: list[list[float]]) -> None:
    memory = remembering(method, 7)
    for t, delta in enumerate(deltas):
        memory.propose(np.array(delta, np.float32), at(t))


@pytest.mark.parametrize("name", METHODS)
@given(delta=st.lists(numbers, min_size=7, max_size=7))
def test_our_own_would_pass_the_same_check(name: str, delta: list[float]) -> None:
    """Being `proven` spares them the look, not the property."""
    vector = np.array(delta, np.float32)
    rest = vector.copy()
    update = METHODS[name].add_and_take(np.zeros_like(rest), rest, at(5))
    METHODS[name].check(vector, update, rest)


def test_a_subclass_of_ours_is_not_ours() -> None:
    class Spoilt(gf.TopK):
        def take(self, vector: Vector, moment: gf.Moment) -> gf.SparseUpdate:
            return super().take(vector.copy(), moment)

    with pytest.raises(gf.InputError, match=r"Spoilt.take must move"):
        remembering(Spoilt(3), 30).propose(vectors(1, 30)[0], at(5))


def test_the_simulator_takes_an_own_compressor_and_refuses_a_forgetful_one() -> None:
    assert len(run(plan_for(EveryThird()))[2]) == 40
    with pytest.raises(gf.InputError, match="Forgetful"):
        run(plan_for(Forgetful()))
