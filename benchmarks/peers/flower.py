"""Flower's simulation runtime: ServerApp and ClientApp over the Message API, on its Ray backend.

It is set up for speed. Each core has one actor with one torch thread, its own model and all clients' data, which are
made at the actor's first message, in a round that is not counted. There is no evaluation, telemetry, dashboard or log.
Each request starts and stops Ray, as any run does, but the time between the ends of rounds leaves that out. Flower
looks for new messages and for replies every 0.1 s, and has no setting for it. This bounds the speed of small rounds.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"
os.environ["FLWR_LOG_LEVEL"] = "ERROR"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # Ray's future default; else it warns

import ray
import torch
import work
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

client = ClientApp()


@cache
def actor(model: str, clients: int) -> tuple[nn.Module, list[work.Data]]:
    """What an actor keeps between messages."""
    torch.set_num_threads(1)
    return work.network(model), work.clients(model, clients)


@client.train()
def train(message: Message, context: Context) -> Message:
    """One client's part of a round."""
    config = message.content["config"]
    model, data = actor(config["model"], config["clients"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    own = data[context.node_config["partition-id"]]
    work.train(model, work.batches(own, config["local_steps"], config["batch_size"]))
    metrics = MetricRecord({"num-examples": work.SAMPLES})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


class TimedFedAvg(FedAvg):
    """FedAvg that notes when a round ends. A client's failure is an error, and no round."""

    def __init__(self, spec: work.Work) -> None:
        super().__init__(
            fraction_train=spec.participants / spec.clients,
            min_train_nodes=spec.participants,
            min_available_nodes=spec.clients,
            fraction_evaluate=0.0,
        )
        self.participants = spec.participants
        self.ends: list[float] = []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        if len(replies) != self.participants or any(reply.has_error() for reply in replies):
            raise RuntimeError(f"round {server_round}: a client failed")
        aggregate = super().aggregate_train(server_round, replies)
        self.ends.append(time.perf_counter())
        return aggregate


class Flower:
    """The global model between requests; each request is a simulation."""

    name = f"flwr {version('flwr')}"
    kept = 1.0

    def __init__(self, spec: work.Work) -> None:
        self.spec = spec
        self.arrays = ArrayRecord(work.network(spec.model).state_dict())

    def run(self, rounds: int) -> list[float]:
        spec, server, strategy = self.spec, ServerApp(), TimedFedAvg(self.spec)

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            config = ConfigRecord(
                {
                    "model": spec.model,
                    "clients": spec.clients,
                    "local_steps": spec.local_steps,
                    "batch_size": spec.batch_size,
                }
            )
            self.arrays = strategy.start(grid, self.arrays, num_rounds=rounds, train_config=config).arrays

        run_simulation(
            server_app=server,
            client_app=client,
            num_supernodes=spec.clients,
            backend_config={
                "init_args": {"num_cpus": spec.threads, "logging_level": "error", "log_to_driver": False},
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            },
        )
        return strategy.ends

    def weights(self) -> work.State:
        return self.arrays.to_torch_state_dict()


if __name__ == "__main__":
    import flower  # this file: so Ray sends the ClientApp to actors by name, as `flwr run` does, and not by value

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        work.serve(flower.Flower)
    except BaseException:
        traceback.print_exc()
        ray.shutdown()
        os._exit(1)  # otherwise Flower's server thread waits an hour for replies of a simulation that has ended
