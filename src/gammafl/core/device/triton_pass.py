"""The fused pass as a kernel of Triton, EXPERIMENTAL: it has never run on a GPU, only in Triton's interpreter.

It reads update and residual once and writes the residual once. What exceeds the threshold is put together within each
block, in room of its own. A prefix sum of the blocks' counts then says where each block's entries go. A block that has
more than its room holds leaves the others in the residual, and a second pass in torch takes them.

    from gammafl.core.device import triton_pass
    triton_pass.use()       # for all vectors on a device, from now on; use(False): torch's operations
"""

from typing import Any, NamedTuple

import numpy as np
import torch

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError:
    from gammafl.core.errors import not_installed

    raise not_installed("triton", "triton") from None

from gammafl.core.device.crossing import Crossing, to_host
from gammafl.core.device.torch_vectors import TorchVector
from gammafl.core.device.vectors import Found
from gammafl.core.largest import merged

BLOCK = 1024
"""Elements of a block."""

ROOM = 128
"""Entries that a block has room for: an eighth of its elements."""


def use(on: bool = True) -> None:
    """Whether the fused pass on a device is this kernel."""
    TorchVector.passes = staticmethod(add_and_look) if on else None


@triton.jit
def _take(delta, residual, threshold, size, found, places, counts, missed, length: tl.constexpr, most: tl.constexpr):  # type: ignore[no-untyped-def]
    """residual ← residual + delta for one block, without what exceeds the threshold and has room."""
    block = tl.program_id(0)
    at = block.to(tl.int64) * length + tl.arange(0, length)
    inside = at < size
    wanted = tl.load(residual + at, mask=inside, other=0.0) + tl.load(delta + at, mask=inside, other=0.0)
    hit = (tl.abs(wanted) <= threshold) == 0  # so is NaN
    rank = tl.cumsum(hit.to(tl.int32), 0) - 1
    taken = hit & (rank < most)
    tl.store(residual + at, tl.where(taken, 0.0, wanted), mask=inside)
    room = block.to(tl.int64) * most + rank
    tl.store(found + room, wanted, mask=taken)
    tl.store(places + room, tl.arange(0, length), mask=taken)
    count = tl.sum(hit.to(tl.int32), 0)
    tl.store(counts + block, tl.minimum(count, most))
    tl.store(missed + block, tl.maximum(count - most, 0))


@triton.jit
def _put_together(found, places, counts, ends, out, room, length: tl.constexpr, most: tl.constexpr):  # type: ignore[no-untyped-def]
    """The entries of one block to where they belong: positions, then the bits of values."""
    block = tl.program_id(0)
    number = tl.arange(0, most)
    count = tl.load(counts + block)
    to = tl.load(ends + block) - count + number
    wanted = (number < count) & (to < room)
    source = block.to(tl.int64) * most + number
    place = block * length + tl.load(places + source, mask=wanted, other=0)
    tl.store(out + to, place, mask=wanted)
    tl.store(out + room + to, tl.load(found + source, mask=wanted, other=0.0).to(tl.int32, bitcast=True), mask=wanted)


class KernelCrossing(Crossing):
    """What the blocks have found; it is out of the residual already."""

    def __init__(self, blocks: "Blocks", threshold: float, room: int) -> None:
        self._blocks, self._threshold = blocks, threshold
        self._packed = torch.cat([blocks.heads(), blocks.together(room)])

    def take_out(self, vector: torch.Tensor) -> Found:
        """The entries. What had no room in its block is taken by torch's operations."""
        host = to_host(self._packed)
        (count, missed), entries = host[:2].tolist(), host[2:]
        if 2 * count > len(entries):
            entries = to_host(self._blocks.together(count))
        positions, values = np.split(entries, 2)
        found = positions[:count].copy().view(np.uint32), values[:count].copy().view(np.float32)
        if not missed:
            return found
        others = (vector.abs() <= self._threshold).logical_not()
        return merged(found, Crossing.of(vector, others, missed).take_out(vector))


class Blocks(NamedTuple):
    """What each block has found, in room of its own; `ends` are the sums of counts up to each block and with it."""

    found: torch.Tensor
    places: torch.Tensor
    counts: torch.Tensor
    ends: torch.Tensor
    missed: torch.Tensor

    def heads(self) -> torch.Tensor:
        """How many entries were found, and how many had no room in their block."""
        return torch.stack([self.ends[-1], self.missed.sum(dtype=torch.int32)])

    def together(self, room: int) -> torch.Tensor:
        """The first `room` positions, then the bits of as many values."""
        out, blocks = torch.empty(2 * room, dtype=torch.int32, device=self.ends.device), self.ends.numel()
        with torch.cuda.device_of(out):
            _put_together[(blocks,)](
                self.found, self.places, self.counts, self.ends, out, room, length=BLOCK, most=ROOM
            )
        return out


def add_and_look(delta: torch.Tensor, residual: torch.Tensor, threshold: float, room: int) -> Crossing:
    """residual ← residual + delta, and what exceeds the threshold, with room for so many in the first transfer."""
    size, blocks = residual.numel(), triton.cdiv(residual.numel(), BLOCK)
    if not size:
        return Crossing.of(residual, residual > threshold, 0)
    numbers: dict[str, Any] = {"dtype": torch.int32, "device": residual.device}
    found, places = residual.new_empty(blocks * ROOM), torch.empty(blocks * ROOM, **numbers)
    counts, missed = torch.empty(blocks, **numbers), torch.empty(blocks, **numbers)
    with torch.cuda.device_of(residual):  # which need not be the current device
        _take[(blocks,)](delta, residual, threshold, size, found, places, counts, missed, length=BLOCK, most=ROOM)
    ends = counts.cumsum(0, dtype=torch.int32)
    return KernelCrossing(Blocks(found, places, counts, ends, missed), threshold, room)
