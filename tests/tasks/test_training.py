"""The fast ways of local training give what a plain loop gives."""

import copy
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import gammafl as gf
from gammafl.config.schema import Input
from gammafl.core import threads as core_threads
from gammafl.core.arrays import Vector
from gammafl.core.jit import compiled_reordering
from gammafl.federated.task import LocalUpdate
from gammafl.tasks import torch_task
from gammafl.tasks.build import normaliser
from gammafl.tasks.fast import replicas, softmax_steps
from gammafl.tasks.fast.softmax_regression import is_softmax_regression
from gammafl.tasks.samples import ImageShards
from gammafl.tasks.torch_task import TorchTask

STEPS = np.array([0.1, 0.07, 0.05], np.float32)


def images(count: int, size: int, seed: int, classes: int = 5) -> TensorDataset:
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 3, size, size, generator=random)
    return TensorDataset(inputs, torch.randint(classes, (count,), generator=random))


def task_of(module: nn.Module, batch: int = 6, clients: int = 5, size: int = 12, classes: int = 5) -> TorchTask:
    torch.manual_seed(0)
    shards = [images(20, size, seed, classes) for seed in range(clients)]
    return gf.torch_task(module, shards, images(30, size, 99, classes), batch)


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(54, 5)
    )


def updates(task: TorchTask, model: Vector, clients: list[int] | None = None) -> list[LocalUpdate]:
    clients = list(range(5)) if clients is None else clients
    rngs = [np.random.default_rng(client) for client in clients]
    return [LocalUpdate(u.delta.copy(), u.loss, u.largest) for u in task.train(clients, model, STEPS, rngs)]


def by_hand(module: nn.Module, task: TorchTask, client: int) -> LocalUpdate:
    """torch.optim.SGD on the batches that the task draws."""
    module = copy.deepcopy(module)
    before = nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    rows = np.random.default_rng(client).integers(20, size=len(STEPS) * task.batch_size)
    inputs, targets = task.clients[client].batch(rows)
    losses = []
    for x, y, step in zip(inputs.split(task.batch_size), targets.split(task.batch_size), STEPS, strict=True):
        sgd = torch.optim.SGD(module.parameters(), float(step))
        loss = nn.functional.cross_entropy(module(x), y)
        loss.backward()
        sgd.step()
        sgd.zero_grad()
        losses.append(loss.item())
    after = nn.utils.parameters_to_vector(module.parameters()).detach()
    return LocalUpdate((before - after).numpy(), float(np.mean(losses)))


@pytest.mark.parametrize("classes", [2, 5, 7, 10])
@pytest.mark.parametrize("batch", [1, 4, 6, 13])
def test_softmax_regressions_own_gradient_is_autograds(classes: int, batch: int) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(108, classes))
    task = task_of(module, batch, size=6, classes=classes)
    model = task.initial_model(np.random.default_rng(0))
    for client, update in enumerate(updates(task, model)):
        expected = by_hand(module, task, client)
        np.testing.assert_allclose(update.delta, expected.delta, rtol=1e-4, atol=1e-6)
        assert update.loss == pytest.approx(expected.loss, rel=1e-5)
        assert update.largest == np.abs(update.delta).max()


@compiled_reordering
def exponentials(numbers: Any) -> Any:
    results = np.empty_like(numbers)
    for i in range(numbers.size):
        results[i] = softmax_steps._exp(numbers[i])
    return results


def test_the_exponential_of_many_numbers_at_a_time_is_as_exact_as_they_are() -> None:
    x = np.linspace(-87, 0, 100_000, dtype=np.float32)
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(exponentials(x) - exact) <= exact * (2 - x) * 2.0**-23).all()
    special = exponentials(np.array([0, -87.1, -np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(special, [1, 0, 0, np.nan])


def test_only_one_linear_layer_under_cross_entropy_is_softmax_regression() -> None:
    cross_entropy = nn.functional.cross_entropy
    assert is_softmax_regression(nn.Linear(3, 2), cross_entropy)
    hooked = nn.Linear(3, 2)
    hooked.register_forward_hook(lambda *_: None)
    frozen = nn.Linear(3, 2)
    frozen.bias.requires_grad_(False)
    two = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    for other in (hooked, frozen, two, nn.Linear(3, 1), nn.Linear(3, 2, bias=False), nn.Sequential(nn.ReLU())):
        assert not is_softmax_regression(other, cross_entropy)
    assert not is_softmax_regression(nn.Linear(3, 2), nn.functional.mse_loss)


@pytest.mark.parametrize("steps", [1, 3, 49])
def test_a_target_that_is_no_class_is_named(steps: int) -> None:
    task = task_of(nn.Sequential(nn.Flatten(), nn.Linear(108, 4)), size=6, classes=9)
    model, stepsizes = task.initial_model(np.random.default_rng(0)), np.full(steps, 0.1, np.float32)
    with pytest.raises(gf.InputError, match="classes from 0 to 3"):
        list(task.train(range(5), model, stepsizes, [np.random.default_rng(client) for client in range(5)]))


@pytest.mark.parametrize("broken", [np.nan, np.inf])
@pytest.mark.parametrize("batch", [4, 5])
def test_an_update_that_is_not_finite_says_so(broken: float, batch: int) -> None:
    task = task_of(nn.Sequential(nn.Flatten(), nn.Linear(108, 5)), batch, clients=2, size=6)
    task.clients[0].inputs[:] = broken  # type: ignore[attr-defined]
    bad, good = updates(task, task.initial_model(np.random.default_rng(0)), [0, 1])
    assert not np.isfinite(bad.largest or 0)
    assert good.largest == np.abs(good.delta).max()


def test_clients_that_share_inputs_keep_their_own_labels() -> None:
    shared, test = images(20, 6, 0), images(30, 6, 99)
    inputs, labels = shared.tensors
    module = nn.Sequential(nn.Flatten(), nn.Linear(108, 5))

    def trained(second: torch.Tensor) -> list[LocalUpdate]:
        task = gf.torch_task(module, [shared, TensorDataset(second, 4 - labels)], test, 6)
        return updates(task, task.initial_model(np.random.default_rng(0)), [0, 1])

    for together, apart in zip(trained(inputs), trained(inputs.clone()), strict=True):
        np.testing.assert_array_equal(together.delta, apart.delta)


@pytest.mark.parametrize("width", [107, 109])
def test_inputs_of_another_width_than_the_models_are_refused_by_torch(width: int) -> None:
    task = task_of(nn.Sequential(nn.Flatten(), nn.Linear(width, 5)), size=6)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        updates(task, task.initial_model(np.random.default_rng(0)))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_convolutional_network_trains_as_in_a_plain_loop(threads: int) -> None:
    module = small_cnn()
    task = task_of(module)
    core_threads.set_count(threads)
    for client, update in enumerate(updates(task, task.initial_model(np.random.default_rng(0)))):
        expected = by_hand(module, task, client)
        np.testing.assert_allclose(update.delta, expected.delta, rtol=1e-3, atol=1e-6)
        assert update.loss == pytest.approx(expected.loss, rel=1e-5)
        assert update.largest == np.abs(update.delta).max()


@pytest.mark.parametrize("make", [small_cnn, lambda: nn.Sequential(nn.Flatten(), nn.Linear(432, 5))])
def test_results_do_not_depend_on_how_many_clients_train_at_a_time(make: Callable[[], nn.Module]) -> None:
    task = task_of(make())
    task.evaluation_batch = 4
    model = task.initial_model(np.random.default_rng(0))
    results = []
    for threads in (1, 2, 3, 7):
        core_threads.set_count(threads)
        trained = updates(task, model)
        results.append(([u.delta.tobytes() for u in trained], [u.loss for u in trained], task.evaluate(model)))
    assert results == [results[0]] * 4


def test_a_large_model_trains_with_less_memory_to_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(432, 7), nn.Tanh(), nn.Linear(7, 5))

    def results(large: int, threads: int) -> list[bytes]:
        monkeypatch.setattr(replicas, "LARGE", large)
        monkeypatch.setattr(torch_task, "LARGE", large)
        task = task_of(module)
        core_threads.set_count(threads)
        model = task.initial_model(np.random.default_rng(0))
        twice = [update.delta.tobytes() for _ in range(2) for update in updates(task, model)]
        assert len(task._replicas._made) == (threads if large == 1 else min(5, threads + 1 if threads > 1 else 1))
        return twice

    assert results(1, 1) == results(1, 2) == results(1 << 24, 2)


def of_one_array(clients: int, channels: int = 1) -> TorchTask:
    """Logistic regression on shards of one array of bytes: many clients are one compiled call."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (20 * clients, channels, 6, 6), np.uint8)
    labels = random.integers(0, 5, len(pixels), np.uint8)
    normalise = normaliser(Input(mean=(0.5, 0.3, 0.1)[:channels], std=(0.25, 0.5, 0.1)[:channels]), channels)
    shards = ImageShards(pixels, labels, normalise, np.array_split(np.arange(len(pixels)), clients))
    return TorchTask("one array", nn.Sequential(nn.Flatten(), nn.Linear(36 * channels, 5)), shards, shards[0], 6)


@pytest.mark.parametrize("channels", [1, 3])
def test_softmax_regression_on_bytes_is_autograds_on_what_they_stand_for(channels: int) -> None:
    task = of_one_array(5, channels)
    model = task.initial_model(np.random.default_rng(0))
    for client, update in enumerate(updates(task, model)):
        expected = by_hand(task.module_with(model), task, client)
        np.testing.assert_allclose(update.delta, expected.delta, rtol=1e-4, atol=1e-6)
        assert update.loss == pytest.approx(expected.loss, rel=1e-5)
        assert update.largest == np.abs(update.delta).max()


def test_clients_of_one_array_are_handed_over_in_order_whatever_thread_trained_them() -> None:
    task = of_one_array(70)
    model = task.initial_model(np.random.default_rng(0))
    one_by_one = [updates(task, model, [client])[0] for client in range(70)]
    for threads in (1, 2, 3, 7):
        core_threads.set_count(threads)
        together = updates(task, model, list(range(70)))
        assert [u.delta.tobytes() for u in together] == [u.delta.tobytes() for u in one_by_one]
        assert [u.loss for u in together] == [u.loss for u in one_by_one]


@pytest.mark.parametrize("claims", [0, 1])
def test_an_error_in_another_thread_is_raised_here(claims: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before that thread has claimed a client, or when it has one that then nobody trains."""

    def fail_elsewhere(*arguments: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            claimed = arguments[-3]
            claimed += claims
            failed.set()
            raise MemoryError
        assert failed.wait(60)
        train(*arguments)

    train, failed = softmax_steps.train, threading.Event()
    monkeypatch.setattr(softmax_steps, "train", fail_elsewhere)
    task = of_one_array(9)
    core_threads.set_count(2)
    with pytest.raises(MemoryError):
        updates(task, task.initial_model(np.random.default_rng(0)), list(range(9)))


def test_who_takes_the_first_updates_only_stops_the_training_of_the_others() -> None:
    task = of_one_array(70)
    model = task.initial_model(np.random.default_rng(0))
    core_threads.set_count(2)
    expected = [update.delta.tobytes() for update in updates(task, model, list(range(70)))]
    for taken in (0, 1, 3):
        rngs = [np.random.default_rng(100 + client) for client in range(70)]
        training = task.train(list(range(70)), model, STEPS, rngs)
        for _ in range(taken):
            next(training)
        training.close()  # type: ignore[attr-defined]
        assert [update.delta.tobytes() for update in updates(task, model, list(range(70)))] == expected


class Viewed(nn.Module):
    """As people write it: the output of the convolutions is viewed as a matrix."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(dropout))
        self.further = nn.Conv2d(16, 6, 3)
        self.head = nn.Linear(54, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.features(x)
        y += 1
        y = nn.functional.relu(self.further(y))
        return self.head(y.view(y.size(0), -1))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_module_may_view_its_images_as_a_matrix_and_change_them_in_place(dropout: float) -> None:
    module = Viewed(dropout)
    results = []
    for fast in (True, False):
        shards = [images(20, 12, seed) for seed in range(5)]
        task = gf.torch_task(module, shards, images(30, 12, 99), 6, fast=fast)
        results.append(updates(task, task.initial_model(np.random.default_rng(0))))
    for quick, plain in zip(*results, strict=True):
        np.testing.assert_allclose(quick.delta, plain.delta, rtol=1e-3, atol=1e-5)


COLD_OR_WARM = """
import numpy as np, zlib
from gammafl.tasks.fast import softmax_steps
random = np.random.default_rng(0)
images, labels = random.integers(0, 256, (90, 64)).astype(np.uint8), random.integers(0, 10, 90).astype(np.uint8)
rows, model = random.integers(0, 90, (3, 90)), random.standard_normal(650).astype(np.float32)
scale, shift = np.full(1, 1 / 64, np.float32), np.ones(1, np.float32)
samples, steps = (images, labels, rows, scale, shift), np.full(5, 0.5, np.float32)
deltas, losses, largest = np.empty((3, 650), np.float32), np.empty(3), np.empty(3, np.float32)
claimed, done = np.zeros(1, np.int64), np.zeros(3, np.int64)
softmax_steps.train(*samples, model, steps, deltas, losses, largest, claimed, done, 3)
print(zlib.crc32(deltas.tobytes()), losses)
"""


def test_code_from_the_compilers_cache_computes_what_freshly_compiled_code_does(tmp_path: Path) -> None:
    """Or a run that is resumed would end with other bytes than one that was not."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    printed = [
        subprocess.run([sys.executable, "-c", COLD_OR_WARM], env=environment, capture_output=True, check=True).stdout
        for _ in range(2)
    ]
    assert list(tmp_path.rglob("*.nbc"))
    assert printed[0] == printed[1]
