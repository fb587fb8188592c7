"""The client's line: a mod that sends a compressed update where the train function returns a model."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Error, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode

from gammafl.core import kernels
from gammafl.core.arrays import Vector
from gammafl.core.errors import GammaflError, InputError, require
from gammafl.core.method import Method
from gammafl.core.wire import decode
from gammafl.federated.client import start_after_loss
from gammafl.federated.exchange import ClientState
from gammafl.federated.task import LocalUpdate
from gammafl.flower.disk import ClientDisk, state_directory
from gammafl.flower.layout import Layout
from gammafl.flower.messages import CHANGES, KEY, UPDATE, Answer, Holding, Offer, difference, message_record
from gammafl.methods.description import build, describe, own_entries
from gammafl.methods.registry import Entry, resolve

LOG = logging.getLogger("flwr")

Train = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Train], Message]


def compress(
    state_dir: str | os.PathLike[str] | None = None,
    *,
    method: Method | None = None,
    methods: Sequence[Callable[..., Any]] = (),
    forget_after: int | None = None,
) -> Mod:
    """A mod for `ClientApp(mods=[compress()])`; the server's strategy must be `CompressedFedAvg`.

    state_dir      where the client keeps what was not sent, and what was sent but not yet confirmed. By default
                   $GAMMAFL_STATE, or the user's directory for state
    method         the server says how to compress; a method given here must be the same, or the client does not train
    methods        functions that make methods of your own, as on the server. Those of gammafl and of installed packages
                   that register some are known
    forget_after   a client that did not take part for more rounds than that starts clean: its residual is of an old
                   model
    """
    directory = state_directory() if state_dir is None else Path(state_dir)
    own = None if method is None else describe(resolve(method))
    entries = own_entries(methods)
    require(forget_after is None or forget_after >= 1, f"forget_after must be at least 1 round, got {forget_after}")

    def mod(message: Message, context: Context, call_next: Train) -> Message:
        try:
            offer = Offer.read(message.content)
            if offer is None:
                require(message.metadata.message_type != MessageType.TRAIN, NOT_OFFERED)
                return call_next(message, context)
            _agree(own, offer, entries)
            disk = ClientDisk(directory, context)
            with disk.locked(message.metadata.ttl):
                exchange = Exchange(message, context, offer, disk, forget_after, entries)
                trains = message.metadata.message_type == MessageType.TRAIN
                return exchange.train(call_next) if trains else exchange.evaluate(call_next)
        except GammaflError as error:
            LOG.error("gammafl: %s", error)
            return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, f"gammafl: {error}"), reply_to=message)

    return mod


NOT_OFFERED = (
    "the server does not expect compressed updates: use gammafl.flower.CompressedFedAvg as its strategy,"
    " or remove gammafl.flower.compress() from the client's mods"
)


def _agree(own: str | None, offer: Offer, entries: Mapping[str, Entry]) -> None:
    if own is not None and own != describe(build(offer.method, entries)):
        raise InputError(f"client and server disagree on the method: {difference(own, offer.method)}")


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
        """Algorithm 1, lines 6-14. The upload is stored before it leaves: until then a crash leaves what the last
        round stored, and the server's word about it comes again."""
        method = build(self.offer.method, self.entries)
        self.disk.check_room(self.offer.dim)
        state = self._state(method)
        require(
            self.offer.round > state.round,
            f"a message of round {self.offer.round}, after an upload of round {state.round}: too late to answer",
        )
        found = self._model()
        if found is None:
            self.disk.save(state, method)  # the server will know us by this incarnation
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
        reply = call_next(self._plain(start, layout), self.context)
        if reply.has_error():
            return reply
        key, trained = _only_arrays(reply.content)
        local = _update(layout.rounded(start), layout.flatten(trained, "the model that the train function returned"))
        payload = state.send(local, self.offer, layout.vector, self.context.node_id, again)
        self.disk.save(state, method)
        reply.content[key] = message_record(UPDATE, payload)
        answer = Answer(number=state.outbox.number, again=again, holds=self._holds(), **self._who(state))
        answer.write(reply.content)
        return reply

    def evaluate(self, call_next: Train) -> Message:
        """The function gets the whole model, however it came."""
        found = self._model()
        if found is None:
            return self._ask_for_full(Holding(wants_full=True))
        reply = call_next(self._plain(*found), self.context)
        if not reply.has_error():
            Holding(holds=self._holds()).write(reply.content)
        return reply

    # --- the upload ---------------------------------------------------------------------------------------

    def _state(self, method: Method) -> ClientState:
        """What is stored; a clean one, and a warning, where that is lost, too old, or not what the server knows."""
        offer, state = self.offer, self.disk.load(method, self.offer.dim, self.offer.training)
        reason = state.distrust(offer, str(self.disk.state_file.parent), self.forget_after)
        if reason is None:
            return state
        LOG.warning("gammafl: client %s starts clean: %s", self.disk.name, reason)
        state = ClientState.new(method, offer.dim, offer.training, offer.round - 1)
        self.disk.save(state, method)  # said once, even if the training fails
        return state

    # --- the model ----------------------------------------------------------------------------------------

    def _model(self) -> tuple[Vector, Layout] | None:
        """The server's model: as it came, or what is stored with what has changed since; None if nothing is stored."""
        _, record = _only_arrays(self.message.content)
        if self.offer.base is None:
            layout = Layout.of(record, self.offer.whole)
            model = layout.flatten(record, "the server's model")
        else:
            stored = self.disk.load_model(self.offer.base, self.offer.version)
            if stored is None:
                return None
            model, layout = stored
            _patch(model, record)
        require(layout.dim == self.offer.dim, f"a model of {layout.dim} elements where {self.offer.dim} are announced")
        alike = self.offer.layout in (None, layout.vector.fingerprint())
        require(alike, "a model with other tensors than the server announced")
        if self.offer.downlink == "changes":
            self.disk.save_model(model, layout, self.offer.version)
        return model, layout

    def _plain(self, model: Vector, layout: Layout) -> Message:
        """The message as the train function knows it."""
        key, _ = _only_arrays(self.message.content)
        self.message.content[key] = layout.record(model)
        del self.message.content[KEY]
        return self.message

    # --- the answer ---------------------------------------------------------------------------------------

    def _who(self, state: ClientState) -> dict[str, Any]:
        return {"name": self.disk.name, "incarnation": state.incarnation, "round": self.offer.round}

    def _holds(self) -> int | None:
        return self.offer.version if self.offer.downlink == "changes" else None

    def _ask_for_full(self, answer: Holding) -> Message:
        """Nothing to build on: the server sends the whole model the next time."""
        LOG.warning(
            "gammafl: client %s has no model of version %s; asks for a whole one", self.disk.name, self.offer.base
        )
        content = RecordDict()
        answer.write(content)
        return Message(content, reply_to=self.message)


def _only_arrays(content: RecordDict) -> tuple[str, ArrayRecord]:
    found = list(content.array_records.items())
    require(len(found) == 1, f"a message must have one ArrayRecord, the model; found {[key for key, _ in found]}")
    return found[0]


def _patch(model: Vector, record: ArrayRecord) -> None:
    """Puts the server's current values where they have changed."""
    update = decode(record[CHANGES].data)
    require(update.dim == model.size, f"changes of {update.dim} elements for a model of {model.size}")
    model[slice(None) if update.entire else update.indices] = update.values


def _update(before: Vector, after: Vector) -> LocalUpdate:
    """Δ = x_{t+1−E} − x_{t+1}."""
    delta = np.empty_like(before)
    largest = kernels.difference(before, after, delta)
    return LocalUpdate(delta, 0.0, largest)
