"""Samples that are fetched a batch at a time: no Python per sample for data that is held as arrays."""

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, TensorDataset, default_collate

from gammafl.core.errors import InputError

Batch = tuple[torch.Tensor, torch.Tensor]
Indices = NDArray[np.int64]
Transform = Callable[[torch.Tensor], torch.Tensor]


class Samples(Protocol):
    """A client's data, or the test set."""

    def __len__(self) -> int: ...

    def batch(self, indices: Indices) -> Batch:
        """(inputs, targets) of these samples."""
        ...


class ImageSamples:
    """Images as one uint8 array [N, channels, height, width], normalised a batch at a time.

    `chosen` are the rows that belong to this client; the array itself is shared by all clients.
    """

    def __init__(
        self,
        images: NDArray[np.uint8],
        labels: NDArray[np.uint8],
        normalise: Transform,
        chosen: Indices | None = None,
        augment: Transform | None = None,
    ) -> None:
        self.images = _shared(images)
        self.labels = _shared(labels)
        self.augment = augment
        self.normalise = normalise
        self.chosen = np.arange(len(labels)) if chosen is None else chosen

    def __len__(self) -> int:
        return len(self.chosen)

    def batch(self, indices: Indices) -> Batch:
        rows = torch.from_numpy(self.chosen[indices])
        images = self.images[rows]
        if self.augment is not None:
            images = self.augment(images)
        # Channels last is what convolutions on a CPU are fastest with.
        return self.normalise(images).contiguous(memory_format=torch.channels_last), self.labels[rows].long()


def _shared(array: NDArray[np.uint8]) -> torch.Tensor:
    """A tensor on the array's own memory, which may be read-only: samples are only ever read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


class TensorSamples:
    """A `TensorDataset` of inputs and targets."""

    def __init__(self, dataset: TensorDataset) -> None:
        self.inputs, self.targets = dataset.tensors

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, indices: Indices) -> Batch:
        rows = torch.from_numpy(indices)
        return self.inputs[rows], self.targets[rows]


class DatasetSamples:
    """Any torch dataset with a length, asked for one item at a time (so that its transforms stay random)."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, indices: Indices) -> Batch:
        items = [self.dataset[int(i)] for i in indices]
        if not (isinstance(items[0], tuple | list) and len(items[0]) == 2):
            raise InputError(f"an item of a data set must be a pair (input, target), got {type(items[0]).__name__}")
        inputs, targets = default_collate(items)
        return inputs, targets


def as_samples(dataset: Dataset[Any], name: str) -> Samples:
    """`dataset` as samples; one without a length, or empty, is refused by `name`."""
    length = len(dataset) if hasattr(dataset, "__len__") else 0
    if length == 0:
        raise InputError(f"{name} must be a torch dataset with a length and at least one sample")
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) == 2:
        return TensorSamples(dataset)
    return DatasetSamples(dataset)
