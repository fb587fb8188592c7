"""The rounds of a training: adds offers to the strategy's messages, and records what the strategy aggregates."""

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

from flwr.app import ArrayRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy
from pydantic import Field

from gammafl.config.schema import NoAverage
from gammafl.core.errors import InputError, require
from gammafl.core.moment import Moment
from gammafl.federated import server
from gammafl.federated.server import Averaging, ServerState
from gammafl.federated.server_exchange import Arrival
from gammafl.files.disk_errors import storing
from gammafl.files.private_files import PUBLIC_FILE
from gammafl.files.reading import Count, Facts, checked
from gammafl.flower.aggregation import can_subtract, subtract
from gammafl.flower.arrays import kept, same_data
from gammafl.flower.incoming import Incoming
from gammafl.flower.messages import KEY, Notice, kind_of
from gammafl.flower.metrics import printable
from gammafl.flower.outgoing import Nodes, Outgoing
from gammafl.flower.packing import Packer, unpack
from gammafl.flower.training import OpenRound, Training

LOG = logging.getLogger("flwr")

NOT_WAITING = getattr(os, "O_NONBLOCK", 0)  # Windows has no such pipes

MOST_FAILURES = 100
"""The most different errors of clients that are kept, for the error of a training without any upload."""


ACCEPTED, REFUSED, UPLINK, KEPT = OURS = ("accepted-uploads", "refused-uploads", "uplink-bytes", "kept-fraction")
"""The metrics that gammafl adds to the strategy's metrics of a round."""


AnyFloat = Annotated[float, Field(allow_inf_nan=True)]


class RecordFacts(Facts):
    """The record of a round, as it is stored and as the ledger has it."""

    round: Count
    iteration: Count
    clients: list[str]
    asked: Count
    kept: Count
    uplink_bytes: Count
    downlink_bytes: Count
    evaluation_bytes: Count
    failed: Count
    repeated: Count
    without_model: Count
    refused: dict[str, str]
    view_distance: AnyFloat = 0.0
    norm_limit: AnyFloat = 0.0
    whole: Count = 0
    whole_bytes: Count = 0
    other_bytes: Count = 0
    capped: Count = 0
    warnings: list[str] = Field([])


class RoundsFacts(Facts):
    """`Rounds.state`, as it is stored."""

    arrays: dict[str, Any]
    training: dict[str, Any]
    average: dict[str, Any] | None
    history: list[dict[str, Any]]
    failures: list[str]
    told: bool
    ledger_bytes: Count


class Rounds:
    """One training of a strategy, round by round. `initial` is the app's first model."""

    def __init__(
        self,
        strategy: Strategy,
        training: Training,
        initial: ArrayRecord | None,
        min_accepted: int,
        averaging: Averaging,
        ledger: Path | None,
    ) -> None:
        self.strategy, self.training = strategy, training
        self.min_accepted, self.averaging, self.ledger = min_accepted, averaging, ledger
        self.outgoing, self.incoming = Outgoing(training, initial), Incoming(training)
        self.read = self.incoming.read
        self.history: list[dict[str, Any]] = []
        self.failures: set[str] = set()
        """The errors of clients that failed."""
        self._pending = False
        """Whether clients were asked to train and their uploads are not aggregated yet."""
        self.made: ArrayRecord | None = None
        """The last model that the strategy made."""
        self.counted: dict[str, Arrival] = {}
        """Client → its upload, for those that counted in the last closed round."""

        self.moment: Moment | None = None
        """The end of that round."""

        self._left: dict[int, Arrival] = {}
        """Node → its upload in the last closed round, for those that have not counted."""
        self._average: ServerState | None = None
        self._last_train: Message | None = None
        self._told = False
        """Whether the log has told the cost of the downlink."""
        if ledger is not None:
            with storing(ledger, "start again", "choose another ledger"), _appending(ledger):
                pass

    def state(self, packer: Packer) -> dict[str, Any]:
        """The state to store, of a training that has begun."""
        training, average = self.training, self._average
        last = self.made if self.made is not None or training.last is None else training.last.record
        return {
            "arrays": packer.pack(last),
            "training": training.state(packer),
            "average": packer.pack(
                None if average is None or average.average is None else (average.average, average.averaged_rounds)
            ),
            "history": self.history,
            "failures": sorted(self.failures),
            "told": self._told,
            "ledger_bytes": self.ledger.stat().st_size if self.ledger is not None and self.ledger.exists() else 0,
        }

    def restore(self, saved: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        """Sets the state that `state` returned before."""
        facts = checked(RoundsFacts, saved)
        for line in facts.history:
            checked(RecordFacts, line)
        record = unpack(facts.arrays, tensors)
        require(isinstance(record, ArrayRecord), "its model is not an ArrayRecord")
        self.made = record
        self.training.restore(facts.training, tensors, record)
        if (average := unpack(facts.average, tensors)) is not None:
            vector, rounds = average
            require(vector.shape == (self.training.layout.dim,) and rounds >= 0, "an average of another model")
            self._average = ServerState(vector, average=vector, averaged_rounds=rounds)
        self.history, self.failures, self._told = facts.history, set(facts.failures), facts.told
        if self.ledger is not None and self.ledger.stat().st_size > facts.ledger_bytes:
            if _ends_with(self.ledger, facts.ledger_bytes, self.history):
                os.truncate(self.ledger, facts.ledger_bytes)  # removes lines of a round that starts again
            else:
                LOG.warning("gammafl: %s has lines of another training, which stay in the file", self.ledger)

    def write(self, messages: list[Message], connected: Nodes, timeout: float | None) -> list[Message]:
        """Algorithm 1, line 3: adds an offer for each client to the strategy's messages."""
        trains = [message for message in messages if kind_of(message) == MessageType.TRAIN]
        if trains and self._pending and self._begins_anew(trains):
            self._abandon(trains)
        if trains:
            self._pending, self._last_train, self._left = True, trains[-1], {}
            self.outgoing.asked = len(trains)
        return [self.outgoing.write(message, connected, timeout) for message in messages]

    def _begins_anew(self, trains: list[Message]) -> bool:
        """Whether these messages begin another round. Otherwise they belong to the open one.

        They do if some of their nodes were asked before in this round, or if replies were read and the model differs.
        """
        opened = self.training.open
        asked_again = any(message.metadata.dst_node_id in opened.bases for message in trains)
        return asked_again or (opened.read and not self._is_last_model(trains))

    def _is_last_model(self, trains: list[Message]) -> bool:
        last = self.training.last
        records = [record for message in trains for record in message.content.array_records.values()]
        return last is None or any(same_data(last.record, record) for record in records)

    def _abandon(self, trains: list[Message]) -> None:
        """Closes a round in which the strategy did not call `aggregate_train`: its uploads did not count."""
        if not self._is_last_model(trains):
            raise InputError(
                "the strategy changed its model without a call of its aggregate_train: gammafl can't know which"
                " uploads counted. Change the model in aggregate_train"
            )
        LOG.warning("gammafl: the strategy did not aggregate this round: clients send their updates again later")
        self._close([])

    def aggregate(self, original: Callable[..., Any], server_round: int, replies: Iterable[Message]) -> Any:
        """Algorithm 1, lines 17-19: the strategy's own code, or for plain FedAvg the same over sparse updates."""
        training, replies = self.training, list(replies)
        given = {reply.metadata.src_node_id for reply in replies if reply.has_content()}
        if not self._pending or not training.begun:
            return self._aggregate_more(original, server_round, replies, given)
        all_arrivals = training.exchange.arrivals
        arrivals = [arrival for arrival in all_arrivals if arrival.address in given]
        good = len(arrivals) + len(training.open.whole.keys() & given)
        if good < self.min_accepted:
            LOG.warning(
                "gammafl: %d valid uploads, %d needed: the model stays, and clients send their updates again later",
                good,
                self.min_accepted,
            )
            handed = {arrival.address for arrival in arrivals} | training.open.whole.keys()
            replies, arrivals = [reply for reply in replies if reply.metadata.src_node_id not in handed], []
        arrays: ArrayRecord | None
        if can_subtract(training, arrivals):
            arrays, metrics = subtract(self.strategy, training, arrivals, replies)
        else:
            training.exchange.require_each(arrivals)
            arrays, metrics = original(server_round, replies)
            arrays = None if arrays is None else training.within(arrays)
        counted = [] if arrays is None else arrivals
        taken = {arrival.address for arrival in counted}
        self._left = {int(arrival.address): arrival for arrival in all_arrivals if arrival.address not in taken}
        closed = self._close(counted)
        if arrays is not None:
            self.made = kept(arrays)
            training.move(arrays)
            self._average_with(arrays)
        return arrays, self._metrics(metrics, counted, closed)

    def _aggregate_more(
        self, original: Callable[..., Any], server_round: int, replies: list[Message], given: set[int]
    ) -> Any:
        """A further call in the same round, such as one per group of clients. Its uploads count too."""
        private = self.training.terms.privacy is not None
        require(not private, "privacy needs one call of aggregate_train per round: further calls would add no noise")
        if further := [self._left[node] for node in given & self._left.keys()]:
            self.training.exchange.require_each(further)
        result = original(server_round, replies)
        more = [self._left.pop(node) for node in sorted(given & self._left.keys())] if result[0] is not None else []
        if more:
            exchange, record = self.training.exchange, self.history[-1]
            exchange.count_more(more)
            record["clients"] += [exchange.label(arrival) for arrival in more]
            record["kept"] += sum(len(arrival.update) for arrival in more)
            record["uplink_bytes"] += sum(len(arrival.payload) for arrival in more)
        return result

    def evaluate(self, original: Callable[..., Any], server_round: int, replies: Iterable[Message]) -> Any:
        """The strategy's own code. If the app's function for metrics fails in Flower's code, only metrics are lost."""
        try:
            return original(server_round, list(replies))
        except Exception as error:
            if not self.training.terms.alike:
                raise
            LOG.warning("gammafl: the metrics could not be aggregated: %s", printable(repr(error)))
            return None

    def _average_with(self, arrays: ArrayRecord) -> None:
        """Updates the averaged model, if one is wanted and the strategy made a whole model."""
        layout = self.training.layout
        if isinstance(self.averaging, NoAverage) or set(arrays) != set(layout.names):
            return
        held = self.training.has_view
        model = self.training.down.view if held else layout.flatten(arrays, "the strategy's model")
        state = self._average = self._average or ServerState(model)
        state.model, state.round = model, self.training.exchange.round
        server.average(state, self.averaging, self.training.terms.rounds)

    @property
    def averaged_arrays(self) -> ArrayRecord | None:
        average = None if self._average is None else self._average.average
        return None if average is None else self.training.layout.record(average)

    def _close(self, counted: Sequence[Arrival]) -> OpenRound:
        """Ends the round, and adds its record to the history and the ledger."""
        exchange, down, last = self.training.exchange, self.training.down, self.training.last
        labels, asked = [exchange.label(arrival) for arrival in counted], len(exchange.asked)
        apart = down.distance(last.vector) if self.training.has_view and last is not None else None
        bound, self.moment = exchange.norms.bound, exchange.moment()
        self.counted = dict(zip(labels, counted, strict=True))
        closed = self.training.close(counted)
        self._pending = False
        if len(self.failures) < MOST_FAILURES:
            self.failures.update(closed.failed.values())
        record: dict[str, Any] = {
            "round": exchange.round,
            "iteration": exchange.round * exchange.local_steps,
            "clients": labels,
            "asked": asked,
            "kept": sum(len(arrival.update) for arrival in counted),
            "uplink_bytes": sum(len(arrival.payload) for arrival in counted),
            "downlink_bytes": closed.downlink_bytes,
            "evaluation_bytes": closed.evaluation_bytes,
            "failed": len(closed.failed),
            "repeated": len(closed.repeated),
            "without_model": len(closed.without_model),
            "refused": {str(node): reason for node, reason in closed.refused.items()},
        }
        if apart is not None:
            record["view_distance"] = apart
        if bound is not None:
            record["norm_limit"] = bound
        if closed.whole:
            record |= {"whole": len(closed.whole), "whole_bytes": sum(closed.whole.values())}
        if closed.other_bytes:
            record["other_bytes"] = closed.other_bytes
        if capped := sum(bool(arrival.answer.capped) for arrival in counted):
            record["capped"] = capped
        if closed.warnings:
            record["warnings"] = closed.warnings
        self._note(record)
        self._tell_of_the_way_down(record)
        return closed

    def _tell_of_the_way_down(self, record: dict[str, Any]) -> None:
        """Tells once how to save traffic, if nearly all of it is the model on its way to the clients."""
        up, down = record["uplink_bytes"], record["downlink_bytes"]
        if self.training.terms.downlink == "full" and not self._told and 0 < 10 * up < down:
            self._told = True
            LOG.info(
                "gammafl: round %d sent %d bytes up and %d down, since clients are sent the whole model each time."
                " Compressed(…, downlink='changes') sends what has changed; downlink='gamma-fedht-q:keep=0.04' sends"
                " even less: docs/downlink.md",
                record["round"],
                up,
                down,
            )

    def _note(self, record: dict[str, Any]) -> None:
        self.history.append(record)
        if self.ledger is None:
            return
        try:
            with _appending(self.ledger) as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:  # the model is worth more than its ledger
            LOG.warning("gammafl: the line of round %d could not be written: %s", record["round"], error)

    def _metrics(self, metrics: MetricRecord | None, counted: Sequence[Arrival], closed: OpenRound) -> MetricRecord:
        """The strategy's metrics, with the traffic. The log compares it with the traffic of whole models."""
        sent, kept = sum(len(arrival.payload) for arrival in counted), sum(len(arrival.update) for arrival in counted)
        shown = MetricRecord() if metrics is None else metrics
        shown.update({ACCEPTED: len(counted), REFUSED: len(closed.refused), UPLINK: sent})
        if counted:
            models = [closed.bases[int(arrival.address)].sent for arrival in counted]
            whole = sum(len(array.data) for model in models for array in model.values()) + closed.other_bytes
            total = sent + closed.other_bytes
            LOG.info("gammafl: %d uploads, %d bytes instead of %d (%.0f×)", len(counted), total, whole, whole / total)
            shown[KEPT] = kept / (self.training.layout.dim * len(counted))
        return shown

    def goodbyes(self, connected: set[int], seconds: float) -> list[Message]:
        """Messages to all connected clients that took part: the training is over, they can remove their states.

        The messages hold the app's own config, since other mods before this one may need it.
        """
        if not self.training.begun or self._last_train is None:
            return []
        exchange, messages = self.training.exchange, []
        configs = {key: config for key, config in self._last_train.content.config_records.items() if key != KEY}
        notice = Notice(notice="end", training=exchange.training, simulated=self.training.terms.simulated)
        kind = self._last_train.metadata.message_type
        for node in sorted(connected & exchange.receipts.addresses):
            content = RecordDict(dict(configs))
            notice.write(content)
            messages.append(Message(content, node, kind, ttl=seconds))
        return messages


def _appending(ledger: Path) -> TextIO:
    """The ledger, opened. A pipe that nobody reads is an error, and not waited for."""
    return open(ledger, "a", opener=lambda path, flags: os.open(path, flags | NOT_WAITING, PUBLIC_FILE))


def _ends_with(ledger: Path, size: int, history: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the first `size` bytes end with the last round of `history`, and later lines belong to later rounds."""
    done = history[-1]["round"] if history else 0
    with ledger.open("rb") as file:
        before, after = file.read(size).splitlines(), file.read().splitlines(keepends=True)
    try:
        last = json.loads(before[-1])["round"] if history else 0
        later = [json.loads(line)["round"] for line in after if line.endswith(b"\n")]
    except (ValueError, KeyError, TypeError, IndexError):
        return False
    follow = later == list(range(done + 1, done + 1 + len(later))) and (done > 0 or len(later) <= 1)
    return last == done and follow
