"""The quadratic clients of tests/problems.py as a Flower app, ordinary but for the two lines."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

import gammafl.flower
from gammafl import seeds
from gammafl.core.arrays import Vector
from gammafl.flower.layout import Layout
from tests.flower.grid import InProcessGrid, arrives
from tests.problems import STEPSIZE, Quadratic

LOCAL_STEPS = 5


def to_record(task: Quadratic, model: Vector) -> ArrayRecord:
    first, second = np.split(model, [40])
    return ArrayRecord({"first": Array(first), "second": Array(second.reshape(2, 5))})


def from_record(record: ArrayRecord) -> Vector:
    return np.concatenate([record["first"].numpy(), record["second"].numpy().reshape(-1)])


def quadratic_app(task: Quadratic, state_dir: Path, inner: Sequence[Any] = (), **settings: Any) -> ClientApp:
    """Trains as the simulator does: same local steps, same seeds. `inner` mods see what the functions see."""
    app = ClientApp(mods=[gammafl.flower.compress(state_dir, **settings), *inner])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        partition = context.node_config["partition-id"]
        assert isinstance(partition, int)
        number = int(message.content["config"]["server-round"]) - 1  # type: ignore[arg-type]
        model = from_record(message.content["arrays"])  # type: ignore[arg-type]
        steps = np.array([STEPSIZE(LOCAL_STEPS * number + i) for i in range(LOCAL_STEPS)], np.float32)
        rng = seeds.generator(0, "batches", number, partition)
        local = next(task.train([partition], model, steps, [rng]))
        metrics = MetricRecord({"num-examples": task.client_sizes[partition], "train-loss": local.loss})
        content = RecordDict({"arrays": to_record(task, model - local.delta), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        result = task.evaluate(from_record(message.content["arrays"]))  # type: ignore[arg-type]
        metrics = MetricRecord({"num-examples": 1, "distance": result.metric})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def strategy(**settings: Any) -> gammafl.flower.CompressedFedAvg:
    options: dict[str, Any] = {"fraction_train": 0.5, "fraction_evaluate": 0.0, "stepsize": STEPSIZE}
    return gammafl.flower.CompressedFedAvg(**options | {"local_steps": LOCAL_STEPS} | settings)


@contextmanager
def by_hand(chosen: gammafl.flower.Compressed, grid: Grid, rounds: int) -> Iterator[Callable[[int], None]]:
    """A function that plays round `number`, as the strategy's `start` does, with whatever happens in between."""
    arrays = to_record(Quadratic(), np.zeros(50, np.float32))
    config, inner = ConfigRecord(), chosen.strategy
    with chosen.running(grid, rounds, arrays) as compressed:

        def play(number: int) -> None:
            nonlocal arrays
            replies = compressed.send_and_receive(inner.configure_train(number, arrays, config, compressed))
            arrays = inner.aggregate_train(number, replies)[0] or arrays

        yield play


def run(
    state_dir: Path, rounds: int = 40, task: Quadratic | None = None, fate: Any = arrives,
    client: dict[str, Any] | None = None, **settings: Any,
) -> tuple[gammafl.flower.CompressedFedAvg, InProcessGrid, Vector]:  # fmt: skip
    """All rounds; the strategy, the grid and the final model."""
    task = task or Quadratic()
    grid = InProcessGrid(quadratic_app(task, state_dir, **client or {}), len(task.client_sizes), fate)
    chosen = strategy(**settings)
    start = task.initial_model(seeds.generator(0, "model"))
    result = chosen.start(grid, to_record(task, start), rounds, train_config=ConfigRecord())
    arrays = result.arrays if result.arrays else to_record(task, start)
    assert Layout.of(arrays).dim == start.size
    return chosen, grid, from_record(arrays)
