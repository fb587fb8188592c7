"""The server's line: FedAvg that receives compressed updates, and counts each exactly once."""

import json
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from flwr.app import DEFAULT_TTL, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from flwr.serverapp.strategy.strategy_utils import sample_nodes

from gammafl.core import aggregate, kernels
from gammafl.core.compressors import Compressor
from gammafl.core.errors import GammaflError, InputError, require
from gammafl.core.method import Method
from gammafl.core.moment import Schedule
from gammafl.core.stepsizes import Constant, Stepsize, as_stepsize
from gammafl.federated import server
from gammafl.federated.exchange import receipt_facts, run_facts
from gammafl.federated.limits import NO_LIMITS, Limits
from gammafl.federated.server import ServerState
from gammafl.files.disk_errors import storing
from gammafl.flower.downlink import Downlink
from gammafl.flower.inbox import Inbox, Letter, Mail, alike, printable
from gammafl.flower.layout import WHOLE, Layout
from gammafl.flower.messages import KEY, Holding, Offer
from gammafl.methods.description import describe
from gammafl.methods.registry import resolve

LOG = logging.getLogger("flwr")

MOST_ABSENT = 256
"""Receipts of absent clients that are sent to a node that nobody has answered from, at about 40 bytes each."""

Aggregation = Callable[[list[RecordDict], str], MetricRecord]


class CompressedFedAvg(FedAvg):
    """FedAvg, and all its options, for clients that have `gammafl.flower.compress()` among their mods.

    method            gf.top_k(keep=0.01) and its like, or a name such as "top-k", for which `keep` is the kept fraction
    stepsize          γ_t, a number or a function of t, which λ_t follows; it is sent to the clients each round as
                      `lr_key` of the train config. Unset: the train config's own, constant
    local_steps       E: a round ends at iteration t = round · local_steps, which `stepsize` counts in
    min_accepted      with fewer good uploads the model stays as it is, and the clients keep their updates
    limits            what an upload may be at the most, in bytes, entries and norm
    downlink          "full": the whole model every time; "changes": only what has changed since the version that the
                      client has on its disk
    whole             patterns of the names of tensors that are sent whole; by default running statistics
    averaging         "tail", "exponential" or "none": beside the model, its average, in `averaged_arrays`
    ledger            a file that gets a line of JSON a round; its bytes are of train messages, without Flower's own
    seed              of the choice among the connected nodes
    """

    def __init__(
        self,
        *,
        method: str | Method | Compressor = "gamma-fedht",
        keep: float = 0.01,
        stepsize: Stepsize | float | None = None,
        local_steps: int = 1,
        min_accepted: int = 1,
        limits: Limits = NO_LIMITS,
        downlink: Literal["full", "changes"] = "full",
        whole: Sequence[str] = WHOLE,
        averaging: Literal["none", "tail", "exponential"] = "none",
        ledger: str | os.PathLike[str] | None = None,
        seed: int = 0,
        lr_key: str = "lr",
        **fedavg_options: Any,
    ) -> None:
        super().__init__(**fedavg_options)
        require(local_steps >= 1, f"local_steps must be at least 1, got {local_steps}")
        require(min_accepted >= 1, f"min_accepted must be at least 1, got {min_accepted}")
        require(downlink in ("full", "changes"), f"downlink must be 'full' or 'changes', got {downlink!r}")
        require(self.configrecord_key != KEY, f"configrecord_key must not be {KEY!r}, which gammafl uses itself")
        require(seed >= 0, f"seed must not be negative, got {seed}")
        require(not isinstance(whole, str), f"whole must be a list of patterns, such as [{whole!r}]")
        known = ", ".join(server.AVERAGINGS)
        require(averaging in server.AVERAGINGS, f"averaging must be one of {known}, got {averaging!r}")
        self.method = resolve(method, keep=keep)
        self.description = describe(self.method)
        self.stepsize = None if stepsize is None else as_stepsize(stepsize)
        self.local_steps = local_steps
        self.min_accepted = min_accepted
        self.limits = limits
        self.downlink = downlink
        self.whole = whole
        self.averaging = server.AVERAGINGS[averaging]
        self.ledger = None if ledger is None else Path(ledger)
        self.seed = seed
        self.lr_key = lr_key
        self.history: list[dict[str, Any]] = []

    # --- a run --------------------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """As FedAvg's: T is known from here, and with it how to compress."""
        config = ConfigRecord() if train_config is None else train_config
        self.begin(initial_arrays, num_rounds, config, timeout)
        return super().start(grid, initial_arrays, num_rounds, timeout, config, evaluate_config, evaluate_fn)

    def begin(
        self, initial_arrays: ArrayRecord, num_rounds: int, train_config: ConfigRecord, timeout: float = DEFAULT_TTL
    ) -> None:
        """The state before the first round."""
        self.rounds = num_rounds
        self.seconds = timeout
        self.layout = Layout.of(initial_arrays, self.whole)
        self.state = ServerState(self.layout.flatten(initial_arrays, "initial_arrays"))
        finite = kernels.largest_magnitude(self.state.model) <= aggregate.LARGEST_MODEL
        require(finite, f"initial_arrays hold values that are not finite, or above {aggregate.LARGEST_MODEL:.3g}")
        rate = train_config.get(self.lr_key, 1.0)
        if not isinstance(rate, int | float):
            raise InputError(f"train_config[{self.lr_key!r}] must be a number, found {rate!r}")
        self.schedule = Schedule(self.stepsize or Constant(float(rate)), num_rounds * self.local_steps)
        self.scale = self.method.scale(self.layout.dim, self.schedule)
        self.training = secrets.token_hex(8)
        self.inbox = Inbox(self.layout.dim, self.limits, self.weighted_by_key)
        self.down = Downlink(self.layout, self.downlink)
        self._asked = 0
        self._absent: list[str] = []
        if self.ledger is not None:
            with storing(self.ledger, "start again", "choose another ledger"), self.ledger.open("a"):
                pass

    @property
    def averaged_arrays(self) -> ArrayRecord | None:
        """The averaged model, once there is one."""
        return None if self.state.average is None else self.layout.record(self.state.average)

    def summary(self) -> None:
        super().summary()
        LOG.info("\t└──> gammafl: %s", self.description)
        LOG.info("\t\t└── %d elements, downlink: %s", self.layout.dim, self.downlink)

    # --- a round ------------------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Algorithm 1, line 3: participants by the seed, and the model with the terms for each of them."""
        if self.fraction_train == 0.0:
            return []
        count = max(int(len(list(grid.get_node_ids())) * self.fraction_train), self.min_train_nodes)
        _, connected = sample_nodes(grid, self.min_available_nodes, count)
        nodes = sorted(connected)
        picked = [nodes[i] for i in server.pick(len(nodes), count, self.seed, server_round - 1)]
        LOG.info("configure_train: Sampled %s nodes (out of %s)", len(picked), len(nodes))
        config["server-round"] = server_round
        if self.stepsize is not None:
            config[self.lr_key] = float(self.stepsize((server_round - 1) * self.local_steps))
        self.down.sent_bytes, self._asked = 0, len(picked)
        self._absent = [" ".join(map(str, entry)) for entry in self.inbox.receipts.absent(set(nodes), MOST_ABSENT)]
        return [self._message(node, server_round, config, MessageType.TRAIN) for node in picked]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Algorithm 1, lines 17-19, over the uploads that are in order."""
        good, failed = self._check_and_log_replies(replies, is_train=True, validate=False)
        mail = self.inbox.sort(good, server_round, aggregate.largest_value(total_weight=1))
        for node, version in mail.holding.items():
            self.down.holds(node, version)
        letters = mail.letters
        if len(letters) < self.min_accepted:
            LOG.warning(
                "gammafl: %d uploads in order, %d needed: the model stays, and the clients keep their updates",
                len(letters),
                self.min_accepted,
            )
            letters = []
        shares = aggregate.weights([letter.weight for letter in letters], len(letters), "normalized", self._asked)
        server.apply(self.state, [(letter.upload, letter.update) for letter in letters], shares)
        self.layout.clamp(self.state.model)
        server.average(self.state, self.averaging, self.rounds)
        self.inbox.confirm(letters)
        self.down.changed((letter.update for letter in letters), self.state.round)
        return self._close(server_round, mail, letters, len(failed))

    def _close(
        self, server_round: int, mail: Mail, letters: Sequence[Letter], failed: int
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The round's record, its metrics and the new model."""
        kept = sum(len(letter.update) for letter in letters)
        sent = sum(len(letter.upload.payload) for letter in letters)
        record: dict[str, Any] = {
            "round": server_round,
            "iteration": server_round * self.local_steps,
            "clients": [self.inbox.label(letter) for letter in letters],
            "kept": kept,
            "uplink_bytes": sent,
            "downlink_bytes": self.down.sent_bytes,
            "failed": failed,
            "repeated": len(mail.repeated),
            "without_model": len(mail.without_model),
            "refused": {str(node): reason for node, reason in mail.refused.items()},
        }
        self._write(record)
        counts: dict[str, Any] = {
            "accepted-uploads": len(letters),
            "refused-uploads": len(mail.refused),
            "uplink-bytes": sent,
        }
        if not letters:
            return None, MetricRecord(counts)
        dense = 4 * self.layout.dim * len(letters)
        LOG.info("gammafl: %d uploads, %d bytes instead of %d (%.0f×)", len(letters), sent, dense, dense / sent)
        metrics = self._averaged(self.train_metrics_aggr_fn, [letter.content for letter in letters])
        metrics.update(counts)
        metrics["kept-fraction"] = kept / (self.layout.dim * len(letters))
        return self.layout.record(self.state.model), metrics

    def _write(self, record: dict[str, Any]) -> None:
        self.history.append(record)
        if self.ledger is None:
            return
        try:
            with self.ledger.open("a") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:  # the model is worth more than its ledger
            LOG.warning("gammafl: the line of round %d could not be written: %s", record["round"], error)

    # --- evaluation by clients ----------------------------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        messages = super().configure_evaluate(server_round, arrays, config, grid)
        if self.downlink == "full":
            return messages
        nodes = [message.metadata.dst_node_id for message in messages]
        return [self._message(node, server_round, config, MessageType.EVALUATE) for node in nodes]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """FedAvg's, over the replies that can be averaged."""
        good, _ = self._check_and_log_replies(replies, is_train=False, validate=False)
        for reply in good:
            self._note_version(reply)
        contents = [reply.content for reply in good if reply.content.metric_records]
        return self._averaged(self.evaluate_metrics_aggr_fn, contents) if contents else None

    def _averaged(self, average: Aggregation, contents: list[RecordDict]) -> MetricRecord:
        """The clients' metrics; none, and a word in the log, if they can't be averaged. The model is not at stake."""
        usable = alike(contents, self.weighted_by_key)
        try:
            return average(usable, self.weighted_by_key) if usable else MetricRecord()
        except Exception as error:  # the app's own function, on what clients sent
            LOG.warning("gammafl: the metrics could not be aggregated: %s", printable(repr(error)))
            return MetricRecord()

    def _note_version(self, reply: Message) -> None:
        try:
            answer = Holding.read(reply.content)
        except GammaflError:
            return
        if answer is not None:
            self.down.holds(reply.metadata.src_node_id, answer.holds)

    def _message(self, node: int, server_round: int, config: ConfigRecord, kind: str) -> Message:
        """The model, the app's own config, and our terms."""
        arrays, base = self.down.pack(node, self.state.model)
        receipt = self.inbox.receipts.receipt(node)
        moment = self.schedule.moment(server_round * self.local_steps, self.scale)
        offer = Offer(
            training=self.training,
            method=self.description,
            whole=list(self.whole),
            dim=self.layout.dim,
            round=server_round,
            **run_facts(moment),
            layout=self.layout.vector.fingerprint(),
            **receipt_facts(receipt),
            absent=self._absent if receipt is None and self._absent else None,
            entries=self.limits.entries,
            norm=self.limits.norm,
            version=self.down.version,
            base=base,
            downlink=self.downlink,
        )
        content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        offer.write(content)
        # not delivered once nobody waits for the answer
        return Message(content, node, kind, ttl=self.seconds, group_id=str(server_round))
