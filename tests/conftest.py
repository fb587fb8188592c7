"""What many tests share: small real tasks, and the readable form of Algorithm 1, lines 12-13."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from gammafl.core.arrays import Vector

settings.register_profile("default", deadline=None, max_examples=80)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="where tests marked `device` put their vectors: cpu, cuda, mps, …")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests neither see nor change the user's cache of data sets."""
    monkeypatch.setenv("GAMMAFL_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def registry_as_before() -> Iterator[None]:
    """Methods that a test registers are forgotten after it."""
    from gammafl.methods.registry import REGISTRY, names

    names()  # loads those of the package
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


def repeatable(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without what depends on the machine: times and memory."""
    return {key: value for key, value in summary.items() if not key.endswith(("_seconds", "memory_bytes"))}


def vectors(count: int, dim: int, seed: int = 0, scale: float = 1.0) -> list[Vector]:
    """Random vectors, reproducible."""
    rng = np.random.default_rng(seed)
    return [(scale * rng.standard_normal(dim)).astype(np.float32) for _ in range(count)]


os.environ.setdefault("COLUMNS", "140")
