"""The interface of a vector on a device, for the rest of the package.

It is used like a float32 vector of numpy, as a residual or an update. Positions and values that it returns are numpy
arrays, copied to the host. It never turns into a numpy array by itself: only `host` copies all of it, so that no dense
copy is made by accident. Nothing here imports torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np

from gammafl.core.arrays import Positions, Vector
from gammafl.core.errors import InputError
from gammafl.core.inputs import STRIDED

HOST = {"cpu"}
"""Types of torch's devices whose tensors are in the host's memory: numpy and compiled loops can read them."""

NOWHERE = "meta"
"""The type of torch's device that holds no data."""

Found = tuple[Positions, Vector]


class DeviceVector(ABC):
    """A float32 vector on a device."""

    @property
    @abstractmethod
    def size(self) -> int: ...

    @property
    def shape(self) -> tuple[int]:
        return (self.size,)

    @abstractmethod
    def host(self) -> Vector:
        """The whole vector, copied to the host."""

    def staged(self) -> Vector:
        """As `host`, but valid only until the next call, which uses the same memory again."""
        return self.host()

    @abstractmethod
    def copy(self) -> "DeviceVector": ...

    @abstractmethod
    def zeros(self) -> "DeviceVector":
        """A vector of zeros with the same length and place."""

    @abstractmethod
    def beside(self, values: Any) -> "DeviceVector":
        """These values in the place of this vector."""

    @abstractmethod
    def __getitem__(self, where: Any) -> Any:
        """A slice is a part of this vector and shares its memory. Values at positions are copied to the host."""

    @abstractmethod
    def __setitem__(self, where: Any, values: Any) -> None: ...

    @abstractmethod
    def __iadd__(self, other: Any) -> "DeviceVector": ...

    @abstractmethod
    def __isub__(self, other: Any) -> "DeviceVector": ...

    @abstractmethod
    def largest_magnitude(self) -> float:
        """max |v_j|, 0 for an empty vector; infinite or NaN if any element is."""

    @abstractmethod
    def difference(self, before: Any, after: Any) -> float:
        """self ← before − after, for vectors in the same place. Returns `largest_magnitude`."""

    @abstractmethod
    def subtract_scaled(self, where: Any, values: Vector, weight: float) -> None:
        """self[where] ← self[where] − weight · values, rounded as in `kernels.subtract_scaled`."""

    @abstractmethod
    def clamp(self, most: float) -> None:
        """Sets elements outside ±`most` to this limit."""

    @abstractmethod
    def tensors(self, shapes: Iterable[tuple[int, ...]]) -> list[Any]:
        """Consecutive tensors of these shapes that share this vector's memory."""

    @abstractmethod
    def add_and_take_above(self, delta: "DeviceVector", threshold: float) -> Found:
        """As `kernels.add_and_take_above` with this vector as the residual: the same positions and values."""

    @abstractmethod
    def add_and_take_largest(self, delta: "DeviceVector", k: int, key: int | None) -> Found:
        """As `largest.add_and_take_largest` with this vector as the residual: the same positions and values."""


def on_host(vector: Any) -> Vector:
    """The vector as a numpy array: a copy if it was on a device."""
    return vector if isinstance(vector, np.ndarray) else vector.host()


def zeros_like(vector: Any) -> Any:
    """A vector of zeros with the same length and place."""
    return vector.zeros() if isinstance(vector, DeviceVector) else np.zeros_like(vector)


def is_on_device(value: Any) -> bool:
    """Whether `value` is a vector on a device, or a tensor of torch's that numpy can't read."""
    if isinstance(value, np.ndarray):  # the usual case, and faster than a check for DeviceVector
        return False
    if isinstance(value, DeviceVector):
        return True
    if not hasattr(value, "detach") or str(value.layout) != STRIDED:
        return False
    return value.device.type not in {*HOST, NOWHERE}


def vector_on(value: Any, name: str) -> DeviceVector:
    """A tensor as a vector on its device. It shares the tensor's memory if that is contiguous float32."""
    if isinstance(value, DeviceVector):
        return value
    from gammafl.core.device.torch_vectors import TorchVector  # torch is installed, since the value is its tensor

    if value.dim() != 1 or not value.is_floating_point():
        raise InputError(
            f"{name} must be a vector of floats, got {value.dtype} of shape {tuple(value.shape)} on {value.device}"
        )
    return TorchVector.of(value)
