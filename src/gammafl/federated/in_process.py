"""The in-process carrier: all clients are in this process, but real bytes are sent between them and the server."""

from collections.abc import Collection, Iterator, Sequence

from gammafl.core.arrays import Vector
from gammafl.core.moment import Moment, key_of
from gammafl.federated import server
from gammafl.federated.budget import Pace, limits_of
from gammafl.federated.client import Upload, start_after_loss
from gammafl.federated.downlink import Downlink
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.plan import Plan
from gammafl.federated.residuals import ResidualStore
from gammafl.federated.sampling import Sampling
from gammafl.federated.task import LocalUpdate
from gammafl.federated.timing import Timing


class InProcess:
    """Calls the clients. They train in parallel, and upload one after the other.

    It yields an upload as soon as it is made, so that the server decodes it while other clients train.
    """

    def __init__(self, plan: Plan, residuals: ResidualStore, timing: Timing | None = None) -> None:
        self.plan = plan
        self.residuals = residuals
        self.timing = timing or Timing()
        self._sampling = Sampling(plan)
        self._made: list[Upload] = []
        self._moment, self._most = Moment(), NO_LIMITS
        self.delivered = 0
        self.down_bytes: dict[int, int] = {}

    def exchange(
        self,
        participants: Sequence[int],
        downlink: Downlink,
        round_number: int,
        moment: Moment,
        most: Limits = NO_LIMITS,
    ) -> Iterator[Upload]:
        self._most = most
        self._made, self._moment = [], moment.keyed(key_of(self.plan.seed, round_number))
        self.down_bytes = {client: downlink.deliver(client).size for client in participants}
        self.delivered = sum(self.down_bytes.values())
        stepsizes = server.round_stepsizes(self.plan, round_number)
        for clients, start in self._starts(participants, downlink.view):
            rngs = self._sampling.streams(round_number, clients)
            updates = self.timing.each("training", self.plan.task.train(clients, start, stepsizes, rngs))
            for client, local in zip(clients, updates, strict=True):
                with self.timing.phase("compression"):
                    uploads = self.upload(client, local, round_number)
                self._made += uploads
                yield from uploads

    def _starts(self, participants: Sequence[int], model: Vector) -> Iterator[tuple[Sequence[int], Vector]]:
        """(clients, the model from which they train). A client that lost an upload trains from its own model."""
        lost = self.residuals.lost
        if together := [client for client in participants if client not in lost]:
            yield together, model
        for client in participants:
            if client in lost:
                yield [client], start_after_loss(model, lost[client])

    def upload(self, client: int, local: LocalUpdate, round_number: int) -> list[Upload]:
        """The client's upload after its training."""
        limits = self._limits(client, round_number)
        share = None if self.plan.privacy else self.plan.shares.of(client)  # a share tells how much data others have
        moment = self._moment.keyed(key_of(client, key=self._moment.key), share)
        outbox = self.residuals.outbox(client)
        payload = outbox.send(local, moment, limits, self.plan.positions)
        self._pay(client, round_number, len(payload))
        self.residuals.lost.pop(client, None)  # its residual is in this upload
        return [Upload(client, payload, local.loss, round_number, outbox.report)]

    @property
    def up_bytes(self) -> dict[int, int]:
        return {upload.client: len(upload.payload) for upload in self._made}

    def _limits(self, client: int, round_number: int) -> Limits:
        """The limits of the client's upload in this round."""
        limits = self.plan.own_limits.get(client, self.plan.limits).within(self._most)
        budget = self.plan.budgets.of_client(client)
        if budget.rate is None:
            return limits
        return limits_of(budget, limits, self._pace(client, round_number), self._now(client, round_number))

    def _pay(self, client: int, round_number: int, sent: int) -> None:
        """Notes that the client sent `sent` bytes over its link, also if they are lost."""
        if (rate := self.plan.budgets.of_client(client).rate) is not None:
            pace = self._pace(client, round_number)
            self.residuals.paces[client] = pace.after(rate, self._now(client, round_number), sent)

    def _pace(self, client: int, round_number: int) -> Pace:
        """The client's pace. If it has never sent anything, its link has been idle since the beginning of the round."""
        return self.residuals.paces.get(client) or Pace(self._now(client, round_number - 1))

    def _now(self, client: int, round_number: int) -> float:
        """Seconds from the beginning of the run to the end of a round."""
        return (round_number + 1) * (self.plan.budgets.of_client(client).round_seconds or 0.0)

    def settle(self, accepted: Collection[int]) -> None:
        """Tells the clients at once whether their uploads counted, since nothing happens before their next round."""
        for upload in self._made:
            outbox = self.residuals.outbox(upload.client)
            counted = upload.client in accepted or not self.plan.faults.confirmed
            lost = outbox.settle(outbox.number if counted else outbox.number - 1)
            if lost is not None:
                self.residuals.lost[upload.client] = lost
