"""Around any strategy: what it gives alone it gives with everything sent, and with Top-k it learns."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg, Result, Strategy

import gammafl as gf
import gammafl.flower
from gammafl.core.arrays import Vector
from tests.flower.grid import InProcessGrid

NODES, DIM = 7, 60
CENTRES = np.random.default_rng(3).normal(size=(NODES, DIM)).astype(np.float32) + 5


def app_with(
    mods: list[Any], rate: float = 0.2, returns: Callable[[Vector], dict[str, Any]] | None = None
) -> ClientApp:
    """Each client steps towards its own centre; `returns` says what of the model it sends back."""
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = message.content.array_records["arrays"]
        model = vector_of(arrays)
        partition = int(context.node_config["partition-id"])
        for _ in range(3):
            model = model - np.float32(rate) * (model - CENTRES[partition])
        loss = float(np.square(model - CENTRES[partition]).mean())
        metrics = MetricRecord({"num-examples": 10 + partition, "train_loss": loss, "loss": loss})
        return Message(RecordDict({"arrays": record_of(model), "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        model = vector_of(message.content.array_records["arrays"])
        metrics = MetricRecord({"num-examples": 1, "distance": distance(model)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def record_of(model: Vector) -> ArrayRecord:
    return ArrayRecord({"a.weight": Array(model[:40].reshape(8, 5)), "a.bias": Array(model[40:])})


def vector_of(record: ArrayRecord) -> Vector:
    return np.concatenate([record["a.weight"].numpy().reshape(-1), record["a.bias"].numpy()]).astype(np.float32)


def distance(model: Vector) -> float:
    return float(np.linalg.norm(model - CENTRES.mean(0)))


def trained(strategy: Strategy, app: ClientApp, rounds: int = 5) -> tuple[Vector, Result]:
    grid = InProcessGrid(app, NODES)
    grid.ends = True
    result = strategy.start(grid, record_of(np.zeros(DIM, np.float32)), rounds, train_config=ConfigRecord({"lr": 0.2}))
    assert result.arrays is not None
    return vector_of(result.arrays), result


STRATEGIES: dict[str, tuple[Callable[[], Strategy], list[Any]]] = {
    "FedAvg": (FedAvg, []),
    "FedAvgM": (lambda: flower.FedAvgM(server_learning_rate=0.9, server_momentum=0.5), []),
    "FedAdam": (lambda: flower.FedAdam(eta=0.3), []),
    "FedYogi": (lambda: flower.FedYogi(eta=0.3), []),
    "FedAdagrad": (lambda: flower.FedAdagrad(eta=0.3), []),
    "FedProx": (lambda: flower.FedProx(proximal_mu=0.1), []),
    "FedMedian": (flower.FedMedian, []),
    "FedTrimmedAvg": (lambda: flower.FedTrimmedAvg(beta=0.2), []),
    "Krum": (lambda: flower.Krum(num_malicious_nodes=1), []),
    "MultiKrum": (lambda: flower.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=4), []),
    "Bulyan": (lambda: flower.Bulyan(num_malicious_nodes=1), []),
    "QFedAvg": (lambda: flower.QFedAvg(client_learning_rate=0.2, q=0.1, train_loss_key="train_loss"), []),
    "DP, server's fixed clipping": (
        lambda: flower.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.0, 10.0, NODES),
        [],
    ),
    "DP, server's adaptive clipping": (
        lambda: flower.DifferentialPrivacyServerSideAdaptiveClipping(
            FedAvg(), 0.0, NODES, initial_clipping_norm=10.0, clipped_count_stddev=0.0
        ),
        [],
    ),
    "DP, clients' fixed clipping": (
        lambda: flower.DifferentialPrivacyClientSideFixedClipping(FedAvg(), 0.0, 10.0, NODES),
        [fixedclipping_mod],
    ),
    "DP, clients' adaptive clipping": (
        lambda: flower.DifferentialPrivacyClientSideAdaptiveClipping(
            FedAvg(), 0.0, NODES, initial_clipping_norm=10.0, clipped_count_stddev=0.0
        ),
        [adaptiveclipping_mod],
    ),
}
every_strategy = pytest.mark.parametrize("name", STRATEGIES)


@every_strategy
def test_with_everything_sent_the_model_is_the_one_that_the_strategy_gives_alone(name: str, tmp_path: Path) -> None:
    make, mods = STRATEGIES[name]
    alone, _ = trained(make(), app_with(mods))
    compressed = gammafl.flower.Compressed(make(), method="fedavg")
    model, _ = trained(compressed, app_with([gammafl.flower.compress(tmp_path), *mods]))
    np.testing.assert_allclose(model, alone, rtol=1e-5, atol=1e-5)
    assert [len(record["clients"]) for record in compressed.history] == [NODES] * 5


class InPlace(FedAvg):
    """Puts the new tensors into the record that it was given, and gives that one back."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Any:
        self.model = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        assert arrays is not None
        for name, array in arrays.items():
            self.model[name] = array
        return self.model, metrics


class NewData(InPlace):
    """The same, and the tensors stay the same objects too."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = FedAvg.aggregate_train(self, server_round, replies)
        assert arrays is not None
        for name, array in arrays.items():
            self.model[name].data = array.data
        return self.model, metrics


class OtherOrder(FedAvg):
    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        assert arrays is not None
        return ArrayRecord({name: arrays[name] for name in sorted(arrays)}), metrics


@pytest.mark.parametrize("downlink", ["full", "changes", "fedavg"])
@pytest.mark.parametrize("own", [InPlace, NewData, OtherOrder])
def test_how_a_strategy_hands_its_model_over_makes_no_difference(
    own: type[FedAvg], downlink: str, tmp_path: Path
) -> None:
    alone, _ = trained(FedAvg(), app_with([]))
    compressed = gammafl.flower.Compressed(own(), method="fedavg", downlink=downlink)
    model, result = trained(compressed, app_with([gammafl.flower.compress(tmp_path)]))
    np.testing.assert_allclose(model, alone, rtol=1e-4, atol=1e-4)
    assert result.arrays is not None
    assert list(result.arrays) == list(record_of(alone))


@every_strategy
def test_a_way_down_that_keeps_everything_changes_nothing(name: str, tmp_path: Path) -> None:
    """The view is the model but for rounding, and the strategy gets back its own model less the update."""
    make, mods = STRATEGIES[name]
    alone, _ = trained(make(), app_with(mods))
    compressed = gammafl.flower.Compressed(make(), method="fedavg", downlink="fedavg")
    model, _ = trained(compressed, app_with([gammafl.flower.compress(tmp_path), *mods]))
    np.testing.assert_allclose(model, alone, rtol=1e-4, atol=1e-4)


SLOW = {"FedMedian": 0.2, "QFedAvg": 0.2}
"""A median is 0 where most clients send nothing, and q-FedAvg divides by what small updates lack in size: they learn,
and slower than with everything sent (docs/strategies.md)."""


@every_strategy
def test_with_top_k_the_model_comes_nearer(name: str, tmp_path: Path) -> None:
    """Most of the way that the strategy alone comes in as many rounds: what was left behind is sent later."""
    make, mods = STRATEGIES[name]
    alone, _ = trained(make(), app_with(mods), 25)
    compressed = gammafl.flower.Compressed(make(), method=gf.top_k(keep=0.2))
    model, _ = trained(compressed, app_with([gammafl.flower.compress(tmp_path), *mods]), 25)
    start = distance(np.zeros(DIM, np.float32))
    assert start - distance(model) > SLOW.get(name, 0.7) * (start - distance(alone))
    assert {record["kept"] for record in compressed.history} == {12 * NODES}


SLOW_BOTH_WAYS = SLOW | {"FedAvgM": 0.1}
"""Momentum goes on while clients still train from an older view: it overshoots (docs/downlink.md)."""


@every_strategy
def test_with_top_k_both_ways_the_model_comes_nearer(name: str, tmp_path: Path) -> None:
    make, mods = STRATEGIES[name]
    alone, _ = trained(make(), app_with(mods), 25)
    compressed = gammafl.flower.Compressed(make(), method=gf.top_k(keep=0.2), downlink=gf.top_k(keep=0.4))
    model, _ = trained(compressed, app_with([gammafl.flower.compress(tmp_path), *mods]), 25)
    start = distance(np.zeros(DIM, np.float32))
    assert start - distance(model) > SLOW_BOTH_WAYS.get(name, 0.5) * (start - distance(alone))
