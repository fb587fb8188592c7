"""Samples on a device. Arrays are copied there once, and batches are made there."""

from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset

from gammafl.tasks.nested import mapped
from gammafl.tasks.samples import Batch, ImageSamples, Indices, Samples, TensorSamples


class PlacedSamples:
    """Any samples. A batch is made on the host, then copied."""

    def __init__(self, samples: Samples, device: torch.device) -> None:
        self._samples, self._device = samples, device
        self.batch_by_batch = getattr(samples, "batch_by_batch", False)

    def __len__(self) -> int:
        return len(self._samples)

    def batch(self, indices: Indices) -> Batch:
        inputs, targets = mapped(lambda tensor: tensor.to(self._device), self._samples.batch(indices))
        return inputs, targets


class PlacedImages:
    """Images as bytes on the device, which normalises them."""

    def __init__(self, samples: ImageSamples, images: torch.Tensor, labels: torch.Tensor) -> None:
        self._chosen, self._images, self._labels = samples.chosen, images, labels
        shape = (-1, 1, 1)
        self._scale = torch.from_numpy(samples.normalise.scale).to(images.device).reshape(shape)
        self._shift = torch.from_numpy(samples.normalise.shift).to(images.device).reshape(shape)

    def __len__(self) -> int:
        return len(self._chosen)

    def batch(self, indices: Indices) -> Batch:
        rows = torch.from_numpy(self._chosen[indices]).to(self._images.device)
        return self._images[rows].float() * self._scale - self._shift, self._labels[rows]


class Placement:
    """Samples → the same samples on a device. Arrays that clients share are copied once.

    It keeps the arrays that it has copied, so that no other object gets their id.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._made: dict[int, tuple[TensorSamples, PlacedSamples]] = {}
        self._arrays: dict[int, tuple[Any, torch.Tensor, torch.Tensor]] = {}

    def of(self, samples: Samples) -> Samples:
        if isinstance(samples, ImageSamples) and samples.augment is None:
            return self._images(samples)
        if not isinstance(samples, TensorSamples):
            return PlacedSamples(samples, self._device)
        if id(samples) not in self._made:
            there = TensorDataset(samples.inputs.to(self._device), samples.targets.to(self._device))
            self._made[id(samples)] = samples, PlacedSamples(TensorSamples(there), self._device)
        return self._made[id(samples)][1]

    def _images(self, samples: ImageSamples) -> PlacedImages:
        if id(samples.images) not in self._arrays:
            images, labels = torch.from_numpy(samples.images), torch.from_numpy(samples.labels.astype(np.int64))
            self._arrays[id(samples.images)] = samples.images, images.to(self._device), labels.to(self._device)
        _, images, labels = self._arrays[id(samples.images)]
        return PlacedImages(samples, images, labels)
