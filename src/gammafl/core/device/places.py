"""Where vectors are made: on the host, or on a device of torch's."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gammafl.core.device.vectors import DeviceVector, is_on_device, on_host
from gammafl.core.errors import InputError, not_installed, require
from gammafl.core.method import Method


@dataclass(frozen=True)
class Place:
    """`device` is torch's; None: the host's own memory."""

    device: Any = None

    @property
    def is_host(self) -> bool:
        return self.device is None

    def __str__(self) -> str:
        return "the host" if self.device is None else str(self.device)

    def zeros(self, dim: int) -> Any:
        """A vector of so many zeros."""
        if self.device is None:
            return np.zeros(dim, np.float32)
        import torch

        from gammafl.core.device.torch_vectors import TorchVector

        with torch.inference_mode(False):  # what is made within it can't be written after it
            return TorchVector(torch.zeros(dim, dtype=torch.float32, device=self.device))

    def put(self, vector: Any) -> Any:
        """The vector in this place; a copy, unless it is there already."""
        if self.device is None:
            return on_host(vector)
        import torch

        from gammafl.core.device.torch_vectors import TorchVector

        with torch.inference_mode(False):
            return TorchVector(_tensor(vector).to(self.device))

    def joined(self, tensors: Sequence[Any]) -> DeviceVector:
        """A new vector of what all these tensors hold, one after the other; only for a device."""
        import torch

        from gammafl.core.device.torch_vectors import TorchVector

        parts = [_tensor(tensor).to(self.device, torch.float32).reshape(-1) for tensor in tensors]
        return TorchVector(torch.cat(parts) if len(parts) > 1 else parts[0].clone())


HOST_MEMORY = Place()


def place_of(tensors: Iterable[Any]) -> Place:
    """Where the tensors of a model are."""
    devices = {tensor.device for tensor in tensors if is_on_device(tensor)}
    listed = " and ".join(sorted(map(str, devices)))
    require(len(devices) < 2, f"the model is on several devices, {listed}; move it to one")
    return Place(*devices)


def require_possible_in(place: Place, method: Method) -> None:
    """Refuses a method that can't work on a device, there."""
    require(
        place.is_host or method.on_device,
        f"{method.name} has no form for a device: device='cpu' copies each update from {place} to the host, and"
        " compresses it there",
    )


def place_named(device: Any) -> Place:
    """The place of a device, or of its name such as "cuda:0"; refused where it can't be used here."""
    try:
        import torch
    except ModuleNotFoundError:
        raise not_installed("torch", "train") from None

    from gammafl.core.device import vectors

    try:
        found = torch.empty(1, device=torch.device(device)).device  # "cuda" is the one that is current now
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"device {str(device)!r} can't be used here ({reason}); device='cpu' works anywhere") from None
    require(found.type != vectors.NOWHERE, "device 'meta' holds nothing; give one that does")
    return Place() if found.type in vectors.HOST else Place(found)


def _tensor(value: Any) -> Any:
    """A tensor of torch's with these values."""
    import torch

    if isinstance(value, DeviceVector):
        return value.tensor  # type: ignore[attr-defined]
    return value.detach() if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value, np.float32))
