"""What crosses between a device and the host, and nothing else does.

From the device: a number of entries, their positions and their values, in one transfer.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gammafl.core.device.vectors import Found

MOST = 1 << 30
"""Elements that are looked at together: torch counts what it finds in 32 bits."""

MAGNITUDE = 0x7FFFFFFF
"""Mask of a float32's bits without the sign."""

_without_static: set[str] = set()
"""Types of devices that have no `nonzero_static`."""


def magnitudes(vector: torch.Tensor) -> torch.Tensor:
    """|v| by its bits, which order like |v| with infinity and NaN last, on any backend."""
    return vector.view(torch.int32).bitwise_and(MAGNITUDE)


def to_host(tensor: torch.Tensor) -> NDArray[Any]:
    """The tensor's values on the host. Here the device is waited for."""
    return tensor.cpu().numpy()


def to_device(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """The array's values on the device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


class Crossing:
    """The entries of `vector` where `mask` is true, with room for so many in the first transfer."""

    def __init__(self, packed: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, facts: int) -> None:
        self._packed, self._positions, self._mask, self._facts = packed, positions, mask, facts

    @classmethod
    def of(cls, vector: torch.Tensor, mask: torch.Tensor, room: int, *facts: torch.Tensor) -> "Crossing":
        """`facts` are whole numbers of 32 bits that cross with the entries."""
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
        """The entries, which are zero in the vector from now on."""
        found, _ = self.arrive(vector)
        vector.index_fill_(0, self._positions, 0)
        return found


def nonzero(mask: torch.Tensor, room: int) -> torch.Tensor:
    """The first `room` positions where the mask is true, then zeros, without asking how many they are."""
    if not room:  # some CUDA kernels fail on nothing
        return torch.empty(0, dtype=torch.int64, device=mask.device)
    if mask.device.type not in _without_static:
        try:
            return torch.nonzero_static(mask, size=room, fill_value=0).squeeze(1)
        except NotImplementedError:
            _without_static.add(mask.device.type)
    found = torch.nonzero(mask).squeeze(1)[:room]
    return torch.cat([found, found.new_zeros(room - found.numel())])
