"""Local steps of GPT-2 with 124M parameters, compared with a plain loop over transformers' model; and their memory.

There are ten clients. Four of them train, in turns with the plain loop and with the same number of threads. Their text
is random tokens, because only time and memory count here.
"""

import time
from collections.abc import Iterator
from statistics import median

import numpy as np
import torch
from torch import nn

from benchmarks.measure import show_seconds, verdict
from gammafl.core import threads
from gammafl.core.arrays import Vector
from gammafl.core.memory import ErrorFeedback, Residual
from gammafl.core.moment import Moment
from gammafl.federated.units import show_bytes
from gammafl.methods.gamma_fedht import gamma_fedht
from gammafl.report.tables import TextTable
from gammafl.runs import process_memory
from gammafl.tasks.language import CausalLanguageModel, TokenSamples, initialise_gpt2, token_loss
from gammafl.tasks.torch_task import TorchTask

CLIENTS, PARTICIPANTS, LOCAL_STEPS, BATCH, STEPSIZE = 10, 4, 5, 1, 0.1
WANTED_SPEED, WANTED_BYTES = 0.95, 9e9


def table(sequence: int, count: int, repeats: int) -> TextTable:
    """The seconds of a local step of both, and the memory of gammafl."""
    threads.set_count(count)
    random = np.random.default_rng(0)
    tokens = [random.integers(0, 50_000, 40 * sequence + 1, np.uint16) for _ in range(CLIENTS)]
    began, before = time.perf_counter(), process_memory.peak_bytes()
    task = TorchTask(
        "gpt2",
        CausalLanguageModel("gpt2", None),
        [TokenSamples(part, sequence) for part in tokens],
        TokenSamples(tokens[0], sequence),
        BATCH,
        loss=token_loss,
        initialise=initialise_gpt2,
        metric="loss",
        higher_is_better=False,
    )
    model, method = task.initial_model(random), gamma_fedht(keep=0.001)
    memories = [ErrorFeedback().client(method, model.size) for _ in range(CLIENTS)]
    for memory in memories:
        memory.residual[:] = 0  # pages count as memory only after they are written
    set_up, made = time.perf_counter() - began, process_memory.peak_bytes() - before
    ours, plain = _ours(task, model, memories), _plain(sequence, count)
    next(ours)
    peak = process_memory.peak_bytes()  # measured before the plain loop makes its model
    seconds: dict[str, list[float]] = {"ours": [], "plain": []}
    for _ in range(repeats):
        seconds["ours"].append(next(ours))
        seconds["plain"].append(next(plain))
    steps = {name: median(values) for name, values in seconds.items()}
    sign = "✓" if peak < WANTED_BYTES else "✗"
    rows = [
        ["plain transformers, a local step", show_seconds(steps["plain"]), ""],
        ["gammafl, a local step", show_seconds(steps["ours"]), verdict(steps["plain"] / steps["ours"], WANTED_SPEED)],
        [f"set-up of {CLIENTS} clients", show_seconds(set_up), f"{show_bytes(made)}"],
        [
            "peak memory",
            show_bytes(peak),
            f"{sign} (wanted < {show_bytes(WANTED_BYTES)})",
        ],
    ]
    title = f"GPT-2: {task.name}, d = {model.size:,}, {PARTICIPANTS} of {CLIENTS} clients, E = {LOCAL_STEPS}"
    return TextTable(f"{title}, batch {BATCH} of {sequence} tokens, {count} threads", ["", "", ""], rows)


def _ours(task: TorchTask, model: Vector, memories: list[Residual]) -> Iterator[float]:
    """Yields the seconds of a local step for each round, without compression."""
    stepsizes = np.full(LOCAL_STEPS, STEPSIZE, np.float32)
    number = 0
    while True:
        number += 1
        rngs = [np.random.default_rng([number, client]) for client in range(PARTICIPANTS)]
        taken, began = 0.0, time.perf_counter()
        for client, update in enumerate(task.train(range(PARTICIPANTS), model, stepsizes, rngs)):
            taken += time.perf_counter() - began
            memories[client].propose(update.delta, Moment(), update.largest)
            began = time.perf_counter()
        yield taken / (PARTICIPANTS * LOCAL_STEPS)


def _plain(sequence: int, count: int) -> Iterator[float]:
    """Yields the seconds of a local step for each round of a usual training loop."""
    network = CausalLanguageModel("gpt2", None)
    network.train()
    random = torch.Generator().manual_seed(0)
    while True:
        torch.set_num_threads(count)
        optimizer = torch.optim.SGD(network.parameters(), lr=STEPSIZE)
        batches = torch.randint(0, 50_000, (LOCAL_STEPS, BATCH, sequence + 1), generator=random)
        began = time.perf_counter()
        for batch in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()).backward()
            optimizer.step()
        yield (time.perf_counter() - began) / LOCAL_STEPS
