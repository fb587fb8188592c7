"""Methods with a server half over Flower: the same as simulated, in step whatever gets lost, behind any strategy."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian, FedYogi, Krum

import gammafl as gf
import gammafl.flower
from gammafl.core.shifts import MirrorOfEach, Shifts
from gammafl.core.wire import encode
from gammafl.federated.receipts import Sender
from gammafl.federated.server_exchange import ServerExchange
from gammafl.files import tensor_files
from gammafl.flower import disk
from gammafl.flower.training import LARGEST_SQUARED
from tests import problems
from tests.flower.books import computed
from tests.flower.grid import InProcessGrid, state_files
from tests.flower.problem import from_record, quadratic_app, run, strategy, to_record
from tests.flower.spoil import BAD_NODE, with_metrics, with_payload, with_terms
from tests.problems import Quadratic, plan_for

THRESHOLD = 0.1
MIRRORED: dict[str, gf.Method] = {
    "shifts, sum": gf.gamma_fedht_s(initial_threshold=THRESHOLD, rate=0.2),
    "shifts, each": gf.gamma_fedht_s(initial_threshold=THRESHOLD, rate=0.2, server="each"),
    "shifts after a warm-up": gf.gamma_fedht_s(keep=0.2, rate=0.2),
    "EF21, sum": gf.ef21(keep=0.2),
    "EF21, each": gf.ef21(keep=0.2, server="each"),
    "DGC": gf.dgc(keep=0.2, momentum=0.5),
}


@pytest.mark.parametrize("name", MIRRORED)
def test_flower_and_the_simulator_end_with_equal_weights(name: str, tmp_path: Path) -> None:
    plan = plan_for(MIRRORED[name], weights="normalized")
    state, _, records = problems.run(plan)
    chosen, _, model = run(tmp_path, method=MIRRORED[name])
    assert model.tobytes() == state.model.tobytes()
    assert [record["uplink_bytes"] for record in chosen.history] == [record.uplink_bytes for record in records]


def test_both_sides_agree_and_nothing_is_lost_where_replies_and_nodes_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of the replies is lost, and after a fifth of them the node restarts under another id."""
    chance, task, given = random.Random(5), Quadratic(), dict[str, Any]()
    grid = InProcessGrid(quadratic_app(task, tmp_path), 4)

    def fate(message: Message, reply: Message) -> Message | None:
        if chance.random() < 1 / 5:
            grid.restart(message.metadata.dst_node_id, chance.randrange(1000, 10**6), chance.random() < 1 / 2)
        return reply if chance.random() > 1 / 3 else None

    count = ServerExchange.count

    def counting(self: ServerExchange, arrivals: Any) -> None:
        for arrival in arrivals:
            name = arrival.answer.name
            given[name] = given.get(name, 0) + self.update_of(arrival).dense().astype(np.float64)
        count(self, arrivals)

    monkeypatch.setattr(ServerExchange, "count", counting)
    grid.fate = fate
    method = MIRRORED["shifts, each"]
    chosen = strategy(method=method)
    chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 40)
    exchange, memory = chosen.training.exchange, method.memory
    assert isinstance(exchange.mirror, MirrorOfEach)
    assert isinstance(memory, Shifts)
    assert any(record["repeated"] for record in chosen.history)
    for path in state_files(tmp_path):
        facts, tensors = tensor_files.read(path)
        sender = Sender(path.stem, facts["incarnation"])
        shift, rest = np.array(tensors["shift"]), tensors["residual"].astype(np.float64)
        if "open" in tensors:
            sent = gf.decode(tensors["open"].tobytes())
            if facts["number"] > exchange.receipts.last(sender):
                rest += sent.dense() + facts["step"] * shift
            else:
                memory.follow(shift, sent, facts["step"])
        mirrored = exchange.mirror.shift_of(sender.incarnation)
        assert mirrored.tobytes() == shift.tobytes()
        np.testing.assert_allclose(given[path.stem] + rest, computed(task, path.stem), atol=1e-4)


@pytest.mark.parametrize("inner", [FedAdam, FedMedian, Krum])
def test_with_each_shift_on_the_server_any_strategy_learns(inner: type[Any], tmp_path: Path) -> None:
    task = Quadratic((10, 10, 10, 10, 10))
    grid = InProcessGrid(quadratic_app(task, tmp_path), 5)
    options = {"eta": 0.3} if inner is FedAdam else {}
    wrapped = inner(fraction_evaluate=0.0, **options)
    chosen = gammafl.flower.Compressed(
        wrapped, method=gf.gamma_fedht_s(initial_threshold=0.02, rate=0.1, server="each"), stepsize=problems.STEPSIZE,
        local_steps=5,
    )  # fmt: skip
    start = np.full(50, 3, np.float32)
    result = chosen.start(grid, to_record(task, start), 30)
    reached, before = (np.linalg.norm(x - task.centres.mean(0)) for x in (from_record(result.arrays), start))
    assert reached < 0.7 * before


@pytest.mark.parametrize("settings", [{}, {"accept_whole": True}, {"replies": "update"}], ids=str)
def test_the_sum_of_shifts_is_refused_where_the_server_does_not_just_average(settings: dict[str, Any]) -> None:
    inner = FedAvg() if settings else FedMedian()
    with pytest.raises(gf.InputError, match="server='each'"):
        gammafl.flower.Compressed(inner, method=gf.gamma_fedht_s(), **settings)


def test_a_part_of_the_model_is_refused_in_a_sentence(tmp_path: Path) -> None:
    """Shifts of tensors that did not come back would drift apart."""
    app = ClientApp(mods=[gammafl.flower.compress(tmp_path)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        first = message.content.array_records["arrays"]["first"]
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": ArrayRecord({"first": first}), "metrics": metrics}), reply_to=message)

    chosen = strategy(method=MIRRORED["shifts, each"], fraction_train=1.0)
    with pytest.raises(gf.InputError, match="needs the whole model back"):
        chosen.start(InProcessGrid(app, 2), to_record(Quadratic(), np.zeros(50, np.float32)), 2)


def test_a_clean_start_is_another_sender_and_the_old_shift_stays_unused(tmp_path: Path) -> None:
    task = Quadratic((10, 20))
    grid = InProcessGrid(quadratic_app(task, tmp_path), 2)
    rounds = 0

    def fate(message: Message, reply: Message) -> Message:
        nonlocal rounds
        rounds += 1
        if rounds == 20:
            (path,) = (path for path in state_files(tmp_path) if path.stem == "0")
            path.unlink()
        return reply

    grid.fate = fate
    chosen = strategy(method=MIRRORED["shifts, each"], fraction_train=1.0)
    chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 20)
    mirror = chosen.training.exchange.mirror
    assert mirror is not None
    assert len(mirror.shares) == 3


@pytest.mark.parametrize("name", ["shifts, sum", "shifts, each", "EF21, sum", "DGC"])
def test_a_client_that_returns_a_part_of_the_model_is_refused_and_the_run_goes_on(name: str, tmp_path: Path) -> None:
    """Also in rounds where it is the only one whose reply arrives."""
    played = 0

    def fate(message: Message, reply: Message) -> Message | None:
        nonlocal played
        played += 1
        if message.metadata.dst_node_id == 101:
            with_terms(returned="1")(reply.content)
            return reply
        return reply if played % 3 else None

    chosen, _, model = run(
        tmp_path, 12, Quadratic((10, 10)), fate, method=MIRRORED[name], fraction_train=1.0, min_accepted=1
    )
    assert all("part of the tensors" in record["refused"]["101"] for record in chosen.history)
    assert any(record["clients"] == ["0"] for record in chosen.history)
    assert any(not record["clients"] for record in chosen.history)
    assert np.isfinite(model).all()


def test_a_second_call_of_aggregate_train_in_a_round_is_refused_where_the_mean_shift_is_the_step(
    tmp_path: Path,
) -> None:
    """The mean belongs to the whole round: uploads of a second call would count without it."""
    task = Quadratic()
    chosen, arrays = (
        strategy(method=MIRRORED["shifts, sum"], fraction_train=1.0),
        to_record(task, np.zeros(50, np.float32)),
    )
    inner = chosen.strategy
    with chosen.running(InProcessGrid(quadratic_app(task, tmp_path), 4), 3, arrays) as grid:
        replies = list(grid.send_and_receive(inner.configure_train(1, arrays, ConfigRecord(), grid)))
        inner.aggregate_train(1, replies[:2])
        with pytest.raises(gf.InputError, match="server='each'"):
            inner.aggregate_train(1, replies[2:])


@pytest.mark.parametrize("name", ["shifts, each", "EF21, each"])
def test_no_shift_of_a_client_grows_until_it_ends_the_run_of_a_strategy_with_moments(name: str, tmp_path: Path) -> None:
    """Each message is within bounds; what they add up to is not, and FedYogi squares it."""
    payload = encode(gf.SparseUpdate(50, [3], [4 * LARGEST_SQUARED]))

    def fate(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE:
            number: Any = message.content["config"]["server-round"]
            with_payload(payload)(reply.content)
            with_terms(incarnation="bad", number=number)(reply.content)
            with_metrics(**{"num-examples": 2**53})(reply.content)
        return reply

    grid = InProcessGrid(quadratic_app(Quadratic((10,) * 5), tmp_path), 5, fate)
    inner = FedYogi(fraction_evaluate=0.0, eta=0.3)
    chosen = gammafl.flower.Compressed(inner, method=MIRRORED[name], stepsize=problems.STEPSIZE, local_steps=5)
    result = chosen.start(grid, to_record(Quadratic(), np.zeros(50, np.float32)), 20)
    assert np.isfinite(from_record(result.arrays)).all()
    assert all(len(record["clients"]) >= 4 for record in chosen.history)
    assert "beyond" in chosen.history[-1]["refused"][str(BAD_NODE)]


def test_a_client_does_not_train_where_the_disk_has_no_room_for_its_shift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for a residual, and not for a shift beside it."""
    free = 2 * 4 * 50 + disk.SPARE_BYTES
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    run(tmp_path / "residual", 1, method=gf.top_k(keep=0.2))
    with pytest.raises(gf.InputError, match="make room"):
        run(tmp_path / "shift", 1, method=MIRRORED["shifts, each"])
