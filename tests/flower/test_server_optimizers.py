"""The server's optimisers are those of Flower's strategies, fed with the same updates."""

from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi

import gammafl as gf
from gammafl.config.optimizers import server_optimizer
from gammafl.federated import rounds
from tests.flower.grid import InProcessGrid
from tests.problems import Quadratic, plan_for, run

ROUNDS, LOCAL_STEPS = 8, 5
PAIRS: dict[str, Any] = {
    "none": (FedAvg, {}),
    "momentum:lr=0.5,momentum=0.9": (FedAvgM, {"server_learning_rate": 0.5, "server_momentum": 0.9}),
    "momentum:lr=0.5,momentum=0": (FedAvgM, {"server_learning_rate": 0.5, "server_momentum": 0.0}),
    "adam": (FedAdam, {}),
    "adam:lr=0.02,beta_1=0.5,beta_2=0.9,tau=0.01": (FedAdam, {"eta": 0.02, "beta_1": 0.5, "beta_2": 0.9, "tau": 0.01}),
    "yogi": (FedYogi, {}),
    "adagrad": (FedAdagrad, {}),
}


@pytest.mark.parametrize("ours", PAIRS)
def test_with_everybody_taking_part_the_model_is_that_of_flowers_strategy(ours: str) -> None:
    """Flower averages models and subtracts, which rounds at x's size; √v + τ divides by τ = 0.001 at the least."""
    task = Quadratic()
    plan = plan_for(
        gf.fedavg(), task, participants=4, iterations=ROUNDS * LOCAL_STEPS, server_optimizer=server_optimizer(ours)
    )
    state, _, _ = run(plan)
    deltas = iter(task.deltas)
    of_round = [dict(next(deltas) for _ in range(plan.clients)) for _ in range(ROUNDS)]
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        content: Any = message.content
        client, number = int(context.node_config["partition-id"]), int(content["config"]["server-round"])
        (before,) = content["arrays"].to_numpy_ndarrays()
        after = before.astype(np.float32) - of_round[number - 1][client]
        metrics = MetricRecord({"num-examples": task.client_sizes[client]})
        return Message(RecordDict({"arrays": ArrayRecord([after]), "metrics": metrics}), reply_to=message)

    kind, settings = PAIRS[ours]
    strategy = kind(fraction_evaluate=0.0, **settings)
    initial = ArrayRecord([rounds.start(plan).model])
    result = strategy.start(grid=InProcessGrid(app, 4), initial_arrays=initial, num_rounds=ROUNDS)
    (theirs,) = result.arrays.to_numpy_ndarrays()
    assert np.abs(state.model - rounds.start(plan).model).max() > 0.05
    rounding = ROUNDS * 4 * np.finfo(np.float32).eps * np.abs(theirs).max()
    np.testing.assert_allclose(state.model, theirs, atol=rounding * (1 if ours[0] in "nm" else 0.1 / 0.001))
