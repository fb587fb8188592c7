"""Statistics, such as running variances, travel whole whatever a method remembers: no shift, no momentum."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import gammafl as gf
from gammafl.config.schema import Faults
from gammafl.core.arrays import Vector
from gammafl.core.layout import Layout
from gammafl.federated import rounds
from gammafl.federated.client import Outbox
from gammafl.federated.faults import carrier
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.task import LocalUpdate
from tests.problems import Quadratic, plan_for

MEMORIES: dict[str, gf.Method] = {
    "shifts, sum": gf.gamma_fedht_s(initial_threshold=0.1, rate=0.2),
    "shifts, each": gf.gamma_fedht_s(initial_threshold=0.1, rate=0.2, server="each"),
    "EF21, sum": gf.ef21(keep=0.1),
    "EF21, each": gf.ef21(keep=0.1, server="each"),
    "DGC": gf.dgc(keep=0.1),
}
LOST = Faults(lost=0.3)


class WithVariances(Quadratic):
    """The last ten elements are variances: a client moves them nearly to its own, which are positive."""

    def __init__(self) -> None:
        super().__init__((10,) * 10)
        self.tensors, self.statistics = {"first": (40,)}, {"second": (2, 5)}
        self.own = np.random.default_rng(1).lognormal(0, 1.5, (10, 10)).astype(np.float32)

    def initial_model(self, rng: np.random.Generator) -> Vector:
        model = super().initial_model(rng)
        model[40:] = 1
        return model

    def train(
        self, clients: Sequence[int], model: Vector, stepsizes: Vector, rngs: Sequence[np.random.Generator]
    ) -> Iterator[LocalUpdate]:
        for client, local in zip(clients, super().train(clients, model, stepsizes, rngs), strict=True):
            local.delta[40:] = np.float32(0.9) * (model[40:] - self.own[client])
            yield LocalUpdate(local.delta, local.loss)


def variances(method: gf.Method, faults: Faults) -> list[Vector]:
    """Of the model after each round."""
    plan = plan_for(method, WithVariances(), weights="normalized", iterations=500, participants=3, faults=faults)
    state = rounds.start(plan)
    played = rounds.run_rounds(plan, state, carrier(plan, ResidualStore(plan.method, plan.dim), None))
    return [state.model[40:].copy() for _ in played]


@pytest.mark.parametrize("name", MEMORIES)
def test_statistics_are_those_of_error_feedback_where_nothing_is_lost(name: str) -> None:
    np.testing.assert_array_equal(variances(MEMORIES[name], Faults()), variances(gf.top_k(keep=0.1), Faults()))


@pytest.mark.parametrize("name", MEMORIES)
def test_no_lost_upload_makes_a_variance_negative(name: str) -> None:
    assert np.min(variances(MEMORIES[name], LOST)) > 0


@pytest.mark.parametrize("name", MEMORIES)
def test_an_upload_that_is_sent_again_twice_leaves_statistics_without_shift_and_momentum(name: str) -> None:
    """The second and third update wait, and go out as they were computed."""
    method, layout = MEMORIES[name], Layout.of({"first": (4,)}, {"second": (2,)})
    outbox, delta = Outbox(method.memory.client(method, 6)), np.ones(6, np.float32)
    moment: Any = gf.Schedule(0.1, 10).moment(1, layout=layout)
    outbox.send(LocalUpdate(delta, 0.0), moment)
    for _ in range(2):
        outbox.send_again(LocalUpdate(delta, 0.0))
    outbox.settle(outbox.number)
    sent = gf.decode(outbox.send(LocalUpdate(delta, 0.0), moment)).dense()
    others = {vector: held for vector, held in outbox.memory.state().items() if vector != "residual"}
    assert all(not held[4:].any() for held in others.values())
    np.testing.assert_allclose(sent[4:], 1.0 if "EF21" in name else 3.0)


def test_ef21_counts_what_it_sends_before_a_level_is_found() -> None:
    """There is no estimate yet that could be the step."""
    method = gf.Method(gf.HardThreshold(), gf.EF21(), level=gf.RunLevel(0.4, steers=False))
    server, client = gf.Server(method, gf.Schedule(0.1, 100), like=5), gf.Client("a", method, like=5)
    model = np.zeros(5, np.float32)
    offer = server.offer("a")
    assert offer.step == 0
    server.accept("a", client.encode(model, model - np.array([5, 1, 2, 3, 4], np.float32), offer))
    server.step(model)
    assert model.tolist() == [-5, 0, 0, 0, -4]
