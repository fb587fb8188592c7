"""A Flower app in the pattern of the public ones: what it is made of, its ClientApp and its ServerApp's main.

The two lines that gammafl asks for are a switch in each: `mods` of the ClientApp, and `Compressed` around the strategy.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from torch import Tensor, nn

import gammafl as gf
import gammafl.flower
from tests.apps.data import Data
from tests.apps.models import load_state, state_of

Optimizer = Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]
Score = Callable[[int, ArrayRecord], MetricRecord | None]
"""Flower's evaluate_fn: (round, model) → metrics."""

BATCH = 32


def fedavg() -> Strategy:
    return FedAvg(fraction_evaluate=0.0)


@dataclass(frozen=True)
class App:
    """What distinguishes one app from another; `like` is the public app that has this pattern."""

    name: str
    like: str
    trains: str
    model: Callable[[], nn.Module]
    data: Callable[[int], Data]
    optimizer: Optimizer
    lr: float
    lr_in_config: bool = True
    """Whether the server sends the learning rate; otherwise it stands in the client's code."""

    steps: int = 5
    """Local steps a round."""

    strategy: Callable[[], Strategy] = fedavg
    linear: bool = True
    """Whether the strategy adds up what it is handed, so that nothing may be missing in the model."""

    def scaled(self, factor: float) -> "App":
        return replace(self, lr=self.lr * factor)

    def seeded_model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return self.model()


# --- the client ---------------------------------------------------------------------------------------------


def client_app(app: App, seed: int, state_dir: Path | None, inner: Iterable[Any] = ()) -> ClientApp:
    """The app's ClientApp; with a `state_dir` it has our line. `inner` mods see what the functions see."""
    ours = [] if state_dir is None else [gammafl.flower.compress(state_dir)]
    client, model, data = ClientApp(mods=[*ours, *inner]), app.seeded_model(seed), app.data(seed)

    @client.train()
    def train(message: Message, context: Context) -> Message:
        config, partition = message.content.config_records["config"], int(context.node_config["partition-id"])
        load_state(model, message.content.array_records["arrays"].to_torch_state_dict())
        lr = float(str(config["lr"])) if app.lr_in_config else app.lr
        draws = np.random.default_rng([seed, int(str(config["server-round"])), partition])
        inputs, labels = data.clients[partition]
        loss = fit(model, app.optimizer(trainable(model), lr), batches(inputs, labels, app.steps, draws))
        metrics = MetricRecord({"train_loss": loss, "num-examples": len(labels)})
        content = RecordDict({"arrays": ArrayRecord(state_of(model)), "metrics": metrics})
        return Message(content, reply_to=message)

    @client.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        load_state(model, message.content.array_records["arrays"].to_torch_state_dict())
        inputs, labels = data.clients[int(context.node_config["partition-id"])]
        loss, accuracy = test(model, inputs[:200], labels[:200])
        metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": 200})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return client


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def batches(inputs: Tensor, labels: Tensor, steps: int, draws: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    for _ in range(steps):
        chosen = torch.from_numpy(draws.choice(len(labels), BATCH, replace=False))
        yield inputs[chosen], labels[chosen]


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, found: Iterable[tuple[Tensor, Tensor]]) -> float:
    model.train()
    losses = []
    for inputs, labels in found:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return float(np.mean(losses))


@torch.no_grad()
def test(model: nn.Module, inputs: Tensor, labels: Tensor) -> tuple[float, float]:
    """Loss and accuracy."""
    model.eval()
    outputs = torch.cat([model(part) for part in inputs.split(500)])
    return nn.functional.cross_entropy(outputs, labels).item(), (outputs.argmax(1) == labels).float().mean().item()


# --- the server ---------------------------------------------------------------------------------------------


def initial_arrays(app: App, seed: int) -> ArrayRecord:
    return ArrayRecord(state_of(app.seeded_model(seed)))


def serve(
    app: App, grid: Grid, seed: int, rounds: int, method: str | gf.Method | None, score: Score | None = None
) -> tuple[Result, Strategy]:
    """The main of the app's ServerApp; with a `method` it has our line."""
    strategy = app.strategy()
    if method is not None:
        strategy = gammafl.flower.Compressed(strategy, method=method)
    result = strategy.start(
        grid=grid,
        initial_arrays=initial_arrays(app, seed),
        num_rounds=rounds,
        train_config=ConfigRecord({"lr": app.lr}) if app.lr_in_config else ConfigRecord(),
        evaluate_fn=score,
    )
    return result, strategy


def server_test(app: App, seed: int) -> Score:
    """The app's evaluate_fn: loss and accuracy on the test data, and the loss on some of the clients' data."""
    model, data = app.seeded_model(seed), app.data(seed)
    inputs, labels = (torch.cat([part[:250] for part in parts]) for parts in zip(*data.clients, strict=True))

    def score(number: int, arrays: ArrayRecord) -> MetricRecord:
        load_state(model, arrays.to_torch_state_dict())
        loss, accuracy = test(model, *data.test)
        return MetricRecord({"loss": loss, "accuracy": accuracy, "train_loss": test(model, inputs, labels)[0]})

    return score
