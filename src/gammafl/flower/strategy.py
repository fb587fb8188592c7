"""The server's line: a strategy around any strategy of Flower's, or one's own, that receives compressed updates."""

import inspect
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from gammafl.config.schema import NoAverage
from gammafl.core.compressors import Compressor
from gammafl.core.errors import InputError, require
from gammafl.core.method import Method
from gammafl.core.stepsizes import Stepsize, as_stepsize
from gammafl.federated import server
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.server import ServerState
from gammafl.federated.server_exchange import Arrival
from gammafl.files.disk_errors import storing
from gammafl.flower.aggregation import (
    attribute,
    can_subtract,
    is_flowers,
    is_plain,
    require_strategy,
    subtract,
    weight_key,
)
from gammafl.flower.arrays import in_float32, same_data
from gammafl.flower.grid import CompressedGrid, UncompressedGrid
from gammafl.flower.incoming import Incoming
from gammafl.flower.layout import WHOLE
from gammafl.flower.messages import KEY, Notice
from gammafl.flower.metrics import printable
from gammafl.flower.outgoing import Nodes, Outgoing
from gammafl.flower.training import OpenRound, Terms, Training
from gammafl.methods.description import describe
from gammafl.methods.registry import resolve

LOG = logging.getLogger("flwr")

GOODBYE_SECONDS = 10.0
"""How long the end of a training waits for clients to remove their states."""

INSIDE = "put Compressed outside: Compressed(Other(FedAvg(…)), …) instead of Other(Compressed(FedAvg(…), …))"


class Compressed(Strategy):
    """`strategy`, for clients that have `gammafl.flower.compress()` as the first of their mods.

    strategy       any strategy of `flwr.serverapp.strategy`, or one's own. It samples nodes, and makes the next model
                   of b − Δ̂: for each reply the model that it sent less the decoded update, in float32
    method         gf.top_k(keep=0.01) and its like, or a name such as "top-k", for which `keep` is the kept fraction
    stepsize       γ_t, a number or a function of t, for methods that follow it; it is sent to the clients each round
                   as `lr_key` of the train config. Unset: the train config's own, constant
    local_steps    E: a round ends at iteration t = round · local_steps, which `stepsize` counts in
    min_accepted   with fewer good uploads the strategy gets none, and the clients keep their updates
    limits         what an upload may be at the most, in bytes, entries and norm
    downlink       "full": the whole model every time; "changes": only what has changed since the version that the
                   client has on its disk
    whole          patterns of the names of tensors that are sent whole; by default running statistics
    tied           whether tensors that begin equal, and are not constant, are one: False if they only look alike
    arrays         the key of the ArrayRecord that is the model, where the strategy sends several
    accept_whole   whether the model of a client without the mod counts
    averaging      "tail", "exponential" or "none": beside the model, its average, in `averaged_arrays`
    ledger         a file that gets a line of JSON a round; its bytes are of train messages, without Flower's own
    rounds         T / E, where the strategy's own `start` has no `num_rounds`
    enabled        False: nothing is compressed, whatever the clients have

    Other attributes are the strategy's own: `Compressed(s).fraction_train` is `s.fraction_train`.

    >>> from flwr.serverapp.strategy import FedAdam
    >>> Compressed(FedAdam(), method="top-k", keep=0.001).description
    '{"method": "top-k", "settings": {"keep": 0.001}}'
    """

    def __init__(
        self,
        strategy: Strategy,
        method: str | Method | Compressor = "gamma-fedht",
        *,
        keep: float = 0.01,
        stepsize: Stepsize | float | None = None,
        local_steps: int = 1,
        min_accepted: int = 1,
        limits: Limits = NO_LIMITS,
        downlink: Literal["full", "changes"] = "full",
        whole: Sequence[str] = WHOLE,
        tied: bool = True,
        arrays: str | None = None,
        accept_whole: bool = False,
        averaging: Literal["none", "tail", "exponential"] = "none",
        ledger: str | os.PathLike[str] | None = None,
        lr_key: str = "lr",
        rounds: int | None = None,
        enabled: bool = True,
    ) -> None:
        require_strategy(strategy)
        require(local_steps >= 1, f"local_steps must be at least 1, got {local_steps}")
        require(min_accepted >= 1, f"min_accepted must be at least 1, got {min_accepted}")
        require(downlink in ("full", "changes"), f"downlink must be 'full' or 'changes', got {downlink!r}")
        require(not isinstance(whole, str), f"whole must be a list of patterns, such as [{whole!r}]")
        known = ", ".join(server.AVERAGINGS)
        require(averaging in server.AVERAGINGS, f"averaging must be one of {known}, got {averaging!r}")
        config_key = attribute(strategy, "configrecord_key")
        require(config_key != KEY, f"configrecord_key must not be {KEY!r}, which gammafl uses itself")
        self.strategy = strategy
        self.method = resolve(method, keep=keep)
        self.description = describe(self.method)
        self.stepsize = None if stepsize is None else as_stepsize(stepsize)
        self.local_steps = local_steps
        self.min_accepted = min_accepted
        self.limits = limits
        self.downlink = downlink
        self.whole = whole
        self.tied = tied
        self.arrays = arrays
        self.accept_whole = accept_whole
        self.averaging = server.AVERAGINGS[averaging]
        self.ledger = None if ledger is None else Path(ledger)
        self.lr_key = lr_key
        self.rounds = rounds
        self.enabled = enabled
        self.history: list[dict[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        if name == "strategy":  # not there yet
            raise AttributeError(name)
        return getattr(self.strategy, name)

    # --- a run --------------------------------------------------------------------------------------------

    def start(self, grid: Grid, *args: Any, **kwargs: Any) -> Result:
        """The strategy's own `start`, with the arguments that it takes."""
        if not self.enabled:
            return self.strategy.start(UncompressedGrid(grid), *args, **kwargs)
        call = inspect.signature(self.strategy.start).bind(grid, *args, **kwargs)
        call.apply_defaults()
        rounds = call.arguments.get("num_rounds", self.rounds)
        if not isinstance(rounds, int) or rounds < 1:
            raise InputError("the strategy's start has no num_rounds; say how many there are: Compressed(…, rounds=…)")
        initial = call.arguments.get("initial_arrays")
        with self.running(grid, rounds, initial) as compressed:
            call.arguments["grid" if "grid" in call.arguments else next(iter(call.arguments))] = compressed
            if initial is not None:
                call.arguments["initial_arrays"] = in_float32(initial)
            result = self.strategy.start(*call.args, **call.kwargs)
        self._finish(grid)
        return self._as_it_began(result)

    @contextmanager
    def running(self, grid: Grid, rounds: int, initial: ArrayRecord | None = None) -> Iterator[Grid]:
        """A training of so many rounds: the strategy sends and receives by the grid that this gives.

        What the strategy's `aggregate_train` returns tells whether the uploads of a round counted.
        """
        strategy: Any = self.strategy
        self._begin(rounds, initial, simulated=type(grid).__name__ == "InMemoryGrid")
        LOG.info("gammafl: %s, downlink: %s", self.description, self.downlink)
        train, evaluate = strategy.aggregate_train, strategy.aggregate_evaluate
        strategy.aggregate_train = lambda number, replies: self._aggregate(train, number, list(replies))
        strategy.aggregate_evaluate = lambda number, replies: self._evaluate(evaluate, number, list(replies))
        try:
            yield CompressedGrid(grid, self._write, self._incoming.read)
        finally:
            del strategy.aggregate_train, strategy.aggregate_evaluate

    def _begin(self, rounds: int, initial: ArrayRecord | None, simulated: bool) -> None:
        """The state before the first round."""
        self.training = Training(
            Terms(
                method=self.method,
                rounds=rounds,
                stepsize=self.stepsize,
                local_steps=self.local_steps,
                lr_key=self.lr_key,
                limits=self.limits,
                downlink=self.downlink,
                whole=self.whole,
                tied=self.tied,
                accept_whole=self.accept_whole,
                arrays_key=self.arrays or attribute(self.strategy, "arrayrecord_key"),
                weight_key=weight_key(self.strategy),
                alike=is_flowers(self.strategy) and not is_plain(self.strategy),
                simulated=simulated,
            )
        )
        self._outgoing, self._incoming = Outgoing(self.training, initial), Incoming(self.training)
        self._rounds = rounds
        self._state: ServerState | None = None
        self._pending = False
        """Whether clients were asked to train, and nothing is known of their uploads yet."""
        self.history = []
        if self.ledger is not None:
            with storing(self.ledger, "start again", "choose another ledger"), self.ledger.open("a"):
                pass

    @property
    def averaged_arrays(self) -> ArrayRecord | None:
        """The averaged model, once there is one."""
        average = None if self._state is None else self._state.average
        return None if average is None else self.training.layout.record(average)

    def _finish(self, grid: Grid) -> None:
        """Clients may forget; and a training in which nothing ever counted is no success."""
        if not self.training.begun:
            return
        exchange = self.training.exchange
        notice = Notice(notice="end", training=exchange.training, simulated=self.training.terms.simulated)
        messages = []
        for node in set(grid.get_node_ids()) & exchange.receipts.addresses:
            content = RecordDict()
            notice.write(content)
            messages.append(Message(content, node, MessageType.TRAIN, ttl=GOODBYE_SECONDS))
        if messages:
            list(grid.send_and_receive(messages, timeout=GOODBYE_SECONDS))
        if self.history and not any(record["clients"] or record.get("whole") for record in self.history):
            reasons = {reason for record in self.history for reason in record["refused"].values()}
            raise InputError(
                f"no upload counted in {len(self.history)} rounds, so that nothing was learned"
                + (f": {sorted(reasons)[0]}" if reasons else ": every client failed; their logs say why")
            )

    def _as_it_began(self, result: Any) -> Any:
        """The result with the model in the types that the app began with."""
        arrays = getattr(result, "arrays", None)
        if isinstance(arrays, ArrayRecord) and len(arrays) and self.training.begun and self.training.layout.half:
            layout = self.training.layout
            result.arrays = layout.record(layout.flatten(arrays, "the result", arrays.keys()), arrays.keys())
        return result

    # --- a round ------------------------------------------------------------------------------------------

    def _write(self, messages: list[Message], connected: Nodes, timeout: float | None) -> list[Message]:
        """Algorithm 1, line 3: the strategy's messages with an offer for each client."""
        trains = [message for message in messages if message.metadata.message_type.split(".")[0] == MessageType.TRAIN]
        if trains and self._pending and self._begins_anew(trains):
            self._abandon(trains)
        self._pending |= bool(trains)
        return [self._outgoing.write(message, connected, timeout) for message in messages]

    def _begins_anew(self, trains: list[Message]) -> bool:
        """Whether these messages begin another round: some of their nodes were asked already, or replies were read."""
        opened = self.training.open
        return opened.read or any(message.metadata.dst_node_id in opened.bases for message in trains)

    def _abandon(self, trains: list[Message]) -> None:
        """The strategy goes on without having called `aggregate_train`: what it was handed did not count."""
        last = self.training.last
        records = [record for message in trains for record in message.content.array_records.values()]
        if last is None or not all(same_data(last.record, record) for record in records):
            raise InputError(
                "the strategy changed its model without a call of its aggregate_train, so that nobody can tell which"
                " uploads counted; aggregate there"
            )
        LOG.warning("gammafl: the strategy did not aggregate this round: the clients keep their updates")
        self._close([])

    def _aggregate(self, original: Callable[..., Any], server_round: int, replies: list[Message]) -> Any:
        """Algorithm 1, lines 17-19: the strategy's own, or for plain FedAvg the same over sparse updates."""
        training = self.training
        arrivals = training.exchange.arrivals if training.begun else []
        good = len(arrivals) + len(training.open.whole)
        if good < self.min_accepted and self._pending:
            LOG.warning(
                "gammafl: %d uploads in order, %d needed: the model stays, and the clients keep their updates",
                good,
                self.min_accepted,
            )
            handed = {arrival.address for arrival in arrivals} | training.open.whole.keys()
            replies, arrivals = [r for r in replies if r.metadata.src_node_id not in handed], []
        if can_subtract(self.strategy, training, arrivals):
            arrays, metrics = subtract(self.strategy, training, arrivals, replies)
        else:
            arrays, metrics = original(server_round, replies)
        if not self._pending:
            return arrays, metrics
        counted = [] if arrays is None else arrivals
        self._average(arrays)
        closed = self._close(counted)
        return arrays, self._metrics(metrics, counted, closed)

    def _evaluate(self, original: Callable[..., Any], server_round: int, replies: list[Message]) -> Any:
        """The strategy's own; in Flower's, a function of the app's that fails costs the metrics, not the run."""
        try:
            return original(server_round, replies)
        except Exception as error:
            if not is_flowers(self.strategy):
                raise
            LOG.warning("gammafl: the metrics could not be aggregated: %s", printable(repr(error)))
            return None

    def _average(self, arrays: ArrayRecord | None) -> None:
        """The averaged model, where one is wanted and the whole model is there."""
        layout = self.training.layout if self.training.begun else None
        if arrays is None or layout is None or isinstance(self.averaging, NoAverage):
            return
        if set(arrays) != set(layout.names):
            return
        model = layout.flatten(arrays, "the strategy's model")
        state = self._state = self._state or ServerState(model)
        state.model, state.round = model, self.training.exchange.round + 1
        server.average(state, self.averaging, self._rounds)

    def _close(self, counted: Sequence[Arrival]) -> OpenRound:
        """The round's record."""
        exchange = self.training.exchange
        labels = [exchange.label(arrival) for arrival in counted]
        asked = len(exchange.asked)
        closed = self.training.close(counted)
        self._pending = False
        record: dict[str, Any] = {
            "round": exchange.round,
            "iteration": exchange.round * self.local_steps,
            "clients": labels,
            "asked": asked,
            "kept": sum(len(arrival.update) for arrival in counted),
            "uplink_bytes": sum(len(arrival.payload) for arrival in counted) + sum(closed.whole.values()),
            "downlink_bytes": closed.downlink_bytes,
            "failed": closed.failed,
            "repeated": len(closed.repeated),
            "without_model": len(closed.without_model),
            "refused": {str(node): reason for node, reason in closed.refused.items()},
        }
        if closed.whole:
            record["whole"] = len(closed.whole)
        self._note(record)
        return closed

    def _note(self, record: dict[str, Any]) -> None:
        self.history.append(record)
        if self.ledger is None:
            return
        try:
            with self.ledger.open("a") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:  # the model is worth more than its ledger
            LOG.warning("gammafl: the line of round %d could not be written: %s", record["round"], error)

    def _metrics(self, metrics: MetricRecord | None, counted: Sequence[Arrival], closed: OpenRound) -> MetricRecord:
        """The strategy's metrics, and what was sent."""
        sent, kept = sum(len(arrival.payload) for arrival in counted), sum(len(arrival.update) for arrival in counted)
        found = MetricRecord() if metrics is None else metrics
        found.update({"accepted-uploads": len(counted), "refused-uploads": len(closed.refused), "uplink-bytes": sent})
        if counted:
            dim = self.training.layout.dim
            dense = 4 * dim * len(counted)
            LOG.info("gammafl: %d uploads, %d bytes instead of %d (%.0f×)", len(counted), sent, dense, dense / sent)
            found["kept-fraction"] = kept / (dim * len(counted))
        return found

    # --- what only `start` may do -------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        raise InputError(INSIDE)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        raise InputError(INSIDE)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        raise InputError(INSIDE)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        raise InputError(INSIDE)

    def summary(self) -> None:
        self.strategy.summary()
        LOG.info("\t└──> gammafl: %s", self.description)
