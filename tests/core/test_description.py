"""Methods as JSON: what one side uses is what the other builds."""

import pytest

import gammafl as gf
from gammafl.core.compressors import DenseTail, Half
from gammafl.core.description import build, describe
from tests.core.test_compressors import COMPRESSORS, every_compressor
from tests.problems import METHODS, STEPSIZE


@every_compressor
def test_a_description_builds_the_same_compressor(name: str) -> None:
    method = COMPRESSORS[name]
    assert build(describe(method)) == method
    assert describe(build(describe(method))) == describe(method)


def test_what_is_around_a_method_is_described_too() -> None:
    method = DenseTail(Half(gf.GammaFedHT(0.1, STEPSIZE, 200, alpha=2, units="gradient")), 7)
    assert build(describe(method)) == method


def test_a_count_and_a_fraction_stay_apart() -> None:
    assert describe(gf.TopK(1)) != describe(gf.TopK(1.0))
    assert isinstance(build(describe(gf.TopK(1))).k, int)  # type: ignore[attr-defined]


def test_the_six_methods_have_six_descriptions() -> None:
    assert len({describe(method) for method in METHODS.values()}) == len(METHODS)


def test_a_stepsize_of_ones_own_can_not_be_described() -> None:
    with pytest.raises(gf.InputError, match="can't be described"):
        describe(gf.GammaFedHT(0.1, lambda t: 0.1, 200))


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "3", "[]", "{}", '{"kind": "Path"}', '{"kind": "TopK"}', '{"kind": "TopK", "k": -1}',
        '{"kind": "Constant", "value": 1}', '{"kind": "TopK", "k": 1, "more": 2}', '{"kind": "TopK", "k": "many"}',
        '{"kind": ["TopK"]}', "[" * 100_000,
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(gf.InputError):
        build(text)
