"""One client and one server for your own transport: the client turns models into bytes, the server reads them.

The protocol is the same as over Flower: uploads are numbered, confirmed, and counted once.
"""

import json
import logging
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gammafl.config.budget import Budget
from gammafl.config.privacy import Privacy
from gammafl.core import aggregate, kernels
from gammafl.core.arrays import Vector
from gammafl.core.compressors import Compressor
from gammafl.core.device.places import Place, place_named, place_of, require_possible_in
from gammafl.core.device.vectors import is_on_device, on_host
from gammafl.core.errors import InputError, WireError, require
from gammafl.core.method import Method
from gammafl.core.moment import Schedule
from gammafl.core.sparse import SparseUpdate
from gammafl.federated.budget import Pace, own_budget
from gammafl.federated.client import start_after_loss
from gammafl.federated.exchange import Answer, ClientFacts, ClientState, Offer, upload_facts
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.models import (
    flatten,
    has_tensors,
    layout_like,
    require_writable,
    tensors_of,
    unflatten,
    write_back,
)
from gammafl.federated.server_exchange import ServerExchange, described, weight_within
from gammafl.federated.task import LocalUpdate
from gammafl.files import tensor_files
from gammafl.files.disk_errors import storing
from gammafl.files.reading import checked
from gammafl.methods.registry import resolve

LOG = logging.getLogger("gammafl")

MAGIC = b"gU\x01"
HEAD = struct.Struct("<IH")
"""An upload is MAGIC, a checksum of all that follows the checksum, the length of the answer, the answer as JSON, and a
message of docs/wire-format.md."""

StateDict = dict[str, Any]
ASK = "give step() a copy, model.cpu()"


class Client:
    """One client. It keeps its residual, and uploads that did not count.

    name     the name by which the server knows it
    method   the same method as the server's
    like     the model: a torch module, a dict of tensors or arrays, a vector, or a number of elements
    budget   what this client may send, "64 kB/upload" or "2 kB/s"; limits in the server's offer apply too
    device   where it keeps its residual and compresses; by default the device of the tensors of `like`. Then only
             the upload is copied to the host. "cpu" is the host: it copies each update as a whole from its device

    >>> import numpy as np
    >>> import gammafl as gf
    >>> method = gf.top_k(k=2)
    >>> server, client = gf.Server(method, gf.Schedule(0.1, 100), like=5), gf.Client("a", method, like=5)
    >>> model = np.zeros(5, np.float32)
    >>> upload = client.encode(model, model - [5, 1, 2, 3, 4], server.offer("a"))
    >>> server.accept("a", upload)
    True
    >>> server.step(model).kept
    2
    >>> model.tolist(), client.residual.tolist()
    ([-5.0, 0.0, 0.0, 0.0, -4.0], [0.0, 1.0, 2.0, 3.0, 0.0])
    """

    def __init__(
        self,
        name: str,
        method: Method | Compressor | str,
        like: Any,
        *,
        budget: str | Budget | None = None,
        device: Any = None,
    ) -> None:
        _require_name(name)
        self.name = name
        self.budget = own_budget(budget)
        self.method = resolve(method)
        self.layout = layout_like(like)
        held = tensors_of(like) if has_tensors(like) else []
        self._place = place_of(held) if device is None else place_named(device)
        require_possible_in(self._place, self.method)
        self._asked = device is not None
        self._set_state(self._new_state(""))

    def _set_state(self, state: ClientState) -> None:
        self._state = state
        self._lost: SparseUpdate | None = None
        """What was lost with the last upload, until the next upload is made: it may take several attempts."""

    def _new_state(self, training: str, round_number: int = 0, pace: Pace | None = None) -> ClientState:
        return ClientState.new(self.method, self.layout.dim, training, round_number, self._place, pace)

    def _flat(self, model: Any, whose: str) -> Any:
        """The model as a vector on this client's device. A copy of a whole model to the host needs device="cpu"."""
        if self._place.is_host and not self._asked and has_tensors(model):
            found = next((str(tensor.device) for tensor in tensors_of(model) if is_on_device(tensor)), None)
            require(
                found is None,
                f"{whose} is on {found}, but client {self.name} compresses on the host: give gf.Client(…,"
                f" device={found!r}), or device='cpu' to copy each update to the host",
            )
        return flatten(model, self.layout, whose, self._place)

    @property
    def residual(self) -> Vector:
        """The residual, what was computed and not sent, as a copy on the host."""
        memory = self._state.outbox.memory.state()
        return on_host(memory.get("residual", np.zeros(self.layout.dim, np.float32)))

    def begin(self, model: Any, offer: Offer) -> Any:
        """The model from which to train: `model`, and a lost upload of this client as if it had arrived.

        Without this call nothing is lost, but the client computes a lost update a second time.

        model   the server's model
        offer   the server's offer for this round

        Returns a vector for a vector, and a dict of arrays for a dict or a module. A client that compresses on a
        device returns tensors.
        """
        self._meet(offer)
        start = self._flat(model, "the server's model")
        if not self._is_answered(offer):
            again, lost = self._state.settle(offer, self.name)
            if lost is not None and not again:
                self._lost = lost
            if self._lost is not None:
                start = start_after_loss(start, self._lost)
        return unflatten(start, self.layout, model)

    def encode(self, before: Any, after: Any, offer: Offer) -> bytes:
        """The upload for one round of training. Entries that are not sent stay in the residual.

        before   the model before the training, as `begin` returned it
        after    the model after the training
        offer    the server's offer for this round

        Returns the upload. If this client has answered the round before, it is the same upload again, and the second
        training is ignored. A server that went back to its stored state asks for a round again.
        """
        self._meet(offer)
        if self._is_answered(offer) and (sent := self._state.outbox.open) is not None:
            self._state.repeat(sent, offer, self.budget)
            return self._upload(sent, offer, again=True)
        delta = self._flat(before, "before")
        largest = kernels.difference(delta, self._flat(after, "after"), delta)
        again, _ = self._state.settle(offer, self.name)
        local = LocalUpdate(delta, 0.0, largest)
        payload = self._state.send(local, offer, self.layout, self.name, again, self.budget)
        self._lost = None
        return self._upload(payload, offer, again)

    def _upload(self, payload: bytes, offer: Offer, again: bool) -> bytes:
        state = self._state
        answer = Answer(
            name=self.name,
            incarnation=state.incarnation,
            training=state.training,
            round=offer.round,
            **upload_facts(state, again),
        )
        return _closed(answer, payload)

    def _is_answered(self, offer: Offer) -> bool:
        """Whether the open upload belongs to this round."""
        return offer.round == self._state.round and self._state.outbox.open is not None

    def _meet(self, offer: Offer) -> None:
        """Makes a new state if the offer belongs to another training, or if the server knows another state."""
        wanted = described(self.method)
        require(offer.method == wanted, f"the server's method is {offer.method}, but this client's is {wanted}")
        fits = offer.dim == self.layout.dim and offer.layout in (None, self.layout.fingerprint())
        require(fits, "the server's model has other tensors than this client's; give both the same `like`")
        if offer.training != self._state.training:
            self._set_state(self._new_state(offer.training, pace=self._state.pace))
        if (reason := self._state.distrust(offer, "this client")) is not None:
            LOG.warning("gammafl: client %s starts clean: %s", self.name, reason)
            self._set_state(self._new_state(offer.training, offer.round - 1, self._state.pace))
        require(
            offer.round > self._state.round or self._is_answered(offer),
            f"an offer of round {offer.round}, but this client has uploaded in round {self._state.round} already",
        )

    def state_dict(self) -> StateDict:
        """The client's state as arrays and plain values, to store it."""
        state, outbox = self._state, self._state.outbox
        tensors = {name: on_host(vector.copy()) for name, vector in outbox.memory.state().items()}
        if outbox.open is not None:
            tensors["open"] = np.frombuffer(outbox.open, np.uint8)
        return {"tensors": tensors, "facts": ClientFacts.of(state, described(self.method))}

    def load_state_dict(self, saved: StateDict) -> None:
        """Sets the state that `state_dict` returned; an `InputError` if it belongs to another method or model."""
        tensors, dim = dict(saved["tensors"]), self.layout.dim
        try:
            facts = checked(ClientFacts, saved["facts"])
            payload = None if "open" not in tensors else np.asarray(tensors.pop("open"), np.uint8).tobytes()
            require(facts.method == described(self.method), f"it belongs to the method {facts.method}")
            vectors = {name: np.array(vector) for name, vector in tensors.items()}
            self._set_state(ClientState.restored(self.method, dim, facts, vectors, payload, self._place))
        except ValueError as error:
            raise InputError(f"not a state of this client ({error})") from None

    def save(self, path: str | Path) -> None:
        """Writes the state to a file. A crash at any time leaves the whole old file or the whole new one.

        Save after `encode` and before you send the upload. Then a crash can't make the client forget what it sent.
        """
        saved = self.state_dict()
        with storing(Path(path), "save again", "choose another path"):
            tensor_files.replace(Path(path), saved["tensors"], saved["facts"])

    def load(self, path: str | Path) -> None:
        """Reads the file that `save` wrote; an `InputError` if it can't be used."""
        try:
            facts, tensors = tensor_files.read(Path(path))
            self.load_state_dict({"tensors": dict(tensors), "facts": facts})
        except (*tensor_files.DAMAGED, OSError) as error:
            raise InputError(f"{path} is not a usable state of a client ({error})") from None


@dataclass(frozen=True)
class Step:
    """The result of a step of a `Server`."""

    round: int
    iteration: int
    clients: list[str]
    """The clients whose uploads counted."""

    kept: int
    uplink_bytes: int
    missing: int
    """How many clients got an offer but sent no upload."""

    warnings: list[str]
    """What is wrong with the training, and what helps. Each warning comes once."""


class Server:
    """The server: it makes offers, accepts uploads, and counts each upload once.

    method        the method with which clients compress
    schedule      γ_t and T: `gf.Schedule(0.1, iterations=1000)`
    like          the model: a torch module, a dict of tensors or arrays, a vector, or a number of elements
    local_steps   E: a round ends at iteration t = round · local_steps
    limits        the largest accepted upload: `gf.Limits(entries=1000)`
    budget        what clients may send: "64 kB/upload" limits each upload, "20 MB/run" the sum of all uploads,
                  "2 kB/s" the rate of one client
    uploads       the number of uploads per round, for a run's budget; by default taken from the first round
    privacy       differential privacy of clients, `gf.Privacy(clip=1.0, noise=1.0)`: see docs/privacy.md

    >>> import numpy as np
    >>> import gammafl as gf
    >>> server = gf.Server("top-k", gf.Schedule(0.1, iterations=100), like=1000)
    >>> server.offer("a").round, server.step(np.zeros(1000, np.float32)).missing
    (1, 1)
    """

    def __init__(
        self,
        method: Method | Compressor | str,
        schedule: Schedule,
        like: Any,
        *,
        local_steps: int = 1,
        limits: Limits = NO_LIMITS,
        budget: str | Budget | None = None,
        uploads: int | None = None,
        privacy: Privacy | None = None,
    ) -> None:
        whole = isinstance(local_steps, int) and local_steps >= 1
        require(whole, f"local_steps must be a whole number of at least 1, got {local_steps}")
        is_schedule = isinstance(schedule, Schedule)
        require(
            is_schedule,
            f"schedule must be gf.Schedule(lr, iterations), such as gf.Schedule(0.1, 1000); got {schedule!r}",
        )
        self.method = resolve(method)
        self.layout = layout_like(like)
        self._exchange = ServerExchange(
            self.method,
            schedule,
            self.layout,
            local_steps=local_steps,
            limits=limits,
            budget=Budget.of(budget),
            uploads=uploads,
            privacy=privacy,
        )

    @property
    def round(self) -> int:
        """How many rounds are finished."""
        return self._exchange.round

    @property
    def training(self) -> str:
        """A random name of this training. For another training, clients start with an empty state."""
        return self._exchange.training

    def offer(self, name: str) -> Offer:
        """The offer for client `name` in this round. Send it together with the model.

        `offer.model_dump_json()` turns it into JSON, and `gf.Offer.model_validate_json(text)` reads that.
        """
        _require_name(name)
        return self._exchange.offer(name)

    def accept(self, name: str, upload: bytes, weight: float = 1.0) -> bool:
        """Accepts an upload, or raises `WireError`. The model does not change before `step`.

        name     the client
        upload   its bytes
        weight   its weight in the average, such as its number of samples. A weight that is not from 2⁻⁵³ to 2⁵³, or
                 exceeds the limits, is a `WireError` too, since a client may have sent it

        Returns False for an upload that was sent again and has counted before. It does not count, and is no error.
        """
        answer, payload = _opened(upload)
        counts = weight_within(weight, self._exchange.limits)
        same = self._exchange.privacy is None or counts == 1
        require(same, "with privacy all uploads have the same weight: leave out weight")
        if any(name == open_.address or answer.who == open_.answer.who for open_ in self._exchange.arrivals):
            raise WireError("a second upload in one round")
        return self._exchange.accept(name, answer, payload, counts) is not None

    def step(self, model: Any) -> Step:
        """Ends the round: model ← model − Σ weight·Δ̂_i in place (line 19). The next offers confirm the uploads.

        Weights are divided by their sum, and multiplied by the part of the asked clients that answered. A missing
        update is sent again later: if the others were scaled up for it now, it would count twice.

        model   the server's model. Keep it in float32: in half precision, small changes would be lost

        Returns the clients that counted, how many are missing, the entries kept, and warnings.
        """
        require_writable(model, self.layout)
        exchange = self._exchange
        for address, reason in exchange.outliers().items():
            exchange.refuse(address)
            LOG.warning("gammafl: upload of client %s refused: %s", address, reason)
        arrivals = exchange.arrivals
        updates = [arrival.update for arrival in arrivals]
        asked = len(exchange.asked | {arrival.address for arrival in arrivals})
        weights = aggregate.weights([arrival.weight for arrival in arrivals], asked, "normalized", asked)
        vector = model if _is_vector(model) else flatten(model, self.layout, "the model", self._place_of(model))
        exchange.subtract(vector, arrivals, weights, asked)
        aggregate.clamp(vector)
        if vector is not model and (updates or exchange.privacy is not None):
            write_back(vector, model, self.layout)
        warnings = exchange.close(arrivals)
        return Step(
            round=exchange.round,
            iteration=exchange.round * exchange.local_steps,
            clients=[str(arrival.address) for arrival in arrivals],
            kept=sum(map(len, updates)),
            uplink_bytes=sum(len(arrival.payload) for arrival in arrivals),
            missing=asked - len(arrivals),
            warnings=warnings,
        )

    def _place_of(self, model: Any) -> Place:
        """The model's device: only uploads are copied to it. Noise and the clients' memories are on the host."""
        place = place_of(tensors_of(model))
        dense = self._exchange.privacy is not None or self._exchange.mirror is not None
        require(place.is_host or not dense, f"with privacy or shared memories the server's model is on the host: {ASK}")
        return place

    def epsilon(self) -> float | None:
        """ε at δ = `privacy.delta`, for a client that was asked in every round so far; None without privacy."""
        return self._exchange.epsilon()

    def state_dict(self) -> StateDict:
        """The server's state without the model, to store it.

        Store it together with the model after each `step`, before you send the next offers. It does not hold uploads
        that are accepted but not yet counted: the next offers tell those clients to send their updates again.
        """
        return self._exchange.state_dict()

    def load_state_dict(self, saved: StateDict) -> None:
        """Sets the state that `state_dict` returned."""
        self._exchange.load_state_dict(saved)


def _require_name(name: str) -> None:
    fits = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_.:-]{1,128}", name)
    require(bool(fits), f"a client's name has at most 128 letters, digits and _ . : -; got {name!r}")


def _closed(answer: Answer, payload: bytes) -> bytes:
    """The upload of an answer and a message."""
    head = answer.model_dump_json(exclude_none=True).encode()
    return MAGIC + HEAD.pack(zlib.crc32(head + payload), len(head)) + head + payload


def _opened(upload: bytes) -> tuple[Answer, bytes]:
    """The answer and the message in an upload; a `WireError` if it is malformed."""
    try:
        data = bytes(memoryview(upload))
        require(data.startswith(MAGIC), "it does not begin as an upload does")
        checksum, length = HEAD.unpack_from(data, len(MAGIC))
        rest = data[len(MAGIC) + HEAD.size :]
        require(zlib.crc32(rest) == checksum, "its checksum is wrong: it was damaged on its way")
        return checked(Answer, json.loads(rest[:length])), rest[length:]
    except (ValueError, TypeError, struct.error, RecursionError) as error:
        raise WireError(f"not an upload of a gammafl client ({error})") from None


def _is_vector(model: Any) -> bool:
    return isinstance(model, np.ndarray) and model.dtype == np.float32 and model.flags.c_contiguous and model.ndim == 1
