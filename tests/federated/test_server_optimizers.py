"""Optimisers of the server: what they are where nothing is to optimise, what they survive, how they are named."""

from typing import Any

import numpy as np
import pytest

import gammafl as gf
from gammafl.config.optimizers import ServerAdam, ServerMomentum, server_optimizer
from gammafl.core.aggregate import LARGEST_MODEL
from gammafl.core.sparse import SparseUpdate
from gammafl.federated import rounds, server
from gammafl.federated.client import Upload
from gammafl.federated.server import ServerState
from gammafl.federated.server_optimizers import MOMENTS
from tests.problems import METHODS, Quadratic, plan_for, run

KINDS = [kind for kind in MOMENTS if kind != "none"]


@pytest.mark.parametrize("method", METHODS)
def test_a_learning_rate_of_one_without_momentum_is_fedavg_byte_for_byte(method: str) -> None:
    plain, _, records = run(plan_for(METHODS[method]))
    same, _, again = run(plan_for(METHODS[method], server_optimizer=ServerMomentum(lr=1, momentum=0)))
    assert (same.model.tobytes(), again) == (plain.model.tobytes(), records)
    assert same.moments == {}


def test_a_hair_from_one_it_is_fedavg_but_for_rounding() -> None:
    """The other way through the code: a vector of the mean update, and a step along it."""
    plain, _, _ = run(plan_for(gf.fedavg()))
    near, _, _ = run(plan_for(gf.fedavg(), server_optimizer=ServerMomentum(lr=1 + 1e-9, momentum=0)))
    np.testing.assert_allclose(near.model, plain.model, rtol=1e-4, atol=1e-5)
    assert near.moments.keys() == {"momentum"}


@pytest.mark.parametrize("chosen", ["momentum:lr=0.1", "adam", "yogi", "adagrad"])
def test_each_brings_the_model_nearer_to_the_optimum(chosen: str) -> None:
    task = Quadratic()
    plan = plan_for(METHODS["top-k"], task, iterations=1000, participants=4, server_optimizer=server_optimizer(chosen))
    state, _, _ = run(plan)
    assert task.evaluate(state.model).metric < 0.5 * task.evaluate(rounds.start(plan).model).metric


def accepted(*updates: Any) -> list[server.Accepted]:
    return [(Upload(i, b"", 0.0), SparseUpdate(len(update), None, update)) for i, update in enumerate(updates)]


@pytest.mark.parametrize("kind", KINDS)
def test_no_update_that_is_accepted_makes_the_model_or_what_is_remembered_infinite(kind: str) -> None:
    state = ServerState(np.array([1, -2, 0, 3], np.float32))
    hostile = np.array([LARGEST_MODEL, -LARGEST_MODEL, 1e30, 0])
    for sign in (1, 1, -1, 0, 1):
        server.apply(state, accepted(sign * hostile), [1.0], server_optimizer(f"{kind}:lr=1000"))
        for vector in (state.model, *state.moments.values()):
            assert np.isfinite(vector).all()


@pytest.mark.parametrize("kind", KINDS)
def test_running_statistics_are_averaged_and_no_optimiser_moves_them(kind: str) -> None:
    averages = np.array([4, 5], np.float32)
    state = ServerState(np.concatenate([np.ones(3, np.float32), averages]))
    for _ in range(3):
        server.apply(state, accepted([1, 1, 1, 2, 0], [1, 1, 1, 0, 4]), [0.5, 0.5], server_optimizer(kind), 2)
        averages -= [1, 2]
    np.testing.assert_array_equal(state.model[3:], averages)
    assert (state.model[:3] < 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_in_a_round_without_uploads_nothing_moves_and_nothing_is_forgotten(kind: str) -> None:
    """As Flower's strategies do it: an average of nothing is no step."""
    state = ServerState(np.zeros(2, np.float32))
    server.apply(state, accepted([1, 2]), [1.0], server_optimizer(kind))
    before = state.model.tobytes(), {name: moment.tobytes() for name, moment in state.moments.items()}
    server.apply(state, [], [], server_optimizer(kind))
    assert (state.model.tobytes(), {name: moment.tobytes() for name, moment in state.moments.items()}) == before
    assert state.round == 2


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("adm", r"adagrad, got 'adm' \(did you mean 'adam'"),
        ("adam:lr=0", "server_optimizer.lr: Input should be greater than 0, got 0"),
        ("adam:momentum=0.9", "'adam' has no setting 'momentum'; it has kind, lr, beta_1, beta_2, tau"),
        ({"lr": 1}, "server_optimizer must be one of"),
        (ServerAdam, "give a name such as 'adam', or a table"),
        ("momentum:momentum=1", "server_optimizer.momentum: Input should be less than 1, got 1"),
        ("yogi:tau=0", "server_optimizer.tau"),
    ],
    ids=str,
)
def test_a_wrong_server_optimiser_is_named(wrong: Any, problem: str) -> None:
    with pytest.raises(gf.InputError, match=problem):
        server_optimizer(wrong)


def test_a_server_optimiser_is_a_name_an_expression_a_table_or_settings() -> None:
    forms: list[Any] = ["adam:lr=0.5", {"kind": "adam", "lr": 0.5}, ServerAdam(lr=0.5)]
    assert [server_optimizer(form) for form in forms] == 3 * [ServerAdam(lr=0.5)]
    assert server_optimizer(None) == server_optimizer("none")
