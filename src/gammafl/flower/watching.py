"""Calls the callbacks of a training over Flower, and ends it if one of them asks for it.

A strategy's own `start` can't be left early without losing its result. So it runs the remaining rounds, but nothing is
sent in them: for `start` they look like rounds without answers.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord

from gammafl.federated.callbacks import Evaluated, Round, Run, Tensors, Upload, Watch
from gammafl.flower.arrays import floats_in
from gammafl.flower.resumption import EVALUATE, SERVER, Resumption
from gammafl.flower.rounds import OURS, Rounds

LOG = logging.getLogger("flwr")

Hooks = dict[str, Callable[..., Any]]
"""Name → method of the strategy, for those that a round calls."""

CLIENTS = "clients"


class Watching:
    """Tells `watch` about the rounds of `now`. `run` holds the facts that are known at the beginning."""

    def __init__(self, watch: Watch, now: Rounds, run: Run, resumption: Resumption | None) -> None:
        self.watch, self.now, self.run = watch, now, run
        self._playing = -1 if resumption is None or resumption.done is None else resumption.done
        """The strategy's number of its current round; before the first, that of the last finished round."""

        self._last: int | None = None
        """The round in which a callback ended the training. This round is still evaluated."""

        self._told = len(now.history)
        self._up = sum(record["uplink_bytes"] for record in now.history)
        self._down = sum(record["downlink_bytes"] for record in now.history)
        self._kept = sum(record["kept"] for record in now.history)
        self._uploads = sum(len(record["clients"]) for record in now.history)

    def hooks(self, inner: Hooks) -> Hooks:
        """The functions of `inner`, which also call the callbacks. They do nothing after one has ended the training."""
        return {
            "configure_train": partial(self._unless_stopped, [], inner["configure_train"]),
            "aggregate_train": partial(self._unless_stopped, (None, None), partial(self._train, inner)),
            "configure_evaluate": partial(self._unless_stopped, [], inner["configure_evaluate"]),
            "aggregate_evaluate": partial(self._unless_stopped, None, partial(self._evaluate, inner)),
        }

    def evaluating(self, evaluate: Callable[..., MetricRecord | None]) -> Callable[..., MetricRecord | None]:
        """The app's `evaluate_fn`, wrapped in the same way."""

        def told(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            metrics = evaluate(server_round, arrays)
            self._tell_evaluation(server_round, metrics, "server", partial(self._tensors, arrays))
            return metrics

        return partial(self._unless_stopped, None, told)

    def _unless_stopped(self, instead: Any, hook: Callable[..., Any], server_round: int, *args: Any) -> Any:
        """Calls `hook` unless the training has ended. It is called in finished rounds too: they restore the model."""
        if self.watch.stopped is not None:
            self._last = self._playing if self._last is None else self._last
            if server_round > self._last:
                return instead
        self._playing = max(self._playing, server_round)
        return hook(server_round, *args)

    def _train(self, inner: Hooks, server_round: int, replies: Iterable[Message]) -> Any:
        arrays, metrics = inner["aggregate_train"](server_round, replies)
        for record in self.now.history[self._told :]:
            self._told += 1
            last = self._told == len(self.now.history)
            self._tell_round(record, numbers_of(metrics, OURS) if last else {}, self._last_uploads() if last else {})
        return arrays, metrics

    def _evaluate(self, inner: Hooks, server_round: int, replies: Iterable[Message]) -> Any:
        metrics = inner["aggregate_evaluate"](server_round, replies)
        self._tell_evaluation(server_round, metrics, CLIENTS, self._model)
        return metrics

    def _tell_round(self, record: Mapping[str, Any], metrics: Mapping[str, float], uploads: dict[str, Upload]) -> None:
        self._up += record["uplink_bytes"]
        self._down += record["downlink_bytes"]
        self._kept += record["kept"]
        self._uploads += len(record["clients"])
        training, moment = self.now.training, self.now.moment
        told = Round(
            run=self.run,
            round=record["round"],
            iteration=record["iteration"],
            asked=record["asked"],
            uploads=uploads,
            kept=record["kept"],
            uplink_bytes=record["uplink_bytes"],
            downlink_bytes=record["downlink_bytes"],
            total_uplink_bytes=self._up,
            total_downlink_bytes=self._down,
            total_kept_fraction=self._kept / max(1, self._uploads * training.layout.dim),
            refused=dict(record["refused"]),
            capped=record.get("capped", 0),
            stepsize=None if moment is None else moment.gamma,
            warnings=tuple(record.get("warnings", ())),
            metrics=metrics,
            method=training.terms.method,
            moment=moment,
            make_model=self._model,
        )
        self.watch.tell_round(told)
        self._look_whether_it_ends()

    def _tell_evaluation(
        self, server_round: int, metrics: MetricRecord | None, by: str, make_model: Callable[[], Tensors]
    ) -> None:
        if values := numbers_of(metrics):
            evaluation = Evaluated(server_round, server_round * self.run.local_steps, values, by, make_model)
            self.watch.tell_evaluation(evaluation)
            self._look_whether_it_ends()

    def _look_whether_it_ends(self) -> None:
        if len(self.now.history) >= self.run.rounds:
            self.watch.stopped = None  # there was nothing left
        elif self.watch.stopped is not None:
            LOG.info("gammafl: a callback ends the training after round %d: %s", self.watch.round, self.watch.stopped)

    def _last_uploads(self) -> dict[str, Upload]:
        return {name: Upload(len(one.payload), one.update) for name, one in self.now.counted.items()}

    def _model(self) -> Tensors:
        made, last = self.now.made, self.now.training.last
        record = made if made is not None or last is None else last.record
        return {} if record is None else self._tensors(record)

    def _tensors(self, record: ArrayRecord) -> Tensors:
        held = self.now.training.as_held(record)
        return {name: floats_in(array).copy() for name, array in held.items()}


def evaluations_of(resumption: Resumption | None, local_steps: int) -> Sequence[Evaluated]:
    """The evaluations of finished rounds. That of the last one is left out: it is made again."""
    if resumption is None:
        return []
    kinds = {SERVER: "server", EVALUATE: CLIENTS}
    found = [
        Evaluated(number, number * local_steps, numbers_of(metrics), kinds[kind])
        for kind in kinds
        for number, metrics in resumption.metrics[kind].items()
        if resumption.is_past(number)
    ]
    return sorted(found, key=lambda evaluation: evaluation.round)


def numbers_of(metrics: MetricRecord | None, without: Iterable[str] = ()) -> dict[str, float]:
    """The metrics that are single numbers, as floats."""
    left_out = set(without)
    named = {} if metrics is None else dict(metrics)
    return {
        name: float(value)
        for name, value in named.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in left_out
    }
