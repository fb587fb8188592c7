"""Passes over a client's samples: every sample once before any comes again, whoever takes part and whenever."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

import gammafl as gf
from gammafl.config.layers import make_config
from gammafl.config.schema import Sampler
from gammafl.core import threads as core_threads
from gammafl.federated import batch_draws as streams
from gammafl.federated import server
from gammafl.federated.plan import Plan
from gammafl.federated.sampling import Sampling
from gammafl.runs.simulate import Result
from gammafl.tasks.build import build_task
from tests.problems import METHODS, STEPSIZE, Quadratic, blobs, plan_for

PASSES = ("epochs", "epochs-fixed")
sizes = st.lists(st.integers(1, 40), min_size=3, max_size=3)


def rows_of(plan: Plan, client: int, size: int, rounds: Sequence[int]) -> list[list[int]]:
    """What the client is given in those of `rounds` that pick it."""
    sampling, given = Sampling(plan), []
    for number in rounds:
        participants = server.pick_participants(plan, number)
        if client in participants:
            below = [plan.task.client_sizes[one] for one in participants]
            drawn = streams.integers(sampling.streams(number, participants), below, size)
            given.append(drawn[participants.index(client)].tolist())
    return given


def passes_of(plan: Plan, client: int, size: int) -> list[list[int]]:
    """The client's complete passes in the whole run."""
    together, held = [*chain(*rows_of(plan, client, size, range(plan.rounds)))], plan.task.client_sizes[client]
    return [together[start : start + held] for start in range(0, len(together) - held + 1, held)]


@given(st.sampled_from(PASSES), sizes, st.integers(1, 30), st.integers(0, 2**40))
def test_a_pass_uses_every_sample_once_wherever_rounds_end(
    sampler: Sampler, held: list[int], size: int, seed: int
) -> None:
    plan = plan_for(gf.Dense(), Quadratic(sizes=held), seed=seed, sampler=sampler)
    for client in range(3):
        assert all(sorted(one) == list(range(held[client])) for one in passes_of(plan, client, size))


def test_a_fixed_order_repeats_and_a_fresh_one_does_not() -> None:
    fixed, fresh = (plan_for(gf.Dense(), Quadratic(sizes=[30] * 4), sampler=sampler) for sampler in PASSES[::-1])
    for client in range(4):
        repeated, anew = passes_of(fixed, client, 12), passes_of(fresh, client, 12)
        assert len(repeated) > 2
        assert repeated == [repeated[0]] * len(repeated)
        assert len({tuple(one) for one in anew}) == len(anew)
        assert sorted(repeated[0]) != repeated[0]
    assert passes_of(fixed, 0, 12)[0] != passes_of(fixed, 1, 12)[0]


@given(st.sampled_from(PASSES), st.integers(0, 39))
def test_what_a_round_uses_does_not_depend_on_what_was_asked_before(sampler: Sampler, begin: int) -> None:
    plan = plan_for(gf.Dense(), sampler=sampler)
    whole = [rows_of(plan, 1, 7, [number]) for number in range(plan.rounds)]
    assert rows_of(plan, 1, 7, range(begin, plan.rounds)) == [*chain(*whole[begin:])]
    sampling = Sampling(plan)
    late, early = sampling.picks_before(begin).tolist(), sampling.picks_before(0).tolist()
    assert early == [0] * 4
    picked = [client for number in range(begin) for client in server.pick_participants(plan, number)]
    assert late == np.bincount(picked, minlength=4).tolist()


def test_the_default_is_with_replacement_as_before() -> None:
    plan = plan_for(gf.Dense())
    made, expected = Sampling(plan).streams(3, [0, 2]), streams.Streams(plan.seed, "batches", 3, [0, 2])
    assert type(made) is streams.Streams
    assert made.integers([9, 9], 50).tolist() == expected.integers([9, 9], 50).tolist()


@given(st.sampled_from(["replacement", *PASSES]), sizes, st.integers(1, 30), st.integers(0, 39))
def test_draws_of_all_are_those_of_each_client(sampler: Sampler, held: list[int], size: int, number: int) -> None:
    """The compiled steps are given the former, torch's modules the latter."""
    plan = plan_for(gf.Dense(), Quadratic(sizes=held), sampler=sampler)
    clients = server.pick_participants(plan, number)
    below = [held[client] for client in clients]
    made = Sampling(plan).streams(number, clients)
    each = [streams.drawn(made, i, most, size)[0].tolist() for i, most in enumerate(below)]
    assert streams.integers(made, below, size).tolist() == each


class Wrapped(nn.Module):
    """A linear layer that the compiled steps don't know, so that torch trains it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.inner(inputs)
        return outputs


def simulated(module: nn.Module, sampler: Sampler, clients: Sequence[TensorDataset], **changes: Any) -> Result:
    settings: dict[str, Any] = {"iterations": 60, "batch_size": 7, "method": METHODS["top-k"], "stepsize": STEPSIZE}
    return gf.simulate(module, clients, blobs()[1], sampler=sampler, **settings | changes)


@pytest.mark.parametrize("sampler", ["replacement", *PASSES])
def test_compiled_steps_and_torchs_use_the_same_samples(sampler: Sampler) -> None:
    clients, _ = blobs()
    slow = Wrapped()
    fast = simulated(slow.inner, sampler, clients, method="fedavg")
    plain = simulated(slow, sampler, clients, method="fedavg")
    for one, other in zip(fast.rounds, plain.rounds, strict=True):
        assert one.train_loss == pytest.approx(other.train_loss, rel=1e-3)


@pytest.mark.parametrize("sampler", PASSES)
@pytest.mark.parametrize("module", [nn.Linear(8, 3), nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))])
def test_threads_do_not_change_passes(sampler: Sampler, module: nn.Module) -> None:
    before, clients = core_threads.count(), blobs()[0]
    try:
        results = []
        for threads in (1, 2, 3):
            core_threads.set_count(threads)
            results.append(simulated(module, sampler, clients).rounds)
    finally:
        core_threads.set_count(before)
    assert results == [results[0]] * 3


def test_a_sampler_that_does_not_exist_and_a_task_that_draws_for_itself_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        gf.InputError, match="sampler: Input should be 'replacement', 'epochs' or 'epochs-fixed', got 'epoch'"
    ):
        simulated(nn.Linear(8, 3), "epoch", blobs()[0])  # type: ignore[arg-type]
    file = tmp_path / "own.py"
    file.write_text("from tests.problems import Quadratic\ndef build(config):\n    return Quadratic()\n")
    own = {"task": f"{file}:build", "clients": 4, "iterations": 5}
    build_task(make_config(own), lambda facts: [], None, print)
    with pytest.raises(gf.InputError, match="draws its own batches"):
        build_task(make_config(own, {"sampler": "epochs"}), lambda facts: [], None, print)
