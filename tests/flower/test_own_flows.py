"""Strategies that send and aggregate in their own ways: every update is in the model exactly once."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedAvg, Strategy

import gammafl as gf
import gammafl.flower
from gammafl.federated.receipts import Sender
from gammafl.files import tensor_files
from gammafl.flower.arrays import LazyArray
from tests.flower.grid import InProcessGrid, arrives, state_files

NODES = 4
ALL = list(range(100, 100 + NODES))


class Adding(Strategy):
    """x ← x + Σ (reply − x): in the model an update counts 1, so that the model shows how often each one counted."""

    def __init__(self) -> None:
        self.model = np.zeros(2 * NODES, np.float32)

    def messages(self, nodes: Iterable[int]) -> list[Message]:
        """The model to these nodes."""
        return [Message(RecordDict({"arrays": halves(self.model)}), node, MessageType.TRAIN) for node in nodes]

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        found = [reply.content.array_records["arrays"] for reply in replies if reply.has_content()]
        base = self.model.copy()
        for record in found:
            for i, name in enumerate(("own", "shared")):
                if name in record:
                    place = slice(i * NODES, (i + 1) * NODES)
                    self.model[place] += record[name].numpy() - base[place]
        return (halves(self.model) if found else None), None

    def configure_train(self, *args: Any) -> Any: ...

    def configure_evaluate(self, *args: Any) -> Any: ...

    def aggregate_evaluate(self, *args: Any) -> Any: ...

    def summary(self) -> None: ...


def halves(model: Any) -> ArrayRecord:
    return ArrayRecord({"own": Array(model[:NODES].copy()), "shared": Array(model[NODES:].copy())})


def counting_app(state_dir: Path, parts: Any = None) -> tuple[ClientApp, Counter[int]]:
    """Client p adds 1 to element p of each tensor that it returns; and how often each has done so."""
    app, trained = ClientApp(mods=[gammafl.flower.compress(state_dir)]), Counter[int]()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        partition = int(context.node_config["partition-id"])
        arrays = {}
        trained[partition] += 1
        names = ("own", "shared") if parts is None else parts(partition, trained[partition])
        for size, name in enumerate(names, 1):
            values = message.content.array_records["arrays"][name].numpy().copy()
            values[partition] += size
            arrays[name] = Array(values)
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)

    return app, trained


@contextmanager
def training(
    tmp_path: Path, strategy: Strategy, method: Any = "fedavg", parts: Any = None
) -> Iterator[tuple[InProcessGrid, Grid, Counter[int], gammafl.flower.Compressed]]:
    app, trained = counting_app(tmp_path, parts)
    grid = InProcessGrid(app, NODES)
    chosen = gammafl.flower.Compressed(strategy, method=method)
    with chosen.running(grid, 10, halves(np.zeros(2 * NODES, np.float32))) as compressed:
        yield grid, compressed, trained, chosen


def counted(strategy: Adding) -> list[int]:
    """How often an update of each client is in the model."""
    return [int(value) for value in strategy.model[:NODES]]


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_replies_that_the_strategy_does_not_aggregate_return_to_their_clients(rounds: int, tmp_path: Path) -> None:
    strategy = Adding()
    with training(tmp_path, strategy) as (_, grid, trained, _chosen):
        for number in range(rounds):
            replies = list(grid.send_and_receive(strategy.messages(ALL)))
            strategy.aggregate_train(number, replies[number % 2 :: 2])
        strategy.aggregate_train(rounds, grid.send_and_receive(strategy.messages(ALL)))
    assert counted(strategy) == [trained[p] for p in range(NODES)] == [rounds + 1] * NODES


def test_fedavg_gets_no_reply_that_was_sorted_out(tmp_path: Path) -> None:
    strategy = FedAvg()
    model = halves(np.zeros(2 * NODES, np.float32))
    with training(tmp_path, strategy) as (_, grid, _trained, chosen):
        messages = strategy.configure_train(1, model, ConfigRecord(), grid)
        replies = [r for r in grid.send_and_receive(messages) if r.metadata.src_node_id != ALL[1]]
        arrays, _ = strategy.aggregate_train(1, replies)
        assert arrays is not None
        assert arrays["own"].numpy()[1] == 0
        assert chosen.history[0]["clients"] == ["0", "2", "3"]


def test_a_round_may_be_sent_in_portions(tmp_path: Path) -> None:
    strategy = Adding()
    with training(tmp_path, strategy) as (_, grid, trained, chosen):
        for number in range(3):
            first = list(grid.send_and_receive(strategy.messages(ALL[:1])))
            second = list(grid.send_and_receive(strategy.messages(ALL[1:])))
            strategy.aggregate_train(number, first + second)
        assert [len(record["clients"]) for record in chosen.history] == [NODES] * 3
    assert counted(strategy) == [trained[p] for p in range(NODES)]


def test_each_of_several_groups_may_be_aggregated_by_a_call_of_its_own(tmp_path: Path) -> None:
    strategy = Adding()
    with training(tmp_path, strategy) as (_, grid, trained, chosen):
        for number in range(3):
            replies = list(grid.send_and_receive(strategy.messages(ALL)))
            base = strategy.model.copy()
            strategy.aggregate_train(number, replies[:1])
            strategy.aggregate_train(number, [])
            first, strategy.model = strategy.model - base, base
            strategy.aggregate_train(number, replies[1:])
            strategy.model = strategy.model + first
        assert [len(record["clients"]) for record in chosen.history] == [NODES] * 3
    assert counted(strategy) == [trained[p] for p in range(NODES)]


def test_an_aggregation_of_ones_own_on_the_instance_is_not_passed_over(tmp_path: Path) -> None:
    strategy: Any = FedAvg()
    original = strategy.aggregate_train

    def doubled(server_round: int, replies: Any) -> Any:
        arrays, metrics = original(server_round, replies)
        return ArrayRecord({name: Array(2 * array.numpy()) for name, array in arrays.items()}), metrics

    strategy.aggregate_train = doubled
    model = halves(np.zeros(2 * NODES, np.float32))
    with training(tmp_path, strategy) as (_, grid, _trained, _chosen):
        messages = strategy.configure_train(1, model, ConfigRecord(), grid)
        arrays, _ = strategy.aggregate_train(1, grid.send_and_receive(messages))
    assert arrays["own"].numpy().tolist() == [0.5] * NODES
    assert strategy.aggregate_train is doubled


def remembered(directory: Path, chosen: gammafl.flower.Compressed) -> dict[str, Any]:
    """Client → what its disk holds: the residual, and an open upload that the server does not have."""
    found = {}
    for path in state_files(directory):
        facts, tensors = tensor_files.read(path)
        found[path.stem] = np.zeros(2 * NODES) + tensors.get("residual", np.zeros(2 * NODES))
        last = chosen.training.exchange.receipts.last(Sender(path.stem, facts["incarnation"]))
        if "open" in tensors and facts["number"] > last:
            found[path.stem] += gf.decode(tensors["open"].tobytes()).dense()
    return found


@pytest.mark.parametrize("lost", [(), (1,), (2, 3)])
@pytest.mark.parametrize("new_address", [False, True])
def test_what_is_left_of_a_tensor_waits_until_it_is_returned_again(
    lost: tuple[int, ...], new_address: bool, tmp_path: Path
) -> None:
    """Clients return both tensors or one of them, by turns, and one element an upload is sent."""
    turns = [("own", "shared"), ("own",), ("shared",), ("own", "shared")]
    wanted: Counter[str] = Counter()

    def parts(partition: int, number: int) -> tuple[str, ...]:
        names = turns[(number + partition) % 4] if number <= 6 else ("own", "shared")
        if partition == 0:
            wanted.update({name: size for size, name in enumerate(names, 1)})
        return names

    strategy = Adding()
    with training(tmp_path, strategy, gf.TopK(1), parts) as (grid, compressed, _trained, _chosen):
        for number in range(1, 7):
            if new_address and number == 3:
                grid.restart(100, 500, noticed=False)
            grid.fate = (lambda message, reply: None) if number in lost else arrives
            strategy.aggregate_train(number, compressed.send_and_receive(strategy.messages(grid.contexts)))
    rest = remembered(tmp_path, _chosen)["0"]
    total = [strategy.model[0] - rest[0], strategy.model[NODES] - rest[NODES]]
    assert total == [wanted["own"], wanted["shared"]]


@pytest.mark.parametrize(("strategy", "asked"), [(FedAvg, 0), (FedAdam, 2 * NODES)])
def test_tensors_are_made_when_the_strategy_asks_for_them(
    strategy: Any, asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that memory does not grow with the number of replies: FedAvg over sparse updates asks for none at all."""
    made: list[LazyArray] = []

    def note(array: LazyArray) -> Any:
        made.append(array)
        return array._make()

    monkeypatch.setattr(LazyArray, "numpy", note)
    monkeypatch.setattr(LazyArray, "data", property(lambda array: pytest.fail("all tensors at once")))
    inner = strategy()
    with training(tmp_path, inner) as (_, grid, _trained, _chosen):
        messages = inner.configure_train(1, halves(np.zeros(2 * NODES, np.float32)), ConfigRecord(), grid)
        replies = list(grid.send_and_receive(messages))
        assert not made
        inner.aggregate_train(1, replies)
    assert len(made) == asked
