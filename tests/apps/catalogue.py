"""The apps, each in the pattern of a public one."""

from collections.abc import Iterable
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAdam, FedAvg, Result
from torch import nn

from tests.apps.app import App, Score
from tests.apps.data import CLIENTS, images, images_by_class, sentences
from tests.apps.lion import Lion
from tests.apps.models import Adapters, Embedding, convolutional, normalised, perceptron


def momentum(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


def plain(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr)


def adamw(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=lr)


class OwnStart(FedAvg):
    """A loop of its own that remembers the best model, and a learning rate that is halved every ten rounds."""

    best: tuple[float, int] | None = None

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if server_round % 10 == 0:
            config["lr"] = float(str(config["lr"])) * 0.5
        return super().configure_train(server_round, arrays, config, grid)

    def start(  # type: ignore[override]
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int, train_config: ConfigRecord, evaluate_fn: Score
    ) -> Result:
        result, arrays = Result(), initial_arrays
        if (scored := evaluate_fn(0, arrays)) is not None:
            result.evaluate_metrics_serverapp[0] = scored
        for number in range(1, num_rounds + 1):
            replies = grid.send_and_receive(self.configure_train(number, arrays, train_config, grid))
            aggregated, metrics = self.aggregate_train(number, replies)
            if aggregated is not None:
                result.arrays = arrays = aggregated
            if metrics is not None:
                result.train_metrics_clientapp[number] = metrics
            if (scored := evaluate_fn(number, arrays)) is not None:
                result.evaluate_metrics_serverapp[number] = scored
                self.best = max(self.best or (0.0, 0), (float(str(scored["accuracy"])), number))
        return result


def own_start() -> FedAvg:
    return OwnStart(fraction_evaluate=0.0)


def private() -> Any:
    """Noise of 2·10⁻⁴ an element and round, which the training bears."""
    inner = FedAvg(fraction_evaluate=0.0)
    return DifferentialPrivacyServerSideFixedClipping(inner, 4e-4, 2.0, CLIENTS)


def fedadam() -> FedAdam:
    return FedAdam(fraction_evaluate=0.0, eta=0.01)


def evaluating() -> FedAvg:
    return FedAvg(fraction_evaluate=1.0)


_APPS = (
    App("sgd-momentum", "quickstart-pytorch", "SGD 0.1, momentum 0.9", convolutional, images, momentum, 0.1),
    App("adamw-5e-5", "quickstart-huggingface", "AdamW 5e-5", Embedding, sentences, adamw, 5e-5, lr_in_config=False,
        steps=10),
    App("adamw-1e-2", "a large rate", "AdamW 1e-2", perceptron, images, adamw, 1e-2),
    App("adamw-one-step", "FedSGD", "AdamW 1e-3, one local step", perceptron, images, adamw, 1e-3, steps=1),
    App("lion", "equal magnitudes", "Lion 3e-4", perceptron, images, Lion, 3e-4, lr_in_config=False),
    App("lora", "flowertune", "AdamW 1e-3, LoRA", Adapters, sentences, adamw, 1e-3),
    App("batch-norm", "BatchNorm", "SGD 0.02, momentum 0.9", normalised, images, momentum, 0.02),
    App("own-start", "advanced-pytorch", "SGD 0.1, halved", convolutional, images_by_class, momentum, 0.1,
        strategy=own_start),
    App("dp", "central DP", "SGD 0.1", perceptron, images, plain, 0.1, strategy=private, linear=False),
    App("fedadam", "FedAdam", "SGD 0.05", perceptron, images, plain, 0.05, strategy=fedadam, linear=False),
    App("evaluate", "evaluate functions", "SGD 0.1", perceptron, images, plain, 0.1, lr_in_config=False,
        strategy=evaluating),
)  # fmt: skip
APPS = {app.name: app for app in _APPS}
