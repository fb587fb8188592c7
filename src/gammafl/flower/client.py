"""The client's part of a round: give the model to the train function, and send a compressed update to the server."""

import json
import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict

from gammafl.core import kernels
from gammafl.core.arrays import Vector
from gammafl.core.errors import InputError, require
from gammafl.core.memory import RESIDUAL, ClientMemory
from gammafl.core.method import Method
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import decode
from gammafl.federated.budget import own_budget
from gammafl.federated.client import start_after_loss
from gammafl.federated.exchange import ClientState, upload_facts
from gammafl.federated.task import LocalUpdate
from gammafl.files.reading import checked
from gammafl.flower.disk import ClientDisk
from gammafl.flower.downlink import advanced
from gammafl.flower.layout import Layout, LayoutFacts
from gammafl.flower.messages import KEY, UPDATE, Answer, Holding, Offer, message_record, to_delivery, to_mask
from gammafl.methods.description import build
from gammafl.methods.registry import Entry

LOG = logging.getLogger("flwr")

Train = Callable[[Message, Context], Message]

NODE_BUDGET = "gammafl-budget"
"""The key in a SuperNode's node configuration for what this node may send: "2 kB/s", "64 kB/upload"."""


@dataclass
class Exchange:
    """One message of the server, and the answer to it."""

    message: Message
    context: Context
    offer: Offer
    disk: ClientDisk
    forget_after: int | None
    entries: Mapping[str, Entry]

    def train(self, call_next: Train) -> Message:
        """Algorithm 1, lines 6-14.

        The upload is stored before it is sent. After a crash before that, the client continues from the state that
        the last round stored, and the server tells it again whether its last upload arrived.
        """
        method = build(self.offer.method, self.entries)
        budget = own_budget(self.context.node_config.get(NODE_BUDGET))
        if self.offer.base is None:
            self._require_dim(self._layout)  # before memory of that size is allocated
        self.disk.check_room(self.offer.dim, len(method.memory.vectors))
        state = self._state(method)
        if self.offer.round == state.round and state.outbox.open is not None and (stored := self.disk.load_reply()):
            if state.repeat(state.outbox.open, self.offer, budget):
                self.disk.save(state, method, stored)
            return self._same_answer(state.outbox.open, *stored)
        require(
            self.offer.round > state.round,
            f"a message of round {self.offer.round}, but this client has uploaded in round {state.round} already",
        )
        found = self._model()
        if found is None:
            self.disk.save(state, method)  # the server will know the client by it
            return self._ask_for_full(Answer(wants_full=True, **self._who(state)))
        model, layout = found
        again, lost = state.settle(self.offer, self.context.node_id)
        if lost is not None:
            LOG.warning(
                "gammafl: upload %d of client %s (round %d) did not count; its update is sent with the next ones",
                state.outbox.number,
                self.disk.name,
                state.round,
            )
        start = model if lost is None else start_after_loss(model, lost)
        sent = self._sent_names(layout)
        reply = call_next(self._plain(start, layout, built=lost is not None), self.context)
        if reply.has_error():
            return reply
        key, trained = self._trained(reply.content, layout, sent)
        before = layout.rounded(start) if lost is not None else start
        if self.offer.replies == "update":
            local = _change(layout, trained)
        else:
            local = _update(layout, before, trained, checks=self.offer.replies is None)
        with _set_aside(state.outbox.memory, layout, trained.keys()):
            payload = state.send(local, self.offer, layout.vector, self.context.node_id, again, budget)
        returned = _names_in(payload, layout, sent) | trained.keys() if again else trained.keys()
        Answer(
            holds=self._holds(),
            returned=None if returned == sent else to_mask(returned, layout.names),
            **self._who(state),
            **upload_facts(state, again),
        ).write(reply.content)
        del reply.content[key]
        self.disk.save(state, method, (key, reply.content) if self.offer.resumes else None)
        reply.content[key] = message_record(UPDATE, payload)
        return reply

    def _same_answer(self, payload: bytes, key: str, content: RecordDict) -> Message:
        """The stored answer, for a server that died and asks for the same round again.

        The client does not train again: the server would count the same training twice.
        """
        LOG.info("gammafl: client %s sends its upload of round %d again", self.disk.name, self.offer.round)
        answer = Answer.read(content)
        if answer is None or answer.round != self.offer.round:
            raise InputError(f"{self.disk.state_file} holds a reply to another round; remove it")
        held = self._holds() if self._model() is not None else None
        made = answer.made if answer.again else answer.round
        answer.model_copy(update={"again": True, "made": made, "holds": held}).write(content)
        content[key] = message_record(UPDATE, payload)
        return Message(content, reply_to=self.message)

    def evaluate(self, call_next: Train) -> Message:
        """Gives the app's evaluate function the whole model, also if only changes of it were sent."""
        found = self._model()
        if found is None:
            return self._ask_for_full(Holding(wants_full=True))
        reply = call_next(self._plain(*found, built=False), self.context)
        if not reply.has_error():
            Holding(holds=self._holds()).write(reply.content)
        return reply

    # --- the upload ---------------------------------------------------------------------------------------

    def _state(self, method: Method) -> ClientState:
        """The stored state. A new one, and a warning, if it is lost, too old, or unknown to the server."""
        offer, state = self.offer, self.disk.load(method, self.offer.dim, self.offer.training)
        reason = state.distrust(offer, str(self.disk.state_file.parent), self.forget_after)
        if reason is None:
            return state
        LOG.warning("gammafl: client %s starts clean: %s", self.disk.name, reason)
        state = ClientState.new(method, offer.dim, offer.training, offer.round - 1, pace=state.pace)
        self.disk.save(state, method)  # so the warning comes once, even if the training fails
        return state

    # --- the model ----------------------------------------------------------------------------------------

    def _model(self) -> tuple[Vector, Layout] | None:
        """The server's model: from the message, or the stored model plus the changes. None if none is stored."""
        record = self._record
        if self.offer.base is None:
            layout = self._layout
            self._require_dim(layout)
            model = layout.flatten(record, "the server's model", record.keys())
        else:
            stored = self.disk.load_model(self.offer.base, self.offer.version)
            if stored is None:
                return None
            held, view, layout = stored
            self._require_dim(layout)
            delivery = to_delivery(record, self.offer.base, self.offer.version)
            model = advanced(view, held, delivery, layout)
        alike = self.offer.layout in (None, layout.vector.fingerprint())
        require(alike, "the server sent a model with other tensors than it announced")
        if self.offer.stores:
            self.disk.save_model(model, layout, self.offer.version)
        return model, layout

    @property
    def _record(self) -> ArrayRecord:
        """The record in the server's message that holds the model or its changes."""
        record = self.message.content.array_records.get(self.offer.arrays)
        if record is None:
            raise InputError(f"the server announced a model as {self.offer.arrays!r}, but its message has none")
        return record

    def _require_dim(self, layout: Layout) -> None:
        require(layout.dim == self.offer.dim, f"the model has {layout.dim} elements, {self.offer.dim} were announced")

    @cached_property
    def _layout(self) -> Layout:
        """The layout of the whole model, also if the server sent a part of it."""
        record = self._record
        if self.offer.tensors is None:
            tied = self.offer.tied or []
            require(len(tied) % 2 == 0, "the server must name tied tensors in pairs")
            return Layout.of(record, self.offer.whole, dict(zip(tied[::2], tied[1::2], strict=True)))
        try:
            facts = checked(LayoutFacts, json.loads(self.offer.tensors))
            return Layout.from_facts(facts, {name: record[name].data for name in facts.fixed if name in record})
        except (ValueError, RecursionError) as error:
            raise InputError(f"the server's layout is malformed ({error})") from None

    def _sent_names(self, layout: Layout) -> set[str]:
        """The tensors that the server sent."""
        record = self.message.content.array_records[self.offer.arrays]
        return set(layout.names) if self.offer.base is not None else set(record)

    def _plain(self, model: Vector, layout: Layout, built: bool) -> Message:
        """The message for the app's function, without gammafl's record; with `model` if it was `built` here."""
        key = self.offer.arrays
        if built or self.offer.base is not None:
            self.message.content[key] = layout.record(model, [n for n in layout.names if n in self._sent_names(layout)])
        del self.message.content[KEY]
        return self.message

    def _trained(self, content: RecordDict, layout: Layout, sent: Collection[str]) -> tuple[str, ArrayRecord]:
        """The key and the model in the train function's reply. Other ArrayRecords belong to the app."""
        records = content.array_records
        fitting = [key for key, record in records.items() if record and record.keys() <= set(layout.names)]
        keys = [self.offer.arrays] if self.offer.arrays in records else fitting
        if len(keys) != 1:
            raise InputError(
                "the train function must return the model in one ArrayRecord, under the key under which it was sent"
                f" ({self.offer.arrays!r}); found {list(records)}"
            )
        trained = records[keys[0]]
        if extra := [name for name in trained if name not in sent]:
            raise InputError(f"the train function returned tensors that it was not sent: {', '.join(extra[:3])}")
        layout.require_tied(trained)
        return keys[0], trained

    # --- the answer ---------------------------------------------------------------------------------------

    def _who(self, state: ClientState) -> dict[str, Any]:
        return {"name": self.disk.name, "incarnation": state.incarnation, "round": self.offer.round}

    def _holds(self) -> int | None:
        return self.offer.version if self.offer.stores else None

    def _ask_for_full(self, answer: Holding) -> Message:
        """The answer of a client that has no stored model: the server will send it the whole model next time."""
        LOG.warning(
            "gammafl: client %s has no model of version %s and asks for a whole one", self.disk.name, self.offer.base
        )
        content = RecordDict()
        answer.write(content)
        return Message(content, reply_to=self.message)


@contextmanager
def _set_aside(memory: ClientMemory, layout: Layout, names: Collection[str]) -> Iterator[None]:
    """Hides the residual of tensors other than `names`. The reply does not hold them: the server would drop it."""
    rest = memory.state().get(RESIDUAL)
    if rest is None or layout.shapes.keys() <= set(names):
        yield
        return
    require(
        not memory.method.memory.commits,
        f"{memory.method.name} needs the whole model back, and the train function returned a part of its tensors",
    )
    outside = rest != 0
    for name in names:
        if name in layout.places:
            outside[layout.places[name]] = False
    positions = np.flatnonzero(outside).astype(np.uint32)
    waiting = SparseUpdate(layout.dim, positions, rest[positions])
    if len(waiting):
        memory.remove(waiting)
    yield
    if len(waiting):
        memory.take_back(waiting)


def _names_in(payload: bytes, layout: Layout, sent: Collection[str]) -> set[str]:
    """The tensors of which an upload has entries. Tied tensors are named together, if they were sent."""
    update = decode(payload)
    positions = np.flatnonzero(update.values) if update.entire else update.indices
    return {
        name
        for name, place in layout.places.items()
        if np.searchsorted(positions, place.start) < np.searchsorted(positions, place.stop)
        and (name in sent or name not in layout.tied)
    }


def _update(layout: Layout, before: Vector, trained: ArrayRecord, checks: bool) -> LocalUpdate:
    """Δ = x_{t+1−E} − x_{t+1}, and 0 for tensors that were not returned.

    With `checks`, it refuses a reply that looks like a change of the model.
    """
    after = layout.flatten(trained, TRAINED, trained.keys())
    for name in layout.shapes:
        if name not in trained:
            after[layout.places[name]] = before[layout.places[name]]
    require(not checks or not _looks_like_a_change(before, after), CHANGE)
    delta = np.empty_like(before)
    return LocalUpdate(delta, 0.0, kernels.difference(before, after, delta))


def _change(layout: Layout, change: ArrayRecord) -> LocalUpdate:
    """Δ if the train function returns x_{t+1} − x_{t+1−E}."""
    return LocalUpdate(-layout.flatten(change, TRAINED, change.keys()), 0.0)


TRAINED = "the model that the train function returned"
CHANGE = (
    "the train function seems to return the change of the model, not the model. If so, say it on the server:"
    " Compressed(…, replies='update')"
)
MANY = 1000
"""With this number of elements or more, the angle tells whether two vectors are unrelated."""


def _looks_like_a_change(before: Vector, after: Vector) -> bool:
    """Whether `after` is smaller than `before` and nearly orthogonal to it. No training changes a model like this."""
    if before.size < MANY:
        return False
    size, other = float(np.dot(before, before)), float(np.dot(after, after))
    return 0 < other < size and abs(float(np.dot(before, after))) < 0.2 * math.sqrt(size * other)
