"""The round loop is Algorithm 1: equivalences that anchor it, conservation, seeds."""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl import seeds
from gammafl.config.layers import make_config
from gammafl.config.schema import EvaluationSettings, ExponentialAverage, NoAverage, TailAverage
from gammafl.core.aggregate import Weighting
from gammafl.core.compressors import Compressor
from gammafl.core.wire import PositionCoding
from gammafl.federated import server
from gammafl.federated.client import Upload
from gammafl.federated.downlink import Downlink, ViewState
from gammafl.federated.in_process import InProcess
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.records import Summary
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.rounds import run_rounds, start
from gammafl.federated.summary import summarise
from gammafl.federated.task import LocalUpdate
from gammafl.tasks.registry import settings_of
from tests.problems import METHODS, STEPSIZE, Quadratic, plan_for, run

EPSILON = float(np.finfo(np.float32).eps)
every_method = pytest.mark.parametrize("name", METHODS)


def received(
    uploads: Iterable[Upload], dim: int, round_number: int = 0
) -> tuple[list[server.Accepted], dict[int, str]]:
    """What the server accepts of `uploads`, and why it refuses the others."""
    intake = server.Intake(dim, round_number=round_number)
    for upload in uploads:
        intake.take(upload)
    return intake.accepted, intake.refused


@pytest.mark.parametrize("all_of_it", [gf.HardThreshold(0.0), gf.TopK(50), gf.TopK(1.0)], ids=repr)
def test_a_threshold_of_zero_and_top_d_are_fedavg_bit_for_bit(all_of_it: Compressor) -> None:
    assert run(plan_for(all_of_it))[0].model.tobytes() == run(plan_for(gf.Dense()))[0].model.tobytes()


def test_dense_with_one_client_is_plain_sgd() -> None:
    task = Quadratic(sizes=(7,))
    plan = plan_for(gf.Dense(), task, participants=1)
    x = start(plan).model
    for t in range(plan.iterations):
        if t % plan.local_steps == 0:
            rng = seeds.generator(plan.seed, "batches", t // plan.local_steps, 0)
        x -= np.float32(STEPSIZE(t)) * task.gradient(0, x, rng)
    np.testing.assert_allclose(run(plan)[0].model, x, rtol=1e-5, atol=1e-6)


@every_method
def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(name: str) -> None:
    first, again, other = (run(plan_for(METHODS[name], seed=seed)) for seed in (3, 3, 4))
    assert first[0].model.tobytes() == again[0].model.tobytes()
    assert first[2] == again[2]
    assert first[0].model.tobytes() != other[0].model.tobytes()


@every_method
def test_every_method_more_than_halves_the_distance_to_the_optimum(name: str) -> None:
    plan = plan_for(METHODS[name], participants=4)
    last = run(plan)[2][-1].metric
    assert last is not None
    assert last < 0.5 * plan.task.evaluate(start(plan).model).metric


@every_method
def test_what_clients_computed_is_in_the_model_or_in_their_residuals(name: str) -> None:
    """Σ updates = Σ sent + residual for each client, up to float32's roundings; unpicked clients keep theirs."""
    task = Quadratic()
    plan = plan_for(METHODS[name], task)
    state, residuals = start(plan), ResidualStore(plan.method, plan.dim)
    carrier = InProcess(plan, residuals)
    sent, allowed = np.zeros((4, plan.dim)), np.zeros((4, plan.dim))
    while state.round < plan.rounds:
        participants = server.pick_participants(plan, state.round)
        before = {client: residual.copy() for client, residual in residuals.residuals().items()}
        moment = plan.moment(state.round, plan.method.scale(plan.dim, plan.schedule))
        downlink = Downlink("full", ViewState.of("full", state.model))
        uploads = carrier.exchange(participants, downlink, state.round, moment)
        accepted, refused = received(uploads, plan.dim, state.round)
        server.apply(state, accepted, server.weights(plan, [upload.client for upload, _ in accepted]))
        carrier.settle({upload.client for upload, _ in accepted})
        assert not refused
        for client, residual in before.items():
            assert client in participants or np.array_equal(residual, residuals.residual(client))
        for upload, update in accepted:
            sent[upload.client] += update.dense()
            size = np.abs(update.dense()) + np.abs(residuals.residual(upload.client))
            allowed[upload.client] += 2 * EPSILON * size
    for client in range(4):
        computed = sum((delta.astype(float) for c, delta in task.deltas if c == client), np.zeros(plan.dim))
        lost = np.abs(computed - sent[client] - residuals.residual(client))
        assert (lost <= allowed[client] + EPSILON * np.abs(computed)).all()


def test_bytes_in_the_records_are_those_of_the_messages() -> None:
    plan = plan_for(METHODS["gamma-fedht"])
    state = start(plan)
    lengths: list[int] = []

    class Counting(InProcess):
        def exchange(
            self,
            participants: Sequence[int],
            downlink: Downlink,
            round_number: int,
            moment: gf.Moment,
            most: Limits = NO_LIMITS,
        ) -> Iterator[Upload]:
            uploads = list(super().exchange(participants, downlink, round_number, moment))
            lengths.append(sum(len(upload.payload) for upload in uploads))
            yield from uploads

    carrier = Counting(plan, ResidualStore(plan.method, plan.dim))
    records = list(run_rounds(plan, state, carrier))
    assert [record.uplink_bytes for record in records] == lengths
    assert state.totals.uplink_bytes == sum(lengths)


def test_the_threshold_of_a_round_is_that_of_the_iteration_it_ends_at() -> None:
    seen: list[int] = []

    class Spy(gf.Dense):
        def take(self, vector: np.ndarray, moment: gf.Moment) -> gf.SparseUpdate:
            seen.append(moment.t)
            return super().take(vector, moment)

    run(plan_for(Spy(), iterations=15, participants=1))
    assert seen == [5, 10, 15]


def test_a_bad_upload_costs_only_itself() -> None:
    plan = plan_for(gf.Dense())
    good = Upload(1, gf.encode(gf.SparseUpdate(50, [7], [1.0])), 0.0)
    short = Upload(2, gf.encode(gf.SparseUpdate(3, [0], [1.0])), 0.0)
    accepted, refused = received([Upload(0, b"garbage", 0.0), good, short], plan.dim)
    assert [upload.client for upload, _ in accepted] == [1]
    assert set(refused) == {0, 2}
    assert "3 elements for a model of 50" in refused[2]


@pytest.mark.parametrize("positions", ["all", "rice", "bitmap", "raw", "interpolative"])
def test_no_coding_of_an_honest_update_is_too_large(positions: PositionCoding) -> None:
    """The largest update, every position, in the largest coding, a position each: still within what is allowed."""
    update = gf.SparseUpdate(1000, None, np.linspace(0.1, 1, 1000))
    accepted, refused = received([Upload(0, gf.encode(update, positions), 0.0)], 1000)
    assert len(accepted) == 1
    assert not refused


def test_an_upload_counts_in_its_own_round_and_once() -> None:
    payload = gf.encode(gf.SparseUpdate(50, [7], [1.0]))
    late, first, second = Upload(1, payload, 0.0, 2), Upload(2, payload, 0.0, 3), Upload(2, payload, 0.0, 3)
    accepted, refused = received([late, first, second], 50, 3)
    assert [upload for upload, _ in accepted] == [first]
    assert "round 2 came in round 3" in refused[1]
    assert "second upload" in refused[2]


def test_participants_are_distinct_and_all_clients_get_their_turn() -> None:
    plan = plan_for(gf.Dense(), Quadratic(sizes=[5] * 20), participants=7)
    picked = [server.pick_participants(plan, r) for r in range(200)]
    assert all(len(set(p)) == 7 for p in picked)
    counts = np.bincount(np.concatenate(picked), minlength=20)
    assert counts.min() > 0.5 * 200 * 7 / 20


def test_the_tail_average_is_the_mean_of_the_last_models() -> None:
    plan = plan_for(gf.Dense(), averaging=TailAverage(fraction=0.25))
    state, models = start(plan), []
    for _ in run_rounds(plan, state, InProcess(plan, ResidualStore(plan.method, plan.dim))):
        models.append(state.model.copy())
    assert state.average is not None
    np.testing.assert_allclose(state.average, np.mean(models[-10:], axis=0), rtol=1e-5, atol=1e-6)


def test_the_exponential_average_follows_its_recursion_and_averaging_does_not_change_the_model() -> None:
    plan = plan_for(gf.Dense(), averaging=ExponentialAverage(decay=0.9))
    state, average = start(plan), None
    for _ in run_rounds(plan, state, InProcess(plan, ResidualStore(plan.method, plan.dim))):
        average = state.model.copy() if average is None else 0.9 * average + 0.1 * state.model
    assert state.average is not None
    assert average is not None
    np.testing.assert_allclose(state.average, average, rtol=1e-4, atol=1e-5)
    without = run(plan_for(gf.Dense(), averaging=NoAverage()))
    assert without[0].average is None
    assert without[0].model.tobytes() == state.model.tobytes()


def test_normalized_weights_are_the_papers_where_shards_are_equal() -> None:
    paper, normalized = (
        run(plan_for(gf.Dense(), Quadratic(sizes=[5] * 4), weights=w))[0].model for w in ("paper", "normalized")
    )
    np.testing.assert_allclose(paper, normalized, rtol=1e-5, atol=1e-6)


def evaluated_rounds(rounds: int, **evaluation: int | None) -> tuple[list[int], Summary]:
    """The rounds after which the model was evaluated, and the summary."""
    settings = EvaluationSettings.model_validate(evaluation)
    plan = plan_for(gf.Dense(), iterations=rounds, local_steps=1, evaluation=settings)
    state, _, records = run(plan)
    return [r.round for r in records if r.evaluated], summarise(plan, state.totals, records, 1.0)


def test_evaluations_are_denser_in_the_last_fifth_and_the_last_mean_is_of_those() -> None:
    numbers, summary = evaluated_rounds(100, every=20, tail_every=2, last=30)
    assert numbers == [20, 40, 60, 80, *range(82, 101, 2)]
    assert (summary.evaluations, summary.last_count) == (14, 10)
    assert summary.last_mean != evaluated_rounds(100, every=20, last=30)[1].last_mean
    assert evaluated_rounds(100, every=20, tail_every=2, last=4)[1].last_count == 4


@given(st.integers(1, 120), st.integers(1, 30), st.integers(1, 30), st.integers(1, 40))
def test_the_last_mean_is_of_evaluations_that_are_equally_far_apart(
    rounds: int, every: int, tail_every: int, last: int
) -> None:
    settings = EvaluationSettings(every=every, tail_every=tail_every, last=last)
    tail = [r for r in range(1, rounds + 1) if settings.due(r, rounds) and settings.in_tail(r, rounds)]
    assert tail[-1] == rounds
    assert set(np.diff(tail)) <= {min(every, tail_every)}
    assert rounds / 5 - min(every, tail_every) <= rounds - tail[0] < rounds / 5


@given(st.integers(1, 120), st.integers(1, 30))
def test_without_a_tail_of_its_own_a_run_is_evaluated_every_so_many_rounds(rounds: int, every: int) -> None:
    settings = EvaluationSettings(every=every)
    found = {r for r in range(1, rounds + 1) if settings.due(r, rounds)}
    assert found == {*range(every, rounds + 1, every), rounds}


def test_the_cnn_is_evaluated_80_times_in_its_last_fifth_all_in_the_last_mean() -> None:
    config = make_config(settings_of("cnn-cifar10"), {"task": "cnn-cifar10"})
    due = [r for r in range(1, config.rounds + 1) if config.evaluation.due(r, config.rounds)]
    tail = [r for r in due if config.evaluation.in_tail(r, config.rounds)]
    assert (len(due), len(tail), config.evaluation.last) == (32 + 80, 80, 80)


@pytest.mark.parametrize("changes", [{"iterations": 201}, {"participants": 5}, {"participants": 0}])
def test_a_plan_that_does_not_add_up_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(gf.InputError):
        plan_for(gf.Dense(), **changes)


class Hostile(InProcess):
    """Client 0 sends the same large numbers each time it is picked."""

    value = 3.4e38

    def upload(self, client: int, local: LocalUpdate, round_number: int) -> list[Upload]:
        (upload,) = super().upload(client, local, round_number)
        large = gf.encode(gf.SparseUpdate(50, [7, 8], [self.value, -self.value]))
        return [upload._replace(payload=large) if client == 0 else upload]

    def settle(self, accepted: Collection[int]) -> None:
        super().settle({0, *accepted})  # it does not care what became of its upload


@pytest.mark.parametrize("value", [3.4e38, 8e37, 4e37, 1e30])
@pytest.mark.parametrize("weights", ["paper", "normalized"])
def test_no_numbers_of_a_client_make_the_model_infinite_or_keep_others_out(
    weights: Weighting, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can spoil the elements that it sends. All others go on as if it were not there."""
    monkeypatch.setattr(Hostile, "value", value)
    plan = plan_for(gf.Dense(), Quadratic(sizes=[300, 50, 50, 50]), weights=weights, participants=2)
    state = start(plan)
    records = list(run_rounds(plan, state, Hostile(plan, ResidualStore(plan.method, plan.dim))))
    assert np.isfinite(state.model).all()
    assert state.average is not None
    assert np.isfinite(state.average).all()
    refused = {client for record in records for client in record.refused}
    assert refused <= {"0"}
    others = np.delete(state.model, [7, 8])
    assert np.abs(others).max() < 10
