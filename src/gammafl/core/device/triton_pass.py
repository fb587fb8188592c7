"""The fused pass as a kernel of Triton, EXPERIMENTAL: it has never run on a GPU, only in Triton's interpreter.

It reads update and residual once and writes the residual once. Each block of elements collects its own entries above
the threshold, in its own room. Then a prefix sum of the blocks' counts tells where each block's entries go. If a block
has more entries than room, the others stay in the residual, and a second pass in torch takes them.

    from gammafl.core.device import triton_pass
    triton_pass.use()       # from now on, for all vectors on a device; use(False) returns to torch's operations
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
"""The number of elements in a block."""

ROOM = 128
"""The most entries that a block collects: an eighth of its elements."""


def use(on: bool = True) -> None:
    """Switches the fused pass on devices to this kernel, or back."""
    TorchVector.passes = staticmethod(add_and_look) if on else None


@triton.jit
def _take(delta, residual, threshold, size, found, places, counts, missed, length: tl.constexpr, most: tl.constexpr):  # type: ignore[no-untyped-def]
    """residual ← residual + delta for one block, without entries above the threshold that fit into its room."""
    block = tl.program_id(0)
    at = block.to(tl.int64) * length + tl.arange(0, length)
    inside = at < size
    wanted = tl.load(residual + at, mask=inside, other=0.0) + tl.load(delta + at, mask=inside, other=0.0)
    hit = (tl.abs(wanted) <= threshold) == 0  # true for NaN too
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
    """Copies the entries of one block to their final place: positions, then the bits of values."""
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
    """The entries of all blocks, which are no longer in the residual."""

    def __init__(self, blocks: "Blocks", threshold: float, room: int) -> None:
        self._blocks, self._threshold = blocks, threshold
        self._packed = torch.cat([blocks.heads(), blocks.together(room)])

    def take_out(self, vector: torch.Tensor) -> Found:
        """The entries. Torch's operations take those that did not fit into their block's room."""
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
    """The entries of each block, in its own room. `ends` are the cumulative sums of the blocks' counts."""

    found: torch.Tensor
    places: torch.Tensor
    counts: torch.Tensor
    ends: torch.Tensor
    missed: torch.Tensor

    def heads(self) -> torch.Tensor:
        """How many entries were found, and how many did not fit into their block's room."""
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
    """residual ← residual + delta, and the entries above the threshold. The first transfer has room for `room`."""
    size, blocks = residual.numel(), triton.cdiv(residual.numel(), BLOCK)
    if not size:
        return Crossing.of(residual, residual > threshold, 0)
    numbers: dict[str, Any] = {"dtype": torch.int32, "device": residual.device}
    found, places = residual.new_empty(blocks * ROOM), torch.empty(blocks * ROOM, **numbers)
    counts, missed = torch.empty(blocks, **numbers), torch.empty(blocks, **numbers)
    with torch.cuda.device_of(residual):  # it may not be the current device
        _take[(blocks,)](delta, residual, threshold, size, found, places, counts, missed, length=BLOCK, most=ROOM)
    ends = counts.cumsum(0, dtype=torch.int32)
    return KernelCrossing(Blocks(found, places, counts, ends, missed), threshold, room)
