"""Byte budgets: no upload is longer than its cap, nothing is lost by it, and a run comes to its bytes."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gammafl as gf
from gammafl.config.budget import NO_BUDGET, Budget, Budgets, Spread
from gammafl.config.layers import make_config
from gammafl.config.schema import Faults
from gammafl.core.arrays import Vector
from gammafl.core.lengths import MessageForm
from gammafl.core.memory import ClientMemory
from gammafl.core.moment import Schedule
from gammafl.core.wire import header_bytes
from gammafl.federated import budget as hard
from gammafl.federated import exchange
from gammafl.federated.allowance import Allowance
from gammafl.federated.budget import Pace, fit
from gammafl.federated.in_process import InProcess
from gammafl.federated.limits import Limits
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.rounds import run_rounds, start
from gammafl.methods.registry import method_named, names
from gammafl.runs.directory import RunDirectory
from gammafl.runs.execute import execute, make_stepsize
from gammafl.tasks.registry import settings_of
from tests.conftest import repeatable
from tests.core.test_largest import KINDS, optimiser_like
from tests.problems import METHODS, StoppedError, StoppingAt, blobs, plan_for, run
from tests.runs.test_faults import ALL_KINDS, Dyadic, computed
from tests.runs.test_faults import run as run_counting

SCHEDULE = gf.Schedule(0.1, 100)


@dataclass(frozen=True)
class EveryThird(gf.Compressor):
    """One's own compressor: every third entry, halved; the other half stays."""

    def take(self, vector: Vector, moment: gf.Moment) -> gf.SparseUpdate:
        indices = np.arange(0, vector.size, 3, dtype=np.uint32)
        values = vector[indices] / 2
        vector[indices] -= values
        return gf.SparseUpdate(vector.size, indices, values)


VARIANTS = {
    "fedavg": ["", "values=f16", "values=bf16", "values=8bit", "values=2bit"],
    "ht": ["", "level=run", "threshold=0.00001", "values=f16"],
    "gamma-fedht": ["", "level=paper", "values=f16"],
    "gamma-fedht-q": ["keep=0.3", "initial_threshold=0.00001", "level=run,keep=0.3"],
    "top-k": ["keep=0.5", "scope=tensor,keep=0.2", "values=f16,keep=0.9", "values=4bit,keep=0.4"],
    "rand-k": ["keep=0.5", "keep=0.3,values=4bit", "keep=0.2,scaled=true"],
    "qsgd": ["", "levels=1,norm=l2", "levels=100,block=30"],
    "quantised": ["", "bits=8,block=64"],
    "drive": ["", "scale=nearest"],
    "stc": ["keep=0.5", "scope=tensor,keep=0.3", "keep=1.0"],
}
EVERY = [
    *(method_named(f"{name}:{text}" if text else name) for name in names() for text in VARIANTS.get(name, [""])),
    gf.Method(gf.TopK(0.5), memory=gf.NoMemory()),
    gf.Method(gf.TopK(0.5), memory=gf.NoMemory(), values=gf.Ternary()),
    gf.Method(EveryThird()),
    gf.Method(EveryThird(), values=gf.Ternary()),
]
HOSTILE = {
    "all equal": lambda dim: np.full(dim, 0.25),
    "denormal": lambda dim: np.full(dim, 1e-42) * np.where(np.arange(dim) % 2, 1, -1),
    "one huge": lambda dim: np.where(np.arange(dim) == dim // 2, 5e37, 1e-30),
    "alternating": lambda dim: np.where(np.arange(dim) % 2, 1e-3, 1e3),
}


def layout_of(dim: int, whole: int) -> gf.Layout:
    first = (dim - whole) // 3
    return gf.Layout.of({"a": (first,), "b": (dim - whole - first,)}, {"statistics": (whole,)} if whole else {})


@st.composite
def cases(draw: st.DrawFn) -> tuple[gf.Method, gf.Layout, list[Vector], int]:
    """A method, a layout, updates, and a cap that is possible."""
    dim = draw(st.integers(3, 2500))
    layout = layout_of(dim, draw(st.sampled_from([0, 0, 1, dim // 5])))
    method = draw(st.sampled_from(EVERY))
    kinds = draw(st.lists(st.sampled_from([*KINDS, *HOSTILE]), min_size=1, max_size=4))
    updates = [HOSTILE[kind](dim) if kind in HOSTILE else optimiser_like(kind, dim, dim) for kind in kinds]
    least = MessageForm.of(method, layout).most_bytes(1)
    return method, layout, [np.asarray(u, np.float32) for u in updates], draw(st.integers(least, least + 4 * dim))


def computed_by(memory: ClientMemory, rest: Vector, delta: Vector, layout: gf.Layout) -> Vector | None:
    """What a client had to send before it sent anything; None if its memory forgets."""
    if isinstance(memory.method.memory, gf.NoMemory | gf.EF21):
        return None
    added = memory.state().get("velocity", delta).copy()
    added[layout.dim - layout.tail :] = delta[layout.dim - layout.tail :]  # statistics have no momentum
    return rest + added


@given(cases())
def test_no_upload_is_longer_than_its_cap_and_what_has_no_room_is_remembered(
    case: tuple[gf.Method, gf.Layout, list[Vector], int],
) -> None:
    method, layout, updates, most = case
    memory = method.memory.client(method, layout.dim)
    for number, delta in enumerate(updates, start=1):
        rest = memory.state().get("residual", np.zeros(layout.dim, np.float32)).copy()
        moment = SCHEDULE.moment(number, method.scale(layout.dim, SCHEDULE), layout, key=number)
        proposed = memory.propose(delta, moment)
        fitted = fit(memory, proposed, moment, Limits(payload_bytes=most))
        assert len(fitted.payload) <= most
        assert gf.decode(fitted.payload, layout.dim) == fitted.update
        tail = layout.dim - layout.tail
        assert {*range(tail, layout.dim)} <= {*fitted.update.indices.tolist()}
        wanted = computed_by(memory, rest, delta, layout)
        wanted = proposed.dense() if wanted is None else wanted
        left = memory.state().get("residual", np.zeros(layout.dim, np.float32))
        sent = fitted.update.dense()
        if isinstance(method.memory, gf.EF21):  # what is not sent is still missing from the estimate
            assert not left.any()
        elif not isinstance(method.memory, gf.NoMemory) or fitted.capped:
            parts = (wanted, sent, left, proposed.dense())
            sizes = sum(np.abs(part.astype(np.float64)) for part in parts)
            assert (np.abs(wanted.astype(float) - sent - left) <= 2.0**-21 * sizes + 1e-44).all()


@given(cases())
def test_an_upload_is_encoded_three_times_at_the_most(case: tuple[gf.Method, gf.Layout, list[Vector], int]) -> None:
    method, layout, updates, most = case
    memory, lengths = method.memory.client(method, layout.dim), list[int]()

    def counting(*args: Any) -> bytes:
        payload = gf.encode(*args)
        lengths.append(len(payload))
        return payload

    moment = SCHEDULE.moment(1, method.scale(layout.dim, SCHEDULE), layout)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hard, "encode", counting)
        fit(memory, memory.propose(updates[0], moment), moment, Limits(payload_bytes=most))
    assert len(lengths) == 1 if lengths[0] <= most else 2 <= len(lengths) <= 3


@pytest.mark.parametrize("method", [gf.top_k(keep=0.05), gf.stc(keep=0.05), gf.fedavg(values="f16")], ids=str)
def test_a_cap_is_filled(method: gf.Method) -> None:
    memory, moment = method.memory.client(method, 100_000), gf.Moment()
    update = memory.propose(optimiser_like("sgd", 100_000, 0), moment)
    assert 0.98 * 3000 < len(fit(memory, update, moment, Limits(payload_bytes=3000)).payload) <= 3000


@pytest.mark.parametrize("name", ["top-k", "stc", "gamma-fedht-q", "fedavg"])
def test_the_largest_are_sent_rounded_anew(name: str) -> None:
    """As if the method had kept as many as fit: ternary values get the mean of those that are sent."""
    vector = optimiser_like("sgd", 2000, 3)
    method = {**METHODS, "gamma-fedht-q": gf.gamma_fedht_q(keep=0.3)}[name]
    moment = SCHEDULE.moment(1, layout=gf.Layout.flat(2000))
    memory = method.memory.client(method, 2000)
    update = fit(memory, memory.propose(vector, moment), moment, Limits(payload_bytes=150)).update
    assert 0 < len(update) < 200
    assert update == gf.Method(gf.TopK(len(update)), values=method.values)(vector)


def test_among_equal_magnitudes_the_key_chooses() -> None:
    """Updates of Lion or signSGD all have one magnitude: the first places must not be sent every time."""
    method, vector = gf.top_k(keep=1.0), np.full(1000, 0.5, np.float32)
    chosen = []
    for key in (1, 2):
        memory, moment = method.memory.client(method, 1000), gf.Moment(key=key)
        chosen.append(fit(memory, memory.propose(vector, moment), moment, Limits(payload_bytes=100)).update)
    assert chosen[0] != chosen[1]
    assert max(chosen[0].indices) > 500


def test_caps_go_together_with_other_limits() -> None:
    method, vector = gf.top_k(keep=0.9, values="f16"), optimiser_like("sgd", 1000, 0)
    limits, memory = Limits(payload_bytes=300, entries=50, norm=1e-3), method.memory.client(method, 1000)
    fitted = fit(memory, memory.propose(vector, gf.Moment()), gf.Moment(), limits)
    limits.check(fitted.payload, 1000)
    limits.check_update(fitted.update)
    np.testing.assert_allclose(fitted.update.dense() + memory.state()["residual"], vector, atol=1e-9)


# --- in a run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", [Faults(), ALL_KINDS], ids=["no faults", "all faults"])
@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("stc", "gamma-fedht-q")])
def test_in_a_run_all_that_was_computed_is_counted_once_or_remembered(name: str, faults: Faults) -> None:
    plan = plan_for(
        METHODS[name], Dyadic(), faults=faults, budgets=Budgets.of({"all": "60 B/upload", 0: "18 B/upload"})
    )
    residuals, records, counted = run_counting(plan)
    remembered = np.array([residuals.residual(client) for client in range(4)], np.float64)
    assert np.array_equal(counted + remembered, computed(plan, records))
    assert any(record.capped for record in records)


def lengths(plan: Any) -> dict[int, list[int]]:
    """Client → the bytes of its uploads."""
    found: dict[int, list[int]] = {}

    class Looking(InProcess):
        def upload(self, client: int, local: Any, round_number: int) -> list[Any]:
            uploads = super().upload(client, local, round_number)
            found.setdefault(client, []).extend(len(upload.payload) for upload in uploads)
            return uploads

    list(run_rounds(plan, start(plan), Looking(plan, ResidualStore(plan.method, plan.dim))))
    return found


def test_clients_keep_each_to_its_own_budget_and_count_as_ever() -> None:
    plan = plan_for(METHODS["fedavg"], budgets=Budgets.of({"all": "100 B/upload", 1: "40 B/upload", 2: "1 kB/upload"}))
    most = {client: max(sizes) for client, sizes in lengths(plan).items()}
    assert most[1] <= 40 < most[0] <= 100
    assert most[2] <= 100  # all's holds for it too
    free = plan_for(METHODS["fedavg"])
    assert plan.task.client_sizes == free.task.client_sizes


def test_without_a_budget_a_run_is_what_it_was() -> None:
    free, roomy = plan_for(METHODS["stc"]), plan_for(METHODS["stc"], budgets=Budgets.of("1 MB/upload"))
    (state, _, records), (other, _, others) = run(free), run(roomy)
    np.testing.assert_array_equal(state.model, other.model)
    assert records == others
    assert "capped" not in records[0].table()


@pytest.mark.parametrize("text", ["2 B/s, 30 s/round", "0.5 B/s, 30 s/round"])
def test_a_rate_gives_what_the_link_could_carry_since_the_last_upload(text: str) -> None:
    budget = Budget.of(text)
    assert budget.rate
    assert budget.round_seconds
    plan = plan_for(METHODS["fedavg"], budgets=Budgets.of(text))
    for sizes in lengths(plan).values():
        assert sum(sizes) <= budget.rate * budget.round_seconds * plan.rounds
        assert max(sizes) > budget.rate * budget.round_seconds  # who misses a round saves for the next


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 500)), min_size=1, max_size=30), st.floats(0.01, 1e4))
def test_over_any_time_a_link_carries_no_more_than_its_rate(uploads: list[tuple[float, int]], rate: float) -> None:
    """Whatever each upload would like, where the clock jumps, and where the smallest message is too long."""
    pace, carried, time = Pace(0.0), 0, 0.0
    for now, wish in uploads:
        time += max(0.0, now - pace.at)
        sent = max(16, min(wish, pace.room(rate, now)))
        pace, carried = pace.after(rate, now, sent), carried + sent
        assert carried - pace.owed <= rate * time * (1 + 1e-9) + 1e-6
        assert pace.owed <= 16 * len(uploads)


# --- a run's bytes ----------------------------------------------------------------------------------------

ROUNDS = {"iterations": 1000, "checkpoint": {"every_seconds": 1000}}
STEERED = [
    "gamma-fedht-q", "gamma-fedht-q:level=upload", "gamma-fedht-q:level=run", "gamma-fedht:level=run", "ht",
    "top-k", "top-k:k=100,values=f16", "stc", "stc:scope=tensor", "ht:threshold=0.05",
]  # fmt: skip


def mini(path: Path, method: str, budget: Any, **settings: Any) -> gf.Summary:
    table = {"task": "logistic-mini", "method": method, "budget": budget, **ROUNDS, **settings}
    return execute(make_config(settings_of("logistic-mini"), table), path)


@pytest.mark.parametrize("total", [150_000, 500_000])
@pytest.mark.parametrize("method", STEERED)
def test_a_run_comes_to_its_bytes(method: str, total: int, tmp_path: Path) -> None:
    summary = mini(tmp_path / "run", method, f"{total} B/run")
    assert summary.rounds == 200
    assert abs(summary.uplink_bytes / total - 1) < 0.02


@pytest.mark.parametrize("spread", ["gamma", "front", "even"])
@pytest.mark.parametrize("method", ["gamma-fedht-q", "gamma-fedht-q:level=run", "top-k"])
def test_however_its_bytes_are_spread(method: str, spread: Spread, tmp_path: Path) -> None:
    summary = mini(tmp_path / "run", method, f"300 kB/run, {spread}", faults={"lost": 0.1, "absent": 0.1})
    assert abs(summary.uplink_bytes / 300_000 - 1) < 0.02
    sizes = [record.uplink_bytes for record in RunDirectory(tmp_path / "run").records()]
    config = make_config(settings_of("logistic-mini"), {"task": "logistic-mini", **ROUNDS})
    schedule = Schedule(make_stepsize(config), config.iterations)
    plan = Allowance.of(Budget(run=300_000, spread=spread), schedule, 200, MessageForm(10_250))
    assert plan is not None
    first_half = sum(plan.weights[:100]) / sum(plan.weights)
    assert sum(sizes[:100]) / sum(sizes) == pytest.approx(first_half, abs=0.05)


def test_both_a_cap_and_a_runs_bytes_hold(tmp_path: Path) -> None:
    summary = mini(tmp_path / "run", "top-k", "300 B/upload, 200 kB/run")
    assert abs(summary.uplink_bytes / 200_000 - 1) < 0.02
    assert max(r.uplink_bytes for r in RunDirectory(tmp_path / "run").records()) <= 5 * 300
    capped = mini(tmp_path / "capped", "top-k", "100 B/upload, 200 kB/run")
    assert capped.uplink_bytes <= 1000 * 100


@pytest.mark.parametrize(
    "budget",
    ["200 kB/run, gamma", "150 B/upload", {"all": "300 kB/run", "3": "50 B/upload"}, "3 B/s, 20 s/round"],
    ids=str,
)
@pytest.mark.parametrize("method", ["gamma-fedht-q:level=run", "stc"])
def test_a_stopped_run_goes_on_with_its_budget_and_threads_change_nothing(
    method: str, budget: Any, tmp_path: Path
) -> None:
    settings = {"iterations": 200, "budget": budget, "faults": {"lost": 0.2, "absent": 0.1}}

    def config(threads: int) -> Any:
        table = {"task": "logistic-mini", "method": method, "threads": threads, "checkpoint": {"every_seconds": 0}}
        return make_config(settings_of("logistic-mini"), {**table, **settings})

    whole = execute(config(1), tmp_path / "whole")
    with pytest.raises(StoppedError):
        execute(config(2), tmp_path / "stopped", progress=StoppingAt(27))
    resumed = execute(config(2), tmp_path / "stopped", resume=True)
    assert repeatable(resumed.table()) == repeatable(whole.table())
    assert (tmp_path / "stopped/rounds.jsonl").read_bytes() == (tmp_path / "whole/rounds.jsonl").read_bytes()


def test_a_checkpoint_of_another_budget_is_refused(tmp_path: Path) -> None:
    table = {"task": "logistic-mini", "iterations": 100, "checkpoint": {"every_seconds": 0}, "budget": "90 kB/run"}
    config = make_config(settings_of("logistic-mini"), table)
    with pytest.raises(StoppedError):
        execute(config, tmp_path / "run", progress=StoppingAt(7))
    other = make_config(settings_of("logistic-mini"), {**table, "budget": None})
    with pytest.raises(gf.InputError):
        execute(other, tmp_path / "run", resume=True)


def test_an_allowance_is_spread_by_its_weights_and_spent_to_the_end() -> None:
    schedule, form = gf.Schedule(gf.InverseDecay(10, 10), 100), MessageForm(1000)
    for spread in ("even", "gamma", "front"):
        allowance = Allowance.of(Budget(run=100_000, spread=spread), schedule, 20, form)
        assert allowance is not None
        planned, spent = [], 0
        for closed in range(20):
            planned.append(allowance.left(spent, closed))
            spent += round(planned[-1])
        assert spent == 100_000
        assert planned[0] / planned[-1] == pytest.approx(allowance.weights[0] / allowance.weights[-1], rel=1e-3)


# --- gf.simulate, gf.Server and gf.Client ------------------------------------------------------------------


def test_simulate_takes_budgets_by_client() -> None:
    data, test = blobs()
    import torch

    model = torch.nn.Linear(8, 3)
    result = gf.simulate(
        model, data, test, method="top-k:keep=1.0", stepsize=0.1, iterations=50, participation=1.0,
        budget={0: "40 B/upload", "all": gf.Budget(upload=100)},
    )  # fmt: skip
    assert all(record.uplink_bytes <= 340 for record in result.rounds)
    assert all(record.capped >= 1 for record in result.rounds)
    listed = gf.simulate(
        model, data, test, method="top-k:keep=1.0", stepsize=0.1, iterations=50, participation=1.0,
        budget=["40 B/upload", *["100 B/upload"] * 3],
    )  # fmt: skip
    assert listed.rounds == result.rounds


def served(method: gf.Method, budget: str, own: str | None = None, rounds: int = 60, **settings: Any) -> list[int]:
    """The bytes of the messages of each round, of a server and three clients; the server is stored after each round."""
    rng = np.random.default_rng(0)
    schedule = gf.Schedule(0.1, rounds)

    def server() -> gf.Server:
        return gf.Server(method, schedule, like=2000, budget=budget, **settings)

    serving, clients = server(), [gf.Client(name, method, like=2000, budget=own) for name in "abc"]
    model, sizes = np.zeros(2000, np.float32), []
    for _ in range(rounds):
        for client in clients:
            offer = gf.Offer.model_validate_json(serving.offer(client.name).model_dump_json())
            delta = 1e-3 * rng.standard_normal(2000).astype(np.float32)
            serving.accept(client.name, client.encode(model, model - delta, offer))
        sizes.append(serving.step(model).uplink_bytes)
        saved, serving = serving.state_dict(), server()
        serving.load_state_dict(saved)
    return sizes


def test_a_server_and_its_clients_keep_to_a_cap() -> None:
    sizes = served(gf.stc(keep=0.5), "90 B/upload")
    assert 3 * 80 < min(sizes) <= max(sizes) <= 3 * 90


@pytest.mark.parametrize("uploads", [None, 3])
@pytest.mark.parametrize("method", [gf.stc(keep=0.02), gf.gamma_fedht(keep=0.02, level="run")], ids=str)
def test_a_server_steers_its_clients_to_a_runs_bytes(method: gf.Method, uploads: int | None) -> None:
    sizes = served(method, "100 kB/run", rounds=200, uploads=uploads)
    assert abs(sum(sizes) / 100_000 - 1) < 0.02


def test_a_client_keeps_to_the_smaller_of_its_own_budget_and_the_servers() -> None:
    assert max(served(gf.stc(keep=0.5), "90 B/upload", "60 B/upload")) <= 3 * 60
    assert max(served(gf.stc(keep=0.5), "60 B/upload", "90 B/upload")) <= 3 * 60


def test_a_rate_goes_by_the_clients_clock_also_where_that_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(exchange, "wall_clock", lambda: now[0])
    method, model = gf.top_k(keep=1.0), np.zeros(2000, np.float32)
    server = gf.Server(method, gf.Schedule(0.1, 10), like=2000, budget="10 B/s")
    client = gf.Client("a", method, like=2000)
    lengths = []
    for seconds in (50, 20, -500, 20, 0, 40):
        now[0] += seconds
        upload = client.encode(model, model - optimiser_like("sgd", 2000, 0), server.offer("a"))
        server.accept("a", upload)
        lengths.append(server.step(model).uplink_bytes)
        other = gf.Client("a", method, like=2000)
        other.load_state_dict(client.state_dict())  # a restart does not reset the clock
        client = other
    assert 400 < lengths[0] <= 500
    assert 150 < lengths[1] <= 200
    header = header_bytes(2000, 0)
    assert lengths[2] == header  # nothing else, and the next one pays for it
    assert 150 < lengths[3] <= 200 - header
    assert lengths[4] == header
    assert 300 < lengths[5] <= 400 - header


def test_a_server_refuses_what_is_longer_than_its_cap() -> None:
    method, model = gf.top_k(keep=1.0), np.zeros(500, np.float32)
    server = gf.Server(method, gf.Schedule(0.1, 10), like=500, budget="100 B/upload")
    offer = server.offer("a").model_copy(update={"payload_bytes": None})
    upload = gf.Client("a", method, like=500).encode(model, model - optimiser_like("sgd", 500, 0), offer)
    with pytest.raises(gf.WireError, match="bytes, but 100 are allowed"):
        server.accept("a", upload)


CODED = [method for method in EVERY if method.values.coding in ("bits", "rotated", "bf16")]


@given(
    st.sampled_from(CODED), st.integers(3, 1500), st.booleans(), st.integers(1, 1500), st.floats(0.01, 100),
    st.integers(0, 4000), st.integers(0, 99),
)  # fmt: skip
def test_coded_values_stay_coded_within_limits_of_entries_norm_and_bytes(
    method: gf.Method, dim: int, statistics: bool, entries: int, norm: float, more: int, seed: int
) -> None:
    """So that the bound of their length holds, and no upload is longer than its cap."""
    layout = layout_of(dim, dim // 5 if statistics else 0)
    entries = max(entries, layout.tail + 1)
    most = MessageForm.of(method, layout, scaled=True).most_bytes(1) + more
    delta = np.random.default_rng(seed).standard_normal(dim).astype(np.float32)
    memory = method.memory.client(method, dim)
    moment = SCHEDULE.moment(1, method.scale(dim, SCHEDULE), layout, key=seed)
    limits = Limits(payload_bytes=most, entries=entries, norm=norm)
    fitted = fit(memory, memory.propose(delta, moment), moment, limits)
    assert len(fitted.payload) <= most
    assert gf.decode(fitted.payload, dim) == fitted.update
    limits.check_update(fitted.update)
    form = MessageForm.of(method, layout, scaled=True)
    assert len(fitted.payload) <= form.most_bytes(len(fitted.update) - layout.tail)
    if method.memory == gf.ErrorFeedback():
        np.testing.assert_allclose(memory.state()["residual"] + fitted.update.dense(), delta, atol=1e-4)


# --- words and errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("64 kB/upload", Budget(upload=64_000)),
        ("64KB/upload", Budget(upload=64_000)),
        ("1.5 MiB / upload", Budget(upload=3 * 2**19)),
        ("500 B/upload,20 MB/run", Budget(upload=500, run=20_000_000)),
        ("2 GB/run, front", Budget(run=2 * 10**9, spread="front")),
        ("2 kB/s", Budget(rate=2000)),
        ("1 Mbit/s, 0.5 s/round", Budget(rate=125_000, round_seconds=0.5)),
        ("8 kbit/upload", Budget(upload=1000)),
    ],
)
def test_a_budget_is_read_as_it_is_written(text: str, budget: Budget) -> None:
    assert Budget.of(text) == budget
    assert Budget.of(str(budget)) == budget


@given(
    st.builds(
        Budget,
        st.none() | st.integers(1, 2**62),
        st.none() | st.integers(1, 2**62),
        st.none() | st.floats(1e-6, 1e15),
        st.none() | st.floats(1e-6, 1e15),
    ).filter(lambda budget: budget != NO_BUDGET)
)
def test_what_a_budget_prints_is_read_as_the_same(budget: Budget) -> None:
    assert Budget.of(str(budget)) == budget
    budgets = Budgets(budget, {3: replace(budget, run=None)} if replace(budget, run=None) != NO_BUDGET else {})
    assert Budgets.of(budgets.table()) == budgets


@pytest.mark.parametrize(
    "wrong",
    ["", "64", "64 kB", "64 kb/upload", "kB/upload", "64 kB/round", "-3 kB/run", "0 B/upload", "1e400 B/run", "nan B/s",
     "1 kB/upload, 2 kB/upload", "gamma", "64 kB/upload; 1 MB/run", "0 B/s", "3 parsecs/run", 64, True, ["1 kB/run"]],
    ids=str,
)  # fmt: skip
def test_anything_else_is_an_error_of_one_line(wrong: Any) -> None:
    with pytest.raises(gf.InputError) as error:
        Budget.of(wrong)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("budgets", "method", "said"),
    [
        ("13 B/upload", "top-k", "no upload fits into 13 bytes"),
        ("13 B/upload", "stc", "allow more"),
        ({2: "13 B/upload"}, "top-k", "no upload fits into 13 bytes"),
        ({9: "1 kB/upload"}, "top-k", "a budget for client 9, but there are 4"),
        ({"nobody": "1 kB/upload"}, "top-k", "budgets go by client"),
        pytest.param({"9" * 5000: "1 kB/upload"}, "top-k", "budgets go by client", id="a number that int refuses"),
        ({1: "1 MB/run"}, "top-k", "for all clients"),
        (["1 kB/upload"], "top-k", "1 budgets for 4 clients"),
        ("1 MB/run", "fedavg", "use gamma-fedht, top-k or similar"),
        ("1000 B/run", "top-k", "40 rounds of 2 uploads take up to"),
        ("2 kB/s", "top-k", '"2000 B/s, 30 s/round"'),
        ({0: "2 kB/s"}, "top-k", "30 s/round"),
    ],
    ids=str,
)
def test_an_impossible_budget_is_an_error_at_the_start(budgets: Any, method: str, said: str) -> None:
    with pytest.raises(gf.InputError, match=said):
        plan_for(METHODS[method], budgets=Budgets.of(budgets, 4))


def test_tensors_that_travel_whole_must_fit() -> None:
    like = {"weight": np.zeros(1000, np.float32)}
    layout = gf.Layout.of({"weight": (1000,)}, {"statistics": (100,)})
    with pytest.raises(gf.InputError, match="100 values are sent whole"):
        hard.require_possible(gf.stc(), layout, Limits(payload_bytes=300))
    with pytest.raises(gf.InputError, match="leave out s/round"):
        gf.Server(gf.stc(), SCHEDULE, like, budget="1 kB/s, 3 s/round")
    with pytest.raises(gf.InputError, match="per upload"):
        gf.Client("a", gf.stc(), like, budget="1 MB/run")


def test_a_compressor_of_ones_own_can_follow_a_runs_bytes() -> None:
    @dataclass(frozen=True)
    class Following(gf.TopK):
        follows_keep = True

    assert Budget.of("1 MB/run").run == 10**6
    hard.require_steerable(gf.Method(Following(0.1)), Budget.of("1 MB/run"))
    with pytest.raises(gf.InputError, match="follows_keep = True in EveryThird"):
        hard.require_steerable(gf.Method(EveryThird()), Budget.of("1 MB/run"))
