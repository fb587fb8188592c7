"""All copies between a device and the host.

From the device, one transfer copies a number of entries, their positions and their values.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gammafl.core.device.vectors import Found

MOST = 1 << 30
"""The most elements for one operation: torch counts hits in 32 bits."""

MAGNITUDE = 0x7FFFFFFF
"""Mask of a float32's bits without the sign."""

_without_static: set[str] = set()
"""Types of devices without `nonzero_static`."""


def magnitudes(vector: torch.Tensor) -> torch.Tensor:
    """The bits of |v|. Their order is that of |v|, with infinity and NaN last, on any backend."""
    return vector.view(torch.int32).bitwise_and(MAGNITUDE)


def to_host(tensor: torch.Tensor) -> NDArray[Any]:
    """The tensor's values on the host. This waits for the device."""
    return tensor.cpu().numpy()


def to_device(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """The array's values on the device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


class Crossing:
    """The entries of `vector` where `mask` is true. The first transfer has room for a limited number of them."""

    def __init__(self, packed: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, facts: int) -> None:
        self._packed, self._positions, self._mask, self._facts = packed, positions, mask, facts

    @classmethod
    def of(cls, vector: torch.Tensor, mask: torch.Tensor, room: int, *facts: torch.Tensor) -> "Crossing":
        """`room`: how many entries the first transfer holds. `facts`: 32-bit numbers that are copied with them."""
        positions = nonzero(mask, room)
        count = mask.sum(dtype=torch.int64)
        values = vector[positions].view(torch.int32)
        heads = [number.reshape(1).to(torch.int32) for number in (count, *facts)]
        return cls(torch.cat([*heads, positions.to(torch.int32), values]), positions, mask, len(heads))

    def arrive(self, vector: torch.Tensor) -> tuple[Found, list[int]]:
        """The entries and the facts, on the host."""
        host = to_host(self._packed)
        (count, *facts), entries = host[: self._facts].tolist(), host[self._facts :]
        room = len(entries) // 2
        if count > room:
            self._positions = nonzero(self._mask, count)
            both = torch.cat([self._positions.to(torch.int32), vector[self._positions].view(torch.int32)])
            entries, room = to_host(both), count
        self._positions = self._positions[:count]
        indices, values = entries[:count].copy(), entries[room : room + count].copy()
        return (indices.view(np.uint32), values.view(np.float32)), facts

    def take_out(self, vector: torch.Tensor) -> Found:
        """The entries. In the vector, they become zero."""
        found, _ = self.arrive(vector)
        vector.index_fill_(0, self._positions, 0)
        return found


def nonzero(mask: torch.Tensor, room: int) -> torch.Tensor:
    """The first `room` positions where the mask is true, then zeros; without waiting for their number."""
    if not room:  # some CUDA kernels fail for an empty tensor
        return torch.empty(0, dtype=torch.int64, device=mask.device)
    if mask.device.type not in _without_static:
        try:
            return torch.nonzero_static(mask, size=room, fill_value=0).squeeze(1)
        except NotImplementedError:
            _without_static.add(mask.device.type)
    found = torch.nonzero(mask).squeeze(1)[:room]
    return torch.cat([found, found.new_zeros(room - found.numel())])
