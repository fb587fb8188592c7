"""A compressor that is not ours: what it takes and leaves is checked, and a mistake loses nothing."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.core import compressors
from gammafl.core.compressors import Compressor
from gammafl.core.kernels import Vector
from tests.conftest import vectors
from tests.problems import METHODS, plan_for, run


class EveryThird(Compressor):
    """As one should be."""

    def take(self, vector: Vector, t: int) -> gf.SparseUpdate:
        indices = np.arange(t % 3, vector.size, 3)
        values = vector[indices]
        vector[indices] = 0
        return gf.SparseUpdate(vector.size, indices, values)


class Rounded(EveryThird):
    """Sends whole numbers, and leaves the rounding error."""

    def take(self, vector: Vector, t: int) -> gf.SparseUpdate:
        values = np.rint(vector)
        vector -= values
        return gf.SparseUpdate(vector.size, None, values)


class Forgetful(EveryThird):
    def take(self, vector: Vector, t: int) -> gf.SparseUpdate:
        return super().take(vector.copy(), t)


class Negated(EveryThird):
    def take(self, vector: Vector, t: int) -> gf.SparseUpdate:
        update = super().take(vector, t)
        return gf.SparseUpdate(update.dim, update.indices, -update.values)


class Returns(EveryThird):
    def __init__(self, value: Any) -> None:
        self.value = value

    def take(self, vector: Vector, t: int) -> Any:
        vector[:] = 0
        return self.value


class LeavesNothing(EveryThird):
    leaves_a_rest = False


class Fails(EveryThird):
    def take(self, vector: Vector, t: int) -> gf.SparseUpdate:
        vector[:] = 7
        raise RuntimeError("own mistake")


MISTAKES: dict[str, tuple[Compressor, str]] = {
    "forgets to take it out": (Forgetful(), "Forgetful.take must move what it returns out of the vector"),
    "sends another sign": (Negated(), "must move what it returns"),
    "returns nothing": (Returns(None), r"must return what it took as gf.SparseUpdate.*NoneType"),
    "returns a dense vector": (Returns(np.zeros(30, np.float32)), "got ndarray"),
    "returns a pair": (Returns(([1], [2.0])), "got tuple"),
    "returns another dimension": (Returns(gf.SparseUpdate(31, [1], [2.0])), "31 elements, not 30"),
    "returns positions twice": (Returns(gf.SparseUpdate(30, [1, 1], [2.0, 2.0])), "do not increase"),
    "returns NaN": (Returns(gf.SparseUpdate(30, [1], [np.nan])), "must move what it returns"),
    "leaves something after all": (LeavesNothing(), "leaves_a_rest = False but left"),
    "forgets, as a part of ours": (compressors.DenseTail(Forgetful(), 5), "must move what it returns"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_a_sentence_and_the_residual_stays(mistake: str) -> None:
    method, sentence = MISTAKES[mistake]
    start, delta = vectors(2, 30)
    memory = gf.ErrorFeedback(method, 30, start.copy())
    with pytest.raises(gf.InputError, match=sentence):
        memory.compress(delta, 5)
    assert memory.residual.tobytes() == start.tobytes()
    with pytest.raises(gf.InputError, match=sentence):
        method(delta, 5)


def test_the_residual_stays_when_a_compressor_fails() -> None:
    start, delta = vectors(2, 30)
    memory = gf.ErrorFeedback(Fails(), 30, start.copy())
    with pytest.raises(RuntimeError, match="own mistake"):
        memory.compress(delta, 5)
    assert memory.residual.tobytes() == start.tobytes()


numbers = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100)


@pytest.mark.parametrize("method", [EveryThird(), Rounded(), gf.Ternary(EveryThird()), gf.Half(EveryThird())])
@given(deltas=st.lists(st.lists(numbers, min_size=7, max_size=7), min_size=1, max_size=4))
def test_a_compressor_in_order_is_accepted_whatever_the_numbers(method: Compressor, deltas: list[list[float]]) -> None:
    memory = gf.ErrorFeedback(method, 7)
    for t, delta in enumerate(deltas):
        memory.compress(np.array(delta, np.float32), t)


@pytest.mark.parametrize("name", METHODS)
@given(delta=st.lists(numbers, min_size=7, max_size=7))
def test_our_own_would_pass_the_same_check(name: str, delta: list[float]) -> None:
    """`is_proven` spares them the look, not the property."""
    vector = np.array(delta, np.float32)
    rest = vector.copy()
    update = METHODS[name].take(rest, 5)
    compressors.check_taken(METHODS[name], vector, update, rest)


def test_a_subclass_of_ours_is_not_ours() -> None:
    class Spoilt(gf.TopK):
        def take(self, vector: Vector, t: int) -> gf.SparseUpdate:
            return super().take(vector.copy(), t)

    with pytest.raises(gf.InputError, match=r"Spoilt.take must move"):
        gf.ErrorFeedback(Spoilt(3), 30).compress(vectors(1, 30)[0], 5)


def test_the_simulator_takes_an_own_compressor_and_refuses_a_forgetful_one() -> None:
    assert len(run(plan_for(EveryThird()))[2]) == 40
    with pytest.raises(gf.InputError, match="Forgetful"):
        run(plan_for(Forgetful()))
