"""DGC's momentum correction with factor masking."""

import numpy as np
import pytest

import gammafl as gf
from gammafl.core.method import Method
from gammafl.core.momentum import MomentumCorrection
from gammafl.core.wire import decode
from gammafl.federated.client import Outbox
from gammafl.federated.task import LocalUpdate
from tests.methods.proofs import reference

DIM, K = 40, 5


@reference("dgc")
def test_it_is_its_papers_recursion_with_the_mask_only_where_uploads_counted() -> None:
    method = Method(gf.TopK(K), MomentumCorrection(0.9))
    outbox = Outbox(method.memory.client(method, DIM))
    u, v, rng = np.zeros(DIM), np.zeros(DIM), np.random.default_rng(0)
    for number in range(30):
        delta, counts = rng.standard_normal(DIM, np.float32), number % 3 != 0
        sent = decode(outbox.send(LocalUpdate(delta, 0.0), gf.Moment()))
        u = 0.9 * u + delta
        v = v + u
        largest = np.sort(np.argsort(-np.abs(v))[:K])
        assert sent.indices.tolist() == largest.tolist()
        np.testing.assert_allclose(sent.values, v[largest], rtol=1e-4, atol=1e-4)
        outbox.settle(outbox.number - (not counts))
        if counts:
            u[largest], v[largest] = 0, 0
        state = outbox.memory.state()
        np.testing.assert_allclose(state["velocity"], u, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(state["residual"], v, rtol=1e-4, atol=1e-4)


def test_without_momentum_it_is_error_feedback() -> None:
    corrected, plain = Method(gf.TopK(K), MomentumCorrection(0.0)), Method(gf.TopK(K))
    memories = [method.memory.client(method, DIM) for method in (corrected, plain)]
    rng = np.random.default_rng(1)
    for _ in range(10):
        delta = rng.standard_normal(DIM, np.float32)
        first, second = (memory.propose(delta, gf.Moment()) for memory in memories)
        assert first == second
        memories[0].commit(first, 1.0)


def test_an_update_that_is_not_finite_changes_nothing() -> None:
    method = Method(gf.TopK(K), MomentumCorrection(0.9))
    memory = method.memory.client(method, DIM)
    memory.propose(np.ones(DIM, np.float32), gf.Moment())
    before = {name: vector.copy() for name, vector in memory.state().items()}
    with pytest.raises(gf.DivergedError):
        memory.propose(np.full(DIM, np.nan, np.float32), gf.Moment())
    assert all(np.array_equal(vector, before[name]) for name, vector in memory.state().items())


def test_a_momentum_that_can_not_be_is_refused() -> None:
    with pytest.raises(gf.InputError, match="momentum"):
        MomentumCorrection(1.0)
