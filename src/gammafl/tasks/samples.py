"""Samples that are read batch by batch. For data in arrays, no Python code runs per sample."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from gammafl.core.arrays import Vector
from gammafl.core.jit import compiled
from gammafl.tasks.nested import Nested, rows_of

Batch = tuple[Nested, Nested]
"""(inputs, targets)."""

Indices = NDArray[np.int64]
Transform = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Table:
    """Samples as rows of plain arrays, for code that reads them itself: input = row · scale − shift, and a class.

    A row has one channel after another; each has a scale and a shift. `rows` are this client's row numbers, None for
    all. Many clients may share an array.
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


def batches(samples: Samples, indices: Indices, count: int) -> list[Batch]:
    """`count` batches of equal size: read together, unless a collate function must make each batch."""
    if getattr(samples, "batch_by_batch", False):
        return [samples.batch(part) for part in indices.reshape(count, -1)]
    together, size = samples.batch(indices), len(indices) // count
    shares = (slice(number * size, (number + 1) * size) for number in range(count))
    return [(rows_of(together[0], share), rows_of(together[1], share)) for share in shares]


@dataclass(frozen=True, eq=False)
class Normaliser:
    """uint8 → value · scale − shift, with a scale and a shift for each channel."""

    scale: Vector
    shift: Vector

    def __call__(self, images: NDArray[np.uint8], rows: Indices) -> torch.Tensor:
        """These rows of [N, channels, height, width], each image in memory as [height, width, channels].

        That is torch's "channels last", with which convolutions on a CPU are fastest.
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
    """The same for one channel. Neighbours stay neighbours, so the compiler vectorises it."""
    for i in range(rows.size):
        image, to = images[rows[i]], out[i]
        for j in range(image.size):
            to[j] = np.float32(image[j]) * scale - shift


class ImageSamples:
    """Images as one uint8 array [N, channels, height, width], normalised batch by batch.

    `chosen` are this client's row numbers. All clients share the array.
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
        """The bytes as a table; None if they are changed at random before use."""
        if self.augment is not None:
            return None
        rows, normalise = self.images.reshape(len(self.images), -1), self.normalise
        return Table(rows, self.labels, self.chosen, normalise.scale, normalise.shift)


class ImageShards(Sequence[ImageSamples]):
    """The clients' samples, made when a client takes part. Others need memory only for their row numbers."""

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
        rows = torch.from_numpy(indices).to(self.inputs.device)
        return self.inputs[rows], self.targets[rows]

    def table(self) -> Table | None:
        """The tensors as a table, if they are numbers and classes."""
        if self.inputs.dtype != torch.float32 or self.targets.dtype != torch.int64 or self.targets.dim() != 1:
            return None
        inputs = self.inputs.flatten(1).contiguous().numpy()
        return Table(inputs, self.targets.numpy(), None, np.ones(1, np.float32), np.zeros(1, np.float32))
