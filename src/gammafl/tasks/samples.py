"""Samples that are fetched a batch at a time: no Python per sample for data that is held as arrays."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from gammafl.core.arrays import Vector
from gammafl.core.errors import InputError, require
from gammafl.core.jit import compiled

Batch = tuple[torch.Tensor, torch.Tensor]
Indices = NDArray[np.int64]
Transform = Callable[[torch.Tensor], torch.Tensor]

NUMBERS = (torch.Tensor, np.ndarray, np.number, np.bool_, int, float)
"""What an input or a target of a sample may be."""


@dataclass(frozen=True)
class Table:
    """Samples as rows of plain arrays, for code that takes them apart itself: input · scale − shift, and a class.

    A row is one channel after another, with a scale and a shift each. `rows` are those of this client, None for all; an
    array may be shared by many clients.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.integer]
    rows: Indices | None
    scale: Vector
    shift: Vector

    @cached_property
    def arrays(self) -> tuple[int, int, int]:
        """Equal for tables with the same inputs and labels in memory."""
        return self.inputs.ctypes.data, self.labels.ctypes.data, len(self.inputs)


class Samples(Protocol):
    """A client's data, or the test set."""

    def __len__(self) -> int: ...

    def batch(self, indices: Indices) -> Batch:
        """(inputs, targets) of these samples."""
        ...


@dataclass(frozen=True, eq=False)
class Normaliser:
    """uint8 → value · scale − shift, a scale and a shift for each channel."""

    scale: Vector
    shift: Vector

    def __call__(self, images: NDArray[np.uint8], rows: Indices) -> torch.Tensor:
        """These rows of [N, channels, height, width], each image in memory as [height, width, channels].

        That is torch's "channels last", which convolutions on a CPU are fastest with.
        """
        count, (channels, height, width) = len(rows), images.shape[1:]
        batch = torch.empty(count, height, width, channels)
        out = batch.numpy()
        planes = images.reshape(len(images), channels, -1)
        if channels == 1:
            _normalise_grey(planes[:, 0], rows, self.scale[0], self.shift[0], out.reshape(count, -1))
        else:
            _normalise(planes, rows, self.scale, self.shift, out.reshape(count, -1, channels))
        return batch.permute(0, 3, 1, 2)


@compiled
def _normalise(images: Any, rows: Any, scale: Any, shift: Any, out: Any) -> None:
    for i in range(rows.size):
        image, to = images[rows[i]], out[i]
        for channel in range(scale.size):
            for j in range(image.shape[1]):
                to[j, channel] = np.float32(image[channel, j]) * scale[channel] - shift[channel]


@compiled
def _normalise_grey(images: Any, rows: Any, scale: Any, shift: Any, out: Any) -> None:
    """The same for one channel, where neighbours stay neighbours and several are done at a time."""
    for i in range(rows.size):
        image, to = images[rows[i]], out[i]
        for j in range(image.size):
            to[j] = np.float32(image[j]) * scale - shift


class ImageSamples:
    """Images as one uint8 array [N, channels, height, width], normalised a batch at a time.

    `chosen` are the rows that belong to this client; the array itself is shared by all clients.
    """

    def __init__(
        self,
        images: NDArray[np.uint8],
        labels: NDArray[np.uint8],
        normalise: Normaliser,
        chosen: Indices | None = None,
        augment: Transform | None = None,
    ) -> None:
        self.images = np.ascontiguousarray(images)
        self.labels = labels
        self.augment = augment
        self.normalise = normalise
        self.chosen = np.arange(len(labels), dtype=np.int64) if chosen is None else chosen

    def __len__(self) -> int:
        return len(self.chosen)

    def batch(self, indices: Indices) -> Batch:
        rows = self.chosen[indices]
        labels = torch.from_numpy(self.labels[rows].astype(np.int64))
        if self.augment is None:
            return self.normalise(self.images, rows), labels
        images = self.augment(torch.from_numpy(self.images[rows]))
        return self.normalise(images.contiguous().numpy(), np.arange(len(rows))), labels

    def table(self) -> Table | None:
        """The bytes; none where they are changed at random before they are used."""
        if self.augment is not None:
            return None
        rows, normalise = self.images.reshape(len(self.images), -1), self.normalise
        return Table(rows, self.labels, self.chosen, normalise.scale, normalise.shift)


class ImageShards(Sequence[ImageSamples]):
    """The clients' samples, made when a client is asked for: a client that never takes part costs its row numbers."""

    def __init__(
        self,
        images: NDArray[np.uint8],
        labels: NDArray[np.uint8],
        normalise: Normaliser,
        shards: Sequence[Indices],
        augment: Transform | None = None,
    ) -> None:
        self._data = np.ascontiguousarray(images), labels, normalise
        self._augment = augment
        self._rows = np.concatenate(shards).astype(np.int64, copy=False)
        self._bounds = np.cumsum([0, *map(len, shards)])

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, client: int) -> ImageSamples: ...

    @overload
    def __getitem__(self, client: slice) -> list[ImageSamples]: ...

    def __getitem__(self, client: int | slice) -> ImageSamples | list[ImageSamples]:
        if isinstance(client, slice):
            return [self[i] for i in range(len(self))[client]]
        start, stop = self._bounds[range(len(self))[client] :][:2]
        return ImageSamples(*self._data, self._rows[start:stop], self._augment)


class TensorSamples:
    """A `TensorDataset` of inputs and targets."""

    def __init__(self, dataset: TensorDataset) -> None:
        self.inputs, self.targets = dataset.tensors

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, indices: Indices) -> Batch:
        rows = torch.from_numpy(indices)
        return self.inputs[rows], self.targets[rows]

    def table(self) -> Table | None:
        """The tensors, where they are numbers and classes."""
        if self.inputs.dtype != torch.float32 or self.targets.dtype != torch.int64 or self.targets.dim() != 1:
            return None
        inputs = self.inputs.flatten(1).contiguous().numpy()
        return Table(inputs, self.targets.numpy(), None, np.ones(1, np.float32), np.zeros(1, np.float32))


class DatasetSamples:
    """Any torch dataset with a length, asked for one item at a time (so that its transforms stay random)."""

    def __init__(self, dataset: Any, name: str) -> None:
        self.dataset = dataset
        self.name = name

    def __len__(self) -> int:
        return len(self.dataset)

    def batch(self, indices: Indices) -> Batch:
        items = [self.dataset[int(i)] for i in indices]
        for row, item in zip(indices, items, strict=True):
            _refuse_no_pair(f"{self.name}[{row}]", item)
            for part, one, other in zip(("input", "target"), items[0], item, strict=True):
                if np.shape(one) != np.shape(other):
                    raise InputError(
                        f"the {part}s of {self.name}[{indices[0]}] and {self.name}[{row}] have shapes"
                        f" {list(np.shape(one))} and {list(np.shape(other))}: make them alike, as by padding"
                    )
        inputs, targets = default_collate(items)
        return inputs, targets


def _refuse_no_pair(name: str, item: Any) -> None:
    if isinstance(item, torch.Tensor):
        hint = "TensorDataset(inputs, targets) makes pairs of two tensors"
        raise InputError(f"samples must be pairs (input, target), but {name} is a Tensor: {hint}")
    if not (isinstance(item, tuple | list) and len(item) == 2):
        got = f"{_kind(item)} of {len(item)}" if isinstance(item, tuple | list) else _kind(item)
        raise InputError(f"samples must be pairs (input, target), but {name} is {got}: let the data set make a pair")
    for part, value in zip(("input", "target"), item, strict=True):
        if not isinstance(value, NUMBERS):
            raise InputError(
                f"samples must be pairs (input tensor, target), but {name} has {_kind(value)} as {part}: let the data"
                " set make one tensor of it, which the module can take apart"
            )


def _kind(value: Any) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def as_samples(dataset: Any, name: str) -> Samples:
    """`dataset` as samples; what can't be asked for a sample by its number, or has none, is refused by `name`."""
    if isinstance(dataset, DataLoader):
        raise InputError(f"{name} is a DataLoader: give its .dataset; batch_size= sets the batch")
    by_number = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if not by_number or isinstance(dataset, IterableDataset | Mapping):
        raise InputError(
            f"{name} is {_kind(dataset)}: give a data set with a length whose samples can be asked for by number, such"
            " as a torch.utils.data.Dataset with __len__ and __getitem__, or a list of pairs"
        )
    require(len(dataset) > 0, f"{name} is empty: give it at least one sample, or leave it out")
    plain = isinstance(dataset, TensorDataset) and type(dataset).__getitem__ is TensorDataset.__getitem__
    return TensorSamples(dataset) if plain and len(dataset.tensors) == 2 else DatasetSamples(dataset, name)


def all_samples(client_datasets: Iterable[Any], test_dataset: Any) -> tuple[list[Samples], Samples]:
    """The clients' samples and the test set; what is wrong with every sample is said before anybody trains."""
    if isinstance(client_datasets, Dataset | DataLoader):
        raise InputError(
            f"client_datasets is {_kind(client_datasets)}: give a list with a data set for each client, such as"
            " torch.utils.data.random_split makes"
        )
    clients = [as_samples(dataset, f"client_datasets[{i}]") for i, dataset in enumerate(client_datasets)]
    require(bool(clients), "client_datasets is empty: give a data set for each client")
    test = as_samples(test_dataset, "test_dataset")
    with torch.random.fork_rng(devices=[]):
        for samples in (clients[0], test):
            samples.batch(np.zeros(1, np.int64))
    return clients, test
