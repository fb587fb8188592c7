"""Local training by any torch optimiser is a plain torch loop; plain SGD stays what it was, to the byte."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gammafl as gf
from gammafl.config.optimizers import LocalOptimizer
from gammafl.core import threads as core_threads
from gammafl.tasks.torch_task import TorchTask
from tests.tasks.test_training import STEPS, small_cnn, task_of, updates


class Lion(torch.optim.Optimizer):
    """x ← x − γ·sign(β₁·m + (1 − β₁)·g), m ← β₂·m + (1 − β₂)·g (Chen et al., 2023)."""

    def __init__(self, params: Any, lr: float, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(params, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.sub_(torch.sign(first * m + (1 - first) * p.grad), alpha=group["lr"])
                m.mul_(second).add_(p.grad, alpha=1 - second)


def logistic() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(432, 5))


def heavy_ball(params: Any, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr, momentum=0.9, nesterov=True)


def decay_on_matrices(params: Any, lr: float) -> torch.optim.Optimizer:
    """A tenth of the rate for biases, and no decay."""
    biases, matrices = [p for p in params if p.dim() == 1], [p for p in params if p.dim() > 1]
    groups: Any = [{"params": matrices}, {"params": biases, "lr": 0.1 * lr, "weight_decay": 0}]
    return torch.optim.AdamW(groups, lr=lr)


CHOICES: dict[str, tuple[Any, Callable[..., torch.optim.Optimizer]]] = {
    "momentum by name": (
        "sgd:momentum=0.9,weight_decay=0.01",
        partial(torch.optim.SGD, momentum=0.9, weight_decay=0.01),
    ),
    "a table": ({"kind": "AdamW", "betas": [0.8, 0.9]}, partial(torch.optim.AdamW, betas=(0.8, 0.9))),
    "settings": (LocalOptimizer(kind="adam"), torch.optim.Adam),
    "a class": (torch.optim.RMSprop, torch.optim.RMSprop),
    "a partial": (partial(torch.optim.AdamW, weight_decay=0.1), partial(torch.optim.AdamW, weight_decay=0.1)),
    "a function": (heavy_ball, heavy_ball),
    "groups": (decay_on_matrices, decay_on_matrices),
    "an optimiser of one's own": (Lion, Lion),
}


def by_hand(module: nn.Module, task: TorchTask, client: int, make: Callable[..., Any], mu: float = 0.0) -> Any:
    """A loop as in anybody's app, on the batches that the task draws: model − trained model, and the mean loss."""
    module = copy.deepcopy(module)
    before = nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    inputs, targets = task.clients[client].batch(np.random.default_rng(client).integers(20, size=18))
    optimizer, losses = make(list(module.parameters()), lr=float(STEPS[0])), []
    shares = [group["lr"] / float(STEPS[0]) for group in optimizer.param_groups]
    for x, y, stepsize in zip(inputs.split(6), targets.split(6), STEPS, strict=True):
        for group, share in zip(optimizer.param_groups, shares, strict=True):
            group["lr"] = share * float(stepsize)
        loss = nn.functional.cross_entropy(module(x), y)
        away = nn.utils.parameters_to_vector(module.parameters()) - before
        optimizer.zero_grad()
        (loss + mu / 2 * (away**2).sum()).backward()
        optimizer.step()
        losses.append(loss.item())
    after = nn.utils.parameters_to_vector(module.parameters()).detach()
    return (before - after).numpy(), float(np.mean(losses))


@pytest.mark.parametrize("make_module", [small_cnn, logistic])
@pytest.mark.parametrize("name", CHOICES)
def test_an_optimiser_trains_as_in_a_loop_by_hand(name: str, make_module: Callable[[], nn.Module]) -> None:
    torch.manual_seed(5)
    module = make_module()
    task, (choice, make) = task_of(module), CHOICES[name]
    task.train_by(choice)
    model = task.initial_model(np.random.default_rng(0))
    for client, update in enumerate(updates(task, model)):
        delta, loss = by_hand(module, task, client, make)
        if name == "an optimiser of one's own":  # a sign may flip where a gradient is all rounding
            assert np.mean(np.abs(update.delta - delta) > 1e-6) < 0.01
        else:
            np.testing.assert_allclose(update.delta, delta, rtol=2e-3, atol=2e-5)
        assert update.loss == pytest.approx(loss, rel=1e-4)
        assert update.largest == np.abs(update.delta).max()


@pytest.mark.parametrize("make_module", [small_cnn, logistic])
@pytest.mark.parametrize(
    "plain",
    [
        None,
        "sgd",
        "SGD:momentum=0",
        {"kind": "sgd", "weight_decay": 0.0, "momentum": 0},
        torch.optim.SGD,
        lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=0.0),
    ],
    ids=lambda choice: getattr(choice, "__name__", str(choice)),
)
def test_sgd_without_momentum_and_decay_is_plain_sgd_byte_for_byte(
    plain: Any, make_module: Callable[[], nn.Module]
) -> None:
    module = make_module()
    usual, same = task_of(module), task_of(module)
    same.train_by(plain, proximal=0)
    model = usual.initial_model(np.random.default_rng(0))
    for one, other in zip(updates(usual, model), updates(same, model), strict=True):
        assert (one.delta.tobytes(), one.loss, one.largest) == (other.delta.tobytes(), other.loss, other.largest)


def test_a_torch_optimiser_that_is_sgd_takes_the_steps_of_plain_sgd_to_the_byte() -> None:
    """The slow way and the fast way, on a network that has no way of its own."""

    class Sgd(torch.optim.SGD):
        """Not known to be plain."""

    module = nn.Sequential(small_cnn(), nn.Identity())
    usual, same = task_of(module), task_of(module)
    same.train_by(Sgd)
    assert (usual._rule, same._rule is None) == (None, False)
    model = usual.initial_model(np.random.default_rng(0))
    for one, other in zip(updates(usual, model), updates(same, model), strict=True):
        assert (one.delta.tobytes(), one.loss) == (other.delta.tobytes(), other.loss)


@pytest.mark.parametrize("choice", [None, torch.optim.AdamW, heavy_ball], ids=["sgd", "adamw", "momentum"])
def test_the_proximal_term_is_that_of_the_objective(choice: Any) -> None:
    module = small_cnn()
    task = task_of(module)
    task.train_by(choice, proximal=0.7)
    model = task.initial_model(np.random.default_rng(0))
    for client, update in enumerate(updates(task, model)):
        delta, loss = by_hand(module, task, client, choice or torch.optim.SGD, mu=0.7)
        np.testing.assert_allclose(update.delta, delta, rtol=2e-3, atol=2e-5)
        assert update.loss == pytest.approx(loss, rel=1e-4)


def test_a_large_proximal_term_holds_clients_near_the_servers_model() -> None:
    task = task_of(small_cnn())
    model = task.initial_model(np.random.default_rng(0))
    free = [np.linalg.norm(update.delta) for update in updates(task, model)]
    task.train_by(proximal=10.0)
    held = [np.linalg.norm(update.delta) for update in updates(task, model)]
    assert all(near < far for near, far in zip(held, free, strict=True))


class Dropping(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(432, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 5))


@pytest.mark.parametrize("make_module", [small_cnn, logistic, Dropping])
@pytest.mark.parametrize("choice", ["adamw", "sgd:momentum=0.9", Lion], ids=str)
def test_results_do_not_depend_on_threads_nor_on_who_trained_before(
    choice: Any, make_module: Callable[[], nn.Module]
) -> None:
    task = task_of(make_module())
    task.train_by(choice, proximal=0.1)
    model = task.initial_model(np.random.default_rng(0))
    results = []
    for threads in (1, 2, 3, 7):
        core_threads.set_count(threads)
        trained = updates(task, model)
        results.append(([u.delta.tobytes() for u in trained], [u.loss for u in trained]))
    assert results == [results[0]] * 4
    core_threads.set_count(1)
    assert [updates(task, model, [client])[0].delta.tobytes() for client in (4, 0, 2)] == [
        results[0][0][client] for client in (4, 0, 2)
    ]


def test_a_parameter_that_the_loss_does_not_see_stays() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(432, 5), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x.flatten(1))

    task = task_of(Half())
    task.train_by("adamw:weight_decay=0.5", proximal=0.5)
    for update in updates(task, task.initial_model(np.random.default_rng(0))):
        assert np.all(update.delta[:-8] != 0)
        assert not update.delta[-8:].any()


WRONG: dict[str, tuple[Any, str]] = {
    "a typing error": ("adamww", r"no optimizer 'adamww' \(did you mean 'adamw'"),
    "a setting it has not": ("adamw:momentum=0.9", "optimizer 'adamw' has no setting 'momentum'"),
    "a learning rate": ("sgd:lr=0.1", "the learning rate is the run's stepsize"),
    "a value out of range": ("sgd:momentum=-1", r"can't be made \(Invalid momentum value: -1\)"),
    "nesterov alone": ({"kind": "sgd", "nesterov": True}, "Nesterov momentum requires"),
    "one that needs a closure": (torch.optim.LBFGS, "needs the loss as a function"),
    "its name": ("lbfgs", "no optimizer 'lbfgs'"),
    "no optimiser": (lambda params, lr: 5, "made a int, which is not a torch.optim.Optimizer"),
    "a rate of its own": (lambda params, lr: torch.optim.Adam(params, 1e-3), "must use the lr that it is given"),
    "no lr": (lambda params: torch.optim.Adam(params), "can't be made"),
    "one that is made": (torch.optim.SGD([torch.zeros(1)], 0.1), "is an optimizer, but"),
    "a number": (5, "optimizer is a int: give a class"),
}


@pytest.mark.parametrize(("choice", "problem"), WRONG.values(), ids=WRONG)
def test_a_wrong_optimiser_is_named_before_anybody_trains(choice: Any, problem: str) -> None:
    with pytest.raises(gf.InputError, match=problem) as found:
        task_of(small_cnn()).train_by(choice)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("mu", [-1, float("nan"), float("inf"), "0.1", None])
def test_a_proximal_term_is_a_number_from_zero_on(mu: Any) -> None:
    with pytest.raises(gf.InputError, match="proximal is FedProx's μ"):
        task_of(small_cnn()).train_by(None, proximal=mu)
