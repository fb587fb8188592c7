"""Stores a training after each round. After a restart, finished rounds are skipped.

The strategy's own `start` runs again from its first round. In a finished round, nothing is sent and nothing is
aggregated: for `start` it looks like a round without answers. The last finished round returns the stored model.
"""

import copy
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from gammafl.core.errors import GammaflError, require
from gammafl.flower.checkpoint import ELSEWHERE, Checkpoint, Stored, Terms, unusable
from gammafl.flower.outgoing import Nodes
from gammafl.flower.packing import Packer, unpack
from gammafl.flower.rounds import Rounds
from gammafl.flower.strategy_state import StrategyState

LOG = logging.getLogger("flwr")

Metrics = dict[str, dict[int, MetricRecord]]
METRICS = ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp")
"""The attributes of Flower's `Result` that hold metrics by round."""

TRAIN, EVALUATE, SERVER = METRICS

UNUSABLE = (KeyError, TypeError, ValueError, AttributeError, MemoryError, GammaflError)
"""Errors that a forged checkpoint may cause."""


class Resumption:
    """Stores the rounds of a strategy in `directory`, and continues from what is stored there.

    All that a round depends on is on the disk before its first message is sent.
    """

    def __init__(self, directory: Path, strategy: Strategy, stateless: Collection[str]) -> None:
        self._checkpoint = Checkpoint(directory)
        self._state = StrategyState(strategy, stateless)
        self._stored: Stored | None = None
        self.done: int | None = None
        """The last round that was finished when this process began."""
        self._aggregated: int | None = None
        """The last round that is finished now."""
        self._due = True
        """Whether something has changed since the last write."""
        self._configs: dict[str, Config] = {TRAIN: Config(), EVALUATE: Config()}
        self.metrics: Metrics = {name: {} for name in METRICS}

    @contextmanager
    def begun(self, now: Rounds, terms: Terms, initial: ArrayRecord | None) -> Iterator[None]:
        """While it lasts, only this process uses the directory. `now` continues from what is stored there."""
        self._now, self._terms = now, terms
        with self._checkpoint.locked():
            self._stored = stored = self._checkpoint.read(terms)
            if stored is not None:
                self._restore(stored)
                self._require_same_model(initial)
            yield

    def _restore(self, stored: Stored) -> None:
        facts, tensors = stored.facts, stored.tensors
        try:
            self._now.restore(facts.rounds, tensors)
            for name, packed in facts.hooks["configs"].items():
                if facts.done is not None:  # otherwise the first round starts again, with the app's own config
                    self._configs[name].restore(*unpack(packed, tensors))
            for name, packed in facts.hooks["metrics"].items():
                self.metrics[name] = found = unpack(packed, tensors)
                require(name in METRICS and _is_by_round(found), "its metrics are none")
        except UNUSABLE as error:
            raise unusable(self._checkpoint.file, error) from None
        self.done = self._aggregated = facts.done
        closed = self._now.training.exchange.round
        left = self._terms.rounds - closed
        LOG.info("gammafl: %d rounds are finished (%s), %d are left", closed, self._checkpoint.file, left)
        if left <= 0:
            LOG.warning("gammafl: the training is over; remove %s to start again", self._checkpoint.file)

    def _require_same_model(self, initial: ArrayRecord | None) -> None:
        layout = self._now.training.layout
        same = initial is None or (
            tuple(initial) == layout.names
            and all(tuple(initial[n].shape) == layout.shape(n) for n in layout.names if n not in layout.fixed)
        )
        require(
            same,
            f"{self._checkpoint.file} belongs to a model with other tensors. Remove it to start again, or {ELSEWHERE}",
        )

    def _restore_strategy(self) -> None:
        """Restores the strategy once, in the first round that is left: `start` may change it before."""
        stored, self._stored = self._stored, None
        if stored is None or self.done is None:
            return
        try:
            self._state.restore(stored.facts.strategy, stored.tensors)
        except (*UNUSABLE, RecursionError) as error:
            raise unusable(self._checkpoint.file, error) from None

    @property
    def _passing(self) -> bool:
        """Whether the round that `start` runs now was finished before."""
        return self._stored is not None and self.done is not None

    def is_past(self, server_round: int) -> bool:
        """Whether a later round was finished when this process began."""
        return self.done is not None and server_round < self.done

    def hooks(self, strategy: Strategy) -> dict[str, Callable[..., Any]]:
        """Name → the method of the strategy, wrapped: what it does in a round."""
        return {
            "configure_train": partial(self.configure, TRAIN, strategy.configure_train),
            "aggregate_train": partial(self.aggregate_train, strategy.aggregate_train),
            "configure_evaluate": partial(self.configure, EVALUATE, strategy.configure_evaluate),
            "aggregate_evaluate": partial(self.aggregate_evaluate, strategy.aggregate_evaluate),
        }

    # --- what the strategy does in a round ----------------------------------------------------------------

    def write(self, messages: list[Message], connected: Nodes, timeout: float | None) -> list[Message]:
        """As `Rounds.write`, and stores what the messages depend on. In finished rounds, nothing is sent."""
        if self._passing:
            return []
        written = self._now.write(messages, connected, timeout)
        self.save()
        return written

    def configure(
        self,
        kind: str,
        original: Callable[..., Iterable[Message]],
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        grid: Grid,
    ) -> Iterable[Message]:
        """Calls the strategy's `configure_train` or `configure_evaluate`, but not in finished rounds."""
        if self.is_past(server_round) or (kind == TRAIN and server_round == self.done):
            return []
        self._restore_strategy()
        self._configs[kind].meet(config)
        self.save()
        return original(server_round, arrays, config, grid)

    def aggregate_train(
        self, original: Callable[..., Any], server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        if self.is_past(server_round):
            return None, None
        if server_round == self.done and self._stored is not None:
            self._restore_strategy()
            return self._now.made, None
        arrays, metrics = self._now.aggregate(original, server_round, list(replies))
        self._aggregated, self._due = server_round, True
        self._note(TRAIN, server_round, metrics)
        if self._now.training.terms.privacy is not None:
            # The app may publish this model now: after a restart, the same uploads must not get other noise.
            self.save()
            self._due = True  # stored again later, with what the strategy does after this
        return arrays, metrics

    def aggregate_evaluate(
        self, original: Callable[..., Any], server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        if self.is_past(server_round):
            return None
        metrics: MetricRecord | None = self._now.evaluate(original, server_round, list(replies))
        self._note(EVALUATE, server_round, metrics)
        return metrics

    def evaluate(
        self, original: Callable[..., MetricRecord | None], server_round: int, arrays: ArrayRecord
    ) -> MetricRecord | None:
        """The app's `evaluate_fn`."""
        if self.is_past(server_round):
            return None
        metrics = original(server_round, arrays)
        self._note(SERVER, server_round, metrics)
        return metrics

    def _note(self, kind: str, server_round: int, metrics: Any) -> None:
        if isinstance(metrics, MetricRecord):
            self.metrics[kind][server_round] = metrics

    def complete(self, result: Any) -> None:
        """Adds the metrics of skipped rounds to the result."""
        if isinstance(result, Result):
            for name, by_round in self.metrics.items():
                there = getattr(result, name)
                together = sorted({**by_round, **there}.items())
                there.clear()
                there.update(together)  # in the order of rounds, as without a restart

    # --- the disk -----------------------------------------------------------------------------------------

    def save(self) -> None:
        """Writes the checkpoint if something has changed since the last write."""
        if not self._due or not self._now.training.begun:
            return
        packer = Packer()
        facts = {
            "terms": self._terms.model_dump(),
            "done": self._aggregated,
            "rounds": self._now.state(packer),
            "strategy": self._state.pack(packer),
            "hooks": {
                "configs": {name: packer.pack(config.changes) for name, config in self._configs.items()},
                "metrics": {name: packer.pack(metrics) for name, metrics in self.metrics.items()},
            },
        }
        self._checkpoint.write(facts, packer)
        self._due = False


def _is_by_round(metrics: Any) -> bool:
    """Whether these are metrics of rounds, by the rounds' numbers."""
    return isinstance(metrics, dict) and all(
        isinstance(number, int) and isinstance(record, MetricRecord) for number, record in metrics.items()
    )


class Config:
    """A config that `start` passes from round to round: remembers what the strategy has changed in it."""

    def __init__(self) -> None:
        self._first: dict[str, Any] | None = None
        self._now = ConfigRecord()
        self._restored: dict[str, Any] = {}
        self._gone: set[str] = set()

    def meet(self, config: ConfigRecord) -> None:
        """Takes `config` before the strategy gets it in a round. The first time, adds what was restored."""
        if self._first is None:
            self._first = copy.deepcopy(dict(config))  # lists in it may change in place
            config.update(self._restored)
            for key in self._gone & config.keys():
                del config[key]
        self._now = config

    @property
    def changes(self) -> tuple[dict[str, Any], set[str]]:
        """The entries that are new or different, and the keys that are removed."""
        first = self._first
        if first is None:
            return self._restored, self._gone
        changed = {key for key, value in self._now.items() if key in self._restored or first.get(key) != value}
        return {key: self._now[key] for key in sorted(changed)}, first.keys() - self._now.keys()

    def restore(self, changed: dict[str, Any], gone: set[str]) -> None:
        """Sets what `changes` returned before the restart."""
        require(isinstance(changed, dict) and isinstance(gone, set), "its configs are malformed")
        self._restored, self._gone = dict(ConfigRecord(changed)), gone
