"""The machine's limit: how long all multiplications of local training take if the processor does nothing else."""

import time
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.peers.work import Work, network
from gammafl.core.jit import compiled
from gammafl.tasks.fast.convolutions.machine import vectors
from gammafl.tasks.fast.convolutions.microkernels import Fixed, tile

TIMES, LENGTH = 200, 1000


def text(work: Work) -> str:
    """The limit of a round, for the note of a table."""
    speed = multiply_adds_per_second()
    if speed is None:
        return "the limit of this processor is not known"
    steps = work.participants * work.local_steps
    seconds = steps * work.batch_size * multiply_adds(work.model) / speed / work.threads
    return f"all multiplications of a round take {1e3 * seconds:.3g} ms at this processor's limit"


def multiply_adds(model: str) -> int:
    """The multiply-adds of a sample, forward and backward, without the gradient with respect to the images."""
    module, counted, first = network(model), [0], [True]

    def count(layer: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        products = output[0].numel() * layer.weight[0].numel()
        counted[0] += products * (2 if first[0] else 3)
        first[0] = False

    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            part.register_forward_hook(count)
    with torch.no_grad():
        module(torch.zeros(1, 1 if model == "logistic" else 3, 32, 32))
    return counted[0]


@compiled
def _multiply(times: int, x: Any, pixels: Any, w: Any, bias: Any, out: Any, shape: Any) -> None:
    for _ in range(times):
        tile(x, pixels, 0, 1, 0, LENGTH, w, 0, bias, 0, out, 0, 32, shape)


@cache
def multiply_adds_per_second() -> float | None:
    """The most multiply-adds per second of a core, on registers: the best of many short measurements."""
    machine = vectors()
    if machine is None:
        return None
    width, count = 2 * machine.lanes, machine.pixels
    x, w, bias = np.zeros(LENGTH + count, np.float32), np.zeros(LENGTH * width, np.float32), np.zeros(width, np.float32)
    arrays = x, np.arange(count, dtype=np.int32), w, bias, np.zeros(count * 32 + width, np.float32)
    shape, best = Fixed(machine.lanes, count, 2), np.inf
    for _ in range(50):
        begin = time.perf_counter()
        _multiply(TIMES, *arrays, shape)
        best = min(best, time.perf_counter() - begin)
    return TIMES * LENGTH * width * count / best
