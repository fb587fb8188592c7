"""The server's half of the protocol: it makes offers, accepts each upload once, and writes receipts.

`gf.Server` and the Flower strategy are built on it. They differ in the transport, and in how they update the model.
"""

import logging
import secrets
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gammafl.config.budget import NO_BUDGET, Budget
from gammafl.config.privacy import Privacy
from gammafl.core import aggregate, kernels
from gammafl.core.arrays import Vector
from gammafl.core.errors import InputError, WireError, require
from gammafl.core.layout import Layout
from gammafl.core.lengths import MessageForm
from gammafl.core.method import Method
from gammafl.core.moment import Moment, Schedule
from gammafl.core.shifts import Counted, Mirror, MirrorOfEach
from gammafl.core.sparse import SparseUpdate
from gammafl.federated.allowance import Allowance
from gammafl.federated.budget import limits_of, require_possible, require_steerable
from gammafl.federated.client import Upload
from gammafl.federated.exchange import Answer, Offer, Word, receipt_facts, run_facts
from gammafl.federated.health import Health
from gammafl.federated.level import Controller, Sent
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.norms import LearntNorm
from gammafl.federated.privacy import limits_with, require_private, take_step, unpredictable
from gammafl.federated.receipts import Address, Receipts, Sender
from gammafl.federated.server import BEYOND, Intake
from gammafl.files.reading import Count, Facts, checked
from gammafl.methods.description import describe

LOG = logging.getLogger("gammafl")

MOST_ABSENT = 256
"""The most receipts of absent clients in an offer to a new address, about 40 bytes each."""

ONLY_FEDAVG = (
    "needs a server that averages whole updates of one model, as plain FedAvg does; use server='each', which works"
    " with any strategy"
)
COPY = "another node sent an upload of client {} in this round: is the state of one a copy of the other's?"


@dataclass(frozen=True)
class Arrival:
    """A valid upload: its address, its sender, its update and its weight."""

    address: Address
    answer: Answer
    payload: bytes
    update: SparseUpdate
    weight: float = 1.0
    step: float = 1.0
    """`Moment.step` of the round in which it was made."""

    def counted(self, weight: float = 0.0) -> Counted:
        """The upload for the server's half of the memory. `weight` is its weight in the model's step."""
        return Counted(self.answer.incarnation, self.update, weight, self.step, self.weight)


class ExchangeFacts(Facts):
    """The state of a `ServerExchange`, without its receipts."""

    round: Count
    training: Word
    shifts_since: Count | None = None


class ServerExchange:
    """The offers, uploads and receipts of one training.

    method        the method with which clients compress
    schedule      γ_t and T
    layout        the model's layout
    local_steps   E: a round ends at iteration t = round · local_steps
    limits        the largest accepted upload
    budget        what clients may send
    uploads       the number of uploads per round, if it is known
    largest       the largest element of an update; by default what the sum in a model can hold
    privacy       differential privacy of clients: uploads have equal weights, and noise is added to their sum
    training      the training's name; by default a random word
    say           called with messages for the operator
    """

    def __init__(
        self,
        method: Method,
        schedule: Schedule,
        layout: Layout,
        *,
        local_steps: int = 1,
        limits: Limits = NO_LIMITS,
        budget: Budget = NO_BUDGET,
        uploads: int | None = None,
        largest: float = aggregate.LARGEST_MODEL,
        privacy: Privacy | None = None,
        training: str | None = None,
        say: Callable[[str], None] = LOG.warning,
    ) -> None:
        self.method, self.schedule, self.layout = method, schedule, layout
        self.local_steps, self.largest, self.say = local_steps, largest, say
        self.limits, self.budget, self.uploads = limits_with(privacy, limits_of(budget, limits)), budget, uploads
        self.privacy = privacy
        require_private(privacy, method, layout.tail, limits, budget)
        require(budget.round_seconds is None, f"budget {budget}: leave out s/round, clients have a clock of their own")
        require_possible(method, layout, self.limits)
        require_steerable(method, budget)
        self.description = described(method)
        self.level, self.health, self.norms = self._watchers()
        self.training = training or secrets.token_hex(8)
        self.round = 0
        """How many rounds are finished."""
        self.receipts = Receipts()
        self.mirror = method.memory.server(layout.dim, layout.tail)
        """The server's half of the clients' memories; None where the method has none."""
        self.shifts_since: int | None = None
        """The first round whose step was not 0; None before it."""
        self.asked: set[Address] = set()
        """The addresses that got an offer in the open round."""
        self._arrivals: dict[Address, Arrival] = {}
        self._kept: set[Address] = set()
        """The addresses whose upload is kept: no other upload of the same sender came, or it was preferred."""

    def _watchers(self) -> tuple[Controller, Health, LearntNorm]:
        rounds = self.schedule.iterations // self.local_steps
        form = MessageForm.of(self.method, self.layout)
        allowance = Allowance.of(self.budget, self.schedule, rounds, form, self.uploads)
        level = Controller(self.method, self.layout.dim, self.schedule, rounds, allowance)
        health = Health(self.method, self.layout, self.limits, self.budget != NO_BUDGET)
        return level, health, LearntNorm(self.limits)

    def moment(self) -> Moment:
        """The end of the open round, as the method sees it."""
        t, level = (self.round + 1) * self.local_steps, self.level
        step = self.method.step(self.schedule, self.round, self.local_steps, level.scale)
        if step and self.shifts_since is None:
            self.shifts_since = self.round
        return self.schedule.moment(t, level.scale, self.layout, keep=level.keep, step=step)

    def offer(self, address: Address, connected: Container[Address] | None = None, asks: bool = True) -> Offer:
        """The offer for the client at `address` in the open round.

        connected   the connected addresses, if the transport knows them. Then the offer has receipts of absent clients,
                    and a client that came back under a new address finds its own
        asks        False: no upload is expected

        With privacy, no client is sent receipts of others: they tell who took part, and hold a checksum of an upload.
        A client that came back then sends its open upload again.
        """
        if asks:
            self.asked.add(address)
        receipt = self.receipts.receipt(address)
        absent = [] if connected is None or receipt or self.privacy else self.receipts.absent(connected, MOST_ABSENT)
        return Offer(
            training=self.training,
            method=self.description,
            dim=self.layout.dim,
            round=self.round + 1,
            **run_facts(self.moment()),
            layout=self.layout.fingerprint(),
            **receipt_facts(receipt),
            absent=[" ".join(map(str, entry)) for entry in absent] or None,
            entries=self.limits.entries,
            norm=self.norms.within(self.limits).norm,
            payload_bytes=limits_of(Budget(upload=self.level.most_bytes), self.limits).payload_bytes,
            rate=self.budget.rate,
        )

    def meet(self, address: Address, answer: Answer) -> None:
        """Notes an answer from `address`. An answer to another round or training is a `WireError`."""
        if answer.training not in (None, self.training):
            raise WireError("an answer of another training")
        if answer.round != self.round + 1:
            raise WireError(f"an answer to round {answer.round} came in round {self.round + 1}")
        if answer.number > answer.round:
            raise WireError(
                f"upload {answer.number} in round {answer.round}: a client makes at most one upload per round"
            )
        if warning := self.receipts.met(address, answer.who):
            self.say(warning)

    def accept(self, address: Address, answer: Answer, payload: bytes, weight: float = 1.0) -> Arrival | None:
        """Accepts an upload, or raises `WireError`. Nothing counts before `close`.

        None for an upload that was sent again and has counted before: it does not count, and is no error.
        """
        self.meet(address, answer)
        if self.privacy is not None and address not in self.asked:  # asked clients are the divisor
            raise WireError("an upload of a client that was not asked in this round")
        if address in self._arrivals:
            raise WireError("a second upload in one round")
        if refusal := self.receipts.refusal(answer.who, answer.number):
            if answer.again:
                return None
            raise WireError(refusal)
        intake = Intake(self.layout.dim, self.norms.within(self.limits), largest=self.largest)
        intake.take(Upload(0, payload, 0.0))
        if intake.refused:
            raise WireError(intake.refused[0])
        arrival = Arrival(address, answer, payload, intake.accepted[0][1], weight, self._step_of(answer))
        self._require_within(arrival)
        self._arrivals[address] = arrival
        return arrival

    def _require_within(self, arrival: Arrival) -> None:
        """Refuses an upload that exceeds the bounds together with its sender's shift, which a client can make large.

        A mirror itself stays within what the sum in a model can hold.
        """
        narrower = isinstance(self.mirror, MirrorOfEach) and self.largest < aggregate.LARGEST_MODEL
        if narrower and kernels.largest_magnitude(self.update_of(arrival).values) > self.largest:
            raise WireError(BEYOND)

    def _step_of(self, answer: Answer) -> float:
        """`Moment.step` of the round in which an upload was made: an earlier one, if it is sent again."""
        if answer.made is None or not answer.again or not self.method.memory.commits:
            return self.moment().step
        if not 1 <= answer.made <= answer.round:
            raise WireError(f"an upload of round {answer.made} came in round {answer.round}")
        made = answer.made - 1
        used = self.shifts_since is not None and made >= self.shifts_since
        return self.schedule.step(made, self.local_steps) if used else 0.0

    def subtract(self, model: Vector, arrivals: Sequence[Arrival], weights: Sequence[float], asked: int) -> None:
        """model ← model − the step of a round in which `asked` clients were asked (Algorithm 1, line 19).

        With privacy, the weights are not used. If no client was asked, no noise is needed.
        """
        if self.privacy is not None:
            if asked:
                take_step(model, [arrival.update for arrival in arrivals], asked, self.privacy, unpredictable)
        elif self.mirror is None:
            aggregate.subtract(model, [arrival.update for arrival in arrivals], weights)
        else:
            counted = [arrival.counted(weight) for arrival, weight in zip(arrivals, weights, strict=True)]
            self.mirror.step(model, counted, len(arrivals) / max(1, asked), self.moment().step)

    def require_each(self, arrivals: Sequence[Arrival]) -> None:
        """Refuses to decode single uploads if the mirror has only the sum over all clients."""
        each = not arrivals or self.mirror is None or isinstance(self.mirror, MirrorOfEach)
        require(each, f"{self.method.name} with server='sum' {ONLY_FEDAVG}")

    def update_of(self, arrival: Arrival) -> SparseUpdate:
        """Δ̂ of an upload, for a server that needs each update."""
        return self.mirror.update_of(arrival.counted()) if isinstance(self.mirror, MirrorOfEach) else arrival.update

    def epsilon(self) -> float | None:
        """ε of a client that was asked in every round so far; None without privacy."""
        return None if self.privacy is None else self.privacy.epsilon(self.round)

    @property
    def arrivals(self) -> list[Arrival]:
        """The uploads of the open round."""
        return list(self._arrivals.values())

    def refuse(self, address: Address) -> None:
        """Refuses an upload from `address` that was accepted before."""
        self._arrivals.pop(address, None)
        self._kept.discard(address)

    def settle_contests(self) -> dict[Address, str]:
        """Keeps one upload per sender if several addresses have copies of its state.

        It prefers, in this order: an upload that was kept before in this round, since the strategy may have it; the
        address of this sender's last accepted upload; the upload with the highest number, since it contains all earlier
        unconfirmed ones.

        Returns address → why its upload is refused.
        """
        best: dict[Sender, Arrival] = {}
        for arrival in self._arrivals.values():
            rival = best.setdefault(arrival.answer.who, arrival)
            if self._rank(arrival) > self._rank(rival):
                best[arrival.answer.who] = arrival
        losers = [arrival for arrival in self.arrivals if best[arrival.answer.who] is not arrival]
        for arrival in losers:
            del self._arrivals[arrival.address]
        self._kept = set(self._arrivals)
        return {arrival.address: COPY.format(arrival.answer.name) for arrival in losers}

    def outliers(self) -> dict[Address, str]:
        """Address → why its upload is refused: it is far larger than all others. Only before a bound is learnt."""
        return self.norms.outliers(_updates(self.arrivals))

    def _rank(self, arrival: Arrival) -> tuple[bool, bool, int]:
        at_home = self.receipts.home(arrival.answer.who) == arrival.address
        return arrival.address in self._kept, at_home, arrival.answer.number

    def label(self, arrival: Arrival) -> str:
        """The sender's name in the ledger."""
        return self.receipts.label(arrival.address, arrival.answer.who)

    def close(self, counted: Sequence[Arrival]) -> list[str]:
        """Ends the round. The uploads `counted` are in the model, and the next offers tell their senders.

        Returns new warnings about the training, and also passes them to `say`.
        """
        sent = [Sent.of(one.update, self.layout, one.answer.report, one.payload) for one in counted]
        warnings = self.health.look(self.moment(), sent)
        self.level.observe(self.moment(), sent)
        self.norms.observe(_updates(counted))
        self.count(counted)
        self.round += 1
        self.asked, self._arrivals, self._kept = set(), {}, set()
        for warning in warnings:
            self.say(warning)
        return warnings

    def count_more(self, arrivals: Sequence[Arrival]) -> None:
        """Adds uploads of the last finished round that are in the model too. Call it before the next offers."""
        sent = [Sent.of(arrival.update, self.layout, arrival.answer.report, arrival.payload) for arrival in arrivals]
        self.level.observe_more(sent)
        self.norms.observe_more(_updates(arrivals))
        self.count(arrivals)

    def count(self, arrivals: Sequence[Arrival]) -> None:
        """Notes that the model holds `arrivals`, of this round or, before the next offers, of the last finished one."""
        if self.mirror is not None:
            self.mirror.commit([arrival.counted() for arrival in arrivals])
        for arrival in arrivals:
            self.receipts.accept(arrival.address, arrival.answer.who, arrival.answer.number, arrival.payload)

    def state_dict(self, copy: bool = True) -> dict[str, Any]:
        """The state to store, as plain values, without uploads that have not counted yet.

        copy   False: the vectors are the exchange's own, and change later
        """
        return {
            "round": self.round,
            "training": self.training,
            "receipts": self.receipts.table(),
            "asked": sorted(self.asked, key=str),
            "level": self.level.state(),
            "health": self.health.state(),
            "norms": self.norms.state(),
            "shifts_since": self.shifts_since,
            "mirror": None if self.mirror is None else self._mirror_state(self.mirror, copy),
        }

    @staticmethod
    def _mirror_state(mirror: Mirror, copy: bool) -> dict[str, Any]:
        return {
            "vectors": {name: vector.copy() if copy else vector for name, vector in mirror.vectors().items()},
            "shares": dict(mirror.shares),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Sets the state that `state_dict` returned."""
        try:
            receipts, asked = Receipts.of(saved["receipts"]), set(saved["asked"])
            own = {name: saved.get(name) for name in ExchangeFacts.model_fields}
            facts = checked(ExchangeFacts, {name: value for name, value in own.items() if value is not None})
            level, health, norms = self._watchers()
            level.restore(saved["level"])
            health.restore(saved["health"])
            norms.restore(saved.get("norms"))
            mirror = self.method.memory.server(self.layout.dim, self.layout.tail)
            if mirror is not None:
                mirror.restore(saved["mirror"]["vectors"], saved["mirror"]["shares"])
        except (KeyError, ValueError, TypeError) as error:
            raise InputError(f"not a state of a server ({type(error).__name__}: {error})") from None
        self.round, self.training = facts.round, facts.training
        self.receipts, self.asked, self._arrivals, self._kept = receipts, asked, {}, set()
        self.level, self.health, self.norms = level, health, norms
        self.mirror, self.shifts_since = mirror, facts.shifts_since


def _updates(arrivals: Sequence[Arrival]) -> dict[Address, SparseUpdate]:
    return {arrival.address: arrival.update for arrival in arrivals}


def described(method: Method) -> str:
    """A text with which both sides compare their methods. For a method without a description, its compressor's."""
    try:
        return describe(method)
    except InputError:
        return f"own:{type(method.compressor).__qualname__}"


def weight_within(weight: Any, limits: Limits, name: str = "a weight") -> float:
    """`weight` as a number from 2⁻⁵³ to 2⁵³ within the limits, or a `WireError`: a client may have sent it."""
    most = min(aggregate.LARGEST_WEIGHT, limits.weight or aggregate.LARGEST_WEIGHT)
    try:
        if aggregate.SMALLEST_WEIGHT <= (number := float(weight)) <= most:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise WireError(f"{name} must be a positive number from 2⁻⁵³ to {most:g}, got {weight!r:.80}")
