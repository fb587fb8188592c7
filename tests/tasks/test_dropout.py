"""Modules that draw random numbers: each client from its own seed, side by side as any other."""

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import gammafl as gf
from gammafl.core import threads
from gammafl.core.arrays import Vector
from gammafl.federated.task import LocalUpdate
from gammafl.tasks.language import CausalLanguageModel, TokenSamples, token_loss
from gammafl.tasks.torch_task import TorchTask

STEPS = np.array([0.1, 0.07, 0.05], np.float32)
BATCH = 6


class Sometimes(nn.Module):
    """Draws in every third call; it counts in a buffer, which every client and every batch finds as it came."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 5)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        x = x.flatten(1)
        return self.linear(nn.functional.dropout(x, 0.5) if self.calls % 3 == 0 else x)


class Always(nn.Module):
    """Draws in evaluation too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(nn.functional.dropout(x.flatten(1), 0.5))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 6, 2, dropout=0.4, batch_first=True)
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x).mean(1))


def dropping(p: float = 0.5) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 16), nn.ReLU(), nn.Dropout(p), nn.Linear(16, 5))


MODULES: dict[str, Callable[[], nn.Module]] = {
    "dropout": dropping,
    "now and then": Sometimes,
    "in evaluation too": Always,
    "attention": Attention,
    "lstm": Recurrent,
}
every_module = pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)


def data(count: int, seed: int) -> TensorDataset:
    random = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(count, 4, 8, generator=random), torch.randint(5, (count,), generator=random))


def made(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make()


def task_of(module: nn.Module) -> TorchTask:
    task = gf.torch_task(module, [data(20, seed) for seed in range(5)], data(30, 99), BATCH)
    task.evaluation_batch = 4
    return task


def start(task: TorchTask) -> Vector:
    return task.initial_model(np.random.default_rng(0))


def updates(task: TorchTask, model: Vector, clients: list[int] | None = None) -> list[LocalUpdate]:
    clients = list(range(5)) if clients is None else clients
    rngs = [np.random.default_rng(client) for client in clients]
    return [LocalUpdate(u.delta.copy(), u.loss) for u in task.train(clients, model, STEPS, rngs)]


@every_module
@pytest.mark.parametrize("count", [1, 2])
def test_a_client_trains_as_a_plain_loop_that_draws_from_torchs_random_state(
    make: Callable[[], nn.Module], count: int
) -> None:
    threads.set_count(count)
    module = made(make)
    task = task_of(module)
    for client, update in enumerate(updates(task, start(task))):
        plain = copy.deepcopy(module)
        before = nn.utils.parameters_to_vector(plain.parameters()).detach().clone()
        rng = np.random.default_rng(client)
        inputs, targets = task.clients[client].batch(rng.integers(20, size=len(STEPS) * BATCH))
        torch.default_generator.manual_seed(int(rng.integers(2**63)))
        for x, y, step in zip(inputs.split(BATCH), targets.split(BATCH), STEPS, strict=True):
            sgd = torch.optim.SGD(plain.parameters(), float(step))
            sgd.zero_grad()
            nn.functional.cross_entropy(plain(x), y).backward()
            sgd.step()
        after = nn.utils.parameters_to_vector(plain.parameters()).detach()
        np.testing.assert_allclose(update.delta, (before - after).numpy(), rtol=1e-4, atol=1e-6)


@every_module
def test_results_do_not_depend_on_the_number_of_threads(make: Callable[[], nn.Module]) -> None:
    task = task_of(made(make))
    model, results = start(task), []
    for count in (1, 2, 3):
        threads.set_count(count)
        trained = updates(task, model)
        results.append(([u.delta.tobytes() for u in trained], [u.loss for u in trained], task.evaluate(model)))
    assert results == [results[0]] * 3
    (alone,) = updates(task, model, [3])
    assert alone.delta.tobytes() == results[0][0][3]


@every_module
def test_a_whole_run_does_not_depend_on_the_number_of_threads(make: Callable[[], nn.Module]) -> None:
    runs = []
    for count in (1, 2):
        threads.set_count(count)
        run = gf.simulate(
            made(make), [data(20, seed) for seed in range(5)], data(60, 99), stepsize=gf.Constant(0.05),
            iterations=20, participation=0.6, batch_size=BATCH, evaluate_every=1, keep=0.2,
        )  # fmt: skip
        runs.append((run.rounds, {name: tensor.tolist() for name, tensor in run.model.state_dict().items()}))
    assert runs[0] == runs[1]


def watched(p: float, see: Callable[[torch.Tensor], Any]) -> nn.Sequential:
    """A module that shows what is left of its inputs, which are never zero, after dropout."""
    module = nn.Sequential(nn.Flatten(), nn.Dropout(p), nn.Linear(32, 5))
    module[1].register_forward_hook(lambda *arguments: see(arguments[2]))
    return module


@pytest.mark.parametrize("count", [1, 2])
def test_every_step_of_every_client_in_every_round_has_a_mask_of_its_own(count: int) -> None:
    threads.set_count(count)
    masks: list[bytes] = []
    module = watched(0.3, lambda left: masks.append((left != 0).numpy().tobytes()) if torch.is_grad_enabled() else None)
    gf.simulate(
        module, [data(20, seed) for seed in range(5)], data(30, 99), stepsize=gf.Constant(0.05), iterations=20,
        participation=1, batch_size=BATCH,
    )  # fmt: skip
    assert len(masks) == len(set(masks)) == 4 * 5 * 5
    kept = np.frombuffer(b"".join(masks), bool)
    assert kept.mean() == pytest.approx(0.7, abs=0.03)  # nine standard deviations of 19,200 draws


def test_clients_train_side_by_side_with_one_thread_of_torch_each() -> None:
    """They meet in their first step, which nobody leaves alone."""
    threads.set_count(2)
    seen, together = [], threading.Barrier(2)

    def see(_: torch.Tensor) -> None:
        seen.append(torch.get_num_threads())
        together.wait(20)

    task = task_of(watched(0.5, see))
    updates(task, start(task), [0, 1, 2, 3])
    assert seen == [1] * 4 * len(STEPS)


def test_a_share_of_zero_is_as_no_dropout() -> None:
    with_it = dropping(0.0)
    without = nn.Sequential(*(layer for layer in with_it if not isinstance(layer, nn.Dropout)))
    one, other = (updates(task, start(task)) for task in map(task_of, (with_it, without)))
    assert [u.delta.tobytes() for u in one] == [u.delta.tobytes() for u in other]


def test_a_test_set_that_draws_is_drawn_the_same_each_time() -> None:
    class Noisy(TensorDataset):
        def __getitem__(self, i: int) -> Any:
            x, y = super().__getitem__(i)
            return x + torch.randn(4, 8), y

    module = made(dropping)
    task = gf.torch_task(module, [data(20, seed) for seed in range(5)], Noisy(*data(30, 99).tensors), BATCH)
    model, found = start(task), []
    for count in (1, 2):
        threads.set_count(count)
        updates(task, model)
        found += [task.evaluate(model), task.evaluate(model)]
    assert found == [found[0]] * 4


def test_gpt2_does_not_depend_on_the_number_of_threads() -> None:
    pytest.importorskip("transformers")
    tokens = np.random.default_rng(0).integers(0, 50_000, 200).astype(np.uint16)
    samples = [TokenSamples(tokens[start:], 8) for start in range(3)]
    module = made(lambda: CausalLanguageModel("gpt2-tiny", None))
    task = TorchTask("gpt2", module, samples, samples[0], 1, token_loss, metric="perplexity", evaluation_batch=8)
    model, results = start(task), []
    for count in (1, 2):
        threads.set_count(count)
        trained = updates(task, model, [0, 1, 2])
        results.append(([u.delta.tobytes() for u in trained], [u.loss for u in trained], task.evaluate(model)))
    assert results[0] == results[1]
