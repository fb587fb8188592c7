"""Shifts and EF21: what both sides agree on, and what is conserved."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.core.arrays import Vector
from gammafl.core.method import Method
from gammafl.core.moment import Schedule
from gammafl.core.shifts import EF21, Counted, Mirror, MirrorOfEach, MirrorOfSum, Shifts
from gammafl.core.wire import decode
from gammafl.federated.client import Outbox
from gammafl.federated.task import LocalUpdate
from tests.methods.proofs import reference

DIM = 60
SCHEDULE = Schedule(gf.InverseDecay(10, 20), iterations=200)


def shifted(**settings: Any) -> Method:
    return Method(gf.HardThreshold(0.5), Shifts(**settings), gf.Ternary())


class Pair:
    """One client, and the mirror of a server, over rounds whose uploads may get lost."""

    def __init__(self, method: Method) -> None:
        self.outbox = Outbox(method.memory.client(method, DIM))
        mirror = method.memory.server(DIM)
        assert mirror is not None
        self.mirror: Mirror = mirror
        self.computed = np.zeros(DIM, np.float64)
        self.model = np.zeros(DIM, np.float32)

    def round(self, number: int, delta: Vector, arrives: bool) -> None:
        moment = SCHEDULE.moment(number + 1, key=number, step=SCHEDULE.step(number, 1))
        payload = self.outbox.send(LocalUpdate(delta, 0.0), moment)
        self.sent = len(decode(payload))
        if arrives:
            counted = [Counted("a", decode(payload), 1.0, moment.step, 7.0)]
            self.mirror.step(self.model, counted, 1.0, moment.step)
            self.mirror.commit(counted)
        self.outbox.settle(self.outbox.number - (not arrives))
        self.computed += delta

    @property
    def state(self) -> dict[str, Vector]:
        return self.outbox.memory.state()


def updates(seed: int, count: int) -> list[Vector]:
    """A constant drift, and noise."""
    rng = np.random.default_rng(seed)
    drift = rng.standard_normal(DIM).astype(np.float32)
    return [drift + np.float32(0.3) * rng.standard_normal(DIM, np.float32) for _ in range(count)]


FATES = st.lists(st.booleans(), min_size=1, max_size=40)


@given(FATES, st.integers(0, 9), st.sampled_from(["each", "sum"]))
def test_client_and_server_agree_on_the_shift_whatever_is_lost(fates: Sequence[bool], seed: int, half: Any) -> None:
    pair = Pair(shifted(rate=0.3, server_half=half))
    for number, (delta, arrives) in enumerate(zip(updates(seed, len(fates)), fates, strict=True)):
        pair.round(number, delta, arrives)
    if not any(fates):
        assert not pair.state["shift"].any()
    elif isinstance(pair.mirror, MirrorOfEach):
        assert pair.mirror.shift_of("a").tobytes() == pair.state["shift"].tobytes()
    else:
        assert isinstance(pair.mirror, MirrorOfSum)
        np.testing.assert_allclose(pair.mirror.mean, pair.state["shift"], rtol=1e-5, atol=1e-5)


@given(FATES, st.integers(0, 9), st.sampled_from(["each", "sum"]))
def test_what_a_client_computed_is_in_the_model_or_in_its_residual(fates: Sequence[bool], seed: int, half: Any) -> None:
    pair = Pair(shifted(rate=0.3, server_half=half))
    for number, (delta, arrives) in enumerate(zip(updates(seed, len(fates)), fates, strict=True)):
        pair.round(number, delta, arrives)
    np.testing.assert_allclose(pair.computed, pair.state["residual"] - pair.model, atol=1e-3)


@given(FATES, st.integers(0, 9), st.floats(0, 1))
def test_whatever_the_shift_is_the_residual_stays_within_the_threshold(
    fates: Sequence[bool], seed: int, rate: float
) -> None:
    """So that bounds on the error of a hard threshold hold with shifts as they do without."""
    pair = Pair(Method(gf.HardThreshold(0.5), Shifts(rate, "each")))
    for number, delta in enumerate(updates(seed, len(fates))):
        pair.round(number, delta, arrives=True)
        assert np.abs(pair.state["residual"]).max() <= 0.5


@given(FATES, st.sampled_from([0.02, 0.1, 0.5, 1.0]), st.sampled_from([Shifts(0.3, "each"), EF21(server_half="each")]))
def test_a_mirror_of_few_entries_does_what_one_of_whole_vectors_does(
    fates: Sequence[bool], kept: float, memory: Shifts
) -> None:
    rng, sparse, shift = np.random.default_rng(len(fates)), memory.server(DIM), np.zeros(DIM, np.float32)
    assert isinstance(sparse, MirrorOfEach)
    for counts in fates:
        places = np.flatnonzero(rng.random(DIM) < kept)
        one = Counted("a", gf.SparseUpdate(DIM, places, rng.standard_normal(places.size)), 1.0, 0.5, 1.0)
        whole = np.float32(0.5) * shift
        whole[places] += one.update.values
        np.testing.assert_array_equal(sparse.update_of(one).dense(), whole)
        if counts:
            memory.follow(shift, one.update, one.step)
            sparse.commit([one])
            assert sparse.shift_of("a").tobytes() == shift.tobytes()
            other = MirrorOfEach(memory, DIM)
            other.restore(sparse.vectors(), sparse.shares)
            assert other.shift_of("a").tobytes() == shift.tobytes()


def test_a_shift_that_never_moves_is_error_feedback() -> None:
    still, plain = Pair(shifted(rate=0.0, server_half="each")), Method(gf.HardThreshold(0.5), values=gf.Ternary())
    memory = plain.memory.client(plain, DIM)
    for number, delta in enumerate(updates(3, 20)):
        still.round(number, delta, arrives=True)
        memory.propose(delta, SCHEDULE.moment(number + 1, key=number))
        assert still.state["residual"].tobytes() == memory.state()["residual"].tobytes()


def test_a_constant_update_is_no_longer_sent_once_the_shift_has_reached_it() -> None:
    method = shifted(rate=0.3, server_half="each")
    pair, sent = Pair(method), list[int]()
    delta = updates(0, 1)[0]
    for number in range(120):
        step = SCHEDULE.step(number, 1)
        pair.round(number, np.float32(step) * delta, arrives=True)
        sent.append(pair.sent)
    assert np.linalg.norm(pair.state["shift"] - delta) < 0.2 * np.linalg.norm(delta)
    assert sum(sent[-20:]) < 0.1 * sum(sent[:20])


def test_shifts_wait_while_the_step_is_zero() -> None:
    pair = Pair(shifted(rate=0.3, server_half="each"))
    moment = replace(SCHEDULE.moment(1), step=0.0)
    payload = pair.outbox.send(LocalUpdate(updates(0, 1)[0], 0.0), moment)
    pair.outbox.settle(pair.outbox.number)
    pair.mirror.commit([Counted("a", decode(payload), 1.0, 0.0, 1.0)])
    assert len(decode(payload))
    assert not pair.state["shift"].any()
    assert isinstance(pair.mirror, MirrorOfEach)
    assert not pair.mirror.shift_of("a").any()


@reference("gamma-fedht-s")
def test_shifts_are_the_recursion_of_their_page() -> None:
    """Two clients, plainly: e ← e + Δ − s·h, m = ±μ where |e| > λ, x ← x − Σ w·m − s·H, h ← h + η·m."""
    method = gf.gamma_fedht_s(initial_threshold=0.6, rate=0.25)
    outboxes = [Outbox(method.memory.client(method, DIM)) for _ in range(2)]
    mirror, model = method.memory.server(DIM), np.zeros(DIM, np.float32)
    assert mirror is not None
    e, h, x, weights = np.zeros((2, DIM)), np.zeros((2, DIM)), np.zeros(DIM), (0.25, 0.75)
    for number, deltas in enumerate(zip(updates(5, 30), updates(6, 30), strict=True)):
        step, gammas = SCHEDULE.step(number, 1), [SCHEDULE.stepsize(t) for t in (number + 1, 0, 200)]
        ratio = gammas[0] / np.sqrt(gammas[1] * gammas[2])
        threshold = 0.6 / np.sqrt(ratio + 1 / ratio)
        x -= step * (weights[0] * h[0] + weights[1] * h[1])
        counted = []
        for i, delta in enumerate(deltas):
            moment = SCHEDULE.moment(number + 1, key=number, step=step)
            update = decode(outboxes[i].send(LocalUpdate(delta, 0.0), moment))
            counted.append(Counted(str(i), update, weights[i], step, 100 * weights[i]))
            outboxes[i].settle(outboxes[i].number)
            e[i] += delta - step * h[i]
            kept = np.abs(e[i]) > threshold
            message = np.where(kept, np.sign(e[i]) * np.abs(e[i])[kept].mean(), 0) if kept.any() else np.zeros(DIM)
            e[i] -= message
            h[i] += 0.25 * message
            x -= weights[i] * message
            np.testing.assert_allclose(update.dense(), message, atol=1e-4)
        mirror.step(model, counted, 1.0, step)
        mirror.commit(counted)
        np.testing.assert_allclose(model, x, atol=1e-3)


@reference("ef21")
@pytest.mark.parametrize("half", ["each", "sum"])
def test_ef21_is_its_papers_recursion(half: Any) -> None:
    """c = C(∇ − g), g ← g + c, x ← x − γ·g, with ∇ = Δ/γ and Top-k, which does not depend on the scale."""
    method = Method(gf.TopK(6), EF21(server_half=half))
    pair, g, x = Pair(method), np.zeros(DIM), np.zeros(DIM)
    for number, gradient in enumerate(updates(1, 30)):
        step = SCHEDULE.step(number, 1)
        pair.round(number, np.float32(step) * gradient, arrives=True)
        difference = gradient - g
        largest = np.argsort(-np.abs(difference))[:6]
        g[largest] += difference[largest]
        x -= step * g
        np.testing.assert_allclose(pair.state["shift"], g, atol=1e-4)
        np.testing.assert_allclose(pair.model, x, atol=1e-3)
        assert not pair.state["residual"].any()


def test_ef21_estimates_a_constant_update_ever_better() -> None:
    """‖g − ∇‖² falls by 1 − k/d at least in every round: the contraction of Top-k."""
    pair, gradient = Pair(Method(gf.TopK(6), EF21(server_half="each"))), updates(2, 1)[0]
    error = float(np.sum(gradient**2))
    for number in range(20):
        pair.round(number, np.float32(SCHEDULE.step(number, 1)) * gradient, arrives=True)
        now = float(np.sum((pair.state["shift"] - gradient) ** 2))
        assert now <= (1 - 6 / DIM) * error + 1e-6
        error = now


def test_a_lost_upload_of_ef21_moves_nothing() -> None:
    pair = Pair(Method(gf.TopK(6), EF21()))
    for number, delta in enumerate(updates(4, 10)):
        before = pair.state["shift"].copy()
        pair.round(number, delta, arrives=number % 2 == 0)
        assert number % 2 == 0 or pair.state["shift"].tobytes() == before.tobytes()


def test_the_mean_shift_is_weighted_by_what_senders_weighed_when_they_first_counted() -> None:
    method = shifted(rate=0.5, server_half="sum")
    mirror: Any = method.memory.server(4)
    entries = [gf.SparseUpdate(4, [0], [2.0]), gf.SparseUpdate(4, [0, 3], [-4.0, 1.0])]
    mirror.commit([Counted("a", entries[0], 1.0, 1.0, 30.0), Counted("b", entries[1], 1.0, 1.0, 10.0)])
    np.testing.assert_allclose(mirror.mean, [(30 * 1 - 10 * 2) / 40, 0, 0, 10 * 0.5 / 40])
    mirror.commit([Counted("a", entries[0], 1.0, 1.0, 999.0)])
    np.testing.assert_allclose(mirror.mean, [(30 * 2 - 10 * 2) / 40, 0, 0, 10 * 0.5 / 40])


def test_a_shift_stays_within_what_a_model_may_hold_whatever_is_sent() -> None:
    method = shifted(rate=1.0, server_half="each")
    mirror: Any = method.memory.server(3)
    huge = gf.SparseUpdate(3, [1], [3e38])
    for _ in range(20):
        mirror.commit([Counted("a", huge, 1.0, 1.0, 1.0)])
    model = np.zeros(3, np.float32)
    mirror.step(model, [Counted("a", huge, 1e-3, 1.0, 1.0)], 1.0, 1.0)
    assert np.isfinite(mirror.shift_of("a")).all()
    assert np.isfinite(model).all()


@pytest.mark.parametrize("half", ["each", "sum"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -3e38])
def test_a_mirror_takes_no_stored_value_that_no_shift_can_have(half: Any, value: float) -> None:
    mirror: Any = shifted(server_half=half).memory.server(3)
    mirror.commit([Counted("a", gf.SparseUpdate(3, [1], [1.0]), 1.0, 1.0, 1.0)])
    stored = {name: np.array([0, value, 0], np.float32) for name in mirror.vectors()}
    with pytest.raises(ValueError, match="not finite"):
        mirror.restore(stored, mirror.shares)


def test_a_mirror_takes_no_stored_message_that_no_shift_can_have() -> None:
    mirror: Any = shifted(server_half="each").memory.server(9)
    mirror.commit([Counted("a", gf.SparseUpdate(9, [1], [1.0]), 1.0, 1.0, 1.0)])
    stored = mirror.vectors()["a"]
    too_large, other = gf.SparseUpdate(9, [1], [3e38]), gf.SparseUpdate(8, [1], [1.0])
    damaged = stored.copy()
    damaged[-1] ^= 1
    for wrong in (*(np.frombuffer(gf.encode(update), np.uint8) for update in (too_large, other)), damaged):
        with pytest.raises(ValueError, match=r"too large|a model of 9|checksum"):
            mirror.restore({"a": wrong}, mirror.shares)


@pytest.mark.parametrize("half", ["each", "sum"])
@pytest.mark.parametrize("share", [float("nan"), float("inf"), -1.0, "10", True])
def test_a_mirror_takes_no_stored_share_that_is_no_weight(half: Any, share: Any) -> None:
    mirror: Any = shifted(server_half=half).memory.server(3)
    mirror.commit([Counted("a", gf.SparseUpdate(3, [1], [1.0]), 1.0, 1.0, 1.0)])
    with pytest.raises(ValueError, match="share"):
        mirror.restore(dict(mirror.vectors()), {"a": share})


def test_a_vanishing_stepsize_makes_no_estimate_that_is_no_number() -> None:
    """1/s is beyond float32, and a client sends a zero."""
    mirror: Any = EF21(server_half="sum").server(2)
    mirror.commit([Counted("a", gf.SparseUpdate(2, None, [0.0, 1.0]), 1.0, 1e-45, 1.0)])
    assert np.isfinite(mirror.mean).all()


@pytest.mark.parametrize("wrong", [{"rate": -1}, {"rate": 2.0}, {"rate": "fast"}, {"server_half": "both"}])
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(gf.InputError, match=r"rate|server"):
        Shifts(**wrong)


def test_a_level_that_restores_what_is_kept_is_refused() -> None:
    with pytest.raises(gf.InputError, match="one of run, paper"):
        gf.gamma_fedht_s(level="upload")  # type: ignore[arg-type]
