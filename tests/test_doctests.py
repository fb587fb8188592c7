"""The examples in docstrings are right."""

import doctest
import importlib
import pkgutil

import pytest

import gammafl.config
import gammafl.core
import gammafl.experiments
import gammafl.federated
import gammafl.methods
import gammafl.report
import gammafl.runs

ROOMS = (
    gammafl.core,
    gammafl.config,
    gammafl.methods,
    gammafl.federated,
    gammafl.report,
    gammafl.runs,
    gammafl.experiments,
)
MODULES = [f"{room.__name__}.{module.name}" for room in ROOMS for module in pkgutil.iter_modules(room.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_right(name: str, registry_as_before: None) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    counts = [doctest.testmod(importlib.import_module(name)).attempted for name in MODULES if "methods" not in name]
    assert sum(counts) > 5
