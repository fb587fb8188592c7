"""What the server sends each node: the whole model, its changes, or a compressed difference to the view.

The view is the model that the clients hold.
"""

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from flwr.app import ArrayRecord

from gammafl.core.arrays import Vector
from gammafl.core.method import Method
from gammafl.core.moment import Moment, key_of
from gammafl.federated import downlink
from gammafl.federated.downlink import Delivery, ViewFacts, ViewState
from gammafl.federated.server_exchange import ServerExchange
from gammafl.files.reading import checked
from gammafl.flower.layout import Layout
from gammafl.flower.messages import from_delivery
from gammafl.flower.packing import Packer, unpack
from gammafl.methods.ways import Way


class Sent(NamedTuple):
    """What a message holds of the model."""

    record: ArrayRecord
    base: int | None = None
    """The version that it changes. None: it is the whole model."""


class Downlink:
    """The server's part of the downlink. Each node tells which version of the view it has stored.

    The view moves once per round: when the strategy has made its model, or with the first message of the round
    (`show`). It moves a second time if the strategy changes its model between these two.
    """

    def __init__(self, way: Way, layout: Layout, exchange: ServerExchange) -> None:
        self.way, self._layout, self._exchange = way, layout, exchange
        self._link: downlink.Downlink | None = None
        self._shown: tuple[ArrayRecord, int] | None = None
        """The strategy's model to which the view moved last, and in which round."""
        self.whole = ArrayRecord()
        """The whole view, for a client that holds no version of it."""
        self._ready: dict[int, Sent] = {}
        self._scale = way.scale(layout.dim, exchange.schedule) if isinstance(way, Method) else 1.0

    @property
    def version(self) -> int:
        """The version of the view."""
        return 0 if self._link is None else self._link.state.version

    @property
    def view(self) -> Vector:
        """The model that clients hold after the last message. There is none if the model is sent whole each time."""
        assert self._link is not None, "no model was shown"
        return self._link.view

    @property
    def is_compressed(self) -> bool:
        """Whether clients hold another model than the strategy."""
        return isinstance(self.way, Method)

    def show(self, record: ArrayRecord, model: Vector, whole: ArrayRecord) -> None:
        """Sets the strategy's model that is sent next.

        record   the strategy's record
        model    the same as a vector
        whole    what a client would get as a whole model
        """
        if self.way == "full" or self._is_shown(record):
            return
        if self._link is None:
            view = ViewState.of(self.way, self._layout.held(model))
            self._link = downlink.Downlink(self.way, view, rounding=self._layout.held)
        else:
            self._link.move(model, self._moment())
            if self._others_changed(whole):
                self._link.state.held.clear()  # tensors of whole numbers are sent only with the whole view
        self._shown, self._ready = (record, self._exchange.round), {}
        self.whole = whole if not self.is_compressed else self._view_as(whole)

    def _is_shown(self, record: ArrayRecord | None) -> bool:
        """Whether the view has moved to `record` in this round."""
        return self._shown is not None and self._shown[0] is record and self._shown[1] == self._exchange.round

    def _others_changed(self, whole: ArrayRecord) -> bool:
        return any(whole[name].data != self.whole[name].data for name in self._layout.fixed)

    def _view_as(self, whole: ArrayRecord) -> ArrayRecord:
        floats = self._layout.record(self.view, self._layout.types)
        return ArrayRecord({name: floats.get(name, array) for name, array in whole.items()})

    def _moment(self) -> Moment:
        """The beginning of the round, for the downlink's method."""
        exchange = self._exchange
        key = key_of(zlib.crc32(exchange.training.encode()), exchange.round)
        return exchange.schedule.moment(exchange.round * exchange.local_steps, self._scale, exchange.layout, key)

    def holds(self, node: int, version: int) -> None:
        """Notes which version `node` says that it has stored."""
        if self._link is not None and version <= self.version:
            self._link.state.held[node] = version

    def forget(self, node: int) -> None:
        """Notes that `node` says that it has nothing stored."""
        if self._link is not None:
            self._link.forget(node)

    def sent(self, node: int) -> Sent:
        """What `node` is sent of the model that `show` was given."""
        assert self._link is not None, "a model must be shown first"
        base = self._link.state.held.get(node)
        if base is None:
            return Sent(self.whole)
        if base not in self._ready:
            delivery = self._link.delivery(base)
            whole = delivery.kind == "whole"
            self._ready[base] = Sent(self.whole) if whole else Sent(from_delivery(delivery), base)
        if self._ready[base].base is None:
            self.forget(node)  # until it says that the whole model arrived
        return self._ready[base]

    def state(self, packer: Packer, current: ArrayRecord | None) -> dict[str, Any] | None:
        """The state to store; None if there is none. `current` is the strategy's model."""
        if self._link is None:
            return None
        view, fixed = self._link.state, {name: self.whole[name] for name in self._layout.fixed}
        return {
            "view": packer.pack(view.tensors()),
            "facts": view.facts(),
            "fixed": packer.pack(fixed),
            "shown": self._is_shown(current),
        }

    def restore(self, saved: Mapping[str, Any] | None, tensors: Mapping[str, Any], current: ArrayRecord) -> None:
        """Sets the state that `state` returned before."""
        if saved is None:
            return
        view = ViewState.restored(unpack(saved["view"], tensors), checked(ViewFacts, saved["facts"]))
        self._link = downlink.Downlink(self.way, view, rounding=self._layout.held)
        self.whole = ArrayRecord({**self._layout.record(view.view), **unpack(saved["fixed"], tensors)})
        self._shown = (current, self._exchange.round) if saved["shown"] else None

    def distance(self, model: Vector) -> float:
        """‖x − y‖/‖x‖ of a model and the view; 0 if clients hold the model itself."""
        return 0.0 if self._link is None else downlink.distance(model, self._link.view)


def advanced(view: Vector, held: int, delivery: Delivery, layout: Layout) -> Vector:
    """The client's part: the view after `delivery`, from the version `held` that the client has stored."""
    return downlink.received(view, delivery, held, layout.held)
