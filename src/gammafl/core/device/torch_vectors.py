"""Vectors on a device with plain operations of torch, for any backend. The whole vector is never sorted.

A pass has one synchronisation: the hits and their number are copied together, with room for a few more than expected.
There is a second one only if the room was too small. A backend without `nonzero_static` needs one more, to get the
number first.
"""

import math
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from gammafl.core.arrays import Positions, Vector
from gammafl.core.device import torch_largest
from gammafl.core.device.crossing import MOST, Crossing, magnitudes, to_device, to_host
from gammafl.core.device.vectors import DeviceVector, Found

SPARE = 1.25
"""The room for the next pass, as a multiple of the last pass's hits."""

FIRST = 64
"""The first pass has room for one in this number of elements."""

TELLS_NAN = {"cpu", "cuda", "xpu"}
"""Types of devices whose maximum is NaN if any element is NaN. The maximum of mps ignores NaN."""

AtOnce = Callable[[torch.Tensor, torch.Tensor, float, int], Crossing]
"""(delta, residual, threshold, room) → the hits of the fused pass."""


class Stage(threading.local):
    """Pinned memory of the host, to which a device copies directly: one for each thread."""

    memory: torch.Tensor | None = None

    def of(self, size: int) -> torch.Tensor:
        if self.memory is None or self.memory.numel() != size:
            self.memory = torch.empty(size, dtype=torch.float32, device="cpu", pin_memory=True)
        return self.memory


STAGE = Stage()


class TorchVector(DeviceVector):
    """A contiguous one-dimensional float32 tensor."""

    passes: AtOnce | None = None
    """A kernel for the fused pass, set by `triton_pass.use`. None: torch's operations."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self._found = tensor.numel() // FIRST
        """The number of hits in the last pass."""
        self._parts: dict[tuple[int, int, int], TorchVector] = {}
        """Slices that were used before: they know how much room they need."""

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "TorchVector":
        """A vector that shares the tensor's memory, if possible."""
        return cls(tensor.detach().to(torch.float32).contiguous())

    @property
    def size(self) -> int:
        return self.tensor.numel()

    def host(self) -> Vector:
        held = to_host(self.tensor)
        return held.copy() if self.tensor.device.type == "cpu" else held

    def staged(self) -> Vector:
        """A copy on the host; from CUDA through pinned memory."""
        if not self.tensor.is_cuda:
            return self.host()
        stage = STAGE.of(self.size)
        stage.copy_(self.tensor)  # waits for the device
        return stage.numpy()

    def copy(self) -> "TorchVector":
        return TorchVector(self.tensor.clone())

    def zeros(self) -> "TorchVector":
        return TorchVector(torch.zeros_like(self.tensor))

    def beside(self, values: Any) -> "TorchVector":
        if isinstance(values, TorchVector):
            return TorchVector(values.tensor.to(self.tensor.device))
        if isinstance(values, torch.Tensor):
            return TorchVector.of(values.to(self.tensor.device))
        return TorchVector.of(to_device(values, self.tensor.device))

    def __getitem__(self, where: Any) -> Any:
        if isinstance(where, slice):
            bounds = where.indices(self.size)
            if bounds not in self._parts:
                self._parts[bounds] = TorchVector(self.tensor[where])
            return self._parts[bounds]
        return to_host(self.tensor[self._positions(where)])

    def __setitem__(self, where: Any, values: Any) -> None:
        target = self.tensor[where] if isinstance(where, slice) else None
        if target is None:
            self.tensor[self._positions(where)] = self._values(values)
        elif isinstance(values, int | float):
            target.fill_(values)
        else:
            target.copy_(self._values(values))

    def __iadd__(self, other: Any) -> "TorchVector":
        self.tensor.add_(self._values(other))
        return self

    def __isub__(self, other: Any) -> "TorchVector":
        self.tensor.sub_(self._values(other))
        return self

    def largest_magnitude(self) -> float:
        return float(to_host(largest_of(self.tensor))) if self.size else 0.0

    def difference(self, before: Any, after: Any) -> float:
        torch.sub(before.tensor, after.tensor, out=self.tensor)
        return self.largest_magnitude()

    def subtract_scaled(self, where: Any, values: Vector, weight: float) -> None:
        step = self._values(values) * float(np.float32(weight))
        if isinstance(where, slice):
            self.tensor[where].sub_(step)
        else:
            positions = self._positions(where)
            self.tensor[positions] = self.tensor[positions] - step

    def clamp(self, most: float) -> None:
        self.tensor.clamp_(-most, most)

    def tensors(self, shapes: Iterable[tuple[int, ...]]) -> list[torch.Tensor]:
        shapes = list(shapes)
        parts = self.tensor.split([math.prod(shape) for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def add_and_take_above(self, delta: DeviceVector, threshold: float) -> Found:
        """In parts of at most `MOST` elements, since torch counts in 32 bits."""
        parts = [self._above(delta, threshold, start) for start in range(0, self.size, MOST)]
        return torch_largest.joined(parts)

    def _above(self, delta: DeviceVector, threshold: float, start: int) -> Found:
        assert isinstance(delta, TorchVector)
        residual, update = self.tensor[start : start + MOST], delta.tensor[start : start + MOST]
        limit, room = float(np.float32(threshold)), min(residual.numel(), int(SPARE * self._found) + FIRST)
        if TorchVector.passes is not None:
            crossing = TorchVector.passes(update, residual, limit, room)
        else:
            crossing = _add_and_look(update, residual, limit, room)
        indices, values = crossing.take_out(residual)
        self._found = len(indices)
        return indices + np.uint32(start), values

    def add_and_take_largest(self, delta: DeviceVector, k: int, key: int | None) -> Found:
        assert isinstance(delta, TorchVector)
        self.tensor.add_(delta.tensor)
        return torch_largest.take_largest(self.tensor, min(k, self.size), key)

    def _values(self, values: Any) -> Any:
        """The values in this vector's place. Numbers are returned unchanged."""
        if isinstance(values, TorchVector):
            return values.tensor
        return to_device(values, self.tensor.device) if np.ndim(values) else values

    def _positions(self, where: Positions) -> torch.Tensor:
        return to_device(np.asarray(where).astype(np.int64), self.tensor.device)


def _add_and_look(delta: torch.Tensor, residual: torch.Tensor, limit: float, room: int) -> Crossing:
    """residual ← residual + delta. The entries that exceed the limit are found, and stay in the residual."""
    residual.add_(delta)
    return Crossing.of(residual, magnitudes(residual) > _bits(limit), room)


def largest_of(tensor: torch.Tensor) -> torch.Tensor:
    """max |v_j|, on the device; infinite or NaN if any element is."""
    if tensor.device.type in TELLS_NAN:
        return torch.linalg.vector_norm(tensor, float("inf"))
    return magnitudes(tensor).amax().view(torch.float32)


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.int32))
