"""Modules of convolutions and linear layers that train by their own layers train as in a plain loop."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gammafl as gf
from gammafl.core.arrays import Vector
from gammafl.tasks.fast.convolutions.block import has_compiled
from gammafl.tasks.fast.convolutions.chain import Chain, chain_of
from gammafl.tasks.fast.convolutions.machine import Vectors
from gammafl.tasks.fast.convolutions.recognise import parts_of
from gammafl.tasks.flat_module import FlatModule
from gammafl.tasks.models import cnn, lecun_initialisation, vgg11s
from gammafl.tasks.objective import Loss, Objective
from tests.problems import OnRound
from tests.tasks.test_training import by_hand, task_of, updates

MACHINE = Vectors(16, 32)
STEPS = [0.1, 0.07, 0.05]


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(6, 16, 5, bias=False), nn.MaxPool2d(2), nn.ReLU(inplace=True)),
        nn.Flatten(),
        nn.Sequential(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84, bias=False), nn.ReLU(), nn.Linear(84, 10)),
    )


def strided() -> nn.Module:
    """Strides, no ReLU, no linear layer."""
    return nn.Sequential(nn.Conv2d(3, 20, 3, stride=2, padding=1), nn.Conv2d(20, 10, (3, 2)), nn.Flatten())


def vgg() -> nn.Module:
    module = vgg11s()
    lecun_initialisation(module)
    return module


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int]]] = {
    "cnn": (cnn, (3, 32, 32)),
    "vgg11s": (vgg, (3, 32, 32)),
    "lenet": (lenet, (1, 28, 28)),
    "strided": (strided, (3, 6, 5)),
}


def mean_square(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return outputs.square().mean() + 0 * targets.sum()


class Both:
    """A module as a chain and as it is."""

    def __init__(self, module: nn.Module, loss: Loss = cross_entropy) -> None:
        self.objective = Objective(loss)
        self.plain = FlatModule(copy.deepcopy(module))
        self.start = self.plain.weights.numpy().copy()
        chain = chain_of(FlatModule(copy.deepcopy(module)), MACHINE)
        assert chain is not None
        self.chain: Chain = chain
        self.chain.load(self.start)

    def step(self, inputs: torch.Tensor, targets: torch.Tensor, stepsize: float) -> tuple[float, float]:
        loss, _ = self.objective(self.plain.module, inputs, targets)
        self.plain.step(loss, stepsize)
        return self.chain.step(self.objective, inputs, targets, stepsize), loss.item()

    def deltas(self) -> tuple[Vector, Vector]:
        ours, theirs = np.empty_like(self.start), np.empty_like(self.start)
        assert self.chain.difference(self.start, ours) == np.abs(ours).max()
        self.plain.difference(self.start, theirs)
        return ours, theirs


def batch(shape: tuple[int, ...], count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(count, *shape, generator=random), torch.randint(10, (count,), generator=random)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("loss", [cross_entropy, mean_square])
def test_some_steps_of_a_chain_are_those_of_the_module(name: str, loss: Loss) -> None:
    """To rounding, as long as it does not prefer another of two pixels that are nearly equal: seed 1 has none."""
    torch.manual_seed(1)
    make, shape = MODULES[name]
    both = Both(make(), loss)
    for number, stepsize in enumerate(STEPS):
        ours, theirs = both.step(*batch(shape, (8, 8, 3)[number], number), stepsize)
        assert ours == pytest.approx(theirs, rel=1e-5)
    ours_delta, theirs_delta = both.deltas()
    assert np.linalg.norm(ours_delta - theirs_delta) < 1e-3 * np.linalg.norm(theirs_delta)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("count", [1, 30, 60])  # of 60, two parts use the same room
def test_a_chain_computes_the_modules_outputs(name: str, count: int) -> None:
    torch.manual_seed(0)
    make, shape = MODULES[name]
    both, (inputs, _) = Both(make()), batch(shape, count, 0)
    with torch.no_grad():
        np.testing.assert_allclose(both.chain(inputs), both.plain.module(inputs), rtol=1e-4, atol=1e-5)


def test_a_loss_may_change_its_outputs_in_place_and_keep_them() -> None:
    torch.manual_seed(0)
    kept: list[torch.Tensor] = []

    def halved(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        kept.append(outputs.detach())
        return cross_entropy(outputs.mul_(0.5), targets)

    both = Both(lenet(), halved)
    for number, stepsize in enumerate(STEPS):
        both.step(*batch((1, 28, 28), 6, number), stepsize)
    np.testing.assert_allclose(*both.deltas(), rtol=1e-3, atol=1e-6)
    for one, other in zip(kept[::2], kept[1::2], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_targets_that_are_no_classes_are_torchs() -> None:
    """Those that torch ignores, and probabilities."""
    torch.manual_seed(0)
    both = Both(lenet())
    inputs, targets = batch((1, 28, 28), 6, 0)
    targets[2] = -100
    assert both.step(inputs, targets, 0.1) == pytest.approx(both.step(inputs, targets, 0.0), rel=1)
    both.step(inputs, torch.rand(6, 10), 0.1)
    np.testing.assert_allclose(*both.deltas(), rtol=1e-3, atol=1e-6)
    targets[0] = 10
    with pytest.raises(IndexError):
        both.chain.step(both.objective, inputs, targets, 0.1)


def test_inputs_that_a_chain_cannot_take_are_the_modules() -> None:
    """Such as one image alone where the module takes it; else the error is torch's."""
    torch.manual_seed(0)
    convolution = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(1, -1))
    both = Both(convolution, mean_square)
    image, target = torch.randn(3, 6, 6), torch.zeros(4)
    both.step(*batch((3, 6, 6), 2, 0), 0.1)
    both.step(image, target, 0.1)
    both.step(*batch((3, 6, 6), 2, 1), 0.1)
    np.testing.assert_allclose(*both.deltas(), rtol=1e-4, atol=1e-6)
    with torch.no_grad():
        np.testing.assert_allclose(both.chain(image), both.plain.module(image), rtol=1e-5)
    for wrong in (torch.randn(2, 4, 6, 6), torch.randn(2, 3, 2, 2), torch.randn(2, 3, 6, 6, dtype=torch.float64)):
        with pytest.raises(RuntimeError):
            both.chain(wrong)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_chain_that_is_not_finite_any_more_says_so(broken: float) -> None:
    torch.manual_seed(0)
    both = Both(cnn())
    inputs, targets = batch((3, 32, 32), 4, 0)
    inputs[1, 2, 3, 4] = broken
    both.step(inputs, targets, 0.1)
    ours, theirs = both.chain.difference(both.start, np.empty_like(both.start)), both.plain.weights.numpy()
    assert not np.isfinite(ours)
    assert not np.isfinite(theirs).all()


def changed(change: Callable[[nn.Sequential], Any]) -> nn.Module:
    module = cnn()
    assert isinstance(module, nn.Sequential)
    change(module)
    return module


def test_only_a_sequence_of_plain_layers_is_a_chain() -> None:
    assert parts_of(cnn()) is not None
    shared = nn.Conv2d(3, 3, 3, padding=1)
    others = {
        "a hook": changed(lambda module: module[1].register_forward_hook(lambda *_: None)),
        "a hook on the whole": changed(lambda module: module.register_forward_pre_hook(lambda *_: None)),
        "a forward of its own": changed(lambda module: setattr(module[0], "forward", lambda x: x)),
        "a frozen layer": changed(lambda module: module[0].requires_grad_(False)),
        "a parameter besides": changed(lambda module: module.register_parameter("own", nn.Parameter(torch.zeros(1)))),
        "dropout": changed(lambda module: module.insert(9, nn.Dropout())),
        "pooling that overlaps": changed(lambda module: setattr(module[2], "stride", 1)),
        "groups": nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.ReLU(), nn.Flatten()),
        "dilation": nn.Sequential(nn.Conv2d(4, 4, 3, dilation=2), nn.ReLU(), nn.Flatten()),
        "reflection": nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), nn.Flatten()),
        "a layer twice": nn.Sequential(shared, nn.ReLU(), shared, nn.Flatten()),
        "no convolution": nn.Sequential(nn.Flatten(), nn.Linear(3, 2)),
        "no flattening": nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()),
        "weights of another kind": nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()).double(),
    }
    assert [name for name, module in others.items() if parts_of(module) is not None] == []


def test_without_vectors_there_is_no_chain() -> None:
    assert chain_of(FlatModule(cnn()), None) is None


def test_without_fast_a_task_is_torchs_alone() -> None:
    """To the bit: the same operators in the same order."""
    task = task_of(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(100, 5)))
    model = task.initial_model(np.random.default_rng(0))
    assert task.arithmetic == ("compiled convolutions" if has_compiled(task.module_with(model)) else "torch")
    task.fast = False
    assert task.arithmetic == "torch"
    for client, update in enumerate(updates(task, model)):
        expected = by_hand(task.module_with(model), task, client)
        np.testing.assert_array_equal(update.delta, expected.delta)


@pytest.mark.skipif(not has_compiled(cnn()), reason="this machine's vectors are not known")
def test_a_run_goes_on_with_the_arithmetic_that_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    images = torch.randn(40, 3, 8, 8, generator=random)
    data = [torch.utils.data.TensorDataset(part, torch.arange(10) % 3) for part in images.split(10)]
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))

    def simulate(iterations: int = 20, **settings: Any) -> Any:
        usual: dict[str, Any] = {"stepsize": 0.1, "checkpoint_seconds": 0, "seed": 1}
        return gf.simulate(module, data[:3], data[3], iterations=iterations, out=tmp_path / "run", **usual, **settings)

    class StopNowError(Exception):
        pass

    def interrupt(round: gf.Round) -> None:
        raise StopNowError

    with pytest.raises(StopNowError):
        simulate(callbacks=[OnRound(interrupt)])
    assert "# computed by compiled convolutions\n" in (tmp_path / "run" / "config.toml").read_text()
    with pytest.raises(gf.InputError, match="fast = True there, False asked for"):
        simulate(fast=False)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("gammafl.tasks.fast.convolutions.block.vectors", lambda: None)
        with pytest.raises(
            gf.InputError, match="begun by compiled convolutions, and this machine would go on by torch"
        ):
            simulate()
    assert simulate().summary.rounds == 4
