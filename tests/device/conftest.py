"""Tests of vectors on a device. Without `--device` the device is the CPU, whose tensors take the same way."""

from collections.abc import Callable

import pytest
import torch

from gammafl.core.arrays import Vector
from gammafl.core.device import vectors
from gammafl.core.device.torch_vectors import TorchVector

Place = Callable[[Vector], TorchVector]
"""Puts a vector on the device."""


@pytest.fixture
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A device like any other: also the CPU's tensors are not the host's own memory."""
    monkeypatch.setattr(vectors, "HOST", set())
    return torch.device(request.config.getoption("--device"))


@pytest.fixture
def place(device: torch.device) -> Place:
    return lambda vector: TorchVector(torch.from_numpy(vector).to(device, copy=True))
