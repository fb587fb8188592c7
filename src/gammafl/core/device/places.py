"""Places of vectors: the host, or a device of torch's."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gammafl.core.device.vectors import DeviceVector, is_on_device, on_host
from gammafl.core.errors import InputError, not_installed, require
from gammafl.core.method import Method


@dataclass(frozen=True)
class Place:
    """A place. `device` is torch's device; None: the host's memory."""

    device: Any = None

    @property
    def is_host(self) -> bool:
        return self.device is None

    def __str__(self) -> str:
        return "the host" if self.device is None else str(self.device)

    def zeros(self, dim: int) -> Any:
        """A vector of `dim` zeros."""
        if self.device is None:
            return np.zeros(dim, np.float32)
        import torch

        from gammafl.core.device.torch_vectors import TorchVector

        with torch.inference_mode(False):  # a tensor made in inference mode can't be written later
            return TorchVector(torch.zeros(dim, dtype=torch.float32, device=self.device))

    def put(self, vector: Any) -> Any:
        """The vector in this place: a copy, unless it is already there."""
        if self.device is None:
            return on_host(vector)
        import torch

        from gammafl.core.device.torch_vectors import TorchVector

        with torch.inference_mode(False):
            return TorchVector(_tensor(vector).to(self.device))

    def joined(self, tensors: Sequence[Any]) -> DeviceVector:
        """A new vector with the elements of all these tensors, one after the other. Only for a device."""
        import torch

        from gammafl.core.device.torch_vectors import TorchVector

        parts = [_tensor(tensor).to(self.device, torch.float32).reshape(-1) for tensor in tensors]
        return TorchVector(torch.cat(parts) if len(parts) > 1 else parts[0].clone())


HOST_MEMORY = Place()


def place_of(tensors: Iterable[Any]) -> Place:
    """The place of a model's tensors."""
    devices = {tensor.device for tensor in tensors if is_on_device(tensor)}
    listed = " and ".join(sorted(map(str, devices)))
    require(len(devices) < 2, f"the model is on several devices, {listed}; move it to one")
    return Place(*devices)


def require_possible_in(place: Place, method: Method) -> None:
    """Refuses a method that can't work on a device, if the place is one."""
    require(
        place.is_host or method.on_device,
        f"{method.name} has no form for a device: device='cpu' copies each update from {place} to the host, and"
        " compresses it there",
    )


def place_named(device: Any) -> Place:
    """The place of a device, or of its name such as "cuda:0". An `InputError` if it can't be used on this machine."""
    try:
        import torch
    except ModuleNotFoundError:
        raise not_installed("torch", "train") from None

    from gammafl.core.device import vectors

    try:
        found = torch.empty(1, device=torch.device(device)).device  # "cuda" means the current CUDA device
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"device {str(device)!r} can't be used here ({reason}); device='cpu' works anywhere") from None
    require(found.type != vectors.NOWHERE, "device 'meta' holds nothing; give one that does")
    return Place() if found.type in vectors.HOST else Place(found)


def _tensor(value: Any) -> Any:
    """These values as a tensor of torch's."""
    import torch

    if isinstance(value, DeviceVector):
        return value.tensor  # type: ignore[attr-defined]
    return value.detach() if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value, np.float32))
