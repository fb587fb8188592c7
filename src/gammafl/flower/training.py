"""The server's facts about one training over Flower: its settings, its model's tensors, and the open round."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

from gammafl.config.budget import NO_BUDGET, Budget
from gammafl.config.privacy import Privacy
from gammafl.core import aggregate, kernels
from gammafl.core.arrays import Vector
from gammafl.core.errors import InputError, require
from gammafl.core.method import Method
from gammafl.core.moment import Schedule
from gammafl.core.stepsizes import Constant, Stepsize
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.server_exchange import Arrival, ServerExchange
from gammafl.files.reading import checked
from gammafl.flower.arrays import floats_in, floats_out, kept, same_data
from gammafl.flower.downlink import Downlink
from gammafl.flower.layout import FLOATS, WHOLE, Layout, LayoutFacts
from gammafl.flower.packing import Packer, unpack
from gammafl.flower.traps import Trap, no_trap
from gammafl.methods.ways import Way

LOG = logging.getLogger("flwr")


LARGEST_SQUARED = 2.0**60
"""The largest element of a model for strategies that take squares, such as those with moments. The squared difference
of two such models is finite in float32."""


@dataclass(frozen=True)
class Terms:
    """The user's settings of a training; `Compressed` explains each."""

    method: Method
    rounds: int
    stepsize: Stepsize | None = None
    """γ_t. None: the learning rate of the train config, taken as constant."""

    local_steps: int = 1
    lr_key: str = "lr"
    limits: Limits = NO_LIMITS
    budget: Budget = NO_BUDGET
    downlink: Way = "full"
    privacy: Privacy | None = None
    whole: Sequence[str] = WHOLE
    tied: bool = True
    replies: Literal["model", "update"] | None = None
    accept_whole: bool = False
    arrays_key: str | None = None
    weight_key: str | None = None
    """The metric by which an upload is weighted. None: the strategy decides."""

    alike: bool = True
    """Whether the strategy needs the same names of metrics and tensors in all replies."""

    plain: bool = False
    """Whether the strategy aggregates as FedAvg does."""

    trap: Trap = no_trap
    """Why a reply would end the run in the strategy's own code."""

    @property
    def largest_model(self) -> float:
        """The largest element of a model. Larger ones are set to it: a bad client can't end the training with them."""
        return aggregate.LARGEST_MODEL if self.plain else LARGEST_SQUARED

    @property
    def largest_update(self) -> float:
        """The largest element of an update: more than the difference of two models can have."""
        return aggregate.LARGEST_MODEL if self.plain else 4 * LARGEST_SQUARED

    simulated: bool = False
    resumes: bool = False
    """Whether the server's state is stored, so that it may ask for a round again."""


@dataclass(frozen=True)
class Base:
    """A model that the strategy made for some nodes."""

    record: ArrayRecord
    vector: Vector
    """The model's floats, in float32."""

    sent: ArrayRecord
    """The model for clients, in the types of the app's first model."""

    key: str


@dataclass
class OpenRound:
    """The open round: which node was sent which model, and what happened to the replies."""

    bases: dict[int, Base] = field(default_factory=dict)
    """Node → the model that it was sent."""

    read: bool = False
    """Whether any reply has been read."""

    refused: dict[int, str] = field(default_factory=dict)
    repeated: list[int] = field(default_factory=list)
    """Nodes that sent again an upload that had arrived before. It does not count, and is no error."""

    without_model: list[int] = field(default_factory=list)
    """Nodes that could not train: they were sent changes of a version that they have lost."""

    whole: dict[int, int] = field(default_factory=dict)
    """Node → the bytes of the whole model that it sent, if whole models are accepted."""

    partial: set[int] = field(default_factory=set)
    """Nodes that returned only a part of the tensors that they were sent."""

    other_bytes: int = 0
    """The bytes of other arrays in the counted replies, which are not compressed."""

    warnings: list[str] = field(default_factory=list)
    """Warnings about the training, set when the round is closed."""

    failed: dict[int, str] = field(default_factory=dict)
    """Node → the error with which it answered."""

    downlink_bytes: int = 0
    """The bytes of the models in the train messages."""

    evaluation_bytes: int = 0
    """The bytes of the models in the evaluate messages since the previous round was closed."""


class Training:
    """One training. It begins with the first model that the strategy sends."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.open = OpenRound()
        self.last: Base | None = None
        """The last model that was sent to all."""
        self.several = False
        """Whether a round ever had several models."""
        self._other: Base | None = None
        """Another model that was sent: to some nodes, or for evaluation."""
        self._parts: tuple[Layout, ServerExchange, Downlink] | None = None

    def begin(self, layout: Layout, stepsize: Stepsize, uploads: int | None) -> None:
        """Begins the training. `uploads` is the number of uploads per round, if it is known."""
        terms = self.terms
        exchange = ServerExchange(
            terms.method,
            Schedule(stepsize, terms.rounds * terms.local_steps),
            layout.vector,
            local_steps=terms.local_steps,
            limits=terms.limits,
            privacy=terms.privacy,
            budget=terms.budget,
            uploads=uploads,
            largest=terms.largest_update,
            say=lambda text: LOG.warning("gammafl: %s", text),
        )
        self._parts = layout, exchange, Downlink(terms.downlink, layout, exchange)

    def state(self, packer: Packer) -> dict[str, Any]:
        """The state to store, of a training that has begun. An open round starts again after a restart."""
        layout, exchange, down = self._begun
        return {
            "layout": layout.facts(),
            "fixed": packer.pack(dict(layout.fixed)),
            "gamma": None if self.terms.stepsize is not None else exchange.schedule.ends[0],
            "uploads": exchange.uploads,
            "exchange": packer.pack(exchange.state_dict(copy=False)),
            "several": self.several,
            "key": None if self.last is None else self.last.key,
            "down": down.state(packer, None if self.last is None else self.last.record),
        }

    def restore(self, saved: Mapping[str, Any], tensors: Mapping[str, Any], record: ArrayRecord) -> None:
        """Sets the state that `state` returned before. `record` is the strategy's model."""
        fixed = unpack(saved["fixed"], tensors)
        layout = Layout.from_facts(
            checked(LayoutFacts, saved["layout"]), {name: array.data for name, array in fixed.items()}
        )
        shapes = {name: tuple(record[name].shape) for name in layout.shapes if name in record}
        fits = all(shape == layout.shapes[name] for name, shape in shapes.items())
        require(fits, "its model has other shapes than its layout")  # before memory of that size is allocated
        stepsize = Constant(saved["gamma"]) if self.terms.stepsize is None else self.terms.stepsize
        self.begin(layout, stepsize, saved["uploads"])
        self.exchange.load_state_dict(unpack(saved["exchange"], tensors))
        self.exchange.asked.clear()  # the open round starts again
        self.several = saved["several"]
        if saved["key"] is not None:
            self.last = self.base(record, saved["key"])
        self.down.restore(saved["down"], tensors, record if self.last is None else self.last.record)

    @property
    def begun(self) -> bool:
        return self._parts is not None

    @property
    def layout(self) -> Layout:
        """The tensors of the first model."""
        return self._begun[0]

    @property
    def exchange(self) -> ServerExchange:
        return self._begun[1]

    @property
    def down(self) -> Downlink:
        """The downlink."""
        return self._begun[2]

    @property
    def _begun(self) -> tuple[Layout, ServerExchange, Downlink]:
        if self._parts is None:
            raise InputError("the strategy has sent no model to train yet")
        return self._parts

    @property
    def has_view(self) -> bool:
        """Whether clients hold another model than the strategy."""
        return self.begun and self.down.is_compressed and not self.several

    def note_several(self) -> None:
        """From now on, each model is sent whole, since one view can't replace several models."""
        if self.has_view:
            LOG.warning(
                "gammafl: the strategy sends several models in one round. From now on they are sent whole: one"
                " compressed view can't replace them all"
            )
        self.several = True

    def base(self, record: ArrayRecord, key: str, leads: bool = True) -> Base:
        """The model of a message. All messages with the same model share one object.

        leads   whether the model may be the next round's model, if it is the round's first
        """
        bases = (self.last, self._other, *self.open.bases.values())
        known = {id(base): base for base in bases if base is not None}
        for base in known.values():
            if base.key == key and same_data(base.record, record):
                return base
        layout = self.layout
        if strangers := [name for name in record if name not in layout.names]:
            raise InputError(f"the strategy sends tensors that its first model lacked: {', '.join(strangers[:3])}")
        vector = layout.flatten(record, "the strategy's model", record.keys())
        require_finite(vector, "the strategy's model")
        record = kept(record)  # a strategy may change its own in place, and hand it over again
        base = Base(record, vector, self.as_it_began(record), key)
        if leads and not self.open.bases:
            self.last = base
        else:
            self._other = base
        return base

    def move(self, arrays: ArrayRecord) -> None:
        """Moves the view, if there is one, towards the strategy's new model."""
        if self.has_view and self.last is not None and arrays.keys() == set(self.layout.names):
            base = self.base(arrays, self.last.key)
            self.down.show(base.record, base.vector, base.sent)

    def as_held(self, arrays: ArrayRecord) -> ArrayRecord:
        """The model that clients hold after the next message. A part of a model is returned unchanged."""
        last = self.last if self.has_view else None
        if last is None or not self.is_whole(last) or not same_data(arrays, last.record):
            return arrays
        return self.down.whole

    def is_whole(self, base: Base) -> bool:
        """Whether the strategy sent all tensors, not only a part of them."""
        return len(base.record) == len(self.layout.names)

    def as_it_began(self, record: ArrayRecord) -> ArrayRecord:
        """`record` in the types and the order of the first model: a strategy may have changed both."""
        layout, arrays = self.layout, {}
        for name in (name for name in layout.names if name in record):
            array = record[name]
            if name in layout.fixed:
                first = layout.fixed[name]
                same = (array.dtype, array.stype) == (first.dtype, first.stype)
                arrays[name] = array if same else Array(np.asarray(np.round(array.numpy()), first.dtype))
            elif (array.dtype, array.stype) == layout.types[name] and name not in layout.tied:
                arrays[name] = array
            else:
                first = record.get(layout.tied.get(name, name), array)
                arrays[name] = floats_out(np.asarray(floats_in(first), np.float32), layout.types[name])
        return ArrayRecord(arrays)

    def within(self, arrays: ArrayRecord) -> ArrayRecord:
        """The strategy's model. Elements that are too large are set to the largest allowed value."""
        most, layout = self.terms.largest_model, self.layout
        large = {}
        for name, array in arrays.items():
            if (
                name in layout.types
                and array.dtype in FLOATS
                and np.abs(values := floats_in(array)).max(initial=0) > most
            ):
                large[name] = Array(np.clip(values, -most, most))
        if large:
            LOG.warning("gammafl: elements of %s larger than %.3g are set to this value", ", ".join(large)[:200], most)
        return ArrayRecord({**arrays, **large}) if large else arrays

    def close(self, counted: Sequence[Arrival]) -> OpenRound:
        """Ends the round and returns it."""
        closed, self.open = self.open, OpenRound()
        closed.warnings = self.exchange.close(counted)
        return closed

    def model_key(self, content: RecordDict) -> str | None:
        """The key of the ArrayRecord that is the model. None if there is no ArrayRecord."""
        keys, wanted = list(content.array_records), self.terms.arrays_key
        if wanted in keys or not keys:
            return wanted if keys else None
        if len(keys) == 1:
            return keys[0]
        raise InputError(
            f"a message has several ArrayRecords ({', '.join(keys)}); say which one is the model, such as"
            f" Compressed(…, arrays={keys[0]!r})"
        )


def require_finite(model: Vector, whose: str, most: float = aggregate.LARGEST_MODEL) -> None:
    finite = kernels.largest_magnitude(model) <= most
    require(finite, f"{whose} holds values that are not finite, or above {most:.3g}")
