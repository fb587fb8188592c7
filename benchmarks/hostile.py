"""One client in five is hostile: Flower's strategies behind `Compressed`, with and without limits.

The task is logistic regression on the small Fashion-MNIST, in this process, over Flower's messages. Hostile clients run
the same software as all others and lie only about their training. So they keep to the limits that they are told, and
the server never refuses them. A client that ignored its limits would be refused, and so reach less.
"""

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower

import gammafl as gf
import gammafl.flower
from gammafl import seeds
from gammafl.config.layers import make_config
from gammafl.core.arrays import Vector
from gammafl.experiments.intervals import interval
from gammafl.federated.task import Task
from gammafl.flower.disk import Residuals
from gammafl.report.tables import TextTable
from gammafl.runs.execute import make_plan
from gammafl.tasks.registry import settings_of
from tests.flower.grid import InProcessGrid

CLIENTS, HOSTILE = 10, (3, 7)
LOCAL_STEPS, STEPSIZE = 5, 0.1
FIXED = 3.0
"""The norm of the fixed limit: about twice the median of a run without hostile clients, with 5% of the entries sent."""

LEARNT = 2.0
SCHEME = {"clients": CLIENTS, "partition": {"kind": "dirichlet", "concentration": 1.0}, "weights": "normalized"}

STRATEGIES: dict[str, Callable[[], Any]] = {
    "FedAvg": lambda: flower.FedAvg(**ALL),
    "FedMedian": lambda: flower.FedMedian(**ALL),
    "FedTrimmedAvg": lambda: flower.FedTrimmedAvg(beta=0.2, **ALL),
    "Krum": lambda: flower.Krum(num_malicious_nodes=2, **ALL),
    "MultiKrum": lambda: flower.MultiKrum(num_malicious_nodes=2, num_nodes_to_select=6, **ALL),
}
ALL: dict[str, Any] = {"fraction_train": 1.0, "fraction_evaluate": 0.0}
LIMITS = {"none": gf.Limits(), "fixed": gf.Limits(norm=FIXED), "learnt": gf.Limits(learnt_norm=LEARNT)}
METHODS = {"everything": "fedavg", "5% of the entries": "top-k:keep=0.05"}
ROWS = {
    "everything": [(name, "none") for name in STRATEGIES],
    "5% of the entries": [
        ("FedAvg", "fixed"),
        *((name, limit) for name in STRATEGIES for limit in ("none", "learnt") if (name, limit) != ("Krum", "learnt")),
    ],
}
"""What is sent → the strategies and limits that are measured."""


# --- attacks ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attack:
    """A lie of hostile clients: it takes the update that a client has learnt, its first one, and random numbers."""

    name: str
    lie: Callable[[Vector, Vector, np.random.Generator], Vector]


def _noise(honest: Vector, first: Vector, rng: np.random.Generator) -> Vector:
    direction = rng.standard_normal(honest.size).astype(np.float32)
    return direction * np.float32(100 * np.linalg.norm(honest) / np.linalg.norm(direction))


ATTACKS = [
    Attack("no attack", lambda honest, first, rng: honest),
    Attack("sign flipped, ten times", lambda honest, first, rng: -10 * honest),
    Attack("noise, a hundred times", _noise),
    Attack("constant drift, of usual size", lambda honest, first, rng: -first),
]
"""The drift always points back along what the client learnt in its first round: no single upload looks unusual."""


# --- a run ------------------------------------------------------------------------------------------------


@cache
def task_of(seed: int) -> Task:
    config = make_config(settings_of("logistic-mini"), {"task": "logistic-mini", "seed": seed, **SCHEME})
    return make_plan(config, None, lambda text: None).task


def app_with(task: Task, attack: Attack, seed: int, state_dir: Path, residuals: Residuals = "f32") -> ClientApp:
    """A ClientApp for ten clients, some of which lie."""
    app, first = ClientApp(mods=[gammafl.flower.compress(state_dir, residuals=residuals)]), dict[int, Vector]()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        number = int(message.content["config"]["server-round"])  # type: ignore[arg-type]
        model = message.content.array_records["arrays"]["model"].numpy()
        steps = np.full(LOCAL_STEPS, STEPSIZE, np.float32)
        local = next(iter(task.train([client], model, steps, [seeds.generator(seed, "batches", number, client)])))
        delta = local.delta.copy()
        if client in HOSTILE:
            known = first.setdefault(client, delta)
            delta = attack.lie(delta, known, seeds.generator(seed, "attack", number, client))
        record = ArrayRecord({"model": Array(np.asarray(model - delta, np.float32))})
        metrics = MetricRecord({"num-examples": 100, "loss": float(local.loss)})
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    return app


def accuracy(strategy: str, method: str, limits: gf.Limits, attack: Attack, rounds: int, seed: int) -> float:
    """The accuracy of the last model on the test set."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    task = task_of(seed)
    model = task.initial_model(seeds.generator(seed, "model"))
    with tempfile.TemporaryDirectory() as folder:
        chosen = gammafl.flower.Compressed(STRATEGIES[strategy](), method=METHODS[method], limits=limits)
        grid = InProcessGrid(app_with(task, attack, seed, Path(folder)), CLIENTS)
        grid.ends = True
        config = ConfigRecord({"lr": STEPSIZE})
        result = chosen.start(grid, ArrayRecord({"model": Array(model)}), rounds, train_config=config)
    assert result.arrays is not None
    return float(task.evaluate(np.asarray(result.arrays["model"].numpy(), np.float32)).metric)


# --- the table --------------------------------------------------------------------------------------------


def table(method: str, rounds: int, run_seeds: Sequence[int]) -> TextTable:
    """Accuracy by strategy, limits and attack: means over the seeds, and half of their 95% interval."""
    rows = []
    for strategy, limit in ROWS[method]:
        cells = []
        for attack in ATTACKS:
            found = [100 * accuracy(strategy, method, LIMITS[limit], attack, rounds, seed) for seed in run_seeds]
            one = interval(found)
            cells.append(f"{one.mean:.1f} ± {one.high - one.mean:.1f}")
        rows.append([strategy, limit, *cells])
    return TextTable(
        f"accuracy in percent, {method} sent: {len(HOSTILE)} of {CLIENTS} clients hostile, {rounds} rounds",
        ["strategy", "limits", *(attack.name for attack in ATTACKS)],
        rows,
        f"seeds {', '.join(map(str, run_seeds))}; ± half of the 95% interval; fixed: norm {FIXED:g}, learnt:"
        f" {LEARNT:g} times the median",
    )
