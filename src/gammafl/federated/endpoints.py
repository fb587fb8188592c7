"""One client and one server for whoever brings their own transport: a model in, bytes out, and the other half.

The same exchange that the Flower engine carries: uploads are numbered, confirmed and counted once.
"""

import json
import logging
import re
import secrets
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gammafl.core import aggregate, kernels
from gammafl.core.arrays import Vector
from gammafl.core.compressors import Compressor
from gammafl.core.errors import InputError, WireError, require
from gammafl.core.method import Method
from gammafl.core.moment import Schedule
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import decode
from gammafl.federated.client import Outbox, Upload, start_after_loss
from gammafl.federated.exchange import Answer, ClientFacts, ClientState, Offer, Word, receipt_facts, run_facts
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.models import flatten, layout_like, require_writable, write_back
from gammafl.federated.receipts import Receipts
from gammafl.federated.server import Intake
from gammafl.federated.task import LocalUpdate
from gammafl.files import tensor_files
from gammafl.files.disk_errors import storing
from gammafl.files.reading import Count, Facts, checked
from gammafl.methods.description import describe
from gammafl.methods.registry import resolve

LOG = logging.getLogger("gammafl")

MAGIC = b"gU\x01"
HEAD = struct.Struct("<IH")
"""An upload is MAGIC, a checksum of all that follows it, the length of the answer, the answer as JSON, and a message of
docs/wire-format.md."""

StateDict = dict[str, Any]


class Client:
    """One client: what was not sent, or was sent and did not count, is remembered.

    name     what the server calls it
    method   the same as the server's
    like     the model: a torch module, a dict of tensors or arrays, a vector, or a number of elements

    >>> import numpy as np
    >>> method = resolve("top-k:k=2")
    >>> server, client = Server(method, Schedule(0.1, 100), like=5), Client("a", method, like=5)
    >>> model = np.zeros(5, np.float32)
    >>> upload = client.encode(model, model - [5, 1, 2, 3, 4], server.offer("a"))
    >>> server.accept("a", upload)
    True
    >>> server.step(model).kept
    2
    >>> model.tolist(), client.residual.tolist()
    ([-5.0, 0.0, 0.0, 0.0, -4.0], [0.0, 1.0, 2.0, 3.0, 0.0])
    """

    def __init__(self, name: str, method: Method | Compressor | str, like: Any) -> None:
        _require_name(name)
        self.name = name
        self.method = resolve(method)
        self.layout = layout_like(like)
        self._state = ClientState.new(self.method, self.layout.dim, "")

    @property
    def residual(self) -> Vector:
        """What was computed and not sent."""
        memory = self._state.outbox.memory.state()
        return memory.get("residual", np.zeros(self.layout.dim, np.float32))

    def begin(self, model: Any, offer: Offer) -> Any:
        """Where to train from: `model`, in which a lost upload of this client counts as if it had arrived.

        Without this call nothing is lost, but the client finds a lost update a second time. The result is a vector for
        a vector, and a dict of arrays for a dict or a module.
        """
        self._meet(offer)
        start = flatten(model, self.layout, "the server's model")
        again, lost = self._state.settle(offer, self.name)
        if lost is not None and not again:
            start = start_after_loss(start, lost)
        named = isinstance(model, Mapping) or hasattr(model, "state_dict")
        return self.layout.split(start) if named else start

    def encode(self, before: Any, after: Any, offer: Offer) -> bytes:
        """The upload for a round of training that led from `before` to `after`; what is not sent is remembered."""
        self._meet(offer)
        delta = np.empty(self.layout.dim, np.float32)
        largest = kernels.difference(
            flatten(before, self.layout, "before"), flatten(after, self.layout, "after"), delta
        )
        again, _ = self._state.settle(offer, self.name)
        payload = self._state.send(LocalUpdate(delta, 0.0, largest), offer, self.layout, self.name, again)
        answer = Answer(
            name=self.name,
            incarnation=self._state.incarnation,
            round=offer.round,
            number=self._state.outbox.number,
            again=again,
        )
        return _closed(answer, payload)

    def _meet(self, offer: Offer) -> None:
        """The state that the offer is for; a clean one for another training, or where the server knows another."""
        wanted = _described(self.method)
        require(offer.method == wanted, f"the server's method is {offer.method}, this client's is {wanted}")
        fits = offer.dim == self.layout.dim and offer.layout in (None, self.layout.fingerprint())
        require(fits, "the server's model has other tensors than this client's; give both the same `like`")
        if offer.training != self._state.training:
            self._state = ClientState.new(self.method, self.layout.dim, offer.training)
        if (reason := self._state.distrust(offer, "this client")) is not None:
            LOG.warning("gammafl: client %s starts clean: %s", self.name, reason)
            self._state = ClientState.new(self.method, self.layout.dim, offer.training, offer.round - 1)
        require(
            offer.round > self._state.round,
            f"an offer of round {offer.round}, after an upload of round {self._state.round}: too late to answer",
        )

    def state_dict(self) -> StateDict:
        """All that must outlive the process, as arrays and plain values."""
        state, outbox = self._state, self._state.outbox
        tensors = {name: vector.copy() for name, vector in outbox.memory.state().items()}
        if outbox.open is not None:
            tensors["open"] = np.frombuffer(outbox.open, np.uint8)
        facts = ClientFacts(
            incarnation=state.incarnation,
            number=outbox.number,
            round=state.round,
            address=state.address,
            training=state.training,
            method=_described(self.method),
        )
        return {"tensors": tensors, "facts": facts.model_dump()}

    def load_state_dict(self, saved: StateDict) -> None:
        """The client that `state_dict` was taken of; an `InputError` if it was of another method or model."""
        tensors, dim = dict(saved["tensors"]), self.layout.dim
        try:
            facts = checked(ClientFacts, saved["facts"])
            payload = None if "open" not in tensors else np.asarray(tensors.pop("open"), np.uint8).tobytes()
            if payload is not None:
                decode(payload, dim)
            require(facts.method == _described(self.method), f"it is of the method {facts.method}")
            vectors = {name: np.array(vector) for name, vector in tensors.items()}
            outbox = Outbox(self.method.memory.client(self.method, dim, vectors), facts.number, payload)
        except ValueError as error:
            raise InputError(f"not a state of this client ({error})") from None
        self._state = ClientState(outbox, facts.incarnation, facts.round, facts.address, facts.training)

    def save(self, path: str | Path) -> None:
        """Writes the state so that a crash at any instant leaves the old file or the new one.

        Save after `encode` and before the upload leaves: then no crash can make the client forget what it sent.
        """
        saved = self.state_dict()
        with storing(Path(path), "save again", "choose another path"):
            tensor_files.replace(Path(path), saved["tensors"], saved["facts"])

    def load(self, path: str | Path) -> None:
        """Reads what `save` wrote; an `InputError` if it can't be used."""
        try:
            facts, tensors = tensor_files.read(Path(path))
            self.load_state_dict({"tensors": dict(tensors), "facts": facts})
        except (*tensor_files.DAMAGED, OSError) as error:
            raise InputError(f"{path} is no state of a client that can be used ({error})") from None


@dataclass(frozen=True)
class RoundRecord:
    """What a round of a `Server` came to."""

    round: int
    iteration: int
    clients: list[str]
    """Whose uploads counted."""

    kept: int
    uplink_bytes: int
    missing: int
    """Clients that got an offer and whose upload did not come."""


class ServerFacts(Facts):
    """A server's state, beside its receipts."""

    round: Count
    training: Word


@dataclass
class _Round:
    """The round that is open."""

    asked: set[str] = field(default_factory=set)
    uploads: dict[str, tuple[Answer, Upload, SparseUpdate, float]] = field(default_factory=dict)


class Server:
    """The other half: offers, accepts and counts uploads, each once.

    method        how clients compress
    schedule      γ_t and T: `gf.Schedule(0.1, iterations=1000)`
    like          the model: a torch module, a dict of tensors or arrays, a vector, or a number of elements
    local_steps   E: a round ends at iteration t = round · local_steps
    limits        what an upload may be at the most
    """

    def __init__(
        self,
        method: Method | Compressor | str,
        schedule: Schedule,
        like: Any,
        *,
        local_steps: int = 1,
        limits: Limits = NO_LIMITS,
    ) -> None:
        whole = isinstance(local_steps, int) and local_steps >= 1
        require(whole, f"local_steps must be a whole number of at least 1, got {local_steps}")
        is_schedule = isinstance(schedule, Schedule)
        require(
            is_schedule,
            f"schedule must be gf.Schedule(lr, iterations), such as gf.Schedule(0.1, 1000); got {schedule!r}",
        )
        self.method = resolve(method)
        self.schedule = schedule
        self.layout = layout_like(like)
        self.local_steps = local_steps
        self.limits = limits
        self.scale = self.method.scale(self.layout.dim, schedule)
        self.round = 0
        self.training = secrets.token_hex(8)
        self._receipts = Receipts()
        self._open = _Round()

    def offer(self, name: str) -> Offer:
        """What client `name` is told in this round, to be sent along with the model.

        It is JSON by `offer.model_dump_json()`, and back by `gf.Offer.model_validate_json(text)`.
        """
        _require_name(name)
        self._open.asked.add(name)
        receipt = self._receipts.receipt(name)
        moment = self.schedule.moment((self.round + 1) * self.local_steps, self.scale)
        return Offer(
            training=self.training,
            method=_described(self.method),
            dim=self.layout.dim,
            round=self.round + 1,
            **run_facts(moment),
            layout=self.layout.fingerprint(),
            **receipt_facts(receipt),
            entries=self.limits.entries,
            norm=self.limits.norm,
        )

    def accept(self, name: str, upload: bytes, weight: float = 1.0) -> bool:
        """Takes in the upload of client `name`, or raises `WireError`; nothing moves before `step`.

        A weight that is no number from 2⁻⁵³ to 2⁵³, or beyond the limits, is a `WireError` too: it may be the client's
        own word. False if it is one that was sent again and has counted already: neither counted nor wrong.
        """
        answer, payload = _opened(upload)
        counts = _weight(weight, self.limits)
        if answer.round != self.round + 1 or answer.number > answer.round:
            raise WireError(f"upload {answer.number} of round {answer.round} in round {self.round + 1}")
        if name in self._open.uploads or answer.who in {open_[0].who for open_ in self._open.uploads.values()}:
            raise WireError("a second upload in one round")
        if refusal := self._receipts.refusal(answer.who, answer.number):
            if answer.again:
                self._receipts.met(name, answer.who)
                return False
            raise WireError(refusal)
        intake = Intake(self.layout.dim, self.limits, largest=aggregate.largest_value(total_weight=1))
        intake.take(Upload(0, payload, 0.0))
        if intake.refused:
            raise WireError(intake.refused[0])
        self._receipts.met(name, answer.who)
        self._open.uploads[name] = answer, *intake.accepted[0], counts
        return True

    def step(self, model: Any) -> RoundRecord:
        """model ← model − Σ weight·Δ̂_i in place (line 19), receipts for what counted, and the next round.

        Weights are divided by their sum and scaled by the share of the asked clients whose upload came. A missing
        update comes later; scaling up the others now would count it twice. A model in half precision loses whatever is
        finer than it can hold: keep the one that is changed here in float32.
        """
        require_writable(model, self.layout)
        uploads, asked = self._open.uploads, self._open.asked | self._open.uploads.keys()
        updates = [update for _, _, update, _ in uploads.values()]
        weights = aggregate.weights([weight for *_, weight in uploads.values()], len(asked), "normalized", len(asked))
        vector = model if _is_vector(model) else flatten(model, self.layout, "the model")
        aggregate.subtract(vector, updates, weights)
        aggregate.clamp(vector)
        if vector is not model and updates:
            write_back(vector, model, self.layout)
        for name, (answer, upload, _, _) in uploads.items():
            self._receipts.accept(name, answer.who, answer.number, upload.payload)
        self.round += 1
        self._open = _Round()
        return RoundRecord(
            round=self.round,
            iteration=self.round * self.local_steps,
            clients=list(uploads),
            kept=sum(map(len, updates)),
            uplink_bytes=sum(len(upload.payload) for _, upload, _, _ in uploads.values()),
            missing=len(asked) - len(uploads),
        )

    def state_dict(self) -> StateDict:
        """What must outlive the process, beside the model.

        Store both together after each `step`, before the next offers leave. Uploads that were accepted and not yet
        counted are not in it: their clients hear that they did not count, and send their updates again.
        """
        return {
            "round": self.round,
            "training": self.training,
            "receipts": self._receipts.table(),
            "asked": sorted(self._open.asked),
        }

    def load_state_dict(self, saved: StateDict) -> None:
        """The server that `state_dict` was taken of."""
        try:
            receipts, asked = Receipts.of(saved["receipts"]), {str(name) for name in saved["asked"]}
            facts = checked(ServerFacts, {"round": saved["round"], "training": saved["training"]})
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(f"not a state of a server ({type(error).__name__}: {error})") from None
        self.round, self.training = facts.round, facts.training
        self._receipts, self._open = receipts, _Round(asked)


def _require_name(name: str) -> None:
    fits = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_.:-]{1,128}", name)
    require(bool(fits), f"a client's name is of letters, digits and _ . : -, at most 128 of them; got {name!r}")


def _described(method: Method) -> str:
    """By which both sides tell that they mean the same method; of one that can't be described, its compressor."""
    try:
        return describe(method)
    except InputError:
        return f"own:{type(method.compressor).__qualname__}"


def _closed(answer: Answer, payload: bytes) -> bytes:
    """The upload of an answer and a message."""
    head = answer.model_dump_json().encode()
    return MAGIC + HEAD.pack(zlib.crc32(head + payload), len(head)) + head + payload


def _opened(upload: bytes) -> tuple[Answer, bytes]:
    """The answer and the message of an upload, or `WireError`."""
    try:
        data = bytes(memoryview(upload))
        require(data.startswith(MAGIC), "it does not begin as an upload does")
        checksum, length = HEAD.unpack_from(data, len(MAGIC))
        rest = data[len(MAGIC) + HEAD.size :]
        require(zlib.crc32(rest) == checksum, "checksum differs: it was damaged on its way")
        return checked(Answer, json.loads(rest[:length])), rest[length:]
    except (ValueError, TypeError, struct.error, RecursionError) as error:
        raise WireError(f"not an upload of a gammafl client ({error})") from None


def _weight(weight: Any, limits: Limits) -> float:
    most = min(aggregate.LARGEST_WEIGHT, limits.weight or aggregate.LARGEST_WEIGHT)
    try:
        if aggregate.SMALLEST_WEIGHT <= (number := float(weight)) <= most:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise WireError(f"a weight must be a positive number of at most {most:g}, got {weight!r:.80}")


def _is_vector(model: Any) -> bool:
    return isinstance(model, np.ndarray) and model.dtype == np.float32 and model.flags.c_contiguous and model.ndim == 1
