"""What a piece of work costs on a device, counted as torch's dispatcher sees it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gammafl.core.device import crossing, torch_largest, torch_vectors

VIEWS = (
    "view",
    "slice",
    "squeeze",
    "reshape",
    "detach",
    "alias",
    "select",
    "split",
    "unsqueeze",
    "as_strided",
    "_unsafe_view",
)
"""They move nothing."""


class Counts(TorchDispatchMode):
    """Operations that read or write memory, the bytes of their tensors, and what crosses to the host and back."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[str, int]] = []
        self.crossings: list[int] = []
        """Bytes of each transfer to the host; each is a synchronisation."""

        self.sent: list[int] = []
        """Bytes of each transfer to the device."""

    @property
    def moved(self) -> int:
        """Bytes that are read or written on the device."""
        return sum(size for _, size in self.operations)

    def __torch_dispatch__(self, function: Any, kinds: Any, arguments: Any = (), named: Any = None) -> Any:
        result = function(*arguments, **(named or {}))
        name = function._schema.name.removeprefix("aten::")
        if name not in VIEWS and not name.startswith(("empty", "new_empty")):
            read = [leaf for leaf in tree_leaves((arguments, named)) if isinstance(leaf, torch.Tensor)]
            written = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            self.operations.append((name, sum(leaf.nbytes for leaf in _touched(name, read, written))))
        return result


def _touched(name: str, read: list[torch.Tensor], written: list[torch.Tensor]) -> list[torch.Tensor]:
    """Of a gather or a scatter, what is at the positions; of all others, whole tensors."""
    if name in ("index", "index_fill_", "index_put_", "index_select"):
        return read[1:] if name.endswith("_") else [*read[1:], *written]
    return [*read, *written]


@contextmanager
def counted() -> Iterator[Counts]:
    """Counts all that is done inside."""
    counts = Counts()

    def to_host(tensor: torch.Tensor) -> Any:
        counts.crossings.append(tensor.nbytes)
        return tensor.cpu().numpy()

    def to_device(array: Any, device: torch.device) -> torch.Tensor:
        counts.sent.append(array.nbytes)
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    with patch.multiple(crossing, to_host=to_host, to_device=to_device), \
            patch.multiple(torch_largest, to_host=to_host, to_device=to_device), \
            patch.multiple(torch_vectors, to_host=to_host, to_device=to_device), counts:  # fmt: skip
        yield counts
