"""Ends a run when its model no longer improves."""

import math
from typing import Any

from gammafl.core.errors import require
from gammafl.federated.callbacks import Callback, Evaluated, Reason, Run


class EarlyStopping(Callback):
    """Ends the run after `patience` evaluations in a row without an improvement.

    metric            a name in the evaluation's values; by default the run's own metric, or "loss"
    patience          how many evaluations to wait for an improvement
    least             how much better than the best one an evaluation must be
    higher_is_better  by default known for the run's own metric, false for a loss, true for all others
    by                "server", or over Flower also "clients": whose evaluations are watched

    A resumed run also uses the evaluations from before. So it ends in the same round as an uninterrupted one.

    >>> stopping = EarlyStopping("accuracy", patience=2)
    >>> stopping.on_start(Run("mine", "top-k", rounds=100, local_steps=5))
    >>> for number, accuracy in enumerate([0.5, 0.7, 0.7, 0.6], 1):
    ...     reason = stopping.on_evaluation(Evaluated(number, 5 * number, {"accuracy": accuracy}))
    >>> reason
    'patience=2 is over: accuracy was 0.7 at best, in round 2'
    """

    def __init__(
        self,
        metric: str | None = None,
        patience: int = 5,
        *,
        least: float = 0.0,
        higher_is_better: bool | None = None,
        by: str = "server",
    ) -> None:
        require(isinstance(patience, int) and patience >= 1, f"patience must be at least 1, got {patience!r}")
        require(least >= 0, f"least must not be negative, got {least!r}")
        require(by in ("server", "clients"), f"by must be 'server' or 'clients', got {by!r}")
        self._metric, self._patience, self._least = metric, patience, least
        self._higher, self._by = higher_is_better, by

    def on_start(self, run: Run) -> Reason:
        self._name = self._metric or run.metric or "loss"
        usual: Any = run.higher_is_better if self._name == run.metric else "loss" not in self._name
        higher = usual if self._higher is None else self._higher
        self._sign = 1.0 if higher else -1.0
        self._best: Evaluated | None = None
        self._waited = 0
        reason = None
        for evaluation in run.evaluations():
            reason = self.on_evaluation(evaluation)
        return reason

    def on_evaluation(self, evaluation: Evaluated) -> Reason:
        if evaluation.by != self._by:
            return None
        values = evaluation.values
        require(
            self._name in values,
            f"EarlyStopping watches {self._name!r}, but an evaluation has {', '.join(values) or 'nothing'}: name one"
            " of these",
        )
        best, value = self._best, values[self._name]
        if best is None or self._is_better(value, best.values[self._name]):
            self._best, self._waited = evaluation, 0
            return None
        self._waited += 1
        if self._waited < self._patience:
            return None
        at_best = f"{self._name} was {best.values[self._name]:.4g} at best, in round {best.round}"
        return f"patience={self._patience} is over: {at_best}"

    def _is_better(self, value: float, best: float) -> bool:
        """Any number is better than none: a metric may be NaN at first, as a ratio of zeros is."""
        if math.isnan(best):
            return not math.isnan(value)
        return self._sign * (value - best) > self._least
