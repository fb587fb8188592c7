"""Random changes of training images, a whole batch at a time."""

import torch


def crop_and_flip(images: torch.Tensor, padding: int = 4) -> torch.Tensor:
    """Each image [channels, height, width] shifted by up to `padding` pixels, zeros at the border, and mirrored
    with probability ½; random numbers from torch's current state."""
    count, _, height, width = images.shape
    shifts = torch.randint(2 * padding + 1, (2, count, 1))
    mirrored = torch.rand(count, 1) < 0.5
    rows = shifts[0] + torch.arange(height)
    columns = shifts[1] + torch.arange(width)
    columns = torch.where(mirrored, columns.flip(1), columns)
    padded = torch.nn.functional.pad(images, (padding,) * 4).permute(0, 2, 3, 1)
    which = torch.arange(count)[:, None, None]
    return padded[which, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
