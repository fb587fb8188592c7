"""Book-keeping of updates: what clients computed, and what their disks hold."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import gammafl as gf
import gammafl.flower
from gammafl.core.arrays import Vector
from gammafl.federated.receipts import Sender
from gammafl.files import tensor_files
from tests.flower.grid import state_files
from tests.problems import Quadratic


def remembered(directory: Path, chosen: gammafl.flower.Compressed) -> dict[str, NDArray[np.float64]]:
    """Client → what its disk holds: the residual, and an open upload that the server does not have."""
    found, last, dim = {}, chosen.training.exchange.receipts.last, chosen.training.layout.dim
    for path in state_files(directory):
        facts, tensors = tensor_files.read(path)
        found[path.stem] = np.zeros(dim) + tensors.get("residual", np.zeros(dim))
        if "open" in tensors and facts["number"] > last(Sender(path.stem, facts["incarnation"])):
            found[path.stem] += gf.decode(tensors["open"].tobytes()).dense()
    return found


def computed(task: Quadratic, client: str) -> Vector:
    return np.sum([delta for number, delta in task.deltas if str(number) == client], axis=0, dtype=np.float64)


def check_books(
    task: Quadratic,
    directory: Path,
    chosen: gammafl.flower.CompressedFedAvg,
    applied: dict[str, Vector],
    clients: str,
) -> None:
    """All that each of `clients` computed is in the model or on its disk."""
    rest = remembered(directory, chosen)
    for client in clients:
        np.testing.assert_allclose(applied[client] + rest[client], computed(task, client), atol=1e-5)
