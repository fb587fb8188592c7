"""`gf.simulate`: one's own model and data, all clients in this process."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, get_args

from gammafl.core.errors import not_installed, require

try:
    import torch
except ModuleNotFoundError:
    raise not_installed("torch", "train") from None
from torch import nn
from torch.utils.data import Dataset

from gammafl.config.schema import EvaluationSettings, Sampler
from gammafl.core.aggregate import Weighting
from gammafl.core.compressors import Compressor
from gammafl.core.method import Method
from gammafl.core.stepsizes import Stepsize, as_stepsize
from gammafl.federated import rounds, server
from gammafl.federated.in_process import InProcess
from gammafl.federated.plan import Plan
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.rounds import Record
from gammafl.federated.summary import summarise
from gammafl.methods.registry import resolve
from gammafl.runs.progress import show_bytes, show_metric
from gammafl.tasks.fast.replicas import Loss
from gammafl.tasks.flat_module import Buffers
from gammafl.tasks.torch_task import Metric
from gammafl.tasks.user_task import torch_task


@dataclass(frozen=True, repr=False)
class Result:
    """What `simulate` returns: summary.json's keys, a record a round, and the trained module.

    Printed, or at the end of a notebook's cell, it shows the essentials of the summary.
    """

    summary: dict[str, Any]
    rounds: list[Record]
    model: nn.Module
    averaged_model: nn.Module | None

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name}: {value}' for name, value in self._essentials().items())})"

    def _repr_html_(self) -> str:
        rows = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in self._essentials().items())
        return f"<table>{''.join(rows)}</table>"

    def _essentials(self) -> dict[str, str]:
        """Names and values of the summary, as they are shown."""
        about, metric = self.summary, self.summary["metric"]
        of_dense = about["uplink_bytes_per_client"] / about["dense_bytes_per_client"]
        averaged = {} if about["averaged"] is None else {f"averaged {metric}": show_metric(metric, about["averaged"])}
        return {
            "task": about["task"],
            "method": about["method"] if len(about["method"]) <= 120 else about["method"][:119] + "…",
            "rounds": str(about["rounds"]),
            metric: show_metric(metric, about["final"]),
            **averaged,
            "uplink": f"{show_bytes(about['uplink_bytes'])}, {100 * of_dense:.3g}% of dense",
        }


def simulate(
    model: nn.Module,
    client_datasets: Sequence[Dataset[Any]],
    test_dataset: Dataset[Any],
    *,
    method: str | Method | Compressor = "gamma-fedht",
    stepsize: Stepsize | float,
    iterations: int,
    local_steps: int = 5,
    participation: float = 0.5,
    batch_size: int = 50,
    sampler: Sampler = "replacement",
    seed: int = 0,
    keep: float = 0.01,
    loss: Loss | None = None,
    weights: Weighting = "paper",
    metric: Metric = "accuracy",
    buffers: Buffers = "refuse",
    averaging: Literal["tail", "exponential", "none"] = "tail",
    evaluate_every: int = 20,
    on_round: Callable[[Record], None] | None = None,
) -> Result:
    """Trains a copy of `model` on `client_datasets`, one a client, by Algorithm 1.

    method        a value such as `gf.top_k(keep=0.01)`, or a name or expression such as "top-k"
    keep          the kept fraction, for a method that is given by name
    stepsize      γ_t: a number, or a function of t such as `gf.InverseDecay(50, 500)`
    iterations    T, a multiple of `local_steps` (E)
    sampler       batches are drawn anew in each step ("replacement"), or in passes over a client's samples, each in a
                  new order ("epochs") or all in one ("epochs-fixed")
    loss          a mean over a batch; by default cross-entropy
    metric        what is reported of the test set
    buffers       what becomes of running statistics: "travel" or "local"
    averaging     of the server's model: over the last tenth of the rounds ("tail"), "exponential" or "none"
    on_round      a function that sees each record

    Data sets that draw random numbers should draw them from torch, whose state the seed fixes.
    """
    _check_arguments(participation, batch_size, seed, evaluate_every, averaging, sampler)
    task = torch_task(
        model, client_datasets, test_dataset, batch_size, loss=loss, metric=metric, buffers=buffers, name="custom"
    )
    chosen, stepsize = resolve(method, keep=keep), as_stepsize(stepsize)
    plan = Plan(
        task=task,
        method=chosen,
        stepsize=stepsize,
        iterations=iterations,
        local_steps=local_steps,
        participants=max(1, round(participation * len(task.clients))),
        seed=seed,
        weights=weights,
        averaging=server.AVERAGINGS[averaging],
        evaluation=EvaluationSettings(every=evaluate_every),
        sampler=sampler,
    )
    began = time.perf_counter()
    with torch.random.fork_rng(devices=[]), _torch_threads_restored():
        state = rounds.start(plan)
        records = []
        for record in rounds.run_rounds(plan, state, InProcess(plan, ResidualStore(chosen, plan.dim))):
            records.append(record)
            if on_round is not None:
                on_round(record)
    summary = {"task": task.name, "method": str(chosen), "seed": seed}
    summary |= summarise(plan, state.totals, records, time.perf_counter() - began)
    averaged = None if state.average is None else task.module_with(state.average)
    return Result(summary, records, task.module_with(state.model), averaged)


@contextmanager
def _torch_threads_restored() -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check_arguments(
    participation: float, batch_size: int, seed: int, evaluate_every: int, averaging: str, sampler: str
) -> None:
    require(0 < participation <= 1, f"participation must be in (0, 1], got {participation}")
    require(batch_size >= 1, f"batch_size must be at least 1, got {batch_size}")
    require(seed >= 0, f"seed must not be negative, got {seed}")
    require(evaluate_every >= 1, f"evaluate_every must be at least 1, got {evaluate_every}")
    known = ", ".join(server.AVERAGINGS)
    require(averaging in server.AVERAGINGS, f"averaging must be one of {known}, got {averaging!r}")
    samplers = ", ".join(get_args(Sampler))
    require(sampler in get_args(Sampler), f"sampler must be one of {samplers}, got {sampler!r}")
