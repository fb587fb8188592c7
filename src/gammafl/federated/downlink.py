"""The downlink: what each client is sent of the model.

All clients train from one *view* y of the model x. It moves once per round, and its versions are numbered.

    full         y = x, sent as a whole
    changes      y = x; a client is sent the values that changed since its version
    compressed   y ← y + C(x − y), with the C of any method; entries that are not sent stay in x − y for later rounds

A client holds some version, or none. A client that missed no round is sent the round's broadcast. Any other client is
sent the shortest of these: all broadcasts since its version, the values that changed since then, or the whole view.
Each leads to the same view, bit for bit.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gammafl.core import aggregate
from gammafl.core.arrays import Vector
from gammafl.core.errors import WireError
from gammafl.core.method import Method
from gammafl.core.moment import Moment
from gammafl.core.scatter import sum_of_squares
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import PositionCoding, decode, encode, header_bytes
from gammafl.files.reading import Count, Facts
from gammafl.methods.ways import Way

Kind = Literal["whole", "changes", "broadcasts"]
VIEW, CHANGED_AT, BROADCAST = "view", "changed_at", "broadcast."
LENGTH_BYTES = 4
"""Each of several messages is preceded by its length, in this number of bytes."""

Rounding = Callable[[Vector], Vector]


def exactly(vector: Vector) -> Vector:
    """The rounding for tensors in float32: none."""
    return vector


class Delivery(NamedTuple):
    """The messages that turn a client's version `base` of the view into the version `version`.

    A whole view has no payloads, since each transport sends vectors in its own way.
    """

    kind: Kind
    base: int | None
    version: int
    size: int
    """The bytes of the delivery."""

    payloads: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, kind: Kind, base: int, version: int, payloads: Sequence[bytes]) -> "Delivery":
        """The delivery of these messages, with its size."""
        lengths = LENGTH_BYTES * len(payloads) if len(payloads) > 1 else 0
        return cls(kind, base, version, lengths + sum(map(len, payloads)), tuple(payloads))


@dataclass
class ViewState:
    """The server's state of the downlink; a part of its checkpoints."""

    view: Vector
    changed_at: NDArray[np.uint32]
    """The version in which each element changed last."""

    version: int = 0
    held: dict[int, int] = field(default_factory=dict)
    """Client → the version that it holds."""

    broadcasts: dict[int, bytes] = field(default_factory=dict)
    """Version → the broadcast that led to it. Only the latest, while together they are shorter than the view."""

    @classmethod
    def of(cls, way: Way, model: Vector) -> "ViewState":
        """The state before the first round: the view is the model, and no client holds it."""
        if way == "full":
            return cls(model, np.zeros(0, np.uint32))
        return cls(model.copy(), np.zeros(model.size, np.uint32))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The arrays for a checkpoint."""
        vectors: dict[str, NDArray[Any]] = {VIEW: self.view, CHANGED_AT: self.changed_at.view(np.uint8)}
        return vectors | {
            f"{BROADCAST}{at}": np.frombuffer(payload, np.uint8) for at, payload in self.broadcasts.items()
        }

    def facts(self) -> dict[str, Any]:
        """The plain values for a checkpoint."""
        return {"version": self.version, "held": {str(client): version for client, version in self.held.items()}}

    @classmethod
    def restored(cls, tensors: Mapping[str, NDArray[Any]], facts: "ViewFacts") -> "ViewState":
        """The state with these `tensors` and `facts`; a `ValueError` if they are malformed."""
        if VIEW not in tensors or CHANGED_AT not in tensors:
            raise ValueError("its view of the model is missing")
        view, changed_at = tensors[VIEW], tensors[CHANGED_AT].view(np.uint32)
        stored = {name: tensors[name] for name in tensors if name.startswith(BROADCAST)}
        broadcasts = {int(name.removeprefix(BROADCAST)): payload.tobytes() for name, payload in stored.items()}
        held = {int(client): version for client, version in facts.held.items()}
        newest = max(int(changed_at.max(initial=0)), *held.values(), *broadcasts, 0)
        if changed_at.shape != view.shape or newest > facts.version:
            raise ValueError("its view of the model has another version")
        for payload in broadcasts.values():
            decode(payload, view.size)
        return cls(view, changed_at, facts.version, held, dict(sorted(broadcasts.items())))


class ViewFacts(Facts):
    """`ViewState.facts` in a file."""

    version: Count
    held: dict[Annotated[str, Field(pattern="^[0-9]{1,18}$")], Count]


def whole_bytes(dim: int) -> int:
    """The length of a message with every value of a model: 4 bytes each, and a header."""
    return header_bytes(dim, dim) + 4 * dim


class Downlink:
    """The server's part of the downlink. `rounding` rounds a vector to the precision of the clients' tensors.

    >>> from gammafl.methods.registry import resolve
    >>> model = np.zeros(1000, np.float32)
    >>> way = resolve("top-k:keep=0.01")
    >>> downlink = Downlink(way, ViewState.of(way, model))
    >>> downlink.deliver(client=7).kind
    'whole'
    >>> model[:20] = 1
    >>> downlink.move(model, Moment())
    >>> delivery = downlink.deliver(client=7)
    >>> delivery.kind, int(received(np.zeros(1000, np.float32), delivery).sum())
    ('broadcasts', 10)
    """

    def __init__(
        self, way: Way, state: ViewState, positions: PositionCoding = "auto", rounding: Rounding = exactly
    ) -> None:
        self.way, self.state, self._positions, self._rounding = way, state, positions, rounding
        self._ready: dict[int | None, Delivery] = {}

    @property
    def view(self) -> Vector:
        """The model from which clients train."""
        return self.state.view

    @property
    def is_compressed(self) -> bool:
        """Whether the view differs from the model."""
        return isinstance(self.way, Method)

    def move(self, model: Vector, moment: Moment) -> None:
        """Makes the broadcast of the next round, and moves the view towards `model`."""
        state = self.state
        if self.way == "full":
            state.view = model
        elif isinstance(self.way, Method):
            update = self.way(self._rounding(model) - state.view, moment)  # tensors could not hold the rest
            if len(update):
                state.version += 1
                payload = encode(update, self._positions)
                state.view = added(state.view, update, self._rounding)
                state.changed_at[update.indices] = state.version
                self._remember(payload)
        else:
            held = self._rounding(model)
            if (places := np.flatnonzero(held.view(np.uint32) != state.view.view(np.uint32))).size:
                state.version += 1
                state.changed_at[places] = state.version
                state.view[places] = held[places]
        self._ready.clear()

    def _remember(self, payload: bytes) -> None:
        broadcasts = self.state.broadcasts
        broadcasts[self.state.version] = payload
        while sum(map(len, broadcasts.values())) > whole_bytes(self.view.size):
            del broadcasts[min(broadcasts)]

    def deliver(self, client: int) -> Delivery:
        """What `client` is sent in this round. After that, the server assumes that it holds the view."""
        base = self.state.held.get(client) if self.way != "full" else None
        self.state.held[client] = self.state.version
        return self.delivery(base)

    def delivery(self, base: int | None) -> Delivery:
        """What leads from the version `base` to the view; with None, the whole view."""
        if base not in self._ready:
            self._ready[base] = self._delivery(base)
        return self._ready[base]

    def forget(self, client: int) -> None:
        """Notes that the client no longer has a view."""
        self.state.held.pop(client, None)

    def _delivery(self, base: int | None) -> Delivery:
        state = self.state
        whole = Delivery("whole", None, state.version, whole_bytes(self.view.size))
        if base is None or base > state.version:
            return whole
        since = range(base + 1, state.version + 1)
        known = [state.broadcasts[version] for version in since if version in state.broadcasts]
        if isinstance(self.way, Method) and len(known) == len(since):
            broadcasts = Delivery.of("broadcasts", base, state.version, known)
            if len(known) <= 1:
                return broadcasts
            return min(broadcasts, self._changes(base), whole, key=lambda delivery: delivery.size)
        return min(self._changes(base), whole, key=lambda delivery: delivery.size)

    def _changes(self, base: int) -> Delivery:
        places = np.flatnonzero(self.state.changed_at > base).astype(np.uint32)
        payload = encode(SparseUpdate(self.view.size, places, self.view[places]), self._positions)
        return Delivery.of("changes", base, self.state.version, [payload])


def received(view: Vector, delivery: Delivery, held: int | None = None, rounding: Rounding = exactly) -> Vector:
    """The client's part: its view after `delivery`, as a new vector.

    view       the view that the client held
    held       its version: `delivery.base`, or a later one if the server does not know that the client has it
    delivery   what the server sent; a `WireError` if it can't be applied to that version
    """
    base = 0 if delivery.base is None else delivery.base
    known = 0 if held is None else held - base
    if known < 0 or (delivery.kind == "broadcasts" and len(delivery.payloads) != delivery.version - base):
        raise WireError(f"{len(delivery.payloads)} broadcasts from version {delivery.base} to {delivery.version}")
    after = view.copy()
    for payload in delivery.payloads[known if delivery.kind == "broadcasts" else 0 :]:
        update = decode(payload, view.size)
        if delivery.kind == "broadcasts":
            after = added(after, update, rounding)
        else:
            after[_places(update)] = update.values
    return after


def added(view: Vector, update: SparseUpdate, rounding: Rounding = exactly) -> Vector:
    """view + update, within a model's bounds, as both server and clients compute it. `view` may be overwritten."""
    places, most = _places(update), np.float32(aggregate.LARGEST_MODEL)
    with np.errstate(over="ignore"):
        view[places] = np.clip(view[places] + update.values, -most, most)
    return rounding(view)


def _places(update: SparseUpdate) -> Any:
    return slice(None) if update.entire else update.indices


def distance(model: Vector, view: Vector) -> float:
    """‖x − y‖/‖x‖; 0 if both are zero."""
    size, apart = (math.sqrt(sum_of_squares(vector)) for vector in (model, model - view))
    return apart / size if size else float(apart > 0)
