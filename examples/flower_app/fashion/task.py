"""Data, model and training, without Flower and without compression."""

from functools import cache

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gammafl.federated.partition import by_dirichlet
from gammafl.tasks.data.images import Array, Images, load_images

CONCENTRATION = 0.3
"""The concentration of the Dirichlet distribution of the classes: the smaller, the more clients differ."""


class Net(nn.Sequential):
    """A small convolutional network: 207,178 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10),
        )  # fmt: skip


@cache
def images(dataset: str) -> Images:
    return load_images(dataset, None, print)


def load_partition(dataset: str, partition: int, partitions: int) -> TensorDataset:
    """The training images of one client, which has many of some classes and few of others."""
    data = images(dataset)
    mine = by_dirichlet(data.train_labels, partitions, CONCENTRATION, np.random.default_rng(0))[partition]
    return _tensors(data.train[mine], data.train_labels[mine])


def load_test(dataset: str) -> TensorDataset:
    data = images(dataset)
    return _tensors(data.test, data.test_labels)


def _tensors(pixels: Array, labels: Array) -> TensorDataset:
    return TensorDataset((torch.from_numpy(pixels).float() / 255 - 0.286) / 0.353, torch.from_numpy(labels).long())


def train(model: nn.Module, data: TensorDataset, epochs: int, batch_size: int, lr: float) -> float:
    """The mean loss of the last epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(epochs):
        losses = []
        for x, y in DataLoader(data, batch_size, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return float(np.mean(losses))


@torch.no_grad()
def accuracy(model: nn.Module, data: TensorDataset) -> float:
    x, y = data.tensors
    return float((model(x).argmax(1) == y).float().mean())
