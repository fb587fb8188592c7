"""What each node is sent of the model: the whole, or its values at the places that changed since the node's version."""

from typing import Literal

import numpy as np
from flwr.app import ArrayRecord

from gammafl.core.arrays import Vector
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import encode
from gammafl.flower.messages import CHANGES, message_record

Mode = Literal["full", "changes"]


class Downlink:
    """Versions are numbers: the model is of the next version whenever it has changed.

    Current values are sent, not differences: the client's model is the server's, bit for bit, however many rounds
    it missed.
    """

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.version = 0
        self._model: Vector | None = None
        self._changed_at = np.zeros(0, np.uint32)
        self._held: dict[int, int] = {}
        self._ready: dict[int, ArrayRecord | None] = {}
        self.sent_bytes = 0

    def show(self, model: Vector) -> None:
        """The model that is sent next, as its tensors hold it."""
        if self.mode == "full" or model is self._model:
            return
        if self._model is None:
            self._changed_at = np.zeros(model.size, np.uint32)
        else:
            places = np.flatnonzero(model.view(np.uint32) != self._model.view(np.uint32))
            if not places.size:
                return
            self.version += 1
            self._changed_at[places] = self.version
        self._model = model
        self._ready.clear()

    def holds(self, node: int, version: int | None) -> None:
        """`node` says which version it has stored."""
        if version is None or version > self.version:
            self._held.pop(node, None)
        else:
            self._held[node] = version

    def changes(self, node: int) -> tuple[ArrayRecord, int] | None:
        """What `node` is sent of the model, and the version that it builds on; None: the whole."""
        base = self._held.get(node)
        if self._model is None or base is None:
            return None
        if base not in self._ready:
            self._ready[base] = self._changes(base, self._model)
        record = self._ready[base]
        if record is None:
            self._held.pop(node, None)
            return None
        return record, base

    def _changes(self, base: int, model: Vector) -> ArrayRecord | None:
        """None if the whole model is not longer."""
        places = np.flatnonzero(self._changed_at > base).astype(np.uint32)
        payload = encode(SparseUpdate(model.size, places, model[places]))
        return message_record(CHANGES, payload) if len(payload) < 4 * model.size else None
