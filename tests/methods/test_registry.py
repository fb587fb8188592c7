"""One registry: names, expressions, functions in files and entry points give the same kind of value."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gammafl as gf
from gammafl.methods import registry
from gammafl.methods.registry import (
    OURS,
    REGISTRY,
    entry_named,
    label_of,
    looks_of,
    method_named,
    names,
    split_expression,
    split_list,
)
from gammafl.report.charts import DASHES
from tests.methods.own_file import OWN


@pytest.fixture
def own(in_tmp: Path) -> str:
    (in_tmp / "own.py").write_text(OWN)
    return "own.py"


@pytest.mark.parametrize("name", OURS)
def test_a_name_is_its_factory_with_defaults_and_says_so(name: str) -> None:
    method = method_named(name)
    assert method == REGISTRY[name].factory()
    assert (str(method), method.name) == (name, name)
    assert method_named(str(method)) == method
    assert REGISTRY[name].about
    assert REGISTRY[name].citation


@pytest.mark.parametrize(
    ("expression", "method"),
    [
        ("top-k:keep=0.001,scope=tensor", gf.top_k(keep=0.001, scope="tensor")),
        ("top-k:k=5", gf.top_k(k=5)),
        ("top-k:k=1.0", gf.top_k(k=1.0)),
        ("ht:threshold=1e-3", gf.hard_threshold(threshold=1e-3)),
        ("gamma-fedht-q:alpha=2,level=paper", gf.gamma_fedht_q(alpha=2, level="paper")),
    ],
)
def test_an_expression_is_a_call_of_the_factory(expression: str, method: gf.Method) -> None:
    assert method_named(expression) == method
    assert method_named(str(method)) == method


def test_defaults_are_for_methods_that_have_the_setting_and_give_way_to_what_is_written() -> None:
    assert method_named("top-k", keep=0.2) == gf.top_k(keep=0.2)
    assert method_named("top-k:keep=0.3", keep=0.2) == gf.top_k(keep=0.3)
    assert method_named("top-k", {"keep": 0.4}, keep=0.2) == gf.top_k(keep=0.4)
    assert method_named("fedavg", keep=0.2) == gf.fedavg()
    assert method_named("ht", level="paper") == gf.hard_threshold(level="paper")


def test_a_default_that_is_a_word_is_not_for_a_setting_that_is_a_number(registry_as_before: None) -> None:
    """Such as somebody's `level`, a number of bits, where ours is a word."""

    @gf.register("bits")
    def bits(level: int = 8) -> gf.Method:
        return gf.Method(gf.TopK(level))

    assert method_named("bits", level="paper").compressor == gf.TopK(8)


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("topk", "no method 'topk' (did you mean 'top-k'?)"),
        ("top-k:kep=1", "top-k has no setting 'kep' (did you mean 'keep'?); it has keep, k, scope, values"),
        ("top-k:scope=none", "scope must be 'global' or 'tensor'"),
        ("top-k:k=many", "k must be a whole number or a number or unset, got 'many'"),
        ("top-k:keep", "settings are written key=value"),
        ("top-k:keep=true", "keep must be a number"),
        ("nowhere.py:mine", "there is no file"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(expression: str, sentence: str) -> None:
    with pytest.raises(gf.InputError) as caught:
        method_named(expression)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_function_in_a_file_is_a_method(own: str) -> None:
    method = method_named(f"{own}:every_nth:n=5")
    assert method.settings == (("n", 5),)
    assert str(method) == f"{own}:every_nth:n=5"
    assert label_of(f"{own}:every_nth") == "every nth"
    assert method_named(f"{own}:bare").compressor == gf.TopK(3)
    for name, sentence in {"wrong": "a method is a gf.Method", "none": "no function of that name"}.items():
        with pytest.raises(gf.InputError, match=sentence):
            method_named(f"{own}:{name}")
    with pytest.raises(gf.InputError, match="n must be a whole number"):
        method_named(f"{own}:every_nth:n=0.5")


def test_what_register_says_in_a_file_counts_for_the_file_too(in_tmp: Path, registry_as_before: None) -> None:
    line = '@gf.register("nth", label="n-th", colour="#123456", follows="ht")\n'
    decorated = OWN.replace("def every_nth(", f"{line}def every_nth(")
    (in_tmp / "registered.py").write_text(decorated)
    entry = entry_named("registered.py:every_nth")
    assert (entry.label, entry.colour, entry.follows) == ("n-th", "#123456", "ht")
    assert str(method_named("registered.py:every_nth:n=5")) == "registered.py:every_nth:n=5"
    assert str(method_named("nth:n=5")) == "nth:n=5"


def test_a_file_without_a_function_and_a_setting_without_a_value_are_asked_for(in_tmp: Path) -> None:
    (in_tmp / "needy.py").write_text("import gammafl as gf\ndef needy(n: int):\n    return gf.top_k(k=n)\n")
    with pytest.raises(gf.InputError, match=r"which function of needy\.py makes the method"):
        method_named("needy.py:")
    with pytest.raises(gf.InputError, match=r"needs n: write needy.py:needy:n=…"):
        method_named("needy.py:needy")
    assert method_named("needy.py:needy:n=3").compressor == gf.TopK(3)


@pytest.mark.parametrize("name", ["top-k", "a b", "a:b", "", "x" * 61])
def test_a_name_that_is_ours_or_no_name_can_not_be_registered(name: str, registry_as_before: None) -> None:
    with pytest.raises(gf.InputError, match="name"):
        gf.register(name)(lambda: gf.fedavg())


def test_a_function_that_makes_a_method_stands_for_it() -> None:
    def mine(keep: float = 0.25) -> gf.Method:
        return gf.Method(gf.TopK(keep))

    assert registry.resolve(mine) == registry.named("mine", mine)()
    assert registry.resolve(gf.top_k) == gf.top_k()
    with pytest.raises(gf.InputError, match="a method is a"):
        registry.resolve(gf.TopK)


@pytest.mark.parametrize("keep", [1, 1.0])
@pytest.mark.parametrize("factory", [gf.top_k, gf.stc])
def test_keep_is_a_fraction_also_where_it_is_a_whole_number(factory: Any, keep: float) -> None:
    assert len(factory(keep=keep)([1.0, -2.0, 3.0])) == 3
    with pytest.raises(gf.InputError, match="fraction"):
        factory(keep=2)


def test_settings_from_numpy_are_plain_numbers() -> None:
    count: Any = np.int64(2)
    assert gf.top_k(k=count) == gf.top_k(k=2)
    assert str(gf.top_k(keep=np.float64(0.5))) == "top-k:keep=0.5"


def test_a_list_is_split_between_methods_and_not_between_their_settings() -> None:
    assert split_list("a, top-k:keep=0.1,scope=tensor,own.py:f:n=3,m=4,b,") == [
        "a",
        "top-k:keep=0.1,scope=tensor",
        "own.py:f:n=3,m=4",
        "b",
    ]
    assert split_expression("own.py:f:n=3,word=x") == ("own.py:f", {"n": 3, "word": "x"})


def test_methods_of_a_picture_have_looks_of_their_own(own: str) -> None:
    methods = [*names(), "top-k:scope=tensor", "top-k:keep=0.1", f"{own}:every_nth", f"{own}:bare"]
    methods += [f"top-k:k={k}" for k in range(1, 12)]
    looks = looks_of(methods)
    assert len(set(looks.values())) == len(methods)
    assert looks["top-k"] == (entry_named("top-k").colour, "solid")
    assert {dash for _, dash in looks.values()} <= set(DASHES)


def test_every_registered_method_has_a_colour_of_its_own() -> None:
    own = [entry_named(name).colour for name in OURS]
    assert len(set(own)) == len(own)


class Point(SimpleNamespace):
    """An entry point of an installed package."""

    def load(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def test_methods_of_installed_packages_are_read_and_a_broken_one_is_named_when_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def theirs(keep: float = 0.5) -> gf.Method:
        """Theirs."""
        return gf.Method(gf.TopK(keep))

    points = [Point(name="theirs", value=theirs), Point(name="broken", value=ImportError("no module named lost"))]
    monkeypatch.setattr(registry, "REGISTRY", dict(REGISTRY))
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "gammafl.methods" else [])
    registry.load.cache_clear()
    try:
        assert names() == [*OURS, "theirs"]
        assert method_named("theirs:keep=0.25").compressor == gf.TopK(0.25)
        with pytest.raises(gf.InputError, match=r"can't be loaded \(ImportError: no module named lost\)"):
            method_named("broken")
    finally:
        registry._broken.clear()
        registry.load.cache_clear()


def test_listing_methods_loads_no_torch() -> None:
    import subprocess

    code = "import sys; from gammafl.methods.registry import names; names(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
