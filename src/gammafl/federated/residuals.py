"""The memories of all clients that ever took part; on disk if they do not fit into the RAM budget."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from gammafl.core.arrays import Vector
from gammafl.core.device.places import HOST_MEMORY, Place
from gammafl.core.device.vectors import on_host
from gammafl.core.errors import InputError
from gammafl.core.memory import RESIDUAL
from gammafl.core.method import Method
from gammafl.core.sparse import SparseUpdate
from gammafl.federated.budget import Pace
from gammafl.federated.client import Outbox
from gammafl.files import private_files

FILE_BYTES = 1 << 28
"""The size of a scratch file that holds several short residuals: a process can't have millions of open files."""


@dataclass
class Room:
    """Memory on a device for residuals."""

    place: Place = HOST_MEMORY
    budget_bytes: float = float("inf")


class ResidualStore:
    """Client → its outbox, made when the client takes part for the first time.

    The first residuals are on a device, as many as fit `on_device`. The next ones are in RAM, as many as fit into
    `budget_bytes`. All others are in files in `folder`, mapped into memory. These files are temporary: only the
    checkpoint is used after a restart.
    """

    def __init__(
        self,
        method: Method,
        dim: int,
        budget_bytes: float = float("inf"),
        folder: Path | None = None,
        on_device: Room | None = None,
    ) -> None:
        self.method = method
        self.dim = dim
        self.budget_bytes = budget_bytes
        self.folder = folder
        self.on_device = on_device or Room()
        self.lost: dict[int, SparseUpdate] = {}
        """Client → its last upload, if that did not count. The client's residual holds it again."""

        self.paces: dict[int, Pace] = {}
        """Client → its pace, for clients with a rate that made an upload."""

        self._outboxes: dict[int, Outbox] = {}
        self._files, self._count = 0, 0
        self._free: list[Vector] = []

    def outbox(self, client: int) -> Outbox:
        """The client's outbox: its memory, and its open upload if there is one."""
        if client not in self._outboxes:
            self._outboxes[client] = self._new({name: self._zeros() for name in self.method.memory.vectors})
        return self._outboxes[client]

    def residual(self, client: int) -> Vector:
        """The client's residual; zeros if it has none."""
        return on_host(self.outbox(client).memory.state().get(RESIDUAL, np.zeros(self.dim, np.float32)))

    def residuals(self) -> dict[int, Vector]:
        """The residual of each client that has one, for a checkpoint."""
        return self._vectors(RESIDUAL)

    def _vectors(self, name: str) -> dict[int, Vector]:
        """Client → the vector `name` of its memory, on the host."""
        states = {client: outbox.memory.state() for client, outbox in sorted(self._outboxes.items())}
        return {client: on_host(state[name]) for client, state in states.items() if state}

    def held(self) -> dict[str, Any]:
        """The state for a checkpoint, under the names of the arguments of `restore`."""
        others = {name: self._vectors(name) for name in self.method.memory.vectors if name != RESIDUAL}
        return {"residuals": self.residuals(), "lost": self.lost, "paces": self.paces, "others": others}

    def restore(
        self,
        residuals: Mapping[int, Vector],
        lost: Mapping[int, SparseUpdate],
        paces: Mapping[int, Pace] | None = None,
        others: Mapping[str, Mapping[int, Vector]] | None = None,
    ) -> None:
        self.lost.update(lost)
        self.paces.update(paces or {})
        for client in residuals:
            state = {}
            for name, vectors in {RESIDUAL: residuals, **(others or {})}.items():
                state[name] = self._zeros()
                state[name][:] = vectors[client]
            self._outboxes[client] = self._new(state)

    def _new(self, state: Mapping[str, Vector]) -> Outbox:
        return Outbox(self.method.memory.client(self.method, self.dim, state))

    def _zeros(self) -> Vector:
        place, needed = self.on_device.place, 4 * self.dim
        if not place.is_host and self.method.leaves_a_rest and needed <= self.on_device.budget_bytes:
            self.on_device.budget_bytes -= needed
            return cast(Vector, place.zeros(self.dim))
        self._count += 1
        fits = 4 * self.dim * self._count <= self.budget_bytes
        if fits or self.folder is None or not self.method.leaves_a_rest:  # zeros that are never written need no memory
            return np.zeros(self.dim, np.float32)
        if not self._free:
            self._free = list(self._new_file(self.folder))
        return self._free.pop()

    def _new_file(self, folder: Path) -> Vector:
        """Zeros for as many residuals as exist already, but at most what a file holds; one row each."""
        rows = max(1, min(self._count - 1, FILE_BYTES // (4 * self.dim)))
        path = folder / f"residuals-{self._files}.f32"
        try:
            private_files.make_directory(folder)
            with private_files.new_file(path) as file:
                private_files.reserve(file, 4 * rows * self.dim)  # notices a full disk before the first write
        except OSError as error:
            raise InputError(f"no room for {path} ({error.strerror}); make room, then go on with --resume") from None
        self._files += 1
        return np.memmap(path, np.float32, "r+", shape=(rows, self.dim))
