"""The data of the apps: images that come with the package, and sentences of made-up words."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from gammafl.tasks.data.images import fashion_mnist_mini

CLIENTS = 4
VOCABULARY, LENGTH = 800, 16
FREQUENCIES = 1 / np.arange(3, VOCABULARY + 3)
FREQUENCIES /= FREQUENCIES.sum()
MOODS = np.random.default_rng(0).choice([-1.0, 1.0], VOCABULARY)
"""Of each word."""


@dataclass(frozen=True)
class Data:
    """Inputs and labels of each client, and of the test."""

    clients: tuple[tuple[Tensor, Tensor], ...]
    test: tuple[Tensor, Tensor]


@cache
def images(seed: int) -> Data:
    """Fashion-MNIST's 5000 small images, dealt out to the clients."""
    found = fashion_mnist_mini()
    train, test = (torch.from_numpy(part).float().div(255).sub(0.3).div(0.35) for part in (found.train, found.test))
    labels, test_labels = (torch.from_numpy(part).long() for part in (found.train_labels, found.test_labels))
    return dealt(train, labels, (test[:1000], test_labels[:1000]), seed)


@cache
def images_by_class(seed: int) -> Data:
    """The same, where each client has mostly images of some classes."""
    whole = images(seed)
    inputs, labels = (torch.cat(parts) for parts in zip(*whole.clients, strict=True))
    mixed = labels + torch.from_numpy(np.random.default_rng([seed, 1]).normal(0, 2, len(labels)))
    return Data(tuple((inputs[part], labels[part]) for part in mixed.argsort().chunk(CLIENTS)), whole.test)


@cache
def sentences(seed: int) -> Data:
    """Each word has a mood, few words are frequent, and the label is the mood of the sentence."""
    rng = np.random.default_rng([seed, 2])
    words = rng.choice(VOCABULARY, size=(5000, LENGTH), p=FREQUENCIES)
    labels = (MOODS[words] - MOODS @ FREQUENCIES).sum(1) + rng.normal(0, 0.5, len(words)) > 0
    inputs, targets = torch.from_numpy(words).long(), torch.from_numpy(labels).long()
    return dealt(inputs[:4000], targets[:4000], (inputs[4000:], targets[4000:]), seed)


def dealt(inputs: Tensor, labels: Tensor, test: tuple[Tensor, Tensor], seed: int) -> Data:
    order = torch.from_numpy(np.random.default_rng([seed, 3]).permutation(len(labels)))
    return Data(tuple((inputs[part], labels[part]) for part in order.chunk(CLIENTS)), test)
