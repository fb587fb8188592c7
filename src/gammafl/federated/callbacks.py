"""Callbacks: they watch a run while it goes on, with one protocol for the simulator and Flower.

    on_start        once, before the first round of this process
    on_round        after each round, when the server has its new model
    on_evaluation   after each evaluation
    on_end          once: the run ended, was stopped, or failed

A callback changes no result, but it may end the run early: it returns the reason from `on_start`, `on_round` or
`on_evaluation`; an empty text is no reason. Values that take time are computed only when a callback asks for them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gammafl.core.compressors import Thresholding, TopK
from gammafl.core.errors import InputError
from gammafl.core.method import Method
from gammafl.core.moment import Moment
from gammafl.core.sparse import SparseUpdate
from gammafl.federated.records import Summary

Tensors = dict[str, NDArray[Any]]
Reason = str | None
"""Why a run ends early. None: it continues."""

FEW = 12
"""`scalars` has values of each client if there are at most this many clients."""


def _no_model() -> Tensors:
    raise InputError("there is no model yet")


@dataclass(frozen=True)
class Evaluated:
    """An evaluation of the model, as callbacks get it.

    round       after which round, counted from 1; 0 before the first one
    iteration   t at the end of that round
    values      name → number, such as {"accuracy": 0.81, "loss": 0.62}. Names such as "averaged accuracy" belong to
                the averaged model; "server accuracy" to the server's own model, if clients hold another one
    by          who evaluated: the "server", or over Flower also the "clients", averaged by the strategy
    make_model  makes the copy that `model` returns
    """

    round: int
    iteration: int
    values: Mapping[str, float]
    by: str = "server"
    make_model: Callable[[], Tensors] = field(default=_no_model, repr=False)

    def model(self) -> Tensors:
        """Name → copy of a tensor of the model that was evaluated."""
        return self.make_model()

    def scalars(self) -> dict[str, float]:
        """`values` for a tracker, with names that begin with "evaluation/" or "clients' evaluation/".

        >>> Evaluated(20, 100, {"accuracy": 0.8}).scalars()
        {'evaluation/accuracy': 0.8}
        """
        group = "evaluation" if self.by == "server" else f"{self.by}' evaluation"
        return {f"{group}/{name}": value for name, value in self.values.items()}


@dataclass(frozen=True)
class Run:
    """The facts about a run when it begins or continues.

    task          the task's name, or over Flower the strategy's
    method        the method, in words
    rounds        the number of rounds in the whole run
    local_steps   E, the local steps per round
    seed          the run's seed; None over Flower
    clients       the number of clients; None if it is not known
    dim           the number of the model's elements; None if it is not known yet
    round         the last finished round: 0, or the round after which a resumed run continues
    directory     where the run stores its files: `out` of the simulator, `checkpoint` over Flower
    settings      the configuration as nested tables of plain values
    evaluations   returns the evaluations of finished rounds

    >>> Run("mine", "top-k", rounds=10, local_steps=5).round
    0
    """

    task: str
    method: str
    rounds: int
    local_steps: int
    seed: int | None = None
    clients: int | None = None
    dim: int | None = None
    metric: str | None = None
    """The name of the task's metric; None over Flower, where only the app knows it."""

    higher_is_better: bool | None = None
    round: int = 0
    directory: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    evaluations: Callable[[], Sequence[Evaluated]] = field(default=list, repr=False)


@dataclass(frozen=True)
class Upload:
    """An upload of one client in a round that counted."""

    uplink_bytes: int
    update: SparseUpdate = field(repr=False)
    train_loss: float | None = None

    @property
    def kept_fraction(self) -> float:
        """The part of the model's entries that the upload holds."""
        return len(self.update) / self.update.dim


@dataclass(frozen=True)
class Round:
    """A finished round. Sizes are in bytes and count only uploads that counted.

    run              the facts about the run
    round            the round's number, counted from 1
    iteration        t at the end of the round
    asked            how many clients were asked to train
    uploads          client → its upload, if it counted
    kept             entries of these uploads
    uplink_bytes     bytes of these uploads
    downlink_bytes   bytes of the model, or of its changes, to the clients
    total_*          the same since the beginning of the run
    refused          client → why its upload was refused
    capped           uploads that were cut to a budget
    train_loss       the mean training loss; None over Flower
    warnings         what is wrong with the training, each once
    metrics          over Flower: the clients' metrics as the strategy averaged them
    evaluation       the evaluation at the end of this round, if there was one. None over Flower: it comes later
    method, moment   the method, and the end of the round as the method sees it
    make_model       makes the copy that `model` returns
    residual_of      client → its residual, in the simulator

    >>> run = Run("mine", "top-k", rounds=10, local_steps=5)
    >>> round = Round(run, 1, 5, asked=2, uploads={}, kept=0, uplink_bytes=0, downlink_bytes=80,
    ...     total_uplink_bytes=0, total_downlink_bytes=80, total_kept_fraction=0.0, refused={"3": "not finite"})
    >>> round.scalars()["round/refused"], round.kept_fraction
    (1.0, None)
    """

    run: Run
    round: int
    iteration: int
    asked: int
    uploads: Mapping[str, Upload]
    kept: int
    uplink_bytes: int
    downlink_bytes: int
    total_uplink_bytes: int
    total_downlink_bytes: int
    total_kept_fraction: float
    refused: Mapping[str, str] = field(default_factory=dict)
    capped: int = 0
    train_loss: float | None = None
    stepsize: float | None = None
    """γ_t at the end of the round; None if it is not known."""

    link_seconds: float | None = None
    """Seconds on the virtual clock since the beginning of the run."""

    warnings: Sequence[str] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    evaluation: Evaluated | None = None
    method: Method | None = field(default=None, repr=False)
    moment: Moment | None = field(default=None, repr=False)
    make_model: Callable[[], Tensors] = field(default=_no_model, repr=False)
    residual_of: Callable[[str], NDArray[np.float32]] | None = field(default=None, repr=False)

    @property
    def kept_fraction(self) -> float | None:
        """The part of the entries that an upload keeps, on average; None if no upload counted."""
        return fmean(upload.kept_fraction for upload in self.uploads.values()) if self.uploads else None

    @cached_property
    def threshold(self) -> float | None:
        """λ_t, for methods that have one.

        At level "upload", each client has its own: then it is the median of the smallest kept magnitudes.
        """
        if self.method is None or self.moment is None or not isinstance(self.method.compressor, Thresholding | TopK):
            return None
        compressor, level = self.method.compressor, self.method.level
        told = self.moment if level is None else level.told(self.moment)
        if isinstance(compressor, Thresholding) and told.keep is None and told.scale > 0:
            return compressor.threshold(told)
        tail = 0 if self.moment.layout is None else self.moment.layout.tail
        compressed = [upload.update.split(tail)[0] for upload in self.uploads.values()]
        kept = [float(np.abs(update.values).min()) for update in compressed if len(update)]
        return median(kept) if kept else None

    def residual_norm(self, client: str | None = None) -> float | None:
        """‖e‖ of a client's residual; without a name, the mean over the clients of the round.

        It reads each residual as a whole. None over Flower, where only the clients know it.
        """
        if self.residual_of is None or not self.uploads:
            return None
        names = self.uploads if client is None else [client]
        return fmean(float(np.linalg.norm(self.residual_of(name))) for name in names)

    def model(self) -> Tensors:
        """Name → copy of a tensor of the model that clients hold when the next round begins.

        Call it inside the callback: the model changes later.
        """
        return self.make_model()

    def scalars(self) -> dict[str, float]:
        """The round's numbers for a tracker, in groups: "round/…", "total/…", and with few clients "client 3/…".

        The norm of the residuals is included only in rounds with an evaluation, since it takes time.
        """
        known = {
            "round/train loss": self.train_loss,
            "round/uplink bytes": self.uplink_bytes,
            "round/downlink bytes": self.downlink_bytes,
            "round/kept fraction": self.kept_fraction,
            "round/uploads": len(self.uploads),
            "round/refused": len(self.refused),
            "round/threshold": self.threshold,
            "round/stepsize": self.stepsize,
            "round/residual norm": self.residual_norm() if self.evaluation is not None else None,
            "total/uplink bytes": self.total_uplink_bytes,
            "total/downlink bytes": self.total_downlink_bytes,
            "total/kept fraction": self.total_kept_fraction,
            "total/link seconds": self.link_seconds,
            **{f"round/{name}": value for name, value in self.metrics.items()},
        }
        if (self.run.clients or self.asked) <= FEW:
            for name, upload in self.uploads.items():
                known[f"client {name}/uplink bytes"] = upload.uplink_bytes
                known[f"client {name}/kept fraction"] = upload.kept_fraction
                known[f"client {name}/train loss"] = upload.train_loss
        return {name: float(value) for name, value in known.items() if value is not None}


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    run       the facts about the run
    round     the last finished round
    stopped   the reason, if a callback ended the run
    error     the exception, if the run failed or the user interrupted it
    summary   the summary, for a run of the simulator that did not fail

    >>> Ended(Run("mine", "top-k", rounds=10, local_steps=5), round=3, stopped="good enough").stopped
    'good enough'
    """

    run: Run
    round: int
    stopped: Reason = None
    error: BaseException | None = None
    summary: Summary | None = None


class Callback:
    """The base class of callbacks. Override the methods that you need; those here do nothing.

    >>> class Kept(Callback):
    ...     def on_round(self, round: Round) -> Reason:
    ...         return "more than half is kept" if (round.kept_fraction or 0) > 0.5 else None
    >>> Kept().on_end(Ended(Run("mine", "top-k", rounds=10, local_steps=5), round=10))
    """

    def on_start(self, run: Run) -> Reason:
        """Before the first round of this process."""
        return None

    def on_round(self, round: Round) -> Reason:
        """After a round, and before `on_evaluation` for that round."""
        return None

    def on_evaluation(self, evaluation: Evaluated) -> Reason:
        """After an evaluation. Over Flower also before the first round, as round 0."""
        return None

    def on_end(self, end: Ended) -> None:
        """At the end of the run in this process, also if it failed; not if the process is killed."""


class Watch:
    """Calls the callbacks of a run, in their order. `stopped` is the first reason that one of them returned."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        if isinstance(callbacks, Callback) or not all(isinstance(one, Callback) for one in callbacks):
            raise InputError(f"callbacks must be a list of gf.Callback, got {callbacks!r:.80}")
        self.callbacks = list(callbacks)
        self.stopped: Reason = None
        self.round = 0
        self.summary: Summary | None = None
        """The summary for `on_end`."""

    def __bool__(self) -> bool:
        """Whether there is any callback."""
        return bool(self.callbacks)

    @contextmanager
    def of(self, run: Run) -> Iterator[None]:
        """Calls `on_start`, and at the end `on_end` of every callback whose `on_start` was called."""
        self.stopped, self.round, self.summary = None, run.round, None
        begun: list[Callback] = []
        error: BaseException | None = None
        try:
            for callback in self.callbacks:
                self._take(callback, callback.on_start(run))
                begun.append(callback)
            yield
        except BaseException as caught:
            error = caught
            raise
        finally:
            self._end(begun, Ended(run, self.round, self.stopped, error, self.summary))

    def _end(self, begun: Sequence[Callback], end: Ended) -> None:
        failed: list[Exception] = []
        for callback in begun:
            try:
                callback.on_end(end)
            except Exception as error:  # the other callbacks get their on_end too
                failed.append(error)
        if not failed:
            return
        if end.error is None:
            raise failed[0]
        for one in failed:  # the error that ended the run stays the main one
            end.error.add_note(f"a callback's on_end failed too: {one!r}")

    def tell_round(self, round: Round) -> None:
        """Tells a finished round, and its evaluation if it has one."""
        self.round = round.round
        for callback in self.callbacks:
            self._take(callback, callback.on_round(round))
        if round.evaluation is not None:
            self.tell_evaluation(round.evaluation)

    def tell_evaluation(self, evaluation: Evaluated) -> None:
        for callback in self.callbacks:
            self._take(callback, callback.on_evaluation(evaluation))

    def _take(self, callback: Callback, reason: Any) -> None:
        if not isinstance(reason, Reason):
            name = type(callback).__name__
            raise InputError(f"a method of {name} returned {reason!r:.40}; to end the run, return the reason as text")
        self.stopped = self.stopped or reason or None
