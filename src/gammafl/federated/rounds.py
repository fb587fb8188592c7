"""The simulator's round loop (Algorithm 1), for any carrier of messages. `flower/rounds.py` uses the same parts."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from gammafl import seeds
from gammafl.core import aggregate
from gammafl.core.method import Method
from gammafl.core.moment import Moment
from gammafl.core.shifts import Counted, Mirror
from gammafl.federated import privacy, server
from gammafl.federated.client import Upload
from gammafl.federated.downlink import Downlink, ViewState, distance
from gammafl.federated.health import Health
from gammafl.federated.level import Controller, Sent
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.link import round_seconds
from gammafl.federated.norms import LearntNorm
from gammafl.federated.plan import Plan
from gammafl.federated.records import RoundRecord
from gammafl.federated.server import ServerState
from gammafl.federated.timing import Timing


class Carrier(Protocol):
    """Brings the model to the participants of a round, and their uploads to the server."""

    delivered: int
    """Bytes that clients were sent in the round."""

    down_bytes: dict[int, int]
    """Client → how many of these bytes it was sent, for clients that were reached."""

    @property
    def up_bytes(self) -> dict[int, int]:
        """Client → bytes of the upload that it made, also if it did not arrive."""
        ...

    def exchange(
        self,
        participants: Sequence[int],
        downlink: Downlink,
        round_number: int,
        moment: Moment,
        most: Limits = NO_LIMITS,
    ) -> Iterable[Upload]:
        """Yields uploads as they arrive, while other clients may still train.

        downlink   says what each client that is reached is sent; it trains from the view
        moment     the end of the round, for methods
        most       limits for all uploads, in addition to the plan's own
        """
        ...

    def settle(self, accepted: Collection[int]) -> None:
        """Tells which clients' uploads counted in the round. All others return to their clients."""
        ...


def start(plan: Plan) -> ServerState:
    """The state before the first round."""
    model = plan.task.initial_model(seeds.generator(plan.seed, "model"))
    return ServerState(model, mirror=plan.method.memory.server(plan.dim, plan.layout.tail))


def run_rounds(plan: Plan, state: ServerState, carrier: Carrier, timing: Timing | None = None) -> Iterator[RoundRecord]:
    """Runs the rounds from `state` to the end, and yields a record after each. `state` then belongs to that record."""
    timing = timing or Timing()
    level = Controller(plan.method, plan.dim, plan.schedule, plan.rounds, plan.allowance)
    health = Health(plan.method, plan.layout, plan.limits, bool(plan.budgets))
    norms = LearntNorm(plan.limits)
    if state.round:
        level.restore(state.level)
        health.restore(state.health)
        norms.restore(state.norms)
    downlink = Downlink(plan.downlink, state.down or ViewState.of(plan.downlink, state.model), plan.positions)
    state.down = None if plan.downlink == "full" else downlink.state
    while state.round < plan.rounds:
        with timing.phase("sampling"):
            participants = server.pick_participants(plan, state.round)
        largest = aggregate.largest_value(sum(server.weights(plan, participants)))
        own = plan.own_limits
        if norms.bound is not None:
            own = {client: norms.within(limits) for client, limits in own.items()}
        intake = server.Intake(plan.dim, norms.within(plan.limits), state.round, largest, own)
        losses = {}  # an upload may arrive twice
        moment = plan.moment(state.round, level.scale, level.keep)
        most = Limits(payload_bytes=level.most_bytes, norm=norms.bound)
        for upload in carrier.exchange(participants, downlink, state.round, moment, most):
            with timing.phase("server"):
                intake.take(upload)
                losses[upload.client] = upload.loss
        with timing.phase("server"):
            for client, reason in norms.outliers(intake.updates).items():
                intake.refuse(int(client), reason)
            accepted = intake.accepted
            carrier.settle({upload.client for upload, _ in accepted})
            shares = server.weights(plan, [upload.client for upload, _ in accepted])
            counted = server.mirrored(plan, accepted, shares, moment.step) if state.mirror else []
            step = _private_step(plan, accepted, state.round) or _step(plan, state.mirror, counted, moment)
            server.apply(state, accepted, shares, plan.server_optimizer, plan.layout.tail, step, bool(plan.privacy))
            if state.mirror is not None:
                state.mirror.commit(counted)
            downlink.move(state.model, plan.moment_down(state.round))
            server.average(state, plan.averaging, plan.rounds)
            sent = [Sent.of(update, plan.layout, upload.report, upload.payload) for upload, update in accepted]
            level.observe(moment, sent)
            warnings = health.look(moment, sent)
            norms.observe(intake.updates)
            state.closed = server.Closed(moment, accepted)
            state.level, state.health, state.norms = level.state(), health.state(), norms.state()
            state.totals.downlink_bytes += carrier.delivered
            if plan.link is not None:
                spent = round_seconds(plan.link, state.round, carrier.down_bytes, carrier.up_bytes)
                state.totals.link_seconds = (state.totals.link_seconds or 0.0) + spent
        evaluation: dict[str, Any] = {}
        if plan.evaluation.due(state.round, plan.rounds):
            with timing.phase("evaluation"):
                evaluation = evaluate(plan, state)
        yield RoundRecord(
            round=state.round,
            iteration=state.round * plan.local_steps,
            participants=participants,
            train_loss=float(np.add.reduce(list(losses.values()))) / len(losses) if losses else None,
            kept=sum(len(update) for _, update in accepted),
            uplink_bytes=sum(len(upload.payload) for upload, _ in accepted),
            refused={str(client): reason for client, reason in intake.refused.items()},
            downlink_bytes=carrier.delivered,
            link_seconds=state.totals.link_seconds,
            missing=len(participants) - len(accepted),
            capped=sum(bool(upload.report.capped) for upload, _ in accepted),
            norm_limit=most.norm,
            warnings=warnings,
            **evaluation,
        )


def _step(plan: Plan, mirror: Mirror | None, counted: Sequence[Counted], moment: Moment) -> server.TakeStep | None:
    """How the server's half of the memory makes the round's step; None if the method has none."""
    if mirror is None:
        return None
    return partial(mirror.step, counted=counted, arrived=len(counted) / plan.participants, step=moment.step)


def _private_step(plan: Plan, accepted: Sequence[server.Accepted], round_number: int) -> server.TakeStep | None:
    """The step with noise; None without privacy."""
    if plan.privacy is None:
        return None
    updates, normal = [update for _, update in accepted], privacy.seeded(plan.seed, round_number)
    return partial(privacy.take_step, updates=updates, asked=plan.participants, privacy=plan.privacy, normal=normal)


def evaluate(plan: Plan, state: ServerState) -> dict[str, Any]:
    """The evaluation fields of a record: for the model that clients hold, and for the averaged one if there is one."""
    raw = plan.task.evaluate(state.held)
    fields: dict[str, Any] = {"loss": float(raw.loss), "metric": float(raw.metric), "metrics": dict(raw.others)}
    if state.average is not None:
        averaged = plan.task.evaluate(state.average)
        fields |= {"averaged_loss": float(averaged.loss), "averaged_metric": float(averaged.metric)}
        fields["averaged_metrics"] = dict(averaged.others)
    if isinstance(plan.downlink, Method) and state.down is not None:
        own = plan.task.evaluate(state.model)
        fields |= {"server_loss": float(own.loss), "server_metric": float(own.metric)}
        fields["view_distance"] = distance(state.model, state.down.view)
    return fields
