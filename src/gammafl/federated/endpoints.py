"""One client and one server for whoever brings their own transport: a model in, bytes out, and the other half.

The same exchange that the Flower engine carries: uploads are numbered, confirmed and counted once.
"""

import json
import secrets
import struct
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
from gammafl.federated.exchange import Answer, ClientFacts, ClientState, Offer
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.models import flatten, layout_like, write_back
from gammafl.federated.receipts import Receipts
from gammafl.federated.server import Intake
from gammafl.federated.task import LocalUpdate
from gammafl.files import tensor_files
from gammafl.files.disk_errors import storing
from gammafl.files.reading import checked
from gammafl.methods.description import describe
from gammafl.methods.registry import resolve

MAGIC = b"gU\x01"
LENGTH = struct.Struct("<H")
"""An upload is MAGIC, the length of the answer, the answer as JSON, and a message of docs/wire-format.md."""

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
        head = answer.model_dump_json().encode()
        return MAGIC + LENGTH.pack(len(head)) + head + payload

    def _meet(self, offer: Offer) -> None:
        """The state that the offer is for; a clean one for another training, or where the server knows another."""
        wanted = _described(self.method)
        require(offer.method == wanted, f"the server's method is {offer.method}, this client's is {wanted}")
        fits = offer.dim == self.layout.dim and offer.layout in (None, self.layout.fingerprint())
        require(fits, "the server's model has other tensors than this client's; give both the same `like`")
        if offer.training != self._state.training:
            self._state = ClientState.new(self.method, self.layout.dim, offer.training)
        if self._state.distrust(offer, "this client") is not None:
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
        require(local_steps >= 1, f"local_steps must be at least 1, got {local_steps}")
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
        self._open.asked.add(name)
        receipt = self._receipts.receipt(name)
        moment = self.schedule.moment((self.round + 1) * self.local_steps, self.scale)
        return Offer(
            training=self.training,
            method=_described(self.method),
            dim=self.layout.dim,
            round=self.round + 1,
            iteration=moment.t,
            gamma=moment.gamma,
            first_gamma=moment.first_gamma,
            last_gamma=moment.last_gamma,
            iterations=moment.iterations,
            scale=moment.scale,
            layout=self.layout.fingerprint(),
            incarnation=receipt and receipt.incarnation,
            accepted=receipt.accepted if receipt else 0,
            checksum=receipt.checksum if receipt else 0,
            entries=self.limits.entries,
            norm=self.limits.norm,
        )

    def accept(self, name: str, upload: bytes, weight: float = 1.0) -> bool:
        """Takes in the upload of client `name`, or raises `WireError`; nothing moves before `step`.

        False if it is one that was sent again and has counted already: neither counted nor wrong.
        """
        answer, payload = _opened(upload)
        positive = np.isfinite(weight) and 0 < weight <= (self.limits.weight or np.inf)
        require(bool(positive), f"a weight must be a positive number, up to {self.limits.weight}, got {weight}")
        if answer.round != self.round + 1 or answer.number > answer.round:
            raise WireError(f"upload {answer.number} of round {answer.round} in round {self.round + 1}")
        if name in self._open.uploads or answer.who in {open_[0].who for open_ in self._open.uploads.values()}:
            raise WireError("a second upload in one round")
        self._receipts.met(name, answer.who)
        if refusal := self._receipts.refusal(answer.who, answer.number):
            if answer.again:
                return False
            raise WireError(refusal)
        intake = Intake(self.layout.dim, self.limits, largest=aggregate.largest_value(total_weight=1))
        intake.take(Upload(0, payload, 0.0))
        if intake.refused:
            raise WireError(intake.refused[0])
        self._open.uploads[name] = answer, *intake.accepted[0], float(weight)
        return True

    def step(self, model: Any) -> RoundRecord:
        """model ← model − Σ weight·Δ̂_i in place (line 19), receipts for what counted, and the next round.

        Weights are divided by their sum and scaled by the share of the asked clients whose upload came. A missing
        update comes later; scaling up the others now would count it twice.
        """
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
        """What must outlive the process, beside the model; take it between `step` and the next `offer`."""
        return {"round": self.round, "training": self.training, "receipts": self._receipts.table()}

    def load_state_dict(self, saved: StateDict) -> None:
        """The server that `state_dict` was taken of."""
        self.round, self.training = saved["round"], saved["training"]
        self._receipts, self._open = Receipts.of(saved["receipts"]), _Round()


def _described(method: Method) -> str:
    """By which both sides tell that they mean the same method; of one that can't be described, its compressor."""
    try:
        return describe(method)
    except InputError:
        return f"own:{type(method.compressor).__qualname__}"


def _opened(upload: bytes) -> tuple[Answer, bytes]:
    """The answer and the message of an upload, or `WireError`."""
    try:
        data = bytes(upload)
        require(data.startswith(MAGIC), "it does not begin as an upload does")
        (length,) = LENGTH.unpack_from(data, len(MAGIC))
        start = len(MAGIC) + LENGTH.size
        return checked(Answer, json.loads(data[start : start + length])), data[start + length :]
    except (ValueError, TypeError, struct.error, RecursionError) as error:
        raise WireError(f"not an upload of a gammafl client ({error})") from None


def _is_vector(model: Any) -> bool:
    return isinstance(model, np.ndarray) and model.dtype == np.float32 and model.flags.c_contiguous and model.ndim == 1
