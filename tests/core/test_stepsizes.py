"""Stepsizes are the paper's formulas, for a number and for an array, and refuse what is no stepsize."""

import numpy as np
import pytest

import gammafl as gf

STEPSIZES = [gf.InverseDecay(100, 1000), gf.ExponentialDecay(0.1, 0.999, 5), gf.Constant(0.05)]


def test_formulas() -> None:
    assert gf.InverseDecay(100, 1000)(3000) == 100 / 4000
    assert gf.ExponentialDecay(0.1, 0.999, 5)(10) == pytest.approx(0.1 * 0.999 * 0.999)
    assert gf.Constant(0.05)(123) == 0.05


@pytest.mark.parametrize("stepsize", STEPSIZES)
def test_an_array_of_iterations_gives_the_array_of_stepsizes(stepsize: gf.InverseDecay) -> None:
    t = np.arange(0, 100, 7)
    one_by_one = [stepsize(int(i)) for i in t]
    np.testing.assert_array_max_ulp(np.asarray(stepsize(t)), np.array(one_by_one), 2)  # numpy's powers are its own


@pytest.mark.parametrize("stepsize", STEPSIZES)
def test_stepsizes_never_grow(stepsize: gf.InverseDecay) -> None:
    assert (np.diff(stepsize(np.arange(1000))) <= 0).all()


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf")])
def test_a_stepsize_that_is_not_a_positive_number_is_refused(bad: float) -> None:
    for make in (
        lambda: gf.Constant(bad),
        lambda: gf.InverseDecay(bad, 1),
        lambda: gf.ExponentialDecay(bad, 0.9, 5),
    ):
        with pytest.raises(gf.InputError, match="positive"):
            make()
