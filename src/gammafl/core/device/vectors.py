"""What the rest of the house may ask of a vector that lives on a device.

It stands where a float32 vector of numpy stands, as a residual or an update. Positions and values that it hands out are
numpy's: they have crossed to the host. It never becomes an array of numpy by itself: `host` is the only way for all of
it, so that no dense copy is made unless somebody asks for one. Nothing here needs torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np

from gammafl.core.arrays import Positions, Vector
from gammafl.core.errors import InputError
from gammafl.core.inputs import STRIDED

HOST = {"cpu"}
"""Types of torch's devices whose tensors are the host's own memory, which numpy and compiled loops read as they are."""

NOWHERE = "meta"
"""The type of torch's device that holds nothing."""

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
        """All of it, copied to the host."""

    def staged(self) -> Vector:
        """The same for a moment: valid until the next call, so that its memory can be used again."""
        return self.host()

    @abstractmethod
    def copy(self) -> "DeviceVector": ...

    @abstractmethod
    def zeros(self) -> "DeviceVector":
        """As many zeros in the same place."""

    @abstractmethod
    def beside(self, values: Any) -> "DeviceVector":
        """These values, wherever they are, in the same place as this vector."""

    @abstractmethod
    def __getitem__(self, where: Any) -> Any:
        """A slice is a part of this vector, and shares its memory; what is at positions crosses to the host."""

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
        """self ← before − after, vectors in the same place; returns `largest_magnitude`."""

    @abstractmethod
    def subtract_scaled(self, where: Any, values: Vector, weight: float) -> None:
        """self[where] ← self[where] − weight · values, with the roundings of `kernels.subtract_scaled`."""

    @abstractmethod
    def clamp(self, most: float) -> None:
        """Sets elements beyond ±`most` to it."""

    @abstractmethod
    def tensors(self, shapes: Iterable[tuple[int, ...]]) -> list[Any]:
        """Tensors of these shapes, one after the other, that share this vector's memory."""

    @abstractmethod
    def add_and_take_above(self, delta: "DeviceVector", threshold: float) -> Found:
        """`kernels.add_and_take_above`, where this vector is the residual: the same positions and values."""

    @abstractmethod
    def add_and_take_largest(self, delta: "DeviceVector", k: int, key: int | None) -> Found:
        """`largest.add_and_take_largest`, where this vector is the residual: the same positions and values."""


def on_host(vector: Any) -> Vector:
    """The vector as numpy's: a copy if it was on a device."""
    return vector if isinstance(vector, np.ndarray) else vector.host()


def zeros_like(vector: Any) -> Any:
    """As many zeros where the vector is."""
    return vector.zeros() if isinstance(vector, DeviceVector) else np.zeros_like(vector)


def is_on_device(value: Any) -> bool:
    """Whether it is a vector on a device, or a tensor of torch's that numpy can't read where it is."""
    if isinstance(value, np.ndarray):  # the usual case, and this takes less time than to ask for a DeviceVector
        return False
    if isinstance(value, DeviceVector):
        return True
    if not hasattr(value, "detach") or str(value.layout) != STRIDED:
        return False
    return value.device.type not in {*HOST, NOWHERE}


def vector_on(value: Any, name: str) -> DeviceVector:
    """A tensor as a vector on its device, which shares its memory if it is contiguous and of float32."""
    if isinstance(value, DeviceVector):
        return value
    from gammafl.core.device.torch_vectors import TorchVector  # torch is there: the value is a tensor of its

    if value.dim() != 1 or not value.is_floating_point():
        raise InputError(
            f"{name} must be a vector of floats, got {value.dtype} of shape {tuple(value.shape)} on {value.device}"
        )
    return TorchVector.of(value)
