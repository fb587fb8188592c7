"""A ServerApp that dies is started again, and the training ends with the model that it would have ended with."""

import errno
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAdam, FedAvg, Result

import gammafl as gf
import gammafl.flower
from gammafl.core.arrays import Vector
from gammafl.federated.server_exchange import ServerExchange
from gammafl.files import tensor_files
from gammafl.flower import checkpoint as checkpoints
from gammafl.flower.resumption import METRICS
from tests.flower.books import check_books
from tests.flower.grid import InProcessGrid
from tests.flower.problem import quadratic_app, strategy, to_record
from tests.flower.test_strategies import DIM, NODES, STRATEGIES, app_with, record_of, vector_of
from tests.problems import METHODS, Quadratic

ROUNDS = 6


class DeadError(BaseException):
    """Nobody catches it, as nobody catches kill -9."""


class Deadly(InProcessGrid):
    """The ServerApp dies at its `deaths`: before a message is sent, or after so many replies have come."""

    def __init__(self, app: Any, nodes: int, deaths: Iterable[int] = ()) -> None:
        super().__init__(app, nodes)
        self.steps, self.deaths = 0, set(deaths)

    def live(self) -> None:
        self.steps += 1
        if self.steps in self.deaths:
            raise DeadError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        self.live()
        replies: list[Message] = []
        for message in messages:
            replies += super().send_and_receive([message], timeout=timeout)
            self.live()
        return replies


def restarted(grid: Deadly, start: Callable[[], Any]) -> Any:
    """What `start` gives in the end, started again after each death."""
    for _ in range(200):
        try:
            return start()
        except DeadError:
            continue
    raise AssertionError("it never ends")


def play(
    folder: Path, make: Callable[[], Any], deaths: Iterable[int] = (), rounds: int = ROUNDS, **settings: Any
) -> Any:
    """(the strategy, the result, the grid) of a training with NODES clients that all take part."""
    mods = settings.pop("mods", [])
    grid = Deadly(app_with([gammafl.flower.compress(folder / "clients"), *mods]), NODES, deaths)
    chosen: Any = None
    starts = 0

    def start() -> Result:
        nonlocal chosen, starts
        starts += 1
        chosen = gammafl.flower.Compressed(make(), checkpoint=folder / "server", **settings)
        begins = record_of(np.full(DIM, starts - 1, np.float32))  # as an app that draws its first model anew
        return chosen.start(
            grid,
            begins,
            rounds,
            train_config=ConfigRecord({"lr": 0.2}),
            evaluate_fn=lambda number, arrays: MetricRecord({"sum": float(vector_of(arrays).sum())}),
        )

    result = restarted(grid, start)
    return chosen, result, grid


def same_but(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """Histories tell the same of what counted."""
    for key in ("round", "clients", "kept", "uplink_bytes", "asked"):
        assert [record[key] for record in one] == [record[key] for record in other], key


WAYS: dict[str, dict[str, Any]] = {
    "plain": {"method": "top-k:keep=0.1"},
    "both directions": {"method": "gamma-fedht-q:keep=0.1", "downlink": "top-k:keep=0.3"},
    "changes": {"method": "top-k:keep=0.1", "downlink": "changes"},
    "shifts of each": {"method": "gamma-fedht-s:keep=0.1,server=each,level=paper"},
    "shifts of all": {"method": "gamma-fedht-s:keep=0.1,server=sum,level=paper"},
    "momentum": {"method": "dgc:keep=0.1"},
    "level run and a budget": {"method": "gamma-fedht:keep=0.1,level=run", "budget": "4 kB/run"},
    "averaged": {"method": "gamma-fedht:keep=0.1", "averaging": "tail"},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_server_that_dies_anywhere_ends_with_the_same_model(way: str, tmp_path: Path) -> None:
    alone, expected, grid = play(tmp_path / "alone", FedAvg, **WAYS[way])
    deaths = np.random.default_rng(7).choice(np.arange(1, 3 * grid.steps), 12, replace=False)
    chosen, result, _ = play(tmp_path / "killed", FedAvg, deaths.tolist(), **WAYS[way])
    np.testing.assert_array_equal(vector_of(result.arrays), vector_of(expected.arrays))
    same_but(chosen.history, alone.history)
    if WAYS[way].get("averaging"):
        np.testing.assert_array_equal(vector_of(chosen.averaged_arrays), vector_of(alone.averaged_arrays))
    assert [*result.train_metrics_clientapp] == [*range(1, ROUNDS + 1)]
    assert [*result.evaluate_metrics_serverapp] == [*range(ROUNDS + 1)], "in order, also after a restart"
    assert result.evaluate_metrics_serverapp == expected.evaluate_metrics_serverapp
    assert result.evaluate_metrics_clientapp == expected.evaluate_metrics_clientapp


@pytest.mark.parametrize("name", STRATEGIES)
def test_any_strategy_goes_on_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    make, mods = STRATEGIES[name]
    _, expected, grid = play(tmp_path / "alone", make, method="fedavg", mods=mods)
    deaths = range(3, 2 * grid.steps, 19)
    _, result, _ = play(tmp_path / "killed", make, deaths, method="fedavg", mods=mods)
    np.testing.assert_array_equal(vector_of(result.arrays), vector_of(expected.arrays))


def test_a_part_of_the_model_that_is_done_comes_back_as_it_is(tmp_path: Path) -> None:
    """Clients return one tensor, so that FedAvg's next model is that one: a view of the whole can't stand for it."""

    def weight_alone(message: Message, context: Any, call_next: Any) -> Message:
        if message.metadata.message_type == MessageType.EVALUATE:
            return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)
        reply: Message = call_next(message, context)
        reply.content["arrays"] = ArrayRecord({"a.weight": reply.content.array_records["arrays"]["a.weight"]})
        return reply

    def trained(folder: Path, deaths: Iterable[int]) -> Vector:
        grid = Deadly(app_with([gammafl.flower.compress(folder / "clients"), weight_alone]), NODES, deaths)

        def start() -> Result:
            chosen = gammafl.flower.Compressed(
                FedAvg(), "fedavg", downlink="top-k:keep=0.3", checkpoint=folder / "server"
            )
            return chosen.start(grid, record_of(np.zeros(DIM, np.float32)), 1)

        return restarted(grid, start).arrays["a.weight"].numpy()

    evaluating = NODES + 3
    np.testing.assert_array_equal(trained(tmp_path / "killed", [evaluating]), trained(tmp_path / "alone", []))


class Decaying(FedAvg):
    """As an example of Flower's: halves the learning rate of the config it is given, and remembers the best model."""

    best = 1e9

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if server_round % 2 == 0:
            config["lr"] *= 0.5  # type: ignore[operator]
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        metrics = super().aggregate_evaluate(server_round, replies)
        assert metrics is not None
        self.best = min(self.best, float(metrics["distance"]))  # type: ignore[arg-type]
        return metrics


def rates(grid: InProcessGrid) -> dict[int, set[float]]:
    found: dict[int, set[float]] = {}
    for message in grid.sent:
        config: Any = message.content.config_records.get("config", {})
        if message.metadata.message_type == "train" and "lr" in config:
            found.setdefault(int(config["server-round"]), set()).add(config["lr"])
    return found


def test_what_a_strategy_changes_in_its_config_is_remembered(tmp_path: Path) -> None:
    alone, _, grid = play(tmp_path / "alone", Decaying, method="top-k:keep=0.1")
    chosen, _, killed = play(tmp_path / "killed", Decaying, range(5, 3 * grid.steps, 11), method="top-k:keep=0.1")
    assert rates(killed) == rates(grid) == {1: {0.2}, 2: {0.1}, 3: {0.1}, 4: {0.05}, 5: {0.05}, 6: {0.025}}
    assert chosen.best == alone.best < 1e9


class Counting(FedAvg):
    """Changes its config from the first round on: a number, a list in place, and a key of the app's that goes."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        config["count"] = int(config.get("count", 0)) + 1  # type: ignore[arg-type]
        config["list"].append(server_round)  # type: ignore[arg-type, union-attr]
        if server_round == 2:
            del config["early"]
        return super().configure_train(server_round, arrays, config, grid)


def test_a_config_is_the_same_in_each_round_whenever_the_server_dies(tmp_path: Path) -> None:
    def configs(folder: Path, deaths: Iterable[int]) -> dict[int, Any]:
        grid = Deadly(app_with([gammafl.flower.compress(folder / "clients")]), NODES, deaths)

        def start() -> Result:
            chosen = gammafl.flower.Compressed(Counting(), "top-k:keep=0.1", checkpoint=folder / "server")
            config = ConfigRecord({"lr": 0.2, "list": [0], "early": True})
            return chosen.start(grid, record_of(np.zeros(DIM, np.float32)), 3, train_config=config)

        restarted(grid, start)
        sent: list[Any] = [m.content["config"] for m in grid.sent if m.metadata.message_type == "train"]
        return {int(c["server-round"]): (c["count"], list(c["list"]), "early" in c) for c in sent}

    expected = {1: (1, [0, 1], True), 2: (2, [0, 1, 2], False), 3: (3, [0, 1, 2, 3], False)}
    assert configs(tmp_path / "alone", []) == expected
    assert configs(tmp_path / "killed", [3, 5, 18, 30, 41, 50]) == expected


@pytest.mark.parametrize("comes_in", [2, 3])
def test_an_answer_to_a_server_that_died_counts_once_in_its_round_and_never_later(
    comes_in: int, tmp_path: Path
) -> None:
    """Node 100 answered round 2, the server died, and the answer reaches the next one."""
    _, expected, _ = play(tmp_path / "alone", FedAvg, method="top-k:keep=0.1")
    folder, late = tmp_path / "killed", list[Message]()
    grid = Deadly(app_with([gammafl.flower.compress(folder / "clients")]), NODES)

    def fate(message: Message, reply: Message) -> Message:
        config: Any = message.content.config_records.get("config", {})
        number, train = config.get("server-round"), message.metadata.message_type == "train"
        if train and message.metadata.dst_node_id == 100 and number == 2 and not late:
            late.append(reply)
            raise DeadError
        return late[0] if train and message.metadata.dst_node_id == 100 and number == comes_in else reply

    grid.fate = fate
    chosen: Any = None

    def start() -> Result:
        nonlocal chosen
        chosen = gammafl.flower.Compressed(FedAvg(), "top-k:keep=0.1", checkpoint=folder / "server")
        begins = record_of(np.zeros(DIM, np.float32))
        return chosen.start(grid, begins, ROUNDS, train_config=ConfigRecord({"lr": 0.2}))

    result = restarted(grid, start)
    refused = {record["round"]: record["refused"] for record in chosen.history if record["refused"]}
    assert len(late) == 1
    if comes_in == 2:
        assert refused == {}
        np.testing.assert_array_equal(vector_of(result.arrays), vector_of(expected.arrays))
    else:
        assert refused == {3: {"100": "an answer to round 2 came in round 3"}}
        assert len(chosen.history[3]["clients"]) == NODES, "what it sent in round 3 was lost, and it goes on"


class OwnStart(FedAvg):
    """A `start` of one's own, that names its arguments, and keeps the model of each round."""

    first = 1

    def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, **others: Any) -> Result:  # type: ignore[override]
        arrays, result, config = initial_arrays, Result(), ConfigRecord({"lr": 0.2})
        self.models: dict[int, ArrayRecord] = {}
        for number in range(self.first, num_rounds + self.first):
            messages = self.configure_train(server_round=number, arrays=arrays, config=config, grid=grid)
            made, _ = self.aggregate_train(server_round=number, replies=grid.send_and_receive(messages))
            if made is not None:
                self.models[number] = result.arrays = arrays = made
        return result


class FromZero(OwnStart):
    """Its first round is round 0."""

    first = 0


@pytest.mark.parametrize("own", [OwnStart, FromZero])
def test_a_start_of_ones_own_goes_on_too_and_sees_no_wrong_model(own: Any, tmp_path: Path) -> None:
    alone, expected, grid = play(tmp_path / "alone", own, method="top-k:keep=0.1")
    assert [len(record["clients"]) for record in alone.history] == [NODES] * ROUNDS
    chosen, result, _ = play(tmp_path / "killed", own, range(5, 2 * grid.steps, 11), method="top-k:keep=0.1")
    np.testing.assert_array_equal(vector_of(result.arrays), vector_of(expected.arrays))
    for number, model in chosen.models.items():
        np.testing.assert_array_equal(vector_of(model), vector_of(alone.models[number]))


class WithoutInitial(FedAvg):
    """Makes its first model itself."""

    def start(self, grid: Grid, num_rounds: int, note: Any = 0, **others: Any) -> Result:  # type: ignore[override]
        assert note is None, "as it was given"
        return super().start(grid, record_of(np.zeros(DIM, np.float32)), num_rounds)


def test_after_a_restart_arguments_that_are_none_stay_so(tmp_path: Path) -> None:
    grid = Deadly(app_with([gammafl.flower.compress(tmp_path / "clients")]), NODES, [20])
    restarted(
        grid,
        lambda: gammafl.flower.Compressed(WithoutInitial(), "top-k:keep=0.1", checkpoint=tmp_path / "server").start(
            grid, num_rounds=2, note=None
        ),
    )


def test_a_finished_training_gives_its_result_again_and_sends_nothing(tmp_path: Path) -> None:
    _, expected, _ = play(tmp_path, FedAvg, method="top-k:keep=0.1")
    _, result, grid = play(tmp_path, FedAvg, method="top-k:keep=0.1")
    np.testing.assert_array_equal(vector_of(result.arrays), vector_of(expected.arrays))
    kinds = [message.metadata.message_type for message in grid.sent]
    assert "train" not in kinds, "the last model may be evaluated again"


def test_clients_that_die_with_the_server_lose_nothing(tmp_path: Path) -> None:
    """Node and server die together, the node comes back under another address, and has its disk."""
    _, expected, grid = play(tmp_path / "alone", FedAvg, method="top-k:keep=0.1")
    folder = tmp_path / "killed"
    deadly = Deadly(app_with([gammafl.flower.compress(folder / "clients")]), NODES, range(4, 3 * grid.steps, 9))

    def start() -> Result:
        chosen = gammafl.flower.Compressed(FedAvg(), "top-k:keep=0.1", checkpoint=folder / "server")
        try:
            return chosen.start(
                deadly, record_of(np.zeros(DIM, np.float32)), ROUNDS, train_config=ConfigRecord({"lr": 0.2})
            )
        except DeadError:
            for node in list(deadly.contexts)[::2]:
                deadly.restart(node, node + 1000)
            raise

    result = restarted(deadly, start)
    np.testing.assert_allclose(vector_of(result.arrays), vector_of(expected.arrays), atol=1e-5)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> dict[str, Vector]:
    """Client → the sum of its updates that are in a model on the disk."""
    sums: dict[str, Vector] = {}
    pending: list[tuple[str, Vector]] = []
    count, write, read = ServerExchange.count, checkpoints.Checkpoint.write, checkpoints.Checkpoint.read

    def counted(exchange: ServerExchange, arrivals: Any) -> None:
        pending.extend((arrival.answer.name, arrival.update.dense().astype(np.float64)) for arrival in arrivals)
        count(exchange, arrivals)

    def written(*args: Any) -> None:
        write(*args)
        for client, update in pending:
            sums[client] = sums.get(client, 0) + update
        pending.clear()

    def restarting(*args: Any) -> Any:
        pending.clear()  # it counted in a model that is gone
        return read(*args)

    monkeypatch.setattr(ServerExchange, "count", counted)
    monkeypatch.setattr(checkpoints.Checkpoint, "write", written)
    monkeypatch.setattr(checkpoints.Checkpoint, "read", restarting)
    return sums


@pytest.mark.parametrize("name", METHODS)
def test_with_clients_picked_and_uploads_lost_as_well_nothing_is_lost_or_counted_twice(
    name: str, tmp_path: Path, stored: dict[str, Vector]
) -> None:
    """What a client computed is in the stored model, or on its disk."""
    chance, task = np.random.default_rng(5), Quadratic()
    grid = Deadly(quadratic_app(task, tmp_path / "clients"), 4, range(5, 400, 13))
    grid.fate = lambda message, reply: reply if chance.random() > 0.2 else None
    chosen: Any = None

    def start() -> Result:
        nonlocal chosen
        chosen = strategy(method=METHODS[name], checkpoint=tmp_path / "server")
        return chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 20)

    restarted(grid, start)
    assert grid.steps > min(grid.deaths)
    check_books(task, tmp_path / "clients", chosen, stored, "0123")


# --- what can't go on ---------------------------------------------------------------------------------------


def begin(folder: Path, rounds: int = 2, **settings: Any) -> Result:
    grid = InProcessGrid(app_with([gammafl.flower.compress(folder / "clients")]), NODES)
    options = {"method": "top-k:keep=0.1"} | settings
    chosen = gammafl.flower.Compressed(options.pop("strategy", FedAvg()), checkpoint=folder / "server", **options)
    return chosen.start(grid, record_of(np.zeros(DIM, np.float32)), rounds)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"method": "top-k:keep=0.2"}, "method"),
        ({"rounds": 3}, "rounds"),
        ({"local_steps": 5}, "local_steps"),
        ({"downlink": "changes"}, "downlink"),
        ({"whole": ["a.bias"]}, "whole"),
        ({"strategy": FedAdam()}, "strategy"),
    ],
)
def test_another_training_does_not_go_on_from_this_one(changed: dict[str, Any], named: str, tmp_path: Path) -> None:
    begin(tmp_path)
    with pytest.raises(gf.InputError, match=f"another training: its {named} is .* Remove it to begin anew"):
        begin(tmp_path, **changed)


def test_the_strategy_inside_another_one_must_be_the_same_too(tmp_path: Path) -> None:
    begin(tmp_path, strategy=DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.0, 1.0, NODES))
    with pytest.raises(gf.InputError, match=r"its strategy is .*Clipping of FedAvg, here it is .*Clipping of FedAdam"):
        begin(tmp_path, strategy=DifferentialPrivacyServerSideFixedClipping(FedAdam(), 0.0, 1.0, NODES))


def test_another_model_does_not_go_on_from_this_one(tmp_path: Path) -> None:
    begin(tmp_path)
    grid = InProcessGrid(app_with([gammafl.flower.compress(tmp_path / "clients")]), NODES)
    chosen = gammafl.flower.Compressed(FedAvg(), "top-k:keep=0.1", checkpoint=tmp_path / "server")
    with pytest.raises(gf.InputError, match="other tensors"):
        chosen.start(grid, ArrayRecord({"w": record_of(np.zeros(DIM, np.float32))["a.weight"]}), 2)


def test_a_damaged_checkpoint_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    begin(tmp_path)
    file = tmp_path / "server" / "server.safetensors"
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], b"", whole[:-40] + b"x" * 40):
        file.write_bytes(damaged)
        with pytest.raises(gf.InputError, match=r"server.safetensors can't be used"):
            begin(tmp_path)
        assert file.read_bytes() == damaged


def test_a_forged_checkpoint_is_refused_in_one_line(tmp_path: Path) -> None:
    begin(tmp_path)
    file = tmp_path / "server" / "server.safetensors"
    facts, tensors = tensor_files.read(file)
    stored = dict(tensors)
    for key in ("arrays", "training", "average", "history", "failures", "told", "ledger_bytes"):
        for value in (None, "x", {"$": "dict"}, [1], {"$": "array", "at": "99"}):
            forged = {**facts, "rounds": {**facts["rounds"], key: value}}
            tensor_files.replace(file, stored, forged)
            if (key, value) == ("average", None):
                continue
            with pytest.raises(gf.InputError, match=r"^[^\n]*can't be used[^\n]*$"):
                begin(tmp_path)


def test_a_forged_history_is_refused_before_anybody_adds_it_up(tmp_path: Path) -> None:
    begin(tmp_path)
    file = tmp_path / "server" / "server.safetensors"
    facts, tensors = tensor_files.read(file)
    stored, line = dict(tensors), facts["rounds"]["history"][0]
    for key in line:
        without = {name: value for name, value in line.items() if name != key}
        for forged in (without, {**line, key: None}, {**line, key: -1}, {**line, key: [[]]}):
            tensor_files.replace(file, stored, {**facts, "rounds": {**facts["rounds"], "history": [forged]}})
            with pytest.raises(gf.InputError, match=r"^[^\n]*can't be used[^\n]*$"):
                begin(tmp_path)


@pytest.mark.parametrize("kind", METRICS)
def test_forged_metrics_are_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    begin(tmp_path)
    file = tmp_path / "server" / "server.safetensors"
    facts, tensors = tensor_files.read(file)
    stored, hooks = dict(tensors), facts["hooks"]
    wrong: list[Any] = [1e308, None, [1], {"$": "dict", "items": [["x", None]]}, {"$": "dict", "items": [[1, 0.5]]}]
    for value in wrong:
        for name in (kind, "arrays"):
            forged = {**hooks, "metrics": {**hooks["metrics"], name: value}}
            tensor_files.replace(file, stored, {**facts, "hooks": forged})
            with pytest.raises(gf.InputError, match=r"^[^\n]*can't be used[^\n]*$"):
                begin(tmp_path)


def test_a_forged_config_is_refused_in_one_line(tmp_path: Path) -> None:
    begin(tmp_path)
    file = tmp_path / "server" / "server.safetensors"
    facts, tensors = tensor_files.read(file)
    stored, hooks, none = dict(tensors), facts["hooks"], {"$": "set", "items": []}
    wrong: list[Any] = [None, {"$": "dict", "items": [[0, 1.0]]}, {"$": "dict", "items": [["lr", None]]}]
    for kind in hooks["configs"]:
        for changed in wrong:
            forged = {**hooks["configs"], kind: {"$": "tuple", "items": [changed, none]}}
            tensor_files.replace(file, stored, {**facts, "hooks": {**hooks, "configs": forged}})
            with pytest.raises(gf.InputError, match=r"^[^\n]*can't be used[^\n]*$"):
                begin(tmp_path)


@pytest.mark.parametrize("table", ["at", "last", "owners"])
def test_forged_receipts_are_refused_in_one_line(table: str, tmp_path: Path) -> None:
    begin(tmp_path)
    file = tmp_path / "server" / "server.safetensors"
    facts, tensors = tensor_files.read(file)
    stored, receipts = dict(tensors), facts["rounds"]["training"]["exchange"]["items"]
    rows = dict(map(tuple, dict(map(tuple, receipts))["receipts"]["items"]))[table]
    (row, *_), kept = rows, list(rows[0])
    for place in range(len(row)):
        wrongs: list[Any] = [None, [], {"$": "dict", "items": []}, 1e308]
        for wrong in wrongs:
            row[place] = wrong
            tensor_files.replace(file, stored, facts)
            with pytest.raises(gf.InputError, match=r"^[^\n]*can't be used[^\n]*$"):
                begin(tmp_path)
        row[place] = kept[place]


@pytest.mark.parametrize("size", [10**9, 10**15])
def test_a_checkpoint_of_a_huge_model_that_is_not_there_is_refused(size: int, tmp_path: Path) -> None:
    """Before anything of that size is made."""
    settings: dict[str, Any] = {"method": "gamma-fedht-s:keep=0.1,server=sum,level=paper"}
    begin(tmp_path, **settings)
    file = tmp_path / "server" / "server.safetensors"
    facts, tensors = tensor_files.read(file)
    facts["rounds"]["training"]["layout"]["shapes"]["a.bias"] = [size]
    tensor_files.replace(file, dict(tensors), facts)
    with pytest.raises(gf.InputError, match=r"^[^\n]*can't be used[^\n]*$"):
        begin(tmp_path, **settings)


def test_a_forged_memory_of_the_strategy_is_refused_in_one_line(tmp_path: Path) -> None:
    begin(tmp_path)
    file = tmp_path / "server" / "server.safetensors"
    facts, tensors = tensor_files.read(file)
    stored = dict(tensors)
    for name in ("x", "no.such", "x.y.z"):
        for value in ({"$": "x"}, {}, {"$": "array", "dtype": "f4", "shape": [10**15], "at": "0"}, {"$": "dict"}):
            tensor_files.replace(file, stored, {**facts, "strategy": {name: value}})
            with pytest.raises(gf.InputError, match=r"^[^\n]*can't be used[^\n]*$"):
                begin(tmp_path)


def test_a_strategy_that_can_not_be_stored_is_named_before_anything_is_sent(tmp_path: Path) -> None:
    strategy: Any = FedAvg()
    strategy.tracker = object()
    with pytest.raises(gf.InputError, match=r"tracker, a builtins.object.*stateless=\['tracker'\]"):
        begin(tmp_path, strategy=strategy)
    begin(tmp_path, strategy=strategy, stateless=["tracker"])


def test_a_second_training_needs_a_directory_of_its_own(tmp_path: Path) -> None:
    grid = InProcessGrid(app_with([gammafl.flower.compress(tmp_path / "clients")]), NODES)
    chosen = gammafl.flower.Compressed(FedAvg(), "top-k:keep=0.1", checkpoint=tmp_path / "server")
    chosen.start(grid, record_of(np.zeros(DIM, np.float32)), 2)
    with pytest.raises(gf.InputError, match="directory of its own"):
        chosen.start(grid, record_of(np.zeros(DIM, np.float32)), 2)


def test_a_full_disk_ends_the_run_with_its_name_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, expected, _ = play(tmp_path / "alone", FedAvg, method="top-k:keep=0.1")
    replace, writes = tensor_files.replace, iter(range(100))

    def full(path: Path, *args: Any, **kwargs: Any) -> None:
        if path.name == "server.safetensors" and next(writes) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(path, *args, **kwargs)

    monkeypatch.setattr(tensor_files, "replace", full)
    with pytest.raises(gf.InputError, match=r"can't write .*server.safetensors .*No space left.*make room, then run"):
        play(tmp_path / "full", FedAvg, method="top-k:keep=0.1")
    _, result, _ = play(tmp_path / "full", FedAvg, method="top-k:keep=0.1")
    np.testing.assert_array_equal(vector_of(result.arrays), vector_of(expected.arrays))


def test_two_servers_do_not_share_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LOCK_SECONDS", 0.0)
    with checkpoints.Checkpoint(tmp_path / "server").locked(), pytest.raises(gf.InputError, match="another ServerApp"):
        begin(tmp_path)


def test_the_checkpoint_is_for_its_owner_alone(tmp_path: Path) -> None:
    begin(tmp_path)
    assert [path.stat().st_mode & 0o077 for path in (tmp_path / "server").rglob("*")] == [0, 0]


def test_the_ledger_has_each_round_once(tmp_path: Path) -> None:
    _, _, grid = play(tmp_path / "alone", FedAvg, method="top-k:keep=0.1", ledger=tmp_path / "alone.jsonl")
    play(
        tmp_path / "killed",
        FedAvg,
        range(3, 3 * grid.steps, 8),
        method="top-k:keep=0.1",
        ledger=tmp_path / "killed.jsonl",
    )
    lines = [(tmp_path / name).read_text().splitlines() for name in ("alone.jsonl", "killed.jsonl")]
    assert len(lines[0]) == len(lines[1]) == ROUNDS


@pytest.mark.parametrize("deaths", [[5], [20], [35]])
def test_lines_of_another_training_in_the_ledger_stay(deaths: list[int], tmp_path: Path) -> None:
    """As where a restart names another ledger, or another training wrote to this one in between."""
    play(tmp_path / "other", FedAvg, method="top-k:keep=0.1", ledger=tmp_path / "other.jsonl", rounds=3)
    others = (tmp_path / "other.jsonl").read_bytes()
    ledger = tmp_path / "mine.jsonl"
    grid = Deadly(app_with([gammafl.flower.compress(tmp_path / "clients")]), NODES, deaths)
    written: list[bytes] = []

    def start() -> Result:
        if grid.steps:
            ledger.write_bytes(ledger.read_bytes() + others)
            written.append(ledger.read_bytes())
        chosen = gammafl.flower.Compressed(FedAvg(), "top-k:keep=0.1", checkpoint=tmp_path / "server", ledger=ledger)
        return chosen.start(grid, record_of(np.zeros(DIM, np.float32)), 3)

    restarted(grid, start)
    assert ledger.read_bytes().startswith(written[0])


def test_without_a_checkpoint_clients_store_no_replies(tmp_path: Path) -> None:
    app = app_with([gammafl.flower.compress(tmp_path)])
    gammafl.flower.Compressed(flower.FedAvg(), "top-k:keep=0.1").start(
        InProcessGrid(app, NODES), record_of(np.zeros(DIM, np.float32)), 2
    )
    for path in tmp_path.rglob("*.state"):
        assert "reply" not in tensor_files.read(path)[0]
