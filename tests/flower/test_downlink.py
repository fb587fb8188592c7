"""Whatever comes down, a client trains on what the server thinks that it holds: the model, or the view of it."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import gammafl as gf
import gammafl.flower
from gammafl import seeds
from gammafl.core.arrays import Vector
from gammafl.federated.client import start_after_loss
from gammafl.files import tensor_files
from tests.flower.grid import InProcessGrid
from tests.flower.problem import from_record, quadratic_app, strategy, to_record
from tests.problems import METHODS, Quadratic

WAYS: dict[str, str | gf.Method] = {
    "changes": "changes",
    "top-k": gf.top_k(keep=0.2),
    "stc": gf.stc(keep=0.2),
    "γ-FedHT": gf.gamma_fedht(initial_threshold=0.05),
    "fedavg": gf.fedavg(),
}
every_method = pytest.mark.parametrize("name", METHODS)
every_way = pytest.mark.parametrize("way", WAYS)


def test_tensors_of_half_precision_end_the_same_whichever_way_the_model_comes_down(tmp_path: Path) -> None:
    """What the server adds to them is finer than they are: a client must not take their rounding for its own update."""

    def trained(downlink: str) -> Vector:
        app = ClientApp(mods=[gammafl.flower.compress(tmp_path / downlink)])

        @app.train()
        def train(message: Message, context: Context) -> Message:
            before = message.content.array_records["arrays"]["w"].numpy()
            number = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
            step = np.random.default_rng(number).choice([0, 2**-9], before.size).astype(np.float16)
            arrays = ArrayRecord({"w": Array(before - step)})
            content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": context.node_id % 3 + 1})})
            return Message(content, reply_to=message)

        chosen = strategy(method=gf.Dense(), downlink=downlink)
        result = chosen.start(InProcessGrid(app, 4), ArrayRecord({"w": Array(np.ones(20, np.float16))}), 6)
        assert result.arrays["w"].dtype == "float16"
        return result.arrays["w"].numpy()

    assert (trained("full") != 1).any()
    np.testing.assert_array_equal(trained("changes"), trained("full"))


@every_way
@every_method
def test_every_client_trains_on_the_servers_view(
    name: str, way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Through lost replies, restarts and lost disks, what a client gets is the view bit for bit; after a lost upload,
    it is the view with that upload in it. Without compression the view is the model."""
    chance, task = random.Random(1), Quadratic()
    chosen = strategy(method=METHODS[name], downlink=WAYS[way], fraction_evaluate=1.0)
    seen = []

    def look(message: Message, context: Context, call_next: Any) -> Message:
        assert chosen.training.last is not None
        view = chosen.training.down.view
        assert WAYS[way] != "changes" or view.tobytes() == chosen.training.last.vector.tobytes()
        starts = [view]
        for path in tmp_path.glob(f"training-*/{context.node_config['partition-id']}.state"):
            if "open" in (tensors := tensor_files.read(path)[1]):
                starts.append(start_after_loss(view, gf.decode(tensors["open"].tobytes())))
        got = from_record(message.content.array_records["arrays"]).tobytes()
        seen.append(got in [start.tobytes() for start in starts])
        return call_next(message, context)

    grid = InProcessGrid(quadratic_app(task, tmp_path, [look]), 4)

    def fate(message: Message, reply: Message) -> Message | None:
        throw = chance.random()
        if throw < 0.1:
            grid.restart(message.metadata.dst_node_id, chance.randrange(1000, 10**6))
        if throw > 0.9:
            for path in tmp_path.rglob("*.model"):
                path.unlink()
        return reply if throw > 0.2 else None

    grid.fate = fate
    chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 30)
    assert all(seen)
    assert len(seen) > 60
    assert "and asks for a whole one" in caplog.text
    assert any(record["without_model"] for record in chosen.history)


@every_way
def test_one_that_missed_fifty_rounds_gets_the_view_of_those_who_missed_none(way: str, tmp_path: Path) -> None:
    task, got = Quadratic(), dict[tuple[int, int], bytes]()

    def look(message: Message, context: Context, call_next: Any) -> Message:
        number = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        got[context.node_id, number] = from_record(message.content.array_records["arrays"]).tobytes()
        return call_next(message, context)

    grid = InProcessGrid(quadratic_app(task, tmp_path, [look]), 4)

    def fate(message: Message, reply: Message) -> Message | None:
        number = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        grid.reached = {100, 101, 102} if 2 <= number < 52 else set()
        return reply

    grid.fate = fate
    chosen = strategy(method=METHODS["top-k"], downlink=WAYS[way], fraction_train=1.0)
    chosen.start(grid, to_record(task, task.initial_model(seeds.generator(0, "model"))), 54)
    assert (103, 1) in got
    assert (103, 30) not in got
    late = max(number for node, number in got if node == 103)
    assert late > 52
    assert got[103, late] == got[100, late]


def test_all_see_one_view_and_who_evaluated_it_is_sent_nothing_more_of_it_to_train(tmp_path: Path) -> None:
    task, models = Quadratic(), list[bytes]()

    def look(message: Message, context: Context, call_next: Any) -> Message:
        models.append(from_record(message.content.array_records["arrays"]).tobytes())
        assert models[-1] == chosen.training.down.view.tobytes()
        return call_next(message, context)

    chosen = strategy(method=METHODS["top-k"], downlink=gf.stc(keep=0.2), fraction_train=1.0, fraction_evaluate=1.0)
    grid = InProcessGrid(quadratic_app(task, tmp_path, [look]), 4)
    shown = list[bytes]()

    def evaluate_centrally(number: int, arrays: ArrayRecord) -> MetricRecord:
        shown.append(from_record(arrays).tobytes())
        return MetricRecord()

    result = chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 6, evaluate_fn=evaluate_centrally)
    assert from_record(result.arrays).tobytes() == chosen.training.down.view.tobytes() == shown[-1] == models[-1]
    assert chosen.server_arrays is not None
    assert from_record(chosen.server_arrays).tobytes() != shown[-1]
    assert [record["downlink_bytes"] for record in chosen.history[1:]] == [0] * 5
    assert all(record["evaluation_bytes"] for record in chosen.history[1:])
    assert len(models) == 4 * 2 * 6


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_compressed_view_is_what_tensors_of_its_type_hold(dtype: Any, tmp_path: Path) -> None:
    """Otherwise a client would take the rounding of its tensors for its own update."""
    app = ClientApp(mods=[gammafl.flower.compress(tmp_path)])
    seen = []

    @app.train()
    def train(message: Message, context: Context) -> Message:
        before = message.content.array_records["arrays"]["w"].numpy()
        assert before.dtype == dtype
        seen.append(before.astype(np.float32).tobytes() == chosen.training.down.view.tobytes())
        step = np.random.default_rng(len(seen)).normal(0, 1e-3, before.size)
        arrays = ArrayRecord({"w": Array((before - step).astype(dtype))})
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    chosen = strategy(method=gf.top_k(keep=0.5), downlink=gf.stc(keep=0.3), fraction_train=0.5)
    result = chosen.start(InProcessGrid(app, 4), ArrayRecord({"w": Array(np.ones(20, dtype))}), 20)
    assert result.arrays["w"].dtype == np.dtype(dtype).name
    assert all(seen)
    assert len(seen) == 40


def test_whole_numbers_that_the_strategy_changes_reach_every_client(tmp_path: Path) -> None:
    """They are sent once, with the whole view, and again when they change."""
    app = ClientApp(mods=[gammafl.flower.compress(tmp_path)])
    counts = []

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = dict(message.content.array_records["arrays"])
        counts.append(int(arrays["count"].numpy()))
        arrays["w"] = Array(arrays["w"].numpy() - np.float32(0.1) * np.arange(50, dtype=np.float32))
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    class Counting(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            arrays, metrics = super().aggregate_train(server_round, replies)
            assert arrays is not None
            arrays["count"] = Array(np.array(server_round // 3))
            return arrays, metrics

    chosen = gammafl.flower.Compressed(
        Counting(fraction_evaluate=0.0), method=gf.top_k(keep=0.5), downlink=gf.top_k(keep=0.2)
    )
    first = ArrayRecord({"w": Array(np.ones(50, np.float32)), "count": Array(np.array(0))})
    result = chosen.start(InProcessGrid(app, 2), first, 8)
    assert int(result.arrays["count"].numpy()) == 8 // 3
    assert counts == [number // 3 for number in range(8) for _ in range(2)]
    whole = [record["downlink_bytes"] > 2 * 200 for record in chosen.history]
    assert whole == [True, False, False, True, False, False, True, False]


BROADCAST = gf.encode(gf.SparseUpdate(50, [1], [1.0]))
FORGED: dict[str, tuple[dict[str, bytes], str]] = {
    "too few broadcasts": ({}, "0 broadcasts from version"),
    "too many broadcasts": ({f"broadcast-{i}": BROADCAST for i in range(9)}, "9 broadcasts from version"),
    "broadcasts without an order": ({"broadcast-7": BROADCAST}, "sent ['broadcast-7']"),
    "a broadcast of another size": ({"broadcast-0": gf.encode(gf.SparseUpdate(51, [1], [1.0]))}, "51"),
    "a broadcast of no bytes": ({"broadcast-0": b""}, ""),
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_broadcast_gets_an_error_in_words_and_the_stored_view_stays(kind: str, tmp_path: Path) -> None:
    arrays, words = FORGED[kind]
    app = quadratic_app(Quadratic(), tmp_path)
    grid = InProcessGrid(app, 4)
    strategy(method=gf.top_k(keep=0.2), downlink=gf.top_k(keep=0.2), fraction_train=1.0).start(
        grid, to_record(Quadratic(), np.zeros(50, np.float32)), 3
    )
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.model")}
    last = grid.sent[-1]
    assert last.content.config_records["gammafl"]["base"] == 1
    terms = ConfigRecord({**last.content.config_records["gammafl"], "round": 4, "base": 2, "version": 3})
    record = ArrayRecord({name: Array("uint8", (len(data),), "gammafl.message", data) for name, data in arrays.items()})
    content = RecordDict({**last.content, "gammafl": terms, "arrays": record})
    node = last.metadata.dst_node_id
    reply = app(Message(content, node, "train"), grid.contexts[node])
    assert reply.has_error()
    assert words in str(reply.error.reason)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.model")} == before


def test_a_way_down_that_nobody_knows_is_refused_in_words() -> None:
    with pytest.raises(gf.InputError, match="downlink is 'full', 'changes' or a method"):
        strategy(downlink="half")
    with pytest.raises(gf.InputError, match="level 'run' steers what clients send"):
        strategy(downlink="ht:level=run")


def test_a_model_that_is_only_evaluated_moves_nobodys_view(tmp_path: Path) -> None:
    """Clients evaluate it as it is, and train from the view of the model that is trained."""

    class EvaluatingAnother(FedAvg):
        def configure_evaluate(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
            other = to_record(task, np.full(50, -1000, np.float32))
            return super().configure_evaluate(server_round, other, config, grid)

    task = Quadratic()
    models: dict[str, list[bytes]] = {"train": [], "evaluate": []}

    def look(message: Message, context: Context, call_next: Any) -> Message:
        got = from_record(message.content.array_records["arrays"])
        models[message.metadata.message_type].append(got.tobytes())
        return call_next(message, context)

    def trained(inner: FedAvg, folder: str) -> list[bytes]:
        models["train"].clear()
        chosen = gammafl.flower.Compressed(inner, method=gf.top_k(keep=0.5), downlink=gf.top_k(keep=0.2))
        chosen.start(InProcessGrid(quadratic_app(task, tmp_path / folder, [look]), 4), start, 5)
        return list(models["train"])

    start = to_record(task, np.zeros(50, np.float32))
    alone = trained(FedAvg(fraction_evaluate=0.0), "alone")
    assert trained(EvaluatingAnother(), "another") == alone
    assert set(models["evaluate"]) == {np.full(50, -1000, np.float32).tobytes()}


def test_several_models_in_a_round_are_each_sent_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One view can't stand for two models: a client never trains from a mixture of them."""

    class TwoGroups(FedAvg):
        def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Any:
            for message in super().configure_train(server_round, arrays, config, grid):
                group = message.metadata.dst_node_id % 2
                content = RecordDict(dict(message.content))
                content["arrays"] = to_record(task, np.full(50, 100 * group + server_round, np.float32))
                yield Message(content, message.metadata.dst_node_id, message.metadata.message_type)

    task, seen = Quadratic(), []

    def look(message: Message, context: Context, call_next: Any) -> Message:
        number = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        wanted = 100 * (context.node_id % 2) + number
        seen.append((from_record(message.content.array_records["arrays"]) == wanted).all())
        return call_next(message, context)

    grid = InProcessGrid(quadratic_app(task, tmp_path, [look]), 4)
    inner = TwoGroups(fraction_evaluate=0.0)
    chosen = gammafl.flower.Compressed(inner, method=gf.fedavg(), downlink=gf.top_k(keep=0.1))
    chosen.start(grid, to_record(task, np.zeros(50, np.float32)), 4)
    assert len(seen) == 16
    assert all(seen)
    assert "sends several models in one round" in caplog.text


@pytest.mark.parametrize("way", ["changes", "stc:keep=0.2"])
def test_a_client_that_lost_its_model_before_an_evaluation_is_left_out_of_it(way: str, tmp_path: Path) -> None:
    """A strategy of one's own gets replies with metrics alone; the client takes part again in the next round."""

    class Own(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            next(tmp_path.rglob("1.model")).unlink()
            return super().aggregate_train(server_round, replies)

        def aggregate_evaluate(self, server_round: int, replies: Any) -> Any:
            counts.append(len([reply.content.metric_records["metrics"] for reply in replies]))
            return None

    counts: list[int] = []
    grid = InProcessGrid(quadratic_app(Quadratic(), tmp_path), 4)
    chosen = gammafl.flower.Compressed(Own(), method=gf.top_k(keep=0.5), downlink=way)
    chosen.start(grid, to_record(Quadratic(), np.zeros(50, np.float32)), 3)
    assert counts == [3, 3, 3]
    assert [len(record["clients"]) for record in chosen.history] == [4, 4, 4]
