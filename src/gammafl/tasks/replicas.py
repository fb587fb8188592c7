"""Copies of a module that train or evaluate at the same time, each in a thread of its own.

torch's own threads speed up a batch of eight images by much less than their number; two clients at once are nearly
twice as fast as one after the other. Each copy computes with one thread, so results don't depend on their number.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from gammafl.core.kernels import Vector
from gammafl.tasks.base import LocalUpdate
from gammafl.tasks.flat_module import Buffers, FlatModule
from gammafl.tasks.kept_memory import keep_freed_memory
from gammafl.tasks.pool_first import pool_first

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Result = TypeVar("Result")


class Replica:
    """A copy of `module`, arranged for speed."""

    def __init__(self, module: nn.Module, loss: Loss, buffers: Buffers) -> None:
        keep_freed_memory()
        module = copy.deepcopy(module)
        pool_first(module)
        self.flat = FlatModule(module, buffers, channels_last=True)
        self.loss = loss
        self._delta: Vector | None = None

    def train(self, model: Vector, inputs: torch.Tensor, targets: torch.Tensor, stepsizes: Vector) -> LocalUpdate:
        """A step for each stepsize, on its share of the samples; valid until the next call."""
        self.flat.module.train()
        self.flat.load(model)
        size = len(inputs) // len(stepsizes)
        total = 0.0
        for x, y, stepsize in zip(inputs.split(size), targets.split(size), stepsizes, strict=True):
            loss = self.loss(self.flat.module(x), y)
            self.flat.step(loss, float(stepsize))
            total += loss.item()
        if self._delta is None:
            self._delta = np.empty_like(model)
        largest = self.flat.difference(model, self._delta)
        return LocalUpdate(self._delta, total / len(stepsizes), largest)

    @torch.no_grad()
    def draws_random_numbers(self, model: Vector, inputs: torch.Tensor) -> bool:
        """Whether a training step draws from torch's random state, as dropout does; the state stays as it was."""
        self.flat.module.train()
        self.flat.load(model)
        state = torch.get_rng_state()
        self.flat.module(inputs)
        drew = not torch.equal(state, torch.get_rng_state())
        torch.set_rng_state(state)
        return drew


class Replicas:
    """As many copies as work at the same time, made when they are first needed."""

    def __init__(self, make: Callable[[], Replica]) -> None:
        self._make = make
        self._made: list[Replica] = []
        self._pool: ThreadPoolExecutor | None = None

    @property
    def first(self) -> Replica:
        return self.get(1)[0]

    def in_order(self, jobs: Iterable[Callable[[Replica], Result]], threads: int) -> Iterator[Result]:
        """The jobs' results in their order, `threads` of them at a time.

        A job is taken from `jobs` when a copy is free for it, and a copy is free when its result is done with.
        """
        if threads == 1:
            yield from (job(self.first) for job in jobs)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(initializer=torch.set_num_threads, initargs=(1,), max_workers=threads)
        free = deque(self.get(threads))
        running: deque[tuple[Replica, Future[Result]]] = deque()
        try:
            for job in jobs:
                running.append((replica := free.popleft(), self._pool.submit(job, replica)))
                if not free:
                    yield running[0][1].result()
                    free.append(running.popleft()[0])
            while running:
                yield running[0][1].result()
                running.popleft()
        finally:
            wait([future for _, future in running])  # nobody gets a copy that is still at work

    def get(self, count: int) -> list[Replica]:
        while len(self._made) < count:
            self._made.append(self._make())
        return self._made[:count]
