"""Metrics of one's own: a function of the whole test set's outputs and targets."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gammafl as gf
from gammafl.core import threads as core_threads
from tests.problems import blobs


def f1(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of class 0. It is no mean over samples: a mean over batches would be another number."""
    predicted = outputs.argmax(1)
    both = ((predicted == 0) & (targets == 0)).sum()
    return 2 * both / ((predicted == 0).sum() + (targets == 0).sum())


def share_right(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    return float((outputs.argmax(1) == targets).float().mean())


def task(metric: Any, **settings: Any) -> Any:
    torch.manual_seed(0)
    clients, test = blobs()
    made = gf.torch_task(nn.Linear(8, 3), clients, test, 10, metric=metric, **settings)
    made.evaluation_batch = 7
    return made


def test_a_function_sees_the_whole_test_set_at_once_whatever_the_threads() -> None:
    made = task(f1)
    model = made.initial_model(np.random.default_rng(0))
    inputs, targets = blobs()[1].tensors
    expected = float(f1(made.module_with(model)(inputs), targets))
    before = core_threads.count()
    for threads in (1, 2, 3):
        core_threads.set_count(threads)
        assert made.evaluate(model).metric == pytest.approx(expected, abs=1e-7)
    core_threads.set_count(before)
    assert (made.metric, made.higher_is_better) == ("f1", True)


def test_several_metrics_have_names_and_the_first_is_the_tasks() -> None:
    made = task({"right": share_right, "accuracy": "accuracy", "f1": f1, "loss": "loss"})
    model = made.initial_model(np.random.default_rng(0))
    evaluation, plain = made.evaluate(model), task("accuracy").evaluate(model)
    assert made.metric == "right"
    assert evaluation.metric == pytest.approx(plain.metric)
    assert list(evaluation.others) == ["accuracy", "f1", "loss"]
    assert (evaluation.others["accuracy"], evaluation.others["loss"]) == (plain.metric, plain.loss)


def test_whether_higher_is_better_is_said_of_ones_own_function_alone() -> None:
    assert not task(f1, higher_is_better=False).higher_is_better
    assert not task("loss").higher_is_better
    assert task({"accuracy": "accuracy", "f1": f1}, higher_is_better=False).higher_is_better


@pytest.mark.parametrize(
    ("metric", "problem"),
    [
        ("acuracy", "metric must be one of accuracy, perplexity, loss"),
        ({"f1": "f1"}, "metric must be one of"),
        ({}, "metric must be a function"),
        (5, "metric must be a function"),
        (lambda outputs, targets: 1.0, r"name has letters and digits, got '<lambda>': metric=\{'name': function\}"),
        ({"": f1}, "name has letters"),
    ],
)
def test_a_metric_that_is_none_is_refused(metric: Any, problem: str) -> None:
    with pytest.raises(gf.InputError, match=problem):
        task(metric)


@pytest.mark.parametrize("value", [None, "high", torch.ones(2)], ids=str)
def test_a_metric_must_be_a_number(value: Any) -> None:
    made = task({"odd": lambda outputs, targets: value})
    with pytest.raises(gf.InputError, match="the metric 'odd' must be a number, got"):
        made.evaluate(made.initial_model(np.random.default_rng(0)))
