"""Random changes of training images, for a whole batch at a time."""

from typing import Any

import torch

from gammafl.core.jit import compiled


def crop_and_flip(images: torch.Tensor, padding: int = 4) -> torch.Tensor:
    """Each image [channels, height, width] shifted by up to `padding` pixels, zeros at the border, and mirrored
    with probability ½; random numbers from torch's current state."""
    count = len(images)
    shifts = torch.randint(2 * padding + 1, (2, count)) - padding
    mirrored = torch.rand(count) < 0.5
    changed = torch.empty(images.shape, dtype=images.dtype)
    _shift(images.numpy(), *shifts.numpy(), mirrored.numpy(), changed.numpy())
    return changed


@compiled
def _shift(images: Any, down: Any, right: Any, mirrored: Any, out: Any) -> None:
    """out[y, x] = image[y + down, x + right], zero where there is none; then mirrored, if it is to be."""
    _, channels, height, width = images.shape
    out[:] = 0
    for i in range(images.shape[0]):
        rows = range(max(0, -down[i]), min(height, height - down[i]))
        start, stop = max(0, -right[i]), min(width, width - right[i])
        for channel in range(channels):
            for y in rows:
                row, to = images[i, channel, y + down[i]], out[i, channel, y]
                if mirrored[i]:
                    for x in range(start, stop):
                        to[width - 1 - x] = row[x + right[i]]
                else:
                    to[start:stop] = row[start + right[i] : stop + right[i]]
