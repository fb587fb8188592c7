"""What travels in a round beside the model and the update, and what a client makes of it.

The server's offer says how to compress, where the run is, and which upload of this client it has counted last. The
client's answer says who it is and which upload this is. So each upload counts once, whatever is lost on the way: an
upload is open until an offer tells what became of it. This is the one protocol for lost uploads.
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
"""The address of an upload that was sent from more than one."""


class Offer(Facts):
    """The server's part: how to compress, at which iteration the round ends, and what it has of this client."""

    training: Word
    """A random word for this training: another training begins anew."""

    method: str
    """`methods.description.describe` of the method."""

    dim: Count
    round: Count
    iteration: Count
    gamma: Stepsize
    first_gamma: Stepsize
    last_gamma: Stepsize
    iterations: Count
    scale: Annotated[float, Field(ge=0)]
    """What the method is told of the run: t, γ_t, γ_0, γ_T, T and the scale of its threshold (`Moment`)."""

    layout: str | None = None
    """The fingerprint of the model's layout."""

    incarnation: Word | None = None
    accepted: Count = 0
    checksum: Count = 0
    """The last accepted upload of the incarnation that answered from this address last. No incarnation: nobody has."""

    absent: list[AbsentReceipt] | None = None
    """To an address that nobody has answered from: receipts of clients whose address is gone, as "digest number
    checksum". A client that came back under a new address finds its own there (`receipt`)."""

    entries: Count | None = None
    norm: float | None = None
    payload_bytes: Annotated[int, Field(ge=1, le=2**62)] | None = None
    """What an upload may be at the most."""

    rate: Annotated[float, Field(gt=0, le=2**62)] | None = None
    """Bytes a second that the client may send."""

    keep: Annotated[float, Field(gt=0, le=1)] | None = None
    """The fraction of the entries that is to be kept, where the server says it (`Moment`)."""

    step: Step = 1.0
    """The sum of the round's stepsizes, by that of the first round (`Moment`)."""

    def moment(self, layout: Layout) -> Moment:
        """What the method is told, for a model of this layout."""
        gammas = self.gamma, self.first_gamma, self.last_gamma
        return Moment(self.iteration, *gammas, self.iterations, self.scale, layout, keep=self.keep, step=self.step)

    @property
    def limits(self) -> Limits:
        """What an upload may be at the most, whenever it is made."""
        return Limits(self.payload_bytes, self.entries, self.norm)

    def receipt(self, incarnation: str) -> Receipt | None:
        """What the server has of the client of that incarnation; None if it did not say."""
        if self.incarnation == incarnation:
            return Receipt(incarnation, self.accepted, self.checksum)
        for entry in self.absent or ():
            name, accepted, checksum = entry.split()
            if name == digest(incarnation):
                return Receipt(incarnation, int(accepted), int(checksum))
        return None


def run_facts(moment: Moment) -> dict[str, Any]:
    """What an offer says of the run: the parts of a moment, by the names of `Offer`."""
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
    """What an offer says of the client's last upload."""
    return {} if receipt is None else receipt._asdict()


class Answer(Facts):
    """The client's part: who it is, and which upload this is."""

    name: Word
    incarnation: Word
    round: Count
    number: Count = 0
    """Of the upload; 0 if there is none."""

    again: bool = False
    """An upload that was sent before, since the server could not tell whether it arrived."""

    made: Count | None = None
    """The round that an upload which is sent again was made in."""

    smallest: Size | None = None
    update_size: Size | None = None
    residual_size: Size | None = None
    capped: bool | None = None
    """What the client tells of its upload (`federated/client.py`, `Report`)."""

    @property
    def report(self) -> Report:
        return Report(self.smallest, self.update_size, self.residual_size, self.capped)

    @property
    def who(self) -> Sender:
        return Sender(self.name, self.incarnation)


def upload_facts(state: "ClientState", again: bool) -> dict[str, Any]:
    """What an answer says of the upload that goes with it."""
    outbox = state.outbox
    made = outbox.made if again else None
    return {"number": outbox.number, "again": again, "made": made, **report_facts(outbox.report)}


def report_facts(report: Report) -> dict[str, Any]:
    """What an answer tells of its upload."""
    return report._asdict()


class Settled(NamedTuple):
    """What an offer says of the open upload: it must be sent again, or it was lost, or neither."""

    again: bool = False
    lost: SparseUpdate | None = None


class ClientFacts(Facts):
    """A client's state in a file, beside its tensors."""

    incarnation: Word
    number: Count
    round: Count
    address: int | str
    training: Annotated[str, Field(max_length=128)]
    method: str
    sent_at: Time = 0.0
    owed_bytes: Size = 0.0
    """Of its `Pace`."""

    made: Count = 0
    step: Step = 1.0
    tail: Count = 0
    """The round that the last upload was made in, `Moment.step` of it, and how many statistics are at its end."""

    counted: Count = 0
    """The number of the last upload that the server said it had counted."""

    @classmethod
    def of(cls, state: "ClientState", method: str) -> dict[str, Any]:
        """What there is to say of a state; `method` is its description."""
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
    """All that a client must not forget: its outbox, and whose it is."""

    outbox: Outbox
    incarnation: str
    """A random word: the numbers of the outbox belong to it."""

    round: int = 0
    """Of the last upload; 0 before the first."""

    address: Address = SEVERAL
    """Where the last upload was sent from."""

    training: str = ""
    """The training that all this belongs to."""

    pace: Pace = field(default_factory=lambda: Pace(wall_clock()))
    """When the last upload was made, for a client with a rate."""

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
        """The state that these were taken of, or a `ValueError`; `payload` is the open upload.

        What is remembered is in `place`.
        """
        if payload is not None:
            require(facts.number > 0, "an upload without a number")
            decode(payload, dim)
        known = set(method.memory.vectors)
        whole = set(vectors) == known or not (vectors or method.memory.commits)
        require(
            whole, f"it holds {', '.join(vectors) or 'no vectors'} where {', '.join(sorted(known))} belong together"
        )
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
        """A clean state, as if the last upload had been in `round_number`; what it will remember is in `place`.

        `pace` is that of the state before, if there was one: the link does not forget what it carried.
        """
        elsewhere = not place.is_host and method.leaves_a_rest
        vectors = {name: place.zeros(dim) for name in method.memory.vectors} if elsewhere else None
        outbox = Outbox(method.memory.client(method, dim, vectors))
        pace = pace or Pace(wall_clock())
        return cls(outbox, secrets.token_hex(8), round_number, training=training, pace=pace)

    def distrust(self, offer: Offer, place: str, forget_after: int | None = None) -> str | None:
        """Why the client must start clean; None if the state is what the server knows. `place` is where it lies."""
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
        """What became of the last upload.

        The server tells if its offer has a receipt for our incarnation, or if the open upload was sent from this
        address and nobody ever answered from there. Otherwise the upload must be sent again.
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
        """The next upload (Algorithm 1, lines 11-14); or the open one again, and the new update waits its turn.

        It keeps to the offer, and to a budget of the client's own.
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
        """The open upload leaves once more, for the round that it was made in; whether that changes this state."""
        before = self.pace
        self._pay(own_budget.within(Budget(rate=offer.rate)), payload, wall_clock())
        return self.pace != before

    def _pay(self, budget: Budget, payload: bytes, now: float) -> None:
        """A client with a rate sends this, for the first time or again: later uploads have less room."""
        if budget.rate is not None:
            self.pace = self.pace.after(budget.rate, now, len(payload))
