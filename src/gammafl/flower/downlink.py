"""What each node is sent of the model: the whole, or its values at the places that changed since the node's version."""

from collections.abc import Iterable
from typing import Literal

import numpy as np
from flwr.app import ArrayRecord

from gammafl.core.arrays import Vector
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import encode
from gammafl.flower.layout import Layout
from gammafl.flower.messages import CHANGES, message_record

Mode = Literal["full", "changes"]


class Downlink:
    """Versions are numbers of rounds: version v is the model after v rounds.

    Current values are sent, not differences: the client's model is the server's, bit for bit, however many rounds
    it missed.
    """

    def __init__(self, layout: Layout, mode: Mode) -> None:
        self.layout = layout
        self.mode = mode
        self.version = 0
        self._changed_at = np.zeros(layout.dim if mode == "changes" else 0, np.uint32)
        self._held: dict[int, int] = {}
        self._ready: dict[int | None, ArrayRecord] = {}
        self.sent_bytes = 0

    def changed(self, updates: Iterable[SparseUpdate], version: int) -> None:
        """The model is now of `version`, by these updates."""
        self.version = version
        self._ready.clear()
        if self.mode == "changes":
            for update in updates:
                self._changed_at[slice(None) if update.entire else update.indices] = version

    def holds(self, node: int, version: int | None) -> None:
        """`node` says which version it has stored."""
        if version is None or version > self.version:
            self._held.pop(node, None)
        else:
            self._held[node] = version

    def pack(self, node: int, model: Vector) -> tuple[ArrayRecord, int | None]:
        """What `node` is sent of `model`, and the version that it builds on; None: the whole."""
        base = self._held.get(node)
        if base not in self._ready:
            changes = None if base is None else self._changes(base, model)
            if changes is None:
                base = None
                self._held.pop(node, None)
            if base not in self._ready:
                self._ready[base] = changes or self.layout.record(model)
        record = self._ready[base]
        self.sent_bytes += sum(len(array.data) for array in record.values())
        return record, base

    def _changes(self, base: int, model: Vector) -> ArrayRecord | None:
        """None if the whole model is not longer."""
        places = np.flatnonzero(self._changed_at > base).astype(np.uint32)
        payload = encode(SparseUpdate(model.size, places, model[places]))
        return message_record(CHANGES, payload) if len(payload) < 4 * model.size else None
