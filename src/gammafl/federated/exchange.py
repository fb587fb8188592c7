"""The protocol for lost uploads: the server's offers and the clients' answers.

The server's offer says how to compress, where the run is, and which upload of this client it has counted last. The
client's answer says who it is and which upload this is. An upload is open until an offer tells whether it counted. So
each upload counts once, even if messages are lost. `gf.Server` and Flower both use this protocol.
"""

import secrets
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import time as wall_clock
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from gammafl.config.budget import NO_BUDGET, Budget
from gammafl.core.arrays import Vector
from gammafl.core.device.places import HOST_MEMORY, Place
from gammafl.core.errors import require
from gammafl.core.layout import Layout
from gammafl.core.method import Method
from gammafl.core.moment import Moment, key_of
from gammafl.core.sparse import SparseUpdate
from gammafl.core.wire import decode
from gammafl.federated.budget import Pace, limits_of, require_possible
from gammafl.federated.client import Outbox, Report
from gammafl.federated.limits import Limits
from gammafl.federated.receipts import Address, Receipt, Sender, digest
from gammafl.federated.task import LocalUpdate
from gammafl.files.reading import Count, Facts

Word = Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9_.:-]+$")]
AbsentReceipt = Annotated[str, Field(pattern=r"^[0-9a-f]{16} [0-9]{1,19} [0-9]{1,10}$")]

Stepsize = Annotated[float, Field(gt=0)]
Size = Annotated[float, Field(ge=0)]
Step = Annotated[float, Field(ge=0, le=2**62)]
Time = Annotated[float, Field(ge=-(2**62), le=2**62)]

SEVERAL: Address = 0
"""The address of an upload that was sent from several addresses."""


class Offer(Facts):
    """The server's message with the model: how to compress, where the run is, and what it has of this client.

    A transport of your own only needs `model_dump_json` and `model_validate_json`: see `gf.Server.offer`.

    >>> import gammafl as gf
    >>> offer = gf.Server("top-k", gf.Schedule(0.1, iterations=100), like=1000).offer("a")
    >>> offer == gf.Offer.model_validate_json(offer.model_dump_json())
    True
    """

    training: Word
    """A random word for this training. For another training, clients start with an empty state."""

    method: str
    """The method, as `methods.description.describe` writes it."""

    dim: Count
    round: Count
    iteration: Count
    gamma: Stepsize
    first_gamma: Stepsize
    last_gamma: Stepsize
    iterations: Count
    scale: Annotated[float, Field(ge=0)]
    """The scale of the method's threshold. With the fields before: t, γ_t, γ_0, γ_T and T, as in `Moment`."""

    layout: str | None = None
    """The fingerprint of the model's layout."""

    incarnation: Word | None = None
    accepted: Count = 0
    checksum: Count = 0
    """CRC-32 of the last accepted upload; with the fields before, its client's incarnation and its number. They are of
the client that answered last from this address. Unset: no client has answered from there."""

    absent: list[AbsentReceipt] | None = None
    """Receipts of clients whose address is gone, as "digest number checksum". They are sent to an address from which no
    client has answered yet: a client that came back under a new address finds its own one here (`receipt`)."""

    entries: Count | None = None
    norm: float | None = None
    payload_bytes: Annotated[int, Field(ge=1, le=2**62)] | None = None
    """The largest upload in bytes; with the fields before, in entries and norm."""

    rate: Annotated[float, Field(gt=0, le=2**62)] | None = None
    """How many bytes per second the client may send."""

    keep: Annotated[float, Field(gt=0, le=1)] | None = None
    """The fraction of the entries to keep, if the server sets it (`Moment`)."""

    step: Step = 1.0
    """The sum of the round's stepsizes, divided by that of the first round (`Moment`)."""

    def moment(self, layout: Layout) -> Moment:
        """The moment for the method, for a model with this layout."""
        gammas = self.gamma, self.first_gamma, self.last_gamma
        return Moment(self.iteration, *gammas, self.iterations, self.scale, layout, keep=self.keep, step=self.step)

    @property
    def limits(self) -> Limits:
        """The largest upload, apart from the rate."""
        return Limits(self.payload_bytes, self.entries, self.norm)

    def receipt(self, incarnation: str) -> Receipt | None:
        """The server's last receipt for the client with this incarnation; None if the offer has none."""
        if self.incarnation == incarnation:
            return Receipt(incarnation, self.accepted, self.checksum)
        for entry in self.absent or ():
            name, accepted, checksum = entry.split()
            if name == digest(incarnation):
                return Receipt(incarnation, int(accepted), int(checksum))
        return None


def run_facts(moment: Moment) -> dict[str, Any]:
    """Facts about the run in an offer: the fields of a moment, under the names of `Offer`."""
    return {
        "iteration": moment.t,
        "gamma": moment.gamma,
        "first_gamma": moment.first_gamma,
        "last_gamma": moment.last_gamma,
        "iterations": moment.iterations,
        "scale": moment.scale,
        "keep": moment.keep,
        "step": moment.step,
    }


def receipt_facts(receipt: Receipt | None) -> dict[str, Any]:
    """Facts in an offer about the client's last upload."""
    return {} if receipt is None else receipt._asdict()


class Answer(Facts):
    """The client's message with its upload: who it is, and which upload this is."""

    name: Word
    incarnation: Word
    round: Count
    number: Count = 0
    """The number of the upload; 0 if there is none."""

    again: bool = False
    """Whether this upload was sent before: the server could not tell whether it arrived."""

    made: Count | None = None
    """For an upload that is sent again: the round in which it was made."""

    training: Word | None = None
    """The training of the offer; unset over Flower, whose messages belong to a run."""

    smallest: Size | None = None
    update_size: Size | None = None
    residual_size: Size | None = None
    capped: bool | None = None
    """This and the three fields before are the client's report (`federated/client.py`, `Report`)."""

    @property
    def report(self) -> Report:
        return Report(self.smallest, self.update_size, self.residual_size, self.capped)

    @property
    def who(self) -> Sender:
        return Sender(self.name, self.incarnation)


def upload_facts(state: "ClientState", again: bool) -> dict[str, Any]:
    """Facts in an answer about its upload."""
    outbox = state.outbox
    made = outbox.made if again else None
    return {"number": outbox.number, "again": again, "made": made, **report_facts(outbox.report)}


def report_facts(report: Report) -> dict[str, Any]:
    """The report about an upload, under the names of `Answer`."""
    return report._asdict()


class Settled(NamedTuple):
    """What an offer tells about the open upload: it must be sent again, or it was lost, or neither."""

    again: bool = False
    lost: SparseUpdate | None = None


class ClientFacts(Facts):
    """A client's state in a file, without its tensors."""

    incarnation: Word
    number: Count
    round: Count
    address: int | str
    training: Annotated[str, Field(max_length=128)]
    method: str
    sent_at: Time = 0.0
    owed_bytes: Size = 0.0
    """This and the field before are its `Pace`."""

    made: Count = 0
    step: Step = 1.0
    tail: Count = 0
    """How many statistics are at the end of the last upload. The fields before: its round, and `Moment.step` there."""

    counted: Count = 0
    """The number of the last upload that the server has confirmed."""

    @classmethod
    def of(cls, state: "ClientState", method: str) -> dict[str, Any]:
        """The facts of a state. `method` is the method's description."""
        outbox = state.outbox
        return {
            "incarnation": state.incarnation,
            "number": outbox.number,
            "round": state.round,
            "address": state.address,
            "training": state.training,
            "method": method,
            "sent_at": state.pace.at,
            "owed_bytes": state.pace.owed,
            "made": outbox.made,
            "step": outbox.step,
            "tail": outbox.tail,
            "counted": outbox.counted,
        }


@dataclass
class ClientState:
    """All that a client must store: its outbox, and to which client and training it belongs."""

    outbox: Outbox
    incarnation: str
    """A random word. The upload numbers of the outbox belong to this word."""

    round: int = 0
    """The round of the last upload; 0 before the first."""

    address: Address = SEVERAL
    """The address from which the last upload was sent."""

    training: str = ""
    """The training to which the state belongs."""

    pace: Pace = field(default_factory=lambda: Pace(wall_clock()))
    """When the last upload was made, for a client with a rate limit."""

    @classmethod
    def restored(
        cls,
        method: Method,
        dim: int,
        facts: ClientFacts,
        vectors: Mapping[str, Vector],
        payload: bytes | None,
        place: Place = HOST_MEMORY,
    ) -> "ClientState":
        """The state from its stored parts; a `ValueError` if they contradict each other.

        payload   the open upload
        place     where the memory's vectors are kept
        """
        if payload is not None:
            require(facts.number > 0, "its open upload has no number")
            decode(payload, dim)
        known = set(method.memory.vectors)
        whole = set(vectors) == known or not (vectors or method.memory.commits)
        require(whole, f"it has {', '.join(vectors) or 'no vectors'}; {', '.join(sorted(known))} belong together")
        memory = method.memory.client(method, dim, {name: place.put(vector) for name, vector in vectors.items()})
        told = {name: getattr(facts, name) for name in ("made", "step", "tail", "counted")}
        outbox = Outbox(memory, facts.number, payload, **told)
        pace = Pace(facts.sent_at, facts.owed_bytes)
        return cls(outbox, facts.incarnation, facts.round, facts.address, facts.training, pace)

    @classmethod
    def new(
        cls,
        method: Method,
        dim: int,
        training: str,
        round_number: int = 0,
        place: Place = HOST_MEMORY,
        pace: Pace | None = None,
    ) -> "ClientState":
        """An empty state, as if the last upload had been made in `round_number`.

        place   where the memory's vectors are kept
        pace    the pace of the previous state, if there was one: the rate limit counts its uploads too
        """
        elsewhere = not place.is_host and method.leaves_a_rest
        vectors = {name: place.zeros(dim) for name in method.memory.vectors} if elsewhere else None
        outbox = Outbox(method.memory.client(method, dim, vectors))
        pace = pace or Pace(wall_clock())
        return cls(outbox, secrets.token_hex(8), round_number, training=training, pace=pace)

    def distrust(self, offer: Offer, place: str, forget_after: int | None = None) -> str | None:
        """Why the client must start with an empty state; None if the server knows it. `place` is its directory."""
        missed, receipt = offer.round - self.round - 1, offer.receipt(self.incarnation)
        if receipt is not None and self.outbox.contradicts(receipt.accepted, receipt.checksum):
            return "its stored state is an old one or has a double elsewhere"
        if receipt is not None and self.outbox.is_ahead(receipt.accepted):
            return "the server went back to an older state, in which what both remember differs"
        if offer.incarnation not in (None, self.incarnation) and not self.round:
            return f"it took part in this run before, but its state is not in {place}"
        if forget_after is not None and self.round and missed > forget_after:
            return f"it missed {missed} rounds"
        return None

    def settle(self, offer: Offer, address: Address) -> Settled:
        """Whether the last upload counted, was lost, or must be sent again.

        The server can tell if its offer has a receipt for this incarnation, or if the open upload was sent from this
        address and the server has never had an answer from there. Otherwise the upload must be sent again.
        """
        receipt = offer.receipt(self.incarnation)
        unheard = offer.incarnation is None and self.address == address
        if self.outbox.open is not None and receipt is None and not unheard:
            return Settled(again=True)
        return Settled(lost=self.outbox.settle(receipt.accepted if receipt else 0))

    def send(
        self,
        local: LocalUpdate,
        offer: Offer,
        layout: Layout,
        address: Address,
        again: bool,
        own_budget: Budget = NO_BUDGET,
    ) -> bytes:
        """The next upload (Algorithm 1, lines 11-14), within the limits of the offer and of the client's own budget.

        If the open upload must be sent `again`, it is returned, and the new update goes to the memory.
        """
        outbox, key = self.outbox, key_of(zlib.crc32(self.incarnation.encode()), offer.round)
        budget, now = own_budget.within(Budget(rate=offer.rate)), wall_clock()
        moment, limits = replace(offer.moment(layout), key=key), limits_of(budget, offer.limits, self.pace, now)
        require_possible(outbox.memory.method, layout, limits_of(budget, offer.limits))
        if again:
            payload = outbox.send_again(local)
        else:
            payload, outbox.made = outbox.send(local, moment, limits), offer.round
        self._pay(budget, payload, now)
        self.address = SEVERAL if again else address
        self.round = offer.round
        return payload

    def repeat(self, payload: bytes, offer: Offer, own_budget: Budget = NO_BUDGET) -> bool:
        """Notes that the open upload is sent again, for its own round. Returns whether that changes this state."""
        before = self.pace
        self._pay(own_budget.within(Budget(rate=offer.rate)), payload, wall_clock())
        return self.pace != before

    def _pay(self, budget: Budget, payload: bytes, now: float) -> None:
        """Counts an upload that is sent, for the first time or again, against the client's rate."""
        if budget.rate is not None:
            self.pace = self.pace.after(budget.rate, now, len(payload))
