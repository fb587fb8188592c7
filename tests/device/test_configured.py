"""Device and precision of a task in a file, and those of the command line."""

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

import gammafl as gf
from gammafl.config.optimizers import LocalOptimizer
from gammafl.core.device.places import Place
from gammafl.tasks import build
from tests.device.test_simulator import data

pytestmark = pytest.mark.device


@pytest.mark.parametrize(
    ("device", "precision", "expected"),
    [("cpu", "f32", None), ("xpu", "f32", ("xpu", "bf16")), ("cpu", "f16", ("cuda:1", "f16"))],
)
def test_what_the_command_line_does_not_say_is_as_the_file_says(
    device: str, precision: str, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    *clients, test = data()
    task, called = gf.torch_task(nn.Linear(20, 4), clients, test, precision="bf16"), []
    task.place = Place("cuda:1")
    monkeypatch.setattr(task, "put_on", lambda *told: called.append(told))
    monkeypatch.setattr(build, "own_task", lambda config: task)
    config: Any = SimpleNamespace(
        task="mine.py:build", device=device, precision=precision, fast=True, optimizer=LocalOptimizer(), proximal=0
    )
    config.evaluation = SimpleNamespace(samples=None)
    build.build_task(config, lambda facts: [], None, print)
    assert called == ([] if expected is None else [expected])
