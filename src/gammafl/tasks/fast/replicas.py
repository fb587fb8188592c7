"""Copies of a module that train or evaluate at the same time, each in its own thread.

torch's own threads make a batch of eight images only a little faster. Two clients at the same time are nearly twice as
fast as one after the other. Each copy computes with one thread and draws from its own random state, so results do not
depend on the number of copies. There is one copy more than threads, so that the next client is ready when a thread is.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from gammafl.core.arrays import Vector
from gammafl.core.freed_memory import keep_freed_memory
from gammafl.federated.task import LocalUpdate
from gammafl.tasks.fast.convolutions.block import use_blocks
from gammafl.tasks.fast.convolutions.chain import chain_of
from gammafl.tasks.fast.convolutions.machine import vectors
from gammafl.tasks.fast.random_state import drawing_from
from gammafl.tasks.fast.turns import turns
from gammafl.tasks.flat_module import MOVES_BY_PARTS, Buffers, FlatModule
from gammafl.tasks.nested import Nested
from gammafl.tasks.objective import Objective
from gammafl.tasks.optimizers import LocalRule
from gammafl.tasks.samples import Batch

Result = TypeVar("Result")

LARGE = 1 << 24
"""Models with at least this many elements save memory: updates overwrite the weights, each parameter moves before the
gradients of the others are known (`MOVES_BY_PARTS`), and there is no spare copy."""


class Replica:
    """A copy of `module`; with `fast`, it uses compiled loops. Without a rule, its steps are plain SGD."""

    def __init__(
        self, module: nn.Module, objective: Objective, buffers: Buffers, rule: LocalRule | None, fast: bool = True
    ) -> None:
        self._flat = FlatModule(copy.deepcopy(module), buffers)
        self._chain = chain_of(self._flat, vectors()) if fast and rule is None else None
        if fast and self._chain is None and (of_machine := vectors()) is not None:
            use_blocks(self._flat.module, of_machine)
        self._objective = objective
        self._rule = rule
        by_parts = getattr(module, MOVES_BY_PARTS, False) and self._flat.weights.numel() >= LARGE
        self._take_step = self._flat.step_by_parts if by_parts else self._flat.step
        self.generator = torch.Generator()
        self._delta: Vector | None = None
        self._losses: list[float] = []

    def begin(self, model: Vector, random_state: torch.Tensor, stepsize: float) -> None:
        """The next steps start from `model`; random numbers, such as for dropout, come from `random_state`.

        The first step uses `stepsize`.
        """
        self._flat.module.train()
        self._load(model)
        self.generator.set_state(random_state)
        if self._rule is not None:
            self._take_step = self._rule.begin(list(self._flat.parameters.values()), stepsize).take
        self._losses = []

    def _load(self, model: Vector) -> None:
        (self._chain or self._flat).load(model)

    def step(self, inputs: Nested, targets: Nested, stepsize: float) -> None:
        if self._chain is not None:
            self._losses.append(self._chain.step(self._objective, inputs, targets, stepsize))
            return
        loss, _ = self._objective(self._flat.module, inputs, targets)
        self._take_step(loss, stepsize)
        self._losses.append(loss.item())

    def update(self, model: Vector) -> LocalUpdate:
        """The change by all steps since `begin(model)`; valid until the next call."""
        if self._delta is None:
            in_place = self._chain is None and model.size >= LARGE
            self._delta = self._flat.weights.numpy() if in_place else np.empty_like(model)
        largest = (self._chain or self._flat).difference(model, self._delta)
        return LocalUpdate(self._delta, sum(self._losses) / len(self._losses), largest)

    def prepare(self, model: Vector) -> None:
        """The next evaluations use `model`."""
        self._load(model)
        self._flat.module.eval()

    @torch.no_grad()
    def evaluate(self, inputs: Nested, targets: Nested, seed: int) -> tuple[torch.Tensor, Any]:
        """(loss, outputs) of a batch. Random numbers come from `seed`. Batches do not influence each other."""
        self._flat.reset_buffers()
        with drawing_from(self.generator.manual_seed(seed)):
            return self._objective(self._chain or self._flat.module, inputs, targets)


@dataclass(frozen=True)
class Training:
    """A client's local steps from `model`, with a stepsize and a batch for each step."""

    model: Vector
    batches: Sequence[Batch]
    stepsizes: Vector
    random_state: torch.Tensor

    def go_on(self, replica: Replica, steps: range, before: Future[Any] | None = None) -> LocalUpdate | None:
        """Makes these steps after those of `before`. Returns the update after the last step."""
        if before is not None:
            before.result()
        if steps.start == 0:
            replica.begin(self.model, self.random_state, float(self.stepsizes[0]))
        with drawing_from(replica.generator):
            for number in steps:
                replica.step(*self.batches[number], float(self.stepsizes[number]))
        return replica.update(self.model) if steps.stop == len(self.stepsizes) else None


class Replicas:
    """The copies: as many as work at the same time and a few more. They are made when they are first needed."""

    def __init__(self, make: Callable[[], Replica], large: bool = False) -> None:
        keep_freed_memory()
        self._make, self._large = make, large
        self._made: list[Replica] = []
        self._pool: ThreadPoolExecutor | None = None

    def forget(self) -> None:
        """Drops all copies. New ones are made when they are needed."""
        self._made = []

    @property
    def first(self) -> Replica:
        return self.get(1)[0]

    def in_order(self, jobs: Iterable[Callable[[Replica], Result]], threads: int) -> Iterator[Result]:
        """Yields the jobs' results in their order; `threads` jobs run at a time.

        A job is taken from `jobs` when a copy is free. A copy is free when its result is no longer used.
        """
        if threads == 1:
            yield from (job(self.first) for job in jobs)
            return
        pool = self._threads(threads)
        free = deque(self.get(threads))
        running: deque[tuple[Replica, Future[Result]]] = deque()
        try:
            for job in jobs:
                running.append((replica := free.popleft(), pool.submit(job, replica)))
                if not free:
                    yield running[0][1].result()
                    free.append(running.popleft()[0])
            while running:
                yield running[0][1].result()
                running.popleft()
        finally:
            wait([future for _, future in running])  # nobody gets a copy that is still at work

    def train(self, fetches: Sequence[Callable[[], Training]], steps: int, threads: int) -> Iterator[LocalUpdate]:
        """Yields the clients' updates in order. This thread fetches a client's samples when a copy is free."""
        if threads == 1:
            yield from (_whole(fetch().go_on(self.first, range(steps))) for fetch in fetches)
            return
        pool, order = self._threads(threads), turns(len(fetches), steps, 1 if self._large else threads)
        spare = 0 if self._large else max(1, sum(turn.steps.start > 0 for turn in order))
        free = deque(self.get(min(len(fetches), threads + spare)))
        begun: dict[int, tuple[Training, Replica]] = {}
        running: dict[int, Future[LocalUpdate | None]] = {}
        done = 0
        try:
            for client, share in order:
                if client not in begun:
                    if not free:
                        yield _whole(running[done].result())
                        free.append(begun.pop(done)[1])
                        done += 1
                    begun[client] = fetches[client](), free.popleft()
                training, replica = begun[client]
                running[client] = pool.submit(training.go_on, replica, share, running.get(client))
            for client in range(done, len(fetches)):
                yield _whole(running[client].result())
        finally:
            wait(running.values())  # nobody gets a copy that is still at work

    def _threads(self, count: int) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(initializer=torch.set_num_threads, initargs=(1,), max_workers=count)
        return self._pool

    def get(self, count: int) -> list[Replica]:
        while len(self._made) < count:
            self._made.append(self._make())
        return self._made[:count]


def _whole(update: LocalUpdate | None) -> LocalUpdate:
    assert update is not None, "a client's last turn ends with its last step"
    return update
