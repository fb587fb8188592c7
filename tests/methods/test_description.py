"""Methods as JSON: what one side uses is what the other builds, and only what it knows."""

from pathlib import Path

import pytest

import gammafl as gf
from gammafl.core.arrays import Vector
from gammafl.core.compressors import Compressor
from gammafl.core.moment import Moment
from gammafl.methods.description import build, describe, own_entries
from gammafl.methods.registry import method_named
from tests.core.test_compressors import COMPRESSORS, every_compressor
from tests.problems import METHODS


@every_compressor
def test_a_description_builds_the_same_method(name: str) -> None:
    method = COMPRESSORS[name]
    assert build(describe(method)) == method
    assert describe(build(describe(method))) == describe(method)


@pytest.mark.parametrize(
    "method",
    [
        gf.Method(gf.GammaFedHT(0.1, alpha=2, units="gradient"), values=gf.Half()),
        gf.Method(gf.HardThreshold(), level=gf.PaperLevel(0.1)),
        gf.Method(gf.GammaFedHT(), level=gf.UploadLevel(0.1, profile="gamma")),
        gf.gamma_fedht(keep=0.1, profile="gamma"),
        gf.hard_threshold(level="paper"),
        gf.Method(gf.Dense(), memory=gf.NoMemory()),
    ],
    ids=repr,
)
def test_a_method_that_was_put_together_by_hand_is_described_by_its_parts(method: gf.Method) -> None:
    assert build(describe(method)) == method


def test_a_count_and_a_fraction_stay_apart() -> None:
    assert describe(gf.top_k(k=1)) != describe(gf.top_k(k=1.0))
    built = build(describe(gf.Method(gf.TopK(1)))).compressor
    assert isinstance(built, gf.TopK)
    assert isinstance(built.k, int)


def test_the_six_methods_have_six_descriptions() -> None:
    assert len({describe(method) for method in METHODS.values()}) == len(METHODS)


class Own(Compressor):
    def take(self, vector: Vector, moment: Moment) -> gf.SparseUpdate:
        raise NotImplementedError


def own(keep: float = 0.5) -> gf.Method:
    return gf.Method(Own())


def test_a_compressor_of_ones_own_is_described_by_its_factory_alone() -> None:
    with pytest.raises(gf.InputError, match="can't be described"):
        describe(gf.Method(Own()))
    entries = own_entries([own])
    description = describe(entries["own"].make({"keep": 0.25}))
    assert build(description, entries).settings == (("keep", 0.25),)
    with pytest.raises(gf.InputError, match="this client does not know: give its function"):
        build(description)


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "3", "[]", "{}", '{"kind": "TopK"}', '{"method": "Path", "settings": {}}', '{"method": "top-k"}',
        '{"method": "top-k", "settings": [[1, 2]]}',
        '{"method": "top-k", "settings": 3}', '{"method": "top-k", "settings": {"k": -1}}',
        '{"method": "top-k", "settings": {"more": 2}}', '{"method": "top-k", "settings": {"k": "many"}}',
        '{"method": ["top-k"], "settings": {}}', '{"method": "os.py:system", "settings": {}}',
        '{"compressor": {"kind": "Path"}, "memory": {}, "values": {}, "level": null}',
        '{"compressor": {"kind": "TopK", "k": "many"}, "memory": null, "values": null, "level": null}', "[" * 100_000,
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(gf.InputError):
        build(text)


def test_settings_that_a_function_of_ones_own_fails_on_are_one_line() -> None:
    def mine(n=2):  # type: ignore[no-untyped-def]
        return gf.top_k(k=10 // n)

    with pytest.raises(gf.InputError, match=r"the method mine can't be made \(ZeroDivisionError"):
        build('{"method": "mine", "settings": {"n": 0}}', own_entries([mine]))


def test_a_file_and_its_function_are_described_by_the_registered_name(in_tmp: Path, registry_as_before: None) -> None:
    text = "import gammafl as gf\n@gf.register('other-name')\ndef name(k: int = 3):\n    return gf.Method(gf.TopK(k))\n"
    (in_tmp / "own.py").write_text(text)
    by_file = method_named("own.py:name:k=5")
    assert describe(by_file) == describe(method_named("other-name:k=5"))
