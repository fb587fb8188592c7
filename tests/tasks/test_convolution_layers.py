"""A convolution with ReLU and pooling in compiled loops is torch's: to the bit where numbers are small and whole."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gammafl.core.arrays import Vector
from gammafl.tasks.fast.convolutions.layer import Layer, by_torch
from gammafl.tasks.fast.convolutions.machine import Vectors
from gammafl.tasks.fast.convolutions.plan import Block, Chosen, Images, Plan, Registers, Scratch

MACHINES = [Vectors(4, 32), Vectors(8, 16), Vectors(16, 32)]
SENTINEL, FENCE = np.float32(12345), 200
KERNELS = [(1, 1, 5), (2, 2, 3), (3, 3, 1), (5, 5, 3), (3, 3, 20), (4, 3, 2), (3, 3, 130)]
"""(rows, columns, input channels); a few, since each is compiled for itself."""


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Block, int, int, int]:
    """A block, a number of images, their height and width."""
    rows, columns, inputs = draw(st.sampled_from(KERNELS))
    padding = draw(st.integers(0, min(rows, columns) - 1))
    sizes = draw(st.integers(1, 40)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    outputs, stride, pool = sizes
    block = Block(inputs, outputs, rows, columns, stride, padding, draw(st.booleans()), pool)
    height, width, count = draw(st.integers(1, 16)), draw(st.integers(1, 16)), draw(st.integers(1, 5))
    assume(min(block.result(height, width)) >= 1)
    return block, count, height, width


class Made(NamedTuple):
    """What a block makes of inputs and a gradient by its output."""

    out: torch.Tensor
    by_input: torch.Tensor
    by_weight: torch.Tensor
    by_bias: torch.Tensor


class Fenced:
    """An array that begins with anything, within another one that nobody may touch."""

    def __init__(self, size: int) -> None:
        self._all = np.full(size + 2 * FENCE, SENTINEL, np.float32)
        self.array = self._all[FENCE : FENCE + size]

    def untouched(self) -> bool:
        return bool((self._all[:FENCE] == SENTINEL).all() and (self._all[-FENCE:] == SENTINEL).all())


class Problem:
    """A block with inputs, weights and a gradient."""

    def __init__(self, block: Block, count: int, height: int, width: int, whole: bool = True, seed: int = 0) -> None:
        random = torch.Generator().manual_seed(seed)

        def numbers(*shape: int) -> torch.Tensor:
            if whole:
                return torch.randint(-3, 4, shape, generator=random).float()
            return torch.randn(shape, generator=random)

        self.block = block
        self.x = numbers(count, block.inputs, height, width)
        self.weight = numbers(block.outputs, block.inputs, block.rows, block.columns)
        self.bias = numbers(block.outputs)
        self.gradient = numbers(count, block.outputs, *block.result(height, width))

    def by_torch(self, kind: torch.dtype = torch.float64) -> Made:
        """With channels last, as everywhere here: torch's way with infinity at the margin depends on that."""
        last = torch.channels_last
        x, weight, gradient = (
            part.to(kind).contiguous(memory_format=last) for part in (self.x, self.weight, self.gradient)
        )
        leaves = [part.detach().requires_grad_() for part in (x, weight, self.bias.to(kind))]
        out = by_torch(self.block, *leaves)
        return Made(out.detach(), *torch.autograd.grad(out, leaves, gradient))

    def by_loops(self, machine: Vectors) -> Made:
        count, channels, height, width = self.x.shape
        images = Images(count, height, width, channels, self.block.padding)
        plan = Plan(Registers(self.block, machine), images)
        layer, scratch, chosen = Layer(plan.registers), Scratch(plan), plan.chosen_room()
        layer.load(self.weight, self.bias)
        fenced = [Fenced(plan.source_room().size) for _ in range(2)] + [
            Fenced(plan.target_room().size) for _ in range(2)
        ]
        x, dx, out, gradient = (one.array for one in fenced)
        x[: plan.source.size] = 0  # the margin
        plan.source.inner(x).copy_(self.x)
        plan.target.inner(gradient).copy_(self.gradient)
        layer.forward(plan, scratch, x, out, chosen)
        self._same_without_keeping(plan, layer, scratch, x, out)
        layer.backward(plan, scratch, x, chosen, gradient, dx)
        assert all(one.untouched() for one in fenced)
        by_input = plan.source.inner(dx)
        return Made(plan.target.inner(out), by_input, layer.weight_gradient, layer.bias_gradient)

    def _same_without_keeping(self, plan: Plan, layer: Layer, scratch: Scratch, x: Vector, out: Vector) -> None:
        again, none = plan.target_room(), None
        layer.forward(plan, scratch, x, again, none)
        np.testing.assert_array_equal(again[: plan.target.size], out[: plan.target.size])


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: f"{machine.lanes}_lanes")
@settings(max_examples=40)
@given(blocks(), st.integers(0, 9))
def test_a_layer_is_torchs_to_the_bit_and_stays_within_its_arrays(
    machine: Vectors, case: tuple[Block, int, int, int], seed: int
) -> None:
    """Sums of small whole numbers are exact, in any order, and ties are frequent."""
    problem = Problem(*case, seed=seed)
    for ours, theirs in zip(problem.by_loops(machine), problem.by_torch(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@settings(max_examples=20)
@given(blocks())
def test_a_layers_bytes_do_not_depend_on_the_width_of_vectors(case: tuple[Block, int, int, int]) -> None:
    problem = Problem(*case, whole=False)
    first, *others = (problem.by_loops(machine) for machine in MACHINES)
    for other in others:
        for one, two in zip(first, other, strict=True):
            np.testing.assert_array_equal(one, two)


def special(random: np.random.Generator, like: torch.Tensor, share: float) -> torch.Tensor:
    """Infinity and NaN at some places."""
    numbers = like.numpy().copy()
    where = random.random(numbers.shape) < share
    numbers[where] = random.choice([np.inf, -np.inf, np.nan], int(where.sum()))
    return torch.from_numpy(numbers)


@settings(max_examples=30)
@given(blocks(), st.sampled_from(["x", "gradient"]), st.sampled_from([0.001, 0.02, 0.3]), st.integers(0, 9))
def test_infinity_and_nan_are_where_they_are_in_torch(
    case: tuple[Block, int, int, int], name: str, share: float, seed: int
) -> None:
    problem = Problem(*case, seed=seed)
    setattr(problem, name, special(np.random.default_rng(seed), getattr(problem, name), share))
    for ours, theirs in zip(problem.by_loops(MACHINES[2]), problem.by_torch(torch.float32), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("broken", [np.inf, -np.inf, np.nan])
def test_a_weight_that_is_not_finite_spreads_as_in_torch(broken: float) -> None:
    problem = Problem(Block(3, 5, 3, 3, relu=True, pool=2), 2, 9, 9)
    problem.weight[2, 1, 0, 2] = broken
    for ours, theirs in zip(problem.by_loops(MACHINES[1]), problem.by_torch(torch.float32), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: f"{machine.lanes}_lanes")
def test_a_step_is_one_along_the_gradient(machine: Vectors) -> None:
    """Straight into the weights, and then the forward pass sees it too."""
    problem = Problem(Block(3, 20, 3, 3, padding=1, relu=True, pool=2), 4, 8, 8)
    plan = Plan(Registers(problem.block, machine), Images(4, 8, 8, 3, 1))
    layer, scratch, chosen = Layer(plan.registers), Scratch(plan), plan.chosen_room()
    layer.load(problem.weight, problem.bias)
    x, out, gradient, dx = plan.source_room(), plan.target_room(), plan.target_room(), plan.source_room()
    plan.source.inner(x).copy_(problem.x)
    plan.target.inner(gradient).copy_(problem.gradient)
    layer.forward(plan, scratch, x, out, chosen)
    layer.descend(plan, scratch, x, chosen, gradient, dx, 0.25)
    expected = problem.by_torch()
    np.testing.assert_array_equal(plan.source.inner(dx), expected.by_input)
    problem.weight = problem.weight - 0.25 * expected.by_weight.float()
    problem.bias = problem.bias - 0.25 * expected.by_bias.float()
    np.testing.assert_array_equal(layer.weight, problem.weight)
    np.testing.assert_array_equal(layer.bias, problem.bias)
    layer.forward(plan, scratch, x, out, chosen)
    np.testing.assert_array_equal(plan.target.inner(out), problem.by_torch().out)


def test_a_plan_that_does_not_fit_is_refused() -> None:
    registers = Registers(Block(3, 5, 3, 3), MACHINES[0])
    for images in (Images(1, 2, 9, 3), Images(1, 9, 9, 4), Images(1, 9, 9, 3, margin=1)):
        with pytest.raises(AssertionError):
            Plan(registers, images)


def test_the_room_of_what_is_chosen_is_enough_for_whole_vectors() -> None:
    plan = Plan(Registers(Block(3, 5, 3, 3, relu=True), MACHINES[2]), Images(2, 5, 5, 3))
    chosen: Chosen = plan.chosen_room()
    assert chosen.size == 2 * 3 * 3 * 16
