"""What each node is sent of the model: the whole, or its values at the places that changed since the node's version."""

from typing import Literal

from flwr.app import ArrayRecord

from gammafl.core.arrays import Vector
from gammafl.core.moment import Moment
from gammafl.federated import downlink
from gammafl.flower.messages import CHANGES, message_record

Mode = Literal["full", "changes"]


class Downlink:
    """The server's part, over Flower: a node says itself which version it has stored."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self._shown: Vector | None = None
        self._link: downlink.Downlink | None = None
        self._ready: dict[int, ArrayRecord] = {}

    @property
    def version(self) -> int:
        """Of the model that is sent next."""
        return 0 if self._link is None else self._link.state.version

    def show(self, model: Vector) -> None:
        """The model that is sent next, as its tensors hold it."""
        if self.mode == "full" or model is self._shown:
            return
        if self._link is None:
            self._link = downlink.Downlink("changes", downlink.ViewState.of("changes", model))
        else:
            self._link.move(model, Moment())
        self._shown = model
        self._ready.clear()

    def holds(self, node: int, version: int | None) -> None:
        """`node` says which version it has stored."""
        if self._link is None:
            return
        if version is None or version > self.version:
            self._link.forget(node)
        else:
            self._link.state.held[node] = version

    def changes(self, node: int) -> tuple[ArrayRecord, int] | None:
        """What `node` is sent of the model, and the version that it builds on; None: the whole."""
        base = None if self._link is None else self._link.state.held.get(node)
        if self._link is None or base is None:
            return None
        delivery = self._link.delivery(base)
        if delivery.kind == "whole":
            self._link.forget(node)
            return None
        if base not in self._ready:
            self._ready[base] = message_record(CHANGES, *delivery.payloads)
        return self._ready[base], base
