"""Compiled blocks within modules of any kind: what is computed, forward and backward, is what torch computes."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gammafl as gf
from gammafl.core import threads as core_threads
from gammafl.tasks.fast.convolutions.block import Fused, FusedSequential, has_compiled, use_blocks
from gammafl.tasks.fast.convolutions.machine import Vectors
from tests.tasks.test_training import images, updates

MACHINE = Vectors(16, 32)


class Residual(nn.Module):
    """As in a ResNet: a forward pass of its own, with one block used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.twice = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.ReLU())
        self.normalise = nn.GroupNorm(2, 8)
        self.alone = nn.Conv2d(8, 6, 1)
        self.last = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = x + self.normalise(self.twice(x))
        x = self.alone(x + self.twice(x))
        return self.last(x.mean((2, 3)))


def normalised() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.BatchNorm2d(8),
        nn.Sequential(nn.Conv2d(8, 7, 3, padding=1), nn.ReLU()),
        nn.Dropout(0.0),
        nn.Flatten(),
        nn.Linear(7 * 16, 5),
    )


MODULES: dict[str, Callable[[], nn.Module]] = {"residual": Residual, "normalised": normalised}


def both(make: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    """A module as it is, and the same with blocks."""
    torch.manual_seed(0)
    plain = make()
    fast = copy.deepcopy(plain)
    use_blocks(fast, MACHINE)
    assert any(type(part) is FusedSequential for part in fast.modules())
    return plain, fast


def gradients(module: nn.Module, x: torch.Tensor, **options: Any) -> list[torch.Tensor]:
    out = module(x)
    leaves = [*([x] if x.requires_grad else []), *module.parameters()]
    return [out, *torch.autograd.grad(out.square().sum(), leaves, **options)]


def same(ours: Any, theirs: Any) -> None:
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4 * float(two.detach().abs().max()))


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_values_and_gradients_are_torchs(name: str, wanted: bool, memory: torch.memory_format) -> None:
    plain, fast = both(MODULES[name])
    x = torch.randn(6, 3, 12, 12).contiguous(memory_format=memory).requires_grad_(wanted)
    for _ in range(2):
        same(gradients(fast, x), gradients(plain, x))
    for module in (plain, fast):
        module.eval()
    with torch.no_grad():
        same([fast(x), fast(x[:1]), fast(x.repeat(9, 1, 1, 1))], [plain(x), plain(x[:1]), plain(x.repeat(9, 1, 1, 1))])


def test_a_graph_may_be_gone_back_twice_and_out_of_order() -> None:
    plain, fast = both(Residual)
    inputs = [torch.randn(2, 3, 12, 12) for _ in range(2)]
    weight = [next(module.parameters()) for module in (plain, fast)]
    found: list[list[torch.Tensor]] = []
    for module, leaf in zip((plain, fast), weight, strict=True):
        first, second = (module(x).square().sum() for x in inputs)
        made = [torch.autograd.grad(loss, leaf, retain_graph=True)[0] for loss in (first, second, first)]
        found.append(made)
    same(found[1], found[0])
    assert torch.equal(found[1][0], found[1][2])


def test_gradients_have_gradients() -> None:
    plain, fast = both(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Tanh()))
    x = torch.randn(2, 3, 8, 8)
    penalties = []
    for module in (fast, plain):
        leaf = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(module(leaf).sum(), leaf, create_graph=True)
        penalties.append(torch.autograd.grad(slope.square().sum(), [*module.parameters()], allow_unused=True)[0])
    same(penalties[:1], penalties[1:])


def test_weights_that_change_before_the_way_back_are_noticed_as_in_torch() -> None:
    _, fast = both(Residual)
    loss = fast(torch.randn(2, 3, 12, 12)).sum()
    with torch.no_grad():
        next(fast.parameters()).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_what_a_block_gives_may_be_changed_in_place() -> None:
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Hardtanh(-0.1, 0.5, inplace=True)
    plain, fast = both(lambda: nn.Sequential(*layers))
    x = torch.randn(4, 3, 8, 8)
    same(gradients(fast, x), gradients(plain, x))


def test_other_weights_in_between_do_not_matter() -> None:
    """As where one module is called with the weights of several."""
    plain, fast = both(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2)))
    x, found = torch.randn(2, 3, 8, 8, requires_grad=True), []
    others = {name: torch.randn_like(weights) for name, weights in plain.named_parameters()}
    for module in (fast, plain):
        mine = module(x).square().sum()
        other = torch.func.functional_call(module, others, (x,)).sum()
        found.append([*torch.autograd.grad(mine, x), *torch.autograd.grad(other, x)])
    same(*found)


def test_frozen_weights_get_no_gradient() -> None:
    plain, fast = both(normalised)
    x = torch.randn(4, 3, 12, 12)
    for module in (plain, fast):
        next(module.parameters()).requires_grad_(False)
        module(x).sum().backward()
    assert next(fast.parameters()).grad is None
    same(*([p.grad for p in module.parameters() if p.grad is not None] for module in (fast, plain)))


def test_other_kinds_of_numbers_and_shapes_are_torchs() -> None:
    plain, fast = both(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2)))
    same([fast(torch.ones(3, 8, 8))], [plain(torch.ones(3, 8, 8))])
    assert fast(torch.ones(0, 3, 8, 8)).shape == (0, 4, 3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert fast(torch.ones(1, 3, 8, 8)).dtype == torch.bfloat16
    with pytest.raises(RuntimeError):
        fast(torch.ones(1, 4, 8, 8))
    with pytest.raises(RuntimeError):
        fast(torch.ones(1, 3, 2, 2))
    plain.double(), fast.double()
    same([fast(torch.ones(1, 3, 8, 8, dtype=torch.float64))], [plain(torch.ones(1, 3, 8, 8, dtype=torch.float64))])


def test_the_layers_of_a_sequence_are_still_there_one_by_one() -> None:
    plain, fast = both(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()))
    assert isinstance(fast, nn.Sequential)
    assert isinstance(plain, nn.Sequential)
    assert [type(layer) for layer in fast] == [type(layer) for layer in plain]
    x = torch.randn(2, 3, 8, 8)
    same([fast[:1](x), fast[:2](x), fast[0](x)], [plain[:1](x), plain[:2](x), plain[0](x)])


def test_a_sequence_with_a_forward_pass_of_its_own_is_not_said_to_be_compiled() -> None:
    class Doubled(nn.Sequential):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    assert not has_compiled(Doubled(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2)))


def test_what_somebody_watches_or_torch_does_as_fast_is_left_alone() -> None:
    watched = nn.Sequential(nn.Conv2d(8, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
    watched[1].register_forward_hook(lambda *_: None)
    thin = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    alone = nn.Sequential(nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU())
    for module in (watched, thin, alone):
        use_blocks(module, MACHINE)
        assert type(module) is nn.Sequential
    wide = nn.Sequential(nn.Conv2d(8, 4, 3), nn.ReLU())
    use_blocks(wide, MACHINE)
    assert isinstance(wide.__dict__["runs"][0], Fused)


@pytest.mark.parametrize("optimizer", [None, "sgd:momentum=0.9"])
def test_results_do_not_depend_on_the_number_of_threads(optimizer: str | None) -> None:
    torch.manual_seed(0)
    shards, results = [images(20, 12, seed) for seed in range(5)], []
    task = gf.torch_task(normalised(), shards, images(60, 12, 9), 6, optimizer=optimizer, buffers="local")
    task.evaluation_batch = 20
    model = task.initial_model(np.random.default_rng(0))
    for threads in (1, 2, 3):
        core_threads.set_count(threads)
        trained = updates(task, model)
        results.append(([u.delta.tobytes() for u in trained], [u.loss for u in trained], task.evaluate(model)))
    assert results == [results[0]] * 3
